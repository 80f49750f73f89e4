//! Calls of the file system on threads that may block, each under a deadline.

use std::{sync::Arc, time::Duration};

use tokio::{sync::Semaphore, task::spawn_blocking, time::timeout};

use super::{super::Kind, fault::Fault};

/// Calls at a time. A disk that hangs keeps so many threads of the process, and those that come later are told at
/// their deadline that nothing was done for them.
const CALLS_MAX: usize = 16;

/// Whether a call changes anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    Question,
    Change,
}

/// Who may call.
#[derive(Debug, Clone)]
pub(super) struct Calls {
    turns: Arc<Semaphore>,
    deadline: Duration,
}

impl Calls {
    pub(super) fn new(deadline: Duration) -> Self {
        Self {
            turns: Arc::new(Semaphore::new(CALLS_MAX)),
            deadline,
        }
    }

    /// Does `work`. What it has begun goes on when its caller has gone or its deadline has passed.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        effect: Effect,
        work: impl FnOnce() -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Fault> {
        let begun = tokio::time::Instant::now();
        let turn = timeout(self.deadline, Arc::clone(&self.turns).acquire_owned()).await;
        let Ok(turn) = turn else {
            return Err(Fault {
                kind: Kind::Unreachable,
                text: format!(
                    "{CALLS_MAX} other calls of this folder hang, and this one was not begun within {:?}; look at \
                     its disk",
                    self.deadline
                ),
            });
        };
        let turn = turn.expect("nobody closes it");
        let thread = spawn_blocking(move || {
            let done = work();
            drop(turn);
            done
        });
        match timeout(self.deadline.saturating_sub(begun.elapsed()), thread).await {
            Ok(Ok(done)) => done,
            Ok(Err(fault)) if fault.is_panic() => std::panic::resume_unwind(fault.into_panic()),
            Ok(Err(_)) => Err(Fault {
                kind: Kind::Unknown,
                text: "the process is ending".to_owned(),
            }),
            Err(_) => Err(Fault {
                kind: Kind::Unknown,
                text: format!(
                    "not done within {:?}{}; look at the disk",
                    self.deadline,
                    match effect {
                        Effect::Question => "",
                        Effect::Change => ", and may be done yet",
                    }
                ),
            }),
        }
    }
}
