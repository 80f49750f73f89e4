//! Places in a line.

use std::fmt;

/// Sequences run from 0 to `i32::MAX` and then begin again at 0.
const SEQUENCES: u64 = 1 << 31;

/// How many copyable records of a line come before this place: 0 at the base of the line. It never
/// wraps, so two counts can always be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Count(pub u64);

/// The sequence of a record as Kafka knows it: its [`Count`] modulo 2^31, never negative.
///
/// # Source
/// `DefaultRecordBatch.incrementSequence` (clients, 2.1.1 and 4.0): 0 follows `i32::MAX`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sequence(i32);

impl Count {
    /// The place `records` further on.
    #[must_use]
    pub fn plus(self, records: u64) -> Self {
        Self(self.0.saturating_add(records))
    }

    /// The place `records` before; None before the base of the line.
    #[must_use]
    pub fn minus(self, records: u64) -> Option<Self> {
        self.0.checked_sub(records).map(Self)
    }

    /// Records from `earlier` to here; None when `earlier` lies after.
    #[must_use]
    pub fn since(self, earlier: Self) -> Option<u64> {
        self.0.checked_sub(earlier.0)
    }

    /// The sequence of the record at this place.
    #[must_use]
    pub fn sequence(self) -> Sequence {
        let wrapped = self.0 % SEQUENCES;
        Sequence(i32::try_from(wrapped).expect("below 2^31"))
    }
}

impl Sequence {
    /// A sequence as read from the wire; None when it is negative, which means "no sequence".
    #[must_use]
    pub fn new(number: i32) -> Option<Self> {
        (number >= 0).then_some(Self(number))
    }

    /// The number on the wire.
    #[must_use]
    pub fn number(self) -> i32 {
        self.0
    }

    /// The sequence `records` further on.
    #[must_use]
    pub fn plus(self, records: u64) -> Self {
        Count(self.number_u64())
            .plus(records % SEQUENCES)
            .sequence()
    }

    /// Steps forward from `earlier` to here, in `[0, 2^31)`.
    #[must_use]
    pub fn steps_from(self, earlier: Self) -> u64 {
        (self.number_u64() + SEQUENCES - earlier.number_u64()) % SEQUENCES
    }

    /// Steps from `other` to here by the shorter way round, negative when `other` lies ahead.
    #[must_use]
    pub fn signed_steps_from(self, other: Self) -> i64 {
        let forward = self.steps_from(other);
        let signed = if forward < SEQUENCES / 2 {
            i128::from(forward)
        } else {
            i128::from(forward) - i128::from(SEQUENCES)
        };
        i64::try_from(signed).expect("within 31 bits")
    }

    fn number_u64(self) -> u64 {
        u64::from(self.0.unsigned_abs())
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn zero_follows_the_largest_sequence() {
        let last = Count(SEQUENCES - 1);
        assert_eq!(last.sequence().number(), i32::MAX);
        assert_eq!(last.plus(1).sequence().number(), 0);
        assert_eq!(last.sequence().plus(1).number(), 0);
        assert_eq!(Sequence::new(-1), None);
    }

    #[test]
    fn the_shorter_way_round_has_a_sign() {
        let (low, high) = (Count(2).sequence(), Count(SEQUENCES - 3).sequence());
        assert_eq!(low.signed_steps_from(high), 5);
        assert_eq!(high.signed_steps_from(low), -5);
    }

    proptest! {
        #[test]
        fn counts_and_sequences_agree(count in 0_u64..(1 << 40), step in 0_u64..(1 << 30)) {
            let (here, there) = (Count(count), Count(count).plus(step));
            prop_assert_eq!(here.sequence().plus(step), there.sequence());
            prop_assert_eq!(there.sequence().steps_from(here.sequence()), step);
            prop_assert_eq!(there.sequence().signed_steps_from(here.sequence()).unsigned_abs(), step);
            prop_assert_eq!(there.since(here), Some(step));
            prop_assert_eq!(there.minus(step), Some(here));
        }
    }
}
