//! What the demo looks like from one moment to the next: rates, waits and recoveries.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    producer::{SharedLedger, book},
    screen::{Screen, Status},
};

/// Time between status lines where there is no live one.
const STATUS_LINES: Duration = Duration::from_secs(2);

/// What was seen last, to tell rates and recoveries.
pub(super) struct View {
    start: Instant,
    last: (Duration, u64),
    rate: f64,
    last_line: Duration,
    waited: bool,
}

impl View {
    /// Nothing was seen yet.
    pub(super) fn new(start: Instant) -> Self {
        let now = start.elapsed();
        Self {
            start,
            last: (now, 0),
            rate: 0.0,
            last_line: now,
            waited: false,
        }
    }

    /// Shows the present state.
    pub(super) fn show(&mut self, ledger: &SharedLedger, screen: &Screen) -> anyhow::Result<()> {
        let now = self.start.elapsed();
        let (totals, waiting) = {
            let book = book(ledger);
            (
                book.totals(now),
                book.waiting(now.saturating_sub(Duration::from_secs(1))),
            )
        };
        let (since, mirrored) = self.last;
        let span = now.saturating_sub(since).as_secs_f64();
        if span >= 1.0 || mirrored == 0 {
            #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
            let arrived = totals.mirrored.saturating_sub(mirrored) as f64;
            self.rate = if mirrored == 0 {
                self.rate
            } else {
                arrived / span
            };
            self.last = (now, totals.mirrored);
        }
        let is_due = now.saturating_sub(self.last_line) >= STATUS_LINES;
        if is_due {
            self.last_line = now;
        }
        let rate = self.rate;
        screen.status(
            &Status {
                totals,
                rate,
                waiting,
            },
            is_due,
        )
    }

    /// A line when all partitions flow again after some had to wait.
    pub(super) fn recovered(&mut self, ledger: &SharedLedger) -> Option<String> {
        let now = self.start.elapsed();
        let waiting = book(ledger).waiting(now.saturating_sub(Duration::from_secs(1)));
        let waited = std::mem::replace(&mut self.waited, waiting > 0);
        (waited && waiting == 0).then(|| "  all partitions flow again".to_owned())
    }
}
