//! The engine under test.

use std::sync::Arc;

use kreplicator_kafka::secrets::ProcessSecrets;
use kreplicator_model::ids::WorkerId;
use kreplicator_store::EmbeddedStore;
use kreplicator_worker::{
    batches::{BatchConfig, BatchEngine},
    budget::Budget,
    clock::WallClock,
    engine::Engine,
    lines::{LineBook, StoredLines},
};
use tokio_util::sync::CancellationToken;

use crate::bench::{Open, Times};

/// Lines in a store of their own.
pub(crate) fn lines() -> Arc<dyn LineBook> {
    let worker = WorkerId::new("worker-1").expect("legal");
    let store = Arc::new(EmbeddedStore::in_memory());
    Arc::new(StoredLines::new(store, worker, WallClock::system()))
}

/// An engine with a budget of 64 MiB and lines of its own.
pub(crate) fn engine(times: Times) -> Arc<dyn Engine> {
    engine_with("worker-1", times, lines()).0
}

/// An engine with this budget and lines of its own.
pub(crate) fn engine_within(times: Times, budget: Arc<Budget>) -> Arc<dyn Engine> {
    engine_of(config("worker-1", times), budget, lines()).0
}

/// The same as a worker of several that share lines, and what kills it.
pub(crate) fn engine_with(
    worker: &str,
    times: Times,
    lines: Arc<dyn LineBook>,
) -> (Arc<dyn Engine>, CancellationToken) {
    engine_of(config(worker, times), Budget::new(64 << 20), lines)
}

/// Settings of a worker.
pub(crate) fn config(worker: &str, times: Times) -> BatchConfig {
    BatchConfig {
        checkpoint_interval: times.checkpoint_interval,
        recommit_interval: times.recommit_interval,
        inspection_interval: times.inspection_interval,
        retry_min: times.retry_min,
        retry_max: times.retry_max,
        ..BatchConfig::new(WorkerId::new(worker).expect("legal"))
    }
}

/// An engine of these settings, and what kills it.
pub(crate) fn engine_of(
    config: BatchConfig,
    budget: Arc<Budget>,
    lines: Arc<dyn LineBook>,
) -> (Arc<dyn Engine>, CancellationToken) {
    let kill = CancellationToken::new();
    let engine = BatchEngine::new(
        config,
        Arc::new(ProcessSecrets),
        Arc::new(Open),
        budget,
        lines,
        kill.clone(),
    );
    (engine, kill)
}
