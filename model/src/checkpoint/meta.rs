//! The text stored beside a committed checkpoint.
//!
//! Version 1: `k1 e=<epoch> w=<worker>`, then ` t=<topic id>` where it is known, then, where records are
//! counted (see [`exact`](crate::exact)), ` p=<producer id> pe=<producer epoch> s=<records counted>
//! to=<target offset>`, then, where it is kept under the name of the target topic, ` f=<source topic>`, then, where
//! some are, ` g=<offsets that were gone before they were copied>`. Words may be added at the end; a reader passes
//! over those it does not know. A change of meaning is a new version.

use std::{fmt, str::FromStr};

use crate::{
    exact::{Checkpoint, CheckpointPlace, Count, Place, Producer, ProducerEpoch, ProducerId},
    ids::{Offset, OwnerEpoch, TopicName, WorkerId},
};

/// Who committed a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointMeta {
    /// Version of the text.
    pub version: u32,
    /// The ownership under which it was committed.
    pub epoch: OwnerEpoch,
    /// The worker that committed it.
    pub worker: WorkerId,
    /// Kafka's id of the source topic, where the client can tell it.
    pub topic_id: Option<String>,
    /// What was counted up to it; None where the data path does not count.
    pub counted: Option<Counted>,
    /// The source topic, where the checkpoint is kept under another name: that of the target topic.
    pub source: Option<TopicName>,
    /// Source offsets below it that were gone before they were copied; see [`Gaps`](super::Gaps).
    pub gaps: u64,
}

/// What was counted up to a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counted {
    /// The line in which it was counted.
    pub producer: Producer,
    /// Copyable records of the line below the checkpoint. Not modulo 2^31, unlike a sequence.
    pub count: Count,
    /// Target offset after all of them.
    pub target_end: Offset,
}

/// A text that is ours and yet cannot be read. It is never taken for "no checkpoint".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MetaError {
    /// Written by newer software.
    #[error(
        "checkpoint metadata {text:?} has version {version}, known up to {known}; upgrade this worker"
    )]
    Newer {
        /// The text.
        text: String,
        /// Its version.
        version: u32,
        /// The newest version that can be read.
        known: u32,
    },
    /// Damaged.
    #[error("checkpoint metadata {text:?} cannot be read: {fault}")]
    Corrupt {
        /// The text.
        text: String,
        /// What is wrong with it.
        fault: &'static str,
    },
}

impl CheckpointMeta {
    /// The version that is written.
    pub const VERSION: u32 = 1;

    /// The metadata of a checkpoint committed now.
    #[must_use]
    pub fn new(epoch: OwnerEpoch, worker: WorkerId, topic_id: Option<String>) -> Self {
        Self {
            version: Self::VERSION,
            epoch,
            worker,
            topic_id,
            counted: None,
            source: None,
            gaps: 0,
        }
    }

    /// The same for a checkpoint of `source` that is kept under the name of its target topic.
    #[must_use]
    pub fn with_source(self, source: TopicName) -> Self {
        let source = Some(source);
        Self { source, ..self }
    }

    /// The same with so many source offsets below it that were gone before they were copied.
    #[must_use]
    pub fn with_gaps(self, gaps: u64) -> Self {
        Self { gaps, ..self }
    }

    /// The same for a checkpoint up to which records were counted.
    #[must_use]
    pub fn with_counted(self, producer: Producer, place: Place) -> Self {
        let counted = Some(Counted {
            producer,
            count: place.count,
            target_end: place.target_end,
        });
        Self { counted, ..self }
    }

    /// The checkpoint committed at `offset` with this text, as a take-over needs it.
    #[must_use]
    pub fn place(&self, offset: Offset) -> CheckpointPlace {
        let counted = self
            .counted
            .map(|counted| (counted.producer, counted.count, counted.target_end));
        CheckpointPlace { offset, counted }
    }

