//! Final names of data files.

use std::{fmt, str::FromStr};

use super::{EXTENSION, digits, offset_of, topic_folder, topic_of_folder};
use crate::ids::{Offset, Partition, TopicName};

/// Bytes of a topic's name that fit in a file's name beside its numbers: 255 − 59, less a mark and a hash.
const TOPIC_BYTES_MAX: usize = 196;
/// Bytes kept of a longer name.
const TOPIC_BYTES_KEPT: usize = 170;
/// Stands between what is kept of a long name and its hash; in no topic's name.
const CUT: char = '~';

/// A name that is not one of ours.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is not named <topic>+<partition>+<first>+<last>.parquet")]
pub struct NameError {
    /// The name, cut to 255 characters.
    pub name: String,
}

/// The final name of a data file: `<topic>+<partition>+<first>+<last>.parquet`.
///
/// Names of topics longer than 196 bytes are cut and a hash is put after them, since a component of a path
/// has 255 bytes at most: for people the name is a hint then, the manifest and the file itself have the topic whole.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DataName {
    topic: String,
    partition: Partition,
    first: Offset,
    last: Offset,
}

impl DataName {
    /// Of a file with the records `[first, last]` of a partition, or some of them. None of the numbers is
    /// negative.
    #[must_use]
    pub fn new(topic: &TopicName, partition: Partition, first: Offset, last: Offset) -> Self {
        Self {
            topic: topic_part(topic),
            partition,
            first,
            last,
        }
    }

    /// Whether it is of this topic.
    #[must_use]
    pub fn is_of(&self, topic: &TopicName) -> bool {
        self.topic == topic_part(topic)
    }

    /// The topic; None where its name was cut.
    #[must_use]
    pub fn topic(&self) -> Option<TopicName> {
        topic_of_folder(&self.topic)
    }

    /// The partition.
    #[must_use]
    pub fn partition(&self) -> Partition {
        self.partition
    }

    /// Offset of the first record.
    #[must_use]
    pub fn first(&self) -> Offset {
        self.first
    }

    /// Offset of the last record, inclusive.
    #[must_use]
    pub fn last(&self) -> Offset {
        self.last
    }
}

fn topic_part(topic: &TopicName) -> String {
    let folder = topic_folder(topic);
    if folder.len() <= TOPIC_BYTES_MAX {
        return folder;
    }
    let kept: String = folder.chars().take(TOPIC_BYTES_KEPT).collect();
    format!("{kept}{CUT}{:016x}", fnv1a(topic.as_str()))
}

/// FNV-1a of 64 bits: to tell cut names apart, no more.
fn fnv1a(text: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

impl fmt::Display for DataName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, last) = (digits(self.first), digits(self.last));
        let (topic, partition) = (&self.topic, self.partition);
        write!(f, "{topic}+{partition}+{first}+{last}.{EXTENSION}")
    }
}

impl FromStr for DataName {
    type Err = NameError;

    fn from_str(name: &str) -> Result<Self, NameError> {
        let parsed = parse(name).filter(|parsed| parsed.to_string() == name);
        parsed.ok_or_else(|| NameError {
            name: name.chars().take(255).collect(),
        })
    }
}

fn parse(name: &str) -> Option<DataName> {
    let stem = name.strip_suffix(EXTENSION)?.strip_suffix('.')?;
    let mut parts = stem.split('+');
    let topic = parts.next()?.to_owned();
    let partition: i32 = parts.next()?.parse().ok()?;
    let (first, last) = (offset_of(parts.next()?)?, offset_of(parts.next()?)?);
    let is_topic = match topic.split_once(CUT) {
        None => topic.len() <= TOPIC_BYTES_MAX && topic_of_folder(&topic).is_some(),
        Some((kept, hash)) => {
            kept.len() == TOPIC_BYTES_KEPT && topic_of_folder(kept).is_some() && hash.len() == 16
        }
    };
    let is_whole = is_topic && partition >= 0 && first <= last && parts.next().is_none();
    is_whole.then_some(DataName {
        topic,
        partition: Partition(partition),
        first,
        last,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::super::path::COMPONENT_BYTES_MAX, *};

    fn topic(name: &str) -> TopicName {
        TopicName::new(name).expect("legal")
    }

    /// Names in stores of released software: they are never changed.
    #[test]
    fn names_are_as_recorded() {
        let name = DataName::new(&topic("_orders.v1"), Partition(3), Offset(120), Offset(199));
        let text = "%5Forders.v1+3+0000000000000000120+0000000000000000199.parquet";
        assert_eq!(name.to_string(), text);
        assert_eq!(text.parse(), Ok(name));
    }

    #[test]
    fn other_names_are_refused() {
        for name in [
            "",
            ".parquet",
            "orders.parquet",
            "orders+3+120+199.parquet",
            "orders+3+0000000000000000200+0000000000000000199.parquet",
            "orders+03+0000000000000000120+0000000000000000199.parquet",
            "orders+-1+0000000000000000120+0000000000000000199.parquet",
            "_orders+3+0000000000000000120+0000000000000000199.parquet",
            "orders+3+0000000000000000120+0000000000000000199.parquet.tmp",
            "or/ers+3+0000000000000000120+0000000000000000199.parquet",
        ] {
            assert!(name.parse::<DataName>().is_err(), "{name:?}");
        }
    }

    proptest! {
        #[test]
        fn names_read_back_fit_in_a_component_and_sort_by_offset(
            name in "[a-zA-Z0-9_.-]{1,249}", partition in 0..i32::MAX, first in 0..i64::MAX, more in 0_i64..1000, other in 0..i64::MAX,
        ) {
            prop_assume!(TopicName::new(&name).is_ok());
            let topic = topic(&name);
            let last = Offset(first.saturating_add(more));
            let data = DataName::new(&topic, Partition(partition), Offset(first), last);
            let text = data.to_string();
            prop_assert!(text.len() <= COMPONENT_BYTES_MAX && !text.starts_with(['_', '.']));
            prop_assert_eq!(text.parse(), Ok(data.clone()));
            prop_assert!(data.is_of(&topic));
            if name.len() < TOPIC_BYTES_MAX - 2 {
                prop_assert_eq!(data.topic(), Some(topic.clone()));
            }
            let further = DataName::new(&topic, Partition(partition), Offset(other), Offset(i64::MAX));
            prop_assert_eq!(text.cmp(&further.to_string()) , (Offset(first), last).cmp(&(Offset(other), Offset(i64::MAX))));
        }

        #[test]
        fn no_text_is_read_as_what_would_be_written_otherwise(text in "[a-z~%+5F_.0-9]{0,40}(\\+[0-9]{1,3})?(\\+[0-9]{19}){0,2}(\\.parquet)?") {
            if let Ok(name) = text.parse::<DataName>() {
                prop_assert_eq!(name.to_string(), text);
            }
        }
    }

    #[test]
    fn long_names_that_differ_at_their_end_stay_apart() {
        let of = |last: char| {
            let name = format!("{}{last}", "x".repeat(248));
            DataName::new(&topic(&name), Partition(0), Offset(0), Offset(0))
        };
        assert_ne!(of('a').to_string(), of('b').to_string());
        assert_eq!(of('a').topic(), None);
    }
}
