//! Wrong input is refused with its name and a remedy, and leaves nothing behind.

use std::time::Duration;

use anyhow::{Result, ensure};
use kreplicator_proto::v1;
use kreplicator_tests::{
    api::{self, Api},
    load::{Load, LoadOptions},
    rig,
    tail::Tail,
    wait,
};
use tokio::time::Instant;
use tonic::Code;

use crate::{DEADLINE, Small, scenario};

/// Checks the code of a refusal, that it names what is wrong, and that it says what to do.
fn refused<T: std::fmt::Debug>(
    answer: Result<T, tonic::Status>,
    codes: &[Code],
    named: &[&str],
    remedy: &str,
) -> Result<()> {
    let status = match answer {
        Ok(answer) => anyhow::bail!("not refused: {answer:?}; expected to hear of {named:?}"),
        Err(status) => status,
    };
    ensure!(codes.contains(&status.code()), "{status:?}");
    for name in named {
        ensure!(
            status.message().contains(name),
            "does not name {name}: {:?}",
            status.message()
        );
    }
    ensure!(
        status.message().contains(remedy),
        "does not say to {remedy:?}: {:?}",
        status.message()
    );
    Ok(())
}

const INVALID: &[Code] = &[Code::InvalidArgument, Code::FailedPrecondition];
const ABSENT: &[Code] = &[
    Code::NotFound,
    Code::InvalidArgument,
    Code::FailedPrecondition,
];

/// Everything that was declared, as text.
async fn declared(api: &Api) -> Result<String> {
    let all = v1::ListRequest {
        page_size: 1_000,
        ..Default::default()
    };
    let clusters = api.list_clusters(&all).await?.into_iter();
    let links = api.list_links(&all).await?.into_iter();
    let subscriptions = api.list_subscriptions(&all).await?.into_iter();
    Ok(format!(
        "{:?}{:?}{:?}",
        clusters.map(|info| info.cluster).collect::<Vec<_>>(),
        links.map(|info| info.link).collect::<Vec<_>>(),
        subscriptions
            .map(|info| info.subscription)
            .collect::<Vec<_>>()
    ))
}

/// A second name of the plain cluster, and links both ways.
async fn declare(small: &Small) -> Result<()> {
    let api = &small.api;
    api.put_cluster(api::cluster(
        "other",
        small
            .secured
            .direct()
            .split(',')
            .map(String::from)
            .collect(),
    ))
    .await?;
    api.put_link(api::link("plain-other", "plain", "other", ""))
        .await?;
    Ok(())
}

