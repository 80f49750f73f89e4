use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::header::{Attributes, Producer, TimestampType};
use crate::legacy::Message;
use crate::testkit::{
    Owned, PLENTY, any_compression, any_records, batch_of, batch_with, options, read, renumbered,
};

/// What each batch for a broker must be.
fn sendable(batch: &Batch) {
    let header = batch.header();
    assert_eq!(header.base_offset, 0);
    assert_eq!(header.producer, Producer::NONE);
    assert!(batch.shape().is_dense());
    assert_eq!(
        header.attributes.bits(),
        i16::from(header.attributes.compression().code())
    );
    batch.verify().unwrap();
}

proptest! {
    // Each opens and writes several batches.
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn kept_records_close_up_in_order_with_their_times_and_codec(
        records in any_records(),
        compression in any_compression(),
        modulus in 1_i64..5,
    ) {
        let source = batch_of(compression, &records);
        let wanted = |offset: i64| offset % modulus == 0;
        let kept = keep(&source, &options(), |record| wanted(record.offset)).unwrap();
        let expected: Vec<Owned> =
            records.iter().filter(|record| wanted(record.offset)).cloned().collect();
        match kept {
            None => prop_assert!(expected.is_empty()),
            Some(batch) => {
                sendable(&batch);
                prop_assert_eq!(batch.header().attributes.compression(), compression);
                prop_assert_eq!(read(&batch), renumbered(&expected, 0));
            }
        }
    }

    #[test]
    fn c031_parts_fit_and_hold_all_records_in_order(
        records in any_records(),
        compression in any_compression(),
        bytes_max in 100_usize..3000,
    ) {
        let source = batch_of(compression, &records);
        let next_offset = source.header().next_offset();
        match split_to_fit(&source, bytes_max, &options()) {
            Ok(parts) => {
                let mut found = Vec::new();
                let mut accounted = source.header().base_offset;
                for part in &parts {
                    sendable(&part.batch);
                    prop_assert!(part.batch.size_bytes() <= bytes_max);
                    prop_assert_eq!(part.batch.header().attributes.compression(), compression);
                    found.extend(read(&part.batch));
                    prop_assert!(part.next_offset > accounted);
                    accounted = part.next_offset;
                    if accounted < next_offset {
                        prop_assert_eq!(records[found.len() - 1].offset + 1, accounted);
                    }
                }
                prop_assert_eq!(accounted, next_offset);
                let found: Vec<Owned> = renumbered(&found, 0);
                prop_assert_eq!(found, renumbered(&records, 0));
            }
            Err(Error::RecordTooLarge { offset, batch_bytes, .. }) => {
                prop_assert!(batch_bytes > bytes_max);
                let alone = keep(&source, &options(), |record| record.offset == offset);
                prop_assert_eq!(alone.unwrap().unwrap().size_bytes(), batch_bytes);
            }
            Err(other) => prop_assert!(false, "{}", other),
        }
    }

    #[test]
    fn skipped_records_are_the_first_ones(
        records in any_records(),
        compression in any_compression(),
        count in 0_usize..45,
    ) {
        let source = batch_of(compression, &records);
        let by_count = skip_first(&source, Skip::Records(count), &options()).unwrap();
        let rest = records.get(count..).unwrap_or_default();
        prop_assert_eq!(by_count.as_ref().map(read).unwrap_or_default(), renumbered(rest, 0));
        let below = rest.first().map_or(i64::MAX, |record| record.offset);
        let by_offset = skip_first(&source, Skip::Below(below), &options()).unwrap();
        prop_assert_eq!(by_offset, by_count);
    }

    #[test]
    fn joined_batches_hold_their_records_in_order(
        batches in proptest::collection::vec((any_compression(), any_records()), 1..5),
        bytes_max in 100_usize..9000,
    ) {
        let sources: Vec<Batch> =
            batches.iter().map(|(codec, records)| batch_of(*codec, records)).collect();
        let joined = coalesce(&sources, bytes_max, &options()).unwrap();
        prop_assert!((1..=sources.len()).contains(&joined.taken));
        let batch = joined.batch.unwrap();
        sendable(&batch);
        prop_assert!(batch.size_bytes() <= bytes_max || joined.taken == 1);
        let expected: Vec<Owned> =
            batches[..joined.taken].iter().flat_map(|(_, records)| records.clone()).collect();
        prop_assert_eq!(read(&batch), renumbered(&expected, 0));
        prop_assert_eq!(joined.next_offset, sources[joined.taken - 1].header().next_offset());
    }

    #[test]
    fn c012_hostile_payloads_never_panic(
        records in any_records(),
        compression in any_compression(),
        place in any::<prop::sample::Index>(),
        xor in 1_u8..,
    ) {
        let sound = batch_of(compression, &records);
        let at = 61 + place.index(sound.size_bytes() - 61);
        let changed = Batch::parse(crate::testkit::damaged(&sound, at, xor)).unwrap();
        let options = Options { plain_bytes_max: 1 << 18, ..options() };
        let _unused = keep(&changed, &options, |_| true);
        let _unused = split_to_fit(&changed, 200, &options);
        let _unused = coalesce(&[changed, sound], 10_000, &options);
    }
}

