//! Settings of the engine.

use std::time::Duration;

use kreplicator_model::{backoff::Backoff, ids::WorkerId, task};

use crate::sink::kafka;

/// Settings of the engine. [`RecordsConfig::new`] gives the defaults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordsConfig {
    /// This worker; written into every checkpoint.
    pub worker: WorkerId,
    /// Time between saves of checkpoints: what a crash may repeat. Default 1 s.
    pub checkpoint_interval: Duration,
    /// Time between saves of checkpoints that did not move, since brokers forget old ones (C007).
    /// Default 10 min.
    pub recommit_interval: Duration,
    /// Time between looks at log starts and ends. Default 3 s.
    pub inspection_interval: Duration,
    /// Time between the library's statistics, which tell of offsets without records; at least 1 s
    /// (the library's grain). Default 2 s.
    pub statistics_interval: Duration,
    /// A reader that is behind and has not moved for this long is reopened. Default 15 s.
    pub stall_after: Duration,
    /// A target that has not answered for this long shows as trouble. Default 10 s.
    pub trouble_after: Duration,
    /// Least time between two readers of a link, doubled by each that does not help. Default 60 s.
    pub reader_rebuild_interval_min: Duration,
    /// Time between looks whether certificates or passwords were renewed. Default 10 s.
    pub renewal_interval: Duration,
    /// Shortest wait before a faulted task tries again. Default 500 ms.
    pub retry_min: Duration,
    /// Longest wait before a faulted task tries again. Default 30 s.
    pub retry_max: Duration,
    /// Running with progress for this long makes earlier faults forgotten. Default 30 s.
    pub steady_after: Duration,
    /// Longest wait for an answer of a cluster: offsets, checkpoints. Default 10 s.
    pub call_timeout: Duration,
    /// Time that tasks which share a producer with one that is thrown out have for finishing what
    /// they have in it. Default 1 s.
    pub kill_grace: Duration,
    /// Settings of producers.
    pub sink: kafka::Settings,
}

impl RecordsConfig {
    /// The defaults.
    #[must_use]
    pub fn new(worker: WorkerId) -> Self {
        Self {
            worker,
            checkpoint_interval: Duration::from_secs(1),
            recommit_interval: Duration::from_secs(600),
            inspection_interval: Duration::from_secs(3),
            statistics_interval: Duration::from_secs(2),
            stall_after: Duration::from_secs(15),
            trouble_after: Duration::from_secs(10),
            reader_rebuild_interval_min: Duration::from_secs(60),
            renewal_interval: Duration::from_secs(10),
            retry_min: Duration::from_millis(500),
            retry_max: Duration::from_secs(30),
            steady_after: Duration::from_secs(30),
            call_timeout: Duration::from_secs(10),
            kill_grace: Duration::from_secs(1),
            sink: kafka::Settings::default(),
        }
    }

    /// Settings of a task's machine.
    pub(super) fn machine(&self) -> task::Settings {
        task::Settings {
            backoff: Backoff::new(self.retry_min, self.retry_max.max(self.retry_min)),
            steady_after: self.steady_after,
            // Every stop comes with a deadline of its own, which the driver watches.
            drain_timeout: Duration::MAX / 4,
        }
    }

    /// What a stop may take over its deadline: throwing out what is stuck, and a last save.
    pub(super) fn stop_patience(&self) -> Duration {
        self.kill_grace + 2 * self.call_timeout + Duration::from_secs(5)
    }
}
