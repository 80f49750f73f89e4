//! Tiers that cannot run here say so, and fail where they must run.

use std::{
    io::Write as _,
    process::{Command, Stdio},
};

use crate::settings;

/// A tier of tests that needs something of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tier {
    /// One real component against one adapter: needs Java and Maven for Kafka.
    Component,
    /// Everything real: needs also the program built.
    EndToEnd,
}

impl Tier {
    /// The name used in `KREPLICATOR_REQUIRE`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Component => "component",
            Self::EndToEnd => "e2e",
        }
    }

    /// What is missing on this machine, with the remedy.
    #[must_use]
    pub fn missing(self) -> Option<String> {
        for (program, package) in [("java", "openjdk-17-jre-headless"), ("mvn", "maven")] {
            if !answers(program) {
                return Some(format!("no {program}; install {package}"));
            }
        }
        let program = settings::program();
        (self == Self::EndToEnd && !program.is_file()).then(|| {
            format!(
                "no {}; build it by cargo build -p kreplicator-cli",
                program.display()
            )
        })
    }
}

fn answers(program: &str) -> bool {
    Command::new(program)
        .arg("-version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// What to do about something missing: None: run; `Some`: skip, and the reason.
///
/// # Panics
/// When the tier is required.
#[must_use]
pub fn verdict(tier: Tier, missing: Option<String>, required: bool) -> Option<String> {
    let reason = missing?;
    assert!(
        !required,
        "tier {} is required and cannot run: {reason}",
        tier.name()
    );
    Some(format!("skipped: {reason}"))
}

/// Whether a test of `tier` must return at once; says why on standard error.
///
/// # Panics
/// When the tier cannot run and is required (`KREPLICATOR_REQUIRE=component,e2e`, or CI).
#[must_use]
pub fn skip(tier: Tier) -> bool {
    skip_without(tier, tier.missing())
}

/// The same for a test that needs more than its tier does; `missing` says what it lacks, with the remedy.
///
/// # Panics
/// As [`skip`].
#[must_use]
pub fn skip_without(tier: Tier, missing: Option<String>) -> bool {
    let verdict = verdict(tier, missing, settings::required(tier.name()));
    if let Some(reason) = &verdict {
        // Not by a macro: what those print of a test that passes is shown to nobody. On a line of its own: the
        // test's name stands there already.
        drop(writeln!(std::io::stderr(), "\n{reason}"));
    }
    verdict.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tier_that_can_run_is_not_skipped() {
        assert_eq!(verdict(Tier::Component, None, true), None);
        assert_eq!(verdict(Tier::Component, None, false), None);
    }

    #[test]
    fn a_tier_that_cannot_run_says_why() {
        let reason = verdict(Tier::EndToEnd, Some("no java".to_owned()), false);
        assert_eq!(reason.as_deref(), Some("skipped: no java"));
    }

    #[test]
    #[should_panic(expected = "tier e2e is required and cannot run: no java")]
    fn a_required_tier_that_cannot_run_fails() {
        let _reason = verdict(Tier::EndToEnd, Some("no java".to_owned()), true);
    }
}
