//! What is known of a cluster's topics over successive looks at it.
//!
//! One answer is not proof that a topic is gone: a broker that has just started, or has not heard of a
//! change yet, leaves topics out. So a topic counts as gone, and its partitions as fewer, when two
//! looks in a row say so; what is new counts at once. For the same reason what the first look of all does
//! not show may be there all the same.

use std::collections::BTreeMap;

use kreplicator_kafka::admin::TopicMetadata;
use kreplicator_model::{
    ids::TopicName,
    resolve::SourceTopic,
    selector::{is_internal, is_ours},
};

/// Topics as known after some looks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct KnownTopics {
    topics: BTreeMap<TopicName, Known>,
    looks: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Known {
    partitions: i32,
    /// The last look said that it is gone or has fewer partitions.
    doubted: bool,
}

impl KnownTopics {
    /// Takes in the answer of one complete look.
    pub(crate) fn merge(&mut self, seen: &BTreeMap<TopicName, TopicMetadata>) {
        self.looks = self.looks.saturating_add(1);
        self.topics.retain(|topic, known| {
            if seen.contains_key(topic) {
                return true;
            }
            let keep = !known.doubted;
            known.doubted = true;
            keep
        });
        for (topic, metadata) in seen {
            // A broker that cannot tell says nothing about whether the topic is there.
            if metadata.error.is_some() || metadata.partitions < 1 {
                continue;
            }
            match self.topics.get_mut(topic) {
                Some(known) if metadata.partitions < known.partitions && !known.doubted => {
                    known.doubted = true;
                }
                Some(known) => {
                    known.partitions = metadata.partitions;
                    known.doubted = false;
                }
                None => {
                    let known = Known {
                        partitions: metadata.partitions,
                        doubted: false,
                    };
                    self.topics.insert(topic.clone(), known);
                }
            }
        }
    }

    /// Whether a topic that is not among these is not there for certain.
    pub(crate) fn confirmed(&self) -> bool {
        self.looks > 1
    }

    /// Whether another look is needed to be sure.
    pub(crate) fn has_doubts(&self) -> bool {
        !self.confirmed() || self.topics.values().any(|known| known.doubted)
    }

    /// The topics that exist.
    pub(crate) fn topics(&self) -> BTreeMap<TopicName, SourceTopic> {
        let source = |known: &Known| SourceTopic {
            partitions: known.partitions,
            topic_id: None,
        };
        self.topics
            .iter()
            .map(|(topic, known)| (topic.clone(), source(known)))
            .collect()
    }

    /// Number of topics and of their partitions, internal ones left out.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let shown = self
            .topics
            .iter()
            .filter(|(topic, _)| !is_internal(topic) && !is_ours(topic));
        shown.fold((0, 0), |(topics, partitions), (_, known)| {
            let more = usize::try_from(known.partitions).unwrap_or_default();
            (topics + 1, partitions + more)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(topics: &[(&str, i32)]) -> BTreeMap<TopicName, TopicMetadata> {
        let entry = |(name, partitions): &(&str, i32)| {
            let metadata = TopicMetadata {
                partitions: *partitions,
                error: None,
            };
            (TopicName::new(name).expect("legal"), metadata)
        };
        topics.iter().map(entry).collect()
    }

    fn known(topics: &KnownTopics) -> Vec<(String, i32)> {
        let topics = topics.topics();
        topics
            .iter()
            .map(|(name, topic)| (name.to_string(), topic.partitions))
            .collect()
    }

    fn after(looks: &[&[(&str, i32)]]) -> KnownTopics {
        let mut topics = KnownTopics::default();
        for look in looks {
            topics.merge(&seen(look));
        }
        topics
    }

    #[test]
    fn a_topic_is_gone_after_two_looks_in_a_row_without_it() {
        let once = after(&[&[("a", 1), ("b", 2)], &[("b", 2)]]);
        assert_eq!(known(&once), [("a".to_owned(), 1), ("b".to_owned(), 2)]);
        assert!(once.has_doubts());
        let twice = after(&[&[("a", 1), ("b", 2)], &[("b", 2)], &[("b", 2)]]);
        assert_eq!(known(&twice), [("b".to_owned(), 2)]);
        assert!(!twice.has_doubts());
        let back = after(&[&[("a", 1)], &[], &[("a", 1)], &[]]);
        assert_eq!(known(&back), [("a".to_owned(), 1)], "not in a row");
    }

    #[test]
    fn growth_counts_at_once_and_shrinking_when_it_is_repeated() {
        assert_eq!(
            known(&after(&[&[("a", 4)], &[("a", 8)]])),
            [("a".to_owned(), 8)]
        );
        assert_eq!(
            known(&after(&[&[("a", 8)], &[("a", 4)]])),
            [("a".to_owned(), 8)]
        );
        let repeated = after(&[&[("a", 8)], &[("a", 4)], &[("a", 4)]]);
        assert_eq!(known(&repeated), [("a".to_owned(), 4)]);
        let stale = after(&[&[("a", 8)], &[("a", 4)], &[("a", 8)], &[("a", 4)]]);
        assert_eq!(known(&stale), [("a".to_owned(), 8)]);
    }

    #[test]
    fn a_topic_that_the_broker_cannot_tell_stays_as_it_was() {
        let mut topics = after(&[&[("a", 4)]]);
        let mut answer = seen(&[("a", 0), ("b", 0)]);
        for metadata in answer.values_mut() {
            metadata.error = Some("leader not available".to_owned());
        }
        for _ in 0..3 {
            topics.merge(&answer);
        }
        assert_eq!(known(&topics), [("a".to_owned(), 4)]);
        assert!(!topics.has_doubts());
    }

    #[test]
    fn the_first_look_does_not_prove_that_a_topic_is_not_there() {
        let first = after(&[&[("a", 1)]]);
        assert!(!first.confirmed() && first.has_doubts());
        let second = after(&[&[("a", 1)], &[("a", 1)]]);
        assert!(second.confirmed() && !second.has_doubts());
    }

    #[test]
    fn internal_topics_are_known_and_not_counted() {
        let topics = after(&[&[("__consumer_offsets", 50), ("a", 4)]]);
        assert_eq!(topics.counts(), (1, 4));
        assert_eq!(known(&topics).len(), 2);
    }
}
