//! The demo's verdict: for people, and as the last line one JSON object for programs.

use std::time::Duration;

use serde::Serialize;

use super::ledger::Totals;
use crate::render::units::grouped;

/// What happened. The field names of the JSON form are part of the interface.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Summary {
    /// Records that the source acknowledged.
    produced: u64,
    /// Of these, how many arrived at the target.
    mirrored: u64,
    /// Of these, how many did not.
    missing: u64,
    /// Arrivals beyond the first of a record.
    doubled: u64,
    /// Arrivals that are not what was produced.
    altered: u64,
    /// First arrivals after a later record of their partition.
    reordered: u64,
    /// Records written to the target by its own count: what arrived and what arrived again.
    on_target: u64,
    /// The longest time between two arrivals in any partition.
    longest_pause_ms: u64,
    /// The longest time from a partition's first record to its first arrival.
    longest_start_ms: u64,
    topics: usize,
    partitions: usize,
    workers_added: u32,
    workers_killed: u32,
    seconds: f64,
}

/// What was done meanwhile.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Deeds {
    /// Topics written to.
    pub(super) topics: usize,
    /// Workers that joined while records flowed.
    pub(super) workers_added: u32,
    /// Workers that were killed.
    pub(super) workers_killed: u32,
}

impl Summary {
    /// The verdict on `totals`, after `ran`.
    pub(super) fn new(totals: &Totals, on_target: u64, deeds: Deeds, ran: Duration) -> Self {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Self {
            produced: totals.produced,
            mirrored: totals.mirrored,
            missing: totals.missing,
            doubled: totals.doubled,
            altered: totals.altered,
            reordered: totals.reordered,
            on_target,
            longest_pause_ms: millis(totals.longest_pause.length),
            longest_start_ms: millis(totals.longest_start),
            topics: deeds.topics,
            partitions: totals.partitions,
            workers_added: deeds.workers_added,
            workers_killed: deeds.workers_killed,
            seconds: (ran.as_secs_f64() * 10.0).round() / 10.0,
        }
    }

    /// Whether every record arrived as it was.
    pub(super) fn is_good(&self) -> bool {
        let is_exact = self.missing == 0 && self.altered == 0 && self.reordered == 0;
        is_exact && self.produced > 0 && self.adds_up()
    }

    /// Whether the target's own count agrees with ours, so that no repetition was overlooked.
    fn adds_up(&self) -> bool {
        self.on_target == self.mirrored + self.doubled + self.altered
    }

    /// For people.
    pub(super) fn text(&self, totals: &Totals) -> String {
        let verdict = if self.is_good() {
            "every record arrived, unaltered and in order"
        } else if self.produced == 0 {
            "FAILED: nothing was produced"
        } else if !self.adds_up() {
            "FAILED: the target holds another number of records than arrived here"
        } else {
            "FAILED: records are missing, altered or out of order"
        };
        let doubled = match (self.doubled, self.workers_killed) {
            (0, _) => String::new(),
            (_, 0) => " (delivery is at least once)".to_owned(),
            (_, _) => " (what the killed worker had not checkpointed was sent again)".to_owned(),
        };
        let paused = totals
            .paused
            .as_ref()
            .map_or_else(String::new, |(topic, partition)| {
                let ended = totals.longest_pause.ended.as_secs_f64();
                format!(" ({topic}/{partition}, until {ended:.1}s)")
            });
        format!(
            "\n{verdict}\n  \
             produced       {}\n  \
             mirrored       {}\n  \
             missing        {}\n  \
             doubled        {}{doubled}\n  \
             longest pause  {} ms{paused}\n",
            grouped(self.produced),
            grouped(self.mirrored),
            grouped(self.missing),
            grouped(self.doubled),
            grouped(self.longest_pause_ms),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals() -> Totals {
        Totals {
            partitions: 4,
            produced: 1_000,
            mirrored: 1_000,
            doubled: 3,
            longest_pause: super::super::ledger::Pause {
                length: Duration::from_millis(3_210),
                ended: Duration::from_millis(21_500),
            },
            paused: Some(("orders".to_owned(), 2)),
            ..Totals::default()
        }
    }

    #[test]
    fn the_json_form_keeps_its_names() {
        let deeds = Deeds {
            topics: 1,
            workers_added: 1,
            workers_killed: 1,
        };
        let summary = Summary::new(&totals(), 1_003, deeds, Duration::from_millis(30_040));
        assert_eq!(
            serde_json::to_string(&summary).expect("plain numbers"),
            r#"{"produced":1000,"mirrored":1000,"missing":0,"doubled":3,"altered":0,"reordered":0,"on_target":1003,"longest_pause_ms":3210,"longest_start_ms":0,"topics":1,"partitions":4,"workers_added":1,"workers_killed":1,"seconds":30.0}"#
        );
        let text = summary.text(&totals());
        assert!(text.contains("every record arrived"), "{text}");
        assert!(text.contains("3,210 ms (orders/2, until 21.5s)"), "{text}");
    }

    #[test]
    fn anything_missing_or_changed_is_a_failure() {
        let with = |change: fn(&mut Totals)| {
            let mut totals = totals();
            change(&mut totals);
            Summary::new(&totals, 1_003, Deeds::default(), Duration::ZERO).is_good()
        };
        assert!(with(|_| {}));
        assert!(!with(|totals| totals.missing = 1));
        assert!(!with(|totals| totals.altered = 1));
        assert!(!with(|totals| totals.reordered = 1));
        assert!(!with(|totals| totals.produced = 0));
        assert!(!with(|totals| totals.doubled = 2), "one too few counted");
    }
}
