//! What was given comes back, whatever it was.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use kreplicator_model::{
    dump::{manifest::Source, path::StorePath},
    ids::{ClusterId, LinkId, Offset, Partition, TopicName, UnixMillis},
};
use parquet::file::metadata::{KeyValue, ParquetMetaData, ParquetMetaDataReader};
use proptest::{collection::vec, prelude::*};

use super::*;
use crate::{
    record::{Header, Record, TimestampType},
    testkit::{MemoryStore, Random},
};

/// A record that owns its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Owned {
    offset: i64,
    timestamp: i64,
    kind: TimestampType,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

impl Owned {
    fn plain(offset: i64, value: Vec<u8>) -> Self {
        Self {
            offset,
            timestamp: 1_796_029_200_000,
            kind: TimestampType::Create,
            key: Some(b"key".to_vec()),
            value: Some(value),
            headers: Vec::new(),
        }
    }

    fn of(record: &Record<'_>) -> Self {
        let owned = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_vec);
        let headers = record.headers.iter();
        Self {
            offset: record.offset.0,
            timestamp: record.timestamp.0,
            kind: record.timestamp_type,
            key: owned(record.key),
            value: owned(record.value),
            headers: headers
                .map(|header| (header.key.to_vec(), owned(header.value)))
                .collect(),
        }
    }

    fn with<T>(&self, then: impl FnOnce(&Record<'_>) -> T) -> T {
        let headers = self.headers.iter().map(|(key, value)| Header {
            key,
            value: value.as_deref(),
        });
        let headers: Vec<Header<'_>> = headers.collect();
        then(&Record {
            offset: Offset(self.offset),
            timestamp: UnixMillis(self.timestamp),
            timestamp_type: self.kind,
            key: self.key.as_deref(),
            value: self.value.as_deref(),
            headers: &headers,
        })
    }
}

fn source() -> Source {
    Source {
        link: LinkId::new("lake").expect("legal"),
        cluster: ClusterId::new("dc1").expect("legal"),
        topic: TopicName::new("orders").expect("legal"),
        topic_id: Some("WpmuDsM2QMmh0jzQ5DNGAw".to_owned()),
        partition: Partition(3),
    }
}

fn path() -> StorePath {
    StorePath::new("a.parquet").expect("legal")
}

/// A file of these records; what it says of itself.
fn write(records: &[Owned], settings: &Settings) -> (Facts, Bytes) {
    let mut writer = Writer::new(Arc::new(source()), settings).expect("legal");
    let mut facts: Option<Facts> = None;
    let mut rows = Rows::default();
    let mut bytes = Vec::new();
    for record in records {
        record.with(|record| {
            if rows.is_full_for(record, settings.rows_bytes_max) {
                writer.write(std::mem::take(&mut rows)).expect("written");
                bytes.extend(writer.take());
            }
            rows.push(record);
            match &mut facts {
                Some(facts) => facts.add(record),
                None => facts = Some(Facts::of(source(), record)),
            }
        });
    }
    writer.write(rows).expect("written");
    let facts = facts.expect("some records");
    bytes.extend(writer.finish(&facts).expect("finished"));
    (facts, bytes.concat().into())
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.expect("a runtime").block_on(future)
}

/// Reads a file of these bytes.
fn read(bytes: Bytes) -> Result<(Facts, Vec<Owned>), ReadError> {
    let store = MemoryStore::new(0);
    store.put(&path(), bytes);
    block_on(async {
        let footer = Footer::read(&store, &path()).await?;
        let (path, mut records) = (path(), Vec::new());
        let all = footer.read_all(&store, &path, |record| records.push(Owned::of(record)));
        all.await?;
        Ok((footer.facts().clone(), records))
    })
}

fn metadata(bytes: &Bytes) -> ParquetMetaData {
    let reader = ParquetMetaDataReader::new();
    reader.parse_and_finish(bytes).expect("whole")
}

fn small() -> Settings {
    Settings {
        row_group_bytes_max: 4 << 10,
        ..Settings::default()
    }
}

fn blob() -> impl Strategy<Value = Option<Vec<u8>>> {
    prop_oneof![
        Just(None),
        Just(Some(Vec::new())),
        vec(any::<u8>(), 0..40).prop_map(Some),
        vec(any::<u8>(), 2_000).prop_map(Some),
    ]
}

fn header_key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        "[a-c]{0,2}".prop_map(String::into_bytes),
        ".{0,5}".prop_map(String::into_bytes),
        vec(any::<u8>(), 0..400),
    ]
}

