//! The hash of one record, of which digests are sums.
//!
//! XXH3 of 128 bits with the seed [`SEED`] over, one after the other, all numbers as 8 bytes, little-endian:
//!
//! ```text
//! offset, timestamp in ms, type of the timestamp (−1 none, 0 create, 1 append)
//! key            length, then the bytes; null: 2⁶⁴−1 and no bytes
//! value          as the key
//! headers        their number, then for each the key's length and bytes, and the value as above
//! ```
//! Each part says how long it is, so no two records have the same bytes. Hashes are stored in files and manifests: neither
//! seed nor order may ever change, which the golden values below watch. Any implementation of XXH3 gives the same, so
//! a table can be checked in other languages.

use xxhash_rust::xxh3::Xxh3;

use crate::record::Record;

/// The seed of all hashes: the ASCII letters `krepdump` as a big-endian number. Fixed for ever.
pub const SEED: u64 = 0x6b72_6570_6475_6d70;
/// The length of null: no real length is that large.
const NULL: u64 = u64::MAX;

/// The hash of a record.
#[must_use]
pub fn of_record(record: &Record<'_>) -> u128 {
    let mut hash = Xxh3::with_seed(SEED);
    let kind = i64::from(record.timestamp_type.number());
    let mut fixed = [0; 24];
    fixed[..8].copy_from_slice(&record.offset.0.to_le_bytes());
    fixed[8..16].copy_from_slice(&record.timestamp.0.to_le_bytes());
    fixed[16..].copy_from_slice(&kind.to_le_bytes());
    hash.update(&fixed);
    part(&mut hash, record.key);
    part(&mut hash, record.value);
    hash.update(&(record.headers.len() as u64).to_le_bytes());
    for header in record.headers {
        part(&mut hash, Some(header.key));
        part(&mut hash, header.value);
    }
    hash.digest128()
}

fn part(hash: &mut Xxh3, bytes: Option<&[u8]>) {
    let length = bytes.map_or(NULL, |bytes| bytes.len() as u64);
    hash.update(&length.to_le_bytes());
    hash.update(bytes.unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use kreplicator_model::ids::{Offset, UnixMillis};

    use super::*;
    use crate::record::{Header, TimestampType};

    const PLAIN: Record<'_> = Record {
        offset: Offset(42),
        timestamp: UnixMillis(1_796_029_200_000),
        timestamp_type: TimestampType::Create,
        key: Some(b"key"),
        value: Some(b"value"),
        headers: &[],
    };

    const BARE: Record<'_> = Record {
        offset: Offset(0),
        timestamp: UnixMillis(-1),
        timestamp_type: TimestampType::None,
        key: None,
        value: None,
        headers: &[],
    };

    const GOLDEN_PLAIN: u128 = 0x8625_783d_bb81_9337_796c_f96e_71be_fd4e;
    const GOLDEN_BARE: u128 = 0x9ff8_8160_0abb_376d_828a_be52_14d8_6f46;
    const GOLDEN_RICH: u128 = 0x05c7_011e_9ca1_2470_3a7b_e729_3e27_9161;

    fn rich(value: &[u8]) -> u128 {
        let headers = [
            Header {
                key: b"trace",
                value: Some(b"a"),
            },
            Header {
                key: b"trace",
                value: None,
            },
            Header {
                key: b"\xff",
                value: Some(b""),
            },
        ];
        of_record(&Record {
            offset: Offset(i64::MAX),
            timestamp: UnixMillis(i64::MIN),
            timestamp_type: TimestampType::Append,
            key: Some(b""),
            value: Some(value),
            headers: &headers,
        })
    }

    /// Computed from the description above by another implementation (python-xxhash 4.1, `xxh3_128`).
    #[test]
    fn hashes_are_as_recorded() {
        assert_eq!(of_record(&PLAIN), GOLDEN_PLAIN);
        assert_eq!(of_record(&BARE), GOLDEN_BARE);
        assert_eq!(rich(&[7; 5_000]), GOLDEN_RICH);
    }

    #[test]
    fn whatever_differs_differs_in_its_hash() {
        let empty_key = Record {
            key: Some(b""),
            ..BARE
        };
        let empty_value = Record {
            value: Some(b""),
            ..BARE
        };
        let headers = |key: &'static [u8], value| [Header { key, value }];
        let (one, two) = (headers(b"ab", Some(&b"c"[..])), headers(b"a", Some(b"bc")));
        let (null, empty) = (headers(b"a", None), headers(b"a", Some(&b""[..])));
        let twice = [null[0], null[0]];
        let with = |headers| of_record(&Record { headers, ..BARE });
        let mut hashes = vec![
            of_record(&BARE),
            of_record(&empty_key),
            of_record(&empty_value),
            of_record(&Record {
                offset: Offset(1),
                ..BARE
            }),
            of_record(&Record {
                timestamp: UnixMillis(0),
                ..BARE
            }),
            of_record(&Record {
                timestamp_type: TimestampType::Append,
                ..BARE
            }),
            of_record(&Record {
                key: Some(b"a"),
                value: Some(b"bc"),
                ..BARE
            }),
            of_record(&Record {
                key: Some(b"ab"),
                value: Some(b"c"),
                ..BARE
            }),
            with(&one),
            with(&two),
            with(&null),
            with(&empty),
            with(&twice),
        ];
        let count = hashes.len();
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), count);
    }
}
