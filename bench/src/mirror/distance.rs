//! One partition copied from a source that is far away: what a round trip leaves of the speed.

use std::time::Duration;

use anyhow::{Context as _, Result};
use kreplicator_tests::{
    kafka::KafkaCluster,
    proxy::{Direction, Proxy},
};
use serde_json::json;

use super::{
    content, copy,
    ends::Ends,
    figures::{quotient, rounded},
    fill::{Shape, fill},
    options::{Load, Options},
    peer::{Job, Layout, Peer},
    report::{line, say},
    stage::{Stage, broker},
};

/// Most records copied, and those copied where there is no comparison: enough that the first round
/// trips do not count, and few enough that the slowest contestant is done in minutes.
const RECORDS_MAX: u64 = 500_000;
const TOPIC: &str = "distant";

/// Measures each contestant and prints a line for it. The last of all measurements, since its source
/// takes the place of the stage's.
///
/// # Errors
/// When a contestant does not copy everything as it was.
pub(crate) async fn run(
    stage: Stage,
    peers: &[Box<dyn Peer>],
    options: &Options,
    round_trip: Duration,
) -> Result<()> {
    let target = stage.target;
    // A source that sends its clients through a proxy; the near one makes room for it.
    drop(stage.source);
    let (source, proxies) = KafkaCluster::start_behind_proxies(broker("far")).await?;
    for proxy in &proxies {
        for direction in [Direction::ToTarget, Direction::FromTarget] {
            proxy.delay(direction, round_trip / 2);
        }
    }
    let stage = Stage { source, target };
    let records = match options.records {
        0 => RECORDS_MAX,
        records => records.min(RECORDS_MAX),
    };
    let shape = Shape {
        load: Load::Lz4,
        batch_bytes: options.batch_bytes,
    };
    stage.source.create_topic(TOPIC, 1, &[]).await?;
    let config = stage.source.client_config();
    let bytes = fill(config, shape, TOPIC.to_owned(), 1, records).await?;
    for peer in peers {
        let name = peer.name().name();
        say(&format!("distance: {name} copies over {round_trip:?}"));
        one(&stage, &proxies, peer.as_ref(), records, bytes, round_trip)
            .await
            .with_context(|| format!("{name} over a round trip of {round_trip:?}"))?;
    }
    Ok(())
}

async fn one(
    stage: &Stage,
    proxies: &[Proxy],
    peer: &dyn Peer,
    records: u64,
    bytes: u64,
    round_trip: Duration,
) -> Result<()> {
    let name = peer.name().name();
    let copy_topic = peer.target_topic(TOPIC);
    stage.target.create_topic(&copy_topic, 1, &[]).await?;
    stage.forget_mm2().await?;
    stage.calm().await?;
    let job = Job {
        name: "distance".to_owned(),
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
    let passed = || -> u64 {
        let all = proxies.iter();
        all.map(|proxy| proxy.bytes(Direction::FromTarget)).sum()
    };
    let before = passed();
    let mut running = peer.start(&job).await?;
    let copy = copy::watch(stage, &mut running, &ends, records).await?;
    let on_the_wire = passed() - before;
    drop(running);
    content::compare(stage, TOPIC, &copy_topic).await?;
    let rate = |bytes: u64| {
        let megabytes = bytes as f64 / 1e6;
        quotient(megabytes, copy.wall.as_secs_f64()).unwrap_or(0.0)
    };
    say(&format!(
        "distance: {name} copies {:.1} MB/s of records, {:.1} MB/s on the wire",
        rate(bytes),
        rate(on_the_wire)
    ));
    line(&json!({
        "bench": "mirror_rtt",
        "peer": name,
        "rtt_ms": u64::try_from(round_trip.as_millis())?,
        "records": records,
        "wall_seconds": rounded(copy.wall.as_secs_f64()),
        "megabytes_per_second": rounded(rate(bytes)),
        "wire_megabytes_per_second": rounded(rate(on_the_wire)),
    }))
}
