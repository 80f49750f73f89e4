//! What answers mean, and who is told.

use super::*;
use crate::batches::{
    fetcher::tests::client,
    lane::Event,
    outlet::tests::{item, under_way},
    testkit::{Rig, RigMade},
};

#[test]
fn c012_a_missing_right_is_told_at_once_and_only_to_the_flow_that_asked() {
    let rig = Rig::running(RigMade::default());
    let sent = under_way(&rig);
    let denied = told(Code::TOPIC_AUTHORIZATION_FAILED, None);
    let old = item(&rig.lane, sent.id.0, 100);
    tell(&client(), &Item { run: 0, ..old }, &denied, &[]);
    assert_eq!(rig.events(), [], "of an earlier flow");
    tell(&client(), &sent, &denied, &[]);
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
    tell(&client(), &late, &corrupt, &[]);
    assert_eq!(rig.events(), []);
    tell(&client(), &Item { parts, ..sent }, &corrupt, &[]);
    assert_eq!(
        rig.events(),
        [Event::Isolate],
        "what is before it is delivered first"
    );
}

fn told(code: Code, base_offset: Option<i64>) -> PartitionAnswer {
    PartitionAnswer {
        partition: Rig::new().lane.target.clone(),
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
fn c024_a_damaged_batch_names_topic_partition_and_offset() {
    let rig = Rig::new();
    let fault = damaged(&rig.lane, Offset(42));
    assert_eq!(fault.kind, Kind::Source);
    for part in ["orders", "partition 0", "source offset 42", "damaged"] {
        assert!(fault.cause.contains(part), "{fault}");
    }
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
    let too_large = told(Code::MESSAGE_TOO_LARGE, None);
    let fault = refusal(&rig.lane, Some(Offset(42)), &too_large);
    assert_eq!(fault.kind, Kind::Refused);
    for part in [
        "orders partition 0",
        "source offset 42",
        "max.message.bytes (now 1000)",
    ] {
        assert!(fault.cause.contains(part), "{fault}");
    }
    let denied = told(Code::TOPIC_AUTHORIZATION_FAILED, None);
    let fault = refusal(&rig.lane, None, &denied);
    assert_eq!(fault.kind, Kind::Target);
    assert_eq!(
        fault.cause,
        "target topic orders partition 0 refuses all records: the user lacks the permission WRITE; grant it \
         on the topic",
        "no record is to blame"
    );
}
