//! What a file says of itself.

use std::{fmt::Display, str::FromStr};

use kreplicator_model::{
    dump::{digest::Digest, manifest::Source},
    ids::{ClusterId, LinkId, Offset, Partition, TopicName, UnixMillis},
};
use parquet::file::metadata::KeyValue;

use crate::{digest, record::Record};

/// The name of the format, in its footer.
const FORMAT: &str = "envelope";
/// The version that is written.
const VERSION: u32 = 1;
/// Begins all keys.
const PREFIX: &str = "kreplicator.";

/// What a file holds. Stored in its footer, each part under `kreplicator.<part>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// What was dumped.
    pub source: Source,
    /// Number of records, at least 1.
    pub records: u64,
    /// Offset of the first record.
    pub first: Offset,
    /// Offset of the last record, inclusive.
    pub last: Offset,
    /// Lowest and highest timestamp.
    pub timestamps: (UnixMillis, UnixMillis),
    /// Sum of the hashes of its records, as [`digest`](crate::digest) says.
    pub digest: Digest,
}

/// A footer that does not say what it should.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FactsError {
    /// It is Parquet of somebody else.
    #[error("it was not written by this software: no {PREFIX}format in its footer")]
    Foreign,
    /// Another of our formats.
    #[error("it has the format {format:?}, and {FORMAT:?} was expected")]
    OtherFormat {
        /// Its format, cut to 100 characters.
        format: String,
    },
    /// Written by newer software.
    #[error("it has version {version}, known up to {VERSION}; upgrade this software")]
    Newer {
        /// Its version.
        version: u32,
    },
    /// A part is missing, there twice, or unreadable.
    #[error("its footer has no usable {PREFIX}{part}")]
    Part {
        /// Which one.
        part: &'static str,
    },
}

impl Facts {
    /// Of a file with this first record.
    #[must_use]
    pub fn of(source: Source, record: &Record<'_>) -> Self {
        let mut digest = Digest::default();
        digest.add(digest::of_record(record));
        Self {
            source,
            records: 1,
            first: record.offset,
            last: record.offset,
            timestamps: (record.timestamp, record.timestamp),
            digest,
        }
    }

    /// Takes in a further record, of a higher offset.
    pub fn add(&mut self, record: &Record<'_>) {
        self.records += 1;
        self.last = record.offset;
        let (lowest, highest) = self.timestamps;
        self.timestamps = (lowest.min(record.timestamp), highest.max(record.timestamp));
        self.digest.add(digest::of_record(record));
    }

    /// As it is stored.
    pub(super) fn to_metadata(&self) -> Vec<KeyValue> {
        let source = &self.source;
        let (lowest, highest) = self.timestamps;
        let mut parts: Vec<(&str, &dyn Display)> = vec![
            ("format", &FORMAT),
            ("version", &VERSION),
            ("link", &source.link),
            ("cluster", &source.cluster),
            ("topic", &source.topic),
            ("partition", &source.partition),
            ("records", &self.records),
            ("first", &self.first),
            ("last", &self.last),
            ("timestamp_min_ms", &lowest.0),
            ("timestamp_max_ms", &highest.0),
            ("digest", &self.digest),
        ];
        if let Some(topic_id) = &source.topic_id {
            parts.push(("topic_id", topic_id));
        }
        let parts = parts.into_iter();
        parts
            .map(|(part, value)| KeyValue::new(format!("{PREFIX}{part}"), value.to_string()))
            .collect()
    }

    /// Reads what is stored.
    pub(super) fn from_metadata(metadata: &[KeyValue]) -> Result<Self, FactsError> {
        let parts = Parts(metadata);
        let Some(format) = parts.find("format")? else {
            return Err(FactsError::Foreign);
        };
        if format != FORMAT {
            let format = format.chars().take(100).collect();
            return Err(FactsError::OtherFormat { format });
        }
        let version: u32 = parts.number("version")?;
        if version > VERSION {
            return Err(FactsError::Newer { version });
        }
        let name = |part| parts.get(part);
        let unusable = |part| FactsError::Part { part };
        let partition = parts.number("partition")?;
        let source = Source {
            link: LinkId::new(name("link")?).map_err(|_| unusable("link"))?,
            cluster: ClusterId::new(name("cluster")?).map_err(|_| unusable("cluster"))?,
            topic: TopicName::new(name("topic")?).map_err(|_| unusable("topic"))?,
            topic_id: parts.find("topic_id")?.map(str::to_owned),
            partition: Partition(partition),
        };
        let lowest = UnixMillis(parts.number("timestamp_min_ms")?);
        let highest = UnixMillis(parts.number("timestamp_max_ms")?);
        let facts = Self {
            source,
            records: parts.number("records")?,
            first: Offset(parts.number("first")?),
            last: Offset(parts.number("last")?),
            timestamps: (lowest, highest),
            digest: parts.number("digest")?,
        };
        let is_range = 0 <= facts.first.0 && facts.first <= facts.last && facts.records > 0;
        if version == 0 || partition < 0 || !is_range {
            return Err(unusable("records"));
        }
        Ok(facts)
    }
}

struct Parts<'a>(&'a [KeyValue]);

impl<'a> Parts<'a> {
    /// The value of a part; None: it is not there.
    fn find(&self, part: &'static str) -> Result<Option<&'a str>, FactsError> {
        let is_it = |pair: &&KeyValue| pair.key.strip_prefix(PREFIX) == Some(part);
        let mut found = self.0.iter().filter(is_it);
        let (Some(pair), None) = (found.next(), found.next()) else {
            let is_there = self.0.iter().any(|pair| is_it(&pair));
            return if is_there {
                Err(FactsError::Part { part })
            } else {
                Ok(None)
            };
        };
        match pair.value.as_deref() {
            Some(value) => Ok(Some(value)),
            None => Err(FactsError::Part { part }),
        }
    }

    fn get(&self, part: &'static str) -> Result<&'a str, FactsError> {
        self.find(part)?.ok_or(FactsError::Part { part })
    }

    fn number<T: FromStr>(&self, part: &'static str) -> Result<T, FactsError> {
        let number = self.get(part)?.parse();
        number.map_err(|_| FactsError::Part { part })
    }
}
