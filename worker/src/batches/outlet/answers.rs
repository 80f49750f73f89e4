//! What a broker's answer to a batch means, and whom it is told to.

use std::time::Duration;

use bytes::Bytes;
use kreplicator_batch::Batch;
use kreplicator_model::{exact::Answer, ids::Offset};
use kreplicator_wire::{
    cluster::ClusterClient,
    code::{Class, Code},
    produce::PartitionAnswer,
    topic::{Node, TopicPartition},
};
use tracing::debug;

use super::Item;
use crate::{
    batches::lane::{Lane, Side},
    fault::{Fault, Kind},
};

/// Tells the lane of a batch what the target has said to it. `nodes`: where leaders named there listen.
pub(super) fn tell(client: &ClusterClient, item: &Item, told: &PartitionAnswer, nodes: &[Node]) {
    let lane = &item.lane;
    let at = &lane.target;
    let answer = meaning(told);
    let mut leader_is_other = false;
    if told.code != Code::NONE {
        debug!(partition = %at, code = %told.code, message = told.message, "batch refused");
        leader_is_other = moves(told.code);
        if leader_is_other {
            let is_told = told
                .leader
                .is_some_and(|leader| client.note_leader(at, leader, nodes));
            if !is_told {
                client.mark_stale(&at.topic);
            }
        }
    }
    if told.code == Code::CORRUPT_MESSAGE && !is_sound(&item.parts) {
        lane.refused(item.run, item.id, None, |offset| damaged(lane, offset));
    } else if answer == Answer::Terminal && !is_about_a_record(told.code) {
        lane.fail_run(item.run, refusal(lane, None, told));
    } else if answer == Answer::Terminal {
        let index = told.record_errors.first().map(|error| error.index);
        let index = index.and_then(|index| usize::try_from(index).ok());
        lane.refused(item.run, item.id, index, |offset| {
            refusal(lane, Some(offset), told)
        });
    } else {
        if matches!(answer, Answer::Refused | Answer::Unsure) && !leader_is_other {
            let cause = format!("target partition {at} takes no records: {}", told.code);
            lane.trouble(Side::Target, Some(&cause));
        }
        let sent = (item.id, item.attempt);
        lane.answered(item.run, item.way, sent, answer, leader_is_other);
    }
}

/// What an answer means to the sender.
pub(super) fn meaning(told: &PartitionAnswer) -> Answer {
    match (told.code, told.base_offset) {
        (Code::NONE, Some(base_offset)) => Answer::Acked { base_offset },
        (Code::NONE, None) | (Code::DUPLICATE_SEQUENCE_NUMBER, _) => Answer::Duplicate,
        (Code::OUT_OF_ORDER_SEQUENCE_NUMBER, _) => Answer::OutOfOrder,
        (Code::INVALID_PRODUCER_EPOCH | Code::PRODUCER_FENCED, _) => Answer::OldEpoch,
        (Code::UNKNOWN_PRODUCER_ID, _) => Answer::UnknownProducer,
        // Checked before anything is appended.
        (
            Code::NOT_ENOUGH_REPLICAS
            | Code::CORRUPT_MESSAGE
            | Code::UNKNOWN_TOPIC_OR_PARTITION
            | Code::UNKNOWN_TOPIC_ID
            | Code::INCONSISTENT_TOPIC_ID
            | Code::THROTTLING_QUOTA_EXCEEDED,
            _,
        ) => Answer::Refused,
        (code, _) => match code.class() {
            Class::Retryable | Class::Refresh => Answer::Unsure,
            Class::Terminal | Class::Fenced => Answer::Terminal,
        },
    }
}

/// Whether the partition is to be looked for at another broker.
pub(super) fn moves(code: Code) -> bool {
    code.class() == Class::Refresh
}

/// Whether a batch is as its checksum says: what is not was damaged before it came to us, or here.
pub(super) fn is_sound([header, payload]: &[Bytes; 2]) -> bool {
    Batch::parse([&header[..], &payload[..]].concat().into())
        .is_ok_and(|batch| batch.verify().is_ok())
}

fn damaged(lane: &Lane, offset: Offset) -> Fault {
    Fault::damaged(&lane.source.topic, lane.source.partition, offset)
}

/// Whether a refusal for good is about a record of the batch. Every other would meet each record
/// alike: no need to find out which.
fn is_about_a_record(code: Code) -> bool {
    matches!(
        code,
        Code::MESSAGE_TOO_LARGE
            | Code::RECORD_LIST_TOO_LARGE
            | Code::INVALID_TIMESTAMP
            | Code::INVALID_RECORD
    )
}

/// The fault behind a record that will never be taken, or, without an offset, behind a partition that takes
/// none.
pub(super) fn refusal(lane: &Lane, offset: Option<Offset>, told: &PartitionAnswer) -> Fault {
    let TopicPartition { topic, partition } = &lane.target;
    let limits = &lane.spec.limits;
    let now =
        |value: Option<String>| value.map_or(String::new(), |value| format!(" (now {value})"));
    let millis =
        |limit: Option<Duration>| now(limit.map(|limit| format!("{} ms", limit.as_millis())));
    let code = told.code;
    let (kind, what) = match code {
        Code::MESSAGE_TOO_LARGE | Code::RECORD_LIST_TOO_LARGE => {
            let limit = now(limits.max_message_bytes.map(|limit| limit.to_string()));
            let what = format!("too large; raise its max.message.bytes{limit}");
            (Kind::Refused, what)
        }
        Code::INVALID_TIMESTAMP => {
            let before = millis(limits.timestamp_before_max);
            let after = millis(limits.timestamp_after_max);
            let what = format!(
                "its timestamp is too far from now; widen the topic's \
                 message.timestamp.before.max.ms{before} or message.timestamp.after.max.ms{after}"
            );
            (Kind::Refused, what)
        }
        Code::TOPIC_AUTHORIZATION_FAILED | Code::CLUSTER_AUTHORIZATION_FAILED => {
            let what = "the user lacks the permission WRITE; grant it on the topic".to_owned();
            (Kind::Target, what)
        }
        code => {
            let words = told
                .record_errors
                .first()
                .and_then(|error| error.message.clone());
            let words = words.or_else(|| told.message.clone());
            let words = words.map_or(String::new(), |words| format!(" ({words})"));
            let what = match code {
                Code::INVALID_RECORD => {
                    "the record is not accepted by the topic (a compacted topic takes no record without \
                     key); give it a key, or change cleanup.policy"
                        .to_owned()
                }
                other => other.to_string(),
            };
            (Kind::Refused, format!("{what}{words}"))
        }
    };
    let refused = offset.map_or("all records".to_owned(), |offset| {
        format!("source offset {offset}")
    });
    Fault::new(
        kind,
        format!("target topic {topic} partition {partition} refuses {refused}: {what}"),
    )
}

#[cfg(test)]
#[path = "answers_tests.rs"]
mod tests;
