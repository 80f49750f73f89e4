//! Real batches, as the Java client, librdkafka and kafka-python wrote them and brokers stored them, read against what
//! a Java consumer read from the same topics. `corpus/README.md` says how they were made.

mod fixture;

use kreplicator_batch::aborted::{AbortedTransaction, Verdict};
use kreplicator_batch::control::{self, Control};
use kreplicator_batch::patch::patch;
use kreplicator_batch::records::{Times, Unpacked};
use kreplicator_batch::rewrite::{self, Options};
use kreplicator_batch::split::Entry;
use kreplicator_batch::{AbortedFilter, Batch, Compression, Producer, TimestampType};
use proptest::prelude::*;

use fixture::{Fixture, Owned, PLENTY};

const CLIENTS: [&str; 3] = ["java", "rdkafka", "python"];
const OURS: Producer = Producer {
    id: 9001,
    epoch: 2,
    base_sequence: 77,
};

fn options() -> Options {
    Options::new(PLENTY)
}

#[test]
fn c011_c013_c020_each_record_is_as_the_consumer_read_it() {
    for fixture in Fixture::all() {
        let found: Vec<Owned> = fixture
            .entries()
            .iter()
            .flat_map(fixture::records)
            .collect();
        assert_eq!(found, fixture.records, "{}", fixture.name);
    }
}

#[test]
fn the_corpus_has_every_client_with_every_codec() {
    for client in CLIENTS {
        for codec in Compression::ALL {
            let fixture = Fixture::named(&format!("{client}-{codec}"));
            for batch in fixture.batches() {
                let found = batch.header().attributes.compression();
                // A client may leave a batch plain that does not get smaller.
                assert!(
                    found == codec || found == Compression::None,
                    "{}",
                    fixture.name
                );
            }
            let batches = fixture.batches();
            let packed = batches
                .iter()
                .filter(|b| b.header().attributes.compression() == codec);
            assert!(packed.count() >= 2, "{}", fixture.name);
        }
    }
    for magic in [0, 1] {
        for client in ["old-java", "rdkafka-old"] {
            for codec in ["none", "gzip", "snappy", "lz4"] {
                let fixture = Fixture::named(&format!("{client}{magic}-{codec}"));
                for entry in fixture.entries() {
                    let Entry::Message(message) = entry else {
                        panic!("{}", fixture.name)
                    };
                    assert_eq!(message.magic(), magic, "{}", fixture.name);
                }
            }
        }
    }
}

#[test]
fn the_corpus_has_both_shapes_of_snappy_and_the_lz4_checksum_of_old_producers() {
    let framed = |name| {
        Fixture::named(name).data()[0]
            .payload()
            .starts_with(b"\x82SNAPPY\0")
    };
    assert!(framed("java-snappy") && framed("python-snappy") && !framed("rdkafka-snappy"));
    let header_checksum = |name: &str| {
        let message = Fixture::named(name).messages().swap_remove(0);
        let magic = b"\x04\x22\x4d\x18\x60\x40";
        let at = message
            .bytes()
            .windows(6)
            .position(|bytes| bytes == magic)
            .expect("lz4 frame");
        message.bytes()[at + 6]
    };
    for (magic, checksum) in [(0, 0x1a), (1, 0x82)] {
        for client in ["old-java", "rdkafka-old"] {
            assert_eq!(header_checksum(&format!("{client}{magic}-lz4")), checksum);
        }
    }
}

#[test]
fn every_checksum_is_right() {
    for fixture in Fixture::all() {
        for entry in fixture.entries() {
            match entry {
                Entry::Batch(batch) => batch.verify().expect("sound batch"),
                Entry::Message(message) => message.verify().expect("sound message"),
                Entry::Partial(partial) => panic!("{}: {partial:?}", fixture.name),
            }
        }
    }
}

#[test]
fn a_patched_batch_has_the_same_payload_and_a_right_checksum() {
    for fixture in Fixture::all() {
        for source in fixture.data() {
            let patched = patch(&source, 0, OURS).expect("data");
            assert_eq!(patched.payload, source.payload());
            let target = Batch::parse(patched.to_bytes()).expect("whole batch");
            target.verify().expect("right checksum");
            assert_eq!(target.header().producer, OURS);
        }
    }
}

#[test]
fn c016_the_filter_keeps_what_a_reader_of_committed_records_sees() {
    for fixture in Fixture::all() {
        let aborted = match fixture.name.as_str() {
            "java-transactions" => transactions(),
            _ => Vec::new(),
        };
        let mut filter = AbortedFilter::new(aborted);
        let mut offsets = Vec::new();
        for entry in fixture.entries() {
            let keep = match &entry {
                Entry::Batch(batch) => filter.judge(batch).expect("readable") == Verdict::Keep,
                _ => true,
            };
            if keep {
                offsets.extend(fixture::records(&entry).iter().map(|record| record.offset));
            }
        }
        assert_eq!(offsets, fixture.committed_offsets, "{}", fixture.name);
    }
}

