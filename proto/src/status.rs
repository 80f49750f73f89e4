//! Refusals as gRPC statuses: the one place where an error gets its code.
//!
//! Every message names the thing at fault and the remedy; several faults are told together, one a
//! line. A status travels in HTTP/2 trailers, which peers limit to some 16 KiB, so what is too long
//! is cut with the number of lines left out.

use std::fmt;

use kreplicator_model::{desired, ids::NameError};
use tonic::{Code, Status};

use crate::{fault::FieldFault, stored::Unreadable};

/// Longest status message in bytes. Percent-encoding can treble it on the wire.
pub const MESSAGE_BYTES_MAX: usize = 4_000;

/// Why a call is not done. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The request itself is wrong: INVALID_ARGUMENT.
    #[error("{}", lines(.0))]
    Invalid(Vec<FieldFault>),
    /// The request does not fit what exists (unknown cluster, loop, clash, still in use):
    /// FAILED_PRECONDITION. Each line names its subject and the remedy.
    #[error("{}", lines(.0))]
    Precondition(Vec<String>),
    /// NOT_FOUND.
    #[error(
        "{kind} {id:?} does not exist; list what exists with `kreplicator get {}`",
        listed_with(kind)
    )]
    NotFound {
        /// `cluster`, `link`, `subscription`, `topic`, `worker`.
        kind: &'static str,
        /// Its name.
        id: String,
    },
    /// ALREADY_EXISTS, asked for with `create_only`.
    #[error("{kind} {id:?} exists already; leave out create_only to change it")]
    Exists {
        /// `cluster`, `link`.
        kind: &'static str,
        /// Its name.
        id: String,
    },
    /// ALREADY_EXISTS: the request id was used for something else.
    #[error("request id {id:?} was used for another {method} request; use a new one")]
    RequestIdReused {
        /// The id.
        id: String,
        /// What it was used for first.
        method: String,
    },
    /// ABORTED: somebody else changed the same things again and again.
    #[error("{0} was changed by others meanwhile; try again")]
    Contended(String),
    /// UNAVAILABLE: safe to repeat with the same request id.
    #[error("{0}")]
    Unavailable(String),
    /// RESOURCE_EXHAUSTED.
    #[error("{0}")]
    Exhausted(String),
    /// DEADLINE_EXCEEDED.
    #[error("{0}")]
    TooLate(String),
    /// INTERNAL: our fault, or a stored value that nobody of ours wrote.
    #[error("{0}")]
    Internal(String),
}

/// The list that shows things of a kind.
fn listed_with(kind: &str) -> String {
    // Topics are seen below the subscriptions that mean them.
    let kind = if kind == "topic" {
        "subscription"
    } else {
        kind
    };
    format!("{kind}s")
}

impl Refusal {
    /// One wrong field.
    pub fn field(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Invalid(vec![FieldFault::new(path, message)])
    }

    /// One thing that does not fit what exists.
    pub fn precondition(line: impl Into<String>) -> Self {
        Self::Precondition(vec![line.into()])
    }

    /// The code that callers branch on.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::Invalid(_) => Code::InvalidArgument,
            Self::Precondition(_) => Code::FailedPrecondition,
            Self::NotFound { .. } => Code::NotFound,
            Self::Exists { .. } | Self::RequestIdReused { .. } => Code::AlreadyExists,
            Self::Contended(_) => Code::Aborted,
            Self::Unavailable(_) => Code::Unavailable,
            Self::Exhausted(_) => Code::ResourceExhausted,
            Self::TooLate(_) => Code::DeadlineExceeded,
            Self::Internal(_) => Code::Internal,
        }
    }
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        Self::new(refusal.code(), cut(refusal.to_string()))
    }
}

impl From<Vec<FieldFault>> for Refusal {
    fn from(faults: Vec<FieldFault>) -> Self {
        Self::Invalid(faults)
    }
}

impl From<Vec<desired::Fault>> for Refusal {
    fn from(faults: Vec<desired::Fault>) -> Self {
        Self::Precondition(faults.iter().map(ToString::to_string).collect())
    }
}

impl From<NameError> for Refusal {
    fn from(error: NameError) -> Self {
        Self::Invalid(vec![FieldFault::new("", error.to_string())])
    }
}

