//! What comes back from the sink.

use std::sync::Weak;

use kreplicator_model::checkpoint::AckTracker;
use tokio::time::Instant;

use super::{Lane, LaneEvent, RECORD_OVERHEAD_BYTES, State, is_ready};
use crate::{
    fault::Fault,
    sink::{Receipt, Receipts},
};

impl Lane {
    fn delivered(&self, receipt: Receipt) {
        let mut state = self.lock();
        if state.given_up {
            return;
        }
        let before = state.tracker.as_ref().map(AckTracker::checkpoint);
        if let Some(tracker) = state.tracker.as_mut() {
            tracker.acked(receipt.offset);
        }
        let moved = before != state.tracker.as_ref().map(AckTracker::checkpoint);
        state.records += 1;
        state.bytes += receipt.payload_bytes;
        self.shared.metrics.records.increment(1);
        self.shared.metrics.bytes.increment(receipt.payload_bytes);
        if moved {
            self.note_progress(&mut state);
        }
        state.answered_at = Instant::now();
        if let Some(timestamp) = receipt.timestamp {
            let now = self.shared.clock.now();
            state.latency.sample(&self.shared.metrics, timestamp, now);
        }
        self.returned(&mut state, receipt.payload_bytes);
    }

    fn failed(&self, receipt: Receipt, fault: Fault) {
        let mut state = self.lock();
        if state.given_up {
            return;
        }
        state.answered_at = Instant::now();
        self.fail(&mut state, fault);
        self.returned(&mut state, receipt.payload_bytes);
    }

    /// A record came back from the sink, delivered or not.
    fn returned(&self, state: &mut State, payload_bytes: u64) {
        state.share.give(payload_bytes + RECORD_OVERHEAD_BYTES);
        state.in_flight -= 1;
        if state.in_flight == 0 {
            state.alone = false;
            if state.watch_settled {
                state.watch_settled = false;
                self.tell(LaneEvent::Settled);
            }
        }
        if state.held_back && !state.woken && is_ready(state) {
            state.woken = true;
            if let Some(waker) = &state.waker {
                waker.wake();
            }
        }
    }
}

/// Receipts for a lane. Weak, or lane and outlet would keep each other for ever.
#[derive(Debug)]
pub(super) struct ToLane(pub(super) Weak<Lane>);

impl Receipts for ToLane {
    fn delivered(&self, receipt: Receipt) {
        if let Some(lane) = self.0.upgrade() {
            lane.delivered(receipt);
        }
    }

    fn failed(&self, receipt: Receipt, fault: Fault) {
        if let Some(lane) = self.0.upgrade() {
            lane.failed(receipt, fault);
        }
    }
}
