//! Whether selectors can mean the same topic.

use crate::{ids::TopicName, spec::Selector};

/// What is known about the topics that several selectors have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Overlap {
    /// Proven: there is none.
    Disjoint,
    /// All of them mean this topic.
    Example(TopicName),
    /// Not decided within the limits.
    Unknown,
}

impl Overlap {
    /// Whether a common topic cannot be ruled out.
    #[must_use]
    pub fn is_possible(&self) -> bool {
        !matches!(self, Self::Disjoint)
    }
}

/// Looks for a topic that every one of the selectors means.
#[must_use]
pub fn of(selectors: &[&Selector]) -> Overlap {
    let _ = selectors;
    todo!()
}
