//! The documents as JSON.
//!
//! Fields may be added; a reader passes over those that it does not know. A change of meaning is a new version.

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{BYTES_MAX, Begin, DataFile, Fault, Manifest, Source, VERSION};
use crate::{
    dump::{
        bucket::Bucket,
        ledger::{LeftOut, Reason},
        names::AttemptName,
        path::StorePath,
    },
    ids::{ClusterId, LinkId, Offset, Partition, TopicName, UnixMillis},
};

/// Read before anything else.
#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

#[derive(Serialize, Deserialize)]
struct SourceJson {
    link: String,
    cluster: String,
    topic: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    topic_id: Option<String>,
    partition: i32,
}

#[derive(Serialize, Deserialize)]
struct BeginJson {
    version: u32,
    source: SourceJson,
    attempt: String,
    at: i64,
    written_at_ms: i64,
}

#[derive(Serialize, Deserialize)]
struct ManifestJson {
    version: u32,
    source: SourceJson,
    attempt: String,
    from: i64,
    to: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    previous: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    watermark_ms: Option<i64>,
    written_at_ms: i64,
    files: Vec<FileJson>,
    left_out: Vec<LeftOutJson>,
}

#[derive(Serialize, Deserialize)]
struct FileJson {
    path: String,
    /// Absent: undated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bucket_ms: Option<i64>,
    records: u64,
    first: i64,
    last: i64,
    bytes: u64,
    timestamp_min_ms: i64,
    timestamp_max_ms: i64,
    digest: String,
}

#[derive(Serialize, Deserialize)]
struct LeftOutJson {
    why: String,
    from: i64,
    to: i64,
    count: u64,
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Fault> {
    if bytes.len() > BYTES_MAX {
        return Err(Fault::TooLong { bytes: bytes.len() });
    }
    let unreadable = |fault: serde_json::Error| Fault::Unreadable(fault.to_string());
    let Versioned { version } = serde_json::from_slice(bytes).map_err(unreadable)?;
    match version {
        0 => Err(Fault::Unreadable("version 0 was never written".to_owned())),
        1..=VERSION => serde_json::from_slice(bytes).map_err(unreadable),
        _ => Err(Fault::Newer { version }),
    }
}

fn print<T: Serialize>(document: &T) -> Result<Vec<u8>, Fault> {
    let mut bytes = serde_json::to_vec_pretty(document)
        .map_err(|fault| Fault::Unreadable(fault.to_string()))?;
    bytes.push(b'\n');
    if bytes.len() > BYTES_MAX {
        return Err(Fault::TooLong { bytes: bytes.len() });
    }
    Ok(bytes)
}

fn unreadable(fault: impl ToString) -> Fault {
    Fault::Unreadable(fault.to_string())
}

fn attempt(name: &str) -> Result<AttemptName, Fault> {
    AttemptName::parse(name).ok_or_else(|| unreadable("the attempt has no legal name"))
}

impl From<&Source> for SourceJson {
    fn from(source: &Source) -> Self {
        Self {
            link: source.link.to_string(),
            cluster: source.cluster.to_string(),
            topic: source.topic.to_string(),
            topic_id: source.topic_id.clone(),
            partition: source.partition.0,
        }
    }
}

impl TryFrom<SourceJson> for Source {
    type Error = Fault;

    fn try_from(json: SourceJson) -> Result<Self, Fault> {
        if json.partition < 0 {
            return Err(unreadable("the partition is negative"));
        }
        Ok(Self {
            link: LinkId::new(json.link).map_err(unreadable)?,
            cluster: ClusterId::new(json.cluster).map_err(unreadable)?,
            topic: TopicName::new(json.topic).map_err(unreadable)?,
            topic_id: json.topic_id,
            partition: Partition(json.partition),
        })
    }
}

pub(super) fn write_begin(begin: &Begin) -> Result<Vec<u8>, Fault> {
    if begin.at.0 < 0 {
        return Err(unreadable("the offset is negative"));
    }
    print(&BeginJson {
        version: VERSION,
        source: (&begin.source).into(),
        attempt: begin.attempt.to_string(),
        at: begin.at.0,
        written_at_ms: begin.written_at.0,
    })
}

pub(super) fn read_begin(bytes: &[u8]) -> Result<Begin, Fault> {
    let json: BeginJson = parse(bytes)?;
    if json.at < 0 {
        return Err(unreadable("the offset is negative"));
    }
    Ok(Begin {
        source: json.source.try_into()?,
        attempt: attempt(&json.attempt)?,
        at: Offset(json.at),
        written_at: UnixMillis(json.written_at_ms),
    })
}

pub(super) fn write_manifest(manifest: &Manifest) -> Result<Vec<u8>, Fault> {
    let files = manifest.files.iter().map(|file| FileJson {
        path: file.path.to_string(),
        bucket_ms: match file.bucket {
            Bucket::Undated => None,
            Bucket::Dated { start } => Some(start.0),
        },
        records: file.records,
        first: file.first.0,
        last: file.last.0,
        bytes: file.bytes,
        timestamp_min_ms: file.timestamps.0.0,
        timestamp_max_ms: file.timestamps.1.0,
        digest: file.digest.to_string(),
    });
    let left_out = manifest.left_out.iter().map(|entry| LeftOutJson {
        why: entry.why.word().to_owned(),
        from: entry.from.0,
        to: entry.to.0,
        count: entry.count,
    });
    print(&ManifestJson {
        version: VERSION,
        source: (&manifest.source).into(),
        attempt: manifest.attempt.to_string(),
        from: manifest.from.0,
        to: manifest.to.0,
        previous: manifest.previous.map(|offset| offset.0),
        watermark_ms: manifest.watermark.map(|time| time.0),
        written_at_ms: manifest.written_at.0,
        files: files.collect(),
        left_out: left_out.collect(),
    })
}

pub(super) fn read_manifest(bytes: &[u8]) -> Result<Manifest, Fault> {
    let json: ManifestJson = parse(bytes)?;
    Ok(Manifest {
        source: json.source.try_into()?,
        attempt: attempt(&json.attempt)?,
        from: Offset(json.from),
        to: Offset(json.to),
        previous: json.previous.map(Offset),
        watermark: json.watermark_ms.map(UnixMillis),
        written_at: UnixMillis(json.written_at_ms),
        files: json.files.into_iter().map(file).collect::<Result<_, _>>()?,
        left_out: json
            .left_out
            .into_iter()
            .map(entry)
            .collect::<Result<_, _>>()?,
    })
}

fn file(json: FileJson) -> Result<DataFile, Fault> {
    Ok(DataFile {
        path: StorePath::new(json.path).map_err(unreadable)?,
        bucket: match json.bucket_ms {
            None => Bucket::Undated,
            Some(start) => Bucket::Dated {
                start: UnixMillis(start),
            },
        },
        records: json.records,
        first: Offset(json.first),
        last: Offset(json.last),
        bytes: json.bytes,
        timestamps: (
            UnixMillis(json.timestamp_min_ms),
            UnixMillis(json.timestamp_max_ms),
        ),
        digest: json.digest.parse().map_err(unreadable)?,
    })
}

fn entry(json: LeftOutJson) -> Result<LeftOut, Fault> {
    let why = Reason::of_word(&json.why);
    Ok(LeftOut {
        why: why.ok_or_else(|| unreadable("a reason is not known; upgrade this worker"))?,
        from: Offset(json.from),
        to: Offset(json.to),
        count: json.count,
    })
}
