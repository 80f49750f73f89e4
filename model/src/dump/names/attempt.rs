//! Names that no two attempts share.

use std::fmt;

use super::super::path::{COMPONENT_BYTES_MAX, StorePath};
use crate::ids::{OwnerEpoch, WorkerId};

/// Bytes of a worker's name that are kept; the rest of a component is for the numbers.
const WORKER_BYTES_MAX: usize = 180;

/// The name of one attempt at a group: `<worker>+<epoch>+<incarnation>+<count>`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttemptName(String);

impl AttemptName {
    /// Reads a name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let is_component = name.len() <= COMPONENT_BYTES_MAX && !name.contains('/');
        let is_legal = is_component && StorePath::new(name).is_ok();
        let mut parts = name.rsplit('+');
        let mut is_number = |radix| {
            let number = parts.next()?;
            u64::from_str_radix(number, radix).ok()
        };
        let (count, incarnation, epoch) = (is_number(10), is_number(16), is_number(10));
        let has_numbers = count.is_some() && incarnation.is_some() && epoch.is_some();
        let has_worker = parts.next().is_some_and(|worker| !worker.is_empty());
        let is_whole = is_legal && has_numbers && has_worker && parts.next().is_none();
        is_whole.then(|| Self(name.to_owned()))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for AttemptName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Gives each attempt of one owner a name.
#[derive(Debug, Clone)]
pub struct AttemptNames {
    prefix: String,
    count: u64,
}

impl AttemptNames {
    /// Of the ownership `epoch` of a task by `worker`. `incarnation` is drawn at random when the process
    /// starts, since a restarted worker may keep its id and its epoch.
    #[must_use]
    pub fn new(worker: &WorkerId, epoch: OwnerEpoch, incarnation: u64) -> Self {
        let worker = plain(worker.as_str());
        Self {
            prefix: format!("{worker}+{epoch}+{incarnation:016x}"),
            count: 0,
        }
    }

    /// The next name; never the same again.
    pub fn next_name(&mut self) -> AttemptName {
        self.count += 1;
        AttemptName(format!("{}+{}", self.prefix, self.count))
    }
}

/// A worker's name as part of a component: without colons, not hidden, not too long. Two long names may become
/// one; the incarnation still tells them apart.
fn plain(worker: &str) -> String {
    let mut name = String::new();
    for letter in worker.chars() {
        let piece = match letter {
            ':' => "%3A".to_owned(),
            '.' | '_' if name.is_empty() => format!("%{:02X}", u32::from(letter)),
            _ => letter.to_string(),
        };
        if name.len() + piece.len() > WORKER_BYTES_MAX {
            break;
        }
        name.push_str(&piece);
    }
    name
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn c087_no_two_attempts_share_a_name() {
        let worker = WorkerId::new("worker-0.kreplicator:9000").expect("legal");
        let mut names = AttemptNames::new(&worker, OwnerEpoch(12), 0xab);
        let first = names.next_name();
        assert_eq!(
            first.as_str(),
            "worker-0.kreplicator%3A9000+12+00000000000000ab+1"
        );
        assert_ne!(names.next_name(), first);
        let mut restarted = AttemptNames::new(&worker, OwnerEpoch(12), 0xac);
        assert_ne!(restarted.next_name(), first);
    }

    #[test]
    fn what_is_no_attempt_is_not_read_as_one() {
        for name in [
            "",
            "a",
            "a+1+2",
            "+1+2+3",
            "a+b+2+3",
            "a/b+1+2+3",
            "..+1+2+3x",
            "a+1+2+3+4",
            "a+-1+2+3",
        ] {
            assert_eq!(AttemptName::parse(name), None, "{name:?}");
        }
    }

    proptest! {
        #[test]
        fn names_read_back_and_fit_in_a_component(
            worker in "[a-zA-Z0-9_.:-]{1,253}", epoch: u64, incarnation: u64,
        ) {
            let worker = WorkerId::new(worker).expect("legal");
            let name = AttemptNames::new(&worker, OwnerEpoch(epoch), incarnation).next_name();
            prop_assert!(name.as_str().len() <= COMPONENT_BYTES_MAX);
            prop_assert!(!name.as_str().starts_with(['_', '.']));
            prop_assert_eq!(AttemptName::parse(name.as_str()), Some(name));
        }
    }
}
