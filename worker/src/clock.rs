//! Wall-clock time, handed to whoever stamps a report or a metric. Nothing is decided by it.

use std::{
    fmt,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use kreplicator_model::ids::UnixMillis;

/// A source of wall-clock time. Clones are the same source.
#[derive(Clone)]
pub struct WallClock(Arc<dyn Fn() -> UnixMillis + Send + Sync>);

impl WallClock {
    /// The operating system's.
    #[must_use]
    pub fn system() -> Self {
        Self::from_fn(|| {
            let since = SystemTime::now().duration_since(UNIX_EPOCH);
            let millis = since.map_or(0, |since| since.as_millis());
            UnixMillis(i64::try_from(millis).unwrap_or(i64::MAX))
        })
    }

    /// Whatever `now` says.
    pub fn from_fn(now: impl Fn() -> UnixMillis + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// The time now.
    #[must_use]
    pub fn now(&self) -> UnixMillis {
        (self.0)()
    }
}

impl fmt::Debug for WallClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WallClock")
    }
}
