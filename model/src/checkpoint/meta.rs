//! The text stored beside a committed checkpoint.
//!
//! Version 1: `k1 e=<epoch> w=<worker>`, then ` t=<topic id>` where it is known. Words may be added
//! at the end; a reader passes over those it does not know. A change of meaning is a new version.

use std::{fmt, str::FromStr};

use crate::ids::{OwnerEpoch, WorkerId};

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
        }
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
                Some(_) => {}
                None => return Err(corrupt("a word has no '='")),
            }
        }
        Ok(Some(Self {
            version,
            epoch: epoch.ok_or_else(|| corrupt("epoch is missing"))?,
            worker: worker.ok_or_else(|| corrupt("worker is missing"))?,
            topic_id,
        }))
    }
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

    /// Stored in Kafka by released software: these texts are never changed.
    #[test]
    fn version_1_is_written_and_read_as_recorded() {
        let fixtures = [
            ("k1 e=12 w=worker-0", meta(None)),
            (
                "k1 e=12 w=worker-0 t=Wt3bIzIhTUOgCV5ypOSKPQ",
                meta(Some("Wt3bIzIhTUOgCV5ypOSKPQ")),
            ),
        ];
        for (text, value) in fixtures {
            assert_eq!(value.to_string(), text);
            assert_eq!(CheckpointMeta::parse(text), Ok(Some(value)));
        }
    }

    #[test]
    fn words_added_later_are_passed_over() {
        let read = CheckpointMeta::parse("k1 e=12 w=worker-0 s=99").expect("legal");
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
        ) {
            let worker = WorkerId::new(worker).expect("legal");
            let value = CheckpointMeta::new(OwnerEpoch(epoch), worker, topic_id);
            prop_assert_eq!(CheckpointMeta::parse(&value.to_string()), Ok(Some(value)));
        }

        #[test]
        fn no_text_is_read_as_something_that_cannot_be_written(text in "k1( [etwx]=[a-z0-9 =]{0,4}){0,4}|.*") {
            if let Ok(Some(meta)) = CheckpointMeta::parse(&text) {
                prop_assert_eq!(CheckpointMeta::parse(&meta.to_string()), Ok(Some(meta)));
            }
        }
    }
}
