//! A message of the library as a record.

use kreplicator_model::ids::{Offset, UnixMillis};
use rdkafka::message::{
    BorrowedHeaders, BorrowedMessage, Message as _, OwnedHeaders, OwnedMessage, Timestamp,
};

use crate::{
    records::{
        headers::{KafkaHeaders, Scale},
        lane::{Lane, Taken},
    },
    sink::{NoHeaders, Record},
};

/// A message of either kind, taken apart.
#[derive(Clone, Copy)]
pub(super) struct Parts<'a> {
    offset: i64,
    timestamp: Timestamp,
    key: Option<&'a [u8]>,
    value: Option<&'a [u8]>,
    headers: Option<&'a BorrowedHeaders>,
}

impl<'a> Parts<'a> {
    /// Of a message that was held back.
    pub(super) fn of(message: &'a OwnedMessage) -> Self {
        Self {
            offset: message.offset(),
            timestamp: message.timestamp(),
            key: message.key(),
            value: message.payload(),
            headers: message.headers().map(OwnedHeaders::as_borrowed),
        }
    }

    /// Of a message that the library holds.
    pub(super) fn of_borrowed(message: &'a BorrowedMessage<'_>) -> Self {
        Self {
            offset: message.offset(),
            timestamp: message.timestamp(),
            key: message.key(),
            value: message.payload(),
            headers: message.headers(),
        }
    }

    /// Hands the record to a lane as coming from one opening, whose headers `scale` weighs.
    pub(super) fn hand_to(self, lane: &Lane, opening: u64, scale: &mut Scale) -> Taken {
        let length = |bytes: Option<&[u8]>| bytes.map_or(0, <[u8]>::len) as u64;
        let headers = self.headers.map(KafkaHeaders);
        let header_bytes = headers.as_ref().map_or(0, |headers| scale.bytes(headers));
        let payload_bytes = length(self.key) + length(self.value) + header_bytes;
        let mut record = Record {
            offset: Offset(self.offset),
            timestamp: self.timestamp.to_millis().map(UnixMillis),
            key: self.key,
            value: self.value,
            headers: &NoHeaders,
            payload_bytes,
        };
        if let Some(headers) = &headers {
            record.headers = headers;
        }
        lane.take(opening, &record)
    }
}
