//! Encoding, off the threads that wait for the network.
//!
//! Compressing a row group takes a good part of a second, in which a thread of the async runtime would serve nobody. So
//! a fixed number of threads does it. Work is handed over by value and comes back with its result, so a file has at most one
//! piece under way, its pieces are done in order, and what waits is never more than one piece of each open file.
//!
//! A panic in a piece of work is the fault of that piece: whoever waits for it learns of it, and the thread goes on.

use std::{
    any::Any,
    collections::VecDeque,
    fmt,
    num::NonZeroUsize,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// Why there is no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// The work has panicked.
    #[error("encoding has panicked: {text}")]
    Panicked {
        /// What the panic said.
        text: String,
    },
    /// The threads were stopped first.
    #[error("the encoders were stopped")]
    Stopped,
}

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    is_stopped: bool,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    news: Condvar,
}

impl Shared {
    /// Nothing panics while it is held.
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What each thread does.
    fn work(&self) {
        loop {
            let mut queue = self.queue();
            let job = loop {
                if queue.is_stopped {
                    return;
                }
                match queue.jobs.pop_front() {
                    Some(job) => break job,
                    None => {
                        let waited = self.news.wait(queue);
                        queue = waited.unwrap_or_else(PoisonError::into_inner);
                    }
                }
            };
            drop(queue);
            job();
        }
    }
}

/// The threads. When the last clone is dropped, or at [`Encoders::shutdown`], they finish what they are at and end; what was not
/// begun comes to [`Broken::Stopped`].
#[derive(Clone)]
pub struct Encoders(Arc<Threads>);

struct Threads {
    shared: Arc<Shared>,
    /// How many there are.
    count: usize,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Work is done where it is handed over.
    is_inline: bool,
    large: Arc<Semaphore>,
}

impl Encoders {
    /// So many threads: half of the cores, and at least one, leave the other half to reading.
    ///
    /// # Errors
    /// The system gives no more threads.
    pub fn new(threads: NonZeroUsize) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let this = Threads {
            shared,
            count: threads.get(),
            threads: Mutex::default(),
            is_inline: false,
            large: Arc::new(Semaphore::new(1)),
        };
        for index in 0..threads.get() {
            let shared = Arc::clone(&this.shared);
            let thread = thread::Builder::new().name(format!("encoder-{index}"));
            let thread = thread.spawn(move || shared.work())?;
            this.threads().push(thread);
        }
        Ok(Self(Arc::new(this)))
    }

    /// No threads: work is done by whoever hands it over, before it is waited for. For tools, and for tests that repeat.
    #[must_use]
    pub fn inline() -> Self {
        Self(Arc::new(Threads {
            shared: Arc::default(),
            count: 0,
            threads: Mutex::default(),
            is_inline: true,
            large: Arc::new(Semaphore::new(1)),
        }))
    }

    /// No threads, and nothing is done until [`Encoders::step`] says so.
    #[cfg(test)]
    pub(crate) fn stepped() -> Self {
        Self(Arc::new(Threads {
            shared: Arc::default(),
            count: 0,
            threads: Mutex::default(),
            is_inline: false,
            large: Arc::new(Semaphore::new(1)),
        }))
    }

    /// Does the piece that has waited longest; false: there is none.
    #[cfg(test)]
    pub(crate) fn step(&self) -> bool {
        let job = self.0.shared.queue().jobs.pop_front();
        job.map(|job| job()).is_some()
    }

    /// Leave to encode something large, which takes a multiple of its size meanwhile: one at a time, until it is dropped.
    pub(crate) async fn large(&self) -> OwnedSemaphorePermit {
        let leave = Arc::clone(&self.0.large).acquire_owned().await;
        leave.expect("it is never closed")
    }

    /// Stops the threads and waits for what they are at, so not for asynchronous code. Work that is handed over later comes to
    /// [`Broken::Stopped`], whoever has a clone.
    pub fn shutdown(&self) {
        self.0.stop();
        let threads = std::mem::take(&mut *self.0.threads());
        for thread in threads {
            // Work that panics is caught, so a thread ends well.
            drop(thread.join());
        }
    }

    /// Has `work` done.
    pub fn submit<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Pending<T> {
        let (sender, receiver) = oneshot::channel();
        let job: Job = Box::new(move || {
            let done = catch_unwind(AssertUnwindSafe(work));
            let done = done.map_err(|panic| Broken::Panicked {
                text: text_of(&*panic),
            });
            // Whoever waited for it may be gone.
            drop(sender.send(done));
        });
        if self.0.is_inline {
            job();
        } else {
            let mut queue = self.0.shared.queue();
            if !queue.is_stopped {
                queue.jobs.push_back(job);
            }
            drop(queue);
            self.0.shared.news.notify_one();
        }
        Pending(receiver)
    }
}