/// What the broker answered readers of committed records with: its index of aborted transactions, 34 bytes each.
fn transactions() -> Vec<AbortedTransaction> {
    let index = include_bytes!("corpus/java-transactions.txnindex");
    let (entries, rest) = index.as_chunks::<34>();
    assert!(entries.len() == 2 && rest.is_empty());
    let number = |entry: &[u8; 34], at| {
        let bytes = entry[at..].first_chunk().copied();
        i64::from_be_bytes(bytes.expect("within the entry"))
    };
    entries
        .iter()
        .map(|entry| AbortedTransaction {
            producer_id: number(entry, 2),
            first_offset: number(entry, 10),
        })
        .collect()
}

#[test]
fn markers_commit_and_abort_in_turn() {
    let fixture = Fixture::named("java-transactions");
    let markers: Vec<bool> = fixture
        .batches()
        .iter()
        .filter(|batch| batch.shape().is_control())
        .map(|batch| match control::parse(batch).expect("marker") {
            Control::Commit {
                coordinator_epoch: Some(_),
            } => true,
            Control::Abort {
                coordinator_epoch: Some(_),
            } => false,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(markers, [true, false, true, false]);
}

#[test]
fn c023_append_time_is_in_the_corpus_and_hides_the_producers_times() {
    let fixture = Fixture::named("java-append-time");
    for batch in fixture.batches() {
        assert_eq!(
            batch.header().attributes.timestamp_type(),
            TimestampType::LogAppendTime
        );
        let unpacked = Unpacked::open(&batch, PLENTY)
            .expect("sound")
            .with_times(Times::Written);
        for record in unpacked.records() {
            let written = record.expect("sound").timestamp;
            assert!((0..5).contains(&(written - 1_700_000_000_000)), "{written}");
        }
    }
}

#[test]
fn a_compacted_log_has_holes_and_what_is_kept_closes_them() {
    let fixture = Fixture::named("java-compacted");
    let batches = fixture.batches();
    assert!(batches.iter().any(|batch| !batch.shape().is_dense()));
    assert!(batches.iter().any(|batch| batch.shape().is_empty()));
    assert!(
        batches
            .iter()
            .any(|batch| batch.header().attributes.has_delete_horizon())
    );
    for source in batches {
        let kept = rewrite::keep(&source, &options(), |_| true).expect("sound");
        assert_eq!(kept.is_none(), source.shape().is_empty());
        if let Some(kept) = kept {
            assert!(kept.shape().is_dense());
            assert_same_but_offsets(&fixture::of_batch(&kept), &fixture::of_batch(&source));
        }
    }
}

#[test]
fn rewritten_batches_hold_the_same_records() {
    for fixture in Fixture::all() {
        let data = fixture.data();
        let all: Vec<Owned> = data.iter().flat_map(fixture::of_batch).collect();
        let joined = rewrite::coalesce(&data, PLENTY, &options()).expect("sound");
        assert_eq!(joined.taken, data.len());
        let Some(joined) = joined.batch else { continue };
        joined.verify().expect("right checksum");
        assert_same_but_offsets(&fixture::of_batch(&joined), &all);

        let parts = rewrite::split_to_fit(&joined, 8000, &options()).expect("no large record");
        assert!(parts.iter().all(|part| part.batch.size_bytes() <= 8000));
        let parted: Vec<Owned> = parts
            .iter()
            .flat_map(|part| fixture::of_batch(&part.batch))
            .collect();
        assert_same_but_offsets(&parted, &all);
    }
}

#[test]
fn old_messages_become_a_batch_of_the_same_records() {
    for fixture in Fixture::all() {
        let messages = fixture.messages();
        let joined = rewrite::upgrade(&messages, PLENTY, &options()).expect("sound");
        let found = joined
            .batch
            .as_ref()
            .map(fixture::of_batch)
            .unwrap_or_default();
        if !messages.is_empty() {
            assert_same_but_offsets(&found, &fixture.records);
        }
    }
}

fn assert_same_but_offsets(found: &[Owned], expected: &[Owned]) {
    let without = |records: &[Owned]| -> Vec<Owned> {
        records
            .iter()
            .map(|record| Owned {
                offset: 0,
                ..record.clone()
            })
            .collect()
    };
    assert_eq!(without(found), without(expected));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Whatever a peer makes of a real answer: nothing panics, and no batch unfolds beyond the limit.
    #[test]
    fn c012_damaged_answers_never_panic(
        fixture in any::<prop::sample::Index>(),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let fixture = fixture.get(Fixture::all());
        let mut answer = fixture.answer.to_vec();
        for (place, byte) in damage {
            // Half of it where it hurts most: the first bytes, which are headers.
            let reach = if byte % 2 == 0 { answer.len() } else { answer.len().min(130) };
            answer[place.index(reach)] = byte;
        }
        answer.truncate(answer.len() - cut.index(answer.len()) / 2);
        let options = Options { plain_bytes_max: 200_000, ..options() };
        let mut filter = AbortedFilter::new(Vec::new());
        for entry in kreplicator_batch::split::entries(answer.into()) {
            match entry {
                Ok(Entry::Batch(batch)) => {
                    let _unused = filter.judge(&batch);
                    let _unused = patch(&batch, 0, OURS);
                    let _unused = rewrite::keep(&batch, &options, |_| true);
                    let _unused = rewrite::split_to_fit(&batch, 500, &options);
                }
                Ok(Entry::Message(message)) => {
                    let _unused = rewrite::upgrade(&[message], 500, &options);
                }
                Ok(Entry::Partial(_)) | Err(_) => {}
            }
        }
    }
}
