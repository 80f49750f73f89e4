//! Error codes of brokers, sorted once: callers branch on [`Class`], people read the text.
//!
//! # Source
//! `org.apache.kafka.common.protocol.Errors` of Kafka 4.3.1 for numbers and names.

use std::fmt;

/// What a caller does about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// The same call may succeed later, without anybody doing anything.
    Retryable,
    /// As [`Class::Retryable`], once leaders or coordinators have been looked up anew.
    Refresh,
    /// Somebody has to change something first: settings, rights, the topic, the record.
    Terminal,
    /// Somebody else took over: stop.
    Fenced,
}

/// An error code of a broker's answer; 0 is none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Code(pub i16);

macro_rules! codes {
    ($($name:ident = $code:literal, $class:ident, $text:literal;)*) => {
        impl Code {
            $(
                #[doc = concat!("`", stringify!($name), "`: ", $text, ".")]
                pub const $name: Self = Self($code);
            )*

            /// Kafka's name of it; `UNKNOWN` for a code that this table lacks.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self.0 {
                    $($code => stringify!($name),)*
                    _ => "UNKNOWN",
                }
            }

            /// What it means and what to do, in words.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self.0 {
                    $($code => $text,)*
                    _ => "the broker answered with a code that is not known here; see the broker's log",
                }
            }

            /// What to do about it. Codes not in the table are retryable: a newer broker may have
            /// reasons of its own, and giving up is the worse mistake.
            #[must_use]
            pub const fn class(self) -> Class {
                match self.0 {
                    $($code => Class::$class,)*
                    _ => Class::Retryable,
                }
            }
        }
    };
}