impl fmt::Debug for Encoders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Encoders({})", self.0.count)
    }
}

impl Threads {
    fn threads(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for nobody.
    fn stop(&self) {
        let left = {
            let mut queue = self.shared.queue();
            queue.is_stopped = true;
            std::mem::take(&mut queue.jobs)
        };
        drop(left);
        self.shared.news.notify_all();
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.stop();
    }
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "without words".to_owned())
}

/// Work that was handed over.
#[derive(Debug)]
pub struct Pending<T>(oneshot::Receiver<Result<T, Broken>>);

impl<T> Pending<T> {
    /// Whether [`Pending::wait`] would give its result at once.
    #[must_use]
    pub fn is_done(&self) -> bool {
        !self.0.is_empty() || self.0.is_terminated()
    }

    /// Its result.
    ///
    /// # Errors
    /// [`Broken`].
    pub async fn wait(self) -> Result<T, Broken> {
        self.0.await.unwrap_or(Err(Broken::Stopped))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn two() -> Encoders {
        Encoders::new(NonZeroUsize::new(2).expect("not zero")).expect("threads")
    }

    #[tokio::test]
    async fn a_panic_is_the_fault_of_its_work_alone() {
        let encoders = Encoders::new(NonZeroUsize::MIN).expect("a thread");
        let failed = encoders.submit(|| panic!("value {}", 7));
        let next = encoders.submit(|| 8);
        let text = "value 7".to_owned();
        assert_eq!(failed.wait().await, Err::<(), _>(Broken::Panicked { text }));
        assert_eq!(next.wait().await, Ok(8));
    }

    #[tokio::test]
    async fn no_more_threads_than_asked_for_are_busy() {
        let encoders = two();
        let (began, begins) = mpsc::channel();
        let mut ends = Vec::new();
        let mut pending = Vec::new();
        for index in 0..3 {
            let (end, ended) = mpsc::channel::<()>();
            let began = began.clone();
            ends.push(end);
            pending.push(encoders.submit(move || {
                began.send(index).expect("the test waits");
                assert!(ended.recv().is_err(), "nothing is sent");
            }));
        }
        let mut busy = [begins.recv().expect("one"), begins.recv().expect("two")];
        busy.sort_unstable();
        assert_eq!(busy, [0, 1]);
        assert!(
            begins
                .recv_timeout(std::time::Duration::from_millis(50))
                .is_err()
        );
        ends.clear();
        for pending in pending {
            pending.wait().await.expect("done");
        }
    }

    #[tokio::test]
    async fn what_was_not_begun_when_all_stops_is_told() {
        let encoders = Encoders::new(NonZeroUsize::MIN).expect("a thread");
        let (end, ended) = mpsc::channel::<()>();
        let (began, begins) = mpsc::channel();
        let first = encoders.submit(move || {
            began.send(()).expect("the test waits");
            assert!(ended.recv().is_err(), "nothing is sent");
        });
        begins.recv().expect("it begins");
        let second = encoders.submit(|| ());
        let stopping = encoders.clone();
        let stopped = thread::spawn(move || stopping.shutdown());
        assert_eq!(second.wait().await, Err(Broken::Stopped));
        assert!(!stopped.is_finished(), "what was begun is waited for");
        drop(end);
        first.wait().await.expect("it was begun");
        stopped.join().expect("no panic");
        let late = encoders.submit(|| ());
        assert_eq!(late.wait().await, Err(Broken::Stopped));
    }

    #[tokio::test]
    async fn dropping_the_last_clone_waits_for_nobody() {
        let encoders = Encoders::new(NonZeroUsize::MIN).expect("a thread");
        let (end, ended) = mpsc::channel::<()>();
        let (began, begins) = mpsc::channel();
        let first = encoders.submit(move || {
            began.send(()).expect("the test waits");
            ended.recv().is_err()
        });
        begins.recv().expect("it begins");
        // It would stand still here if it joined the thread.
        drop(encoders);
        drop(end);
        assert_eq!(first.wait().await, Ok(true));
    }
}
