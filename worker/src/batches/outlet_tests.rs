//! What goes into a request, and what answers mean.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::batches::{
    fetcher::tests::client,
    lane::Event,
    testkit::{Rig, RigMade},
};

/// A way to an outlet that is not there: what was handed over is given to the test.
pub(in crate::batches) fn fake() -> (OutletHandle, mpsc::UnboundedReceiver<Item>) {
    let (sender, items) = mpsc::unbounded_channel();
    (OutletHandle { items: sender }, items)
}

fn outlet() -> Outlet {
    Outlet::new(
        client(),
        BrokerId(1),
        Purpose::Produce(1),
        Duration::from_secs(1),
    )
    .0
}

fn lanes(count: i32) -> Vec<Arc<Lane>> {
    let made = |partition| RigMade {
        partition,
        ..RigMade::default()
    };
    (0..count)
        .map(|partition| Rig::with(made(partition)).lane)
        .collect()
}

fn item(lane: &Arc<Lane>, id: u64, bytes: usize) -> Item {
    Item {
        lane: Arc::clone(lane),
        run: 1,
        way: 1,
        id: BatchId(id),
        attempt: 1,
        topic_id: None,
        parts: [Bytes::from_static(&[0; 61]), vec![0; bytes - 61].into()],
    }
}

/// Partition and id of each item.
fn names(items: &[Item]) -> Vec<(i32, u64)> {
    let name = |item: &Item| (item.lane.target.partition.0, item.id.0);
    items.iter().map(name).collect()
}

#[test]
fn a_request_holds_one_batch_of_each_partition() {
    let lanes = lanes(2);
    let mut outlet = outlet();
    outlet.waiting.extend([
        item(&lanes[0], 0, 100),
        item(&lanes[0], 1, 100),
        item(&lanes[1], 0, 100),
        item(&lanes[0], 2, 100),
        item(&lanes[1], 1, 100),
    ]);
    let (items, request) = outlet.gather();
    assert_eq!(names(&items), [(0, 0), (1, 0)]);
    assert_eq!(request.record_bytes(), 200);
    assert_eq!(names(&outlet.gather().0), [(0, 1), (1, 1)]);
    assert_eq!(names(&outlet.gather().0), [(0, 2)]);
    assert!(outlet.waiting.is_empty());
}

#[test]
fn a_small_batch_does_not_overtake_a_large_one_of_its_partition() {
    let lanes = lanes(3);
    let mut outlet = outlet();
    let large = REQUEST_BYTES_MAX / 2 + 1;
    outlet.waiting.extend([
        item(&lanes[0], 0, large),
        item(&lanes[1], 0, large),
        item(&lanes[1], 1, 100),
        item(&lanes[2], 0, 100),
    ]);
    assert_eq!(names(&outlet.gather().0), [(0, 0), (2, 0)]);
    assert_eq!(names(&outlet.gather().0), [(1, 0)]);
    assert_eq!(names(&outlet.gather().0), [(1, 1)]);
}

#[test]
fn a_batch_larger_than_a_request_goes_alone() {
    let lanes = lanes(2);
    let mut outlet = outlet();
    outlet.waiting.extend([
        item(&lanes[0], 0, REQUEST_BYTES_MAX + 1),
        item(&lanes[1], 0, 100),
    ]);
    assert_eq!(names(&outlet.gather().0), [(0, 0)]);
    assert_eq!(names(&outlet.gather().0), [(1, 0)]);
}

#[test]
fn a_topic_that_was_made_anew_does_not_share_a_request_with_itself() {
    let lanes = lanes(3);
    let mut outlet = outlet();
    let of = |number: u128, item: Item| Item {
        topic_id: Some(TopicId::from_u128(number)),
        ..item
    };
    outlet.waiting.extend([
        of(1, item(&lanes[0], 0, 100)),
        of(2, item(&lanes[1], 0, 100)),
        of(2, item(&lanes[1], 1, 100)),
        of(1, item(&lanes[2], 0, 100)),
    ]);
    assert_eq!(names(&outlet.gather().0), [(0, 0), (2, 0)]);
    assert_eq!(names(&outlet.gather().0), [(1, 0)]);
    assert_eq!(names(&outlet.gather().0), [(1, 1)]);
}

/// A source batch of two records on its way.
fn under_way(rig: &Rig) -> Item {
    rig.fetch([&crate::batches::testkit::Made::dense(0, 2).batch()]);
    rig.sent().pop_front().expect("room for five")
}

