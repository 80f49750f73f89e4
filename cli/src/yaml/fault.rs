//! What is wrong with a file or a setting.

use std::fmt;

use super::node::{Path, Place};

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    /// Where it was written; None: nowhere, a default or something missing.
    pub(crate) place: Option<Place>,
    /// The way to the value; empty for the whole document.
    pub(crate) path: String,
    /// What is wrong and what to do about it.
    pub(crate) message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(place) = &self.place {
            write!(f, "{place}: ")?;
        }
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)
    }
}

/// Everything that is wrong, in the order found until it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Faults(Vec<Fault>);

impl Faults {
    /// Adds a fault.
    pub(crate) fn push(&mut self, place: &Place, path: &Path, message: impl Into<String>) {
        self.add(Fault {
            place: Some(place.clone()),
            path: path.to_string(),
            message: message.into(),
        });
    }

    /// Adds a fault that may have no place.
    pub(crate) fn add(&mut self, fault: Fault) {
        self.0.push(fault);
    }

    /// Whether nothing is wrong.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// `value`, or everything that is wrong.
    ///
    /// # Errors
    /// These faults, ordered by place, if there are any.
    ///
    /// # Panics
    /// When nothing is wrong and there is no value: then a decoder dropped a value silently.
    pub(crate) fn or<T>(mut self, value: Option<T>) -> Result<T, Self> {
        if self.is_empty() {
            return Ok(value.expect("a value that could not be read is a fault"));
        }
        self.0.sort_by(|a, b| a.place.cmp(&b.place));
        Err(self)
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for fault in &self.0 {
            writeln!(f, "{fault}")?;
        }
        match self.0.len() {
            1 => f.write_str("1 fault"),
            count => write!(f, "{count} faults"),
        }
    }
}

impl std::error::Error for Faults {}
