//! Telling the store what runs here, and seeing to it that the store keeps it.

use std::sync::Arc;

use kreplicator_store::keys;
use tokio::{task::JoinError, time::Instant};
use tracing::{debug, error, warn};

use super::{Error, Shift, Written, write};
use crate::metrics;

/// When a chunk may be written next.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    failures: u32,
    not_before: Instant,
}

impl Shift<'_> {
    /// Compares what the store holds with what it was told; lists that others changed or deleted are
    /// told again (C043).
    pub(super) fn observe(&mut self) {
        let seen = self.owned.revision();
        for key in self.owned.entries().keys() {
            if let Some((_, number)) = keys::split_chunk(key, keys::OWNED) {
                // Left by a registration that lapsed on the same lease.
                self.books.adopt(number, self.assigned.revision());
            }
        }
        for number in 0..keys::ASSIGNMENT_CHUNKS {
            let key = keys::owned(&self.supervisor.parts.worker, number);
            let shown = self
                .owned
                .entries()
                .get(&key)
                .map(|entry| entry.mod_revision);
            if self.books.observed(number, shown, seen) && self.owned_read {
                warn!(
                    key,
                    "what this worker runs was changed in the store, telling it again"
                );
                metrics::restored();
            }
        }
        if !self.owned_read {
            self.owned_read = true;
            self.read();
        }
    }

    /// When the next chunk may be written; None: there is none to write, or it is written already.
    pub(super) fn next_write(&self) -> Option<Instant> {
        if !self.is_read() {
            return None;
        }
        let unpublished = self.books.unpublished().into_iter();
        unpublished
            .filter_map(|number| self.paces.get(&number))
            .map(|pace| pace.not_before)
            .min()
    }

    pub(super) fn write_due(&mut self) {
        let now = Instant::now();
        for number in self.books.unpublished() {
            let pace = self.paces.get(&number);
            if pace.is_some_and(|pace| pace.not_before > now) {
                continue;
            }
            let Some(publication) = self.books.publish(number) else {
                continue;
            };
            let parts = &self.supervisor.parts;
            let failures = self.paces.get(&number).map_or(0, |pace| pace.failures);
            self.paces.insert(
                number,
                Pace {
                    failures,
                    not_before: now + parts.settings.write_interval,
                },
            );
            self.writes.spawn(write(
                Arc::clone(&parts.store),
                parts.worker.clone(),
                self.tenure.clone(),
                number,
                publication,
            ));
        }
    }

    pub(super) fn written(
        &mut self,
        written: Result<(u32, Written), JoinError>,
    ) -> Result<(), Error> {
        let (number, written) = written.map_err(|error| Error::Broken(error.to_string()))?;
        match written {
            Written::Committed(revision) => {
                self.books.committed(number, revision);
                self.paces
                    .entry(number)
                    .and_modify(|pace| pace.failures = 0);
                metrics::owned_written("committed");
                self.observe_again();
                return Ok(());
            }
            Written::Found(revision) => {
                self.books.found(number, revision);
                metrics::owned_written("conflict");
                debug!(
                    number,
                    ?revision,
                    "the store holds another list than expected"
                );
            }
            Written::Unregistered => {
                self.books.unknown(number);
                self.supervisor.parts.membership.verify();
                metrics::owned_written("unregistered");
                debug!(number, "the store does not know this registration any more");
            }
            Written::Unknown(error) => {
                self.books.unknown(number);
                metrics::owned_written("failed");
                let failures = self.paces.get(&number).map_or(0, |pace| pace.failures);
                if !error.is_retryable() {
                    error!(number, %error, "the store refuses to be told what runs here");
                } else if failures == 0 {
                    warn!(number, %error, "the store was not told what runs here, trying again");
                } else {
                    debug!(number, %error, failures, "the store still was not told what runs here");
                }
            }
        }
        self.back_off(number);
        Ok(())
    }

    fn back_off(&mut self, number: u32) {
        let backoff = self.supervisor.parts.settings.backoff;
        let now = Instant::now();
        let pace = self.paces.entry(number).or_insert(Pace {
            failures: 0,
            not_before: now,
        });
        pace.failures = pace.failures.saturating_add(1);
        pace.not_before = now + backoff.delay(pace.failures, &mut rand::rng());
    }

    /// What the view showed while a write was under way counts now.
    fn observe_again(&mut self) {
        if self.owned_read {
            self.observe();
        }
    }
}
