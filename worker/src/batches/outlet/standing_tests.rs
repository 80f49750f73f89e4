//! When partitions are slow, and when they no longer are.

use kreplicator_model::ids::{Partition, TopicName};

use super::*;

fn at(partition: i32) -> TopicPartition {
    let topic = TopicName::new("orders").expect("legal");
    TopicPartition::new(topic, Partition(partition))
}

/// Acknowledgements at the first attempt until it is well again.
fn proof(standing: &mut Standing, now: Instant) -> u32 {
    let mut count = 1;
    while standing.answered(&at(0), Code::NONE, 1, now).is_none() {
        assert!(standing.is_slow(&at(0)));
        count += 1;
    }
    assert!(!standing.is_slow(&at(0)));
    count
}

#[tokio::test(start_paused = true)]
async fn c027_who_is_slow_again_and_again_has_to_prove_more_each_time() {
    let mut standing = Standing::default();
    let now = Instant::now();
    for expected in [2, 4, 8, 16, 32, 64, 64, 64] {
        let change = standing.answered(&at(0), Code::REQUEST_TIMED_OUT, 1, now);
        assert_eq!(change, Some(Change::Slow));
        // Once more before it is well: the same time.
        assert_eq!(
            standing.answered(&at(0), Code::REQUEST_TIMED_OUT, 2, now),
            None
        );
        assert_eq!(proof(&mut standing, now), expected);
    }
    // Its past is forgotten when something is noted of another.
    let later = now + MEMORY;
    standing.answered(&at(1), Code::REQUEST_TIMED_OUT, 1, later);
    standing.answered(&at(0), Code::REQUEST_TIMED_OUT, 1, later);
    assert_eq!(proof(&mut standing, later), 2);
    assert!(standing.is_slow(&at(1)));
}

#[tokio::test(start_paused = true)]
async fn c027_only_what_is_acknowledged_at_once_is_a_proof() {
    let mut standing = Standing::default();
    let now = Instant::now();
    assert_eq!(standing.answered(&at(0), Code::NONE, 1, now), None);
    standing.answered(&at(0), Code::REQUEST_TIMED_OUT, 1, now);
    for (code, attempt) in [
        (Code::NONE, 2),
        (Code::NOT_ENOUGH_REPLICAS, 1),
        (Code::NOT_LEADER_OR_FOLLOWER, 1),
    ] {
        for _ in 0..9 {
            assert_eq!(standing.answered(&at(0), code, attempt, now), None);
        }
    }
    assert!(standing.is_slow(&at(0)));
    assert_eq!(proof(&mut standing, now), 2);
}

#[tokio::test(start_paused = true)]
async fn c027_a_refusal_that_makes_nobody_wait_makes_nobody_slow() {
    let mut standing = Standing::default();
    let now = Instant::now();
    for code in [
        Code::NOT_ENOUGH_REPLICAS,
        Code::NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        Code::NOT_LEADER_OR_FOLLOWER,
    ] {
        assert_eq!(standing.answered(&at(0), code, 1, now), None, "{code}");
    }
    standing.answered(&at(0), Code::REQUEST_TIMED_OUT, 1, now);
    standing.excuse(&at(0));
    assert!(!standing.is_slow(&at(0)));
}

#[test]
fn a_broker_that_is_usually_slow_gets_more_time_within_limits() {
    let seconds = Duration::from_secs;
    let mut pace = Pace::new(seconds(1), seconds(10));
    assert_eq!(pace.patience(), seconds(1));
    (0..50).for_each(|_| pace.acknowledged(Duration::from_millis(5)));
    assert_eq!(pace.patience(), seconds(1));
    (0..50).for_each(|_| pace.acknowledged(seconds(2)));
    let patience = pace.patience();
    assert!(
        patience > seconds(7) && patience <= seconds(8),
        "{patience:?}"
    );
    (0..50).for_each(|_| pace.acknowledged(seconds(9)));
    assert_eq!(pace.patience(), seconds(10));
    assert_eq!(Pace::new(seconds(20), seconds(10)).patience(), seconds(10));
}