    /// Whether what was found committed at `offset` with this text is to stay, in place of `own`, which the owner
    /// under `epoch` would save: another owner of the same line has saved it, further, and since this one `began`
    /// from its checkpoint. What was there then says nothing: an owner that has gone back on purpose, since
    /// the target has lost something, must not be held to it.
    #[must_use]
    pub fn covers(
        &self,
        offset: Offset,
        epoch: OwnerEpoch,
        began: Option<Offset>,
        own: Checkpoint,
    ) -> bool {
        let is_same_line = self
            .counted
            .is_some_and(|counted| counted.producer == own.producer);
        let is_new = began.is_none_or(|began| offset > began);
        is_same_line && is_new && self.epoch != epoch && offset > own.place.offset
    }

    /// Reads the text of a commit; None when it is absent or another tool's.
    ///
    /// # Errors
    /// [`MetaError`] for a text of ours that is newer or damaged.
    pub fn parse(text: &str) -> Result<Option<Self>, MetaError> {
        let mut words = text.split(' ');
        let Some(version) = words.next().and_then(version_of) else {
            return Ok(None);
        };
        let corrupt = |fault| MetaError::Corrupt {
            text: text.to_owned(),
            fault,
        };
        if version > Self::VERSION {
            return Err(MetaError::Newer {
                text: text.to_owned(),
                version,
                known: Self::VERSION,
            });
        }
        if version == 0 {
            return Err(corrupt("version 0 was never written"));
        }
        let (mut epoch, mut worker, mut topic_id) = (None, None, None);
        let (mut source, mut gaps) = (None, 0);
        let mut words_counted = WordsCounted::default();
        for word in words {
            match word.split_once('=') {
                Some(("e", value)) => {
                    let number = u64::from_str(value).map_err(|_| corrupt("epoch is no number"))?;
                    epoch = Some(OwnerEpoch(number));
                }
                Some(("w", value)) => {
                    let id = WorkerId::new(value).map_err(|_| corrupt("worker id is not legal"))?;
                    worker = Some(id);
                }
                Some(("t", value)) => topic_id = Some(value.to_owned()),
                Some(("f", value)) => {
                    let topic = TopicName::new(value);
                    source = Some(topic.map_err(|_| corrupt("source topic is not legal"))?);
                }
                Some(("g", value)) => {
                    gaps = number(value, "gaps are no number").map_err(corrupt)?;
                }
                Some((word, value)) => words_counted.take(word, value).map_err(corrupt)?,
                None => return Err(corrupt("a word has no '='")),
            }
        }
        Ok(Some(Self {
            version,
            epoch: epoch.ok_or_else(|| corrupt("epoch is missing"))?,
            worker: worker.ok_or_else(|| corrupt("worker is missing"))?,
            topic_id,
            counted: words_counted.counted().map_err(corrupt)?,
            source,
            gaps,
        }))
    }
}

/// The words of [`Counted`], which are there all or not at all.
#[derive(Default)]
struct WordsCounted {
    id: Option<i64>,
    epoch: Option<i16>,
    count: Option<u64>,
    target_end: Option<i64>,
}

impl WordsCounted {
    fn take(&mut self, word: &str, value: &str) -> Result<(), &'static str> {
        match word {
            "p" => self.id = Some(number(value, "producer id is no number")?),
            "pe" => self.epoch = Some(number(value, "producer epoch is no number")?),
            "s" => self.count = Some(number(value, "count is no number")?),
            "to" => self.target_end = Some(number(value, "target offset is no number")?),
            _ => {}
        }
        Ok(())
    }

    fn counted(self) -> Result<Option<Counted>, &'static str> {
        match (self.id, self.epoch, self.count, self.target_end) {
            (None, None, None, None) => Ok(None),
            (Some(id), Some(epoch), Some(count), Some(target_end)) => {
                if id < 0 || epoch < 0 || target_end < 0 {
                    return Err("a number of the producer is negative");
                }
                Ok(Some(Counted {
                    producer: Producer {
                        id: ProducerId(id),
                        epoch: ProducerEpoch(epoch),
                    },
                    count: Count(count),
                    target_end: Offset(target_end),
                }))
            }
            _ => Err("some of p, pe, s and to are missing"),
        }
    }
}

