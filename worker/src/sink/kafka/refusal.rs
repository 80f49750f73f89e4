//! What the target's refusals mean, in words that name topic, partition, offset, setting and remedy.

use kreplicator_kafka::error::explain;
use kreplicator_model::{ids::Offset, target_limits::TargetLimits};
use rdkafka::types::RDKafkaErrorCode as Code;

use crate::fault::{Fault, Kind};

/// Where a record was going.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    /// Topic on the target.
    pub(super) topic: &'a str,
    /// Partition.
    pub(super) partition: i32,
    /// What the topic refuses, as far as was known.
    pub(super) limits: TargetLimits,
}

/// The fault behind a record that was not delivered.
pub(super) fn fault(place: Place<'_>, offset: Offset, payload_bytes: u64, code: Code) -> Fault {
    let Place {
        topic,
        partition,
        limits,
    } = place;
    let record = format!("source offset {offset} ({payload_bytes} bytes)");
    match code {
        Code::MessageSizeTooLarge | Code::InvalidMessageSize | Code::MessageBatchTooLarge => {
            let limit = limits
                .max_message_bytes
                .map_or(String::new(), |limit| format!(" (now {limit})"));
            Fault::new(
                Kind::Refused,
                format!(
                    "target topic {topic} partition {partition} refuses {record}: too large; \
                     raise its max.message.bytes{limit}"
                ),
            )
        }
        Code::InvalidTimestamp => Fault::new(
            Kind::Refused,
            format!(
                "target topic {topic} partition {partition} refuses {record}: {}",
                timestamp_settings(limits)
            ),
        ),
        Code::InvalidRecord => Fault::new(
            Kind::Refused,
            format!(
                "target topic {topic} partition {partition} refuses {record}: {}",
                explain(code)
            ),
        ),
        Code::PurgeQueue | Code::PurgeInflight | Code::Fatal => Fault::new(
            Kind::Target,
            format!(
                "the producer for target topic {topic} partition {partition} was replaced; \
                 reading again from what was acknowledged"
            ),
        ),
        Code::UnknownTopic | Code::UnknownTopicOrPartition | Code::UnknownPartition => Fault::new(
            Kind::Target,
            format!(
                "target topic {topic} has no partition {partition}: the topic or the partition was \
                 deleted or never made; create it"
            ),
        ),
        Code::TopicAuthorizationFailed => Fault::new(
            Kind::Target,
            format!(
                "target topic {topic}: the user lacks the permission WRITE; grant it on the topic"
            ),
        ),
        other => Fault::new(
            Kind::Target,
            format!(
                "target topic {topic} partition {partition} did not take {record}: {}",
                explain(other)
            ),
        ),
    }
}

/// A timestamp of 0 cannot be sent: the library takes it for "now" (C022).
pub(super) fn zero_timestamp(place: Place<'_>, offset: Offset) -> Fault {
    Fault::new(
        Kind::Refused,
        format!(
            "source offset {offset} of partition {} has timestamp 0 (1970-01-01), which the client \
             library would send as the present time; set message.timestamp.type=LogAppendTime on \
             target topic {} to accept that, or leave the topic out",
            place.partition, place.topic
        ),
    )
}

fn timestamp_settings(limits: TargetLimits) -> String {
    let mut text = "its timestamp is too far from now; widen the topic's".to_owned();
    let mut add = |setting: &str, limit: Option<std::time::Duration>| {
        text.push(' ');
        text.push_str(setting);
        if let Some(limit) = limit {
            text.push_str(&format!(" (now {} ms)", limit.as_millis()));
        }
    };
    add(
        "message.timestamp.before.max.ms",
        limits.timestamp_before_max,
    );
    add(
        "or message.timestamp.after.max.ms",
        limits.timestamp_after_max,
    );
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn place(limits: TargetLimits) -> Place<'static> {
        Place {
            topic: "east.orders",
            partition: 3,
            limits,
        }
    }

    fn text(limits: TargetLimits, code: Code) -> String {
        fault(place(limits), Offset(42), 5_000_000, code).cause
    }

    #[test]
    fn c031_a_record_that_is_too_large_names_the_setting_and_its_value() {
        let limits = TargetLimits {
            max_message_bytes: Some(1_048_588),
            ..TargetLimits::default()
        };
        let text = text(limits, Code::MessageSizeTooLarge);
        for part in [
            "east.orders",
            "partition 3",
            "offset 42",
            "5000000",
            "max.message.bytes",
            "1048588",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn c022_a_timestamp_that_is_refused_names_both_settings() {
        let limits = TargetLimits {
            timestamp_before_max: Some(Duration::from_secs(86_400)),
            ..TargetLimits::default()
        };
        let text = text(limits, Code::InvalidTimestamp);
        for part in [
            "offset 42",
            "message.timestamp.before.max.ms (now 86400000 ms)",
            "message.timestamp.after.max.ms",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn every_other_code_has_a_cause_with_the_place() {
        for code in [
            Code::InvalidRecord,
            Code::TopicAuthorizationFailed,
            Code::UnknownTopicOrPartition,
            Code::NotEnoughReplicas,
            Code::PurgeInflight,
        ] {
            let text = text(TargetLimits::default(), code);
            assert!(text.contains("east.orders"), "{text}");
        }
    }
}
