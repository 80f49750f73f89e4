//! Errors of the file system, sorted.

use rustix::io::Errno;

use super::super::Kind;

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) kind: Kind,
    /// One line, with the remedy.
    pub(super) text: String,
}

impl Fault {
    /// The root is not there.
    pub(super) fn root_gone() -> Self {
        Self {
            kind: Kind::Missing,
            text: "the root folder is gone; is its disk mounted?".to_owned(),
        }
    }

    /// After something was changed: it may be undone by a crash, or not.
    pub(super) fn not_durable(errno: Errno) -> Self {
        Self {
            kind: Kind::Unknown,
            text: format!(
                "cannot be made durable: {}",
                sorted(errno).map_or_else(|| plain(errno), |(_, text)| text.to_owned())
            ),
        }
    }
}

impl From<Errno> for Fault {
    fn from(errno: Errno) -> Self {
        match sorted(errno) {
            Some((kind, text)) => Self {
                kind,
                text: text.to_owned(),
            },
            None => Self {
                kind: Kind::Other,
                text: plain(errno),
            },
        }
    }
}

fn plain(errno: Errno) -> String {
    // Ends in "(os error 5)", which is looked up more easily than the words.
    std::io::Error::from(errno).to_string().to_lowercase()
}

fn sorted(errno: Errno) -> Option<(Kind, &'static str)> {
    let (kind, text) = match errno {
        Errno::NOENT => (Kind::Missing, "is not there, or its folder is not"),
        Errno::EXIST | Errno::ISDIR | Errno::NOTEMPTY => {
            (Kind::Taken, "something is there already")
        }
        Errno::NOTDIR | Errno::LOOP => (
            Kind::Taken,
            "a file or a symbolic link is where a folder should be; move it away",
        ),
        Errno::ACCESS | Errno::PERM => (
            Kind::Denied,
            "permission denied; let the user of this process read and write below the root",
        ),
        Errno::ROFS => (
            Kind::Denied,
            "the file system is mounted read-only; mount it writable",
        ),
        Errno::NOSPC => (
            Kind::Full,
            "no space left on the disk; free some or give it more",
        ),
        Errno::DQUOT => (
            Kind::Full,
            "the disk quota is used up; raise it or delete files",
        ),
        Errno::MLINK => (
            Kind::Full,
            "too many folders in one folder; this file system takes no more",
        ),
        Errno::FBIG => (
            Kind::Full,
            "larger than files may be here; raise the limit (ulimit -f) or let files be smaller",
        ),
        Errno::MFILE | Errno::NFILE => (
            Kind::NotNow,
            "too many open files; raise the limit (ulimit -n)",
        ),
        Errno::NOMEM | Errno::BUSY | Errno::AGAIN => (Kind::NotNow, "the kernel is busy"),
        Errno::NAMETOOLONG => (
            Kind::Setting,
            "the name or the path is longer than this file system takes; shorten the directory pattern",
        ),
        Errno::XDEV => (
            Kind::Setting,
            "lies on another file system; everything below the root must be on one",
        ),
        Errno::NOTCONN | Errno::HOSTDOWN | Errno::HOSTUNREACH | Errno::TIMEDOUT | Errno::STALE => (
            Kind::Unknown,
            "the file system is mounted and does not answer; look at its server",
        ),
        _ => return None,
    };
    Some((kind, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_file_system_are_sorted() {
        for (errno, kind, word) in [
            (Errno::NOSPC, Kind::Full, "free some"),
            (Errno::DQUOT, Kind::Full, "quota"),
            (Errno::ACCESS, Kind::Denied, "permission"),
            (Errno::ROFS, Kind::Denied, "read-only"),
            (Errno::NOTDIR, Kind::Taken, "move it away"),
            (Errno::NOENT, Kind::Missing, "not there"),
            (Errno::MFILE, Kind::NotNow, "ulimit"),
            (Errno::XDEV, Kind::Setting, "one"),
            (Errno::STALE, Kind::Unknown, "server"),
            (Errno::IO, Kind::Other, "os error 5"),
        ] {
            let fault = Fault::from(errno);
            assert_eq!(fault.kind, kind, "{fault:?}");
            assert!(fault.text.contains(word), "{fault:?}");
            assert!(!fault.text.contains('\n'), "{fault:?}");
        }
    }

    #[test]
    fn what_cannot_be_made_durable_is_not_known() {
        let fault = Fault::not_durable(Errno::NOSPC);
        assert_eq!(fault.kind, Kind::Unknown);
        assert!(fault.text.contains("no space left"), "{fault:?}");
        assert!(Fault::not_durable(Errno::IO).text.contains("os error 5"));
    }
}
