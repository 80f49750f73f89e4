//! What another owner has saved further.
//!
//! In a move without a pause it goes on beside its successor until that copies, and saves once more when it
//! ends. A successor that reads from the checkpoint on is behind that for a moment. If it saved its own, and
//! ended then, the next owner would read again what was delivered long ago, and where the source has lost it
//! meanwhile, report it as a gap. Its successor may be ahead of the former owner as well when that ends.
//!
//! What counts is decided by [`CheckpointMeta::covers`]. A save that comes between the look and one's own is lost.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures::future::join_all;
#[cfg(doc)]
use kreplicator_model::checkpoint::CheckpointMeta;
use kreplicator_model::exact::Checkpoint;
use tokio::time::{Instant, timeout_at};

use super::{Commits, Watched};
use crate::batches::lane::Lane;

/// For so long after a task began, a former owner of it may still save. When it ends it looks once more.
const YOUNG: Duration = Duration::from_secs(60);

impl Watched {
    /// Whether a former owner may still save.
    pub(super) fn is_young(&self) -> bool {
        self.since.elapsed() < YOUNG
    }
}

impl Commits {
    /// Those that say more than what a former owner has saved.
    pub(super) async fn uncovered(
        &self,
        mut due: Vec<(Arc<Lane>, Checkpoint)>,
    ) -> Vec<(Arc<Lane>, Checkpoint)> {
        let deadline = Instant::now() + self.0.config.call_timeout;
        let young: Vec<_> = {
            let watched = self.lock();
            let is_young = |lane: &Lane| watched.get(&lane.number).is_some_and(Watched::is_young);
            due.iter().filter(|(lane, _)| is_young(lane)).collect()
        };
        let asked = young.into_iter().map(async |(lane, checkpoint)| {
            let is_covered = self.is_covered(lane, *checkpoint, deadline).await;
            is_covered.then_some(lane.number)
        });
        let covered: BTreeSet<u64> = join_all(asked).await.into_iter().flatten().collect();
        due.retain(|(lane, _)| !covered.contains(&lane.number));
        due
    }

    /// Whether another owner has saved more than this. No: perhaps nobody knows.
    pub(super) async fn is_covered(
        &self,
        lane: &Lane,
        checkpoint: Checkpoint,
        deadline: Instant,
    ) -> bool {
        let asked = self.0.group.checkpoint(&lane.spec);
        let Ok(Ok(Some(kept))) = timeout_at(deadline, asked).await else {
            return false;
        };
        let Some(meta) = kept.meta else {
            return false;
        };
        meta.covers(kept.offset, lane.spec.epoch, lane.began_from(), checkpoint)
    }
}
