//! A clock that is set.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use kreplicator_model::ids::UnixMillis;

use crate::clock::Clock;

/// Begins at 0 monotonic and 2026-11-30 09:00 UTC.
#[derive(Debug, Clone, Default)]
pub(crate) struct SetClock(Arc<Mutex<Duration>>);

/// 2026-11-30 09:00 UTC.
pub(crate) const NINE: i64 = 1_796_029_200_000;

impl SetClock {
    pub(crate) fn pass(&self, time: Duration) {
        *self.0.lock().expect("no panics") += time;
    }

    pub(crate) fn now(&self) -> Duration {
        *self.0.lock().expect("no panics")
    }

    pub(crate) fn clock(&self) -> Clock {
        let (mono, wall) = (self.clone(), self.clone());
        Clock::from_fn(
            move || mono.now(),
            move || {
                let since = i64::try_from(wall.now().as_millis()).expect("short");
                UnixMillis(NINE + since)
            },
        )
    }
}
