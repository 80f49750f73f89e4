//! Spawns what a data path consists of. A panic of any of it is told, so that the process ends and its
//! tasks go elsewhere, instead of tasks that stand still and look well.

use std::{any::Any, future::Future, panic::AssertUnwindSafe};

use futures::{FutureExt as _, future::BoxFuture};
use kreplicator_wire::tasks::Tasks;
use tokio::sync::watch;
use tokio_util::task::TaskTracker;
use tracing::error;

/// Spawns tasks. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct Spawner {
    tracker: TaskTracker,
    /// The first that broke.
    broken: watch::Sender<Option<String>>,
}

impl Spawner {
    /// Runs `work`; `name` says what it is, for people.
    pub(crate) fn spawn(
        &self,
        name: &'static str,
        work: impl Future<Output = ()> + Send + 'static,
    ) {
        let broken = self.broken.clone();
        self.tracker.spawn(async move {
            let Err(panic) = AssertUnwindSafe(work).catch_unwind().await else {
                return;
            };
            let cause = format!("{name} panicked: {}", text(panic.as_ref()));
            error!(%cause, "a part of the data path broke");
            broken.send_if_modified(|first| {
                let is_first = first.is_none();
                first.get_or_insert(cause);
                is_first
            });
        });
    }

    /// All that was spawned.
    pub(crate) fn tracker(&self) -> &TaskTracker {
        &self.tracker
    }

    /// Waits until something has panicked, and tells what. Cancel safe.
    pub(crate) async fn broken(&self) -> String {
        let mut broken = self.broken.subscribe();
        let told = broken.wait_for(Option::is_some).await;
        // The sender lives as long as this value.
        let told = told.map(|cause| cause.clone());
        told.ok().flatten().unwrap_or_default()
    }
}

/// Connections are part of the data path.
impl Tasks for Spawner {
    fn spawn(&self, name: &'static str, work: BoxFuture<'static, ()>) {
        Self::spawn(self, name, work);
    }
}

/// What a panic says.
fn text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&'static str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("without words")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_panic_is_told_with_its_words_and_the_first_stays() {
        let spawner = Spawner::default();
        spawner.spawn("a task that ends", async {});
        let quiet = timeout(Duration::from_secs(60), spawner.broken()).await;
        assert!(quiet.is_err(), "nothing broke");
        spawner.spawn("a task", async { panic!("offset {} is odd", 7) });
        let told = spawner.broken().await;
        assert_eq!(told, "a task panicked: offset 7 is odd");
        spawner.clone().spawn("another", async { panic!("too") });
        spawner.tracker().close();
        spawner.tracker().wait().await;
        assert_eq!(spawner.broken().await, told);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_panics_is_told_as_well() {
        let spawner = Spawner::default();
        let tasks: &dyn Tasks = &spawner;
        let work = async { panic!("this byte was thought impossible") };
        tasks.spawn("the reading of a connection", Box::pin(work));
        let told = timeout(Duration::from_secs(60), spawner.broken()).await;
        let expected = "the reading of a connection panicked: this byte was thought impossible";
        assert_eq!(told.as_deref(), Ok(expected));
    }
}
