//! Work that blocks, away from the threads that serve.

use std::panic::resume_unwind;

use tokio::task::spawn_blocking;

/// Does what blocks on a thread for that, and passes a panic on. It goes on where nobody waits for it any
/// more.
///
/// # Panics
/// As `work` does, and outside a Tokio runtime.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match spawn_blocking(work).await {
        Ok(done) => done,
        Err(ended) => resume_unwind(ended.into_panic()),
    }
}
