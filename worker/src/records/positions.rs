//! How far the library's fetcher got in each partition, from its statistics.
//!
//! Transaction markers, aborted records and holes of compacted topics end up as nothing: no message
//! ever tells that they were passed, and without that a checkpoint would stay before them for ever
//! (C114). The statistics do tell: a partition's `next_offset` is what the fetcher asks for next.
//!
//! A number may be a leftover of an earlier opening of the partition, and a number may be told just
//! before the records below it are queued. So a number is believed
//! - in the first opening of that partition by its consumer, or after a record came or the number
//!   changed in this opening,
//! - once the next statistics say the same or more, and everything queued was handed on since.

use std::collections::HashMap;

use kreplicator_model::ids::Offset;
use serde::Deserialize;

/// Parts of the statistics that are read; the rest is skipped by the parser.
#[derive(Debug, Deserialize)]
struct Statistics<'a> {
    #[serde(borrow)]
    topics: HashMap<&'a str, Topic>,
}

#[derive(Debug, Deserialize)]
struct Topic {
    partitions: HashMap<String, Partition>,
}

#[derive(Debug, Deserialize)]
struct Partition {
    partition: i32,
    next_offset: i64,
}

/// Reads the statistics: next offsets by topic and partition.
///
/// # Errors
/// When they are not what the library writes.
pub(super) fn parse(json: &[u8]) -> Result<HashMap<(String, i32), Offset>, serde_json::Error> {
    let statistics: Statistics<'_> = serde_json::from_slice(json)?;
    let mut found = HashMap::new();
    for (topic, partitions) in statistics.topics {
        for partition in partitions.partitions.into_values() {
            // -1 is the library's own "no partition yet"; negative offsets are "none".
            if partition.partition >= 0 && partition.next_offset >= 0 {
                let key = (topic.to_owned(), partition.partition);
                found.insert(key, Offset(partition.next_offset));
            }
        }
    }
    Ok(found)
}

/// What is known of one opening of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Evidence {
    /// What statistics say is of this opening.
    trusted: bool,
    said: Option<Offset>,
    confirmed: Option<Offset>,
}

impl Evidence {
    /// A partition was opened; `is_first`: its consumer never had it open before.
    pub(super) fn new(is_first: bool) -> Self {
        Self {
            trusted: is_first,
            said: None,
            confirmed: None,
        }
    }

    /// A record came.
    pub(super) fn record(&mut self) {
        if !self.trusted {
            self.trusted = true;
            self.said = None;
        }
    }

    /// Fetching was paused and starts again where the reader is: numbers from before are stale.
    pub(super) fn resumed(&mut self) {
        *self = Self::new(false);
    }

    /// Statistics came.
    pub(super) fn statistics(&mut self, next: Option<Offset>) {
        self.confirmed = self
            .said
            .filter(|before| self.trusted && next >= Some(*before));
        let has_changed = matches!((self.said, next), (Some(before), Some(now)) if before != now);
        self.trusted |= has_changed;
        self.said = next;
    }

    /// Everything below this offset was fetched and handed on; asked when the queue is empty.
    pub(super) fn passed(&self) -> Option<Offset> {
        self.confirmed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_offsets_are_read_and_the_rest_is_skipped() {
        let json = br#"{"name":"c","brokers":{"a":{"x":[1,2]}},"topics":{
            "orders":{"topic":"orders","age":5,"partitions":{
                "0":{"partition":0,"broker":1,"next_offset":42,"app_offset":40},
                "1":{"partition":1,"next_offset":-1001},
                "-1":{"partition":-1,"next_offset":7}}}},"tx":3}"#;
        let found = parse(json).expect("statistics");
        assert_eq!(
            found,
            HashMap::from([(("orders".to_owned(), 0), Offset(42))])
        );
        assert!(parse(b"{}").is_err());
    }

    fn told(evidence: &mut Evidence, next: i64) -> Option<i64> {
        evidence.statistics(Some(Offset(next)));
        evidence.passed().map(|passed| passed.0)
    }

    #[test]
    fn c114_a_number_counts_once_the_next_statistics_say_as_much() {
        let mut evidence = Evidence::new(true);
        assert_eq!(
            told(&mut evidence, 11),
            None,
            "records may be on their way to the queue"
        );
        assert_eq!(told(&mut evidence, 11), Some(11));
        evidence.statistics(None);
        assert_eq!(evidence.passed(), None);
    }

    #[test]
    fn c018_a_long_run_of_nothing_is_passed_step_by_step() {
        let mut evidence = Evidence::new(true);
        let passed: Vec<_> = [100, 200, 300].map(|next| told(&mut evidence, next)).into();
        assert_eq!(passed, [None, Some(100), Some(200)]);
    }

    #[test]
    fn numbers_of_an_earlier_opening_are_not_believed() {
        let mut evidence = Evidence::new(false);
        assert_eq!(told(&mut evidence, 1_000), None);
        assert_eq!(
            told(&mut evidence, 1_000),
            None,
            "may be from before the reader went back"
        );
        evidence.record();
        assert_eq!(
            told(&mut evidence, 1_000),
            None,
            "is the first of those believed"
        );
        assert_eq!(told(&mut evidence, 1_000), Some(1_000));
        evidence.resumed();
        assert_eq!(told(&mut evidence, 1_000), None);
        assert_eq!(told(&mut evidence, 1_000), None);
    }

    #[test]
    fn a_number_that_changes_is_of_this_opening() {
        let mut evidence = Evidence::new(false);
        assert_eq!(told(&mut evidence, 1_000), None);
        assert_eq!(
            told(&mut evidence, 520),
            None,
            "lower: the reader went back"
        );
        assert_eq!(told(&mut evidence, 540), Some(520));
        let mut evidence = Evidence::new(false);
        assert_eq!(told(&mut evidence, 1_000), None);
        assert_eq!(
            told(&mut evidence, 1_010),
            None,
            "what is below may not be queued yet"
        );
        assert_eq!(told(&mut evidence, 1_010), Some(1_010));
    }
}
