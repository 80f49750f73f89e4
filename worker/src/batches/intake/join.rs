//! Joins tiny batches that wait in line: each request costs the target as much as a large one.

use kreplicator_batch::{Batch, rewrite};
use kreplicator_model::target_limits::TargetLimits;

use super::{Path, Ready, Why, open::options, ready};

/// Batches smaller than this are tiny.
pub(super) const TINY_BYTES: usize = 4 << 10;
/// Tiny batches are joined up to this size.
pub(super) const JOINED_BYTES_MAX: usize = 256 << 10;
/// One that unfolds to more is not tiny, whatever it looks like: it goes by itself. Joining is done where others
/// wait, and its memory is in no budget, so it has to be little.
pub(super) const JOINED_PLAIN_BYTES_MAX: usize = 1 << 20;

/// Joins the tiny batches at the front of a line into one, when at least two wait there; how many of
/// them it stands for. A damaged one ends the joining: it goes by itself and is refused by the target, once
/// everything before it is delivered (C024).
pub(in crate::batches) fn join_tiny<'a>(
    waiting: impl Iterator<Item = &'a Ready>,
    limits: &TargetLimits,
) -> Option<(Ready, usize)> {
    let mut bytes = 0;
    let mut tiny: Vec<&Ready> = Vec::new();
    let limit = limits.max_message_bytes.unwrap_or(u64::MAX);
    let limit = usize::try_from(limit)
        .unwrap_or(usize::MAX)
        .min(JOINED_BYTES_MAX);
    for ready in waiting {
        let size = ready.batch.size_bytes();
        if size > TINY_BYTES || bytes + size > limit || ready.batch.verify().is_err() {
            break;
        }
        bytes += size;
        tiny.push(ready);
    }
    if tiny.len() < 2 {
        return None;
    }
    let batches: Vec<Batch> = tiny.iter().map(|ready| ready.batch.clone()).collect();
    // One that cannot be opened is for the target to refuse as well.
    let joined = rewrite::coalesce(&batches, limit, &options(JOINED_PLAIN_BYTES_MAX)).ok()?;
    let (batch, last) = (joined.batch?, tiny.get(joined.taken.checked_sub(1)?)?);
    if batch.size_bytes() > limit || joined.taken < 2 {
        return None;
    }
    let first = tiny.first()?.first;
    let joined_ready = ready(batch, Path::Rewritten(Why::Tiny), first, last.to);
    Some((joined_ready, joined.taken))
}
