//! When counting begins anew.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, Result, ensure};
use kreplicator_model::{checkpoint::CheckpointMeta, exact::Reason, ids::OwnerEpoch};
use kreplicator_tests::{
    kafka::{KafkaCluster, KafkaOptions},
    skip::{Tier, skip},
    wait,
};
use kreplicator_worker::engine::{Delivery, State, Stopped, TaskSpec, Weakness};

use crate::{
    bench::{
        GROUP, Rec, caught_up, context, faulted, fill, quick, read, spec, status_where, topic_pair,
        values,
    },
    engine::{engine_with, lines},
    suite::positions::{commit, commit_as},
};

fn owned(topic: &str, epoch: u64) -> TaskSpec {
    TaskSpec {
        epoch: OwnerEpoch(epoch),
        ..spec(topic, 0)
    }
}

fn numbered(count: usize) -> Vec<Rec> {
    let record = |number: usize| Rec {
        key: Some(format!("key-{}", number % 7).into_bytes()),
        ..Rec::new(format!("value-{number}"))
    };
    (0..count).map(record).collect()
}

/// Reading it again may give other records, so every owner counts for itself, and says what that means.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_compacted_source_is_copied_by_one_owner_after_the_other() -> Result<()> {
    if skip(Tier::Component) {
        return Ok(());
    }
    let cluster = KafkaCluster::start(KafkaOptions::single("compacted")).await?;
    cluster
        .create_topic("state", 1, &[("cleanup.policy", "compact")])
        .await?;
    cluster.create_topic("copy.state", 1, &[]).await?;
    let lines = lines();
    let compacted = Delivery::AtLeastOnce(Weakness::Counting(Reason::SourceCompacted));
    for round in 1..=3 {
        fill(&cluster, "state", 0, &numbered(500))?;
        let (engine, kill) = engine_with(&format!("worker-{round}"), quick(), Arc::clone(&lines));
        let task = engine.start(owned("state", round), context(&cluster));
        let status = caught_up(task.as_ref(), 500 * i64::try_from(round)?).await?;
        ensure!(status.delivery == Some(compacted), "{status:?}");
        if round < 3 {
            kill.cancel();
            continue;
        }
        let stopped = task.stop(Duration::from_secs(10)).await;
        ensure!(stopped == Stopped::Clean, "{stopped:?}");
    }
    let (source, mut copy) = (
        values(&read(&cluster, "state", 0).await?),
        values(&read(&cluster, "copy.state", 0).await?),
    );
    // Nothing is missing, and the last of each is the last; what an owner had not saved comes again.
    ensure!(copy.len() >= source.len(), "{} copied", copy.len());
    let tail = copy.split_off(copy.len() - 500);
    ensure!(tail == source[1_000..], "not the same end");
    Ok(())
}

/// As an operator does who wants a topic to be copied once more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_checkpoint_put_back_by_hand_is_followed() -> Result<()> {
    if skip(Tier::Component) {
        return Ok(());
    }
    let cluster = KafkaCluster::start(KafkaOptions::single("put-back")).await?;
    topic_pair(&cluster, "orders", 1, &[]).await?;
    fill(&cluster, "orders", 0, &numbered(300))?;
    let lines = lines();
    let mut expected = values(&read(&cluster, "orders", 0).await?);
    for (epoch, from) in [
        (1, None),
        (2, Some(0)),
        (3, Some(0)),
        (4, Some(250)),
        (5, None),
    ] {
        if let Some(from) = from {
            commit(&cluster, "orders", 0, from)?;
            let again = expected[usize::try_from(from)?..300].to_vec();
            expected.extend(again);
        }
        let (engine, _kill) = engine_with("worker-1", quick(), Arc::clone(&lines));
        let task = engine.start(owned("orders", epoch), context(&cluster));
        let status = caught_up(task.as_ref(), 300).await?;
        ensure!(status.delivery == Some(Delivery::ExactlyOnce), "{status:?}");
        let stopped = task.stop(Duration::from_secs(10)).await;
        ensure!(stopped == Stopped::Clean, "{stopped:?}");
        let copy = values(&read(&cluster, "copy.orders", 0).await?);
        ensure!(
            copy == expected,
            "owner {epoch}: {} copied, of {}",
            copy.len(),
            expected.len()
        );
    }
    Ok(())
}

