//! Second phase: workers above their capacity free tasks.

use std::collections::BTreeSet;

use super::{
    draft::{Draft, Taker},
    ring::Ring,
    types::Reason,
};

pub(super) fn shed(draft: &mut Draft<'_>, ring: &Ring) {
    let count = draft.count();
    for index in 0..draft.takers.len() {
        let taker = &draft.takers[index];
        let excess = taker.load().saturating_sub(taker.capacity);
        if excess > 0 {
            let mut freed = draft.take(index, excess, ring, &BTreeSet::new());
            freed
                .iter_mut()
                .for_each(|piece| piece.reason = Reason::OverCapacity);
            draft.free.append(&mut freed);
        }
    }
    let is_within = |taker: &Taker<'_>| taker.load() <= taker.capacity;
    assert!(
        draft.takers.iter().all(is_within),
        "a worker is above its capacity"
    );
    assert_eq!(draft.count(), count, "a task was lost or doubled");
}
