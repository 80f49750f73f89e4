//! Who runs what a client consists of, and is told when a part of it breaks.

use std::fmt;

use futures::future::BoxFuture;
use tokio_util::task::TaskTracker;

/// Runs the tasks of connections. A task that panics must not go unnoticed: the connection has ended then, and
/// who runs tasks says what becomes of the process.
pub trait Tasks: fmt::Debug + Send + Sync {
    /// Runs `work` to its end; `name` says what it is, for people.
    fn spawn(&self, name: &'static str, work: BoxFuture<'static, ()>);
}

/// Runs them on the current Tokio runtime. Panics are told to nobody but the panic hook.
impl Tasks for TaskTracker {
    fn spawn(&self, _name: &'static str, work: BoxFuture<'static, ()>) {
        drop(Self::spawn(self, work));
    }
}
