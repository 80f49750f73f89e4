//! Work that takes long, on a thread of its own.

use tokio::{runtime, task};

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
