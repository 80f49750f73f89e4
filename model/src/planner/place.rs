//! Third phase: free tasks find a worker.
//!
//! Room is shared out like water: from the least loaded worker up to the level at which all free
//! tasks are in. Within that room each task goes where the ring has it.

use super::{
    draft::{Draft, Piece},
    ring::Ring,
    types::{Reason, Unplaced},
};

pub(super) fn place(draft: &mut Draft<'_>, ring: &Ring) {
    let count = draft.count();
    let mut free = std::mem::take(&mut draft.free);
    free.sort_by_key(|piece| (urgency(piece.reason), piece.task));

    let rooms = draft.takers.iter().map(|taker| taker.room_to(usize::MAX));
    let room: usize = rooms.fold(0, usize::saturating_add);
    let no_room = free.split_off(room.min(free.len()));
    pour(draft, ring, free);
    for piece in no_room {
        turn_away(draft, piece);
    }

    assert!(draft.free.is_empty(), "a task was passed over");
    assert_eq!(draft.count(), count, "a task was lost or doubled");
}

/// Who gets room first, should there not be enough: what ran until now, then what is new, then what
/// may stay where it is.
fn urgency(reason: Reason) -> u8 {
    match reason {
        Reason::WorkerLost => 0,
        Reason::OverCapacity | Reason::Rebalance => 1,
        Reason::New => 2,
        Reason::WorkerDraining => 3,
    }
}

/// Places tasks for which there is room.
fn pour<'a>(draft: &mut Draft<'a>, ring: &Ring, pieces: Vec<Piece<'a>>) {
    if pieces.is_empty() {
        return;
    }
    let level = draft
        .level_for(pieces.len())
        .expect("there is room for all");
    // One task short of the level is the least that every worker below it must get.
    let floor = level.saturating_sub(1);
    let mut owed: usize = draft.takers.iter().map(|taker| taker.room_to(floor)).sum();
    let mut with_room = ring.walk(|worker| draft.takers[worker].room_to(level) > 0);
    let mut behind = ring.walk(|worker| draft.takers[worker].room_to(floor) > 0);

    let mut left = pieces.len();
    for piece in pieces {
        let walk = if left > owed {
            &mut with_room
        } else {
            &mut behind
        };
        let worker = walk
            .ask(piece.task)
            .expect("the level leaves room for every task");
        let taker = &mut draft.takers[worker];
        let was_behind = taker.room_to(floor) > 0;
        taker.pieces.push(piece);
        left -= 1;
        owed -= usize::from(was_behind);
        if was_behind && taker.room_to(floor) == 0 {
            behind.close(worker);
        }
        if taker.room_to(level) == 0 {
            with_room.close(worker);
        }
    }
    let is_behind = draft.takers.iter().any(|taker| taker.room_to(floor) > 0);
    assert!(!is_behind, "a worker got less than others");
}

/// A task without room stays where it is, if it may, or waits.
fn turn_away<'a>(draft: &mut Draft<'a>, piece: Piece<'a>) {
    match (piece.reason, piece.owner) {
        (Reason::WorkerDraining, Some(owner)) => draft.staying.push((piece.task, owner)),
        _ if draft.takers.is_empty() => draft.unplaced.push((piece.task, Unplaced::NoWorkers)),
        _ => draft.unplaced.push((piece.task, Unplaced::NoCapacity)),
    }
}
