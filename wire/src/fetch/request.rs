//! A fetch request together with the version it was made for.

use kafka_protocol::messages::FetchRequest;

/// First version that names topics by id.
pub(super) const BY_ID: i16 = 13;

/// A request of a [`super::Session`], to be sent by
/// [`Connection::send`](crate::connection::Connection::send).
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    message: FetchRequest,
    by_id: bool,
}

impl Request {
    pub(super) fn new(message: FetchRequest, by_id: bool) -> Self {
        Self { message, by_id }
    }

    /// Whether topics go by their ids.
    #[cfg(test)]
    pub(crate) fn is_by_id(&self) -> bool {
        self.by_id
    }

    pub(crate) fn message(&self) -> &FetchRequest {
        &self.message
    }

    pub(crate) fn highest_version(&self) -> i16 {
        if self.by_id { i16::MAX } else { BY_ID - 1 }
    }
}
