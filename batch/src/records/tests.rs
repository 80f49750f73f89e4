use proptest::prelude::*;

use super::*;
use crate::build::Settings;
use crate::header::{Attributes, HEADER_BYTES};
use crate::testkit::{Owned, PLENTY, any_records, batch_of, batch_with, read};
use crate::varint::put_i64;

/// An uncompressed batch of this payload that says it has `count` records.
fn batch(payload: &[u8], count: i32) -> Batch {
    let header = BatchHeader {
        length: i32::try_from(payload.len() + HEADER_BYTES - 12).unwrap(),
        record_count: count,
        last_offset_delta: 9,
        ..*batch_of(Compression::None, &[Owned::text(0, "")]).header()
    };
    Batch::parse([&header.encode()[..], payload].concat().into()).unwrap()
}

fn outcome(payload: &[u8], count: i32) -> Result<Vec<Owned>, Error> {
    let unpacked = Unpacked::open(&batch(payload, count), PLENTY).unwrap();
    unpacked
        .records()
        .map(|record| Ok(Owned::of(&record?)))
        .collect()
}

/// A record of this body behind its length.
fn framed(body: &[i64]) -> Vec<u8> {
    let mut bytes = vec![0];
    body.iter().for_each(|&number| put_i64(&mut bytes, number));
    let mut out = Vec::new();
    put_i64(&mut out, bytes.len() as i64);
    out.extend(bytes);
    out
}

fn what(payload: &[u8], count: i32) -> &'static str {
    match outcome(payload, count) {
        Err(Error::Record { what, .. }) => what,
        other => panic!("{other:?}"),
    }
}

#[test]
fn c012_each_kind_of_damage_has_its_words() {
    // Timestamp delta, offset delta, key size, value size, header count.
    assert_eq!(outcome(&framed(&[0, 0, -1, -1, 0]), 1).unwrap().len(), 1);
    let padded = |body: &[i64]| [framed(body), vec![0; 8]].concat();
    assert_eq!(what(&[0x01; 8], 1), "length is negative");
    assert_eq!(what(&[0xff; 8], 1), "length is cut off");
    assert_eq!(what(&[0x7e; 8], 1), "length reaches beyond the batch");
    assert_eq!(what(&[0x00; 8], 1), "attributes are cut off");
    assert_eq!(
        what(&padded(&[]), 1),
        "timestamp delta does not fit or is cut off"
    );
    assert_eq!(
        what(&padded(&[0]), 1),
        "offset delta does not fit or is cut off"
    );
    assert_eq!(
        what(&padded(&[0, -1, -1, -1, 0]), 1),
        "offset delta does not grow"
    );
    assert_eq!(
        what(&padded(&[0, 10, -1, -1, 0]), 1),
        "offset delta is beyond the batch's last"
    );
    assert_eq!(what(&padded(&[0, 0, 5, -1, 0]), 1), "key is cut off");
    assert_eq!(what(&padded(&[0, 0, -1, 5]), 1), "value is cut off");
    assert_eq!(
        what(&padded(&[0, 0, -1, -1, -1]), 1),
        "header count is negative"
    );
    assert_eq!(
        what(&padded(&[0, 0, -1, -1]), 1),
        "header count does not fit or is cut off"
    );
    let bad_header = "header is cut off or has a negative key size";
    assert_eq!(what(&padded(&[0, 0, -1, -1, 1]), 1), bad_header);
    assert_eq!(what(&padded(&[0, 0, -1, -1, 1, -1, -1]), 1), bad_header);
    assert_eq!(
        what(&padded(&[0, 0, -1, -1, 0, 0]), 1),
        "bytes follow its headers"
    );
    let twice = [framed(&[0, 3, -1, -1, 0]), framed(&[0, 3, -1, -1, 0])].concat();
    assert_eq!(what(&twice, 2), "offset delta does not grow");
}

#[test]
fn a_header_count_takes_no_memory_by_itself() {
    let payload = framed(&[0, 0, -1, -1, i64::from(i32::MAX)]);
    assert_eq!(
        what(&payload, 1),
        "header is cut off or has a negative key size"
    );
}

#[test]
fn any_negative_size_is_null_as_for_kafkas_reader() {
    let record = &outcome(&framed(&[0, 0, -2, -7, 1, 0, -3]), 1).unwrap()[0];
    assert_eq!((&record.key, &record.value), (&None, &None));
    assert_eq!(record.headers, [(Vec::new(), None)]);
}