#[test]
fn wrong_links_and_subscriptions_are_refused_by_name_and_leave_nothing_behind() {
    scenario(async |small| {
        declare(small).await?;
        small.plain.create_topic("exists", 1, &[]).await?;
        let api = &small.api;
        let before = declared(api).await?;

        let link = api::link("x", "nowhere", "other", "");
        let correct = "declare it or correct the name";
        refused(api.put_link(link).await, ABSENT, &["nowhere"], correct)?;
        let link = api::link("x", "plain", "plain", "");
        let two = "a link joins two clusters";
        refused(api.put_link(link).await, INVALID, &["plain"], two)?;
        let link = api::link("Not A Name", "plain", "other", "");
        let letters = "may hold only lower-case letters, digits";
        refused(api.put_link(link).await, INVALID, &["Not A Name"], letters)?;
        let clash = v1::Link {
            naming: Some(v1::Naming {
                rename: [("one", "same"), ("two", "same")]
                    .map(|(from, to)| (from.to_owned(), to.to_owned()))
                    .into(),
                ..Default::default()
            }),
            ..api::link("x", "plain", "other", "")
        };
        let own = "give each its own";
        refused(api.put_link(clash).await, INVALID, &["same"], own)?;
        let no_servers = api::cluster("empty", Vec::new());
        let one = "give at least one host:port";
        refused(
            api.put_cluster(no_servers).await,
            INVALID,
            &["bootstrap"],
            one,
        )?;
        let owned = v1::Cluster {
            client_options: [("acks".to_owned(), "0".to_owned())].into(),
            ..api::cluster("owned", vec!["127.0.0.1:1".to_owned()])
        };
        let leave = "is set by KReplicator; it carries the delivery guarantee; leave it out";
        refused(api.put_cluster(owned).await, INVALID, &["acks"], leave)?;

        let subscribe =
            async |subscriptions: Vec<v1::Subscription>| api.subscribe(subscriptions).await;
        let one = api::topic("plain-other", "exists");
        let expression = "is no regular expression (RE2 syntax)";
        for (subscription, codes, named, remedy) in [
            (api::topic("no-link", "exists"), ABSENT, "no-link", correct),
            (
                api::topic("plain-other", "absent"),
                ABSENT,
                "absent",
                "create it, correct the name, or allow missing topics",
            ),
            (
                api::topic("plain-other", "a b"),
                INVALID,
                "a b",
                "a pattern goes in `pattern`",
            ),
            (
                api::pattern("plain-other", "a(", &[]),
                INVALID,
                "a(",
                expression,
            ),
            (
                api::pattern("plain-other", ".*", &["[z"]),
                INVALID,
                "[z",
                expression,
            ),
            (
                api::topic("plain-other", "__kreplicator_origins"),
                INVALID,
                "__kreplicator_origins",
                "name another",
            ),
        ] {
            // The good one beside it is not taken either.
            let both = vec![one.clone(), subscription];
            refused(subscribe(both).await, codes, &[named], remedy)?;
        }
        let after = declared(api).await?;
        ensure!(before == after, "left behind:\n{before}\n{after}");
        Ok(())
    });
}

/// C074.
#[test]
fn c074_links_that_would_copy_in_a_circle_are_refused_and_named() {
    scenario(async |small| {
        declare(small).await?;
        let api = &small.api;
        api.put_link(api::link("other-plain", "other", "plain", ""))
            .await?;
        api.subscribe(vec![api::pattern("plain-other", "loop-.*", &[])])
            .await?;
        let back = vec![api::pattern("other-plain", "loop-.*", &[])];
        let answer = api.subscribe(back).await;
        let names = &["other-plain", "plain-other"];
        refused(answer, INVALID, names, "give each of them a prefix")?;
        api.delete_link("other-plain").await?;
        api.unsubscribe(vec![api::reference("plain-other", "/loop-.*/")])
            .await?;
        Ok(())
    });
}

/// C112.
#[test]
fn c112_a_repeated_request_gives_the_same_answer_and_changes_nothing() {
    scenario(async |small| {
        declare(small).await?;
        small.plain.create_topic("once", 1, &[]).await?;
        let request = v1::SubscribeRequest {
            subscriptions: vec![api::topic("plain-other", "once")],
            request_id: api::request_id(),
            allow_missing: false,
        };
        let first = small.api.subscribe_with(&request).await?;
        ensure!(first[0].changed, "{first:?}");
        let again = small.api.subscribe_with(&request).await?;
        ensure!(first == again, "{first:?}, then {again:?}");
        let other = v1::SubscribeRequest {
            subscriptions: vec![api::topic("plain-other", "twice")],
            ..request
        };
        let answer = small.api.subscribe_with(&other).await;
        let codes = &[Code::InvalidArgument, Code::AlreadyExists];
        refused(answer, codes, &[&other.request_id], "use a new one")?;
        small
            .api
            .unsubscribe(vec![api::reference("plain-other", "once")])
            .await?;
        let gone = vec![api::reference("plain-other", "once")];
        refused(
            small.api.unsubscribe(gone).await,
            &[Code::NotFound],
            &["once"],
            "list what exists with `kreplicator get subscriptions`",
        )
    });
}

