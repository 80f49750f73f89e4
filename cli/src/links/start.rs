//! Where reading begins: `earliest`, `latest`, or a time.

use std::time::UNIX_EPOCH;

use kreplicator_proto::v1::{StartPolicy, start_policy::At};

use crate::yaml::{Faults, Node, Path, scalars::text};

/// Reads a start policy from its text.
///
/// # Errors
/// What is wrong, with the remedy.
pub(crate) fn start_of(given: &str) -> Result<StartPolicy, String> {
    let at = match given {
        "earliest" => At::Earliest(true),
        "latest" => At::Latest(true),
        time => At::TimestampMs(millis(time).ok_or_else(|| {
            format!(
                "{given:?} is no start; write earliest, latest or a time such as \
                 2026-01-01T00:00:00Z"
            )
        })?),
    };
    Ok(StartPolicy { at: Some(at) })
}

fn millis(time: &str) -> Option<i64> {
    let time = humantime::parse_rfc3339_weak(time).ok()?;
    let since = time.duration_since(UNIX_EPOCH).ok()?;
    i64::try_from(since.as_millis()).ok()
}

/// [`start_of`] for a node.
pub(super) fn start(node: &Node, path: &Path, faults: &mut Faults) -> Option<StartPolicy> {
    let given = text(node, path, faults)?;
    match start_of(&given) {
        Ok(start) => Some(start),
        Err(message) => {
            faults.push(&node.place, path, message);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_times_are_starts() {
        let at = |given| start_of(given).expect("a start").at;
        assert_eq!(at("earliest"), Some(At::Earliest(true)));
        assert_eq!(at("latest"), Some(At::Latest(true)));
        assert_eq!(at("1970-01-01T00:00:01Z"), Some(At::TimestampMs(1_000)));
        assert_eq!(at("1970-01-01 00:00:01"), Some(At::TimestampMs(1_000)));
        let fault = start_of("soon").expect_err("no start");
        assert!(
            fault.contains("write earliest, latest or a time"),
            "{fault}"
        );
    }
}