fn number<N: FromStr>(value: &str, fault: &'static str) -> Result<N, &'static str> {
    value.parse().map_err(|_| fault)
}

/// The version in a first word of ours, such as `k1`.
fn version_of(word: &str) -> Option<u32> {
    let digits = word.strip_prefix('k')?;
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().unwrap_or(u32::MAX))
}

impl fmt::Display for CheckpointMeta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "k{} e={} w={}", self.version, self.epoch, self.worker)?;
        if let Some(topic_id) = &self.topic_id {
            write!(f, " t={topic_id}")?;
        }
        if let Some(counted) = &self.counted {
            let Producer { id, epoch } = counted.producer;
            let (count, target_end) = (counted.count, counted.target_end);
            write!(f, " p={id} pe={epoch} s={count} to={target_end}")?;
        }
        if let Some(source) = &self.source {
            write!(f, " f={source}")?;
        }
        if self.gaps > 0 {
            write!(f, " g={}", self.gaps)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn meta(topic_id: Option<&str>) -> CheckpointMeta {
        let worker = WorkerId::new("worker-0").expect("legal");
        CheckpointMeta::new(OwnerEpoch(12), worker, topic_id.map(str::to_owned))
    }

    fn counted(topic_id: Option<&str>) -> CheckpointMeta {
        let producer = Producer {
            id: ProducerId(4001),
            epoch: ProducerEpoch(3),
        };
        let place = Place {
            offset: Offset(90),
            count: Count(5_000_000_000),
            target_end: Offset(77),
        };
        meta(topic_id).with_counted(producer, place)
    }

    #[test]
    fn another_owners_checkpoint_of_the_same_line_is_not_taken_back() {
        let at = |offset: i64, line: i16| Checkpoint {
            producer: Producer {
                id: ProducerId(7),
                epoch: ProducerEpoch(line),
            },
            place: Place {
                offset: Offset(offset),
                count: Count(offset.unsigned_abs()),
                target_end: Offset(offset),
            },
        };
        let saved = |epoch: u64, line: i16| {
            let Checkpoint { producer, place } = at(300, line);
            let meta = CheckpointMeta {
                epoch: OwnerEpoch(epoch),
                ..meta(None)
            };
            meta.with_counted(producer, place)
        };
        let covers = |meta: &CheckpointMeta, began: i64, own: Checkpoint| {
            meta.covers(Offset(300), OwnerEpoch(5), Some(Offset(began)), own)
        };
        assert!(covers(&saved(4, 1), 200, at(299, 1)));
        assert!(covers(&saved(6, 1), 200, at(299, 1)), "a successor's");
        assert!(!covers(&saved(4, 1), 200, at(300, 1)), "own is as far");
        assert!(!covers(&saved(5, 1), 200, at(299, 1)), "own, saved before");
        assert!(!covers(&saved(4, 0), 200, at(299, 1)), "of another line");
        assert!(!covers(&saved(4, 1), 300, at(299, 1)), "it has gone back");
        let uncounted = CheckpointMeta {
            counted: None,
            ..saved(4, 1)
        };
        assert!(!covers(&uncounted, 200, at(299, 1)));
    }

    /// Stored in Kafka by released software: these texts are never changed.
    #[test]
    fn version_1_is_written_and_read_as_recorded() {
        let fixtures = [
            ("k1 e=12 w=worker-0", meta(None)),
            (
                "k1 e=12 w=worker-0 t=Wt3bIzIhTUOgCV5ypOSKPQ",
                meta(Some("Wt3bIzIhTUOgCV5ypOSKPQ")),
            ),
            (
                "k1 e=12 w=worker-0 t=Wt3bIzIhTUOgCV5ypOSKPQ p=4001 pe=3 s=5000000000 to=77",
                counted(Some("Wt3bIzIhTUOgCV5ypOSKPQ")),
            ),
            (
                "k1 e=12 w=worker-0 p=4001 pe=3 s=5000000000 to=77",
                counted(None),
            ),
            (
                "k1 e=12 w=worker-0 p=4001 pe=3 s=5000000000 to=77 f=orders",
                counted(None).with_source(TopicName::new("orders").expect("legal")),
            ),
            (
                "k1 e=12 w=worker-0 p=4001 pe=3 s=5000000000 to=77 g=154",
                counted(None).with_gaps(154),
            ),
            ("k1 e=12 w=worker-0 g=1", meta(None).with_gaps(1)),
        ];
        for (text, value) in fixtures {
            assert_eq!(value.to_string(), text);
            assert_eq!(CheckpointMeta::parse(text), Ok(Some(value)));
        }
    }

    #[test]
    fn words_added_later_are_passed_over() {
        let read = CheckpointMeta::parse("k1 e=12 w=worker-0 zz=99").expect("legal");
        assert_eq!(read, Some(meta(None)));
    }

    #[test]
    fn absent_or_foreign_metadata_is_none() {
        for text in [
            "",
            " ",
            "k",
            "kafka",
            "krill=1",
            "{\"a\":1}",
            "e=1 w=x",
            "K1 e=1 w=x",
        ] {
            assert_eq!(CheckpointMeta::parse(text), Ok(None), "{text:?}");
        }
    }

    #[test]
    fn a_newer_version_is_an_error() {
        for text in ["k2 whatever", "k2", "k99999999999999"] {
            let fault = CheckpointMeta::parse(text).expect_err("newer");
            assert!(matches!(fault, MetaError::Newer { .. }), "{fault}");
        }
    }

    #[test]
    fn damaged_metadata_is_an_error_not_an_absence() {
        for text in [
            "k1",
            "k1 e=12",
            "k1 w=worker-0",
            "k1 e=x w=worker-0",
            "k1 e=1 w=",
            "k1 e=1  w=a",
            "k0",
            "k1 e=1 w=a p=1 pe=0 s=5",
            "k1 e=1 w=a s=5",
            "k1 e=1 w=a p=-1 pe=0 s=5 to=7",
            "k1 e=1 w=a p=1 pe=40000 s=5 to=7",
            "k1 e=1 w=a g=-1",
            "k1 e=1 w=a g=x",
        ] {
            let fault = CheckpointMeta::parse(text).expect_err(text);
            assert!(matches!(fault, MetaError::Corrupt { .. }), "{fault}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(
            epoch: u64,
            worker in "[a-zA-Z0-9_.:-]{1,60}",
            topic_id in proptest::option::of("[a-zA-Z0-9_-]{22}"),
            counted in proptest::option::of((0..i64::MAX, 0..i16::MAX, 0..u64::MAX, 0..i64::MAX)),
            source in proptest::option::of("[a-zA-Z0-9_-]{1,60}"),
            gaps: u64,
        ) {
            let worker = WorkerId::new(worker).expect("legal");
            let mut value = CheckpointMeta::new(OwnerEpoch(epoch), worker, topic_id).with_gaps(gaps);
            if let Some((id, epoch, count, target_end)) = counted {
                let producer = Producer { id: ProducerId(id), epoch: ProducerEpoch(epoch) };
                let (count, target_end) = (Count(count), Offset(target_end));
                let place = Place { offset: Offset(0), count, target_end };
                value = value.with_counted(producer, place);
            }
            if let Some(source) = source {
                value = value.with_source(TopicName::new(source).expect("legal"));
            }
            prop_assert_eq!(CheckpointMeta::parse(&value.to_string()), Ok(Some(value)));
        }

        #[test]
        fn no_text_is_read_as_something_that_cannot_be_written(text in "k1 e=1 w=a( (p|pe|s|to)=[0-9]{1,2}){0,5}|k1( [etwxfg]=[a-z0-9 =]{0,4}){0,4}|.*") {
            if let Ok(Some(meta)) = CheckpointMeta::parse(&text) {
                prop_assert_eq!(CheckpointMeta::parse(&meta.to_string()), Ok(Some(meta)));
            }
        }
    }
}
