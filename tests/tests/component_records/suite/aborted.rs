//! Hundreds of megabytes that nobody wants.

use std::{num::NonZeroU64, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, ensure};
use kreplicator_model::{ids::OwnerEpoch, spec::Security};
use kreplicator_tests::{
    kafka::{KafkaCluster, KafkaOptions},
    proxy::{Direction, Proxy},
    settings,
    skip::{Tier, skip},
    wait,
};
use kreplicator_worker::{
    budget::Budget,
    engine::{Stopped, TaskSpec},
};
use rdkafka::producer::Producer as _;
use tokio::time::sleep;

use crate::{
    bench::{
        GROUP, PATIENCE, Producer, Rec, Times, caught_up, context_with, producer, quick, read,
        send, spec, status_where, topic_pair, values,
    },
    engine::engine_within,
};

const STOP: Duration = Duration::from_secs(10);
/// Records of a transaction; its marker is one more offset.
const RECORDS: usize = 40;
const RECORD_BYTES: usize = 100_000;
/// How long the run would take one owner, at least.
const SECONDS: u64 = 8;
/// What the engine may hold: less than a part of the run.
const BUDGET_BYTES: u64 = 16 << 20;
/// What may be read again, be on the way, or come beside records.
const SLACK_BYTES: u64 = 8_000_000;

/// C018: 200 MB of aborted records, 32 MB of them in CI. The checkpoint is saved on the way, so that
/// another owner goes on there, and what is passed over takes no more memory than records do.
#[tokio::test(flavor = "multi_thread")]
async fn c018_a_long_run_of_aborted_records_is_passed_with_progress_on_the_way() -> Result<()> {
    if skip(Tier::Component) {
        return Ok(());
    }
    let options = KafkaOptions::single("aborted");
    let (cluster, proxies) = KafkaCluster::start_behind_proxies(options).await?;
    topic_pair(&cluster, "orders", 1, &[]).await?;
    let transactions = settings::length(8, 50);
    // Records are batches of their own, so that an answer ends with a whole one.
    let alone = [("transactional.id", "test"), ("batch.num.messages", "1")];
    let producer = producer(&cluster, &alone)?;
    producer.init_transactions(PATIENCE)?;
    for _ in 0..transactions {
        abort(&producer)?;
    }
    let end = i64::try_from(transactions * (RECORDS + 1))?;
    let all_bytes = u64::try_from(transactions * RECORDS * RECORD_BYTES)?;
    // However fast the machine is, there is time to look and to stop.
    for proxy in &proxies {
        proxy.limit(Direction::FromTarget, NonZeroU64::new(all_bytes / SECONDS));
    }

    let budget = Budget::new(BUDGET_BYTES);
    let times = Times {
        checkpoint_interval: Duration::from_millis(50),
        ..quick()
    };
    let engine = engine_within(times, Arc::clone(&budget));
    let context = Arc::new(context_with(cluster.bootstrap(), Security::default()));
    let first = engine.start(spec("orders", 0), Arc::clone(&context));
    let stopped = within(&budget, async {
        let early = saved_beyond(&cluster, 0).await?;
        let later = saved_beyond(&cluster, early.max(end / 3)).await?;
        println!("{early} and {later} were saved, of {end}");
        Ok(first.stop(STOP).await)
    });
    let stopped = stopped.await?;
    ensure!(stopped == Stopped::Clean, "{stopped:?}");
    let saved = saved_beyond(&cluster, 0).await?;
    ensure!(saved < end, "the run was over: {saved} of {end} is saved");

    let before = passed(&proxies);
    let other = TaskSpec {
        epoch: OwnerEpoch(8),
        ..spec("orders", 0)
    };
    let task = engine.start(other, context);
    let began = status_where(task.as_ref(), "the other owner's place", |status| {
        status.checkpoint.is_some()
    });
    let began = began.await?.checkpoint.map(|at| at.0);
    ensure!(
        began >= Some(saved),
        "it began at {began:?}, {saved} is saved"
    );
    let status = within(&budget, caught_up(task.as_ref(), end)).await?;
    ensure!(
        status.records_total == 0,
        "nothing was committed: {status:?}"
    );
    let (read_bytes, left) = (passed(&proxies) - before, u64::try_from(end - saved)?);
    let least = all_bytes * left / u64::try_from(end)?;
    println!("the other owner read {read_bytes} bytes for {left} offsets");
    ensure!(
        read_bytes < least + SLACK_BYTES,
        "{read_bytes} read, {least} were left"
    );

    for proxy in &proxies {
        proxy.limit(Direction::FromTarget, None);
    }
    producer.begin_transaction()?;
    send(&producer, "orders", 0, &[Rec::new("the one")])?;
    producer.commit_transaction(PATIENCE)?;
    caught_up(task.as_ref(), end + 2).await?;
    let copied = values(&read(&cluster, "copy.orders", 0).await?);
    ensure!(copied == ["the one"], "{copied:?}");
    let stopped = task.stop(STOP).await;
    ensure!(stopped == Stopped::Clean, "{stopped:?}");
    engine.close(PATIENCE).await;
    Ok(())
}

fn abort(producer: &Producer) -> Result<()> {
    let record = Rec::new(vec![b'x'; RECORD_BYTES]);
    producer.begin_transaction()?;
    send(producer, "orders", 0, &vec![record; RECORDS])?;
    producer.flush(PATIENCE)?;
    Ok(producer.abort_transaction(PATIENCE)?)
}

/// Waits for something during which no more memory is used than there may be.
async fn within<T>(budget: &Budget, done: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::pin!(done);
    let mut peak = 0;
    loop {
        tokio::select! {
            done = &mut done => {
                println!("at most {peak} bytes of {} were used", budget.limit_bytes());
                return done;
            }
            () = sleep(Duration::from_millis(2)) => {
                peak = peak.max(budget.used_bytes());
                ensure!(peak <= budget.limit_bytes(), "{peak} bytes are used");
            }
        }
    }
}

/// Waits for a saved checkpoint beyond `offset`.
async fn saved_beyond(cluster: &KafkaCluster, offset: i64) -> Result<i64> {
    let lane = ("orders".to_owned(), 0);
    wait::until("a saved checkpoint", PATIENCE, async || {
        let committed = cluster
            .committed(GROUP, std::slice::from_ref(&lane))
            .await?;
        let (saved, _) = committed.get(&lane).context("nothing is saved")?;
        ensure!(*saved > offset, "{saved} is saved");
        Ok(Some(*saved))
    })
    .await
}

/// Bytes that came from the cluster.
fn passed(proxies: &[Proxy]) -> u64 {
    let all = proxies.iter();
    all.map(|proxy| proxy.bytes(Direction::FromTarget)).sum()
}