fn texts(offset: i64, values: &[&str]) -> Vec<Owned> {
    (offset..)
        .zip(values)
        .map(|(offset, value)| Owned::text(offset, value))
        .collect()
}

#[test]
fn c031_the_record_that_does_not_fit_is_named() {
    // Does not compress: a counter's digits squared and mixed.
    let large: String = (0_u64..2000)
        .map(|n| format!("{:x}", n * n * 0x9e37_79b9))
        .collect();
    let source = batch_of(Compression::Zstd, &texts(70, &["a", "b", &large, "c"]));
    let error = split_to_fit(&source, 1000, &options()).unwrap_err();
    let Error::RecordTooLarge {
        offset,
        batch_bytes,
        bytes_max,
    } = error
    else {
        panic!("{error}")
    };
    assert_eq!((offset, bytes_max), (72, 1000));
    assert!(batch_bytes > 1000 && batch_bytes < large.len());
    // Without it the rest fits.
    let rest = keep(&source, &options(), |record| record.offset != 72)
        .unwrap()
        .unwrap();
    let parts = split_to_fit(&rest, 1000, &options()).unwrap();
    assert_eq!(parts.len(), 1);
    assert_eq!(read(&parts[0].batch).len(), 3);
}

#[test]
fn a_record_beyond_the_limit_only_before_compression_fits() {
    let source = batch_of(Compression::Lz4, &texts(0, &[&"x".repeat(100_000), "y"]));
    let parts = split_to_fit(&source, 2000, &options()).unwrap();
    let found: usize = parts.iter().map(|part| read(&part.batch).len()).sum();
    assert_eq!(found, 2);
}

#[test]
fn parts_are_few_when_compression_is_good() {
    let values: Vec<String> = (0..5000)
        .map(|n| format!("record number {n} of many alike"))
        .collect();
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    let source = batch_of(Compression::Zstd, &texts(0, &values));
    let bytes_max = source.size_bytes() / 3;
    let parts = split_to_fit(&source, bytes_max, &options()).unwrap();
    // Three cannot be enough; a splitter that ignored compression would make dozens.
    assert!((4..=6).contains(&parts.len()), "{}", parts.len());
}

#[test]
fn holes_at_the_end_of_a_batch_belong_to_its_last_part() {
    let mut builder = BatchBuilder::new(Settings {
        base_offset: 10,
        ..Settings::new(Compression::None, PLENTY)
    });
    let record = Owned::text(0, "x");
    for delta in [0, 3, 8] {
        let _added = record
            .with(|record| builder.push_at(delta, record))
            .unwrap();
    }
    let source = builder.finish().unwrap().unwrap();
    let source = keep_holes(&source, 12);
    let parts = split_to_fit(&source, 61 + 10, &options()).unwrap();
    let ends: Vec<i64> = parts.iter().map(|part| part.next_offset).collect();
    assert_eq!(ends, [11, 14, 23]);
}

/// The batch as if compaction had removed records after its last one.
fn keep_holes(batch: &Batch, last_offset_delta: i32) -> Batch {
    let header = crate::BatchHeader {
        last_offset_delta,
        ..*batch.header()
    };
    let bytes = [&header.encode()[..], &batch.payload()].concat();
    Batch::parse(bytes.into()).unwrap()
}

#[test]
fn an_emptied_batch_yields_nothing_but_its_offsets() {
    let header = crate::BatchHeader {
        record_count: 0,
        length: 49,
        ..*batch_of(Compression::None, &texts(20, &["a", "b"])).header()
    };
    let emptied = Batch::parse(Bytes::copy_from_slice(&header.encode())).unwrap();
    assert_eq!(keep(&emptied, &options(), |_| true).unwrap(), None);
    assert_eq!(split_to_fit(&emptied, 100, &options()).unwrap(), []);
    let joined = coalesce(&[emptied], 100, &options()).unwrap();
    assert_eq!(
        joined,
        Joined {
            batch: None,
            taken: 1,
            next_offset: 22
        }
    );
}

