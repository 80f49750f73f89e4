//! Work that takes long, on a thread of its own, and in turns.

use std::sync::Arc;

use tokio::{runtime, sync::Semaphore, task};

/// Walks at a time over everything there is.
const WALKS_AT_ONCE: usize = 2;

/// Turns of those who walk over everything there is, in calls and for metrics, so that they never take all
/// of the processor from the lead. Clones share them.
#[derive(Debug, Clone)]
pub struct Walks(Arc<Semaphore>);

impl Default for Walks {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(WALKS_AT_ONCE)))
    }
}

impl Walks {
    /// Does it in its turn and off the threads that others need. What it walks over is to be taken in `work`:
    /// whoever waits must not hold on to it.
    ///
    /// # Panics
    /// As [`heavy`].
    pub(crate) async fn turn<T>(&self, work: impl FnOnce() -> T) -> T {
        // It is never closed.
        let _turn = self.0.acquire().await;
        heavy(work)
    }
}

/// Runs what may take long without holding up others on this thread: keep-alives of the lead among
/// them, so that a large request costs no leader its place.
///
/// # Panics
/// Outside a Tokio runtime.
pub(crate) fn heavy<T>(work: impl FnOnce() -> T) -> T {
    match runtime::Handle::current().runtime_flavor() {
        runtime::RuntimeFlavor::MultiThread => task::block_in_place(work),
        _ => work(),
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, time::Duration};

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn others_go_on_meanwhile() {
        let (sender, receiver) = mpsc::channel();
        let working = tokio::spawn(async move {
            // Begun by the only thread there is.
            let other = tokio::spawn(async move { sender.send(()) });
            let heard = heavy(|| receiver.recv_timeout(Duration::from_secs(10)));
            other.await.map(|_| heard)
        });
        let heard = working.await.expect("no panic").expect("no panic");
        heard.expect("the other task ran");
    }

    #[tokio::test]
    async fn a_runtime_of_one_thread_just_does_it() {
        assert_eq!(heavy(|| 7), 7);
    }
}