codes! {
    NONE = 0, Retryable, "no error";
    UNKNOWN_SERVER_ERROR = -1, Retryable, "the broker failed in a way it does not tell; see its log";
    OFFSET_OUT_OF_RANGE = 1, Terminal, "the offset is not in the log (deleted, or not written yet); pick another";
    CORRUPT_MESSAGE = 2, Retryable, "the checksum of the records is wrong; read them again, and if it stays, the log is damaged";
    UNKNOWN_TOPIC_OR_PARTITION = 3, Refresh, "the broker does not know the topic or partition; create it or check its name";
    INVALID_FETCH_SIZE = 4, Terminal, "the size asked for is not legal";
    LEADER_NOT_AVAILABLE = 5, Refresh, "the partition has no leader at the moment";
    NOT_LEADER_OR_FOLLOWER = 6, Refresh, "the partition is led by another broker now";
    REQUEST_TIMED_OUT = 7, Retryable, "the broker did not get it done in time";
    BROKER_NOT_AVAILABLE = 8, Refresh, "the broker is not available";
    REPLICA_NOT_AVAILABLE = 9, Refresh, "the replica is not available at this broker";
    MESSAGE_TOO_LARGE = 10, Terminal, "the batch is larger than max.message.bytes of the topic; raise it or split the batch";
    OFFSET_METADATA_TOO_LARGE = 12, Terminal, "the metadata string is longer than offset.metadata.max.bytes";
    NETWORK_EXCEPTION = 13, Refresh, "the broker lost the connection";
    COORDINATOR_LOAD_IN_PROGRESS = 14, Retryable, "the coordinator is loading";
    COORDINATOR_NOT_AVAILABLE = 15, Refresh, "the coordinator is not available";
    NOT_COORDINATOR = 16, Refresh, "another broker is the coordinator now";
    INVALID_TOPIC_EXCEPTION = 17, Terminal, "the name of the topic is not legal, or the topic is internal";
    RECORD_LIST_TOO_LARGE = 18, Terminal, "the batch is larger than a segment of the log; raise segment.bytes or split the batch";
    NOT_ENOUGH_REPLICAS = 19, Retryable, "fewer replicas are in sync than min.insync.replicas asks for";
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20, Retryable, "written, but fewer replicas are in sync than min.insync.replicas asks for";
    INVALID_REQUIRED_ACKS = 21, Terminal, "the acknowledgement asked for is not legal";
    ILLEGAL_GENERATION = 22, Fenced, "the group has members of its own; let nobody else use it";
    INCONSISTENT_GROUP_PROTOCOL = 23, Terminal, "the group speaks another protocol; use another group";
    INVALID_GROUP_ID = 24, Terminal, "the name of the group is not legal";
    UNKNOWN_MEMBER_ID = 25, Fenced, "the group has members of its own; let nobody else use it";
    REBALANCE_IN_PROGRESS = 27, Retryable, "the group is rebalancing";
    INVALID_COMMIT_OFFSET_SIZE = 28, Terminal, "the commit is larger than the broker stores";
    TOPIC_AUTHORIZATION_FAILED = 29, Terminal, "the user lacks a permission on the topic; grant it";
    GROUP_AUTHORIZATION_FAILED = 30, Terminal, "the user lacks READ on the group; grant it";
    CLUSTER_AUTHORIZATION_FAILED = 31, Terminal, "the user lacks a permission on the cluster; grant it";
    INVALID_TIMESTAMP = 32, Terminal, "the time stamp is outside of what message.timestamp.before.max.ms and .after.max.ms of the topic allow";
    UNSUPPORTED_SASL_MECHANISM = 33, Terminal, "the broker does not offer the SASL mechanism; see its sasl.enabled.mechanisms";
    ILLEGAL_SASL_STATE = 34, Terminal, "the broker does not expect authentication; check the port and sasl";
    UNSUPPORTED_VERSION = 35, Terminal, "the broker does not know this version of the request";
    NOT_CONTROLLER = 41, Refresh, "the broker is not the controller";
    INVALID_REQUEST = 42, Terminal, "the broker calls the request malformed";
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, Terminal, "the log's message format is too old for this";
    POLICY_VIOLATION = 44, Terminal, "a policy of the broker forbids it";
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, Terminal, "the sequence is not the one that follows; records before are missing at the broker";
    DUPLICATE_SEQUENCE_NUMBER = 46, Terminal, "the sequence was written before and is no longer among the last five batches";
    INVALID_PRODUCER_EPOCH = 47, Fenced, "a producer of a newer epoch took over";
    INVALID_TXN_STATE = 48, Terminal, "a transaction of another producer state is open";
    CONCURRENT_TRANSACTIONS = 51, Retryable, "a transaction is being completed";
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, Terminal, "the user may not use transactions here";
    SECURITY_DISABLED = 54, Terminal, "the broker has no security to ask about";
    OPERATION_NOT_ATTEMPTED = 55, Retryable, "the broker did not try it";
    KAFKA_STORAGE_ERROR = 56, Refresh, "the broker cannot use its disk";
    SASL_AUTHENTICATION_FAILED = 58, Terminal, "user or password refused";
    UNKNOWN_PRODUCER_ID = 59, Terminal, "the broker has forgotten the producer (its records were deleted or it was idle for long)";
    REASSIGNMENT_IN_PROGRESS = 60, Retryable, "the partition is being reassigned";
    FETCH_SESSION_ID_NOT_FOUND = 70, Retryable, "the broker has dropped the fetch session";
    INVALID_FETCH_SESSION_EPOCH = 71, Retryable, "the fetch session is at another request";
    LISTENER_NOT_FOUND = 72, Refresh, "the leader has no listener of this kind; check the listeners of all brokers";
    TOPIC_DELETION_DISABLED = 73, Terminal, "topics may not be deleted";
    FENCED_LEADER_EPOCH = 74, Refresh, "the leader is at a newer epoch";
    UNKNOWN_LEADER_EPOCH = 75, Refresh, "the broker does not know the leader's epoch yet";
    UNSUPPORTED_COMPRESSION_TYPE = 76, Terminal, "the broker cannot give this compression to a request this old";
    STALE_BROKER_EPOCH = 77, Refresh, "the broker was restarted meanwhile";
    OFFSET_NOT_AVAILABLE = 78, Retryable, "the new leader does not know the end of the log yet";
    PREFERRED_LEADER_NOT_AVAILABLE = 80, Retryable, "the preferred leader is not available";
    FENCED_INSTANCE_ID = 82, Fenced, "another member took over";
    INVALID_RECORD = 87, Terminal, "the broker refuses a record of the batch; see its message";
    UNSTABLE_OFFSET_COMMIT = 88, Retryable, "an offset of the group is being committed by a transaction";
    THROTTLING_QUOTA_EXCEEDED = 89, Retryable, "a quota is used up";
    PRODUCER_FENCED = 90, Fenced, "a newer producer took over";
    BROKER_ID_NOT_REGISTERED = 102, Refresh, "the broker is not registered";
    UNKNOWN_TOPIC_ID = 100, Refresh, "the broker does not know the topic's id: deleted, created anew, or not heard of yet";
    INCONSISTENT_TOPIC_ID = 103, Refresh, "the topic's id in the log is another one: the topic was created anew";
    FETCH_SESSION_TOPIC_ID_ERROR = 106, Retryable, "the fetch session mixes topic names and ids";
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, Retryable, "the offset has been moved to tiered storage";
    FENCED_MEMBER_EPOCH = 110, Fenced, "another member took over";
    STALE_MEMBER_EPOCH = 113, Fenced, "the group has members of its own; let nobody else use it";
    UNKNOWN_CONTROLLER_ID = 116, Refresh, "the controller is not known";
    INVALID_REGULAR_EXPRESSION = 128, Terminal, "the regular expression is not legal";
    REBOOTSTRAP_REQUIRED = 129, Refresh, "the broker asks to start from the bootstrap servers";
}

