//! One partition copied from a source that is far away: what a round trip leaves of the speed, and what is
//! used of a link that passes so much and no more.

use std::{num::NonZeroU64, time::Duration};

use anyhow::{Context as _, Result};
use kreplicator_tests::{
    kafka::KafkaCluster,
    proxy::{Direction, Proxy},
};
use serde_json::json;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::{
    copy,
    ends::Ends,
    figures::{quotient, rounded},
    fill::{Shape, fill},
    findings::{Finding, Measure, Trial},
    options::{Load, Options},
    peer::{Job, Layout, Peer},
    report::{line, say},
    stage::{Stage, broker},
};

const TOPIC: &str = "distant";
const BOTH: [Direction; 2] = [Direction::ToTarget, Direction::FromTarget];
/// More than what is said before records come: with so many bytes passed they have begun to.
const BEGUN_BYTES: u64 = 64 << 10;
/// Time between looks at the link.
const LOOK: Duration = Duration::from_millis(5);

/// The way to the source, which is the stage's, and what is copied over it.
struct Distance {
    stage: Stage,
    proxies: Vec<Proxy>,
    round_trip: Duration,
    records: u64,
    bytes: u64,
}

/// Measures each contestant and prints a line for it, and if asked for once more over a narrow link. The last
/// of all measurements, since its source takes the place of the stage's.
///
/// # Errors
/// When a contestant does not copy everything as it was.
pub(crate) async fn run(
    stage: Stage,
    peers: &[&dyn Peer],
    options: &Options,
    round_trip: Duration,
) -> Result<Vec<Finding>> {
    let target = stage.target;
    // A source that sends its clients through a proxy; the near one makes room for it.
    drop(stage.source);
    let (source, proxies) = KafkaCluster::start_behind_proxies(broker("far")).await?;
    for proxy in &proxies {
        for direction in BOTH {
            proxy.delay(direction, round_trip / 2);
        }
    }
    let stage = Stage { source, target };
    let records = options.rtt_records;
    let shape = Shape {
        load: Load::Lz4,
        batch_bytes: options.batch_bytes,
    };
    stage.source.create_topic(TOPIC, 1, &[]).await?;
    let config = stage.source.client_config();
    let bytes = fill(config, shape, TOPIC.to_owned(), 1, records).await?;
    let distance = Distance {
        stage,
        proxies,
        round_trip,
        records,
        bytes,
    };
    let mut found = distance.all(peers, None).await?;
    if let Some(mbit) = options.link_mbit {
        let rate = NonZeroU64::new(u64::from(mbit) * 1_000_000 / 8);
        found.extend(distance.all(peers, rate).await?);
    }
    Ok(found)
}

impl Distance {
    /// Measures all contestants over a link that passes `rate` bytes a second each way; None: all that come.
    async fn all(&self, peers: &[&dyn Peer], rate: Option<NonZeroU64>) -> Result<Vec<Finding>> {
        for proxy in &self.proxies {
            for direction in BOTH {
                proxy.limit(direction, rate);
            }
        }
        let (trial, width) = match rate {
            Some(rate) => (
                Trial::Link,
                format!(" and {} Mbit/s", rate.get() * 8 / 1_000_000),
            ),
            None => (Trial::Rtt, String::new()),
        };
        let way = format!("{:?}{width}", self.round_trip);
        let mut all = Vec::new();
        for peer in peers {
            let name = peer.name().name();
            say(&format!("distance: {name} copies over {way}"));
            let found = self
                .one(*peer, trial, rate)
                .await
                .with_context(|| format!("{name} over {way}"))?;
            all.extend(Finding::all(trial, peer.name(), found));
        }
        Ok(all)
    }

    async fn one(
        &self,
        peer: &dyn Peer,
        trial: Trial,
        rate: Option<NonZeroU64>,
    ) -> Result<Vec<(Measure, f64)>> {
        let stage = &self.stage;
        let name = peer.name().name();
        let copy_topic = peer.target_topic(TOPIC);
        stage.target.create_topic(&copy_topic, 1, &[]).await?;
        stage.forget_mm2().await?;
        stage.calm().await?;
        let job = Job {
            name: trial.name().to_owned(),
            source: stage.source.bootstrap(),
            target: stage.target.bootstrap(),
            topics: vec![TOPIC.to_owned()],
            codec: Load::Lz4.codec(),
            layout: Layout::Alone,
        };
        let ends = Ends::of(
            &stage.target.client_config(),
            std::slice::from_ref(&copy_topic),
            1,
        )?;
        let before = self.passed();
        let mut running = peer.start(&job).await?;
        let watched = copy::watch(stage, &mut running, &ends, self.records);
        let (copy, began) = tokio::try_join!(watched, self.begun(before))?;
        let (took, on_the_wire) = (began.elapsed(), self.passed() - before);
        drop(running);
        stage.compare(TOPIC, &copy_topic).await?;
        stage.target.delete_topics(&[&copy_topic]).await?;
        let per_second =
            |bytes: u64, time: Duration| quotient(bytes as f64, time.as_secs_f64()).unwrap_or(0.0);
        let records = per_second(self.bytes, copy.wall) / 1e6;
        let wire = per_second(on_the_wire, took) / 1e6;
        let percent = rate.map(|rate| wire * 1e8 / rate.get() as f64);
        let share = percent.map(|percent| format!(", {percent:.0} % of the link"));
        say(&format!(
            "distance: {name} copies {records:.1} MB/s of records, {wire:.1} MB/s on the wire{}",
            share.unwrap_or_default()
        ));
        line(&json!({
            "bench": format!("mirror_{}", trial.name()),
            "peer": name,
            "rtt_ms": u64::try_from(self.round_trip.as_millis())?,
            "records": self.records,
            "wall_seconds": rounded(copy.wall.as_secs_f64()),
            "megabytes_per_second": rounded(records),
            "wire_megabytes_per_second": rounded(wire),
            "link_megabytes_per_second": rate.map(|rate| rate.get() as f64 / 1e6),
            "link_percent": percent.map(rounded),
        }))?;
        let mut found = vec![(Measure::MbS, records)];
        found.extend(percent.map(|percent| (Measure::LinkPercent, percent)));
        Ok(found)
    }

    /// Bytes that came from the source since it was started.
    fn passed(&self) -> u64 {
        let all = self.proxies.iter();
        all.map(|proxy| proxy.bytes(Direction::FromTarget)).sum()
    }

    /// Waits until records come from the source, which has sent `before` until now; tells since when.
    async fn begun(&self, before: u64) -> Result<Instant> {
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while self.passed() < before + BEGUN_BYTES {
            look.tick().await;
        }
        Ok(Instant::now())
    }
}
