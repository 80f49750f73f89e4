//! The group of files for the source offsets `[from, to)` of one partition, as it is stored.
//!
//! A manifest accounts for every offset of its range: each is in one of its files, or was left out for a reason.
//! It is JSON with a version; [`Manifest::from_json`] takes nothing that does not add up, since a store can hold
//! anything. Beside the manifests lies one [`Begin`] for each partition, which says where the first one begins.

mod check;
mod json;
#[cfg(test)]
mod tests;

use std::fmt;

use super::{
    bucket::Bucket,
    digest::Digest,
    ledger::LeftOut,
    names::{AttemptName, DataName},
    path::StorePath,
};
use crate::ids::{ClusterId, LinkId, Offset, Partition, TopicName, UnixMillis};

/// The version that is written.
pub const VERSION: u32 = 1;
/// Longest document, in bytes. Nothing longer is read.
pub const BYTES_MAX: usize = 1 << 20;
/// Most files of one group.
pub const FILES_MAX: usize = 512;

/// Which source partition is dumped, by which link. Two manifests with different ones are of different dumps, even
/// at one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The link.
    pub link: LinkId,
    /// The source cluster.
    pub cluster: ClusterId,
    /// The topic.
    pub topic: TopicName,
    /// Kafka's id of the topic, where the client can tell it. A topic that was deleted and made again has
    /// another (C002).
    pub topic_id: Option<String>,
    /// The partition.
    pub partition: Partition,
}

impl Source {
    /// In what `other` differs, in words; None when both can be the same partition. An id that only one
    /// side knows says nothing.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Option<&'static str> {
        if self.link != other.link {
            return Some("another link");
        }
        if self.cluster != other.cluster {
            return Some("another source cluster");
        }
        if self.topic != other.topic || self.partition != other.partition {
            return Some("another partition");
        }
        match (&self.topic_id, &other.topic_id) {
            (Some(one), Some(other)) if one != other => Some("another topic of the same name"),
            _ => None,
        }
    }
}

/// One file of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataFile {
    /// Its final path below the root.
    pub path: StorePath,
    /// The bucket of its records.
    pub bucket: Bucket,
    /// Number of records, at least 1.
    pub records: u64,
    /// Offset of the first record.
    pub first: Offset,
    /// Offset of the last record, inclusive. Between the two lie records of other files too.
    pub last: Offset,
    /// Length of the file.
    pub bytes: u64,
    /// Lowest and highest timestamp.
    pub timestamps: (UnixMillis, UnixMillis),
    /// Of its records.
    pub digest: Digest,
}

/// A group of files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// What is dumped.
    pub source: Source,
    /// Who wrote it. The files lie in this attempt's folder until they have their final names.
    pub attempt: AttemptName,
    /// First offset of the group.
    pub from: Offset,
    /// End of the group, exclusive; the next group begins here.
    pub to: Offset,
    /// Where the group before begins; None: this is the first.
    pub previous: Option<Offset>,
    /// Highest record timestamp up to `to` that counts for lateness; None: none yet.
    pub watermark: Option<UnixMillis>,
    /// The clock of the one who wrote it; for people only.
    pub written_at: UnixMillis,
    /// The files, in the order of their names in the attempt's folder. None when all was left out.
    pub files: Vec<DataFile>,
    /// What is in no file.
    pub left_out: Vec<LeftOut>,
}

impl Manifest {
    /// Number of records in its files.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.files.iter().map(|file| file.records).sum()
    }

    /// Bytes of its files.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// Digest of all its records.
    #[must_use]
    pub fn digest(&self) -> Digest {
        let digests = self.files.iter().map(|file| file.digest);
        digests.fold(Digest::default(), Digest::and)
    }

    /// The final name of a file of this group.
    #[must_use]
    pub fn name_of(&self, file: &DataFile) -> DataName {
        let (topic, partition) = (&self.source.topic, self.source.partition);
        DataName::new(topic, partition, file.first, file.last)
    }

    /// Whether it adds up.
    ///
    /// # Errors
    /// [`Fault::Wrong`] with the first thing that does not.
    pub fn check(&self) -> Result<(), Fault> {
        check::check(self)
    }

    /// As it is stored.
    ///
    /// # Errors
    /// When it does not add up, or is too long.
    pub fn to_json(&self) -> Result<Vec<u8>, Fault> {
        self.check()?;
        json::write_manifest(self)
    }

    /// Reads what is stored.
    ///
    /// # Errors
    /// When it is no manifest, or of a newer version, or does not add up.
    pub fn from_json(bytes: &[u8]) -> Result<Self, Fault> {
        let manifest = json::read_manifest(bytes)?;
        manifest.check()?;
        Ok(manifest)
    }
}

/// Where the dump of a partition begins. Written once, before the first group, so that two owners that both find
/// nothing do not begin at two different "latest" offsets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Begin {
    /// What is dumped.
    pub source: Source,
    /// Who wrote it.
    pub attempt: AttemptName,
    /// First offset of the first group.
    pub at: Offset,
    /// The clock of the one who wrote it; for people only.
    pub written_at: UnixMillis,
}

impl Begin {
    /// As it is stored.
    ///
    /// # Errors
    /// When the offset is negative.
    pub fn to_json(&self) -> Result<Vec<u8>, Fault> {
        json::write_begin(self)
    }

    /// Reads what is stored.
    ///
    /// # Errors
    /// When it is no such document, or of a newer version.
    pub fn from_json(bytes: &[u8]) -> Result<Self, Fault> {
        json::read_begin(bytes)
    }
}

/// A document that cannot be used. It is never taken for an absent one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Not JSON of the right form.
    #[error("it cannot be read: {0}")]
    Unreadable(String),
    /// Written by newer software.
    #[error("it has version {version}, known up to {VERSION}; upgrade this worker")]
    Newer {
        /// Its version.
        version: u32,
    },
    /// It contradicts itself.
    #[error("it does not add up: {0}")]
    Wrong(Wrong),
    /// Longer than [`BYTES_MAX`].
    #[error("it has {bytes} bytes, more than {BYTES_MAX}")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
}

/// What does not add up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wrong {
    /// The range is empty or negative.
    Range(Offset, Offset),
    /// The group before does not begin below this one.
    Previous(Offset),
    /// More files than [`FILES_MAX`], or more entries than the ledger may have.
    TooMany(&'static str, usize),
    /// Something of the file at this index.
    File(usize, &'static str),
    /// Something of the left-out range at this index.
    LeftOut(usize, &'static str),
    /// Files and left-out ranges account for another number of offsets than the group has.
    Count {
        /// How many are accounted for.
        accounted: u64,
        /// How many there are.
        offsets: u64,
    },
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Range(from, to) => write!(f, "[{from}, {to}) is no range of offsets"),
            Self::Previous(previous) => write!(f, "the group before begins at {previous}"),
            Self::TooMany(what, count) => write!(f, "{count} {what}"),
            Self::File(index, what) => write!(f, "file {index}: {what}"),
            Self::LeftOut(index, what) => write!(f, "left-out range {index}: {what}"),
            Self::Count { accounted, offsets } => {
                write!(
                    f,
                    "{accounted} offsets are accounted for, and there are {offsets}"
                )
            }
        }
    }
}
