//! What a range of offsets does to a position.

use crate::ids::Offset;

/// Source offsets `[from, to)` that are accounted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delta {
    from: Offset,
    to: Offset,
}

/// How a delta fits to a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Joined {
    /// Starts at the position: it moves to the end of the delta.
    Chained(Offset),
    /// Starts before the position: what lies before it is known already, so the position moves to
    /// the end of the delta or stays.
    Overlap(Offset),
    /// Starts after the position: the offsets between are not accounted for and the position stays,
    /// until the gap policy of the link says what becomes of them.
    Gap {
        /// The offsets in between.
        missing: Delta,
    },
}

impl Delta {
    /// Offsets `[from, to)`; None when `to` lies before `from`.
    #[must_use]
    pub fn new(from: Offset, to: Offset) -> Option<Self> {
        (from <= to).then_some(Self { from, to })
    }

    /// First offset of the range.
    #[must_use]
    pub fn from(self) -> Offset {
        self.from
    }

    /// First offset after the range.
    #[must_use]
    pub fn to(self) -> Offset {
        self.to
    }

    /// Number of offsets.
    #[must_use]
    pub fn len(self) -> u64 {
        self.from.0.abs_diff(self.to.0)
    }

    /// Whether it holds no offset.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.from == self.to
    }

    /// Joins the range to everything below `position`.
    #[must_use]
    pub fn join(self, position: Offset) -> Joined {
        if self.from > position {
            let missing = Self {
                from: position,
                to: self.from,
            };
            return Joined::Gap { missing };
        }
        if self.from == position {
            return Joined::Chained(self.to);
        }
        Joined::Overlap(position.max(self.to))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn delta(from: i64, to: i64) -> Delta {
        Delta::new(Offset(from), Offset(to)).expect("ordered")
    }

    #[test]
    fn a_delta_chains_overlaps_or_leaves_a_gap() {
        assert_eq!(delta(5, 9).join(Offset(5)), Joined::Chained(Offset(9)));
        assert_eq!(delta(3, 9).join(Offset(5)), Joined::Overlap(Offset(9)));
        assert_eq!(delta(3, 4).join(Offset(5)), Joined::Overlap(Offset(5)));
        let missing = delta(5, 7);
        assert_eq!(delta(7, 9).join(Offset(5)), Joined::Gap { missing });
        assert_eq!(missing.len(), 2);
    }

    #[test]
    fn a_range_that_runs_backwards_is_none() {
        assert_eq!(Delta::new(Offset(5), Offset(4)), None);
        assert!(delta(5, 5).is_empty());
    }

    proptest! {
        #[test]
        fn joining_agrees_with_sets_of_offsets(position in 0_i64..30, from in 0_i64..30, len in 0_i64..30) {
            let mut known: BTreeSet<i64> = (0..position).collect();
            let range = delta(from, from + len);
            match range.join(Offset(position)) {
                Joined::Chained(end) | Joined::Overlap(end) => {
                    known.extend(from..from + len);
                    prop_assert_eq!(known, (0..end.0).collect::<BTreeSet<_>>());
                }
                Joined::Gap { missing } => {
                    prop_assert!(!missing.is_empty());
                    let between: Vec<i64> = (missing.from().0..missing.to().0).collect();
                    prop_assert!(between.iter().all(|offset| !known.contains(offset)));
                    prop_assert_eq!(missing.to(), range.from());
                }
            }
        }
    }
}
