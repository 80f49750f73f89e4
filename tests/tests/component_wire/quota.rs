//! A broker that has a client wait.

use std::time::Duration;

use anyhow::{Result, ensure};
use kreplicator_tests::{
    contents::{Rec, producer, send, written},
    kafka::{KafkaCluster, KafkaOptions},
    proxy::{Direction, Proxy},
    skip::{Tier, skip},
};
use kreplicator_wire::{
    cluster::Purpose,
    error::Error,
    fetch::{Position, Request, Session, Settings},
};
use tokio::time::Instant;

use crate::{
    batch::batches,
    bench::{CLIENT, at, client, from, soon},
};

const RECORDS: i64 = 40;
const RECORD_BYTES: usize = 50_000;
/// Bytes of an answer.
const READ_BYTES: i32 = 100_000;
/// What the client may read a second, on the average of two.
const QUOTA_BYTES: usize = 400_000;
/// Longest reading.
const LONGEST: Duration = Duration::from_secs(60);
/// Pauses longer than this are looked at.
const LONG: Duration = Duration::from_millis(400);
/// How long the client is asked to write in the middle of a pause.
const IMPATIENT: Duration = Duration::from_millis(100);

/// The pause that an answer asks for is kept by the client itself: nothing is written in it, and who cannot
/// wait for its end is told why.
#[tokio::test(flavor = "multi_thread")]
async fn a_pause_that_a_quota_asks_for_is_kept() -> Result<()> {
    if skip(Tier::Component) {
        return Ok(());
    }
    let options = KafkaOptions::single("wire-quota").property("quota.window.num", 2);
    let (cluster, proxies) = KafkaCluster::start_behind_proxies(options).await?;
    cluster.create_topic("orders", 1, &[]).await?;
    let quota = format!("consumer_byte_rate={QUOTA_BYTES}");
    let of = [
        "--alter",
        "--entity-type",
        "clients",
        "--entity-name",
        CLIENT,
    ];
    let args = [&of[..], &["--add-config", &quota]].concat();
    cluster.tool("kafka.admin.ConfigCommand", &args).await?;
    let producer = producer(&cluster, &[("batch.num.messages", "1")])?;
    for _ in 0..RECORDS {
        let record = Rec::new(vec![b'x'; RECORD_BYTES]);
        send(&producer, "orders", 0, std::slice::from_ref(&record))?;
    }
    written(&producer)?;

    let client = client(&cluster);
    let lane = at("orders", 0);
    let id = client.topic(&lane.topic, soon()).await?.id;
    let leader = client.leader(&lane, soon()).await?.broker;
    let connection = client.connection(leader, Purpose::Fetch(0), soon()).await?;
    let version = connection.version::<Request>()?;
    let mut session = Session::new(Settings {
        wait_max: Duration::from_millis(100),
        ..Settings::default()
    });
    let begun = Instant::now();
    let (mut next, mut pauses) = (0, Vec::new());
    let mut answered = begun;
    let mut pause = Duration::ZERO;
    while next < RECORDS {
        ensure!(begun.elapsed() < LONGEST, "{next} records read");
        let position = Position {
            bytes_max: READ_BYTES,
            ..from(next)
        };
        session.update(lane.clone(), id, position);
        let request = session.next_request(version);
        if pause >= LONG {
            pauses.push(pause);
            let before = passed(&proxies);
            let early = connection.send(request.clone(), answered + IMPATIENT).await;
            ensure!(matches!(early, Err(Error::Throttled { .. })), "{early:?}");
            ensure!(passed(&proxies) == before, "something was written");
        }
        let answer = connection.send(request, soon()).await?;
        ensure!(
            answered.elapsed() >= pause,
            "{:?} of {pause:?}",
            answered.elapsed()
        );
        answered = Instant::now();
        pause = Duration::from_millis(u64::try_from(answer.throttle_time_ms)?);
        for news in session.apply(answer)?.partitions {
            for (base, count) in batches(&news.records) {
                next = base + i64::from(count);
            }
        }
    }
    let took = begun.elapsed();
    println!("{RECORDS} records of {RECORD_BYTES} bytes in {took:?}, with pauses {pauses:?}");
    let all = RECORD_BYTES * usize::try_from(RECORDS)?;
    // What two seconds may bring at once is not waited for.
    let least = Duration::from_secs_f64((all - 2 * QUOTA_BYTES) as f64 / QUOTA_BYTES as f64);
    ensure!(took >= least && !pauses.is_empty(), "{took:?}, {pauses:?}");
    Ok(())
}

/// Bytes that went to the cluster.
fn passed(proxies: &[Proxy]) -> u64 {
    let all = proxies.iter();
    all.map(|proxy| proxy.bytes(Direction::ToTarget)).sum()
}
