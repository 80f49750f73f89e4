//! How the process ends: the exit codes and the failures behind them.

use std::process::ExitCode;

use tonic::Code;

use crate::yaml::Faults;

/// Exit codes; shown at the end of `kreplicator --help`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Done.
    Ok = 0,
    /// Something went wrong that has no code of its own.
    Failed = 1,
    /// Wrong command line, configuration or file.
    Usage = 2,
    /// The thing named does not exist.
    NotFound = 3,
    /// The controller refused: wrong input, unmet precondition, conflict.
    Refused = 4,
    /// No controller could be reached, or none answered in time.
    Unreachable = 5,
    /// `apply --dry-run`: there are changes to make.
    Pending = 10,
    /// `verify`: source and target differ.
    Different = 11,
    /// `verify`: it could not be told whether source and target differ.
    NotCompared = 12,
}

/// Text for `--help`.
pub(crate) const HELP: &str = "\
Exit codes:
   0  done; `apply --dry-run`: nothing to change; `verify`: all equal
   1  failed
   2  wrong command line, configuration or file
   3  the thing named does not exist
   4  refused by the controller: wrong input, unmet precondition or conflict
   5  no controller reachable, or no answer in time
  10  `apply --dry-run`: there are changes to make
  11  `verify`: source and target differ
  12  `verify`: could not compare everything, and found no difference
 130  interrupted (Ctrl-C); a service or the demo: told to stop twice, ended at once";

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// A failure that has an exit code of its own. Everything else ends in [`Exit::Failed`].
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// Wrong configuration or file.
    #[error(transparent)]
    Faults(#[from] Faults),
    /// Wrong use.
    #[error("{0}")]
    Usage(String),
    /// The answer of a controller.
    #[error("{message}")]
    Answer {
        /// Its gRPC code.
        code: Code,
        /// Its message, for people.
        message: String,
    },
    /// No controller answered.
    #[error("{0}")]
    Unreachable(String),
    /// Nothing could be compared.
    #[error("{0}")]
    NotCompared(String),
}

impl Failure {
    /// The exit code of this failure.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Faults(_) | Self::Usage(_) => Exit::Usage,
            Self::Unreachable(_) => Exit::Unreachable,
            Self::NotCompared(_) => Exit::NotCompared,
            Self::Answer { code, .. } => of_code(*code),
        }
    }
}

fn of_code(code: Code) -> Exit {
    match code {
        Code::Ok => Exit::Ok,
        Code::NotFound => Exit::NotFound,
        Code::InvalidArgument
        | Code::AlreadyExists
        | Code::FailedPrecondition
        | Code::Aborted
        | Code::OutOfRange
        | Code::PermissionDenied
        | Code::Unauthenticated => Exit::Refused,
        Code::Unavailable | Code::DeadlineExceeded => Exit::Unreachable,
        Code::Cancelled
        | Code::Unknown
        | Code::ResourceExhausted
        | Code::Unimplemented
        | Code::Internal
        | Code::DataLoss => Exit::Failed,
    }
}

/// The exit code of an error.
pub(crate) fn of(error: &anyhow::Error) -> Exit {
    let failures = error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<Failure>());
    failures.map(Failure::exit).next().unwrap_or(Exit::Failed)
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    fn answer(code: Code) -> anyhow::Error {
        let message = "no".to_owned();
        Failure::Answer { code, message }.into()
    }

    #[test]
    fn each_kind_of_failure_has_its_code() {
        assert_eq!(of(&answer(Code::NotFound)), Exit::NotFound);
        assert_eq!(of(&answer(Code::FailedPrecondition)), Exit::Refused);
        assert_eq!(of(&answer(Code::InvalidArgument)), Exit::Refused);
        assert_eq!(of(&answer(Code::Unavailable)), Exit::Unreachable);
        assert_eq!(of(&answer(Code::DeadlineExceeded)), Exit::Unreachable);
        assert_eq!(of(&answer(Code::Internal)), Exit::Failed);
        assert_eq!(of(&Failure::Usage("x".to_owned()).into()), Exit::Usage);
        assert_eq!(of(&Failure::Faults(Faults::default()).into()), Exit::Usage);
        assert_eq!(of(&anyhow::anyhow!("else")), Exit::Failed);
    }

    #[test]
    fn context_keeps_the_code() {
        let error = Err::<(), _>(answer(Code::NotFound))
            .context("reading the link")
            .expect_err("failed");
        assert_eq!(of(&error), Exit::NotFound);
    }

    fn is_listed(code: i32) -> bool {
        let line = format!("{code:>4}  ");
        HELP.lines().any(|listed| listed.starts_with(&line))
    }

    #[test]
    fn the_help_lists_every_code() {
        for exit in [
            Exit::Ok,
            Exit::Failed,
            Exit::Usage,
            Exit::NotFound,
            Exit::Refused,
            Exit::Unreachable,
            Exit::Pending,
            Exit::Different,
            Exit::NotCompared,
        ] {
            assert!(is_listed(i32::from(exit as u8)), "{exit:?}");
        }
        assert!(is_listed(crate::signals::EXIT_INTERRUPTED));
    }
}
