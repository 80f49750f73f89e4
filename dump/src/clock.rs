//! The two clocks of an owner.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use kreplicator_model::ids::UnixMillis;
use tokio::time::Instant;

/// A monotonic clock, by which ages and deadlines go, and a wall clock, which timestamps of records are compared with and
/// which is written down for people. Clones are the same clock.
#[derive(Clone)]
pub struct Clock {
    mono: Arc<dyn Fn() -> Duration + Send + Sync>,
    wall: Arc<dyn Fn() -> UnixMillis + Send + Sync>,
}

impl Clock {
    /// The operating system's.
    #[must_use]
    pub fn system() -> Self {
        let begin = Instant::now();
        Self::from_fn(
            move || begin.elapsed(),
            || {
                let since = SystemTime::now().duration_since(UNIX_EPOCH);
                let millis = since.map_or(0, |since| since.as_millis());
                UnixMillis(i64::try_from(millis).unwrap_or(i64::MAX))
            },
        )
    }

    /// Whatever these say. `mono` never goes back.
    pub fn from_fn(
        mono: impl Fn() -> Duration + Send + Sync + 'static,
        wall: impl Fn() -> UnixMillis + Send + Sync + 'static,
    ) -> Self {
        Self {
            mono: Arc::new(mono),
            wall: Arc::new(wall),
        }
    }

    /// Since some fixed moment.
    #[must_use]
    pub fn mono(&self) -> Duration {
        (self.mono)()
    }

    /// The time of day.
    #[must_use]
    pub fn wall(&self) -> UnixMillis {
        (self.wall)()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}
