//! Records that the target might refuse are sent alone.
//!
//! A refusal takes the whole batch with it, and what was sent after it may be written all the same. So
//! a record that looks like trouble waits until nothing of its task is outstanding and goes by itself:
//! a refusal then concerns exactly that record, and its neighbours are written once (C022, C031).

use std::time::Duration;

use kreplicator_model::{ids::UnixMillis, target_limits::TargetLimits};

use crate::sink::Record;

/// Frame of a batch with one record: 61 bytes of header, lengths and attributes of the record.
const FRAME_BYTES: u64 = 61 + 21;
/// Frame of a record within a batch, at most, besides 10 bytes for each header's lengths.
const RECORD_FRAME_BYTES: u64 = 36;
/// Kafka's default of `max.message.bytes`, assumed where the topic's is not known. Being wrong costs
/// some waiting or the care described above, never a record.
const MAX_MESSAGE_BYTES_DEFAULT: u64 = 1_048_588;
/// Our clock and the broker's may differ by this.
const CLOCK_MARGIN: Duration = Duration::from_secs(60);

/// What gives rise to doubts about records for one topic.
#[derive(Debug, Clone, Copy)]
pub(super) struct Doubts {
    limits: TargetLimits,
    batch_bytes_max: u64,
}

impl Doubts {
    pub(super) fn new(limits: TargetLimits) -> Self {
        Self {
            limits,
            batch_bytes_max: limits
                .max_message_bytes
                .unwrap_or(MAX_MESSAGE_BYTES_DEFAULT),
        }
    }

    /// Whether the record might be refused.
    pub(super) fn about(&self, record: &Record<'_>, now: UnixMillis) -> bool {
        let header_bytes = 10 * record.headers.count() as u64;
        let is_large = record.payload_bytes + header_bytes + FRAME_BYTES > self.batch_bytes_max;
        let is_keyless = self.limits.compacted && record.key.is_none();
        is_large || is_keyless || self.is_out_of_time(record.timestamp, now)
    }

    /// Whether a record of `bytes` may join others of `held` bytes: together they could end up in one
    /// batch, which the topic must be able to take.
    pub(super) fn fits_beside(&self, held: u64, bytes: u64) -> bool {
        // Held bytes count more for each record than a batch does.
        held + bytes + FRAME_BYTES + RECORD_FRAME_BYTES <= self.batch_limit()
    }

    /// Where the topic takes more than a batch of ours ever has, the client's own limit does it.
    fn batch_limit(&self) -> u64 {
        if self.batch_bytes_max >= MAX_MESSAGE_BYTES_DEFAULT {
            return u64::MAX;
        }
        self.batch_bytes_max
    }

    fn is_out_of_time(&self, timestamp: Option<UnixMillis>, now: UnixMillis) -> bool {
        let Some(timestamp) = timestamp else {
            return false;
        };
        if self.limits.log_append_time {
            return false;
        }
        let reaches = |limit: Option<Duration>, distance: i64| {
            limit.is_some_and(|limit| {
                let limit = limit.saturating_sub(CLOCK_MARGIN).as_millis();
                i64::try_from(limit).is_ok_and(|limit| distance > limit)
            })
        };
        let age = now.0.saturating_sub(timestamp.0);
        let lead = timestamp.0.saturating_sub(now.0);
        (age > 0 && reaches(self.limits.timestamp_before_max, age))
            || (lead > 0 && reaches(self.limits.timestamp_after_max, lead))
    }
}

#[cfg(test)]
mod tests {
    use kreplicator_model::ids::Offset;

    use super::*;
    use crate::sink::NoHeaders;

    const NOW: UnixMillis = UnixMillis(1_800_000_000_000);
    const HOUR: Duration = Duration::from_secs(3_600);

    fn record(payload_bytes: u64, timestamp: i64) -> Record<'static> {
        Record {
            offset: Offset(1),
            timestamp: Some(UnixMillis(timestamp)),
            key: Some(b"k"),
            value: None,
            headers: &NoHeaders,
            payload_bytes,
        }
    }

    #[test]
    fn c031_size_gives_rise_to_doubt_from_the_topics_limit_on() {
        let doubts = Doubts::new(TargetLimits {
            max_message_bytes: Some(1_000),
            ..TargetLimits::default()
        });
        assert!(!doubts.about(&record(900, NOW.0), NOW));
        assert!(doubts.about(&record(950, NOW.0), NOW));
        let unknown = Doubts::new(TargetLimits::default());
        assert!(!unknown.about(&record(1_000_000, NOW.0), NOW));
        assert!(unknown.about(&record(2_000_000, NOW.0), NOW));
    }

    #[test]
    fn c022_timestamps_near_the_edge_of_the_window_give_rise_to_doubt() {
        let doubts = Doubts::new(TargetLimits {
            timestamp_before_max: Some(24 * HOUR),
            timestamp_after_max: Some(HOUR),
            ..TargetLimits::default()
        });
        let hour = 3_600_000;
        assert!(!doubts.about(&record(1, NOW.0 - 23 * hour), NOW));
        assert!(doubts.about(&record(1, NOW.0 - 24 * hour), NOW));
        assert!(doubts.about(&record(1, 1), NOW));
        assert!(!doubts.about(&record(1, NOW.0 + hour / 2), NOW));
        assert!(doubts.about(&record(1, NOW.0 + hour), NOW));
        let overwritten = Doubts::new(TargetLimits {
            timestamp_before_max: Some(24 * HOUR),
            log_append_time: true,
            ..TargetLimits::default()
        });
        assert!(!overwritten.about(&record(1, 1), NOW));
    }

    #[test]
    fn null_keys_are_doubtful_for_compacted_topics_alone() {
        let keyless = Record {
            key: None,
            ..record(1, NOW.0)
        };
        assert!(!Doubts::new(TargetLimits::default()).about(&keyless, NOW));
        let compacted = Doubts::new(TargetLimits {
            compacted: true,
            ..TargetLimits::default()
        });
        assert!(compacted.about(&keyless, NOW));
        assert!(
            !compacted.about(&record(1, NOW.0), NOW),
            "an empty key is a key"
        );
    }

    #[test]
    fn together_records_never_outgrow_a_small_topics_batch() {
        let small = Doubts::new(TargetLimits {
            max_message_bytes: Some(10_000),
            ..TargetLimits::default()
        });
        assert!(small.fits_beside(4_000, 4_000));
        assert!(!small.fits_beside(8_000, 2_000));
        let large = Doubts::new(TargetLimits {
            max_message_bytes: Some(10 << 20),
            ..TargetLimits::default()
        });
        assert!(large.fits_beside(100 << 20, 1 << 20));
    }
}
