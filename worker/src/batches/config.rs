//! Settings of the engine.

use std::time::Duration;

use kreplicator_model::{backoff::Backoff, exact, ids::WorkerId};

/// Settings of the engine. [`BatchConfig::new`] gives the defaults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchConfig {
    /// This worker; written into every checkpoint.
    pub worker: WorkerId,
    /// Time between saves of checkpoints: what a successor may have to read again. Default 1 s.
    pub checkpoint_interval: Duration,
    /// Time between saves of checkpoints that did not move, since brokers forget old ones (C007).
    /// Default 10 min.
    pub recommit_interval: Duration,
    /// Time between looks at the logs of partitions that are not read. Default 3 s.
    pub inspection_interval: Duration,
    /// A reader that is behind and has not moved for this long is reopened (C102). Default 15 s.
    pub stall_after: Duration,
    /// Shortest wait before a faulted task tries again. Default 500 ms.
    pub retry_min: Duration,
    /// Longest wait before a faulted task tries again. Default 30 s.
    pub retry_max: Duration,
    /// Running for this long makes earlier faults forgotten. Default 30 s.
    pub steady_after: Duration,
    /// For how long the machine of a broker may be silent, 5 s or more. Default 5 s.
    pub silence_max: Duration,
    /// Longest wait for an answer of a cluster: offsets, checkpoints. Default 10 s.
    pub call_timeout: Duration,
    /// Longest reading of a stretch of a log at a take-over. Default 60 s.
    pub scan_timeout: Duration,
    /// How long a target broker may wait for its replicas at most. Default 10 s.
    pub replica_patience: Duration,
    /// How long a target broker may wait for its replicas, or four times as long as it usually takes to answer,
    /// whichever is more: partitions that are not acknowledged by then hold up the others for so long once, and are
    /// sent apart from them. Default 1 s.
    pub slow_after: Duration,
    /// Batches that are opened and written anew at a time, each on a thread of its own. Default 2.
    pub rewrites_max: usize,
    /// How careful senders are.
    pub sender: exact::Settings,
}

impl BatchConfig {
    /// The defaults.
    #[must_use]
    pub fn new(worker: WorkerId) -> Self {
        Self {
            worker,
            checkpoint_interval: Duration::from_secs(1),
            recommit_interval: Duration::from_secs(600),
            inspection_interval: Duration::from_secs(3),
            stall_after: Duration::from_secs(15),
            retry_min: Duration::from_millis(500),
            retry_max: Duration::from_secs(30),
            steady_after: Duration::from_secs(30),
            silence_max: Duration::from_secs(5),
            call_timeout: Duration::from_secs(10),
            scan_timeout: Duration::from_secs(60),
            replica_patience: Duration::from_secs(10),
            slow_after: Duration::from_secs(1),
            rewrites_max: 2,
            sender: exact::Settings {
                in_flight_max: 5,
                // Ticks come each half second.
                quiet_max: Duration::from_secs(5),
                unheard_max: Duration::from_secs(3_600),
                // A quarter of `producer.id.expiration.ms`, whose default is a day.
                state_lifetime: Duration::from_secs(6 * 3_600),
                history_max: 1_000,
                source_is_deterministic: true,
            },
        }
    }

    pub(super) fn backoff(&self) -> Backoff {
        Backoff::new(self.retry_min, self.retry_max.max(self.retry_min))
    }

    /// What a stop may take over its deadline: a last save.
    pub(super) fn stop_patience(&self) -> Duration {
        self.call_timeout + Duration::from_secs(5)
    }
}
