//! How far the library's fetcher got in each partition, from its statistics.
//!
//! Transaction markers, aborted records and holes of compacted topics end up as nothing: no message
//! ever tells that they were passed, and without that a checkpoint would stay before them for ever
//! (C114). The statistics do tell: a partition's `next_offset` is what the fetcher asks for next.
//!
//! A number may be a leftover of an earlier opening of the partition, so it is believed only
//! - in the first opening of that partition by its consumer, or after a record came in this opening,
//! - when two statistics in a row say the same, and everything fetched was handed on since.

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
    is_first: bool,
    saw_record: bool,
    said: Option<Offset>,
    confirmed: bool,
}

impl Evidence {
    /// A partition was opened; `is_first`: its consumer never had it open before.
    pub(super) fn new(is_first: bool) -> Self {
        Self {
            is_first,
            saw_record: false,
            said: None,
            confirmed: false,
        }
    }

    /// A record came.
    pub(super) fn record(&mut self) {
        self.saw_record = true;
    }

    /// Fetching was paused and starts again where the reader is: numbers from before are stale.
    pub(super) fn resumed(&mut self) {
        *self = Self::new(false);
    }

    /// Statistics came.
    pub(super) fn statistics(&mut self, next: Option<Offset>) {
        if !self.is_first && !self.saw_record {
            return;
        }
        self.confirmed = next.is_some() && self.said == next;
        self.said = next;
    }

    /// Everything below this offset was fetched and handed on; called when the queue is empty.
    pub(super) fn passed(&self) -> Option<Offset> {
        self.said.filter(|_| self.confirmed)
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

    #[test]
    fn c114_a_position_counts_once_two_statistics_agree() {
        let mut evidence = Evidence::new(true);
        assert_eq!(evidence.passed(), None);
        evidence.statistics(Some(Offset(11)));
        assert_eq!(
            evidence.passed(),
            None,
            "records may still be on their way to the queue"
        );
        evidence.statistics(Some(Offset(11)));
        assert_eq!(evidence.passed(), Some(Offset(11)));
        evidence.statistics(Some(Offset(15)));
        assert_eq!(evidence.passed(), None);
    }

    #[test]
    fn numbers_of_an_earlier_opening_are_not_believed() {
        let mut evidence = Evidence::new(false);
        evidence.statistics(Some(Offset(1_000)));
        evidence.statistics(Some(Offset(1_000)));
        assert_eq!(
            evidence.passed(),
            None,
            "may be from before the reader went back"
        );
        evidence.record();
        evidence.statistics(Some(Offset(501)));
        evidence.statistics(Some(Offset(501)));
        assert_eq!(evidence.passed(), Some(Offset(501)));
        evidence.resumed();
        evidence.statistics(Some(Offset(501)));
        evidence.statistics(Some(Offset(501)));
        assert_eq!(evidence.passed(), None);
    }
}
