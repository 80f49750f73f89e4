//! A record on its way, as the reader hands it on: borrowed, unchanged.

use std::{any::Any, fmt::Debug};

use kreplicator_model::ids::{Offset, UnixMillis};

/// One record of a source partition.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    /// Its source offset.
    pub offset: Offset,
    /// Its timestamp; None: it has none (message format 0).
    pub timestamp: Option<UnixMillis>,
    /// Null and empty are different keys.
    pub key: Option<&'a [u8]>,
    /// Null (a tombstone) and empty are different values.
    pub value: Option<&'a [u8]>,
    /// In order, names may repeat.
    pub headers: &'a dyn Headers,
    /// Bytes of key, value and headers.
    pub payload_bytes: u64,
}

/// Header names that a reader cannot give as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a header's name is not UTF-8")]
pub struct UnreadableHeaders;

/// Headers of a record: an ordered list with repeatable names and nullable values.
pub trait Headers: Debug {
    /// Their number.
    fn count(&self) -> usize;

    /// Shows each header, in order.
    ///
    /// # Errors
    /// [`UnreadableHeaders`] when a name is no text; some may have been shown by then.
    fn visit(&self, show: &mut dyn FnMut(&str, Option<&[u8]>)) -> Result<(), UnreadableHeaders>;

    /// The reader's own form, for a sink that can pass it on whole.
    fn native(&self) -> Option<&dyn Any>;
}

/// A record without headers.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoHeaders;

impl Headers for NoHeaders {
    fn count(&self) -> usize {
        0
    }

    fn visit(&self, _: &mut dyn FnMut(&str, Option<&[u8]>)) -> Result<(), UnreadableHeaders> {
        Ok(())
    }

    fn native(&self) -> Option<&dyn Any> {
        None
    }
}
