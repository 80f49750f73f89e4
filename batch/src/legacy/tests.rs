use proptest::prelude::*;

use super::*;
use crate::codec::Levels;
use crate::split::{self, Entry};
use crate::testkit::{Owned, PLENTY};

/// A message as the formats' documents lay it out.
fn message(magic: u8, attributes: u8, offset: i64, time: i64, value: Option<&[u8]>) -> Vec<u8> {
    let mut checked = vec![magic, attributes];
    if magic == 1 {
        checked.extend(time.to_be_bytes());
    }
    checked.extend(3_i32.to_be_bytes());
    checked.extend(b"key");
    checked.extend(value.map_or(-1, |value| value.len() as i32).to_be_bytes());
    checked.extend(value.unwrap_or_default());
    let mut crc = flate2::Crc::new();
    crc.update(&checked);
    let mut out = offset.to_be_bytes().to_vec();
    out.extend((checked.len() as i32 + 4).to_be_bytes());
    out.extend(crc.sum().to_be_bytes());
    out.extend(checked);
    out
}

fn wrapper(magic: u8, flags: u8, codec: Compression, offset: i64, inner: &[Vec<u8>]) -> Message {
    let mut payload = Vec::new();
    codec::compress(codec, Levels::default(), &inner.concat(), &mut payload).unwrap();
    let bytes = message(magic, flags | codec.code(), offset, 777, Some(&payload));
    let message = Message::parse(bytes.into()).unwrap();
    message.verify().unwrap();
    message
}

fn inner(magic: u8, offsets: &[i64]) -> Vec<Vec<u8>> {
    let values = offsets.iter().map(|offset| offset.to_string());
    offsets
        .iter()
        .zip(values)
        .map(|(&offset, value)| message(magic, 0, offset, 100 + offset, Some(value.as_bytes())))
        .collect()
}

fn read(message: &Message, times: Times) -> Vec<Owned> {
    let unpacked = message.open(PLENTY).unwrap();
    unpacked
        .records(times)
        .map(|record| Owned::of(&record.unwrap()))
        .collect()
}

/// Offset, timestamp and value of each record.
fn brief(message: &Message, times: Times) -> Vec<(i64, i64, String)> {
    read(message, times)
        .into_iter()
        .map(|record| {
            assert_eq!(record.key.as_deref(), Some(&b"key"[..]));
            let value = String::from_utf8(record.value.unwrap()).unwrap();
            (record.offset, record.timestamp, value)
        })
        .collect()
}

fn row(offset: i64, timestamp: i64, value: &str) -> (i64, i64, String) {
    (offset, timestamp, value.to_owned())
}

#[test]
fn a_single_message_is_one_record() {
    let old = Message::parse(message(0, 0, 41, 0, Some(b"v")).into()).unwrap();
    old.verify().unwrap();
    assert_eq!((old.magic(), old.offset(), old.next_offset()), (0, 41, 42));
    assert_eq!(brief(&old, Times::Shown), [row(41, -1, "v")]);
    let newer = Message::parse(message(1, 0, 42, 5000, None).into()).unwrap();
    newer.verify().unwrap();
    let record = &read(&newer, Times::Shown)[0];
    assert_eq!(
        (record.offset, record.timestamp, &record.value),
        (42, 5000, &None)
    );
}

#[test]
fn format_0_has_absolute_offsets_inside() {
    for codec in [Compression::Gzip, Compression::Snappy, Compression::Lz4] {
        let message = wrapper(0, 0, codec, 12, &inner(0, &[10, 11, 12]));
        let expected = [row(10, -1, "10"), row(11, -1, "11"), row(12, -1, "12")];
        assert_eq!(brief(&message, Times::Shown), expected, "{codec}");
    }
}

#[test]
fn format_1_counts_inside_and_the_wrapper_has_the_last_offset() {
    // With a hole, as compaction leaves it.
    let message = wrapper(1, 0, Compression::Gzip, 52, &inner(1, &[0, 2]));
    let expected = [row(50, 100, "0"), row(52, 102, "2")];
    assert_eq!(brief(&message, Times::Shown), expected);
}

#[test]
fn a_wrapper_with_offset_0_leaves_the_offsets_inside_as_they_are() {
    let message = wrapper(1, 0, Compression::Gzip, 0, &inner(1, &[0, 1]));
    assert_eq!(
        brief(&message, Times::Shown),
        [row(0, 100, "0"), row(1, 101, "1")]
    );
}

#[test]
fn c023_the_wrappers_append_time_shows_for_all_unless_the_written_time_is_asked_for() {
    let message = wrapper(1, 0x08, Compression::Gzip, 1, &inner(1, &[0, 1]));
    assert_eq!(
        brief(&message, Times::Shown),
        [row(0, 777, "0"), row(1, 777, "1")]
    );
    assert_eq!(
        brief(&message, Times::Written),
        [row(0, 100, "0"), row(1, 101, "1")]
    );
}

