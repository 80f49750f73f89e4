use futures::FutureExt as _;
use kreplicator_batch::TimestampType;
use kreplicator_model::ids::{Partition, TopicName};
use kreplicator_wire::{cluster::offsets::Isolation, topic::TopicPartition};

use super::*;
use crate::batches::{
    scan::AT_A_TIME,
    testkit::{FakeBroker, Made, inflating},
};

const MIB: u64 = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(2);

fn stretch(from: i64, to: i64) -> Stretch {
    Stretch {
        at: TopicPartition::new(TopicName::new("orders").expect("legal"), Partition(0)),
        from: Offset(from),
        to: Offset(to),
        isolation: Isolation::Committed,
    }
}

#[test]
fn what_a_header_claims_is_counted_and_never_listed() {
    let batch = Made::boasting(10, i32::MAX);
    let end = 10 + i64::from(i32::MAX);
    let records = u64::from(i32::MAX.unsigned_abs());
    let told = |number| told(&batch, &stretch(0, end), number).expect("not opened");
    let wanted = None;
    assert_eq!(told(0), Within { records, wanted });
    assert_eq!(told(1).wanted, Some(10));
    assert_eq!(told(records).wanted, Some(end - 1));
    assert_eq!(told(records + 1).wanted, None);
}

#[test]
fn a_batch_that_reaches_over_the_stretch_is_read_for_what_lies_within() {
    let batch = Made::dense(10, 5).batch();
    assert_eq!(told(&batch, &stretch(12, 14), 2), None);
    let counted = |number| count_in(&batch, &(12..14), number, 1 << 20).expect("sound");
    let within = |wanted| Within { records: 2, wanted };
    assert_eq!(counted(2), within(Some(13)));
    assert_eq!(counted(3), within(None));
}

#[tokio::test]
async fn c107_however_many_have_to_count_few_read_at_a_time_and_in_the_fetchers_part() {
    let budget = Budget::new(8 * MIB);
    let broker = FakeBroker::start().await;
    let (client, stretch) = (broker.client(), stretch(0, 10));
    let scans = Scans::new(Arc::clone(&budget));
    let mut reading = Vec::new();
    for _ in 0..AT_A_TIME {
        reading.push(scans.begin(&client, &stretch, PATIENCE).await);
    }
    assert!(budget.used_bytes() <= 2 * MIB, "{}", budget.used_bytes());
    let asked = reading.iter().map(|scan| u64::try_from(scan.bytes_max()));
    let asked: u64 = asked.map(|bytes| bytes.expect("positive")).sum();
    assert!(asked <= budget.used_bytes(), "{asked}");
    let mut next = Box::pin(scans.begin(&client, &stretch, PATIENCE));
    assert!(next.as_mut().now_or_never().is_none());
    reading.pop();
    drop(next.await);
    drop(reading);
    assert_eq!(budget.used_bytes(), 0);
}

#[tokio::test(start_paused = true)]
async fn c107_what_has_to_be_opened_waits_for_memory_and_names_the_budget_when_there_is_none() {
    let budget = Budget::new(64 * MIB);
    let broker = FakeBroker::start().await;
    let (client, stretch) = (broker.client(), stretch(12, 14));
    let scans = Scans::new(Arc::clone(&budget));
    let scan = scans.begin(&client, &stretch, PATIENCE).await;
    let deadline = || Instant::now() + PATIENCE;

    let never = scan
        .memory(60 * MIB, deadline())
        .await
        .expect_err("more than there is");
    let Unread::Failed(fault) = never else {
        panic!("{never:?} is tried again");
    };
    assert_eq!(fault.kind, Kind::Memory);
    assert!(fault.cause.contains("67108864 bytes"), "{}", fault.cause);

    let mut other = budget.share();
    while other.take(MIB) == Grant::Granted {}
    let most = other.most();
    let waits = scan.memory(most, deadline()).await;
    assert!(matches!(waits, Err(Unread::Late(_))), "{waits:?}");

    let (opened, ()) = tokio::join!(scan.memory(most, deadline()), async {
        sleep(PATIENCE / 2).await;
        // Its answer is still there.
        assert_eq!(scans.turns.available_permits(), AT_A_TIME - 1);
        drop(other);
    });
    let loan = opened.expect("there is room by now");
    assert!(budget.used_bytes() >= most);
    drop(loan);
    drop(scan);
    assert_eq!(budget.used_bytes(), 0);
}

#[tokio::test]
async fn a_batch_that_unfolds_further_than_expected_is_opened_with_more_memory() {
    let budget = Budget::new(64 * MIB);
    let broker = FakeBroker::start().await;
    let (client, stretch) = (broker.client(), stretch(10, 11));
    let scans = Scans::new(Arc::clone(&budget));
    let scan = scans.begin(&client, &stretch, PATIENCE).await;
    let batch = inflating(10, 400_000, TimestampType::CreateTime);
    assert!((batch.size_bytes() as u64) * UNFOLDS < 400_000);
    let within = scan.opened(&batch, 1).await.expect("sound");
    assert_eq!((within.records, within.wanted), (1, Some(10)));
    drop(scan);
    assert_eq!(budget.used_bytes(), 0);
}

/// What is expected of a batch may be more than there is, and what it takes less.
#[tokio::test]
async fn c107_a_batch_is_opened_with_what_the_budget_has_before_more_is_called_for() {
    let budget = Budget::new(256 << 10);
    let broker = FakeBroker::start().await;
    let (client, stretch) = (broker.client(), stretch(0, 5));
    let scans = Scans::new(Arc::clone(&budget));
    let scan = scans.begin(&client, &stretch, PATIENCE).await;
    let poor = Made::dense(0, 10).values_of(1_000);
    let poor = poor.compressed(Compression::Lz4).batch();
    let grown = |bytes| inflating(0, bytes, TimestampType::CreateTime);
    let expected = poor.size_bytes() as u64 * UNFOLDS;
    assert!(COPIES * expected > budget.limit_bytes() / 2, "{expected}");
    let within = scan.opened(&poor, 0).await.expect("it fits");
    assert_eq!(within.records, 5);

    let never = scan.opened(&grown(1 << 20), 0).await;
    let Err(Unread::Failed(fault)) = never else {
        panic!("{never:?}");
    };
    assert_eq!(fault.kind, Kind::Memory, "{fault}");
    assert!(fault.cause.contains("raise it"), "{fault}");
    drop(scan);
    assert_eq!(budget.used_bytes(), 0);
}

#[tokio::test(start_paused = true)]
async fn who_waits_lets_others_go_first() {
    let broker = FakeBroker::start().await;
    let (client, stretch) = (broker.client(), stretch(0, 10));
    let scans = Scans::new(Budget::new(64 * MIB));
    let mut reading = Vec::new();
    for _ in 0..AT_A_TIME {
        reading.push(scans.begin(&client, &stretch, PATIENCE).await);
    }
    let mut stuck = reading.pop().expect("there are some");
    let other = async {
        let other = scans.begin(&client, &stretch, PATIENCE).await;
        // One that lets others go first has no part of what all have.
        let turn = other.turn.as_ref().expect("it is its turn");
        assert_eq!(turn.part.bytes(), 4 * MIB);
    };
    let ((), ()) = tokio::join!(stuck.give_way(), other);
    assert!(stuck.turn.is_some());
}
