use proptest::prelude::*;

use super::*;
use crate::batch;
use crate::build::Settings;
use crate::codec::Compression;
use crate::header::TimestampType;
use crate::testkit::{Owned, any_compression, any_records, batch_of, batch_with, damaged, read};

const OURS: Producer = Producer {
    id: 9001,
    epoch: 2,
    base_sequence: 77,
};

proptest! {
    #[test]
    fn a_patched_batch_is_whole_and_holds_the_same_records(
        records in any_records(),
        compression in any_compression(),
    ) {
        let source = batch_of(compression, &records);
        let patched = patch(&source, source.header().base_offset, OURS).unwrap();
        prop_assert_eq!(&patched.payload, &source.payload());
        prop_assert_eq!(patched.size_bytes(), source.size_bytes());
        let target = Batch::parse(patched.to_bytes()).unwrap();
        target.verify().unwrap();
        prop_assert_eq!(target.header().producer, OURS);
        prop_assert_eq!(target.header().leader_epoch, -1);
        prop_assert_eq!(read(&target), records);
    }

    #[test]
    fn damage_to_what_the_checksum_covers_shows_after_the_patch_too(
        records in any_records(),
        compression in any_compression(),
        place in any::<prop::sample::Index>(),
        xor in 1_u8..,
    ) {
        let source = batch_of(compression, &records);
        // In the payload: the patch has no other way to see it than to carry the wrong checksum on.
        let at = HEADER_BYTES + place.index(source.size_bytes() - HEADER_BYTES);
        let on_the_way = Batch::parse(damaged(&source, at, xor)).unwrap();
        let patched = patch(&on_the_way, 0, OURS).unwrap();
        let arrived = Batch::parse(patched.to_bytes()).unwrap();
        let is_checksum = matches!(arrived.verify(), Err(batch::Error::Checksum { .. }));
        prop_assert!(is_checksum);
    }
}

#[test]
fn damage_to_the_header_shows_after_the_patch_too() {
    let records = [Owned::text(5, "a"), Owned::text(6, "b")];
    let source = batch_of(Compression::Lz4, &records);
    // The maximum timestamp is kept, and the producer id is written over; both are under the checksum.
    for at in [40, 45, 17] {
        let on_the_way = Batch::parse(damaged(&source, at, 0x10)).unwrap();
        let patched = patch(&on_the_way, 0, OURS).unwrap();
        Batch::parse(patched.to_bytes())
            .unwrap()
            .verify()
            .unwrap_err();
    }
}

#[test]
fn only_the_codec_is_left_of_the_attributes() {
    let all_bits = 0x7f78 | i16::from(Compression::Snappy.code());
    let attributes = Attributes::from_bits(all_bits & !0x20).unwrap();
    let settings = Settings {
        attributes,
        ..Settings::new(Compression::None, 1000)
    };
    let source = batch_with(settings, &[Owned::text(0, "x")]);
    let patched = patch(&source, 0, Producer::NONE).unwrap();
    let target = Batch::parse(patched.to_bytes()).unwrap();
    target.verify().unwrap();
    assert_eq!(target.header().attributes.bits(), 2);
    assert_eq!(target.header().producer, Producer::NONE);
}

#[test]
fn c023_a_patched_append_time_batch_shows_its_producers_times() {
    let attributes = Attributes::new(Compression::None, TimestampType::LogAppendTime);
    let settings = Settings {
        attributes,
        append_time: 5_000_000,
        ..Settings::new(Compression::None, 1000)
    };
    let records = [Owned::text(0, "a"), Owned::text(1, "b")];
    let source = batch_with(settings, &records);
    assert!(
        read(&source)
            .iter()
            .all(|record| record.timestamp == 5_000_000)
    );
    let patched = patch(&source, 0, OURS).unwrap();
    assert_eq!(read(&Batch::parse(patched.to_bytes()).unwrap()), records);
}

#[test]
fn a_marker_is_never_sent_as_data() {
    let attributes = Attributes::new(Compression::None, TimestampType::CreateTime).control();
    let settings = Settings {
        attributes,
        ..Settings::new(Compression::None, 1000)
    };
    let marker = batch_with(settings, &[Owned::text(0, "x")]);
    assert_eq!(
        patch(&marker, 0, OURS),
        Err(Error::Control { base_offset: 0 })
    );
}
