//! Whether a target holds the records of a source, in their order.
//!
//! Problem: two streams of records, too long to keep, that should be the same. What differs shall be
//! named as an operator would: lost, there twice, changed, moved; and the first difference must not
//! make all that follows look different.
//!
//! Shape: each record is reduced to a [`Fingerprint`] elsewhere. The [`Aligner`] takes both streams as
//! they come. While they are the same it only compares, stretch by stretch. Where they part, it looks
//! ahead just as far as needed (`common`) to find where they join again, and hands what lies between
//! (a gap) to the `judge`, which tells moved records from lost ones and extra ones, and pairs the rest
//! (`pairs`).
//!
//! # Definitions
//! Let `S` and `T` be the records of source and target within the window.
//! - *equal*: part of a longest common subsequence of `S` and `T`.
//! - *reordered*: in both as often, but not equal: the least number of records that would have to be
//!   moved.
//! - *altered*: one of `S` and one of `T`, neither in the other, between the same two equal neighbours.
//! - *missing*: the rest of `S`. *Extra*: the rest of `T`; *doubled*: an extra record like one of `S` that
//!   arrived as well.
//!
//! With the window as large as the streams, these numbers are exact, whatever the content (records that
//! repeat more than [`REPEATS_MAX`] times within the look-ahead may count as reordered more often
//! than needed). Beyond it they are an upper bound, and [`Tally::window_exceeded`] says so. Streams are
//! found equal if and only if they are.

mod aligner;
mod common;
mod findings;
mod history;
mod judge;
mod pairs;

use std::fmt;

pub use self::{
    aligner::{Aligner, Side},
    common::REPEATS_MAX,
    findings::{Finding, Kind},
};
use crate::ids::Offset;

/// A record reduced to what is compared. Hashes are of 128 bits and made by the caller; 0 stands for
/// null, and for a part that is not compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint {
    /// Of the key.
    pub key: u128,
    /// Of the value.
    pub value: u128,
    /// Of the headers as an ordered list.
    pub headers: u128,
    /// Milliseconds since the epoch.
    pub timestamp: i64,
}

impl Fingerprint {
    /// The parts in which two records differ.
    #[must_use]
    pub fn differing(&self, other: &Self) -> Parts {
        Parts {
            key: self.key != other.key,
            value: self.value != other.value,
            headers: self.headers != other.headers,
            timestamp: self.timestamp != other.timestamp,
        }
    }

    /// Whether the record has a key: only such records are subject to compaction.
    #[must_use]
    pub fn has_key(&self) -> bool {
        self.key != 0
    }
}

/// Parts of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Parts {
    /// The key.
    pub key: bool,
    /// The value.
    pub value: bool,
    /// The headers.
    pub headers: bool,
    /// The timestamp.
    pub timestamp: bool,
}

impl Parts {
    /// Their names, in a fixed order.
    #[must_use]
    pub fn names(self) -> Vec<&'static str> {
        let parts = [
            (self.key, "key"),
            (self.value, "value"),
            (self.headers, "headers"),
            (self.timestamp, "timestamp"),
        ];
        let named = parts.into_iter().filter(|(is_in, _)| *is_in);
        named.map(|(_, name)| name).collect()
    }

    /// How many there are, 0 to 4.
    #[must_use]
    pub fn count(self) -> usize {
        self.names().len()
    }
}

impl fmt::Display for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names().join(", "))
    }
}

/// A record of one side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Where it lies in its log.
    pub offset: Offset,
    /// What it holds.
    pub print: Fingerprint,
}

/// What is compared and how much may be kept for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Source records from here on are read only to find the place in the target: they are never
    /// missing.
    pub source_end: Offset,
    /// Unmatched target records from here on that follow the last source record below `source_end`
    /// are not extra: they may be copies of what came later.
    pub target_end: Offset,
    /// What the target has before its first match may be copies of source records that are gone.
    pub target_lead_allowed: bool,
    /// What the source has before its first match may have been deleted from the target, or never
    /// have been asked for.
    pub source_lead_allowed: bool,
    /// Keyed records that only the target has may have been compacted away on the source.
    pub source_compacted: bool,
    /// Keyed records that only the source has may have been compacted away on the target.
    pub target_compacted: bool,
    /// How much is kept.
    pub limits: Limits,
}

/// How much is kept, in records.
///
/// An entry takes 64 bytes. At most two windows are kept in the streams' buffers, one of pending
/// records and one of history, the latter two with an index once there are differences, and the
/// look-ahead's tables: all in all below 1 KiB for each record of the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most records looked ahead on a side, and kept of unmatched and of matched ones. At least 1.
    pub window: usize,
    /// Records first looked ahead where streams part; grows up to the window.
    pub look_ahead: usize,
    /// Records in a row that must be the same for streams to count as joined again.
    pub resync: usize,
    /// Most findings kept.
    pub findings: usize,
}

/// Default of [`Limits::window`]: about 64 MiB at the very worst.
pub const WINDOW_DEFAULT: usize = 1 << 16;

impl Default for Limits {
    fn default() -> Self {
        Self {
            window: WINDOW_DEFAULT,
            look_ahead: 64,
            resync: 16,
            findings: 20,
        }
    }
}

/// How many records were what. Each source record below the end is counted once in one of `equal`,
/// `reordered`, `altered`, `missing`, `compacted_on_target` and `lead_of_source`; each target record
/// likewise, but for those that may be copies of what came later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// The same, in the same order.
    pub equal: u64,
    /// On the source alone.
    pub missing: u64,
    /// How many of the missing ones follow the last record that arrived: the target may just be behind.
    pub missing_at_end: u64,
    /// On the target alone.
    pub extra: u64,
    /// On the target once more than on the source.
    pub doubled: u64,
    /// In the same place with other content.
    pub altered: u64,
    /// The same, in another place.
    pub reordered: u64,
    /// Keyed, on the source alone, and the target is compacted: cannot be told from missing.
    pub compacted_on_target: u64,
    /// Keyed, on the target alone, and the source is compacted: cannot be told from extra.
    pub compacted_on_source: u64,
    /// Before the first match, on the source alone, where that is allowed.
    pub lead_of_source: u64,
    /// Before the first match, on the target alone, where that is allowed.
    pub lead_of_target: u64,
    /// The streams differ over more than the window: some moved records count as missing and extra.
    pub window_exceeded: bool,
}

impl Tally {
    /// Records that are not as they should be. Doubled ones may be what was promised.
    #[must_use]
    pub fn differences(&self, tolerate_duplicates: bool) -> u64 {
        let doubled = if tolerate_duplicates { 0 } else { self.doubled };
        self.missing + self.extra + self.altered + self.reordered + doubled
    }
}

#[cfg(test)]
mod tests;
