//! The true cause behind a time-out. librdkafka retries connections for ever, so a call against a
//! cluster that refuses the password ends as "timed out"; what really happened passed by earlier in
//! the client's error events. A [`Diagnosis`] keeps it.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use kreplicator_model::ids::ClusterId;
use rdkafka::{
    client::ClientContext,
    config::RDKafkaLogLevel,
    consumer::ConsumerContext,
    error::{KafkaError, RDKafkaErrorCode as Code},
};
use tokio::time::Instant;
use tracing::{debug, error};

use crate::error::Error;

/// An event older than this explains nothing any more: clients try again far more often.
const EVENT_AGE_MAX: Duration = Duration::from_secs(60);

/// What a client saw go wrong last. Clones share it.
#[derive(Clone)]
pub struct Diagnosis {
    cluster: ClusterId,
    seen: Arc<Mutex<Option<Seen>>>,
}

#[derive(Clone)]
struct Seen {
    code: Code,
    reason: String,
    at: Instant,
}

impl Diagnosis {
    /// Nothing seen yet.
    #[must_use]
    pub fn new(cluster: ClusterId) -> Self {
        Self {
            cluster,
            seen: Arc::default(),
        }
    }

    /// Keeps an error event. One that tells the cause is not covered by one that tells only the
    /// effect ("all brokers are down").
    pub fn note(&self, code: Code, reason: &str) {
        debug!(cluster = %self.cluster, %code, reason, "client error");
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let covers = seen.as_ref().is_none_or(|before| {
            before.at.elapsed() > EVENT_AGE_MAX || weight(code) >= weight(before.code)
        });
        if covers {
            *seen = Some(Seen {
                code,
                reason: without_timing(reason),
                at: Instant::now(),
            });
        }
    }

    /// Forgets what was seen: the cluster answered.
    pub fn clear(&self) {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// The error behind a call that did not succeed because nothing answered, or None if nothing
    /// went wrong lately.
    #[must_use]
    pub fn cause(&self) -> Option<Error> {
        let seen = self
            .seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
            .filter(|seen| seen.at.elapsed() <= EVENT_AGE_MAX)?;
        let cluster = self.cluster.clone();
        Some(match seen.code {
            Code::Authentication | Code::SaslAuthenticationFailed => Error::Authentication {
                cluster,
                detail: seen.reason,
            },
            Code::SSL => Error::Tls {
                cluster,
                detail: seen.reason,
            },
            _ => Error::Unreachable {
                cluster,
                cause: seen.reason,
            },
        })
    }

    /// The error of a call that ended with `code` because nothing answered.
    #[must_use]
    pub fn unreachable(&self, code: Code) -> Error {
        self.cause().unwrap_or_else(|| Error::Unreachable {
            cluster: self.cluster.clone(),
            cause: match code {
                Code::OperationTimedOut | Code::RequestTimedOut | Code::TimedOutQueue => {
                    "no answer in time; check bootstrap_servers and the network".to_owned()
                }
                other => other.to_string(),
            },
        })
    }
}

impl fmt::Debug for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Diagnosis")
            .field("cluster", &self.cluster)
            .field("cause", &self.cause().map(|cause| cause.to_string()))
            .finish()
    }
}

impl ClientContext for Diagnosis {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log_line(&self.cluster, level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        if let Some(code) = error.rdkafka_error_code() {
            self.note(code, reason);
        }
    }
}

impl ConsumerContext for Diagnosis {}

/// Passes on a log line of the library. What it calls an error (a connection that broke) is daily
/// business of a client that heals by itself; where it matters it is reported by whoever waits for
/// the cluster. Only what the library thinks to be its own end is an error here.
pub fn log_line(cluster: &ClusterId, level: RDKafkaLogLevel, facility: &str, message: &str) {
    match level {
        RDKafkaLogLevel::Emerg | RDKafkaLogLevel::Alert | RDKafkaLogLevel::Critical => {
            error!(%cluster, facility, message, "client library failed");
        }
        _ => debug!(%cluster, facility, message, "client library"),
    }
}

/// How much an event tells: refusals by the peer, then failures on the way, then mere effects.
fn weight(code: Code) -> u8 {
    match code {
        Code::Authentication | Code::SaslAuthenticationFailed | Code::SSL => 2,
        Code::AllBrokersDown => 0,
        _ => 1,
    }
}

/// The reason without "(after 5ms in state CONNECT, 3 identical error(s) suppressed)": the same
/// trouble has the same text, so a status does not change with every attempt.
fn without_timing(reason: &str) -> String {
    let end = reason.find(" (after ").unwrap_or(reason.len());
    reason.get(..end).unwrap_or(reason).to_owned()
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    fn diagnosis() -> Diagnosis {
        Diagnosis::new(ClusterId::new("east").expect("legal"))
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_password_outlives_the_effects_it_has() {
        let diagnosis = diagnosis();
        diagnosis.note(
            Code::Authentication,
            "invalid credentials (after 5ms in state AUTH_REQ)",
        );
        diagnosis.note(Code::BrokerTransportFailure, "disconnected");
        diagnosis.note(Code::AllBrokersDown, "1/1 brokers are down");
        let cause = diagnosis.unreachable(Code::OperationTimedOut).to_string();
        assert!(
            cause.contains("authentication refused by cluster east"),
            "{cause}"
        );
        assert!(!cause.contains("5ms"), "{cause}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_newer_cause_of_the_same_weight_takes_over() {
        let diagnosis = diagnosis();
        diagnosis.note(Code::Resolve, "name not known");
        diagnosis.note(Code::BrokerTransportFailure, "connection refused");
        let cause = diagnosis.cause().expect("just seen").to_string();
        assert_eq!(cause, "cluster east cannot be reached: connection refused");
    }

    #[tokio::test(start_paused = true)]
    async fn old_causes_and_cleared_ones_explain_nothing() {
        let diagnosis = diagnosis();
        diagnosis.note(Code::Authentication, "invalid credentials");
        advance(EVENT_AGE_MAX + Duration::from_secs(1)).await;
        assert_eq!(diagnosis.cause(), None);
        diagnosis.note(Code::BrokerTransportFailure, "connection refused");
        assert!(
            diagnosis.cause().is_some(),
            "an old refusal does not cover a new failure"
        );
        diagnosis.clear();
        assert_eq!(diagnosis.cause(), None);
        let text = diagnosis.unreachable(Code::OperationTimedOut).to_string();
        assert!(text.contains("no answer in time"), "{text}");
    }
}