fn records() -> impl Strategy<Value = Vec<Owned>> {
    let kind = prop_oneof![
        Just(TimestampType::None),
        Just(TimestampType::Create),
        Just(TimestampType::Append),
    ];
    let timestamp = prop_oneof![
        Just(-1),
        any::<i64>(),
        Just(253_402_300_799_999),
        Just(253_402_300_800_000),
        1_796_029_200_000..1_796_029_300_000_i64
    ];
    let header = (header_key(), blob());
    let record = (1_i64..4, timestamp, kind, blob(), blob(), vec(header, 0..4));
    (0..i64::MAX / 2, vec(record, 1..60)).prop_map(|(mut offset, records)| {
        let records = records.into_iter();
        let records = records.map(|(step, timestamp, kind, key, value, headers)| {
            offset += step;
            Owned {
                offset,
                timestamp,
                kind,
                key,
                value,
                headers,
            }
        });
        records.collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn c100_what_was_given_comes_back_in_order_null_and_empty_apart(records in records()) {
        let (facts, bytes) = write(&records, &small());
        let schema = metadata(&bytes).file_metadata().schema_descr_ptr();
        prop_assert_eq!(&*schema, &super::schema::parquet().expect("a schema"));
        let (found, read) = read(bytes).expect("whole");
        prop_assert_eq!(found, facts);
        prop_assert_eq!(read, records);
    }

    /// Whatever is changed or cut off is refused, or leaves what was given.
    #[test]
    fn damaged_files_are_never_taken_for_whole_ones(at in any::<prop::sample::Index>(), to: u8, is_cut: bool) {
        let records: Vec<Owned> = (0..40).map(|offset| Owned::plain(offset, vec![7; 90])).collect();
        let (_, bytes) = write(&records, &small());
        let at = at.index(bytes.len());
        let mut damaged = bytes.to_vec();
        if is_cut {
            damaged.truncate(at);
        } else {
            damaged[at] = to;
        }
        if let Ok((_, read)) = read(damaged.into()) {
            prop_assert_eq!(read, records);
        }
    }
}

#[test]
fn the_schema_is_the_same_whatever_the_data() {
    let bare = Owned {
        kind: TimestampType::None,
        timestamp: -1,
        key: None,
        value: None,
        ..Owned::plain(0, Vec::new())
    };
    let (_, bytes) = write(&[bare], &Settings::default());
    let schema = metadata(&bytes).file_metadata().schema_descr_ptr();
    let mut text = Vec::new();
    parquet::schema::printer::print_schema(&mut text, schema.root_schema());
    let expected = "\
message arrow_schema {
  REQUIRED BYTE_ARRAY topic (STRING);
  REQUIRED INT32 partition;
  REQUIRED INT64 offset;
  OPTIONAL INT64 timestamp (TIMESTAMP(MILLIS,true));
  OPTIONAL INT64 timestamp_raw;
  REQUIRED INT32 timestamp_type;
  OPTIONAL BYTE_ARRAY key;
  OPTIONAL BYTE_ARRAY value;
  REQUIRED group headers (LIST) {
    REPEATED group list {
      REQUIRED group element {
        REQUIRED BYTE_ARRAY key (STRING);
        OPTIONAL BYTE_ARRAY value;
        OPTIONAL BYTE_ARRAY key_bytes;
      }
    }
  }
}
";
    assert_eq!(String::from_utf8(text).expect("text"), expected);
}

#[test]
fn the_footer_says_what_the_file_is() {
    let records: Vec<Owned> = (5..9)
        .map(|offset| Owned::plain(offset, b"v".to_vec()))
        .collect();
    let (facts, bytes) = write(&records, &Settings::default());
    let metadata = metadata(&bytes);
    let file = metadata.file_metadata();
    let created_by = file.created_by().expect("somebody");
    assert!(
        created_by.starts_with("kreplicator version "),
        "{created_by}"
    );
    let pairs = file.key_value_metadata().expect("some");
    let get = |name: &str| {
        let pair = pairs.iter().find(|pair| pair.key == name);
        pair.and_then(|pair| pair.value.clone()).unwrap_or_default()
    };
    for (name, value) in [
        ("kreplicator.format", "envelope"),
        ("kreplicator.version", "1"),
        ("kreplicator.link", "lake"),
        ("kreplicator.cluster", "dc1"),
        ("kreplicator.topic", "orders"),
        ("kreplicator.topic_id", "WpmuDsM2QMmh0jzQ5DNGAw"),
        ("kreplicator.partition", "3"),
        ("kreplicator.records", "4"),
        ("kreplicator.first", "5"),
        ("kreplicator.last", "8"),
        ("kreplicator.timestamp_min_ms", "1796029200000"),
        ("kreplicator.timestamp_max_ms", "1796029200000"),
        ("kreplicator.digest", &*facts.digest.to_string()),
    ] {
        assert_eq!(get(name), value, "{name}");
    }
    assert_eq!(pairs.len(), 13, "and nothing else: {pairs:?}");
}

#[test]
fn footers_that_say_something_else_are_refused() {
    let records = [Owned::plain(5, b"v".to_vec())];
    let (facts, _) = write(&records, &Settings::default());
    let good = facts.to_metadata();
    assert_eq!(Facts::from_metadata(&good), Ok(facts));
    assert_eq!(Facts::from_metadata(&[]), Err(FactsError::Foreign));
    for pair in &good {
        let part = pair.key.strip_prefix("kreplicator.").expect("ours");
        let without: Vec<KeyValue> = good
            .iter()
            .filter(|other| *other != pair)
            .cloned()
            .collect();
        let is_optional = part == "topic_id";
        assert_eq!(
            Facts::from_metadata(&without).is_ok(),
            is_optional,
            "without {part}"
        );
        let twice: Vec<KeyValue> = good.iter().chain([pair]).cloned().collect();
        assert!(Facts::from_metadata(&twice).is_err(), "{part} twice");
        let mut other = good.clone();
        let changed = other
            .iter_mut()
            .find(|other| *other == pair)
            .expect("there");
        changed.value = Some("9 9".to_owned());
        assert_eq!(
            Facts::from_metadata(&other).is_ok(),
            is_optional,
            "{part} changed"
        );
    }
    let with = |name: &str, value: &str| {
        let mut pairs = good.clone();
        let pair = pairs
            .iter_mut()
            .find(|pair| pair.key.ends_with(name))
            .expect("there");
        pair.value = Some(value.to_owned());
        Facts::from_metadata(&pairs)
    };
    assert_eq!(with(".version", "2"), Err(FactsError::Newer { version: 2 }));
    let format = "typed".to_owned();
    assert_eq!(
        with(".format", "typed"),
        Err(FactsError::OtherFormat { format })
    );
    assert!(with(".first", "-1").is_err());
    assert!(with(".records", "0").is_err());
}

#[test]
fn files_of_others_and_no_files_are_refused_by_name() {
    assert!(matches!(read(Bytes::new()), Err(ReadError::Wrong(_))));
    assert!(matches!(
        read(Bytes::from_static(b"PAR1PAR1")),
        Err(ReadError::Wrong(_) | ReadError::Damaged(_))
    ));
    assert!(matches!(
        read(Bytes::from(vec![7; 5_000])),
        Err(ReadError::Damaged(_))
    ));
    let column = arrow_array::Int64Array::from(vec![1, 2]);
    let foreign = arrow_array::RecordBatch::try_from_iter([("offset", Arc::new(column) as _)]);
    let foreign = foreign.expect("a table");
    let mut bytes = Vec::new();
    let mut writer =
        parquet::arrow::ArrowWriter::try_new(&mut bytes, foreign.schema(), None).expect("legal");
    writer.write(&foreign).expect("written");
    writer.close().expect("closed");
    assert!(matches!(
        read(bytes.into()),
        Err(ReadError::Facts(FactsError::Foreign))
    ));
    let store = MemoryStore::new(0);
    let missing = block_on(Footer::read(&store, &path()));
    assert!(matches!(missing, Err(ReadError::Missing)));
}

#[test]
fn a_digest_that_does_not_fit_is_found() {
    let records = [Owned::plain(5, b"v".to_vec())];
    let mut writer = Writer::new(Arc::new(source()), &Settings::default()).expect("legal");
    let mut rows = Rows::default();
    records[0].with(|record| rows.push(record));
    writer.write(rows).expect("written");
    let other = Owned::plain(5, b"w".to_vec());
    let facts = other.with(|record| Facts::of(source(), record));
    let bytes = writer.finish(&facts).expect("finished").concat();
    assert!(matches!(read(bytes.into()), Err(ReadError::Wrong(_))));
}

#[test]
fn one_record_of_100_mib_works_and_so_do_those_beside_it() {
    let large = Random::new(1).bytes(100 << 20);
    let records = [
        Owned::plain(1, b"before".to_vec()),
        Owned::plain(2, large),
        Owned::plain(3, b"after".to_vec()),
    ];
    let (_, bytes) = write(&records, &Settings::default());
    let metadata = metadata(&bytes);
    assert!(metadata.num_row_groups() >= 2, "it fills a row group");
    let footer_bytes = u32::from_le_bytes(bytes[bytes.len() - 8..][..4].try_into().expect("four"));
    assert!(footer_bytes < 20_000, "a footer of {footer_bytes} bytes");
    let (_, read) = read(bytes).expect("whole");
    assert!(read == records, "what was read is not what was given");
}

#[test]
fn c095_row_groups_are_bounded_by_bytes_whatever_compresses() {
    let settings = Settings {
        row_group_bytes_max: 1 << 20,
        ..Settings::default()
    };
    let mut random = Random::new(2);
    for is_plain in [true, false] {
        let mut value = || {
            if is_plain {
                vec![0; 9_000]
            } else {
                random.bytes(9_000)
            }
        };
        let records: Vec<Owned> = (0..2_000)
            .map(|offset| Owned::plain(offset, value()))
            .collect();
        let (_, bytes) = write(&records, &settings);
        let metadata = metadata(&bytes);
        let most = metadata
            .row_groups()
            .iter()
            .map(|group| group.total_byte_size())
            .max();
        let most = most.expect("some");
        assert!(
            most <= 6 << 20,
            "a row group of {most} bytes before compression"
        );
        let ranges: Vec<Range<i64>> = metadata
            .row_groups()
            .iter()
            .map(|group| 0..group.compressed_size())
            .collect();
        assert!(
            ranges.iter().all(|range| range.end <= 3 << 20),
            "{ranges:?}"
        );
        assert!(ranges.len() >= 3);
    }
}

#[test]
fn keys_that_are_no_text_can_still_be_read_as_text() {
    let long = [&[0xff; 3_000][..], b"x"].concat();
    let headers = vec![
        (b"a\xffb".to_vec(), Some(b"1".to_vec())),
        (long, None),
        (b"plain".to_vec(), None),
    ];
    let record = Owned {
        headers,
        ..Owned::plain(0, Vec::new())
    };
    let mut rows = Rows::default();
    record.with(|record| rows.push(record));
    assert!(
        rows.held() < 9_000,
        "replacements may not grow: {}",
        rows.held()
    );
    let (_, bytes) = write(std::slice::from_ref(&record), &Settings::default());
    assert_eq!(read(bytes).expect("whole").1, [record]);
}

#[test]
fn what_can_be_read_of_a_key_is_no_longer_than_its_header_weighs() {
    for length in [1, 7, 9, 256, 300] {
        let key = vec![0xff; length];
        let headers = vec![(key, None); 50];
        let record = Owned {
            headers,
            ..Owned::plain(0, Vec::new())
        };
        let mut rows = Rows::default();
        let weight = record.with(|record| {
            rows.push(record);
            record.weight()
        });
        let [_, _, text, _, bytes] = rows.column_bytes();
        assert!(
            text as u64 <= weight,
            "{text} bytes of text in a record of {weight}"
        );
        assert!(text >= 50 * 3, "something can be read of it: {text}");
        assert_eq!(bytes, 50 * length);
    }
}

#[test]
fn c095_contexts_of_compression_are_as_large_as_they_are_counted() {
    let mut random = Random::new(3);
    let noise = random.bytes(3 << 20);
    let data: Vec<u8> = noise.into_iter().map(|byte| byte & 31).collect();
    for level in 1..=contexts::LEVEL_MAX {
        let mut most = 0;
        for length in [
            1_000,
            SMALL,
            SMALL + 1,
            100 << 10,
            256 << 10,
            1 << 20,
            3 << 20,
        ] {
            let mut compressor = zstd::bulk::Compressor::new(level).expect("legal");
            let fresh = compressor.context_mut().sizeof();
            assert!(fresh < contexts::FRESH_BYTES / 10, "{fresh}");
            compressor.compress(&data[..length]).expect("compressed");
            let held = compressor.context_mut().sizeof();
            let counted = if length <= SMALL {
                contexts::SMALL_BYTES
            } else {
                contexts::large_bytes(level)
            };
            assert!(held <= counted, "{held} at {level} for {length}");
            most = most.max(held);
        }
        let counted = contexts::large_bytes(level);
        assert!(most > counted / 10 * 9, "{counted} counted, {most} held");
    }
    let decompressor = zstd::zstd_safe::DCtx::create().sizeof();
    assert!(decompressor < contexts::FRESH_BYTES / 100 * 95);
}

const SMALL: usize = contexts::SMALL_PAGE_BYTES;

#[test]
fn c095_what_compression_holds_is_counted_until_its_row_group_ends() {
    let mut writer = Writer::new(Arc::new(source()), &Settings::default()).expect("legal");
    let mut give = |range: Range<i64>, length: usize| {
        let mut rows = Rows::default();
        for offset in range {
            Owned::plain(offset, vec![7; length]).with(|record| rows.push(record));
        }
        writer.write(rows).expect("written");
        writer.held()
    };
    let fresh = 12 * contexts::FRESH_BYTES;
    assert!(give(0..10, 10) >= fresh);
    // Values have pages now, and nothing else.
    let large = contexts::large_bytes(3);
    let held = give(10..20, 100 << 10);
    assert!(
        (fresh + large..fresh + 2 * large + (3 << 20)).contains(&held),
        "{held}"
    );
    // Now each column has one.
    let held = give(20..20_020, 0);
    assert!(
        held >= fresh + 5 * large + 7 * contexts::SMALL_BYTES,
        "{held}"
    );
    writer.end_row_group().expect("ended");
    writer.take();
    assert!(writer.held() < 100 << 10, "{}", writer.held());
}
