//! The engine under test.

use std::{sync::Arc, time::Duration};

use kreplicator_kafka::secrets::ProcessSecrets;
use kreplicator_model::ids::WorkerId;
use kreplicator_worker::{
    budget::Budget,
    engine::Engine,
    records::{RecordsConfig, RecordsEngine},
};
use tokio_util::sync::CancellationToken;

use crate::bench::{Open, Times};

/// An engine with a budget of 64 MiB.
pub(crate) fn engine(times: Times) -> Arc<dyn Engine> {
    engine_within(times, Budget::new(64 << 20))
}

/// An engine with this budget.
pub(crate) fn engine_within(times: Times, budget: Arc<Budget>) -> Arc<dyn Engine> {
    let config = RecordsConfig {
        checkpoint_interval: times.checkpoint_interval,
        recommit_interval: times.recommit_interval,
        inspection_interval: times.inspection_interval,
        statistics_interval: Duration::from_secs(1),
        renewal_interval: Duration::from_secs(1),
        retry_min: times.retry_min,
        retry_max: times.retry_max,
        ..RecordsConfig::new(WorkerId::new("worker-1").expect("legal"))
    };
    RecordsEngine::new(
        config,
        Arc::new(ProcessSecrets),
        Arc::new(Open),
        budget,
        CancellationToken::new(),
    )
}
