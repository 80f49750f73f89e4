//! The latest source records that arrived, to recognise their repetitions.
//!
//! Streams that are the same only append here; the index is made when a record first asks, and kept
//! from then on.

use std::collections::{BTreeMap, VecDeque};

use super::Fingerprint;

/// A bounded memory of records.
#[derive(Debug)]
pub(super) struct History {
    latest: VecDeque<Fingerprint>,
    /// How often each of `latest` is in there.
    index: Option<BTreeMap<Fingerprint, usize>>,
    limit: usize,
}

impl History {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            latest: VecDeque::new(),
            index: None,
            limit,
        }
    }

    /// Adds a record that arrived; the oldest one gives way.
    pub(super) fn add(&mut self, print: Fingerprint) {
        if self.latest.len() >= self.limit
            && let Some(oldest) = self.latest.pop_front()
            && let Some(index) = &mut self.index
        {
            forget(index, &oldest);
        }
        self.latest.push_back(print);
        if let Some(index) = &mut self.index {
            *index.entry(print).or_default() += 1;
        }
    }

    /// Whether such a record arrived lately.
    pub(super) fn holds(&mut self, print: &Fingerprint) -> bool {
        let index = self.index.get_or_insert_with(|| {
            let mut index = BTreeMap::new();
            for print in &self.latest {
                *index.entry(*print).or_default() += 1;
            }
            index
        });
        index.contains_key(print)
    }
}

fn forget(index: &mut BTreeMap<Fingerprint, usize>, print: &Fingerprint) {
    if let Some(count) = index.get_mut(print) {
        *count -= 1;
        if *count == 0 {
            index.remove(print);
        }
    }
}
