//! Sorting what etcd and the transport say into what to do about it.
//!
//! The gRPC code decides. Text decides only where etcd uses one code for several things: `Invalid
//! argument` is also a stale login, `Resource exhausted` is full disks as well as full queues, and a
//! cancelled watch has no code at all.
//!
//! # Source
//! `api/v3rpc/rpctypes/error.go` of etcd 3.4 to 3.6: codes and texts.

use tonic::{Code, Status};

use crate::api::{Error, LeaseId, Revision};

const NO_SPACE: &str = "etcdserver: mvcc: database space exceeded";
const TOO_MANY_REQUESTS: &str = "etcdserver: too many requests";
const COMPACTED: &str = "etcdserver: mvcc: required revision has been compacted";
/// Refusals that a new login cures. The first two come with the code of a bad argument.
const STALE_LOGIN: [&str; 4] = [
    "etcdserver: revision of auth store is old",
    "etcdserver: user name is empty",
    "etcdserver: invalid auth token",
    "etcdserver: permission denied",
];

/// What a failed call asks for.
#[derive(Debug)]
pub(super) enum Fault {
    /// The connection or its endpoint is of no use: leave it.
    Away(String),
    /// The login is not good, or not any more: log in again.
    Login(String),
    /// An answer, though not the hoped-for one.
    Refused(Error),
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Away(message) => Self::Unavailable(message),
            Fault::Login(message) => Self::Denied(message),
            Fault::Refused(error) => error,
        }
    }
}

impl From<etcd_client::Error> for Fault {
    fn from(error: etcd_client::Error) -> Self {
        match error {
            etcd_client::Error::GRpcStatus(status) => of_status(&status),
            etcd_client::Error::InvalidArgs(message) => Self::Refused(Error::Invalid(message)),
            other => Self::Away(other.to_string()),
        }
    }
}

/// As [`Fault::from`], for calls that fail when `lease` has ended.
pub(super) fn of_lease(error: etcd_client::Error, lease: Option<LeaseId>) -> Fault {
    match (&error, lease) {
        (etcd_client::Error::GRpcStatus(status), Some(lease))
            if status.code() == Code::NotFound =>
        {
            Fault::Refused(Error::LeaseGone(lease))
        }
        // The client's word for a keep-alive that was answered with no time to live.
        (etcd_client::Error::LeaseKeepAliveError(_), Some(lease)) => {
            Fault::Refused(Error::LeaseGone(lease))
        }
        _ => error.into(),
    }
}

fn of_status(status: &Status) -> Fault {
    let message = status.message();
    match status.code() {
        Code::Unauthenticated | Code::PermissionDenied => Fault::Login(message.to_owned()),
        Code::InvalidArgument if is_stale_login(message) => Fault::Login(message.to_owned()),
        Code::ResourceExhausted if message == NO_SPACE => Fault::Refused(Error::ReadOnly(
            "etcd has no space; compact and defragment it, then disarm its alarm".to_owned(),
        )),
        Code::ResourceExhausted if message == TOO_MANY_REQUESTS => {
            Fault::Refused(Error::Unavailable(message.to_owned()))
        }
        // Which revision is still kept, the status does not say.
        Code::OutOfRange if message == COMPACTED => Fault::Refused(Error::Compacted {
            compacted: Revision::default(),
        }),
        Code::InvalidArgument
        | Code::ResourceExhausted
        | Code::OutOfRange
        | Code::NotFound
        | Code::AlreadyExists
        | Code::Unimplemented => Fault::Refused(Error::Invalid(message.to_owned())),
        Code::Ok
        | Code::Cancelled
        | Code::Unknown
        | Code::DeadlineExceeded
        | Code::FailedPrecondition
        | Code::Aborted
        | Code::Internal
        | Code::Unavailable
        | Code::DataLoss => Fault::Away(format!("{message}{}", causes(status))),
    }
}

/// What a watch that etcd cancelled asks for.
pub(super) fn of_cancelled(reason: &str, compact_revision: i64) -> Fault {
    if compact_revision > 0 {
        return Fault::Refused(Error::Compacted {
            compacted: Revision(compact_revision),
        });
    }
    if is_stale_login(reason) {
        return Fault::Login(reason.to_owned());
    }
    Fault::Away(format!("etcd cancelled the watch: {reason}"))
}

fn is_stale_login(message: &str) -> bool {
    STALE_LOGIN.iter().any(|text| message.contains(text))
}

/// The errors behind a status: without them a refused connection reads "transport error".
fn causes(status: &Status) -> String {
    let mut text = String::new();
    let mut cause = std::error::Error::source(status);
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(code: Code, message: &str) -> Fault {
        Fault::from(etcd_client::Error::GRpcStatus(Status::new(code, message)))
    }

    #[test]
    fn etcds_answers_are_sorted_by_what_to_do() {
        let away = sorted(Code::Unavailable, "etcdserver: no leader");
        assert!(matches!(away, Fault::Away(_)), "{away:?}");
        let full = sorted(Code::ResourceExhausted, NO_SPACE);
        assert!(
            matches!(full, Fault::Refused(Error::ReadOnly(_))),
            "{full:?}"
        );
        let busy = sorted(Code::ResourceExhausted, TOO_MANY_REQUESTS);
        assert!(
            matches!(busy, Fault::Refused(Error::Unavailable(_))),
            "{busy:?}"
        );
        let large = sorted(Code::ResourceExhausted, "received message larger than max");
        assert!(
            matches!(large, Fault::Refused(Error::Invalid(_))),
            "{large:?}"
        );
        let twice = sorted(
            Code::InvalidArgument,
            "etcdserver: duplicate key given in txn request",
        );
        assert!(
            matches!(twice, Fault::Refused(Error::Invalid(_))),
            "{twice:?}"
        );
    }

    #[test]
    fn c060_every_stale_login_is_recognised() {
        for (code, message) in [
            (Code::Unauthenticated, "etcdserver: invalid auth token"),
            (Code::PermissionDenied, "etcdserver: permission denied"),
            (
                Code::InvalidArgument,
                "etcdserver: revision of auth store is old",
            ),
            (Code::InvalidArgument, "etcdserver: user name is empty"),
        ] {
            let fault = sorted(code, message);
            assert!(matches!(fault, Fault::Login(_)), "{fault:?}");
            // A cancelled watch carries Go's text of the same status.
            let reason = format!("rpc error: code = {code:?} desc = {message}");
            let fault = of_cancelled(&reason, 0);
            assert!(matches!(fault, Fault::Login(_)), "{fault:?}");
        }
    }

    #[test]
    fn a_watch_cancelled_by_compaction_names_the_first_revision_left() {
        let fault = of_cancelled("etcdserver: mvcc: required revision has been compacted", 17);
        let Fault::Refused(Error::Compacted { compacted }) = fault else {
            panic!("{fault:?}");
        };
        assert_eq!(compacted, Revision(17));
    }
}
