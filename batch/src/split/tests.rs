use proptest::prelude::*;

use super::*;
use crate::codec::Compression;
use crate::testkit::{Owned, any_compression, any_records, batch_of};

fn two() -> (Batch, Batch) {
    let first = batch_of(
        Compression::None,
        &[Owned::text(3, "one"), Owned::text(4, "two")],
    );
    let second = batch_of(Compression::Zstd, &[Owned::text(9, "three")]);
    (first, second)
}

fn joined(parts: &[&[u8]]) -> Bytes {
    parts.concat().into()
}

#[test]
fn batches_come_in_order_and_share_the_answers_memory() {
    let (first, second) = two();
    let answer = joined(&[first.bytes(), second.bytes()]);
    let found: Vec<Entry> = entries(answer.clone()).map(Result::unwrap).collect();
    assert_eq!(found, [Entry::Batch(first.clone()), Entry::Batch(second)]);
    let Entry::Batch(found) = &found[1] else {
        panic!("a batch")
    };
    assert_eq!(
        found.bytes().as_ptr(),
        answer[first.size_bytes()..].as_ptr()
    );
}

#[test]
fn wherever_the_answer_is_cut_off_whole_batches_come_and_the_rest_is_told() {
    let (first, second) = two();
    let answer = joined(&[first.bytes(), second.bytes()]);
    let first_bytes = first.size_bytes();
    for cut in first_bytes + 1..answer.len() {
        let found: Vec<Entry> = entries(answer.slice(..cut)).map(Result::unwrap).collect();
        let bytes_have = cut - first_bytes;
        let bytes_needed = (bytes_have >= OVERHEAD_BYTES).then_some(second.size_bytes());
        let partial = Entry::Partial(Partial {
            bytes_have,
            bytes_needed,
        });
        assert_eq!(
            found,
            [Entry::Batch(first.clone()), partial],
            "cut at {cut}"
        );
    }
}

#[test]
fn an_empty_answer_has_nothing() {
    assert_eq!(entries(Bytes::new()).count(), 0);
}

#[test]
fn c024_a_broken_batch_is_placed_and_the_next_one_still_comes() {
    let (first, second) = two();
    let mut broken = first.bytes().to_vec();
    broken[22] = 7;
    let mut walk = entries(joined(&[second.bytes(), &broken, second.bytes()]));
    assert_eq!(walk.next().unwrap().unwrap(), Entry::Batch(second.clone()));
    let error = walk.next().unwrap().unwrap_err();
    let Error::Batch {
        position, bytes, ..
    } = error
    else {
        panic!("{error}")
    };
    assert_eq!((position, bytes), (second.size_bytes(), first.size_bytes()));
    assert_eq!(walk.next().unwrap().unwrap(), Entry::Batch(second));
    assert!(walk.next().is_none());
}

#[test]
fn an_impossible_length_ends_the_walk() {
    for length in [-1, 0, 13, i32::MIN] {
        let (first, second) = two();
        let mut broken = first.bytes().to_vec();
        broken[8..12].copy_from_slice(&length.to_be_bytes());
        let mut walk = entries(joined(&[&broken, second.bytes()]));
        let error = walk.next().unwrap().unwrap_err();
        assert!(
            matches!(
                error,
                Error::Length {
                    offset: 3,
                    position: 0,
                    ..
                }
            ),
            "{error}"
        );
        assert!(walk.next().is_none());
    }
}

#[test]
fn a_huge_length_is_told_not_allocated() {
    let (first, _) = two();
    let mut huge = first.bytes().to_vec();
    huge[8..12].copy_from_slice(&i32::MAX.to_be_bytes());
    let Some(Ok(Entry::Partial(partial))) = entries(huge.into()).next() else {
        panic!("partial")
    };
    assert_eq!(partial.bytes_needed, Some(12 + i32::MAX as usize));
}

proptest! {
    #[test]
    fn random_bytes_are_accounted_for_without_a_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..400),
    ) {
        let total = bytes.len();
        let mut seen = 0;
        for entry in entries(bytes.into()) {
            match entry {
                Ok(Entry::Batch(batch)) => seen += batch.size_bytes(),
                Ok(Entry::Message(message)) => seen += message.size_bytes(),
                Ok(Entry::Partial(partial)) => seen += partial.bytes_have,
                Err(Error::Batch { bytes, .. } | Error::Message { bytes, .. }) => seen += bytes,
                Err(Error::Length { position, .. }) => {
                    prop_assert_eq!(position, seen);
                    seen = total;
                }
            }
        }
        prop_assert_eq!(seen, total);
    }

    #[test]
    fn joined_batches_come_apart_again(
        batches in proptest::collection::vec((any_compression(), any_records()), 1..4),
    ) {
        let batches: Vec<Batch> =
            batches.iter().map(|(codec, records)| batch_of(*codec, records)).collect();
        let all: Vec<&[u8]> = batches.iter().map(|batch| &batch.bytes()[..]).collect();
        let found: Vec<Entry> = entries(joined(&all)).map(Result::unwrap).collect();
        prop_assert_eq!(found, batches.into_iter().map(Entry::Batch).collect::<Vec<_>>());
    }
}
