//! A record reduced to hashes of its parts.
//!
//! Each part is hashed to 128 bits by XXH3, seeded anew for each run, so that two records that differ are
//! taken for the same with a probability near 2⁻¹²⁸, and nobody can prepare records for a seed that is
//! not known yet. It is no cryptographic hash; it is several times faster than the network.

use std::panic::{AssertUnwindSafe, catch_unwind};

use kreplicator_model::compare::{Fingerprint, Parts};
use rdkafka::{
    Message,
    message::{BorrowedMessage, Headers as _},
};
use xxhash_rust::xxh3::{Xxh3, xxh3_128_with_seed};

/// What stands for a value of null among headers: no length is that large.
const NULL: u64 = u64::MAX;

/// A header's name that the client library cannot read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnreadableHeaders;

/// Makes fingerprints.
#[derive(Debug, Clone, Copy)]
pub struct Hasher {
    seed: u64,
    ignored: Parts,
}

impl Hasher {
    /// Fingerprints of one run: only those of the same seed can be compared. Ignored parts are the same
    /// for all records.
    #[must_use]
    pub fn new(seed: u64, ignored: Parts) -> Self {
        Self { seed, ignored }
    }

    /// Of a message as the library gives it.
    ///
    /// # Errors
    /// A name of a header is not UTF-8.
    pub fn message(&self, message: &BorrowedMessage<'_>) -> Result<Fingerprint, UnreadableHeaders> {
        let headers = match message.headers() {
            Some(headers) if !self.ignored.headers => {
                // The library panics on a name that is not UTF-8 and has no way to ask first (C012).
                let hashed = catch_unwind(AssertUnwindSafe(|| {
                    let headers = headers.iter().map(|header| (header.key, header.value));
                    self.headers(headers)
                }));
                hashed.map_err(|_| UnreadableHeaders)?
            }
            // No list and an empty one are the same in Kafka's format.
            Some(_) | None => 0,
        };
        let timestamp = message.timestamp().to_millis();
        Ok(self.record(
            message.key(),
            message.payload(),
            headers,
            timestamp.unwrap_or(-1),
        ))
    }

    /// Of a record whose headers are hashed already.
    fn record(
        &self,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: u128,
        timestamp: i64,
    ) -> Fingerprint {
        Fingerprint {
            key: if self.ignored.key { 0 } else { self.bytes(key) },
            value: if self.ignored.value {
                0
            } else {
                self.bytes(value)
            },
            headers,
            timestamp: if self.ignored.timestamp { 0 } else { timestamp },
        }
    }

    fn bytes(&self, bytes: Option<&[u8]>) -> u128 {
        // 0 stands for null.
        bytes.map_or(0, |bytes| xxh3_128_with_seed(bytes, self.seed).max(1))
    }

    /// Of a list in its order. Lengths go in as well, so that no two lists make the same bytes.
    fn headers<'a>(&self, headers: impl Iterator<Item = (&'a str, Option<&'a [u8]>)>) -> u128 {
        let mut hash = Xxh3::with_seed(self.seed);
        let mut is_empty = true;
        for (name, value) in headers {
            is_empty = false;
            hash.update(&(name.len() as u64).to_le_bytes());
            hash.update(name.as_bytes());
            let length = value.map_or(NULL, |value| value.len() as u64);
            hash.update(&length.to_le_bytes());
            hash.update(value.unwrap_or_default());
        }
        match is_empty {
            true => 0,
            false => hash.digest128().max(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASHER: Hasher = Hasher {
        seed: 7,
        ignored: Parts {
            key: false,
            value: false,
            headers: false,
            timestamp: false,
        },
    };

    #[test]
    fn c011_null_and_empty_are_told_apart() {
        let null = HASHER.record(None, None, 0, 1);
        let empty = HASHER.record(Some(b""), Some(b""), 0, 1);
        assert_eq!(null.differing(&empty).names(), ["key", "value"]);
        assert!(!null.has_key() && empty.has_key());
    }

    #[test]
    fn headers_are_an_ordered_list_with_repetitions_and_nulls() {
        let of = |list: &[(&str, Option<&str>)]| {
            let list = list.iter();
            HASHER.headers(list.map(|(name, value)| (*name, value.map(str::as_bytes))))
        };
        let lists: &[&[(&str, Option<&str>)]] = &[
            &[],
            &[("a", None)],
            &[("a", Some(""))],
            &[("a", Some("b"))],
            &[("ab", Some(""))],
            &[("", Some("ab"))],
            &[("a", Some("b")), ("a", Some("b"))],
            &[("a", Some("b")), ("c", Some("d"))],
            &[("c", Some("d")), ("a", Some("b"))],
        ];
        let mut hashes: Vec<u128> = lists.iter().map(|list| of(list)).collect();
        assert_eq!(hashes[0], 0);
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), lists.len());
    }

    #[test]
    fn each_part_counts_and_ignored_ones_do_not() {
        let ignoring = |ignored| Hasher { seed: 7, ignored };
        let one = |hasher: Hasher| hasher.record(Some(b"k"), Some(b"v"), 5, 1);
        let other = |hasher: Hasher| hasher.record(Some(b"l"), Some(b"w"), 5, 2);
        let differing = one(HASHER).differing(&other(HASHER));
        assert_eq!(differing.names(), ["key", "value", "timestamp"]);
        let hasher = ignoring(Parts {
            key: true,
            timestamp: true,
            ..Parts::default()
        });
        assert_eq!(one(hasher).differing(&other(hasher)).names(), ["value"]);
    }

    #[test]
    fn another_seed_makes_other_fingerprints() {
        let other = Hasher { seed: 8, ..HASHER };
        let print = |hasher: Hasher| hasher.record(Some(b"k"), Some(b"v"), 0, 1);
        assert_ne!(print(HASHER), print(other));
        assert_eq!(print(HASHER), print(HASHER));
    }
}
