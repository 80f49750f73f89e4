//! What another owner has saved further.
//!
//! In a move without a pause it goes on beside its successor until that copies, and saves once more when it
//! ends. A successor that reads from the checkpoint on is behind that for a moment. If it saved its own, and
//! ended then, the next owner would read again what was delivered long ago, and where the source has lost it
//! meanwhile, report it as a gap. Its successor may be ahead of the former owner as well when that ends.
//!
//! Only what was saved since the task began counts: a task that has gone back on purpose, since the target has lost
//! something, must not be held to what it has found. A save that comes between the look and one's own is lost.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures::future::join_all;
use kreplicator_model::{
    checkpoint::CheckpointMeta,
    exact::Checkpoint,
    ids::{Offset, OwnerEpoch},
};
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
        let young: BTreeSet<u64> = {
            let watched = self.lock();
            let young = watched.iter().filter(|(_, one)| one.is_young());
            young.map(|(number, _)| *number).collect()
        };
        let deadline = Instant::now() + self.0.config.call_timeout;
        let asked = due
            .iter()
            .filter(|(lane, _)| young.contains(&lane.number))
            .map(async |(lane, checkpoint)| {
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
        let Ok(Ok(Some((offset, Some(meta))))) = timeout_at(deadline, asked).await else {
            return false;
        };
        let is_new = lane.began_from().is_none_or(|from| offset > from);
        is_new && covers(offset, &meta, lane.spec.epoch, checkpoint)
    }
}

/// Whether what was found saved is another owner's of the same line, and further.
fn covers(offset: Offset, found: &CheckpointMeta, epoch: OwnerEpoch, own: Checkpoint) -> bool {
    let is_same_line = found
        .counted
        .is_some_and(|counted| counted.producer == own.producer);
    is_same_line && found.epoch != epoch && offset > own.place.offset
}

#[cfg(test)]
mod tests {
    use kreplicator_model::{
        exact::{Count, Place, Producer, ProducerEpoch, ProducerId},
        ids::WorkerId,
    };

    use super::*;

    fn at(offset: i64, epoch: i16) -> Checkpoint {
        Checkpoint {
            producer: Producer {
                id: ProducerId(7),
                epoch: ProducerEpoch(epoch),
            },
            place: Place {
                offset: Offset(offset),
                count: Count(offset.unsigned_abs()),
                target_end: Offset(offset),
            },
        }
    }

    #[test]
    fn another_owners_checkpoint_of_the_same_line_is_not_taken_back() {
        let worker = WorkerId::new("w").expect("legal");
        let saved = |epoch: u64, line: i16| {
            let Checkpoint { producer, place } = at(300, line);
            CheckpointMeta::new(OwnerEpoch(epoch), worker.clone(), None)
                .with_counted(producer, place)
        };
        let covers =
            |meta: &CheckpointMeta, own: Checkpoint| covers(Offset(300), meta, OwnerEpoch(5), own);
        assert!(covers(&saved(4, 1), at(299, 1)));
        assert!(covers(&saved(6, 1), at(299, 1)), "a successor's");
        assert!(!covers(&saved(4, 1), at(300, 1)), "own is as far");
        assert!(!covers(&saved(5, 1), at(299, 1)), "own, before a rewind");
        assert!(!covers(&saved(4, 0), at(299, 1)), "of a line that is over");
        let uncounted = CheckpointMeta::new(OwnerEpoch(4), worker.clone(), None);
        assert!(!covers(&uncounted, at(299, 1)));
    }
}