impl From<Unreadable> for Refusal {
    fn from(error: Unreadable) -> Self {
        Self::Internal(error.to_string())
    }
}

/// One fault a line.
fn lines<T: fmt::Display>(faults: &[T]) -> String {
    let lines: Vec<String> = faults.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

/// Cuts a text to [`MESSAGE_BYTES_MAX`]: after the last line that fits, with the number of those left
/// out, or within the first where that one alone is too long.
fn cut(mut text: String) -> String {
    if text.len() <= MESSAGE_BYTES_MAX {
        return text;
    }
    // Room for what the cut is told with.
    let room = text.floor_char_boundary(MESSAGE_BYTES_MAX - 64);
    let kept = text.as_bytes().get(..=room).unwrap_or_default();
    match kept.iter().rposition(|byte| *byte == b'\n') {
        Some(end) => {
            let all = text.lines().count();
            text.truncate(end);
            let left_out = all - text.lines().count();
            text.push_str(&format!("\n… and {left_out} more"));
        }
        None => {
            text.truncate(room);
            text.push('…');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_has_its_line() {
        let refusal = Refusal::Invalid(vec![
            FieldFault::new("id", "is empty; give it a name"),
            FieldFault::new("source", "is missing"),
        ]);
        let status = Status::from(refusal);
        assert_eq!(status.code(), Code::InvalidArgument);
        assert_eq!(
            status.message(),
            "id: is empty; give it a name\nsource: is missing"
        );
    }

    /// A refusal of each kind that tells this text.
    fn all(text: &str) -> Vec<Refusal> {
        let owned = || text.to_owned();
        let all = vec![
            Refusal::Invalid(text.lines().map(|line| FieldFault::new("", line)).collect()),
            Refusal::Precondition(text.lines().map(ToOwned::to_owned).collect()),
            Refusal::NotFound {
                kind: "topic",
                id: owned(),
            },
            Refusal::Exists {
                kind: "link",
                id: owned(),
            },
            Refusal::RequestIdReused {
                id: owned(),
                method: "Apply".to_owned(),
            },
            Refusal::Contended(owned()),
            Refusal::Unavailable(owned()),
            Refusal::Exhausted(owned()),
            Refusal::TooLate(owned()),
            Refusal::Internal(owned()),
        ];
        let codes: std::collections::HashSet<Code> = all.iter().map(Refusal::code).collect();
        assert_eq!(codes.len(), 9, "of ten kinds two share a code");
        all
    }

    #[test]
    fn c110_a_long_list_of_faults_is_cut_and_counted() {
        let lines: Vec<String> = (0..12_000)
            .map(|n| format!("topic t-{n} clashes"))
            .collect();
        for refusal in all(&lines.join("\n")) {
            let told = format!("{:?}", refusal.code());
            let status = Status::from(refusal);
            let message = status.message();
            assert!(message.len() <= MESSAGE_BYTES_MAX, "{told}");
            if matches!(status.code(), Code::NotFound | Code::AlreadyExists) {
                // Names are quoted, so theirs is one line.
                assert!(message.ends_with('…'), "{told}: {message}");
                continue;
            }
            let shown = message.lines().count() - 1;
            assert!(shown > 100, "{told}: {shown}");
            let last = message.lines().last().expect("a last line");
            assert_eq!(last, format!("… and {} more", 12_000 - shown), "{told}");
            let last_shown = message.lines().nth(shown - 1).expect("shown");
            assert!(last_shown.ends_with("clashes"), "{told}: {last_shown}");
        }
    }

    #[test]
    fn c110_one_line_that_is_too_long_is_still_shown_in_part() {
        for refusal in all(&"é".repeat(10_000)) {
            let told = format!("{:?}", refusal.code());
            let status = Status::from(refusal);
            let message = status.message();
            assert!(message.len() <= MESSAGE_BYTES_MAX, "{told}");
            assert!(message.contains("éé"), "{told}: {message}");
            assert!(message.ends_with('…'), "{told}: {message}");
        }
    }

    #[test]
    fn a_message_that_fits_is_told_as_it_is() {
        let line = "x".repeat(MESSAGE_BYTES_MAX - 1);
        for text in [format!("{line}é"), format!("{line}x"), String::new()] {
            let told = cut(text.clone());
            assert_eq!(told == text, text.len() <= MESSAGE_BYTES_MAX);
        }
    }
}