impl Code {
    /// Whether it stands for success.
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// None for success.
    #[must_use]
    pub const fn fault(self) -> Option<Self> {
        if self.is_none() { None } else { Some(self) }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}: {})", self.text(), self.0, self.name())
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.name(), self.0)
    }
}

#[cfg(test)]
mod tests {
    use kafka_protocol::error::ResponseError;

    use super::*;

    #[test]
    fn every_code_is_in_one_class_and_names_its_remedy() {
        assert_eq!(Code::NOT_LEADER_OR_FOLLOWER.class(), Class::Refresh);
        assert_eq!(Code::INVALID_PRODUCER_EPOCH.class(), Class::Fenced);
        assert_eq!(Code::TOPIC_AUTHORIZATION_FAILED.class(), Class::Terminal);
        assert_eq!(Code::REQUEST_TIMED_OUT.class(), Class::Retryable);
        assert_eq!(Code(32_000).class(), Class::Retryable);
        assert!(
            Code::MESSAGE_TOO_LARGE
                .to_string()
                .contains("max.message.bytes")
        );
        assert!(
            Code::MESSAGE_TOO_LARGE
                .to_string()
                .ends_with("(10: MESSAGE_TOO_LARGE)")
        );
    }

    /// What Kafka's clients give up on, and we do not: looking up anew, or waiting, may mend it.
    const FINAL_FOR_KAFKA_ALONE: &[Code] = &[
        Code::BROKER_NOT_AVAILABLE,
        Code::REBALANCE_IN_PROGRESS,
        Code::CONCURRENT_TRANSACTIONS,
        Code::OPERATION_NOT_ATTEMPTED,
        Code::REASSIGNMENT_IN_PROGRESS,
        Code::STALE_BROKER_EPOCH,
        Code::BROKER_ID_NOT_REGISTERED,
        Code::OFFSET_MOVED_TO_TIERED_STORAGE,
        Code::UNKNOWN_CONTROLLER_ID,
        Code::REBOOTSTRAP_REQUIRED,
    ];

    #[test]
    fn what_kafka_calls_retriable_is_tried_again_and_what_it_calls_final_is_not() {
        let known = (1..=160_i16).filter(|number| Code(*number).name() != "UNKNOWN");
        for code in known.map(Code) {
            let Some(theirs) = ResponseError::try_from_code(code.0) else {
                continue;
            };
            let is_tried_again = matches!(code.class(), Class::Retryable | Class::Refresh);
            let is_exception = FINAL_FOR_KAFKA_ALONE.contains(&code);
            assert_eq!(
                is_tried_again,
                theirs.is_retriable() || is_exception,
                "{code:?} is {:?}",
                code.class()
            );
            assert!(!(is_exception && theirs.is_retriable()), "{code:?} is none");
        }
    }

    #[test]
    fn one_cause_is_one_class() {
        let codes = [
            Code::ILLEGAL_GENERATION,
            Code::UNKNOWN_MEMBER_ID,
            Code::STALE_MEMBER_EPOCH,
        ];
        for code in codes {
            assert_eq!(code.class(), Class::Fenced, "{code:?}");
        }
    }
}
