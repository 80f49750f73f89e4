//! What moves a lane: the sender says what to do with ready batches, and what is acknowledged makes room.

use std::sync::Arc;

use kreplicator_model::exact::{self, BatchId};

use super::{Event, Lane, Next, State, flow::Flow};
use crate::{batches::outlet::Item, budget::Grant};

impl Lane {
    /// Does whatever can be done now.
    pub(super) fn pump(self: &Arc<Self>, state: &mut State) {
        let run = state.run;
        loop {
            let now = self.shared.now();
            let Some(flow) = state.flow.as_mut() else {
                return;
            };
            if flow.failed {
                return;
            }
            if !self.may_send(flow) {
                break;
            }
            if let Err(fault) = flow.push_ready(&self.spec, now) {
                return self.fail_locked(state, fault);
            }
            flow.end_at_loss();
            // Old records weaken what is promised.
            if !self.may_send(flow) {
                break;
            }
            match flow.sender.poll(now) {
                Some(exact::Action::Send { id, attempt }) => self.send(run, flow, id, attempt),
                Some(exact::Action::AskTarget) => self.tell(Event::AskTarget),
                Some(exact::Action::ReadTail { from }) => self.tell(Event::ReadTail(from)),
                Some(exact::Action::Reread { .. }) if self.is_overtaken(flow) => {
                    flow.failed = true;
                    self.tell(Event::Overtaken);
                }
                // Who drains reads nothing more.
                Some(exact::Action::Reread { .. }) if flow.draining => {
                    return self.end_drain(state);
                }
                Some(exact::Action::Reread { from }) => {
                    if let Some(fetcher) = flow.fetcher.take() {
                        fetcher.stop(&self.source);
                    }
                    flow.reread(from, &self.spec, state.doubt);
                    self.tell(Event::Read(from.offset));
                }
                Some(exact::Action::NewLine {
                    from,
                    why,
                    repeats_max,
                }) => {
                    flow.failed = true;
                    self.tell(Event::NewLine(exact::Restart {
                        line: flow.producer,
                        from,
                        why,
                        repeats_max,
                    }));
                }
                Some(exact::Action::Stop(stop)) => {
                    flow.failed = true;
                    self.tell(Event::Stopped(stop));
                }
                None => break,
            }
        }
        self.settle(state);
    }

    /// Ends a drain that would have to read again: another owner has delivered what is on its way, or more,
    /// and where that ends is told by what follows; or the target lacks some of it.
    fn end_drain(&self, state: &mut State) {
        let Some(flow) = state.flow.as_mut() else {
            return;
        };
        flow.failed = true;
        if !flow.sender.target_lacks() {
            return self.tell(Event::Settled);
        }
        let told = state.checkpoint.map(|checkpoint| checkpoint.place.count);
        let checkpoint = flow.sender.checkpoint();
        let lost = told.and_then(|told| told.since(checkpoint.place.count));
        flow.lost_records = lost.unwrap_or(0);
        // What is saved last claims nothing that is lost.
        state.checkpoint = Some(checkpoint);
        state.checkpoint_epoch = None;
        self.tell(Event::Unsettled);
    }

    /// Whether another owner was found to be ahead since this was asked last, while it is not known whose
    /// the task is.
    fn is_overtaken(&self, flow: &mut Flow) -> bool {
        let times = flow.sender.counts().overtaken;
        let is_new = std::mem::replace(&mut flow.overtaken, times) < times;
        is_new && !self.shared.fence.is_open()
    }

    /// Whether anything may be sent now. Behind a shut fence the supervisor stops every other task.
    pub(super) fn may_send(&self, flow: &Flow) -> bool {
        let is_owner = flow.sender.mode().runs_without_lease() || self.shared.fence.is_open();
        is_owner && !flow.is_resting
    }

    pub(super) fn send(self: &Arc<Self>, run: u64, flow: &mut Flow, id: BatchId, attempt: u32) {
        let Some(outlet) = &flow.outlet else {
            flow.unsent.push_back((id, attempt));
            return;
        };
        let Some(held) = flow.held.iter().find(|held| held.id == id) else {
            debug_assert!(false, "a batch that is not held is to be sent");
            return;
        };
        let item = Item {
            lane: Arc::clone(self),
            run,
            way: flow.way,
            id,
            attempt,
            topic_id: flow.target_topic_id,
            parts: held.parts.clone(),
        };
        if outlet.send(item) {
            flow.at_outlet += 1;
            return;
        }
        // It has ended with all that it had.
        flow.lose_way();
    }

    /// Lets go of what was acknowledged and reads on where there is room again.
    pub(super) fn settle(self: &Arc<Self>, state: &mut State) {
        let Some(flow) = state.flow.as_mut() else {
            return;
        };
        if flow.wants_way() {
            flow.is_finding = true;
            self.tell(Event::FindTarget);
        }
        let oldest = flow.sender.oldest();
        let mut newest = None;
        while let Some(held) = flow.held.front()
            && oldest.is_none_or(|oldest| held.id < oldest)
        {
            flow.share.give(held.bytes);
            state.records += u64::from(held.records);
            let sent_bytes = held.sent_bytes();
            state.bytes += sent_bytes;
            self.shared.metrics.records.increment(held.records.into());
            self.shared.metrics.bytes.increment(sent_bytes);
            self.shared.paths.sent(held.path);
            state.path = Some(held.path);
            newest = Some(held.timestamp_max);
            flow.held.pop_front();
        }
        let checkpoint = flow.sender.checkpoint();
        if state
            .doubt
            .is_some_and(|doubt| checkpoint.place.offset >= doubt.to)
        {
            state.doubt = None;
        }
        let mode = Some(flow.sender.mode());
        if state.mode != mode {
            state.mode = mode;
            self.shared.news.add();
        }
        if state.checkpoint != Some(checkpoint) {
            state.checkpoint = Some(checkpoint);
            state.checkpoint_epoch = Some(flow.intake.settle(checkpoint.place.offset));
            state.moved_at = self.shared.clock.now();
        }
        if let Some(timestamp) = newest {
            let now = self.shared.clock.now();
            state.latency.sample(&self.shared.metrics, timestamp, now);
        }
        let Some(flow) = state.flow.as_mut() else {
            return;
        };
        if flow.line.is_empty()
            && flow.sender.oldest().is_none()
            && let Some(fault) = flow.fault_ahead.take()
        {
            return self.fail_locked(state, fault);
        }
        if flow.draining {
            if flow.sender.oldest().is_none() {
                self.tell(Event::Settled);
            }
            return;
        }
        if let Some(bytes) = flow.starved {
            let grant = flow.share.take(bytes);
            if grant == Grant::Granted {
                flow.share.give(bytes);
            }
            // What can never be held is read once more to say what it is.
            if grant != Grant::NotNow {
                flow.starved = None;
                flow.lacking = None;
                self.read_on(flow);
            }
        }
        if self.take_backlog(state) {
            self.went_on(state);
        }
    }

    /// There is room again: the fetcher reads on, or, when it has ended, another one is looked for.
    pub(super) fn read_on(self: &Arc<Self>, flow: &mut Flow) {
        if !matches!(flow.next(), Next::Read { .. }) {
            return;
        }
        let is_told = flow
            .fetcher
            .as_ref()
            .is_some_and(|fetcher| fetcher.resume(self));
        if !is_told {
            flow.fetcher = None;
            self.tell(Event::Read(flow.intake.position()));
        }
    }
}
