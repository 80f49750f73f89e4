//! What scenarios of one program share because it takes longer to start than most of them.
//!
//! They run one after the other. Each begins and ends with everything running and settled; when one leaves
//! something that cannot be brought there, the next gets it new.

use std::{panic::AssertUnwindSafe, sync::LazyLock};

use anyhow::{Context as _, Result};
use futures::FutureExt as _;
use tokio::{runtime::Runtime, sync::Mutex};

use crate::skip::{Tier, skip};

/// What is shared.
pub trait Stage: Sized {
    /// Whether a scenario that failed leaves what [`Self::recover`] can bring back.
    const OUTLIVES_FAILURE: bool = true;

    /// Fails when a process has ended by itself or a thread panicked.
    ///
    /// # Errors
    /// What was found.
    fn check(&mut self) -> Result<()>;

    /// Undoes what a scenario may have left, also one that failed half-way.
    ///
    /// # Errors
    /// When it cannot be brought back; a new one is started then.
    fn recover(&mut self) -> impl Future<Output = Result<()>> {
        async { self.check() }
    }

    /// Waits until everything runs and has settled.
    ///
    /// # Errors
    /// When it does not come to that: the scenario has failed.
    fn settle(&mut self) -> impl Future<Output = Result<()>> {
        async { self.check() }
    }

    /// Shows and keeps all logs.
    fn failed(&self);
}

/// Holds it from scenario to scenario, in a static.
#[derive(Debug)]
pub struct Shared<S> {
    /// Owns loads, proxies and clients of what is shared.
    runtime: LazyLock<Runtime>,
    former: Mutex<Option<S>>,
}

impl<S: Stage> Shared<S> {
    /// Nothing yet.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "a default is not const")]
    pub const fn new() -> Self {
        Self {
            runtime: LazyLock::new(|| Runtime::new().expect("a runtime can be made")),
            former: Mutex::const_new(None),
        }
    }

    /// Runs a scenario in the tier of end-to-end tests, on what the one before left or on what `start` makes.
    ///
    /// # Panics
    /// When the scenario fails; logs are shown and kept.
    pub fn scenario(
        &self,
        start: impl AsyncFnOnce() -> Result<S>,
        run: impl AsyncFnOnce(&mut S) -> Result<()>,
    ) {
        if skip(Tier::EndToEnd) {
            return;
        }
        self.runtime.block_on(async {
            let mut former = self.former.lock().await;
            let mut stage = usable(former.take(), start).await;
            let outcome = AssertUnwindSafe(run(&mut stage)).catch_unwind().await;
            let outcome = match outcome {
                Ok(Ok(())) => stage.settle().await.context("after the scenario"),
                Ok(fault) => fault,
                Err(panic) => {
                    stage.failed();
                    std::panic::resume_unwind(panic);
                }
            };
            let failure = outcome.inspect_err(|_| stage.failed()).err();
            if failure.is_none() || S::OUTLIVES_FAILURE {
                *former = Some(stage);
            }
            if let Some(fault) = failure {
                panic!("{fault:#}");
            }
        });
    }
}

async fn usable<S: Stage>(former: Option<S>, start: impl AsyncFnOnce() -> Result<S>) -> S {
    if let Some(mut stage) = former {
        match stage.recover().await {
            Ok(()) => return stage,
            Err(fault) => eprintln!("everything is started anew, since: {fault:#}"),
        }
    }
    start().await.expect("what scenarios share starts")
}
