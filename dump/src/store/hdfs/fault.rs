//! Errors of HDFS, sorted by the class of exception that the NameNode names, and cut to a line.
//!
//! # Source
//! Hadoop 3.4.2. The NameNode sends an exception's class, and its message followed by its stack trace
//! (`org.apache.hadoop.ipc.Server.RpcCall.populateResponseParamsOnError`).

use std::{any::Any, io, time::Duration};

use hdfs_native::HdfsError;

use super::super::Kind;

/// Longest part of a server's message that is told, in characters.
const MESSAGE_CHARS_MAX: usize = 400;

/// Whether a call changes anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    Question,
    Change,
}

/// What a refusal means for the call, where calls differ in what they make of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// Nothing is there; of a rename: the source is not, or the folder of the target.
    Absent,
    /// Something is there.
    Exists,
    /// Above what is asked for there is a file: so nothing is there. Of a rename: above the source.
    AboveIsFile,
    /// The folder has something in it.
    NotEmpty,
    /// No answer before the deadline.
    Late,
    Other,
}

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) kind: Kind,
    pub(super) cause: Cause,
    /// One line, with the remedy.
    pub(super) text: String,
}

impl Fault {
    fn new(kind: Kind, text: impl Into<String>) -> Self {
        Self {
            kind,
            cause: Cause::Other,
            text: text.into(),
        }
    }

    pub(super) fn late(deadline: Duration, effect: Effect) -> Self {
        let tail = match effect {
            Effect::Question => "",
            Effect::Change => "; it may have been done, or may be yet",
        };
        Self {
            kind: Kind::Unknown,
            cause: Cause::Late,
            text: format!("no answer within {deadline:?}{tail}"),
        }
    }

    pub(super) fn of_panic(panic: &(dyn Any + Send)) -> Self {
        let said = panic
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| panic.downcast_ref::<String>().cloned());
        let said = one_line(&said.unwrap_or_default());
        // It may have sent something before.
        Self::new(
            Kind::Unknown,
            format!("the HDFS library has panicked: {said}"),
        )
    }

    /// Sorts an error of the library.
    pub(super) fn sort(error: HdfsError, effect: Effect) -> Self {
        match error {
            HdfsError::FileNotFound(_) => Self {
                cause: Cause::Absent,
                ..Self::new(Kind::Missing, "is not there")
            },
            // By the library's own word for two classes: FileAlreadyExistsException, AlreadyBeingCreatedException.
            HdfsError::AlreadyExists(message) => Self {
                cause: Cause::Exists,
                ..Self::new(Kind::Taken, one_line(&message))
            },
            HdfsError::RPCError(class, message) | HdfsError::FatalRPCError(class, message) => {
                refused(&class, &message, effect)
            }
            HdfsError::IOError(error) => connection(&error, effect),
            HdfsError::DataTransferError(message) => Self::new(
                Kind::Unreachable,
                format!(
                    "DataNodes do not take or give the data: {}; look at them",
                    one_line(&message)
                ),
            ),
            HdfsError::BlocksNotFound(message) => Self::new(
                Kind::Other,
                format!("no DataNode has the data: {}", one_line(&message)),
            ),
            HdfsError::ChecksumError => Self::new(
                Kind::Other,
                "the data has changed since it was written: its checksum is wrong",
            ),
            HdfsError::SASLError(message) => login(&message),
            HdfsError::GSSAPIError(_, _, message) => login(&message),
            HdfsError::NoSASLMechanism => {
                login("the server offers no way to log in that is known here")
            }
            HdfsError::InvalidArgument(message)
            | HdfsError::InvalidPath(message)
            | HdfsError::UnsupportedFeature(message)
            | HdfsError::UnsupportedErasureCodingPolicy(message) => {
                Self::new(Kind::Setting, one_line(&message))
            }
            HdfsError::UrlParseError(error) => {
                Self::new(Kind::Setting, one_line(&error.to_string()))
            }
            HdfsError::XmlParseError(error) => Self::new(
                Kind::Setting,
                format!(
                    "the configuration is no XML: {}",
                    one_line(&error.to_string())
                ),
            ),
            HdfsError::IsADirectoryError(_) => Self {
                cause: Cause::Exists,
                ..Self::new(Kind::Taken, "a folder is there")
            },
            HdfsError::OperationFailed(message) if message.contains("complete file in time") => {
                Self::new(
                    Kind::Unknown,
                    "DataNodes have not told the NameNode of the last block within 15 s; look at them",
                )
            }
            // An answer that cannot be read came of a call that was handled.
            HdfsError::InvalidRPCResponse(error) => {
                Self::new(Kind::Unknown, one_line(&error.to_string()))
            }
            other => Self::new(Kind::Other, one_line(&other.to_string())),
        }
    }
}

/// A login that failed, which is by the credentials and not by the server.
fn login(message: &str) -> Fault {
    Fault::new(
        Kind::Denied,
        format!(
            "cannot log in by Kerberos: {}; look at principal, keytab, krb5.conf and clocks",
            one_line(message)
        ),
    )
}

