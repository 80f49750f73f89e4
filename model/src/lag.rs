//! How far a task is behind its source, in records.

use crate::ids::Offset;

/// Records between the checkpoint and the end of the source partition.
///
/// The end is the last stable offset where transactions are read as committed. Offsets below the log
/// start can no longer be copied, so they are not lag. Values read at different moments may cross
/// each other; the result is never negative. Without an end, or without any lower bound, the lag is
/// unknown, which is not the same as none.
#[must_use]
pub fn lag(end: Option<Offset>, start: Option<Offset>, checkpoint: Option<Offset>) -> Option<u64> {
    let from = checkpoint.max(start)?;
    let records = end?.0.saturating_sub(from.0).max(0);
    Some(records.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(offset: i64) -> Option<Offset> {
        Some(Offset(offset))
    }

    #[test]
    fn lag_counts_from_the_checkpoint() {
        assert_eq!(lag(at(100), at(0), at(40)), Some(60));
        assert_eq!(lag(at(100), None, at(40)), Some(60));
    }

    #[test]
    fn c115_lag_is_never_negative() {
        assert_eq!(lag(at(100), at(0), at(140)), Some(0));
        assert_eq!(lag(at(i64::MIN), at(0), at(i64::MAX)), Some(0));
    }

    #[test]
    fn c122_deleted_records_are_not_lag() {
        let million = at(1_000_000);
        assert_eq!(lag(million, million, None), Some(0));
        assert_eq!(lag(million, million, at(5)), Some(0));
        assert_eq!(lag(at(1_000_010), million, at(5)), Some(10));
    }

    #[test]
    fn unknown_is_not_zero() {
        assert_eq!(lag(None, at(0), at(5)), None);
        assert_eq!(lag(at(10), None, None), None);
    }
}
