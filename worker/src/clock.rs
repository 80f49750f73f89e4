//! Wall-clock time, handed to whoever stamps a report, a metric or an entry of the metadata store, and to
//! whoever compares it with the timestamps of records. Deadlines and leases never go by it: it may jump.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
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

    /// The time after a wait that begins now.
    #[must_use]
    pub fn after(&self, wait: Duration) -> UnixMillis {
        let millis = i64::try_from(wait.as_millis()).unwrap_or(i64::MAX);
        UnixMillis(self.now().0.saturating_add(millis))
    }
}

impl fmt::Debug for WallClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WallClock")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_endless_ends_with_time() {
        let clock = WallClock::from_fn(|| UnixMillis(1_000));
        assert_eq!(clock.after(Duration::from_secs(2)), UnixMillis(3_000));
        assert_eq!(clock.after(Duration::MAX), UnixMillis(i64::MAX));
    }
}
