//! The changes that watches can still ask for.

use std::{collections::VecDeque, sync::Arc};

use crate::api::{Error, Result, Revision, WatchEvent};

/// Most events that one batch is filled up to, in whole revisions.
const BATCH_EVENTS: usize = 1_000;
/// Bytes counted for each event on top of its key and value.
const EVENT_OVERHEAD: usize = 64;

/// All changes of one revision.
#[derive(Debug)]
struct Commit {
    revision: Revision,
    events: Arc<[WatchEvent]>,
    bytes: usize,
}

/// Recent changes, oldest first, without holes.
#[derive(Debug)]
pub(super) struct History {
    commits: VecDeque<Commit>,
    bytes: usize,
    bytes_max: usize,
    /// First revision that is still kept or yet to come.
    first: Revision,
}

/// What a watch gets at once.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) events: Vec<WatchEvent>,
    /// Where to go on.
    pub(super) next: Revision,
}

impl History {
    /// An empty history whose first change will have revision `first`.
    pub(super) fn new(first: Revision, bytes_max: usize) -> Self {
        Self {
            commits: VecDeque::new(),
            bytes: 0,
            bytes_max,
            first,
        }
    }

    /// Adds the newest revision and forgets the oldest beyond the limit. The newest always stays.
    pub(super) fn push(&mut self, revision: Revision, events: Vec<WatchEvent>) {
        let bytes = events.iter().map(event_bytes).sum();
        self.bytes += bytes;
        self.commits.push_back(Commit {
            revision,
            events: events.into(),
            bytes,
        });
        while self.bytes > self.bytes_max && self.commits.len() > 1 {
            let oldest = self.commits.pop_front().expect("more than one is there");
            self.bytes -= oldest.bytes;
            self.first = oldest.revision.next();
        }
    }

    /// Changes under `prefix` from revision `from` on, as many as fit in a batch.
    pub(super) fn since(&self, from: Revision, prefix: &str) -> Result<Batch> {
        if from < self.first {
            return Err(Error::Compacted {
                compacted: self.first,
            });
        }
        let mut batch = Batch {
            events: Vec::new(),
            next: from,
        };
        let start = self.commits.partition_point(|c| c.revision < from);
        for commit in self.commits.range(start..) {
            let matching = commit.events.iter().filter(|e| e.key.starts_with(prefix));
            batch.events.extend(matching.cloned());
            batch.next = commit.revision.next();
            if batch.events.len() >= BATCH_EVENTS {
                break;
            }
        }
        Ok(batch)
    }
}

fn event_bytes(event: &WatchEvent) -> usize {
    let value = event.entry.as_ref().map_or(0, |entry| entry.value.len());
    EVENT_OVERHEAD + event.key.len() + value
}
