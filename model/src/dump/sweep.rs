//! What may be deleted of what attempts have left behind.
//!
//! Problem: owners die, and are told by nobody that they are dead. What they wrote is in the way of nobody, since no
//! two attempts share a name, but it takes space. To delete what may still be committed would lose records.
//!
//! # Rules
//! The manifest at an offset is there once and for ever. So
//! - where it names *another* attempt, an attempt at that offset can never be committed: its rename is refused. Its
//!   folder may be deleted at any age;
//! - where it names *this* attempt, its files are final, or are about to be: the folder may go once it is empty;
//! - where there is none, the attempt may be alive. It may go only when it is so old that its owner would not
//!   commit it any more ([`COMMIT_WITHIN`], by the owner's own clock), with a wide margin for clocks that differ:
//!   [`ABANDONED_AFTER`]. Its documents are deleted first and then the manifest is looked for once more: without
//!   its document no rename can succeed, so nothing can be committed while its data goes.
//!
//! In normal operation the first rule does it all: the owner that goes on commits at the same offset. Listings are
//! used here and nowhere else (C082).

use std::time::Duration;

use super::names::AttemptName;

/// How old an attempt may be, by its owner's monotonic clock, and still be committed. An older one is given up and its
/// records are read again.
pub const COMMIT_WITHIN: Duration = Duration::from_hours(24);
/// Age from which an attempt that nobody has overtaken is taken for abandoned.
pub const ABANDONED_AFTER: Duration = Duration::from_hours(7 * 24);

/// What to do about an attempt's folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// Nothing: it may be alive, or it is young.
    Keep,
    /// Delete it with everything in it: another attempt was committed at its offset.
    Overtaken,
    /// Delete it if it is empty: it was committed.
    Committed,
    /// Delete its documents, ask again for the manifest, and if there still is none, delete it with everything
    /// in it.
    Abandoned,
}

/// Judges an attempt. `committed`: the attempt that the manifest at its offset names, if there is one. `age`: since
/// anything in its folder was last changed, by the store's clock.
#[must_use]
pub fn judge(attempt: &AttemptName, committed: Option<&AttemptName>, age: Duration) -> Verdict {
    match committed {
        Some(committed) if committed == attempt => Verdict::Committed,
        Some(_) => Verdict::Overtaken,
        None if age >= ABANDONED_AFTER => Verdict::Abandoned,
        None => Verdict::Keep,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c087_only_what_can_no_longer_be_committed_is_deleted() {
        let name = |count| AttemptName::parse(&format!("w+1+1+{count}")).expect("legal");
        let (young, old) = (Duration::ZERO, ABANDONED_AFTER);
        let almost = old - Duration::from_millis(1);
        assert_eq!(judge(&name(1), Some(&name(2)), young), Verdict::Overtaken);
        assert_eq!(judge(&name(1), Some(&name(1)), old), Verdict::Committed);
        assert_eq!(judge(&name(1), None, almost), Verdict::Keep);
        assert_eq!(judge(&name(1), None, old), Verdict::Abandoned);
        assert!(COMMIT_WITHIN * 3 < ABANDONED_AFTER);
    }
}