/// The loss of a connection was told for the lane by its old way alone, and what waited by the new one
/// went with it: nobody sent or answered it any more.
#[test]
fn c027_what_came_by_a_newer_way_outlives_the_loss_of_an_older() {
    let rig = Rig::running(RigMade::default());
    let first = under_way(&rig);
    let mut outlet = outlet();
    let gone = Error::Disconnected {
        broker: "b".into(),
        cause: "reset".to_owned(),
    };
    let late = item(&rig.lane, first.id.0, 100);
    outlet.lost(vec![first], &gone);
    rig.connect();
    let again = rig.sent().pop_front().expect("sent again");
    assert_ne!(again.way, late.way);
    outlet.waiting.push_back(again);
    rig.events();

    outlet.lost(vec![late], &gone);
    assert_eq!(outlet.waiting.len(), 1, "it is still to be sent");
    outlet.unreachable(Vec::new(), &gone);
    assert!(outlet.waiting.is_empty());
    assert_eq!(rig.events(), [Event::AskTarget], "the lane was told");
}

#[test]
fn c012_a_missing_right_is_told_at_once_and_only_to_the_flow_that_asked() {
    let rig = Rig::running(RigMade::default());
    let sent = under_way(&rig);
    let denied = told(Code::TOPIC_AUTHORIZATION_FAILED, None);
    let old = item(&rig.lane, sent.id.0, 100);
    outlet().tell(&Item { run: 0, ..old }, &denied, &[]);
    assert_eq!(rig.events(), [], "of an earlier flow");
    outlet().tell(&sent, &denied, &[]);
    let events = rig.events();
    assert!(matches!(&events[..], [Event::Failed(_)]), "{events:?}");
}

