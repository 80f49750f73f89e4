//! Which topics a subscription means.
//!
//! Patterns match whole names. They never match internal topics, and nothing ever matches a topic of
//! ours (C071).

use std::fmt;

use regex::{Regex, RegexBuilder};

use crate::{
    ids::TopicName,
    overlap,
    spec::{Pattern, Selector},
};

/// Most bytes of one pattern.
pub const PATTERN_BYTES_MAX: usize = 4096;
/// Most bytes of a compiled pattern. A guess: a thousand topic names joined by `|` need a tenth.
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

/// Whether two selectors may mean the same topic. True unless it is proven that they cannot.
#[must_use]
pub fn may_overlap(a: &Selector, b: &Selector) -> bool {
    overlap::of(&[a, b]).is_possible()
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

/// A selector made ready to be asked many times.
#[derive(Debug, Clone)]
pub struct Matcher(Kind);

#[derive(Debug, Clone)]
enum Kind {
    Topic(TopicName),
    Pattern { include: Regex, exclude: Vec<Regex> },
}

impl Matcher {
    /// Compiles the patterns of a selector.
    ///
    /// # Errors
    /// [`PatternError`] naming the first pattern that is no regular expression or too large.
    pub fn compile(selector: &Selector) -> Result<Self, PatternError> {
        let pattern = match selector {
            Selector::Topic(topic) => return Ok(Self(Kind::Topic(topic.clone()))),
            Selector::Pattern(pattern) => pattern,
        };
        check_excludes(pattern)?;
        let exclude = pattern.exclude.iter().map(|text| whole(text));
        Ok(Self(Kind::Pattern {
            include: whole(&pattern.include)?,
            exclude: exclude.collect::<Result<_, _>>()?,
        }))
    }

    /// Whether the selector means this topic.
    #[must_use]
    pub fn matches(&self, topic: &TopicName) -> bool {
        if is_ours(topic) {
            return false;
        }
        match &self.0 {
            Kind::Topic(exact) => exact == topic,
            Kind::Pattern { include, exclude } => {
                let name = topic.as_str();
                !is_internal(topic)
                    && include.is_match(name)
                    && !exclude.iter().any(|pattern| pattern.is_match(name))
            }
        }
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

/// A regular expression that matches whole names only. The pattern is compiled alone first: text such
/// as `a)|(b` is no pattern, though it becomes one between brackets.
fn whole(pattern: &str) -> Result<Regex, PatternError> {
    if pattern.is_empty() {
        return Err(fault(pattern, "is empty; use \".*\" for every topic"));
    }
    if pattern.len() > PATTERN_BYTES_MAX {
        let shown: String = pattern.chars().take(40).collect();
        return Err(fault(
            &format!("{shown}…"),
            format!("is longer than {PATTERN_BYTES_MAX} bytes; split it"),
        ));
    }
    compile(pattern).map_err(|error| fault(pattern, explain(&error)))?;
    compile(&anchored(pattern)).map_err(|error| fault(pattern, explain(&error)))
}

/// The pattern for whole names.
pub(crate) fn anchored(pattern: &str) -> String {
    format!("^(?:{pattern})$")
}

fn compile(pattern: &str) -> Result<Regex, regex::Error> {
    RegexBuilder::new(pattern)
        .size_limit(COMPILED_BYTES_MAX)
        .build()
}

/// The parser draws its complaint over several lines; the last one says what is wrong.
fn explain(error: &regex::Error) -> String {
    match error {
        regex::Error::CompiledTooBig(_) => {
            "is too large once compiled; shorten its repetitions".to_owned()
        }
        other => {
            let text = other.to_string();
            let line = text.lines().last().unwrap_or_default();
            let cause = line.strip_prefix("error: ").unwrap_or(line);
            format!("is no regular expression (RE2 syntax): {cause}")
        }
    }
}

#[cfg(test)]
#[path = "selector_tests.rs"]
mod tests;
