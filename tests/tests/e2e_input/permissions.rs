//! A right that is taken away while records flow.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kreplicator_proto::v1::{self, SaslMechanism, TaskState, secret_ref::From};
use kreplicator_tests::{
    api,
    load::{Load, LoadOptions},
    rig,
    tail::Tail,
    wait,
};
use tokio::time::{Instant, sleep};

use crate::{DEADLINE, Small, USER, scenario};

const LINK: &str = "rights";
const TOPICS: [&str; 2] = ["granted", "denied"];

/// C032, C113: the task that may not write says so and stands where the target's last acknowledgement was, the
/// other does not notice, and everything comes once the right is given back.
#[test]
fn c032_c113_a_topic_that_may_not_be_written_to_stops_alone_and_goes_on_once_it_may() {
    scenario(async |small| {
        let password = From::Env("RIGHT_PASSWORD".to_owned());
        let cluster = small.secured("guarded", SaslMechanism::ScramSha256, password);
        small.api.put_cluster(cluster).await?;
        small
            .api
            .put_link(api::link(LINK, "plain", "guarded", "rights."))
            .await?;
        let names = TOPICS.map(String::from);
        small.plain.create_topics(&names, 2, &[]).await?;
        let options = LoadOptions {
            records_per_second: 200,
            padding: 0,
        };
        let load = Load::start(&small.plain.client_config(), options)?;
        let tail = Tail::start(&small.secured.client_config())?;
        for topic in TOPICS {
            load.add(topic, 2);
            tail.follow(&format!("rights.{topic}"));
        }
        let begun = Instant::now();
        let subscriptions = TOPICS.map(|topic| api::topic(LINK, topic));
        small.api.subscribe(subscriptions.to_vec()).await?;
        flows(&tail, &TOPICS, begun).await?;

        // Where there is one rule, whatever is not allowed is denied.
        rule(small, &["--add", "--allow-principal", "--operation", "All"]).await?;
        rule(
            small,
            &["--add", "--deny-principal", "--operation", "Write"],
        )
        .await?;
        wait::until("tasks that tell of the right", DEADLINE, async || {
            let tasks = tasks_of(small, "denied").await?;
            for (task, report) in &tasks {
                ensure!(
                    task.state() == TaskState::Faulted
                        && report.cause.contains("rights.denied")
                        && report
                            .cause
                            .contains("the user lacks the permission WRITE; grant it on the topic"),
                    "{task:?}"
                );
            }
            Ok(Some(()))
        })
        .await?;
        stands_at_the_last_acknowledgement(small).await?;
        let before: u64 = seen(&tail, "granted");
        flows(&tail, &["granted"], Instant::now()).await?;
        sleep(Duration::from_secs(1)).await;
        ensure!(
            seen(&tail, "granted") > before + 10,
            "the other topic stopped"
        );
        for (task, _) in tasks_of(small, "granted").await? {
            ensure!(task.state() == TaskState::Running, "{task:?}");
        }
        stands_at_the_last_acknowledgement(small).await?;

        rule(
            small,
            &[
                "--remove",
                "--force",
                "--deny-principal",
                "--operation",
                "Write",
            ],
        )
        .await?;
        flows(&tail, &TOPICS, Instant::now()).await?;
        let produced = load.finish(DEADLINE).await?.into_iter();
        let renamed = produced
            .map(|((topic, partition), count)| ((format!("rights.{topic}"), partition), count));
        let report = tail.complete(&renamed.collect(), DEADLINE).await?;
        ensure!(report.is_as_promised(), "{report}");
        wait::until_true("tasks that run again", DEADLINE, async || {
            let tasks = tasks_of(small, "denied").await?;
            Ok(tasks
                .iter()
                .all(|(task, _)| task.state() == TaskState::Running))
        })
        .await?;
        small.api.delete_link(LINK).await?;
        Ok(())
    });
}

/// Changes a rule about the user and the target topic `rights.denied`; the last of `args` but two names the kind
/// of rule.
async fn rule(small: &Small, args: &[&str]) -> Result<()> {
    let user = format!("User:{USER}");
    let mut all: Vec<&str> = args[..args.len() - 2].to_vec();
    all.push(&user);
    all.extend(&args[args.len() - 2..]);
    all.extend(["--topic", "rights.denied"]);
    let class = "org.apache.kafka.tools.AclCommand";
    small.secured.tool(class, &all).await?;
    Ok(())
}

/// Every partition of the topics has got a record since.
async fn flows(tail: &Tail, topics: &[&str], since: Instant) -> Result<()> {
    for topic in topics {
        for lane in rig::lanes(&format!("rights.{topic}"), 0..2) {
            tail.first_arrival(&lane, since, DEADLINE).await?;
        }
    }
    Ok(())
}

/// The checkpoint, as committed and as told, is the end of the target: all of it was acknowledged, nothing more.
async fn stands_at_the_last_acknowledgement(small: &Small) -> Result<()> {
    let group = format!("kreplicator.{LINK}");
    let lanes = rig::lanes("denied", 0..2);
    wait::until("checkpoints at the target's end", DEADLINE, async || {
        let ends = small.secured.watermarks("rights.denied").await?;
        let committed = small.plain.committed(&group, &lanes).await?;
        for (task, report) in tasks_of(small, "denied").await? {
            let lane = (task.topic, task.partition);
            let (_, end) = ends[&task.partition];
            let (saved, _) = &committed[&lane];
            ensure!(
                *saved == end && report.checkpoint == Some(end),
                "{lane:?}: {saved} is saved, {:?} told, and the target ends at {end}",
                report.checkpoint
            );
        }
        Ok(Some(()))
    })
    .await
}

async fn tasks_of(small: &Small, topic: &str) -> Result<Vec<(v1::Task, v1::TaskReport)>> {
    let tasks = small.api.tasks(LINK).await?.into_iter();
    let own = tasks.filter(|task| task.topic == topic).map(|task| {
        let report = task.report.clone().context("not reported yet")?;
        Ok((task, report))
    });
    let own = own.collect::<Result<Vec<_>>>()?;
    ensure!(own.len() == 2, "{own:?}");
    Ok(own)
}

/// Records of a topic that have arrived.
fn seen(tail: &Tail, topic: &str) -> u64 {
    let target = format!("rights.{topic}");
    let seen = tail.seen().into_iter();
    let own = seen.filter(|((name, _), _)| *name == target);
    own.map(|(_, count)| count).sum()
}
