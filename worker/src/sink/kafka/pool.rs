//! Generations of producers of one cluster.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use kreplicator_kafka::{diagnosis::Diagnosis, properties::ClientProperties};
use kreplicator_model::{backoff::Backoff, ids::ClusterId};
use rdkafka::ClientConfig;
use tokio::time::{Instant, timeout_at};
use tracing::info;

use super::{Settings, generation::Generation};
use crate::{
    fault::{Fault, Kind},
    flow_metrics,
};

/// A producer that lived this long was sound: the next one need not wait longer than the least.
const SOUND_AFTER: Duration = Duration::from_secs(60);

/// Makes producers and keeps track of those that still live.
pub(super) struct Pool {
    cluster: ClusterId,
    settings: Settings,
    backoff: Backoff,
    diagnosis: Diagnosis,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    current: Option<Arc<Generation>>,
    /// What `current` was made from.
    made_from: Option<ClientProperties>,
    /// Those before, while their threads run.
    old: Vec<Weak<Generation>>,
    /// What the next producer is made from.
    properties: Option<ClientProperties>,
    number: u64,
    made_at: Option<Instant>,
    /// Producers in a row that did not live long.
    short_lived: u32,
}

impl Pool {
    pub(super) fn new(cluster: ClusterId, settings: Settings) -> Self {
        Self {
            backoff: Backoff::new(
                settings.rebuild_interval_min,
                settings
                    .rebuild_interval_max
                    .max(settings.rebuild_interval_min),
            ),
            diagnosis: Diagnosis::new(cluster.clone()),
            cluster,
            settings,
            state: Mutex::default(),
        }
    }

    /// Whether records for these partitions (how many of each topic) can go in at once.
    pub(super) fn knows(&self, partitions: &BTreeMap<String, i32>) -> bool {
        self.current()
            .is_some_and(|current| current.knows(partitions))
    }

    /// Has the producer look up topics that it does not know so wide. Blocks.
    pub(super) fn learn(&self, partitions: &BTreeMap<String, i32>, deadline: Duration) {
        if let Some(current) = self.current() {
            current.learn(partitions, deadline);
        }
    }

    /// The generation that takes new records.
    pub(super) fn current(&self) -> Option<Arc<Generation>> {
        self.lock()
            .current
            .as_ref()
            .filter(|generation| generation.is_live())
            .cloned()
    }

    /// Makes a producer when there is none that takes records. Blocks for some milliseconds.
    pub(super) fn prepare(&self, properties: &ClientProperties) -> Result<(), Fault> {
        let mut state = self.lock();
        state.properties = Some(properties.clone());
        self.replace(&mut state)
    }

    /// What the producer that takes records was made from; None: there is none.
    pub(super) fn made_from(&self) -> Option<ClientProperties> {
        let state = self.lock();
        let current = state.current.as_ref();
        let is_live = current.is_some_and(|current| current.is_live());
        state.made_from.clone().filter(|_| is_live)
    }

    /// Makes the next producer from these properties beside the one there is: outlets move over when
    /// nothing of theirs is outstanding. What the old one has not delivered by `purge_at` is thrown out.
    /// Blocks for some milliseconds.
    pub(super) fn renew(
        &self,
        properties: &ClientProperties,
        purge_at: Instant,
    ) -> Result<(), Fault> {
        let mut state = self.lock();
        state.properties = Some(properties.clone());
        let before = state.current.clone().filter(|before| before.is_live());
        let Some(before) = before else {
            // It was taken out of use meanwhile; whoever needs the next one makes it.
            return Ok(());
        };
        self.make(&mut state, Instant::now())?;
        before.retire(purge_at);
        Ok(())
    }

    /// Takes `generation` out of use and makes the next one, if that is due: outlets that are not
    /// stuck move over. What is left in the old one is thrown out at `purge_at`.
    pub(super) fn retire(&self, generation: &Generation, purge_at: Instant) {
        generation.retire(purge_at);
        let mut state = self.lock();
        if let Err(fault) = self.replace(&mut state) {
            info!(cluster = %self.cluster, cause = %fault, "no new producer yet");
        }
    }