#[test]
fn what_is_wrong_inside_is_told() {
    let what = |message: Message| match message.open(PLENTY).unwrap_err() {
        Error::Damaged { what, .. } => what,
        other => panic!("{other:?}"),
    };
    let gzip = Compression::Gzip;
    assert_eq!(what(wrapper(1, 0, gzip, 9, &[])), "nothing is inside");
    let other_format = "a message inside has another format";
    assert_eq!(what(wrapper(1, 0, gzip, 9, &inner(0, &[0]))), other_format);
    assert_eq!(
        what(wrapper(1, 0, gzip, 9, &inner(1, &[1, 1]))),
        "offsets inside do not grow"
    );
    let too_many = "more is inside than its offset allows";
    assert_eq!(
        what(wrapper(1, 0, gzip, 1, &inner(1, &[0, 1, 2]))),
        too_many
    );
    let nested = wrapper(1, 0, gzip, 0, &inner(1, &[0])).bytes().to_vec();
    let again = "a message inside is compressed again";
    assert_eq!(what(wrapper(1, 0, gzip, 9, &[nested])), again);
    let empty = Message::parse(message(1, gzip.code(), 0, 0, None).into()).unwrap();
    assert_eq!(what(empty), "nothing is inside");
    let cut = inner(1, &[0])[0][..30].to_vec();
    assert_eq!(
        what(wrapper(1, 0, gzip, 9, &[cut])),
        "length reaches beyond what is there"
    );
}

#[test]
fn a_bomb_in_an_old_format_is_an_error() {
    for magic in [0, 1] {
        for codec in [Compression::Gzip, Compression::Snappy, Compression::Lz4] {
            let large = message(magic, 0, 0, 0, Some(&vec![0; 1 << 20]));
            let message = wrapper(magic, 0, codec, 0, &[large]);
            let error = message.open(1 << 16).unwrap_err();
            let too_large = matches!(
                error,
                Error::Codec {
                    source: codec::Error::TooLarge {
                        bytes_max: 65_536,
                        ..
                    },
                    ..
                }
            );
            assert!(too_large, "format {magic}, {codec}: {error}");
        }
    }
}

#[test]
fn zstd_and_unknown_codecs_are_refused() {
    for code in 4..8 {
        let error = Message::parse(message(1, code, 0, 0, Some(b"v")).into()).unwrap_err();
        assert!(
            matches!(
                error,
                Error::Damaged {
                    what: "compression is unknown",
                    ..
                }
            ),
            "{error}"
        );
    }
}

#[test]
fn damage_is_found_by_the_checksum() {
    let sound = message(1, 0, 7, 5000, Some(b"value"));
    for at in MAGIC_AT + 2..sound.len() {
        let mut bytes = sound.clone();
        bytes[at] ^= 1;
        // Sizes that no longer fit are found without it.
        if let Ok(message) = Message::parse(bytes.into()) {
            let error = message.verify().unwrap_err();
            assert!(
                matches!(error, Error::Checksum { offset: 7, .. }),
                "{error}"
            );
        }
    }
}

#[test]
fn an_answer_may_mix_formats() {
    let old = message(0, 0, 3, 0, Some(b"a"));
    let newer = message(1, 0, 4, 9, Some(b"b"));
    let batch = crate::testkit::batch_of(Compression::None, &[Owned::text(5, "c")]);
    let answer = [&old[..], &newer, batch.bytes()].concat();
    let found: Vec<Entry> = split::entries(answer.into()).map(Result::unwrap).collect();
    let expected = [
        Entry::Message(Message::parse(old.into()).unwrap()),
        Entry::Message(Message::parse(newer.into()).unwrap()),
        Entry::Batch(batch),
    ];
    assert_eq!(found, expected);
}

proptest! {
    #[test]
    fn a_changed_byte_never_panics(
        magic in 0_u8..2,
        codec in 0_u8..4,
        place in any::<prop::sample::Index>(),
        xor in 1_u8..,
    ) {
        let codec = Compression::from_code(codec).unwrap();
        let sound = wrapper(magic, 0, codec, 12, &inner(magic, &[1, 2, 3]));
        let mut bytes = sound.bytes().to_vec();
        let at = place.index(bytes.len());
        bytes[at] ^= xor;
        if let Ok(changed) = Message::parse(bytes.into())
            && let Ok(unpacked) = changed.open(10_000)
        {
            prop_assert!(unpacked.records(Times::Shown).all(|record| record.is_ok()));
        }
    }

    #[test]
    fn random_bytes_never_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..80),
        magic in 0_u8..2,
    ) {
        let mut bytes = bytes;
        if bytes.len() > MAGIC_AT {
            let length = (bytes.len() - OVERHEAD_BYTES) as i32;
            bytes[LENGTH_AT..OVERHEAD_BYTES].copy_from_slice(&length.to_be_bytes());
            bytes[MAGIC_AT] = magic;
        }
        if let Ok(message) = Message::parse(bytes.into()) {
            let _unused = message.open(10_000);
        }
    }
}
