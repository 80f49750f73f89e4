//! What became of a try, told from a status: whose word it is, and in what words.

use std::error::Error;

use tonic::{Code, Status, TimeoutExpired};

use crate::exit::Failure;

pub(super) fn late() -> Status {
    Status::deadline_exceeded("no answer in time")
}

/// Whether the client library itself ended the call at the request's deadline.
pub(super) fn is_late(status: &Status) -> bool {
    let mut cause = status.source();
    while let Some(inner) = cause {
        if inner.is::<TimeoutExpired>() {
            return true;
        }
        cause = inner.source();
    }
    false
}

/// Whether a controller itself said so, and not the client library in its place.
pub(super) fn is_answer(status: &Status) -> bool {
    status.source().is_none() && status.code() == Code::Unavailable
}

/// Whether something answered that does not speak gRPC: its answer was made up by the client library, from a
/// breach of the protocol. A connection that merely ended is none.
pub(super) fn is_stranger(status: &Status) -> bool {
    status.code() != Code::Unavailable
        && ((is_of_the_transport(status) && !is_cut_off(status))
            || status.message().starts_with("grpc-status header missing"))
}

fn is_of_the_transport(status: &Status) -> bool {
    status
        .source()
        .is_some_and(|source| source.is::<tonic::transport::Error>())
}

/// Whether the connection ended before there was an answer, as that to a controller does which has as many
/// as it takes.
pub(super) fn is_cut_off(status: &Status) -> bool {
    matches!(status.code(), Code::Unknown | Code::Cancelled) && is_of_the_transport(status)
}

pub(super) fn answer(status: &Status) -> Failure {
    let code = status.code();
    let message = match status.message() {
        "" => format!("the controller answered {code:?} without a reason"),
        message => message.to_owned(),
    };
    Failure::Answer { code, message }
}

/// The innermost cause: "connection refused" rather than "transport error".
pub(super) fn cause(status: &Status) -> String {
    let mut innermost = status.source();
    let mut cause = innermost;
    while let Some(inner) = cause {
        if is_timeout(inner) {
            return late().message().to_owned();
        }
        innermost = cause;
        cause = inner.source();
    }
    innermost.map_or_else(|| status.message().to_owned(), ToString::to_string)
}

/// Whether nobody took the connection, or nobody answered on it.
fn is_timeout(cause: &(dyn std::error::Error + 'static)) -> bool {
    let io = cause.downcast_ref::<std::io::Error>();
    let http = cause.downcast_ref::<hyper::Error>();
    io.is_some_and(|io| io.kind() == std::io::ErrorKind::TimedOut)
        || http.is_some_and(hyper::Error::is_timeout)
}
