//! Which topics a subscription means.
//!
//! Patterns match whole names. They never match internal topics, and nothing ever matches a topic of
//! ours (C071).

mod compiled;
mod expression;
mod matchers;

use std::{fmt, sync::Arc};

use crate::{
    ids::TopicName,
    spec::{Pattern, Selector},
};

pub use matchers::Matchers;
pub(crate) use {
    compiled::{Compiled, TooLarge},
    expression::{Expression, letters},
};

/// Most bytes of one pattern.
pub const PATTERN_BYTES_MAX: usize = 4096;
/// Most bytes of a compiled selector, its include and exclude patterns together. A guess: some 30,000
/// letters of names joined by `|` fit.
pub const COMPILED_BYTES_MAX: usize = 1 << 20;
/// Most exclude patterns of one selector.
pub const EXCLUDES_MAX: usize = 100;

/// Names of internal topics, as a pattern for whole names.
pub(crate) const INTERNAL: &str = "__.*|_schemas|_confluent.*|connect-(offsets|configs|status)";

/// A pattern that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("pattern {pattern:?} {fault}")]
pub struct PatternError {
    /// The pattern as given.
    pub pattern: String,
    /// What is wrong with it, written to follow the pattern.
    pub fault: String,
}

/// Whether a topic belongs to the inner workings of Kafka or of tools around it.
#[must_use]
pub fn is_internal(topic: &TopicName) -> bool {
    let name = topic.as_str();
    name.starts_with("__")
        || name.starts_with("_confluent")
        || matches!(
            name,
            "_schemas" | "connect-offsets" | "connect-configs" | "connect-status"
        )
}

/// Whether a topic is one that we keep for ourselves.
#[must_use]
pub fn is_ours(topic: &TopicName) -> bool {
    topic.as_str().starts_with("__kreplicator")
}

/// Checks that a text is a regular expression that may be used in a pattern, without compiling it.
///
/// # Errors
/// [`PatternError`] naming it.
pub fn check_syntax(text: &str) -> Result<(), PatternError> {
    Expression::parse(text).map(|_| ())
}

impl Selector {
    /// What the selector is known by: the topic's name, or the include pattern between slashes.
    /// Topic names hold no slash, so the two cannot be mixed up.
    #[must_use]
    pub fn id(&self) -> String {
        match self {
            Self::Topic(topic) => topic.to_string(),
            Self::Pattern(pattern) => format!("/{}/", pattern.include),
        }
    }
}

/// A selector made ready to be asked many times. Clones share what was compiled.
#[derive(Debug, Clone)]
pub struct Matcher(Kind);

#[derive(Debug, Clone)]
enum Kind {
    Topic(TopicName),
    Pattern(Arc<Automata>),
}

/// A pattern's automata: excludes are one, whatever their number.
#[derive(Debug)]
pub(crate) struct Automata {
    pub(crate) include: Compiled,
    pub(crate) exclude: Option<Compiled>,
}

impl Matcher {
    /// Compiles the patterns of a selector.
    ///
    /// # Errors
    /// [`PatternError`] naming the first pattern that is no regular expression, or the one with which
    /// the selector becomes too large.
    pub fn compile(selector: &Selector) -> Result<Self, PatternError> {
        match selector {
            Selector::Topic(topic) => Ok(Self(Kind::Topic(topic.clone()))),
            Selector::Pattern(pattern) => {
                let automata = Automata::compile(pattern)?;
                Ok(Self(Kind::Pattern(Arc::new(automata))))
            }
        }
    }

    /// Whether the selector means this topic.
    #[must_use]
    pub fn matches(&self, topic: &TopicName) -> bool {
        if is_ours(topic) {
            return false;
        }
        match &self.0 {
            Kind::Topic(exact) => exact == topic,
            Kind::Pattern(automata) => !is_internal(topic) && automata.is_match(topic.as_str()),
        }
    }

    /// The topic that an exact selector names.
    pub(crate) fn exact(&self) -> Option<&TopicName> {
        match &self.0 {
            Kind::Topic(topic) => Some(topic),
            Kind::Pattern(_) => None,
        }
    }

    /// The automata of a pattern.
    pub(crate) fn automata(&self) -> Option<&Automata> {
        match &self.0 {
            Kind::Topic(_) => None,
            Kind::Pattern(automata) => Some(automata),
        }
    }
}

impl Automata {
    fn compile(pattern: &Pattern) -> Result<Self, PatternError> {
        check_excludes(pattern)?;
        let include = Expression::parse(&pattern.include)?;
        let excludes = pattern.exclude.iter().map(|text| Expression::parse(text));
        let excludes = excludes.collect::<Result<Vec<_>, _>>()?;
        Self::within_limit(&include, &excludes)
            .map_err(|TooLarge| too_large(pattern, &include, &excludes))
    }

    fn within_limit(include: &Expression, excludes: &[Expression]) -> Result<Self, TooLarge> {
        let include = Compiled::new(include, COMPILED_BYTES_MAX)?;
        let left = COMPILED_BYTES_MAX.saturating_sub(include.bytes());
        let exclude = match excludes {
            [] => None,
            excludes => Some(Compiled::new(&Expression::any_of(excludes), left)?),
        };
        Ok(Self { include, exclude })
    }

    fn is_match(&self, name: &str) -> bool {
        let is_excluded = |exclude: &Compiled| exclude.is_match(name);
        self.include.is_match(name) && !self.exclude.as_ref().is_some_and(is_excluded)
    }
}

/// Names the pattern with which those before it become too large together, by halving: a few
/// compilations of at most the limit, whatever was sent.
fn too_large(pattern: &Pattern, include: &Expression, excludes: &[Expression]) -> PatternError {
    let numbers: Vec<usize> = (0..=excludes.len()).collect();
    let fits = |number: &usize| Automata::within_limit(include, &excludes[..*number]).is_ok();
    match numbers.partition_point(fits) {
        0 => fault(
            &pattern.include,
            "is too large once compiled; shorten its repetitions",
        ),
        number => fault(
            &pattern.exclude[number - 1],
            "is too large once compiled, together with the patterns before it; shorten repetitions \
             or exclude fewer names",
        ),
    }
}

fn check_excludes(pattern: &Pattern) -> Result<(), PatternError> {
    if pattern.exclude.len() > EXCLUDES_MAX {
        return Err(fault(
            &pattern.include,
            format!(
                "has {} exclude patterns; join them to at most {EXCLUDES_MAX}",
                pattern.exclude.len()
            ),
        ));
    }
    Ok(())
}

fn fault(pattern: &str, fault: impl fmt::Display) -> PatternError {
    PatternError {
        pattern: pattern.to_owned(),
        fault: fault.to_string(),
    }
}

#[cfg(test)]
#[path = "selector_tests.rs"]
mod tests;