/// What went wrong with a connection.
fn connection(error: &io::Error, effect: Effect) -> Fault {
    use io::ErrorKind;
    let text = one_line(&error.to_string());
    match error.kind() {
        ErrorKind::ConnectionRefused
        | ErrorKind::HostUnreachable
        | ErrorKind::NetworkUnreachable
        | ErrorKind::AddrNotAvailable
        | ErrorKind::NotConnected => Fault::new(
            Kind::Unreachable,
            format!("cannot be reached: {text}; is it running, and is the port its RPC port?"),
        ),
        _ if text.contains("failed to lookup address") => Fault::new(
            Kind::Unreachable,
            format!("its host name means nothing here: {text}"),
        ),
        _ => {
            let lost = format!(
                "the connection was lost: {text}; where that stays so, does the cluster ask for Kerberos?"
            );
            match effect {
                Effect::Question => Fault::new(Kind::Unreachable, lost),
                Effect::Change => Fault::new(Kind::Unknown, lost),
            }
        }
    }
}

/// What the NameNode has answered.
fn refused(class: &str, message: &str, effect: Effect) -> Fault {
    let text = one_line(message);
    let name = class.rsplit(['.', '$']).next().unwrap_or_default();
    let fault = |kind, remedy: &str| Fault::new(kind, join(&text, remedy));
    match name {
        "FileNotFoundException" => Fault {
            cause: Cause::Absent,
            ..fault(Kind::Missing, "")
        },
        "FileAlreadyExistsException"
        | "AlreadyBeingCreatedException"
        | "RecoveryInProgressException" => Fault {
            cause: Cause::Exists,
            ..fault(Kind::Taken, "")
        },
        "ParentNotDirectoryException" | "PathIsNotDirectoryException" => {
            fault(Kind::Taken, "move that file away")
        }
        "PathIsNotEmptyDirectoryException" => Fault {
            cause: Cause::NotEmpty,
            ..fault(Kind::Taken, "")
        },
        // `FSDirectory.resolvePath` says so of a file above, but for calls that make something.
        "AccessControlException" if text.contains("(is not a directory)") => Fault {
            cause: Cause::AboveIsFile,
            ..fault(Kind::Taken, "move that file away")
        },
        "AccessControlException" | "AuthorizationException" | "SnapshotAccessControlException" => {
            fault(
                Kind::Denied,
                "give the user write permission for the root folder (hdfs dfs -chown)",
            )
        }
        "InvalidToken" | "SaslException" | "GSSException" => login(&text),
        "NSQuotaExceededException" => fault(
            Kind::Full,
            "raise the quota of names (hdfs dfsadmin -setQuota) or join small files",
        ),
        "DSQuotaExceededException"
        | "QuotaByStorageTypeExceededException"
        | "QuotaExceededException" => fault(
            Kind::Full,
            "raise the quota of space (hdfs dfsadmin -setSpaceQuota) or delete files",
        ),
        "MaxDirectoryItemsExceededException" => fault(
            Kind::Full,
            "spread files over more folders, or raise dfs.namenode.fs-limits.max-directory-items",
        ),
        "PathComponentTooLongException" | "InvalidPathException" => {
            fault(Kind::Setting, "change the directory pattern")
        }
        "HadoopIllegalArgumentException"
        | "IllegalArgumentException"
        | "UnsupportedActionException" => fault(Kind::Setting, ""),
        "SafeModeException" => fault(Kind::NotNow, "waits for its end"),
        "StandbyException" | "ObserverRetryOnActiveException" => {
            fault(Kind::NotNow, "waits for an active NameNode")
        }
        "RetriableException" | "NotReplicatedYetException" | "CallQueueOverflowException" => {
            fault(Kind::NotNow, "waits for it")
        }
        "LeaseExpiredException" => fault(
            Kind::Missing,
            "the file was deleted or taken while it was written; has somebody cleaned up?",
        ),
        // `BlockManager.chooseTarget4NewBlock`; before Hadoop 3 with the word "replicated".
        "IOException"
            if text.contains("could only be written to")
                || text.contains("could only be replicated to") =>
        {
            fault(
                Kind::Full,
                "DataNodes are full, or none runs (hdfs dfsadmin -report)",
            )
        }
        // `FSNamesystem.checkFsObjectLimit`.
        "IOException" if text.contains("number of objects") => {
            fault(Kind::Full, "raise dfs.namenode.max.objects or delete files")
        }
        // `FSDirRenameOp.validateOverwrite`: a folder is where the file shall be.
        "IOException" if text.contains("must both be directories") => Fault {
            cause: Cause::Exists,
            ..fault(Kind::Taken, "")
        },
        // Of a router before the NameNodes (RBF), or of a server that was ending: the call may have been handled.
        "EOFException"
        | "InterruptedIOException"
        | "ConnectException"
        | "SocketException"
        | "SocketTimeoutException"
        | "NoRouteToHostException"
        | "ConnectTimeoutException"
        | "ClosedChannelException"
        | "RpcServerException"
            if effect == Effect::Change =>
        {
            fault(Kind::Unknown, "it may have been done")
        }
        _ => Fault::new(Kind::Other, join(name, &text)),
    }
}

fn join(text: &str, rest: &str) -> String {
    match (text.is_empty(), rest.is_empty()) {
        (_, true) => text.to_owned(),
        (true, false) => rest.to_owned(),
        (false, false) => format!("{}; {rest}", text.trim_end_matches(['.', ' '])),
    }
}

/// What a message says before its stack trace, on one line.
fn one_line(message: &str) -> String {
    let said = message
        .lines()
        .take_while(|line| !line.starts_with("\tat ") && !line.starts_with("Caused by:"))
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect::<Vec<_>>()
        .join(" ");
    let mut line: String = said
        .chars()
        .map(|char| if char.is_control() { ' ' } else { char })
        .take(MESSAGE_CHARS_MAX + 1)
        .collect();
    if line.chars().count() > MESSAGE_CHARS_MAX {
        line.pop();
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests;
