//! A partition that a reader has open.

use std::sync::Arc;

use kreplicator_model::ids::Offset;

use super::{
    backlog::Backlog,
    damage::{self, Damage},
};
use crate::{
    fault::Fault,
    records::{headers::Scale, lane::Lane, positions::Evidence},
};

/// An open partition.
pub(super) struct Opening {
    pub(super) lane: Arc<Lane>,
    /// By which the lane tells this opening from earlier ones.
    pub(super) number: u64,
    /// Fetched already and waiting for the lane.
    pub(super) backlog: Backlog,
    pub(super) evidence: Evidence,
    pub(super) scale: Scale,
    pub(super) damage: Damage,
    /// Why nothing more is taken once the backlog is handed on.
    fault_ahead: Option<Fault>,
}

impl Opening {
    /// The partition of a lane, read from `at` on; `is_first`: its consumer never had it open before.
    pub(super) fn new(lane: Arc<Lane>, at: Offset, number: u64, is_first: bool) -> Self {
        Self {
            lane,
            number,
            backlog: Backlog::default(),
            evidence: Evidence::new(is_first),
            scale: Scale::default(),
            damage: Damage::new(at),
            fault_ahead: None,
        }
    }

    /// Some partition of the consumer, perhaps this one, has a damaged batch at this offset; `is_placed`: one is to
    /// read just that next.
    pub(super) fn damage_found(&mut self, at: Offset, is_placed: bool) {
        if let Some(next) = self.damage.found(at, is_placed) {
            self.lane.damaged(self.number, next);
        }
    }

    /// Whether damage was passed over before the record that came at `offset`, or earlier: it is not taken
    /// then, and the lane is told of the damage.
    pub(super) fn is_halted_before(&mut self, offset: Offset) -> bool {
        if self.fault_ahead.is_none() {
            let damaged = self.damage.record(offset);
            self.fault_ahead = damaged.map(|at| damage::fault(&self.lane.spec.id, at));
            self.tell_fault();
        }
        self.fault_ahead.is_some()
    }

    /// Tells why nothing more is taken, once everything before it was handed on.
    pub(super) fn tell_fault(&self) {
        if self.backlog.is_empty()
            && let Some(fault) = &self.fault_ahead
        {
            self.lane.reader_failed(self.number, fault.clone());
        }
    }
}