#[test]
fn the_most_frequent_codec_wins_and_then_the_higher_code() {
    let of = |codec, offset| batch_of(codec, &texts(offset, &["x"]));
    let codec_of = |batches: &[Batch]| {
        let joined = coalesce(batches, PLENTY, &options()).unwrap();
        joined.batch.unwrap().header().attributes.compression()
    };
    let (gzip, zstd, none) = (Compression::Gzip, Compression::Zstd, Compression::None);
    assert_eq!(codec_of(&[of(gzip, 0), of(zstd, 1), of(gzip, 2)]), gzip);
    assert_eq!(codec_of(&[of(zstd, 0), of(gzip, 1)]), zstd);
    assert_eq!(codec_of(&[of(none, 0), of(none, 1), of(zstd, 2)]), none);
}

#[test]
fn joining_stops_at_whole_batches() {
    let sources: Vec<Batch> = (0..10)
        .map(|n| batch_of(Compression::None, &texts(n * 2, &["0123456789"; 2])))
        .collect();
    // Two records of 17 bytes a batch: three batches are 61 + 102.
    let joined = coalesce(&sources, 61 + 130, &options()).unwrap();
    assert_eq!((joined.taken, joined.next_offset), (3, 6));
    assert_eq!(joined.batch.unwrap().header().record_count, 6);
}

#[test]
fn the_first_batch_is_taken_whatever_its_size() {
    let large = batch_of(Compression::None, &texts(0, &["x", &"y".repeat(500)]));
    let small = batch_of(Compression::None, &texts(2, &["z"]));
    let joined = coalesce(&[large, small], 200, &options()).unwrap();
    assert_eq!((joined.taken, joined.next_offset), (1, 2));
    assert_eq!(joined.batch.unwrap().header().record_count, 2);
}

#[test]
fn nothing_joins_to_nothing() {
    let joined = coalesce(&[], 100, &options()).unwrap();
    assert_eq!((joined.batch, joined.taken), (None, 0));
}

#[test]
fn a_marker_is_never_rewritten() {
    let attributes = Attributes::new(Compression::None, TimestampType::CreateTime).control();
    let settings = Settings {
        attributes,
        ..Settings::new(Compression::None, 1000)
    };
    let marker = batch_with(settings, &texts(0, &["x"]));
    let refused = |error| {
        assert!(
            matches!(error, Error::Control { base_offset: 0 }),
            "{error}"
        )
    };
    refused(keep(&marker, &options(), |_| true).unwrap_err());
    refused(split_to_fit(&marker, 100, &options()).unwrap_err());
    refused(coalesce(&[marker], 100, &options()).unwrap_err());
}

#[test]
fn c023_append_time_becomes_the_records_own_time_or_is_left_behind() {
    let attributes = Attributes::new(Compression::Snappy, TimestampType::LogAppendTime);
    let settings = Settings {
        attributes,
        append_time: 5_000,
        ..Settings::new(Compression::None, PLENTY)
    };
    let source = batch_with(settings, &texts(0, &["a", "b"]));
    let times = |times| {
        let options = Options { times, ..options() };
        let batch = keep(&source, &options, |_| true).unwrap().unwrap();
        sendable(&batch);
        read(&batch)
            .iter()
            .map(|record| record.timestamp)
            .collect::<Vec<_>>()
    };
    assert_eq!(times(Times::Shown), [5_000, 5_000]);
    assert_eq!(times(Times::Written), [1000, 1001]);
}

#[test]
fn old_messages_become_a_batch() {
    let plain = |offset: i64, value: &[u8]| {
        let mut checked = vec![1, 0];
        checked.extend(500_i64.to_be_bytes());
        checked.extend((-1_i32).to_be_bytes());
        checked.extend((value.len() as i32).to_be_bytes());
        checked.extend(value);
        let length = checked.len() as i32 + 4;
        let bytes = [
            &offset.to_be_bytes()[..],
            &length.to_be_bytes(),
            &[0; 4],
            &checked,
        ]
        .concat();
        Message::parse(bytes.into()).unwrap()
    };
    let joined = upgrade(&[plain(8, b"a"), plain(11, b"b")], 1000, &options()).unwrap();
    assert_eq!((joined.taken, joined.next_offset), (2, 12));
    let batch = joined.batch.unwrap();
    sendable(&batch);
    let mut expected = texts(0, &["a", "b"]);
    expected
        .iter_mut()
        .for_each(|record| record.timestamp = 500);
    assert_eq!(read(&batch), expected);
}
