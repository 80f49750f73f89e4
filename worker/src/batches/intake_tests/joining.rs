//! Tiny batches into one.

use super::*;

fn one(offset: i64) -> Ready {
    passed(Made::dense(offset, 1).batch())
}

fn passed(batch: Batch) -> Ready {
    let first = Offset(batch.header().base_offset);
    let next = Offset(batch.header().next_offset());
    ready(batch, Path::Passed, first, next)
}

fn join(line: &[Ready], limits: &TargetLimits) -> Option<(Ready, usize)> {
    join_tiny(line.iter(), limits)
}

#[test]
fn tiny_batches_become_one_with_all_that_they_stood_for() {
    let mut line: Vec<Ready> = [3, 4, 9].map(one).into();
    // Offsets without records follow the last.
    line[2].to = Offset(50);
    let (joined, count) = join(&line, &NO_LIMITS).expect("three are tiny");
    assert_eq!(count, 3);
    assert_eq!(show(&joined), (vec![3, 4, 9], 50, rewritten(Why::Tiny)));
    let times: Vec<i64> = records_of(&joined.batch)
        .iter()
        .map(|(_, time)| *time)
        .collect();
    assert_eq!(times, [time_of(3), time_of(4), time_of(9)]);
    assert_eq!(joined.timestamp_max, UnixMillis(time_of(9)));
}

#[test]
fn one_alone_stays_as_it_is() {
    assert!(join(&[], &NO_LIMITS).is_none());
    assert!(join(&[one(3)], &NO_LIMITS).is_none());
    let large = passed(Made::dense(1, 1).values_of(TINY_BYTES).batch());
    assert!(join(&[one(0), large.clone(), one(2)], &NO_LIMITS).is_none());
    assert!(join(&[large, one(2), one(3)], &NO_LIMITS).is_none());
}

#[test]
fn joining_ends_before_the_first_that_is_not_tiny() {
    let large = passed(Made::dense(2, 1).values_of(TINY_BYTES).batch());
    let (joined, count) = join(&[one(0), one(1), large, one(3)], &NO_LIMITS).expect("two are tiny");
    assert_eq!(count, 2);
    assert_eq!(show(&joined), (vec![0, 1], 2, rewritten(Why::Tiny)));
}

#[test]
fn joining_keeps_to_the_limit_of_the_target_and_to_its_own() {
    let line: Vec<Ready> = (0..20).map(one).collect();
    let limit = 200;
    let (joined, count) = join(&line, &up_to(limit)).expect("some fit");
    assert!(joined.batch.size_bytes() <= limit);
    assert!((2..20).contains(&count), "{count}");
    assert_eq!(joined.records as usize, count);
    assert_eq!(joined.to, line[count - 1].to);

    let line: Vec<Ready> = (0..200)
        .map(|offset| passed(Made::dense(offset, 1).values_of(TINY_BYTES - 100).batch()))
        .collect();
    let (joined, count) = join(&line, &NO_LIMITS).expect("some fit");
    assert!(joined.batch.size_bytes() <= join::JOINED_BYTES_MAX);
    assert!((50..70).contains(&count), "{count}");

    // Not even two fit.
    assert!(join(&[one(0), one(1)], &up_to(90)).is_none());
}

#[test]
fn what_unfolds_beyond_the_limit_is_not_joined_into_a_batch_too_large() {
    // Well compressed: small as it lies there, large as it unfolds.
    let line: Vec<Ready> = (0..10)
        .map(|offset| {
            let made = Made::dense(offset * 100, 100).compressed(Compression::Zstd);
            passed(made.batch())
        })
        .collect();
    let limit = line[0].batch.size_bytes() * 3;
    if let Some((joined, count)) = join(&line, &up_to(limit)) {
        assert!(joined.batch.size_bytes() <= limit);
        assert!(count < line.len());
        assert_eq!(joined.records as usize, count * 100);
    }
}

#[test]
fn one_that_only_looks_tiny_is_not_unfolded_and_goes_by_itself() {
    let swollen = |plain_bytes| {
        let time = kreplicator_batch::TimestampType::CreateTime;
        passed(inflating(2, plain_bytes, time))
    };
    let bomb = swollen(JOINED_PLAIN_BYTES_MAX);
    assert!(bomb.batch.size_bytes() < TINY_BYTES);
    let (joined, count) = join(&[one(0), one(1), bomb.clone()], &NO_LIMITS).expect("two are tiny");
    assert_eq!((show(&joined).0, count), (vec![0, 1], 2));
    assert!(join(&[bomb, one(3), one(4)], &NO_LIMITS).is_none());
    // Where all are what they look like.
    let line = [one(0), one(1), swollen(10_000)];
    assert_eq!(join(&line, &NO_LIMITS).map(|(_, count)| count), Some(3));
}

#[test]
fn c024_what_lies_before_a_damaged_batch_is_joined_without_it() {
    let bad = Batch::parse(damage(&Made::dense(2, 1).batch())).expect("a sound header");
    let line = [one(0), one(1), passed(bad.clone()), one(3)];
    let (joined, count) = join(&line, &NO_LIMITS).expect("two are sound");
    assert_eq!(count, 2);
    assert_eq!(show(&joined).0, [0, 1]);
    // The damaged one goes by itself, for the target to refuse.
    assert!(join(&[passed(bad), one(3), one(4)], &NO_LIMITS).is_none());
}
