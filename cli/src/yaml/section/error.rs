//! What a `serde` struct refused, and the way to it.

use serde::de;

use crate::yaml::{node::Place, suggest};

/// One step down into a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    Key(String),
    Index(usize),
}

/// What the struct refused.
#[derive(Debug)]
pub(super) enum Problem {
    UnknownField {
        given: String,
        known: &'static [&'static str],
    },
    UnknownWord {
        given: String,
        known: &'static [&'static str],
    },
    Missing(&'static str),
    Other(String),
}

impl Problem {
    pub(super) fn message(&self) -> String {
        match self {
            Self::UnknownField { given, known } => {
                format!("unknown key; {}", suggest::remedy(given, known))
            }
            Self::UnknownWord { given, known } => {
                format!("{given:?} is not known; {}", suggest::remedy(given, known))
            }
            Self::Missing(field) => format!("`{field}` is missing; add it"),
            Self::Other(message) if message == "invalid socket address syntax" => {
                "is no address; write ip:port, for example 0.0.0.0:7070".to_owned()
            }
            Self::Other(message) => message.clone(),
        }
    }
}

/// An error and the way to it, innermost step first.
#[derive(Debug)]
pub(super) struct Error {
    pub(super) problem: Problem,
    pub(super) place: Option<Place>,
    pub(super) steps: Vec<Step>,
}

impl Error {
    pub(super) fn of(problem: Problem) -> Self {
        Self {
            problem,
            place: None,
            steps: Vec::new(),
        }
    }

    pub(super) fn at(mut self, place: &Place) -> Self {
        self.place.get_or_insert_with(|| place.clone());
        self
    }

    pub(super) fn inside(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.problem.message())
    }
}

impl std::error::Error for Error {}

impl de::Error for Error {
    fn custom<T: std::fmt::Display>(message: T) -> Self {
        Self::of(Problem::Other(message.to_string()))
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        Self::of(Problem::UnknownField {
            given: field.to_owned(),
            known: expected,
        })
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        Self::of(Problem::UnknownWord {
            given: variant.to_owned(),
            known: expected,
        })
    }

    fn missing_field(field: &'static str) -> Self {
        Self::of(Problem::Missing(field))
    }
}
