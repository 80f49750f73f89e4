//! How a partition is dumped.

use std::time::Duration;

use kreplicator_model::dump::{
    bucket::Pattern, manifest::FILES_MAX, roll::Limits, sweep::COMMIT_WITHIN,
};

use crate::envelope;

/// An attempt that is older when its first record comes is made anew: it may not be committed for much longer.
pub(super) const RENEWED_AFTER: Duration = COMMIT_WITHIN.checked_div(4).expect("not zero");
/// Longest age of a group: together with [`RENEWED_AFTER`] half of what an attempt may be old.
const AGE_MAX: Duration = COMMIT_WITHIN.checked_div(4).expect("not zero");

/// How a partition is dumped.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Settings {
    /// Where files go.
    pub pattern: Pattern,
    /// When groups are closed.
    pub limits: Limits,
    /// How files are written.
    pub files: envelope::Settings,
}

impl Settings {
    /// What is wrong with them, in words that follow the name of a setting.
    #[must_use]
    pub fn fault(&self) -> Option<&'static str> {
        if self.limits.age_max > AGE_MAX {
            return Some("age_max is more than 6 hours; a group may not be open for longer");
        }
        if !(1..=FILES_MAX).contains(&self.limits.buckets_max) {
            return Some("buckets_max is not between 1 and 512");
        }
        if !(1..=22).contains(&self.files.zstd_level) {
            return Some("zstd_level is not between 1 and 22");
        }
        None
    }
}
