//! Which offsets of a group are in no file, and why.
//!
//! A source offset may hold no record to dump: a transaction's marker, an aborted record, a hole that compaction
//! left, a record that was deleted before it could be read. Each is accounted for, so that for every
//! offset below a checkpoint somebody can say what became of it (K1 of the fault kinds).
//!
//! A compacted log can have a hole after every record, so entries are limited: beyond [`ENTRIES_MAX`] neighbours of
//! one reason are told as one entry with a count, which says how many offsets within its range were left out
//! and no longer which.

use std::fmt;

use crate::ids::Offset;

/// Most entries kept of one group.
pub const ENTRIES_MAX: usize = 512;

/// Why an offset is in no file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// A control record: the marker of a transaction's end.
    Control,
    /// A record of an aborted transaction.
    Aborted,
    /// The log has nothing there: compaction, or a broker that counted on.
    Hole,
    /// Below the start of the source's log when it was to be read: lost to the dump.
    Lost,
    /// Left out by a rule of the link.
    Filtered,
    /// It could not be read or converted, and the link's policy is to go on. It is lost to the dump, unless
    /// that policy keeps it elsewhere.
    Unreadable,
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Control,
        Self::Aborted,
        Self::Hole,
        Self::Lost,
        Self::Filtered,
        Self::Unreadable,
    ];

    /// The word in stored manifests.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Control => "control",
            Self::Aborted => "aborted",
            Self::Hole => "hole",
            Self::Lost => "lost",
            Self::Filtered => "filtered",
            Self::Unreadable => "unreadable",
        }
    }

    /// The reason of this word.
    #[must_use]
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.word() == word)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Offsets within `[from, to)` that are in no file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeftOut {
    /// Why.
    pub why: Reason,
    /// First of the range; itself left out, unless neighbours were told as one.
    pub from: Offset,
    /// End of the range, exclusive.
    pub to: Offset,
    /// How many: `to − from` where all of them are, less where neighbours were told as one.
    pub count: u64,
}

impl LeftOut {
    /// Offsets of its range, left out or not; 0 where the range is no range.
    #[must_use]
    pub fn width(&self) -> u64 {
        u64::try_from(self.to.0.saturating_sub(self.from.0)).unwrap_or(0)
    }

    /// Whether all of its range is left out.
    #[must_use]
    pub fn is_solid(&self) -> bool {
        self.count == self.width()
    }
}

/// Collects what is left out of one group, in the order of offsets.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    entries: Vec<LeftOut>,
}

impl Ledger {
    /// Notes `[from, to)`, which lies above all that was noted before.
    ///
    /// # Panics
    /// When it is empty, or does not lie above.
    pub fn add(&mut self, why: Reason, from: Offset, to: Offset) {
        assert!(from < to, "nothing is left out in [{from}, {to})");
        let highest = self.entries.iter().map(|entry| entry.to).max();
        assert!(
            highest.is_none_or(|end| end <= from),
            "[{from}, {to}) is noted after {highest:?}"
        );
        let entry = LeftOut {
            why,
            from,
            to,
            count: 0,
        };
        let entry = LeftOut {
            count: entry.width(),
            ..entry
        };
        match self.entries.last_mut() {
            Some(last) if last.why == why && last.to == from => {
                last.to = to;
                last.count += entry.count;
            }
            _ => self.entries.push(entry),
        }
        if self.entries.len() > ENTRIES_MAX {
            self.shorten();
        }
    }

    /// What was noted, by first offset.
    #[must_use]
    pub fn entries(&self) -> &[LeftOut] {
        &self.entries
    }

    /// How many offsets were left out.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.entries.iter().map(|entry| entry.count).sum()
    }

    /// Tells neighbours of the most frequent reason as one, two by two.
    fn shorten(&mut self) {
        let of = |why| {
            self.entries
                .iter()
                .filter(move |entry| entry.why == why)
                .count()
        };
        let Some(most) = Reason::ALL.into_iter().max_by_key(|why| of(*why)) else {
            return;
        };
        let mut kept: Vec<LeftOut> = Vec::with_capacity(ENTRIES_MAX);
        // Index in `kept` of one that waits for its neighbour.
        let mut waiting: Option<usize> = None;
        for entry in self.entries.drain(..) {
            match waiting {
                Some(index) if entry.why == most => {
                    kept[index].to = entry.to;
                    kept[index].count += entry.count;
                    waiting = None;
                }
                _ => {
                    if entry.why == most {
                        waiting = Some(kept.len());
                    }
                    kept.push(entry);
                }
            }
        }
        self.entries = kept;
    }
}

#[cfg(test)]
impl LeftOut {
    /// Control records all the way.
    pub(crate) fn control(from: Offset, to: Offset) -> Self {
        Self {
            why: Reason::Control,
            from,
            to,
            count: (to.0 - from.0).unsigned_abs(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn neighbours_of_one_reason_are_one_entry() {
        let mut ledger = Ledger::default();
        ledger.add(Reason::Control, Offset(5), Offset(6));
        ledger.add(Reason::Control, Offset(6), Offset(8));
        ledger.add(Reason::Hole, Offset(8), Offset(9));
        ledger.add(Reason::Control, Offset(10), Offset(11));
        assert_eq!(ledger.entries().len(), 3);
        assert_eq!(ledger.count(), 5);
    }

    #[test]
    #[should_panic(expected = "is noted after")]
    fn order_is_kept() {
        let mut ledger = Ledger::default();
        ledger.add(Reason::Hole, Offset(5), Offset(6));
        ledger.add(Reason::Hole, Offset(5), Offset(6));
    }

    #[test]
    fn a_compacted_log_fills_no_memory_and_rare_reasons_stay_exact() {
        let mut ledger = Ledger::default();
        ledger.add(Reason::Lost, Offset(0), Offset(7));
        for hole in 0..100_000 {
            ledger.add(Reason::Hole, Offset(10 + 2 * hole), Offset(11 + 2 * hole));
        }
        ledger.add(Reason::Unreadable, Offset(300_000), Offset(300_001));
        assert!(ledger.entries().len() <= ENTRIES_MAX);
        assert_eq!(ledger.count(), 7 + 100_000 + 1);
        let lost = LeftOut {
            why: Reason::Lost,
            from: Offset(0),
            to: Offset(7),
            count: 7,
        };
        assert_eq!(ledger.entries()[0], lost);
        assert!(ledger.entries().last().expect("some").is_solid());
    }

    proptest! {
        #[test]
        fn no_count_is_lost_however_many(ranges in proptest::collection::vec((0_usize..6, 1_i64..4, 1_i64..4), 0..3_000)) {
            let mut ledger = Ledger::default();
            let (mut at, mut counts) = (0, [0_u64; 6]);
            for (why, space, width) in ranges {
                at += space;
                ledger.add(Reason::ALL[why], Offset(at), Offset(at + width));
                counts[why] += width.unsigned_abs();
                at += width;
            }
            prop_assert!(ledger.entries().len() <= ENTRIES_MAX);
            for (why, count) in Reason::ALL.into_iter().zip(counts) {
                let entries = ledger.entries().iter().filter(|entry| entry.why == why);
                prop_assert_eq!(entries.map(|entry| entry.count).sum::<u64>(), count);
            }
            for entry in ledger.entries() {
                prop_assert!(0 < entry.count && entry.count <= entry.width());
            }
            prop_assert!(ledger.entries().is_sorted_by_key(|entry| entry.from));
        }
    }
}