    /// Throws out everything now.
    pub(super) fn retire_all(&self) {
        let mut state = self.lock();
        let now = Instant::now();
        let current = state.current.take();
        if let Some(generation) = &current {
            state.old.push(Arc::downgrade(generation));
        }
        for generation in state.old.iter().filter_map(Weak::upgrade) {
            generation.retire(now);
        }
    }

    /// Waits until no producer is left, at most `deadline`.
    pub(super) async fn ended(&self, deadline: Duration) {
        let end = Instant::now() + deadline;
        let waits: Vec<_> = {
            let state = self.lock();
            let old = state.old.iter().filter_map(Weak::upgrade);
            old.map(|generation| generation.ended()).collect()
        };
        for mut ended in waits {
            // An error means that the thread is gone, which is what is waited for.
            if timeout_at(end, ended.wait_for(|ended| *ended))
                .await
                .is_err()
            {
                return;
            }
        }
    }

    /// The cluster's own id. Blocks.
    pub(super) fn cluster_id(&self, deadline: Duration) -> Option<String> {
        self.current()?.cluster_id(deadline)
    }

    /// Why nothing is acknowledged, as far as is known.
    pub(super) fn trouble(&self) -> Option<String> {
        self.diagnosis.cause().map(|cause| cause.to_string())
    }

    fn replace(&self, state: &mut State) -> Result<(), Fault> {
        if state
            .current
            .as_ref()
            .is_some_and(|current| current.is_live())
        {
            return Ok(());
        }
        let now = Instant::now();
        if let Some(made_at) = state.made_at {
            let wait = self.backoff.delay(state.short_lived, 1.0);
            let age = now.saturating_duration_since(made_at);
            if age < wait {
                return Err(Fault::new(
                    Kind::Target,
                    format!(
                        "the producer for cluster {} was replaced a moment ago; the next one is \
                         made in {} ms",
                        self.cluster,
                        (wait - age).as_millis()
                    ),
                ));
            }
            state.short_lived = if age < SOUND_AFTER {
                state.short_lived.saturating_add(1)
            } else {
                0
            };
        }
        self.make(state, now)
    }

    /// Makes a producer and puts it in the place of the one before.
    fn make(&self, state: &mut State, now: Instant) -> Result<(), Fault> {
        let Some(properties) = state.properties.clone() else {
            return Err(Fault::new(Kind::Target, "no producer was ever made"));
        };
        let config = self.config(&properties);
        state.number += 1;
        let generation =
            Generation::create(state.number, &self.cluster, &config, self.diagnosis.clone())
                .map_err(|error| Fault::from((Kind::Target, &error)))?;
        if state.number > 1 {
            flow_metrics::producer_rebuilt(&self.cluster);
            info!(cluster = %self.cluster, generation = state.number, "new producer");
        }
        state.made_at = Some(now);
        state.made_from = Some(properties);
        state.old.retain(|old| old.strong_count() > 0);
        if let Some(before) = state.current.replace(generation) {
            state.old.push(Arc::downgrade(&before));
        }
        Ok(())
    }

    fn config(&self, properties: &ClientProperties) -> ClientConfig {
        let settings = &self.settings;
        let mut config = properties.to_config();
        if properties.get("compression.type").is_none()
            && properties.get("compression.codec").is_none()
        {
            config.set("compression.type", "lz4");
        }
        if properties.get("linger.ms").is_none()
            && properties.get("queue.buffering.max.ms").is_none()
        {
            config.set("linger.ms", settings.linger.as_millis().to_string());
        }
        config
            .set("acks", "all")
            .set("enable.idempotence", "true")
            // Records are never given up for their age: the task waits (C025).
            .set("message.timeout.ms", "0")
            .set("request.timeout.ms", "20000")
            .set("batch.size", settings.batch_bytes.to_string())
            .set("message.max.bytes", settings.record_bytes_max.to_string())
            // The byte budget of the worker is the limit; the library's own would be hit by one
            // task at the cost of another (C036).
            .set("queue.buffering.max.messages", "0")
            .set("queue.buffering.max.kbytes", "2147483647");
        config
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.lock();
        f.debug_struct("Pool")
            .field("cluster", &self.cluster)
            .field("current", &state.current)
            .finish_non_exhaustive()
    }
}
