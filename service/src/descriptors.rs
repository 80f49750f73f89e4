//! File descriptors: each connection and each open file takes one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Lets this process have as many file descriptors as it may give itself, and tells how many those are; None:
/// any number. The usual limit of 1,024 is there for programs that cannot count further (`select`), not for services, and
/// the hard limit is the one that an administrator means.
#[must_use]
pub fn raise() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if setrlimit(Resource::Nofile, raised).is_ok() {
        limit.maximum
    } else {
        limit.current
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_what_the_process_may_have() {
        let before = getrlimit(Resource::Nofile);
        let lower = Rlimit {
            current: before.current.map(|current| current - 1),
            maximum: before.maximum,
        };
        setrlimit(Resource::Nofile, lower).expect("a lower one is allowed");
        let most = raise();
        let limit = getrlimit(Resource::Nofile);
        assert_eq!((limit.current, limit.maximum), (most, most));
    }
}
