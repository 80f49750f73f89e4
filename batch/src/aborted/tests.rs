use super::*;
use crate::build::Settings;
use crate::codec::Compression;
use crate::header::{Attributes, Producer, TimestampType};
use crate::testkit::{Owned, batch_with};

fn settings(base_offset: i64, producer_id: i64, attributes: Attributes) -> Settings {
    let producer = Producer {
        id: producer_id,
        epoch: 0,
        base_sequence: 0,
    };
    Settings {
        base_offset,
        attributes,
        producer,
        ..Settings::new(Compression::None, 1000)
    }
}

fn plain() -> Attributes {
    Attributes::new(Compression::None, TimestampType::CreateTime)
}

fn data(offset: i64, producer_id: i64) -> Batch {
    let attributes = Attributes::new(Compression::Lz4, TimestampType::CreateTime).transactional();
    let records = [Owned::text(offset, "a"), Owned::text(offset + 1, "b")];
    batch_with(settings(offset, producer_id, attributes), &records)
}

fn marker(offset: i64, producer_id: i64, code: i16) -> Batch {
    let mut record = Owned::text(offset, "");
    record.key = Some([0_i16.to_be_bytes(), code.to_be_bytes()].concat());
    record.value = Some([&0_i16.to_be_bytes()[..], &42_i32.to_be_bytes()].concat());
    batch_with(
        settings(offset, producer_id, plain().transactional().control()),
        &[record],
    )
}

fn verdicts(transactions: &[(i64, i64)], batches: &[Batch]) -> Vec<Verdict> {
    let transactions = transactions
        .iter()
        .map(|&(producer_id, first_offset)| AbortedTransaction {
            producer_id,
            first_offset,
        })
        .collect();
    let mut filter = AbortedFilter::new(transactions);
    batches
        .iter()
        .map(|batch| filter.judge(batch).unwrap())
        .collect()
}

use Verdict::{Aborted, Control, Keep};

#[test]
fn c016_commit_abort_commit_abort_keeps_the_committed_ones() {
    let batches = [
        data(0, 5),
        marker(2, 5, 1),
        data(3, 5),
        marker(5, 5, 0),
        data(6, 5),
        marker(8, 5, 1),
        data(9, 5),
        marker(11, 5, 0),
    ];
    let expected = [
        Keep, Control, Aborted, Control, Keep, Control, Aborted, Control,
    ];
    assert_eq!(verdicts(&[(5, 9), (5, 3)], &batches), expected);
}

#[test]
fn only_the_aborted_producer_is_dropped_while_others_write_between() {
    let batches = [
        data(0, 5),
        data(2, 6),
        data(4, 5),
        marker(6, 5, 0),
        data(7, 6),
        data(9, 5),
    ];
    assert_eq!(
        verdicts(&[(5, 0)], &batches),
        [Aborted, Keep, Aborted, Control, Keep, Keep]
    );
}

#[test]
fn an_answer_that_begins_inside_a_transaction_drops_its_rest() {
    // The list names the transaction by its first offset, before what was fetched.
    let batches = [data(50, 5), marker(52, 5, 0), data(53, 5)];
    assert_eq!(verdicts(&[(5, 10)], &batches), [Aborted, Control, Keep]);
}

#[test]
fn a_transaction_that_begins_within_a_batch_takes_effect_with_it() {
    // As in the consumer: compared with the batch's last offset.
    assert_eq!(verdicts(&[(5, 1)], &[data(0, 5)]), [Aborted]);
    assert_eq!(verdicts(&[(5, 2)], &[data(0, 5)]), [Keep]);
}

#[test]
fn data_outside_transactions_is_kept_even_with_an_aborted_id() {
    let idempotent = batch_with(settings(3, 5, plain()), &[Owned::text(3, "x")]);
    let nobody = batch_with(settings(4, -1, plain()), &[Owned::text(4, "x")]);
    assert_eq!(
        verdicts(&[(5, 0)], &[data(0, 5), idempotent, nobody]),
        [Aborted, Keep, Keep]
    );
}

#[test]
fn a_commit_marker_does_not_end_an_abort() {
    assert_eq!(
        verdicts(&[(5, 0)], &[data(0, 5), marker(2, 5, 1), data(3, 5)]),
        [Aborted, Control, Aborted],
    );
}

#[test]
fn without_a_list_all_data_is_kept() {
    assert_eq!(
        verdicts(&[], &[data(0, 5), marker(2, 5, 0)]),
        [Keep, Control]
    );
}

#[test]
fn markers_say_what_they_are() {
    let coordinator_epoch = Some(42);
    assert_eq!(
        control::parse(&marker(0, 5, 0)).unwrap(),
        control::Control::Abort { coordinator_epoch }
    );
    assert_eq!(
        control::parse(&marker(0, 5, 1)).unwrap(),
        control::Control::Commit { coordinator_epoch }
    );
    assert_eq!(
        control::parse(&marker(0, 5, 4)).unwrap(),
        control::Control::Other { code: 4 }
    );
    let error = control::parse(&data(0, 5)).unwrap_err();
    assert!(matches!(
        error,
        control::Error::NotControl { base_offset: 0 }
    ));
}

#[test]
fn a_marker_without_a_type_is_an_error() {
    for key in [None, Some(vec![0, 0, 1])] {
        let mut record = Owned::text(0, "");
        record.key = key;
        let batch = batch_with(settings(0, 5, plain().transactional().control()), &[record]);
        let error = AbortedFilter::new(Vec::new()).judge(&batch).unwrap_err();
        assert!(
            matches!(error, control::Error::Untyped { base_offset: 0 }),
            "{error}"
        );
    }
}
