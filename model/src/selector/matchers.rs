//! Matchers kept by what they were compiled from.
//!
//! Whoever asks the same selectors again and again (each pass of the controller, a check before and
//! after a change) compiles each of them once.

use std::collections::BTreeMap;

use super::{Matcher, PatternError};
use crate::spec::{Pattern, Selector};

/// Matchers of patterns, by text.
#[derive(Debug, Default)]
pub struct Matchers {
    known: BTreeMap<Pattern, Known>,
    compiled: u64,
}

#[derive(Debug)]
struct Known {
    matcher: Result<Matcher, PatternError>,
    /// Asked for since [`Matchers::forget_unused`].
    used: bool,
}

impl Matchers {
    /// The matcher of a selector; compiled when it is asked for the first time.
    ///
    /// # Errors
    /// As [`Matcher::compile`].
    pub fn get(&mut self, selector: &Selector) -> Result<Matcher, PatternError> {
        let Selector::Pattern(pattern) = selector else {
            return Matcher::compile(selector);
        };
        if let Some(known) = self.known.get_mut(pattern) {
            known.used = true;
            return known.matcher.clone();
        }
        self.compiled += 1;
        let matcher = Matcher::compile(selector);
        let known = Known {
            matcher: matcher.clone(),
            used: true,
        };
        self.known.insert(pattern.clone(), known);
        matcher
    }

    /// How many patterns were compiled so far.
    #[must_use]
    pub fn compiled(&self) -> u64 {
        self.compiled
    }

    /// Forgets what was not asked for since the last call: called once a round, it keeps what is held
    /// to what is in use.
    pub fn forget_unused(&mut self) {
        self.known
            .retain(|_, known| std::mem::take(&mut known.used));
    }
}
