//! A plan in the making.

use std::collections::BTreeSet;

use super::{
    ring::Ring,
    types::{Move, Plan, Reason, Unplaced},
};
use crate::ids::{TaskId, WorkerId};

/// A task on its way through the phases.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece<'a> {
    pub(super) task: &'a TaskId,
    /// Its owner now, known or lost.
    pub(super) owner: Option<&'a WorkerId>,
    /// Why it moves, should it end elsewhere.
    pub(super) reason: Reason,
}

/// A worker that takes tasks.
#[derive(Debug)]
pub(super) struct Taker<'a> {
    pub(super) id: &'a WorkerId,
    /// Most tasks it may have.
    pub(super) capacity: usize,
    /// Tasks that it owns before the plan.
    pub(super) owned_now: usize,
    pub(super) pieces: Vec<Piece<'a>>,
}

impl Taker<'_> {
    pub(super) fn load(&self) -> usize {
        self.pieces.len()
    }

    /// How many tasks it takes when everybody has up to `level`.
    pub(super) fn room_to(&self, level: usize) -> usize {
        self.capacity.min(level).saturating_sub(self.load())
    }
}

/// A plan in the making.
#[derive(Debug)]
pub(super) struct Draft<'a> {
    /// Workers that take tasks, in order of id: a taker's place is its number on the ring.
    pub(super) takers: Vec<Taker<'a>>,
    /// Tasks that stay with workers that take none.
    pub(super) staying: Vec<(&'a TaskId, &'a WorkerId)>,
    /// Tasks to be placed.
    pub(super) free: Vec<Piece<'a>>,
    /// Tasks that found no place.
    pub(super) unplaced: Vec<(&'a TaskId, Unplaced)>,
    /// How many more tasks may be taken from workers that could keep them.
    pub(super) moves_left: usize,
}

impl<'a> Draft<'a> {
    /// Every task, wherever it is.
    pub(super) fn count(&self) -> usize {
        let placed: usize = self.takers.iter().map(Taker::load).sum();
        placed + self.staying.len() + self.free.len() + self.unplaced.len()
    }

    /// The level up to which workers can be filled so that `count` more tasks find room; None when
    /// there is not room for so many.
    pub(super) fn level_for(&self, count: usize) -> Option<usize> {
        let room = |level| -> usize {
            let rooms = self.takers.iter().map(|taker| taker.room_to(level));
            rooms.fold(0, usize::saturating_add)
        };
        let top = self.takers.iter().map(Taker::load).max()? + count;
        least(top, |level| room(level) >= count)
    }

    /// The fair share of a worker without a capacity of its own, rounded up: the lowest level to which
    /// workers would have to be filled, had they nothing, to take all that they have now.
    pub(super) fn share(&self) -> usize {
        let total: usize = self.takers.iter().map(Taker::load).sum();
        let held = |level: usize| -> usize {
            let each = self.takers.iter().map(|taker| taker.capacity.min(level));
            each.fold(0, usize::saturating_add)
        };
        // Nobody has more than its capacity, so the greatest load is always enough.
        let top = self
            .takers
            .iter()
            .map(Taker::load)
            .max()
            .unwrap_or(0)
            .max(total);
        least(top, |level| held(level) >= total).unwrap_or(top)
    }

    /// Takes `count` tasks from a worker: first those that are on the move anyway, then those at home
    /// with one of the `receivers`, then those at home anywhere but here, so that the next plans find
    /// as many as possible where the ring has them.
    pub(super) fn take(
        &mut self,
        taker: usize,
        count: usize,
        ring: &Ring,
        receivers: &BTreeSet<usize>,
    ) -> Vec<Piece<'a>> {
        let Taker { id, pieces, .. } = &mut self.takers[taker];
        pieces.sort_by_cached_key(|piece| {
            let is_settled = piece.owner == Some(*id);
            let (hash, home) = ring.home_of(piece.task);
            let is_strange = !receivers.contains(&home);
            (is_settled, is_strange, home == taker, hash, piece.task)
        });
        pieces.drain(..count).collect()
    }

    /// The plan that the draft has become.
    pub(super) fn finish(self) -> Plan {
        let missing = self
            .takers
            .iter()
            .map(|taker| taker.load().saturating_sub(taker.owned_now));
        let moves_lower_bound = missing.sum();
        // Gathered in any order: a map is made faster from a whole list than one by one.
        let mut placements = Vec::with_capacity(self.count());
        let mut moves = Vec::new();
        for (task, owner) in self.staying {
            placements.push((task.clone(), owner.clone()));
        }
        for taker in self.takers {
            for piece in taker.pieces {
                placements.push((piece.task.clone(), taker.id.clone()));
                if piece.owner != Some(taker.id) {
                    moves.push(Move {
                        task: piece.task.clone(),
                        from: piece.owner.cloned(),
                        to: taker.id.clone(),
                        reason: piece.reason,
                    });
                }
            }
        }
        moves.sort();
        let unplaced = self
            .unplaced
            .into_iter()
            .map(|(task, why)| (task.clone(), why));
        Plan {
            placements: placements.into_iter().collect(),
            moves,
            unplaced: unplaced.collect(),
            moves_lower_bound,
        }
    }
}

/// The least number up to `top` for which `is_enough` holds, given that it holds for all above.
pub(super) fn least(top: usize, is_enough: impl Fn(usize) -> bool) -> Option<usize> {
    if !is_enough(top) {
        return None;
    }
    let (mut low, mut high) = (0, top);
    while low < high {
        let middle = low + (high - low) / 2;
        if is_enough(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    Some(low)
}
