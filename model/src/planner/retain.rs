//! First phase: tasks stay with owners that may keep them; those without one are free.

use super::{
    draft::{Draft, Piece, Taker},
    types::{Input, Reason, WorkerState},
};

pub(super) fn retain(input: &Input) -> Draft<'_> {
    let active = input
        .workers
        .iter()
        .filter(|(_, worker)| worker.state == WorkerState::Active);
    let takers = active.map(|(id, worker)| Taker {
        id,
        capacity: worker
            .capacity_tasks
            .map_or(usize::MAX, |limit| limit as usize),
        owned_now: 0,
        pieces: Vec::new(),
    });
    let mut draft = Draft {
        takers: takers.collect(),
        staying: Vec::new(),
        free: Vec::new(),
        unplaced: Vec::new(),
        moves_left: input.moves_max.unwrap_or(usize::MAX),
    };
    for (task, owner) in &input.tasks {
        let piece = |reason| Piece {
            task,
            owner: owner.as_ref(),
            reason,
        };
        let Some(owner) = owner else {
            draft.free.push(piece(Reason::New));
            continue;
        };
        match input.workers.get(owner).map(|worker| worker.state) {
            None => draft.free.push(piece(Reason::WorkerLost)),
            Some(WorkerState::Suspended) => draft.staying.push((task, owner)),
            Some(WorkerState::Draining) if draft.moves_left == 0 => {
                draft.staying.push((task, owner));
            }
            Some(WorkerState::Draining) => {
                draft.moves_left -= 1;
                draft.free.push(piece(Reason::WorkerDraining));
            }
            Some(WorkerState::Active) => {
                let index = draft.takers.binary_search_by_key(&owner, |taker| taker.id);
                let taker = &mut draft.takers[index.expect("every active worker is a taker")];
                taker.owned_now += 1;
                taker.pieces.push(piece(Reason::Rebalance));
            }
        }
    }
    assert_eq!(
        draft.count(),
        input.tasks.len(),
        "a task was lost or doubled"
    );
    draft
}
