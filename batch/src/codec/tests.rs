use proptest::prelude::*;

use super::*;
use crate::testkit::any_compression;

fn packed(compression: Compression, plain: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    compress(compression, Levels::default(), plain, &mut out).unwrap();
    out
}

const PACKING: [Compression; 4] = [
    Compression::Gzip,
    Compression::Snappy,
    Compression::Lz4,
    Compression::Zstd,
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn what_is_compressed_comes_back(
        compression in any_compression(),
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        repeat in 1_usize..300,
    ) {
        let plain = bytes.repeat(repeat);
        let payload = packed(compression, &plain);
        prop_assert_eq!(decompress(compression, &payload, plain.len()).unwrap(), plain);
    }

    #[test]
    fn random_bytes_neither_panic_nor_grow_beyond_the_limit(
        compression in any_compression(),
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        begins_well in any::<bool>(),
    ) {
        let mut payload = bytes;
        if begins_well {
            let head = packed(compression, b"head");
            payload.splice(..0, head.into_iter().take(12));
        }
        if let Ok(plain) = decompress(compression, &payload, 5000) {
            prop_assert!(plain.len() <= 5000);
        }
    }

    #[test]
    fn a_changed_byte_never_panics(
        compression in any_compression(),
        place in any::<prop::sample::Index>(),
        xor in 1_u8..,
    ) {
        let plain = b"0123456789abcdef".repeat(4200);
        let mut payload = packed(compression, &plain);
        let at = place.index(payload.len());
        payload[at] ^= xor;
        if let Ok(found) = decompress(compression, &payload, plain.len()) {
            prop_assert!(found.capacity() <= 2 * plain.len() + 4096);
        }
    }
}

#[test]
fn a_bomb_is_an_error_at_the_limit() {
    let plain = vec![0; 4 << 20];
    for compression in PACKING {
        let payload = packed(compression, &plain);
        assert!(
            payload.len() < plain.len() / 20,
            "{compression}: {}",
            payload.len()
        );
        let error = decompress(compression, &payload, 1 << 20).unwrap_err();
        assert!(
            matches!(
                error,
                Error::TooLarge {
                    bytes_max: 1_048_576,
                    ..
                }
            ),
            "{error}"
        );
    }
}

#[test]
fn the_limit_is_inclusive() {
    let plain = b"abc".repeat(50_000);
    for compression in Compression::ALL {
        let payload = packed(compression, &plain);
        assert!(
            decompress(compression, &payload, plain.len()).is_ok(),
            "{compression}"
        );
        let error = decompress(compression, &payload, plain.len() - 1).unwrap_err();
        assert!(
            matches!(error, Error::TooLarge { .. }),
            "{compression}: {error}"
        );
    }
}

#[test]
fn a_cut_off_payload_is_damaged() {
    let plain = b"some text that is long enough to be worth it ".repeat(10);
    for compression in PACKING {
        let payload = packed(compression, &plain);
        // The decoder does without lz4's end mark of four bytes; the number of records tells what is missing then.
        let end_bytes = if compression == Compression::Lz4 {
            5
        } else {
            1
        };
        for cut in [1, payload.len() / 2, payload.len() - end_bytes] {
            let error = decompress(compression, &payload[..cut], 1 << 20).unwrap_err();
            assert!(
                matches!(error, Error::Damaged { .. }),
                "{compression} at {cut}: {error}"
            );
        }
    }
}

#[test]
fn a_bare_snappy_block_is_read() {
    let plain = b"as librdkafka once wrote it ".repeat(5000);
    let payload = snap::raw::Encoder::new().compress_vec(&plain).unwrap();
    assert_eq!(
        decompress(Compression::Snappy, &payload, plain.len()).unwrap(),
        plain
    );
    assert!(decompress(Compression::Snappy, &payload, plain.len() - 1).is_err());
}

#[test]
fn joined_snappy_streams_are_read() {
    let two = [
        packed(Compression::Snappy, b"one "),
        packed(Compression::Snappy, b"two"),
    ]
    .concat();
    assert_eq!(
        decompress(Compression::Snappy, &two, 100).unwrap(),
        b"one two"
    );
}

#[test]
fn snappy_takes_no_memory_for_a_size_that_is_a_lie() {
    // Says 2^28 bytes, holds one.
    let payload = [0x80, 0x80, 0x80, 0x80, 0x01, 0x00];
    let error = decompress(Compression::Snappy, &payload, usize::MAX).unwrap_err();
    assert!(matches!(error, Error::Damaged { .. }), "{error}");
}

#[test]
fn lz4_frames_have_independent_blocks_of_64_kib() {
    let payload = packed(Compression::Lz4, &b"x".repeat(200_000));
    assert_eq!(payload[..4], 0x184d_2204_u32.to_le_bytes());
    let (independent, size_64_kib) = (0x20, 0x40);
    assert_eq!(payload[4] & 0x20, independent);
    assert_eq!(payload[5], size_64_kib);
}

#[test]
fn the_header_checksum_of_old_lz4_producers_is_mended() {
    let plain = b"old producer ".repeat(20_000);
    let sound = packed(Compression::Lz4, &plain);
    let mut old = sound.clone();
    // Over the magic number too, as producers of format 0 computed it.
    old[6] = twox_hash::XxHash32::oneshot(0, &sound[..6]).to_be_bytes()[2];
    assert_ne!(old, sound);
    assert!(decompress(Compression::Lz4, &old, plain.len()).is_err());
    assert_eq!(decompress_lz4_magic_0(&old, plain.len()).unwrap(), plain);
    assert_eq!(decompress_lz4_magic_0(&sound, plain.len()).unwrap(), plain);
    for cut in 0..7 {
        assert!(decompress_lz4_magic_0(&old[..cut], plain.len()).is_err());
    }
}

#[test]
fn several_gzip_members_are_read_as_one() {
    let two = [
        packed(Compression::Gzip, b"one "),
        packed(Compression::Gzip, b"two"),
    ]
    .concat();
    assert_eq!(
        decompress(Compression::Gzip, &two, 100).unwrap(),
        b"one two"
    );
}

#[test]
fn an_unknown_level_is_refused() {
    let levels = Levels { gzip: 10, zstd: 23 };
    for compression in [Compression::Gzip, Compression::Zstd] {
        let error = compress(compression, levels, b"x", &mut Vec::new()).unwrap_err();
        assert!(
            matches!(error, Error::Compress { plain_bytes: 1, .. }),
            "{error}"
        );
    }
}

#[test]
fn a_higher_level_is_no_larger() {
    let plain: Vec<u8> = (0..60_000_u32)
        .flat_map(|n| (n * n % 7919).to_le_bytes())
        .collect();
    let size = |compression, levels| {
        let mut out = Vec::new();
        compress(compression, levels, &plain, &mut out).unwrap();
        out.len()
    };
    let (fast, small) = (Levels { gzip: 1, zstd: 1 }, Levels { gzip: 9, zstd: 19 });
    for compression in [Compression::Gzip, Compression::Zstd] {
        assert!(
            size(compression, small) < size(compression, fast),
            "{compression}"
        );
    }
}
