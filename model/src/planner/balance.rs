//! Fourth phase: where one worker has clearly more than another, tasks move.
//!
//! Loads are compared with each other, not with the mean: the loss of a worker raises the mean but
//! leaves the others as fair to each other as they were, so it moves nothing but its own tasks.

use std::collections::{BTreeSet, BinaryHeap};

use super::{draft::Draft, ring::Ring};

/// Whether a worker has so much more than another, which still has room, that a move pays: more than a
/// fifth, beyond one task. In a great fleet that is a tenth to either side of the fair share; in a
/// small one it is two tasks.
pub(super) const fn is_unfair(more: usize, less: usize) -> bool {
    5 * more > 6 * less + 5
}

pub(super) fn balance(draft: &mut Draft<'_>, ring: &Ring) {
    let count = draft.count();
    // Each round makes the loads more even, so the rounds end; most plans need none, some need one.
    while fill_up(draft, ring) || level_off(draft, ring) {}
    if draft.moves_left > 0 {
        assert_eq!(
            short_of(draft),
            BTreeSet::new(),
            "unfair and yet nothing can move"
        );
    }
    assert_eq!(draft.count(), count, "a task was lost or doubled");
}

/// Workers with room that have unfairly little.
fn short_of(draft: &Draft<'_>) -> BTreeSet<usize> {
    let most = greatest_load(draft);
    let takers = draft.takers.iter().enumerate();
    let short = takers.filter(|(_, t)| t.room_to(usize::MAX) > 0 && is_unfair(most, t.load()));
    short.map(|(worker, _)| worker).collect()
}

fn greatest_load(draft: &Draft<'_>) -> usize {
    draft
        .takers
        .iter()
        .map(|taker| taker.load())
        .max()
        .unwrap_or(0)
}

/// Fills workers that have unfairly little up to their fair share, from those that have most.
fn fill_up(draft: &mut Draft<'_>, ring: &Ring) -> bool {
    let receivers = short_of(draft);
    if receivers.is_empty() {
        return false;
    }
    let floor = fair_floor(draft);
    let room: usize = receivers
        .iter()
        .map(|&worker| draft.takers[worker].room_to(floor))
        .sum();
    let donors = (0..draft.takers.len()).filter(|worker| !receivers.contains(worker));
    let mut heap: BinaryHeap<(usize, std::cmp::Reverse<usize>)> = donors
        .map(|worker| (draft.takers[worker].load(), std::cmp::Reverse(worker)))
        .collect();
    let mut gives = vec![0; draft.takers.len()];
    for _ in 0..room.min(draft.moves_left) {
        let Some((load, worker)) = heap.pop().filter(|(load, _)| *load > floor) else {
            break;
        };
        gives[worker.0] += 1;
        heap.push((load - 1, worker));
    }
    hand_on(draft, ring, &gives, &receivers, floor)
}

/// Takes workers that have unfairly much down to the fair share.
fn level_off(draft: &mut Draft<'_>, ring: &Ring) -> bool {
    let receivers = short_of(draft);
    let least = receivers
        .iter()
        .map(|&worker| draft.takers[worker].load())
        .min();
    let Some(least) = least else {
        return false;
    };
    let share = draft.share();
    let rooms = receivers
        .iter()
        .map(|&worker| draft.takers[worker].room_to(share));
    let mut left = rooms.sum::<usize>().min(draft.moves_left);
    let mut gives = vec![0; draft.takers.len()];
    for (worker, taker) in draft.takers.iter().enumerate() {
        if is_unfair(taker.load(), least) {
            gives[worker] = taker.load().saturating_sub(share).min(left);
            left -= gives[worker];
        }
    }
    hand_on(draft, ring, &gives, &receivers, share)
}

/// The fair share rounded down: the highest level to which all workers could be filled with what they
/// have now.
fn fair_floor(draft: &Draft<'_>) -> usize {
    let share = draft.share();
    let total: usize = draft.takers.iter().map(|taker| taker.load()).sum();
    let needed: usize = draft
        .takers
        .iter()
        .map(|taker| taker.capacity.min(share))
        .sum();
    if needed > total { share - 1 } else { share }
}

/// Moves what each worker gives to the receivers, each up to `level`. False when nobody gives.
fn hand_on(
    draft: &mut Draft<'_>,
    ring: &Ring,
    gives: &[usize],
    receivers: &BTreeSet<usize>,
    level: usize,
) -> bool {
    let mut moving = Vec::new();
    for (worker, count) in gives.iter().enumerate().filter(|(_, count)| **count > 0) {
        moving.append(&mut draft.take(worker, *count, ring, receivers));
    }
    draft.moves_left -= moving.len();
    let has_room = |worker: usize| receivers.contains(&worker);
    let mut walk = ring.walk(|worker| has_room(worker) && draft.takers[worker].room_to(level) > 0);
    let has_moved = !moving.is_empty();
    moving.sort_by_key(|piece| piece.task);
    for piece in moving {
        let worker = walk
            .ask(piece.task)
            .expect("no more is given than there is room for");
        draft.takers[worker].pieces.push(piece);
        if draft.takers[worker].room_to(level) == 0 {
            walk.close(worker);
        }
    }
    has_moved
}
