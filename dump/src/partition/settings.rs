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

/// Shortest one: each group is a file and a manifest for ever.
const AGE_MIN: Duration = Duration::from_secs(1);

/// How a partition is dumped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Where files go.
    pub pattern: Pattern,
    /// When groups are closed.
    pub limits: Limits,
    /// How files are written.
    pub files: envelope::Settings,
    /// Bytes of memory of a file that are worth a row group of their own when memory is short.
    pub relieved_bytes_min: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            pattern: Pattern::default(),
            limits: Limits::default(),
            files: envelope::Settings::default(),
            relieved_bytes_min: 64 << 10,
        }
    }
}

impl Settings {
    /// All that is wrong with them, each in words that begin with the name of a setting.
    #[must_use]
    pub fn fault(&self) -> Option<String> {
        let limits = &self.limits;
        let is_age = (AGE_MIN..=AGE_MAX).contains(&limits.age_max);
        let is_count = (1..=FILES_MAX).contains(&limits.buckets_max);
        let checks = [
            (
                is_age,
                "age_max is not between a second and 6 hours; a group may not be open for longer",
            ),
            (is_count, "buckets_max is not between 1 and 512"),
            (limits.file_bytes_max > 0, "file_bytes_max is 0"),
        ];
        let faults = checks.into_iter().filter(|(is_legal, _)| !is_legal);
        let faults = faults.map(|(_, fault)| fault).chain(self.files.faults());
        let faults: Vec<&str> = faults.collect();
        (!faults.is_empty()).then(|| faults.join("; "))
    }
}