#[test]
fn bytes_after_the_last_record_are_an_error() {
    let payload = [framed(&[0, 0, -1, -1, 0]), framed(&[0, 1, -1, -1, 0])].concat();
    assert!(matches!(
        outcome(&payload, 1),
        Err(Error::Trailing { bytes: 7, .. })
    ));
    assert!(matches!(
        outcome(&payload[..7], 0),
        Err(Error::Trailing { bytes: 7, .. })
    ));
}

#[test]
fn after_an_error_nothing_follows() {
    let payload = [
        framed(&[0, 0, -1, -1, 0]),
        vec![0x01; 8],
        framed(&[0, 1, -1, -1, 0]),
    ]
    .concat();
    let unpacked = Unpacked::open(&batch(&payload, 3), PLENTY).unwrap();
    let kinds: Vec<bool> = unpacked.records().map(|record| record.is_ok()).collect();
    assert_eq!(kinds, [true, false]);
}

#[test]
fn fewer_records_than_said_is_an_error() {
    // One record of 14 bytes: room enough for the two that the header says.
    let wide = i64::from(i32::MAX) << 20;
    let payload = framed(&[wide, 0, -1, -1, 0]);
    assert!(payload.len() >= 14, "{}", payload.len());
    assert_eq!(what(&payload, 2), "length is cut off");
}

#[test]
fn c023_append_time_shows_for_every_record_unless_the_written_time_is_asked_for() {
    let attributes = Attributes::new(Compression::Zstd, TimestampType::LogAppendTime);
    let settings = Settings {
        attributes,
        append_time: 123,
        ..Settings::new(Compression::None, PLENTY)
    };
    let written = [Owned::text(0, "a"), Owned::text(1, "b")];
    let batch = batch_with(settings, &written);
    assert!(read(&batch).iter().all(|record| record.timestamp == 123));
    let unpacked = Unpacked::open(&batch, PLENTY)
        .unwrap()
        .with_times(Times::Written);
    let found: Vec<Owned> = unpacked
        .records()
        .map(|record| Owned::of(&record.unwrap()))
        .collect();
    assert_eq!(found, written);
}

#[test]
fn an_emptied_batch_has_no_records_whatever_codec_it_names() {
    for compression in Compression::ALL {
        let header = BatchHeader {
            attributes: Attributes::new(compression, TimestampType::CreateTime),
            ..*batch(&[], 0).header()
        };
        let emptied = Batch::parse(header.encode().to_vec().into()).unwrap();
        assert_eq!(read(&emptied), [], "{compression}");
        let lies = BatchHeader {
            record_count: 1,
            ..header
        }
        .encode()
        .to_vec();
        // An uncompressed one is refused by its header already.
        if let Ok(lies) = Batch::parse(lies.into()) {
            let unpacked = Unpacked::open(&lies, PLENTY).unwrap();
            assert!(unpacked.records().next().unwrap().is_err(), "{compression}");
        }
    }
}

#[test]
fn a_payload_beyond_the_limit_is_not_opened() {
    for compression in Compression::ALL {
        let batch = batch_of(compression, &[Owned::text(7, &"x".repeat(1000))]);
        let error = Unpacked::open(&batch, 900).unwrap_err();
        assert!(
            matches!(error, Error::Codec { base_offset: 7, .. }),
            "{error}"
        );
    }
}

proptest! {
    #[test]
    fn random_payloads_never_panic(
        payload in proptest::collection::vec(prop_oneof![any::<u8>(), 0_u8..16], 7..200),
        count in 0_i32..10,
    ) {
        prop_assume!(usize::try_from(count).unwrap() * 7 <= payload.len());
        let unpacked = Unpacked::open(&batch(&payload, count), PLENTY).unwrap();
        for record in unpacked.records() {
            let Ok(record) = record else { break };
            prop_assert_eq!(record.headers.iter().count(), record.headers.len());
        }
    }

    #[test]
    fn a_changed_byte_changes_records_or_is_an_error_but_never_panics(
        records in any_records(),
        place in any::<prop::sample::Index>(),
        xor in 1_u8..,
    ) {
        let sound = batch_of(Compression::None, &records);
        let mut bytes = sound.bytes().to_vec();
        let at = HEADER_BYTES + place.index(bytes.len() - HEADER_BYTES);
        bytes[at] ^= xor;
        let changed = Batch::parse(bytes.into()).unwrap();
        let unpacked = Unpacked::open(&changed, PLENTY).unwrap();
        let count = unpacked.records().take_while(Result::is_ok).count();
        prop_assert!(count <= records.len());
    }
}
