//! Topics are deleted while they are mirrored, on clusters that make any topic somebody asks for.

use std::time::Duration;

use anyhow::ensure;
use kreplicator_proto::v1;
use kreplicator_tests::{rig, wait};
use tokio::time::Instant;

use crate::stage::{LINK, SOON, Stage, UNDISTURBED, scenario, start_load};

const PARTITIONS: i32 = 4;
/// Longer than anything of ours waits before it looks at topics again.
const WATCHED: Duration = Duration::from_secs(6);

#[test]
fn c068_a_deleted_target_topic_is_reported_and_not_made_again() {
    const TOPIC: &str = "drafts";
    scenario(async |stage| {
        stage.one.create_topic(TOPIC, PARTITIONS, &[]).await?;
        stage.load.add(TOPIC, PARTITIONS);
        stage.subscribe(LINK, TOPIC, PARTITIONS).await?;
        let allowed = stage
            .allowed_pauses(&Stage::base_lanes(), UNDISTURBED)
            .await;
        let start = Instant::now();
        stage.tail.leave(TOPIC);
        stage.three.delete_topics(&[TOPIC]).await?;

        let problem = wait::until("the problem in the status", SOON, async || {
            problem(stage, TOPIC).await
        })
        .await?;
        ensure!(
            problem.contains(TOPIC) && problem.contains("deleted"),
            "{problem}"
        );
        wait_halted(stage, TOPIC).await?;
        wait::holds_for("no topic on the target", WATCHED, async || {
            Ok(!stage.three.topics().await?.contains_key(TOPIC))
        })
        .await?;
        stage.check_pauses(start, &allowed)?;
        stage.load.remove(TOPIC);
        stage.unsubscribe(LINK, TOPIC).await
    });
}

#[test]
fn c068_a_deleted_source_topic_is_reported_and_its_copy_is_left_alone() {
    const TOPIC: &str = "memos";
    scenario(async |stage| {
        stage.one.create_topic(TOPIC, PARTITIONS, &[]).await?;
        let load = start_load(&stage.one, 100, 100)?;
        load.add(TOPIC, PARTITIONS);
        stage.subscribe(LINK, TOPIC, PARTITIONS).await?;
        for lane in rig::lanes(TOPIC, 0..PARTITIONS) {
            let now = Instant::now();
            stage.tail.first_arrival(&lane, now, SOON).await?;
        }
        let produced = load.finish(SOON).await?;
        let report = stage.tail.complete(&produced, SOON).await?;
        ensure!(report.is_exact(), "{report}");
        let copied = stage.three.watermarks(TOPIC).await?;
        let allowed = stage
            .allowed_pauses(&Stage::base_lanes(), UNDISTURBED)
            .await;
        let start = Instant::now();
        stage.one.delete_topics(&[TOPIC]).await?;

        let problem = wait::until("the problem in the status", SOON, async || {
            problem(stage, TOPIC).await
        })
        .await?;
        ensure!(problem.contains("source topic is gone"), "{problem}");
        wait_halted(stage, TOPIC).await?;
        wait::holds_for("no topic on the source", WATCHED, async || {
            Ok(!stage.one.topics().await?.contains_key(TOPIC))
        })
        .await?;
        let left = stage.three.watermarks(TOPIC).await?;
        ensure!(left == copied, "{copied:?} before, {left:?} after");
        stage.check_pauses(start, &allowed)?;
        stage.unsubscribe(LINK, TOPIC).await
    });
}

/// What the subscription says about its topic.
async fn problem(stage: &Stage, topic: &str) -> anyhow::Result<Option<String>> {
    let status = stage.api.subscription(LINK, topic).await?.status;
    let topics = status.unwrap_or_default().topics;
    let problems = topics.into_iter().map(|topic| topic.problem);
    Ok(problems.into_iter().find(|problem| !problem.is_empty()))
}

/// Waits until no worker has any task of the topic, and each is told to be at fault.
async fn wait_halted(stage: &Stage, topic: &str) -> anyhow::Result<()> {
    let what = format!("the tasks of {topic} to stop");
    wait::until_true(&what, SOON, async || {
        let tasks = stage.tasks_of(LINK, topic).await?;
        Ok(!tasks.is_empty()
            && tasks.iter().all(|task| {
                let faulted = task.state() == v1::TaskState::Faulted && !task.reason.is_empty();
                faulted && task.worker.is_empty()
            }))
    })
    .await
}
