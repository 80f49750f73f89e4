//! How soon a broker is asked again.
//!
//! For each answer it looks at every partition of the session, several times over where it waits for news: with
//! a thousand of them, of which a few have news all the time, it would do little else (KIP-227 spares the list in
//! the request, not the look). So an answer that brought little is followed by a pause, in which more gathers.

use std::time::Duration;

use tokio::time::Instant;

/// For each partition of the session, so that a broker looks at 25,000 a second for us at most.
const PER_PARTITION: Duration = Duration::from_micros(40);
/// Longest pause, from 1,250 partitions on.
const PAUSE_MAX: Duration = Duration::from_millis(50);
/// An answer of so many bytes was worth the look, and much may wait behind it.
const WORTH: usize = 64 << 10;

/// Whether so many bytes are so large a part of what was asked for that more may wait behind them, also where
/// little memory lets only little be asked for.
pub(super) fn may_have_more(bytes: usize, bytes_max: i32) -> bool {
    bytes > 0 && bytes >= usize::try_from(bytes_max).unwrap_or_default() / 2
}

/// The earliest time of the next request, when the last was sent at `asked_at` for so many partitions and its
/// answer brought so many bytes of records, behind which more may wait.
pub(super) fn ask_again_at(
    asked_at: Instant,
    partitions: usize,
    bytes: usize,
    may_have_more: bool,
) -> Instant {
    if may_have_more || bytes >= WORTH {
        return asked_at;
    }
    let partitions = u32::try_from(partitions).unwrap_or(u32::MAX);
    asked_at + PER_PARTITION.saturating_mul(partitions).min(PAUSE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_more_partitions_share_little_the_longer_is_the_pause() {
        let asked_at = Instant::now();
        let pause = |partitions, bytes| ask_again_at(asked_at, partitions, bytes, false) - asked_at;
        assert_eq!(pause(1, 0), Duration::from_micros(40));
        assert_eq!(pause(100, 300), Duration::from_millis(4));
        assert_eq!(pause(1_000, 65_535), Duration::from_millis(40));
        assert_eq!(pause(1_000, 65_536), Duration::ZERO, "a backlog");
        assert_eq!(pause(5_000, 300), Duration::from_millis(50));
        assert_eq!(pause(usize::MAX, 300), Duration::from_millis(50));
        assert_eq!(ask_again_at(asked_at, 5_000, 300, true), asked_at);
    }

    #[test]
    fn half_of_what_was_asked_for_is_much_however_little_that_is() {
        assert!(may_have_more(8 << 10, 16 << 10));
        assert!(!may_have_more((8 << 10) - 1, 16 << 10));
        assert!(!may_have_more(0, 0));
    }
}
