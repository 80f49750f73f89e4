//! Topics are added and dropped while others flow.

use std::time::Duration;

use anyhow::ensure;
use kreplicator_tests::{
    api,
    rig::{self, LINK, Rig, lanes},
    system::DISCOVERY_INTERVAL,
    wait,
};
use tokio::time::Instant;

const DEADLINE: Duration = Duration::from_secs(20);
/// From the call to the first record at the target.
const FIRST_RECORD: Duration = Duration::from_secs(2);
/// From the making of a topic until it is known: an interval, a tenth of it by which each differs from the
/// others, and what the look takes, on a machine that is busy with all of this.
const NOTICED: Duration = DISCOVERY_INTERVAL.saturating_add(Duration::from_millis(200 + 800));

#[test]
fn a_subscribed_topic_flows_within_two_seconds_and_stops_when_unsubscribed() {
    rig::scenario(async |rig| {
        let allowed = rig.allowed_pauses().await;
        let lanes = lanes("invoices", 0..4);
        rig.source.create_topic("invoices", 4, &[]).await?;
        rig.tail.follow("invoices");
        rig.load.add("invoices", 4);
        wait::until_true("records to copy", DEADLINE, async || {
            Ok(rig.counts_of("invoices").values().all(|count| *count > 0))
        })
        .await?;

        let called = Instant::now();
        let results = rig
            .api
            .subscribe(vec![api::topic(LINK, "invoices")])
            .await?;
        ensure!(results[0].topics == 1 && results[0].changed, "{results:?}");
        let mut first = DEADLINE;
        for lane in &lanes {
            let arrival = rig.tail.first_arrival(lane, called, DEADLINE).await?;
            first = first.min(arrival - called);
        }
        ensure!(
            first <= FIRST_RECORD,
            "the first record came after {first:?}"
        );
        let counts = rig.counts_of("invoices");
        let report = rig.tail.complete(&counts, DEADLINE).await?;
        ensure!(report.is_exact(), "{report}");

        rig.api
            .unsubscribe(vec![api::reference(LINK, "invoices")])
            .await?;
        rig::wait_stopped(&rig.tail, "invoices").await?;
        rig::wait_gone(&rig.api, LINK, "invoices").await?;
        let partitions = rig.target.partitions("invoices").await?;
        ensure!(partitions == 4, "what was copied stays");
        rig.check_pauses(&Rig::base_lanes(), &(called..Instant::now()), &allowed)?;
        rig.load.remove("invoices");
        Ok(())
    });
}

#[test]
fn a_topic_that_appears_and_matches_a_pattern_flows_within_a_discovery_interval() {
    rig::scenario(async |rig| {
        let allowed = rig.allowed_pauses().await;
        let start = Instant::now();
        let subscription = api::pattern(LINK, "events-.*", &[".*-private"]);
        let results = rig.api.subscribe(vec![subscription]).await?;
        ensure!(results[0].topics == 0, "{results:?}");
        let id = &results[0].id;
        ensure!(id == "/events-.*/", "{id}");

        for topic in ["events-1", "events-1-private"] {
            rig.source.create_topic(topic, 2, &[]).await?;
            rig.tail.follow(topic);
        }
        let created = Instant::now();
        rig.load.add("events-1", 2);
        rig.load.add("events-1-private", 2);
        wait::until_true("the topic in the status", DEADLINE, async || {
            let status = rig.api.subscription(LINK, id).await?.status;
            let topics = status.unwrap_or_default().topics;
            Ok(topics.iter().any(|status| status.topic == "events-1"))
        })
        .await?;
        let appeared = created.elapsed();
        ensure!(
            appeared <= NOTICED,
            "a new topic was noticed after {appeared:?}, not within {NOTICED:?}: the discovery interval of \
             {DISCOVERY_INTERVAL:?}, which varies by a tenth, and a look"
        );
        for lane in lanes("events-1", 0..2) {
            let arrival = rig.tail.first_arrival(&lane, created, DEADLINE).await?;
            let took = arrival - created;
            ensure!(
                took <= appeared + FIRST_RECORD && took <= DISCOVERY_INTERVAL + FIRST_RECORD,
                "the first record of {lane:?} came {took:?} after its topic was made, which was noticed after \
                 {appeared:?}: not within {FIRST_RECORD:?} more"
            );
        }
        let report = rig
            .tail
            .complete(&rig.counts_of("events-1"), DEADLINE)
            .await?;
        ensure!(report.is_exact(), "{report}");
        let excluded = rig.target.partitions("events-1-private").await?;
        ensure!(excluded == 0, "the excluded topic was made on the target");

        rig.api.unsubscribe(vec![api::reference(LINK, id)]).await?;
        rig::wait_stopped(&rig.tail, "events-1").await?;
        rig.check_pauses(&Rig::base_lanes(), &(start..Instant::now()), &allowed)?;
        rig.load.remove("events-1");
        rig.load.remove("events-1-private");
        Ok(())
    });
}

#[test]
fn a_paused_topic_stops_and_goes_on_without_loss_or_repeats() {
    rig::scenario(async |rig| {
        let allowed = rig.allowed_pauses().await;
        let start = Instant::now();
        let orders = || vec![api::reference(LINK, "orders")];
        ensure!(rig.api.pause(orders(), true).await? == 1, "it was running");
        rig::wait_stopped(&rig.tail, "orders").await?;
        ensure!(rig.api.pause(orders(), false).await? == 1, "it was paused");
        ensure!(rig.api.pause(orders(), false).await? == 0, "twice is fine");
        rig.caught_up().await?;
        let repeats = rig.tail.repeats_since(start);
        ensure!(
            repeats.is_empty(),
            "a planned stop repeats nothing: {repeats:?}"
        );
        let mut others = Rig::base_lanes();
        others.retain(|(topic, _)| topic != "orders");
        rig.check_pauses(&others, &(start..Instant::now()), &allowed)
    });
}
