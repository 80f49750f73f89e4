//! Two real clusters of one broker each, `a` and `b`, which all contestants share.

use std::time::Duration;

use anyhow::Result;
use kreplicator_tests::{
    commands::verify_copy,
    kafka::{KafkaCluster, KafkaOptions},
};
use tokio::time::{Instant, sleep_until};

/// Partitions of every topic but those of special measurements.
pub(crate) const PARTITIONS: i32 = 8;
/// Java heap of a broker; thousands of partitions fit in.
const HEAP_MEBIBYTES: u32 = 768;
/// Brokers are calm when they use less than this share of a core.
const CALM_CORES: f64 = 0.1;
/// How long brokers are looked at to tell.
const CALM_LOOK: Duration = Duration::from_millis(500);
/// How long to wait for calm at most.
const CALM_PATIENCE: Duration = Duration::from_secs(30);

/// The clusters.
#[derive(Debug)]
pub(crate) struct Stage {
    /// Copied from.
    pub(crate) source: KafkaCluster,
    /// Copied to.
    pub(crate) target: KafkaCluster,
}

impl Stage {
    /// Starts both.
    pub(crate) async fn start() -> Result<Self> {
        let (source, target) = futures::try_join!(
            KafkaCluster::start(broker("a")),
            KafkaCluster::start(broker("b"))
        )?;
        Ok(Self { source, target })
    }

    /// Compares every record of a topic with its copy, by a program that shares nothing with what made it;
    /// tells how many. Records that came twice are no difference, they are counted.
    ///
    /// # Errors
    /// When one is missing, altered, out of order, or none of the source.
    pub(crate) async fn compare(&self, source: &str, copy: &str) -> Result<u64> {
        verify_copy((&self.source, source), (&self.target, copy)).await
    }

    /// Processor time that both brokers have used.
    pub(crate) fn cpu_time(&self) -> Result<Duration> {
        Ok(self.source.cpu_time()? + self.target.cpu_time()?)
    }

    /// Waits until the brokers have ended what an earlier step left them to do, or for 30 s.
    pub(crate) async fn calm(&self) -> Result<()> {
        let end = Instant::now() + CALM_PATIENCE;
        while Instant::now() < end {
            let (began, before) = (Instant::now(), self.cpu_time()?);
            sleep_until(began + CALM_LOOK).await;
            let used = self.cpu_time()?.saturating_sub(before);
            if used.as_secs_f64() < CALM_CORES * began.elapsed().as_secs_f64() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Deletes what MirrorMaker 2 has kept in the clusters, so that its next start is a first one.
    pub(crate) async fn forget_mm2(&self) -> Result<()> {
        for cluster in [&self.source, &self.target] {
            let topics = cluster.topics().await?;
            let internal: Vec<&str> = topics
                .keys()
                .map(String::as_str)
                .filter(|topic| is_of_mm2(topic))
                .collect();
            if !internal.is_empty() {
                cluster.delete_topics(&internal).await?;
            }
        }
        Ok(())
    }
}

/// A broker that runs as in production.
pub(crate) fn broker(name: &str) -> KafkaOptions {
    KafkaOptions {
        heap_mebibytes: HEAP_MEBIBYTES,
        optimised: true,
        ..KafkaOptions::single(name)
    }
}

fn is_of_mm2(topic: &str) -> bool {
    topic.ends_with(".internal") || topic.ends_with("heartbeats")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_of_mirror_maker_are_told_from_data() {
        for topic in [
            "mm2-configs.a.internal",
            "mm2-offset-syncs.b.internal",
            "a.checkpoints.internal",
            "heartbeats",
            "a.heartbeats",
        ] {
            assert!(is_of_mm2(topic), "{topic}");
        }
        assert!(!is_of_mm2("a.load-lz4"));
    }
}
