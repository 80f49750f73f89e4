//! A record as it is dumped: borrowed from whoever has read it, unchanged.

use kreplicator_model::ids::{Offset, UnixMillis};

/// What a record may [weigh](Record::weight), beyond which it is refused. Kafka's own limit is below 2 GiB for
/// a whole batch; a column's page holds no more than that, compressed or not, so half of it leaves room for both.
pub const RECORD_BYTES_MAX: u64 = 1 << 30;

/// What a header weighs beside its key and value.
pub(crate) const HEADER_BYTES: usize = 16;

/// Who gave a record its timestamp. The numbers are Kafka's, and are stored.
///
/// # Source
/// Kafka 4.3 `org.apache.kafka.common.record.TimestampType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TimestampType {
    /// Nobody: the record is of message format 0.
    None,
    /// The producer.
    Create,
    /// The broker, when it appended the record.
    Append,
}

impl TimestampType {
    /// Kafka's number, from −1 to 1.
    #[must_use]
    pub fn number(self) -> i32 {
        match self {
            Self::None => -1,
            Self::Create => 0,
            Self::Append => 1,
        }
    }

    /// The type of this number.
    #[must_use]
    pub fn of_number(number: i32) -> Option<Self> {
        let all = [Self::None, Self::Create, Self::Append];
        all.into_iter().find(|kind| kind.number() == number)
    }
}

/// One header of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Header<'a> {
    /// The key: any bytes; text by convention only, and possibly empty.
    pub key: &'a [u8],
    /// The value; null and empty differ.
    pub value: Option<&'a [u8]>,
}

/// One record of a source partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Record<'a> {
    /// Its source offset.
    pub offset: Offset,
    /// Its timestamp, whatever it is; Kafka's "none" is −1.
    pub timestamp: UnixMillis,
    /// Who gave it.
    pub timestamp_type: TimestampType,
    /// Null and empty are different keys.
    pub key: Option<&'a [u8]>,
    /// Null (a tombstone) and empty are different values.
    pub value: Option<&'a [u8]>,
    /// In order; keys may repeat.
    pub headers: &'a [Header<'a>],
}

impl Record<'_> {
    /// Bytes of key, value and headers, and 16 for each header, since a record can be nothing but empty headers.
    #[must_use]
    pub fn weight(&self) -> u64 {
        let length = |bytes: Option<&[u8]>| bytes.map_or(0, <[u8]>::len) as u64;
        let headers = self.headers.iter();
        let headers = headers
            .map(|header| HEADER_BYTES as u64 + header.key.len() as u64 + length(header.value));
        length(self.key) + length(self.value) + headers.sum::<u64>()
    }
}
