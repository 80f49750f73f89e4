//! An answer of the source as far as it is not taken yet.

use bytes::Bytes;
use kreplicator_batch::{
    AbortedFilter, Batch,
    aborted::{AbortedTransaction, Verdict},
    codec::Compression,
    control,
    legacy::Message,
    split::{self, Entries, Entry},
};

use super::Why;

/// What of an answer is not taken yet. One of its batches may have been looked at, and wait to be opened.
#[derive(Debug)]
pub(in crate::batches) struct Unread {
    entries: Entries,
    filter: AbortedFilter,
    closed: Option<Closed>,
    bytes_left: u64,
    is_first: bool,
}

/// A batch or message that has to be opened.
#[derive(Debug, Clone)]
pub(in crate::batches) enum Closed {
    /// A batch; why it is written anew, unless the target does not take it as it is.
    Batch(Batch, Option<Why>),
    /// A message of format 0 or 1.
    Message(Message),
}

impl Closed {
    /// Its bytes as they lie in the answer.
    pub(in crate::batches) fn bytes(&self) -> u64 {
        (match self {
            Self::Batch(batch, _) => batch.size_bytes(),
            Self::Message(message) => message.size_bytes(),
        }) as u64
    }

    /// Bytes of its records where nothing has to unfold; None: only opening tells.
    pub(in crate::batches) fn plain_bytes(&self) -> Option<u64> {
        let compression = match self {
            Self::Batch(batch, _) => batch.header().attributes.compression(),
            Self::Message(message) => message.compression(),
        };
        (compression == Compression::None).then(|| self.bytes())
    }
}

impl Unread {
    /// An answer of which nothing is taken.
    pub(in crate::batches) fn new(records: Bytes, aborted: Vec<AbortedTransaction>) -> Self {
        Self {
            bytes_left: records.len() as u64,
            entries: split::entries(records),
            filter: AbortedFilter::new(aborted),
            closed: None,
            is_first: true,
        }
    }

    /// Bytes that are not taken yet.
    pub(in crate::batches) fn bytes_left(&self) -> u64 {
        self.bytes_left
    }

    /// Whether all is taken.
    pub(in crate::batches) fn is_over(&self) -> bool {
        self.bytes_left == 0
    }

    /// What has to be opened before anything else is taken.
    pub(in crate::batches) fn closed(&self) -> Option<&Closed> {
        self.closed.as_ref()
    }

    /// What had to be opened is taken.
    pub(in crate::batches) fn opened(&mut self) {
        if let Some(closed) = self.closed.take() {
            self.bytes_left = self.bytes_left.saturating_sub(closed.bytes());
        }
    }

    /// The next entry, and whether it is the first of the answer. What is cut off at the end counts as taken.
    pub(super) fn next(&mut self) -> Option<Result<(Entry, bool), split::Error>> {
        let is_first = std::mem::replace(&mut self.is_first, false);
        let next = self.entries.next();
        if matches!(next, None | Some(Ok(Entry::Partial(_)))) {
            self.bytes_left = 0;
        }
        next.map(|entry| entry.map(|entry| (entry, is_first)))
    }

    pub(super) fn judge(&mut self, batch: &Batch) -> Result<Verdict, control::Error> {
        self.filter.judge(batch)
    }

    /// An entry of so many bytes is taken.
    pub(super) fn taken(&mut self, bytes: usize) {
        self.bytes_left = self.bytes_left.saturating_sub(bytes as u64);
    }

    /// An entry has to be opened first.
    pub(super) fn close(&mut self, closed: Closed) {
        self.closed = Some(closed);
    }
}
