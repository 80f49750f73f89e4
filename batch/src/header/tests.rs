use super::*;
use crate::codec::Compression;
use proptest::prelude::*;

fn sound() -> BatchHeader {
    BatchHeader {
        base_offset: 40,
        length: 49 + 70,
        leader_epoch: 7,
        crc: 0xdead_beef,
        attributes: Attributes::new(Compression::None, TimestampType::CreateTime),
        last_offset_delta: 9,
        base_timestamp: 1_700_000_000_000,
        max_timestamp: 1_700_000_000_009,
        producer: Producer {
            id: 12,
            epoch: 3,
            base_sequence: 45,
        },
        record_count: 10,
    }
}

#[test]
fn every_field_comes_back() {
    let header = sound();
    assert_eq!(BatchHeader::parse(&header.encode()), Ok(header));
    assert_eq!((header.last_offset(), header.next_offset()), (49, 50));
    assert_eq!(header.size_bytes(), 61 + 70);
}

#[test]
fn fields_lie_where_kafka_puts_them() {
    let raw = sound().encode();
    assert_eq!(raw[0..8], 40_i64.to_be_bytes());
    assert_eq!(raw[8..12], 119_i32.to_be_bytes());
    assert_eq!(raw[12..16], 7_i32.to_be_bytes());
    assert_eq!(raw[16], 2);
    assert_eq!(raw[17..21], 0xdead_beef_u32.to_be_bytes());
    assert_eq!(raw[21..23], [0, 0]);
    assert_eq!(raw[23..27], 9_i32.to_be_bytes());
    assert_eq!(raw[27..35], 1_700_000_000_000_i64.to_be_bytes());
    assert_eq!(raw[35..43], 1_700_000_000_009_i64.to_be_bytes());
    assert_eq!(raw[43..51], 12_i64.to_be_bytes());
    assert_eq!(raw[51..53], 3_i16.to_be_bytes());
    assert_eq!(raw[53..57], 45_i32.to_be_bytes());
    assert_eq!(raw[57..61], 10_i32.to_be_bytes());
}

#[test]
fn contradictions_are_told_apart() {
    let refused = |header: BatchHeader| BatchHeader::parse(&header.encode()).unwrap_err();
    let header = sound();
    assert!(matches!(
        refused(BatchHeader {
            length: 48,
            ..header
        }),
        Error::Length { length: 48, .. }
    ));
    assert!(matches!(
        refused(BatchHeader {
            length: -1,
            ..header
        }),
        Error::Length { .. }
    ));
    assert!(matches!(
        refused(BatchHeader {
            base_offset: -1,
            ..header
        }),
        Error::Offsets { .. }
    ));
    assert!(matches!(
        refused(BatchHeader {
            base_offset: i64::MAX,
            ..header
        }),
        Error::Offsets { .. }
    ));
    assert!(matches!(
        refused(BatchHeader {
            last_offset_delta: -1,
            ..header
        }),
        Error::Offsets { .. }
    ));
    assert!(matches!(
        refused(BatchHeader {
            record_count: -1,
            ..header
        }),
        Error::Count { .. }
    ));
    assert!(matches!(
        refused(BatchHeader {
            record_count: 11,
            ..header
        }),
        Error::Count { .. }
    ));
    // Ten records need 70 bytes at least.
    assert!(matches!(
        refused(BatchHeader {
            length: 49 + 69,
            ..header
        }),
        Error::Count { .. }
    ));
    assert_eq!(
        BatchHeader::parse(&header.encode()[..60]),
        Err(Error::Short { have: 60 })
    );
}

#[test]
fn c020_an_unknown_codec_is_an_error_not_plain_data() {
    for code in 5..8 {
        let mut raw = sound().encode();
        raw[22] = code;
        let expected = Error::Compression {
            base_offset: 40,
            code,
        };
        assert_eq!(BatchHeader::parse(&raw), Err(expected));
    }
}

#[test]
fn other_formats_are_refused() {
    let mut raw = sound().encode();
    for magic in [0_i8, 1, 3, -1] {
        raw[16] = magic as u8;
        assert_eq!(
            BatchHeader::parse(&raw),
            Err(Error::Magic {
                base_offset: 40,
                magic
            })
        );
    }
}

#[test]
fn the_shape_tells_holes_markers_and_transactions() {
    let header = sound();
    assert!(header.shape().is_dense());
    let holes = BatchHeader {
        record_count: 9,
        ..header
    }
    .shape();
    assert!(!holes.is_dense() && !holes.is_empty());
    assert!(
        BatchHeader {
            record_count: 0,
            ..header
        }
        .shape()
        .is_empty()
    );
    assert!(!header.shape().is_control() && !header.shape().is_transactional());
    let marker = Attributes::from_bits(0x30).unwrap();
    let marker = BatchHeader {
        attributes: marker,
        ..header
    }
    .shape();
    assert!(marker.is_control() && marker.is_transactional());
    assert!(Attributes::from_bits(0x40).unwrap().has_delete_horizon());
}

proptest! {
    #[test]
    fn what_parses_is_consistent_and_encodes_to_the_same_bytes(
        raw in proptest::collection::vec(any::<u8>(), 61),
        plausible in any::<bool>(),
    ) {
        let mut raw = raw;
        if plausible {
            raw[0] = 0;
            raw[8] = 0;
            raw[16] = 2;
            raw[23] = 0;
            raw[57..59].fill(0);
        }
        if let Ok(header) = BatchHeader::parse(&raw) {
            prop_assert_eq!(&header.encode()[..], &raw[..]);
            prop_assert!(header.size_bytes() >= HEADER_BYTES);
            prop_assert!(header.next_offset() > header.base_offset);
            prop_assert!(header.record_count <= header.last_offset_delta.saturating_add(1));
        }
    }
}
