//! What the demo shows: a line for each event and, on a terminal, one live line below them.

use std::{io::IsTerminal as _, time::Duration};

use indicatif::{ProgressBar, ProgressStyle};
use tokio::time::Instant;

use super::ledger::Totals;
use crate::{commands::print, render::units::grouped};

/// The output.
#[derive(Debug)]
pub(super) struct Screen {
    start: Instant,
    /// None: no terminal, so the status is a line now and then.
    live: Option<ProgressBar>,
}

impl Screen {
    /// An output that counts from `start`.
    pub(super) fn new(start: Instant) -> anyhow::Result<Self> {
        let is_terminal = std::io::stdout().is_terminal() && std::io::stderr().is_terminal();
        let live = is_terminal.then(ProgressBar::new_spinner);
        if let Some(live) = &live {
            live.set_style(ProgressStyle::with_template("{spinner} {msg}")?);
            live.enable_steady_tick(Duration::from_millis(100));
        }
        Ok(Self { start, live })
    }

    /// One event.
    pub(super) fn line(&self, text: &str) -> anyhow::Result<()> {
        let line = format!("{} {text}", stamp(self.start.elapsed()));
        match &self.live {
            Some(live) => live.suspend(|| print(&line)),
            None => print(&line),
        }
    }

    /// The present state; `is_due` says whether it is time for a line where there is no live one.
    pub(super) fn status(&self, status: &Status, is_due: bool) -> anyhow::Result<()> {
        match &self.live {
            Some(live) => {
                live.set_message(format!("{} {status}", stamp(self.start.elapsed())));
                Ok(())
            }
            None if is_due => self.line(&status.to_string()),
            None => Ok(()),
        }
    }

    /// Ends the live line.
    pub(super) fn close(&self) {
        if let Some(live) = &self.live {
            live.finish_and_clear();
        }
    }
}

fn stamp(since: Duration) -> String {
    format!("[{:6.1}s]", since.as_secs_f64())
}

/// The present state.
#[derive(Debug)]
pub(super) struct Status {
    /// What was counted until now.
    pub(super) totals: Totals,
    /// Records that arrived for the first time, a second.
    pub(super) rate: f64,
    /// Partitions that wait for a record and had none for a second.
    pub(super) waiting: usize,
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Totals {
            partitions,
            produced,
            mirrored,
            missing,
            doubled,
            ..
        } = &self.totals;
        write!(
            f,
            "  produced {}  mirrored {}  under way {}  doubled {}  {:.0} records/s",
            grouped(*produced),
            grouped(*mirrored),
            grouped(*missing),
            grouped(*doubled),
            self.rate
        )?;
        match self.waiting {
            0 => write!(f, "  all {partitions} partitions flow"),
            waiting => write!(f, "  {waiting} of {partitions} partitions wait"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_reads_well() {
        let mut status = Status {
            totals: Totals {
                partitions: 12,
                produced: 12_345,
                mirrored: 12_300,
                missing: 45,
                ..Totals::default()
            },
            rate: 499.6,
            waiting: 0,
        };
        assert_eq!(
            status.to_string(),
            "  produced 12,345  mirrored 12,300  under way 45  doubled 0  500 records/s  \
             all 12 partitions flow"
        );
        status.waiting = 3;
        assert!(status.to_string().ends_with("3 of 12 partitions wait"));
        assert_eq!(stamp(Duration::from_millis(12_345)), "[  12.3s]");
    }
}
