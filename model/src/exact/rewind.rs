//! Going back by a number of records.
//!
//! Positions are known by offset and count at two places only, the base of a line and a checkpoint, and
//! offsets may have holes. To find the record that lies so many copyable records before a known place,
//! read a stretch before it, count, and widen the stretch until it holds enough.

use super::{delivered::Place, sequence::Count, take_over::ReadFrom};
use crate::ids::Offset;

/// A search for the place that lies `records` copyable records before a known one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rewind {
    known: Place,
    records: u64,
    from: Offset,
    floor: Offset,
}

impl Rewind {
    /// Back by `records` from `known`, but not before `floor` (the base of the line or the start of the
    /// source's log, whichever is later). None when that is before the beginning of the line.
    #[must_use]
    pub fn new(known: Place, records: u64, floor: Offset) -> Option<Self> {
        known.count.minus(records)?;
        let from = back(known.offset, records).max(floor);
        Some(Self {
            known,
            records,
            from,
            floor,
        })
    }

    /// Source offsets `[from, to)` whose copyable records are to be counted.
    #[must_use]
    pub fn stretch(&self) -> (Offset, Offset) {
        (self.from, self.known.offset)
    }

    /// How many records lie between the place that is looked for and the known one.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.records
    }

    /// The place that is looked for, as a count.
    #[must_use]
    pub fn count(&self) -> Count {
        Count(self.known.count.0 - self.records)
    }

    /// The stretch holds `counted` copyable records: the place, or a wider stretch, or None when
    /// even all that the source has left is not enough.
    #[must_use]
    pub fn counted(self, counted: u64) -> Option<Result<ReadFrom, Self>> {
        if let Some(skip_records) = counted.checked_sub(self.records) {
            return Some(Ok(ReadFrom {
                offset: self.from,
                skip_records,
            }));
        }
        if self.from <= self.floor {
            return None;
        }
        let width = self.known.offset.0.abs_diff(self.from.0).max(1);
        let from = back(self.known.offset, width.saturating_mul(2)).max(self.floor);
        Some(Err(Self { from, ..self }))
    }
}

fn back(offset: Offset, by: u64) -> Offset {
    Offset(offset.0.saturating_sub_unsigned(by))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_place_found_has_so_many_records_between(
            copyable in proptest::collection::vec(proptest::bool::weighted(0.3), 1..200),
            records in 0_u64..100,
        ) {
            let end = i64::try_from(copyable.len()).expect("small");
            let count_in = |from: i64, to: i64| {
                (from..to).filter(|at| copyable[usize::try_from(*at).expect("small")]).count() as u64
            };
            let total = count_in(0, end);
            let known = Place { offset: Offset(end), count: Count(total), target_end: Offset(0) };
            let Some(mut rewind) = Rewind::new(known, records, Offset(0)) else {
                prop_assert!(records > total);
                return Ok(());
            };
            let found = loop {
                let (from, to) = rewind.stretch();
                match rewind.counted(count_in(from.0, to.0)).expect("nothing was deleted") {
                    Ok(found) => break found,
                    Err(wider) => rewind = wider,
                }
            };
            prop_assert_eq!(count_in(found.offset.0, end), records + found.skip_records);
        }
    }

    #[test]
    fn a_source_that_lost_its_start_ends_the_search() {
        let known = Place {
            offset: Offset(100),
            count: Count(50),
            target_end: Offset(0),
        };
        let rewind = Rewind::new(known, 20, Offset(90)).expect("within the line");
        assert_eq!(rewind.stretch(), (Offset(90), Offset(100)));
        assert_eq!(rewind.counted(10), None);
    }
}
