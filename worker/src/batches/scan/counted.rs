//! Records of a stretch, counted.

use std::{sync::Arc, time::Duration};

use kreplicator_batch::{Batch, Compression, aborted::Verdict, records::Unpacked};
use kreplicator_kafka::blocking::blocking;
use kreplicator_model::ids::Offset;
use kreplicator_wire::cluster::ClusterClient;
use tokio::time::{Instant, sleep};

use super::{PAUSE, Scan, Scans, Stretch, Unread};
use crate::{
    batches::intake::{PLAIN_BYTES_MAX, UNFOLDS, UNFOLDS_FURTHER, is_too_large},
    budget::{Budget, Grant, Loan},
    fault::{Fault, Kind},
};

/// Parts of a batch that are in memory at a time, each as large as what it unfolds to: its records, and as much once
/// more while they grow.
const COPIES: u64 = 2;

impl Scans {
    /// Copyable records in a stretch.
    ///
    /// # Errors
    /// As [`Scan::next`], and what cannot be opened.
    pub(in crate::batches) async fn count(
        &self,
        client: &ClusterClient,
        stretch: &Stretch,
        patience: Duration,
    ) -> Result<u64, Unread> {
        let mut scan = self.begin(client, stretch, patience).await;
        let mut counted = 0;
        while let Some(within) = scan.next_within(0).await? {
            counted += within.records;
        }
        Ok(counted)
    }

    /// The offset after the first `records` copyable records of a stretch; None: it has fewer.
    ///
    /// # Errors
    /// As [`count`](Self::count).
    pub(in crate::batches) async fn after(
        &self,
        client: &ClusterClient,
        stretch: &Stretch,
        records: u64,
        patience: Duration,
    ) -> Result<Option<Offset>, Unread> {
        if records == 0 {
            return Ok(Some(stretch.from));
        }
        let mut scan = self.begin(client, stretch, patience).await;
        let mut left = records;
        while let Some(within) = scan.next_within(left).await? {
            if let Some(last) = within.wanted {
                return Ok(Some(Offset(last + 1)));
            }
            left -= within.records;
        }
        Ok(None)
    }
}

/// What a batch has of a stretch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Within {
    records: u64,
    /// Offset of the record that was asked for by its number, from 1.
    wanted: Option<i64>,
}

impl Scan<'_> {
    /// What the next batch has of the stretch; `number`: of which record to tell the offset.
    async fn next_within(&mut self, number: u64) -> Result<Option<Within>, Unread> {
        let Some((batch, verdict)) = self.next().await? else {
            return Ok(None);
        };
        if verdict != Verdict::Keep {
            return Ok(Some(Within::default()));
        }
        if let Some(within) = told(&batch, self.stretch, number) {
            return Ok(Some(within));
        }
        let within = self.opened(&batch, number).await?;
        // It took its time.
        self.deadline = Instant::now() + self.patience;
        Ok(Some(within))
    }

    /// The same of a batch that has to be opened.
    async fn opened(&self, batch: &Batch, number: u64) -> Result<Within, Unread> {
        let deadline = Instant::now() + self.patience;
        let bytes = batch.size_bytes() as u64;
        let is_plain = batch.header().attributes.compression() == Compression::None;
        let mut plain_bytes_max = if is_plain { bytes } else { bytes * UNFOLDS };
        loop {
            let possible = self.scans.budget.share().most() / COPIES;
            let limit = possible.min(PLAIN_BYTES_MAX as u64);
            plain_bytes_max = plain_bytes_max.min(limit);
            let loan = self.memory(COPIES * plain_bytes_max, deadline).await?;
            let (batch, range) = (batch.clone(), self.stretch.from.0..self.stretch.to.0);
            let open = move || {
                // Held as long as it is needed, also where nobody waits for it any more.
                let _loan = loan;
                let limit = usize::try_from(plain_bytes_max).unwrap_or(usize::MAX);
                let counted = count_in(&batch, &range, number, limit);
                counted.map_err(|error| (is_too_large(&*error), error.to_string()))
            };
            match blocking(open).await {
                Ok(within) => return Ok(within),
                Err((true, _)) if plain_bytes_max < limit => {
                    plain_bytes_max = plain_bytes_max.saturating_mul(UNFOLDS_FURTHER);
                }
                Err((true, _)) if limit < PLAIN_BYTES_MAX as u64 => {
                    let needed = COPIES * limit.saturating_mul(UNFOLDS_FURTHER);
                    return Err(no_room(&self.scans.budget, needed).into());
                }
                Err((_, text)) => return Err(self.unreadable(&text).into()),
            }
        }
    }

    /// Memory to open a batch with. The turn is kept meanwhile: an answer is held.
    async fn memory(&self, bytes: u64, deadline: Instant) -> Result<Loan, Unread> {
        loop {
            // Only while it is asked: a share that waits would make those of the tasks smaller.
            let budget = &self.scans.budget;
            let mut share = budget.share();
            match share.take(bytes) {
                Grant::Granted => return Ok(share.lend(bytes)),
                Grant::NotNow if Instant::now() < deadline => {}
                Grant::NotNow => return Err(Unread::Late(no_room(budget, bytes))),
                Grant::Never => return Err(no_room(budget, bytes).into()),
            }
            drop(share);
            sleep(PAUSE).await;
        }
    }
}

/// What a batch's header alone says.
fn told(batch: &Batch, stretch: &Stretch, number: u64) -> Option<Within> {
    let (from, to) = (batch.header().base_offset, batch.header().next_offset());
    let is_within = from >= stretch.from.0 && to <= stretch.to.0;
    (is_within && batch.shape().is_dense()).then(|| {
        let records = to.abs_diff(from);
        let is_there = (1..=records).contains(&number);
        let wanted = is_there.then(|| from.checked_add_unsigned(number - 1));
        Within {
            records,
            wanted: wanted.flatten(),
        }
    })
}

type OpenError = Box<dyn std::error::Error + Send + Sync>;

fn count_in(
    batch: &Batch,
    range: &std::ops::Range<i64>,
    number: u64,
    bytes_max: usize,
) -> Result<Within, OpenError> {
    batch.verify()?;
    let mut within = Within::default();
    for record in Unpacked::open(batch, bytes_max)?.records() {
        let offset = record?.offset;
        if range.contains(&offset) {
            within.records += 1;
            if within.records == number {
                within.wanted = Some(offset);
            }
        }
    }
    Ok(within)
}

fn no_room(budget: &Arc<Budget>, bytes: u64) -> Fault {
    let limit = budget.limit_bytes();
    Fault::new(
        Kind::Memory,
        format!(
            "a batch that has to be counted needs some {bytes} bytes, for which the memory budget of this \
             worker ({limit} bytes) has no room; raise it"
        ),
    )
}

#[cfg(test)]
#[path = "counted_tests.rs"]
mod tests;
