//! Test records: every one says where it belongs, and everything else about it follows from that,
//! so a checker needs no memory of what was written.
//!
//! The stamp `topic,partition,seq,timestamp,padding` is at the start of the value, or in the key of
//! records whose value is null or empty. Keys (null, empty, bytes that are no text), headers (none,
//! repeated names, null and empty values) and values take turns by `seq`.

use rdkafka::message::{BorrowedMessage, Headers as _, Message as _, OwnedHeaders};

/// Where a record belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamp {
    /// Topic on the source.
    pub topic: String,
    /// Partition on the source.
    pub partition: i32,
    /// Number of the record in its partition, from 0, without holes.
    pub seq: u64,
    /// Create time in milliseconds since the Unix epoch.
    pub timestamp_ms: i64,
    /// Bytes after the stamp.
    pub padding: usize,
}

/// What a record holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    /// The key.
    pub key: Option<Vec<u8>>,
    /// The value.
    pub value: Option<Vec<u8>>,
    /// Headers in order.
    pub headers: Vec<(String, Option<Vec<u8>>)>,
    /// Create time in milliseconds since the Unix epoch.
    pub timestamp_ms: Option<i64>,
}

impl Stamp {
    /// The record that this stamp belongs to.
    #[must_use]
    pub fn content(&self) -> Content {
        let text = self.text();
        let (key, value) = match self.seq % 16 {
            14 => (Some(text), None),
            15 => (Some(text), Some(Vec::new())),
            _ => {
                let mut value = text;
                value.resize(value.len() + self.padding, b'x');
                (self.key(), Some(value))
            }
        };
        Content {
            key,
            value,
            headers: self.headers(),
            timestamp_ms: Some(self.timestamp_ms),
        }
    }

    fn text(&self) -> Vec<u8> {
        let Self {
            topic,
            partition,
            seq,
            timestamp_ms,
            padding,
        } = self;
        format!("{topic},{partition},{seq},{timestamp_ms},{padding},").into_bytes()
    }

    fn key(&self) -> Option<Vec<u8>> {
        match self.seq % 4 {
            0 => None,
            1 => Some(Vec::new()),
            _ => Some([b"k\0\xff".as_slice(), &self.seq.to_be_bytes()].concat()),
        }
    }

    fn headers(&self) -> Vec<(String, Option<Vec<u8>>)> {
        let list: &[(&str, Option<&[u8]>)] = match self.seq % 5 {
            0 => &[],
            1 => &[("a", Some(b"1"))],
            2 => &[("a", Some(b"1")), ("b", Some(b"2")), ("a", Some(b"3"))],
            3 => &[("null", None), ("empty", Some(b""))],
            _ => &[("bytes", Some(b"\0\xff\xfe")), ("", Some(b"no name"))],
        };
        list.iter()
            .map(|(name, value)| ((*name).to_owned(), value.map(<[u8]>::to_vec)))
            .collect()
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let end = bytes
            .iter()
            .enumerate()
            .filter(|(_, byte)| **byte == b',')
            .nth(4)?
            .0;
        let text = std::str::from_utf8(bytes.get(..end)?).ok()?;
        let mut parts = text.split(',');
        Some(Self {
            topic: parts.next()?.to_owned(),
            partition: parts.next()?.parse().ok()?,
            seq: parts.next()?.parse().ok()?,
            timestamp_ms: parts.next()?.parse().ok()?,
            padding: parts.next()?.parse().ok()?,
        })
    }
}

impl Content {
    /// What a consumer received.
    #[must_use]
    pub fn of(message: &BorrowedMessage<'_>) -> Self {
        let headers = message.headers().map(|headers| {
            headers
                .iter()
                .map(|header| (header.key.to_owned(), header.value.map(<[u8]>::to_vec)))
                .collect()
        });
        Self {
            key: message.key().map(<[u8]>::to_vec),
            value: message.payload().map(<[u8]>::to_vec),
            headers: headers.unwrap_or_default(),
            timestamp_ms: message.timestamp().to_millis(),
        }
    }

    /// The stamp that the record carries, if it can be read.
    #[must_use]
    pub fn stamp(&self) -> Option<Stamp> {
        match self.value.as_deref() {
            None | Some([]) => Stamp::parse(self.key.as_deref()?),
            Some(value) => Stamp::parse(value),
        }
    }

    /// Names the first part that is not as the stamp says; None: all is as written.
    #[must_use]
    pub fn difference(&self, stamp: &Stamp) -> Option<String> {
        let written = stamp.content();
        if *self == written {
            return None;
        }
        let parts = [
            (
                "key",
                format!("{:?}", self.key),
                format!("{:?}", written.key),
            ),
            (
                "value",
                format!("{:?}", self.value.as_deref().map(String::from_utf8_lossy)),
                format!(
                    "{:?}",
                    written.value.as_deref().map(String::from_utf8_lossy)
                ),
            ),
            (
                "headers",
                format!("{:?}", self.headers),
                format!("{:?}", written.headers),
            ),
            (
                "timestamp",
                format!("{:?}", self.timestamp_ms),
                format!("{:?}", written.timestamp_ms),
            ),
        ];
        let changed = parts.into_iter().find(|(_, found, wanted)| found != wanted);
        Some(changed.map_or_else(
            || "bytes of the value".to_owned(),
            |(part, found, wanted)| format!("{part} is {found}, was {wanted}"),
        ))
    }

    /// The headers as librdkafka takes them.
    #[must_use]
    pub fn kafka_headers(&self) -> Option<OwnedHeaders> {
        if self.headers.is_empty() {
            return None;
        }
        let mut headers = OwnedHeaders::new_with_capacity(self.headers.len());
        for (key, value) in &self.headers {
            headers = headers.insert(rdkafka::message::Header {
                key,
                value: value.as_ref(),
            });
        }
        Some(headers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(seq: u64) -> Stamp {
        Stamp {
            topic: "orders".to_owned(),
            partition: 3,
            seq,
            timestamp_ms: 1_700_000_000_123,
            padding: 20,
        }
    }

    #[test]
    fn every_record_tells_its_stamp_and_is_as_its_stamp_says() {
        for seq in 0..400 {
            let content = stamp(seq).content();
            let read = content.stamp().expect("stamped");
            assert_eq!((read.seq, read.partition), (seq, 3));
            assert_eq!(content.difference(&read), None, "{content:?}");
        }
    }

    #[test]
    fn all_kinds_of_keys_values_and_headers_occur() {
        let all: Vec<Content> = (0..80).map(|seq| stamp(seq).content()).collect();
        for wanted in [None, Some(Vec::new())] {
            assert!(all.iter().any(|content| content.key == wanted));
            assert!(all.iter().any(|content| content.value == wanted));
        }
        assert!(all.iter().any(|content| content.headers.len() == 3));
        assert!(
            all.iter()
                .flat_map(|content| &content.headers)
                .any(|(_, value)| value.is_none())
        );
    }

    #[test]
    fn each_part_that_was_altered_is_named() {
        let stamp = stamp(2);
        let alter = |change: &dyn Fn(&mut Content)| {
            let mut content = stamp.content();
            change(&mut content);
            content.difference(&stamp).expect("it was altered")
        };
        assert!(alter(&|content| content.key = None).starts_with("key is None"));
        assert!(alter(&|content| content.headers.swap(0, 2)).starts_with("headers"));
        assert!(alter(&|content| content.timestamp_ms = Some(1)).starts_with("timestamp"));
        assert!(
            alter(&|content| content.value.as_mut().expect("a value").truncate(40))
                .starts_with("value")
        );
    }
}
