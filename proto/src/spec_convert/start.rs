//! Where reading begins.

use kreplicator_model::{ids::UnixMillis, spec::StartPolicy};

use crate::{
    fault::{Faults, FieldFault},
    v1,
};

impl TryFrom<&v1::StartPolicy> for StartPolicy {
    type Error = Vec<FieldFault>;

    fn try_from(message: &v1::StartPolicy) -> Result<Self, Self::Error> {
        use v1::start_policy::At;

        let mut faults = Faults::default();
        let whole = match message.at {
            Some(At::Earliest(true)) => Some(Self::Earliest),
            Some(At::Latest(true)) => Some(Self::Latest),
            Some(At::TimestampMs(at)) if at >= 0 => Some(Self::Timestamp(UnixMillis(at))),
            Some(At::TimestampMs(_)) => {
                faults.add(
                    "timestamp_ms",
                    "is negative; give milliseconds since 1970-01-01",
                );
                None
            }
            Some(At::Earliest(false)) => {
                faults.add("earliest", "is false; set it to true, or another start");
                None
            }
            Some(At::Latest(false)) => {
                faults.add("latest", "is false; set it to true, or another start");
                None
            }
            None => {
                faults.add("", "is empty; set earliest, latest or timestamp_ms");
                None
            }
        };
        faults.finish(whole)
    }
}

impl From<&StartPolicy> for v1::StartPolicy {
    fn from(start: &StartPolicy) -> Self {
        use v1::start_policy::At;

        let at = match start {
            StartPolicy::Earliest => At::Earliest(true),
            StartPolicy::Latest => At::Latest(true),
            StartPolicy::Timestamp(at) => At::TimestampMs(at.0),
        };
        Self { at: Some(at) }
    }
}