/// Nothing that was delivered tells that it is another one: only its id does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_topic_that_was_made_anew_before_anything_was_delivered_is_told() -> Result<()> {
    if skip(Tier::Component) {
        return Ok(());
    }
    let cluster = KafkaCluster::start(KafkaOptions::single("made-anew")).await?;
    topic_pair(&cluster, "orders", 1, &[]).await?;
    let (engine, _kill) = engine_with("worker-1", quick(), lines());
    let task = engine.start(owned("orders", 1), context(&cluster));
    status_where(task.as_ref(), "the start", |status| {
        status.state == State::Running && status.log_end.is_some()
    })
    .await?;
    cluster.delete_topics(&["copy.orders"]).await?;
    wait::until("the topic anew", Duration::from_secs(20), async || {
        cluster.create_topic("copy.orders", 1, &[]).await?;
        Ok(Some(()))
    })
    .await?;
    fill(&cluster, "orders", 0, &numbered(100))?;
    let parts = ["the target topic is another than the one copied to"];
    faulted(task.as_ref(), &parts).await?;
    ensure!(read(&cluster, "copy.orders", 0).await?.is_empty());
    Ok(())
}

/// As in a move without a pause, where the former owner saves once more when it ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_another_owner_has_saved_further_is_not_taken_back() -> Result<()> {
    if skip(Tier::Component) {
        return Ok(());
    }
    const SOON: Duration = Duration::from_secs(20);
    let cluster = KafkaCluster::start(KafkaOptions::single("covered")).await?;
    topic_pair(&cluster, "orders", 2, &[]).await?;
    let (engine, _kill) = engine_with("worker-1", quick(), lines());
    let [task, beside] = [0, 1].map(|partition| {
        let task = TaskSpec {
            epoch: OwnerEpoch(5),
            ..spec("orders", partition)
        };
        engine.start(task, context(&cluster))
    });
    let lanes = [0, 1].map(|partition| ("orders".to_owned(), partition));
    let saved = async |partition: usize, offset: i64| {
        wait::until("the checkpoint", SOON, async || {
            let saved = cluster.committed(GROUP, &lanes).await?;
            let saved = saved.get(&lanes[partition]).cloned();
            Ok(saved.filter(|(at, _)| *at == offset))
        })
        .await
    };
    fill(&cluster, "orders", 0, &numbered(300))?;
    let (_, own) = saved(0, 300).await?;
    let mut other = CheckpointMeta::parse(&own)?.context("it is ours")?;
    other.epoch = OwnerEpoch(4);
    let other = other.to_string();

    // What is behind it is not saved, when that of another task is.
    commit_as(&cluster, "orders", 0, 350, &other)?;
    fill(&cluster, "orders", 0, &numbered(20))?;
    caught_up(task.as_ref(), 320).await?;
    fill(&cluster, "orders", 1, &numbered(20))?;
    saved(1, 20).await?;
    ensure!(saved(0, 350).await?.1 == other);
    // What is beyond it is.
    fill(&cluster, "orders", 0, &numbered(80))?;
    saved(0, 400).await?;

    commit_as(&cluster, "orders", 0, 450, &other)?;
    fill(&cluster, "orders", 0, &numbered(20))?;
    caught_up(task.as_ref(), 420).await?;
    for task in [task, beside] {
        let stopped = task.stop(Duration::from_secs(10)).await;
        ensure!(stopped == Stopped::Clean, "{stopped:?}");
    }
    ensure!(saved(0, 450).await?.1 == other);
    Ok(())
}
