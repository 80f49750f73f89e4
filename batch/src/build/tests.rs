use proptest::prelude::*;

use super::*;
use crate::records::Unpacked;
use crate::testkit::{
    Owned, PLENTY, any_compression, any_records, batch_of, batch_with, read, renumbered,
};

proptest! {
    #[test]
    fn c011_c013_what_is_built_is_what_is_read(
        records in any_records(),
        compression in any_compression(),
    ) {
        let batch = batch_of(compression, &records);
        prop_assert_eq!(read(&batch), &records[..]);
        prop_assert_eq!(batch.header().next_offset(), records.last().unwrap().offset + 1);
        let newest = records.iter().map(|record| record.timestamp).max().unwrap();
        prop_assert_eq!(batch.header().max_timestamp, newest);
        prop_assert_eq!(batch.header().attributes.compression(), compression);
    }

    #[test]
    fn pushed_without_deltas_records_close_up(records in any_records()) {
        let mut builder = BatchBuilder::new(Settings::new(Compression::None, PLENTY));
        for record in &records {
            prop_assert_eq!(record.with(|record| builder.push(record)).unwrap(), Push::Added);
        }
        let said = builder.plain_batch_bytes();
        let batch = builder.finish().unwrap().unwrap();
        prop_assert_eq!(batch.size_bytes(), said);
        prop_assert!(batch.shape().is_dense());
        prop_assert_eq!(read(&batch), renumbered(&records, 0));
        prop_assert!(builder.is_empty());
    }

    #[test]
    fn a_batch_that_grew_before_its_records_were_taken_back_is_as_without_them(
        records in any_records(),
        from in any::<prop::sample::Index>(),
    ) {
        let from = from.index(records.len());
        let mut builder = BatchBuilder::new(Settings::new(Compression::None, PLENTY));
        let mut mark = builder.mark();
        let mut short = BatchBuilder::new(Settings::new(Compression::None, PLENTY));
        for (index, record) in records.iter().enumerate() {
            if index == from {
                mark = builder.mark();
            }
            let _added = record.with(|record| builder.push(record)).unwrap();
            if index < from {
                let _added = record.with(|record| short.push(record)).unwrap();
            }
        }
        builder.roll_back(mark);
        prop_assert_eq!(builder.finish().unwrap(), short.finish().unwrap());
    }
}

#[test]
fn push_says_when_the_batch_is_full() {
    let record = Owned::text(0, "0123456789");
    let mut builder = BatchBuilder::new(Settings::new(Compression::None, 100));
    let mut added = 0;
    while record.with(|record| builder.push(record)).unwrap() == Push::Added {
        added += 1;
    }
    // Each takes 17 bytes: length, attributes, two deltas, two lengths, headers, ten of value.
    assert_eq!((added, builder.plain_batch_bytes()), (2, 95));
    let batch = builder.finish().unwrap().unwrap();
    assert!(batch.size_bytes() <= 100);
    // Emptied, it takes the next one.
    assert_eq!(
        record.with(|record| builder.push(record)).unwrap(),
        Push::Added
    );
}

#[test]
fn the_first_record_is_taken_even_beyond_the_limit() {
    let mut builder = BatchBuilder::new(Settings::new(Compression::Zstd, 100));
    let large = Owned::text(0, &"x".repeat(5000));
    assert_eq!(
        large.with(|record| builder.push(record)).unwrap(),
        Push::Added
    );
    assert_eq!(
        large.with(|record| builder.push(record)).unwrap(),
        Push::Full
    );
    assert!(builder.finish().unwrap().unwrap().size_bytes() < 100);
}

#[test]
fn nothing_makes_no_batch() {
    let mut builder = BatchBuilder::new(Settings::new(Compression::Gzip, 100));
    assert_eq!(builder.finish().unwrap(), None);
}

#[test]
fn deltas_must_grow_and_offsets_must_not_run_out() {
    let record = Owned::text(0, "x");
    let settings = Settings {
        base_offset: i64::MAX - 5,
        ..Settings::new(Compression::None, 999)
    };
    let mut builder = BatchBuilder::new(settings);
    let mut push = |delta| record.with(|record| builder.push_at(delta, record));
    assert!(matches!(
        push(-1),
        Err(Error::DeltaOrder {
            delta: -1,
            last: -1
        })
    ));
    assert_eq!(push(2).unwrap(), Push::Added);
    assert!(matches!(
        push(2),
        Err(Error::DeltaOrder { delta: 2, last: 2 })
    ));
    assert!(matches!(push(5), Err(Error::Offsets { delta: 5, .. })));
    assert_eq!(push(4).unwrap(), Push::Added);
}

#[test]
fn the_last_delta_leaves_no_room() {
    let record = Owned::text(0, "x");
    let mut builder = BatchBuilder::new(Settings::new(Compression::None, 999));
    let pushed = record
        .with(|record| builder.push_at(i32::MAX, record))
        .unwrap();
    assert_eq!(pushed, Push::Added);
    assert_eq!(
        record.with(|record| builder.push(record)).unwrap(),
        Push::Full
    );
}

#[test]
fn append_time_is_the_batchs_and_the_producers_fields_are_kept() {
    let attributes =
        Attributes::new(Compression::Lz4, TimestampType::LogAppendTime).transactional();
    let producer = Producer {
        id: 7,
        epoch: 1,
        base_sequence: 30,
    };
    let settings = Settings {
        attributes,
        producer,
        append_time: 99,
        ..Settings::new(Compression::None, PLENTY)
    };
    let batch = batch_with(settings, &[Owned::text(0, "a"), Owned::text(1, "b")]);
    assert_eq!(batch.header().max_timestamp, 99);
    assert_eq!(batch.header().producer, producer);
    assert!(batch.shape().is_transactional());
    assert!(read(&batch).iter().all(|record| record.timestamp == 99));
}

#[test]
fn null_and_empty_stay_apart() {
    let mut null = Owned::text(0, "");
    null.value = None;
    null.headers = vec![(Vec::new(), None), (Vec::new(), Some(Vec::new()))];
    let mut empty = Owned::text(1, "");
    empty.key = Some(Vec::new());
    let records = [null, empty];
    assert_eq!(read(&batch_of(Compression::Snappy, &records)), records);
}

#[test]
fn a_bad_level_is_told_and_the_builder_starts_anew() {
    let levels = Levels {
        zstd: 99,
        ..Levels::default()
    };
    let settings = Settings {
        levels,
        ..Settings::new(Compression::Zstd, PLENTY)
    };
    let mut builder = BatchBuilder::new(settings);
    let _added = Owned::text(0, "x")
        .with(|record| builder.push(record))
        .unwrap();
    assert!(matches!(builder.finish(), Err(Error::Codec(_))));
    assert!(builder.is_empty());
}

#[test]
fn opening_shares_the_memory_of_a_plain_batch() {
    let batch = batch_of(Compression::None, &[Owned::text(0, "shared")]);
    let unpacked = Unpacked::open(&batch, PLENTY).unwrap();
    let record = unpacked.records().next().unwrap().unwrap();
    let value = record.value.unwrap().as_ptr_range();
    let whole = batch.bytes().as_ptr_range();
    assert!(whole.start <= value.start && value.end <= whole.end);
}
