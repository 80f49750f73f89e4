//! What one worker costs that watches thousands of partitions in which nothing happens.

use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::json;
use tokio::time::{Instant, sleep_until};

use super::{
    copy,
    ends::Ends,
    figures::{quotient, rounded},
    fill::{Shape, fill},
    findings::{Finding, Measure, Trial},
    options::{Load, Options},
    peer::{Job, Layout, Peer},
    report::{line, say},
    stage::Stage,
};

/// Most partitions of a topic.
const TOPIC_PARTITIONS: u32 = 100;
/// Longest rest between the proof that everything is watched and the measurement; not longer than that.
const REST_MAX: Duration = Duration::from_secs(15);

/// Measures each contestant and prints a line for it.
///
/// # Errors
/// When a contestant does not come to watch all partitions.
pub(crate) async fn run(
    stage: &Stage,
    peers: &[&dyn Peer],
    options: &Options,
    partitions: u32,
) -> Result<Vec<Finding>> {
    let (count, each) = topics_of(partitions);
    let topics: Vec<String> = (0..count).map(|number| format!("quiet-{number}")).collect();
    let each = i32::try_from(each)?;
    stage.source.create_topics(&topics, each, &[]).await?;
    let shape = Shape {
        load: Load::Lz4,
        batch_bytes: options.batch_bytes,
    };
    // One record a partition: when all have been copied, all are watched.
    for topic in &topics {
        let config = stage.source.client_config();
        fill(config, shape, topic.clone(), each, u64::try_from(each)?).await?;
    }
    let mut all = Vec::new();
    for peer in peers {
        let name = peer.name().name();
        let found = one(stage, *peer, options, &topics, each)
            .await
            .with_context(|| format!("{name}: {partitions} quiet partitions"))?;
        all.extend(Finding::all(Trial::Quiet, peer.name(), found));
    }
    let topics: Vec<&str> = topics.iter().map(String::as_str).collect();
    stage.source.delete_topics(&topics).await?;
    Ok(all)
}

/// Topics of at most 100 partitions that together have `partitions` or a few more.
fn topics_of(partitions: u32) -> (u32, u32) {
    let topics = partitions.div_ceil(TOPIC_PARTITIONS).max(1);
    (topics, partitions.div_ceil(topics))
}

async fn one(
    stage: &Stage,
    peer: &dyn Peer,
    options: &Options,
    topics: &[String],
    each: i32,
) -> Result<[(Measure, f64); 2]> {
    let name = peer.name().name();
    let copies: Vec<String> = topics
        .iter()
        .map(|topic| peer.target_topic(topic))
        .collect();
    stage.target.create_topics(&copies, each, &[]).await?;
    stage.forget_mm2().await?;
    stage.calm().await?;
    let partitions = u64::try_from(topics.len())? * u64::try_from(each)?;
    say(&format!("quiet: {name} watches {partitions} partitions"));
    let job = Job {
        name: "quiet".to_owned(),
        source: stage.source.bootstrap(),
        target: stage.target.bootstrap(),
        topics: topics.to_vec(),
        codec: Load::Lz4.codec(),
        layout: Layout::Fleet(1),
    };
    let ends = Ends::of(&stage.target.client_config(), &copies, each)?;
    let mut running = peer.start(&job).await?;
    copy::wait(&mut running, &ends, partitions).await?;
    let time = Duration::from_secs(u64::from(options.quiet_seconds));
    sleep_until(Instant::now() + time.min(REST_MAX)).await;

    let mut group = running.group();
    let (began, before) = (Instant::now(), group.sample()?);
    sleep_until(began + time).await;
    let (took, after) = (began.elapsed(), group.sample()?);
    running.check()?;
    let cpu = after.cpu.saturating_sub(before.cpu);
    let share = quotient(cpu.as_secs_f64(), took.as_secs_f64()).unwrap_or(0.0);
    say(&format!(
        "quiet: {name} needs {} MiB and {:.1} % of a core",
        after.resident_bytes >> 20,
        share * 100.0
    ));
    line(&json!({
        "bench": "mirror_quiet",
        "peer": name,
        "partitions": partitions,
        "seconds": rounded(took.as_secs_f64()),
        "memory_bytes": after.resident_bytes,
        "memory_peak_bytes": after.peak_bytes,
        "cpu_percent_of_core": rounded(share * 100.0),
    }))?;
    drop(running);
    let all: Vec<&str> = copies.iter().map(String::as_str).collect();
    stage.target.delete_topics(&all).await?;
    let peak = after.peak_bytes.max(after.resident_bytes);
    Ok([
        (Measure::MemoryMb, peak as f64 / 1e6),
        (Measure::CorePercent, share * 100.0),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_spread_over_topics_of_a_hundred() {
        assert_eq!(topics_of(5_000), (50, 100));
        assert_eq!(topics_of(101), (2, 51));
        assert_eq!(topics_of(7), (1, 7));
    }
}