#[test]
fn c024_a_damaged_batch_of_an_earlier_flow_is_nobodys_fault() {
    let rig = Rig::running(RigMade::default());
    let sent = under_way(&rig);
    let corrupt = told(Code::CORRUPT_MESSAGE, None);
    let parts = [Bytes::from_static(&[0; 61]), Bytes::new()];
    let late = Item {
        run: 0,
        parts: parts.clone(),
        ..item(&rig.lane, sent.id.0, 100)
    };
    outlet().tell(&late, &corrupt, &[]);
    assert_eq!(rig.events(), []);
    outlet().tell(&Item { parts, ..sent }, &corrupt, &[]);
    assert_eq!(
        rig.events(),
        [Event::Isolate],
        "what is before it is delivered first"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// C030: whoever waits longest is in the next request, so nobody waits for ever.
    #[test]
    fn c030_batches_leave_in_the_order_of_their_partition_and_the_longest_waiting_always(
        waiting in proptest::collection::vec((0_usize..6, 62_usize..900_000), 1..40),
    ) {
        let lanes = lanes(6);
        let mut outlet = outlet();
        let mut given = BTreeMap::<usize, u64>::new();
        for (lane, bytes) in &waiting {
            let id = given.entry(*lane).or_default();
            outlet.waiting.push_back(item(&lanes[*lane], *id, *bytes));
            *id += 1;
        }
        let mut left: BTreeMap<i32, u64> = BTreeMap::new();
        let mut count = 0;
        while let Some(longest) = outlet.waiting.front() {
            let longest = (longest.lane.target.partition.0, longest.id.0);
            let (items, request) = outlet.gather();
            let names = names(&items);
            prop_assert_eq!(names.first(), Some(&longest));
            prop_assert!(items.len() == 1 || request.record_bytes() <= REQUEST_BYTES_MAX);
            for (partition, id) in names {
                let next = left.entry(partition).or_default();
                prop_assert_eq!(id, *next);
                *next += 1;
                count += 1;
            }
        }
        prop_assert_eq!(count, waiting.len());
    }
}

fn told(code: Code, base_offset: Option<i64>) -> PartitionAnswer {
    PartitionAnswer {
        partition: lanes(1)[0].target.clone(),
        code,
        base_offset: base_offset.map(Offset),
        log_append_time: None,
        log_start: None,
        message: None,
        record_errors: Vec::new(),
        leader: None,
    }
}

#[test]
fn c028_each_code_of_a_broker_means_what_it_says_about_the_batch() {
    let acked = meaning(&told(Code::NONE, Some(7)));
    let base_offset = Offset(7);
    assert_eq!(acked, Answer::Acked { base_offset });
    let expected = [
        // Known, but nobody says where.
        (Code::NONE, Answer::Duplicate),
        (Code::DUPLICATE_SEQUENCE_NUMBER, Answer::Duplicate),
        (Code::OUT_OF_ORDER_SEQUENCE_NUMBER, Answer::OutOfOrder),
        (Code::INVALID_PRODUCER_EPOCH, Answer::OldEpoch),
        (Code::PRODUCER_FENCED, Answer::OldEpoch),
        (Code::UNKNOWN_PRODUCER_ID, Answer::UnknownProducer),
        // Not appended.
        (Code::CORRUPT_MESSAGE, Answer::Refused),
        (Code::NOT_ENOUGH_REPLICAS, Answer::Refused),
        (Code::UNKNOWN_TOPIC_OR_PARTITION, Answer::Refused),
        (Code::UNKNOWN_TOPIC_ID, Answer::Refused),
        (Code::INCONSISTENT_TOPIC_ID, Answer::Refused),
        (Code::THROTTLING_QUOTA_EXCEEDED, Answer::Refused),
        // Perhaps appended.
        (Code::UNKNOWN_SERVER_ERROR, Answer::Unsure),
        (Code::LEADER_NOT_AVAILABLE, Answer::Unsure),
        (Code::NOT_LEADER_OR_FOLLOWER, Answer::Unsure),
        (Code::REQUEST_TIMED_OUT, Answer::Unsure),
        (Code::REPLICA_NOT_AVAILABLE, Answer::Unsure),
        (Code::NETWORK_EXCEPTION, Answer::Unsure),
        (Code::NOT_ENOUGH_REPLICAS_AFTER_APPEND, Answer::Unsure),
        (Code::KAFKA_STORAGE_ERROR, Answer::Unsure),
        (Code::FENCED_LEADER_EPOCH, Answer::Unsure),
        (Code::CONCURRENT_TRANSACTIONS, Answer::Unsure),
        (Code(32_000), Answer::Unsure),
        // Never taken as it is.
        (Code::MESSAGE_TOO_LARGE, Answer::Terminal),
        (Code::INVALID_TOPIC_EXCEPTION, Answer::Terminal),
        (Code::RECORD_LIST_TOO_LARGE, Answer::Terminal),
        (Code::INVALID_REQUIRED_ACKS, Answer::Terminal),
        (Code::TOPIC_AUTHORIZATION_FAILED, Answer::Terminal),
        (Code::CLUSTER_AUTHORIZATION_FAILED, Answer::Terminal),
        (Code::INVALID_TIMESTAMP, Answer::Terminal),
        (Code::UNSUPPORTED_VERSION, Answer::Terminal),
        (Code::INVALID_REQUEST, Answer::Terminal),
        (Code::UNSUPPORTED_FOR_MESSAGE_FORMAT, Answer::Terminal),
        (Code::POLICY_VIOLATION, Answer::Terminal),
        (Code::INVALID_TXN_STATE, Answer::Terminal),
        (Code::UNSUPPORTED_COMPRESSION_TYPE, Answer::Terminal),
        (Code::INVALID_RECORD, Answer::Terminal),
    ];
    for (code, answer) in expected {
        assert_eq!(meaning(&told(code, None)), answer, "{code}");
        if code != Code::NONE {
            // An offset beside an error says nothing.
            assert_eq!(meaning(&told(code, Some(7))), answer, "{code}");
        }
    }
    // Whatever else a broker may say: only success acknowledges.
    for number in (-1..200).filter(|number| *number != 0) {
        let answer = meaning(&told(Code(number), Some(7)));
        assert!(!matches!(answer, Answer::Acked { .. }), "{number}");
    }
}

#[test]
fn c027_the_leader_is_looked_for_where_it_may_be_another() {
    for code in [
        Code::NOT_LEADER_OR_FOLLOWER,
        Code::LEADER_NOT_AVAILABLE,
        Code::UNKNOWN_TOPIC_OR_PARTITION,
        Code::UNKNOWN_TOPIC_ID,
        Code::FENCED_LEADER_EPOCH,
        Code::KAFKA_STORAGE_ERROR,
    ] {
        assert!(moves(code), "{code}");
    }
    for code in [
        Code::NOT_ENOUGH_REPLICAS,
        Code::REQUEST_TIMED_OUT,
        Code::MESSAGE_TOO_LARGE,
        Code::OUT_OF_ORDER_SEQUENCE_NUMBER,
        Code::INVALID_PRODUCER_EPOCH,
    ] {
        assert!(!moves(code), "{code}");
    }
}

#[test]
fn c024_a_batch_is_sound_when_its_checksum_fits() {
    let batch = crate::batches::testkit::Made::dense(0, 2).batch();
    let parts = |bytes: Bytes| [bytes.slice(..61), bytes.slice(61..)];
    assert!(is_sound(&parts(batch.bytes().clone())));
    assert!(!is_sound(&parts(crate::batches::testkit::damaged(&batch))));
    assert!(!is_sound(&[Bytes::new(), Bytes::new()]));
}

#[test]
fn c031_a_refusal_names_offset_setting_and_value() {
    let made = RigMade {
        limits: kreplicator_model::target_limits::TargetLimits {
            max_message_bytes: Some(1_000),
            ..Default::default()
        },
        ..RigMade::default()
    };
    let rig = Rig::with(made);
    let fault = refusal(&rig.lane, Offset(42), &told(Code::MESSAGE_TOO_LARGE, None));
    assert_eq!(fault.kind, Kind::Refused);
    for part in [
        "orders partition 0",
        "source offset 42",
        "max.message.bytes (now 1000)",
    ] {
        assert!(fault.cause.contains(part), "{fault}");
    }
    let fault = refusal(
        &rig.lane,
        Offset(42),
        &told(Code::TOPIC_AUTHORIZATION_FAILED, None),
    );
    assert_eq!(fault.kind, Kind::Target);
    assert!(fault.cause.contains("WRITE"), "{fault}");
}
