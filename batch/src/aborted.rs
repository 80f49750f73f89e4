//! Which batches of a Fetch answer a reader of committed records must not see.
//!
//! A broker sends the records of aborted transactions too, with a list that says which producer's transaction began
//! where. Batch by batch, a producer is aborted from the first offset of such a transaction to its abort marker.
//!
//! # Source
//! Kafka 4.3 `CompletedFetch.nextFetchedRecord`, `consumeAbortedTransactionsUpTo`, `containsAbortMarker`.

use std::collections::BTreeSet;

use crate::batch::Batch;
use crate::control::{self, Control};

/// An aborted transaction, as a Fetch answer lists it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AbortedTransaction {
    /// Whose transaction.
    pub producer_id: i64,
    /// Offset of its first record, inclusive.
    pub first_offset: i64,
}

/// What becomes of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Its records are committed or belong to no transaction.
    Keep,
    /// Its transaction was aborted.
    Aborted,
    /// It is a marker, no data.
    Control,
}

/// Judges the batches of one Fetch answer of one partition, in their order. Each answer has a list of its own, so each
/// needs a filter of its own.
#[derive(Debug, Clone)]
pub struct AbortedFilter {
    /// Transactions that begin after the batches judged so far; the next one last.
    ahead: Vec<AbortedTransaction>,
    /// Producers in an aborted transaction at this point of the log.
    aborted: BTreeSet<i64>,
}

impl AbortedFilter {
    /// For an answer with this list, in any order; empty for an answer without one.
    pub fn new(mut transactions: Vec<AbortedTransaction>) -> Self {
        transactions.sort_by_key(|transaction| std::cmp::Reverse(transaction.first_offset));
        Self {
            ahead: transactions,
            aborted: BTreeSet::new(),
        }
    }

    /// What becomes of `batch`, the one after that judged before.
    ///
    /// # Errors
    /// When `batch` is a control batch whose marker cannot be read.
    pub fn judge(&mut self, batch: &Batch) -> Result<Verdict, control::Error> {
        let header = batch.header();
        let shape = header.shape();
        let producer_id = header.producer.id;
        if header.producer.is_some() {
            self.advance(header.last_offset());
            if shape.is_control() {
                // An emptied control batch is what compaction leaves of a marker; it ends nothing.
                let aborts =
                    !shape.is_empty() && matches!(control::parse(batch)?, Control::Abort { .. });
                if aborts {
                    self.aborted.remove(&producer_id);
                }
            } else if shape.is_transactional() && self.aborted.contains(&producer_id) {
                return Ok(Verdict::Aborted);
            }
        }
        Ok(if shape.is_control() {
            Verdict::Control
        } else {
            Verdict::Keep
        })
    }

    /// Takes in the transactions that begin at or before `last_offset`.
    fn advance(&mut self, last_offset: i64) {
        while let Some(next) = self.ahead.pop_if(|next| next.first_offset <= last_offset) {
            self.aborted.insert(next.producer_id);
        }
    }
}

#[cfg(test)]
mod tests;