/// C067: too few partitions on the target, and no leave to add some.
#[test]
fn c067_a_target_topic_with_too_few_partitions_is_told_of_and_not_written_to() {
    scenario(async |small| {
        declare(small).await?;
        let api = &small.api;
        let link = v1::Link {
            target_topics: Some(v1::TargetTopics {
                refuse_grow: true,
                ..Default::default()
            }),
            ..api::link("no-grow", "plain", "other", "fixed.")
        };
        api.put_link(link).await?;
        small.plain.create_topic("wide", 3, &[]).await?;
        small.secured.create_topic("fixed.wide", 1, &[]).await?;
        api.subscribe(vec![api::topic("no-grow", "wide")]).await?;
        let problem = wait::until("the problem in the status", DEADLINE, async || {
            let info = api.subscription("no-grow", "wide").await?;
            let topics = info.status.unwrap_or_default().topics;
            let problem = topics.into_iter().map(|topic| topic.problem).next();
            Ok(problem.filter(|problem| !problem.is_empty()))
        })
        .await?;
        let told = "target topic fixed.wide on cluster other has 1 partitions and its source 3; add partitions to \
                    it, or drop refuse_grow from link no-grow";
        ensure!(problem == told, "{problem}");
        let still = small.secured.partitions("fixed.wide").await?;
        ensure!(still == 1, "it was grown to {still}");
        wait::holds_for(
            "no record at the target",
            Duration::from_secs(2),
            async || {
                let watermarks = small.secured.watermarks("fixed.wide").await?;
                Ok(watermarks.values().all(|(start, end)| start == end))
            },
        )
        .await?;
        api.delete_link("no-grow").await?;
        Ok(())
    });
}

/// C067: more partitions on the target are no fault; the last ones stay empty, and that is said.
#[test]
fn c067_a_target_topic_with_more_partitions_is_accepted_and_warned_of() {
    scenario(async |small| {
        declare(small).await?;
        let api = &small.api;
        api.put_link(api::link("roomy", "plain", "other", "roomy."))
            .await?;
        small.plain.create_topic("narrow", 3, &[]).await?;
        small.secured.create_topic("roomy.narrow", 5, &[]).await?;
        let options = LoadOptions {
            records_per_second: 100,
            padding: 0,
        };
        let load = Load::start(&small.plain.client_config(), options)?;
        load.add("narrow", 3);
        let tail = Tail::start(&small.secured.client_config())?;
        tail.follow("roomy.narrow");
        api.subscribe(vec![api::topic("roomy", "narrow")]).await?;
        let subscribed = Instant::now();
        for lane in rig::lanes("roomy.narrow", 0..3) {
            tail.first_arrival(&lane, subscribed, DEADLINE).await?;
        }
        let produced = load.finish(DEADLINE).await?.into_iter();
        let renamed = produced
            .map(|((topic, partition), count)| ((format!("roomy.{topic}"), partition), count));
        let report = tail.complete(&renamed.collect(), DEADLINE).await?;
        ensure!(report.is_exact(), "{report}");
        let watermarks = small.secured.watermarks("roomy.narrow").await?;
        ensure!(watermarks.len() == 5, "it has {watermarks:?} now");
        let is_empty = |partition| watermarks[&partition].1 == 0;
        ensure!(is_empty(3) && is_empty(4), "{watermarks:?}");
        let info = api.subscription("roomy", "narrow").await?;
        let topics = info.status.unwrap_or_default().topics;
        ensure!(topics[0].problem.is_empty(), "{topics:?}");
        let warning = "has 5 partitions and its source 3: the last ones stay empty";
        ensure!(topics[0].note.contains(warning), "{topics:?}");
        let log = small.system.controllers()[0].log_tail();
        let said = log.lines().find(|line| line.contains(warning));
        ensure!(
            said.is_some_and(|line| line.contains("WARN") && line.contains("roomy.narrow")),
            "no warning: {log}"
        );
        small.api.delete_link("roomy").await?;
        Ok(())
    });
}
