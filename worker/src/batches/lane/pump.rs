//! What moves a lane: answers of the source become ready batches, the sender says what to do, and what is
//! acknowledged makes room.

use std::sync::Arc;

use kreplicator_batch::aborted::AbortedTransaction;
use kreplicator_model::exact::{self, BatchId};

use super::{Event, Lane, Next, State, flow::Flow};
use crate::{
    batches::{fetcher::FetcherHandle, intake::Taken, outlet::Item},
    budget::Grant,
    fault::{Fault, Kind},
};

/// Batches in line are no more than this; an answer is taken whole.
const LINE_MAX: usize = 64;

impl Lane {
    /// Turns the backlog into ready batches as far as there is memory.
    pub(super) fn take_backlog(&self, state: &mut State) {
        let Some(flow) = state.flow.as_mut() else {
            return;
        };
        if flow.line.len() >= LINE_MAX {
            return;
        }
        let Some((fetched, occupied)) = flow.backlog.take() else {
            return;
        };
        let bytes = fetched.records.len() as u64;
        match flow.share.take(bytes) {
            Grant::Granted => {}
            Grant::NotNow => {
                // Those that wait long must not use up what others read with (C036).
                let may_wait = flow.fetcher.as_ref().is_none_or(FetcherHandle::has_room);
                if may_wait {
                    flow.backlog = Some((fetched, occupied));
                } else {
                    flow.starved = Some(bytes);
                }
                return;
            }
            Grant::Never => {
                let limit = self.shared.budget.limit_bytes();
                let position = flow.intake.position();
                let fault = Fault::new(
                    Kind::Memory,
                    format!(
                        "the batch at source offset {position} has some {bytes} bytes, more than the \
                         memory budget of this worker ({limit} bytes) can hold for one task; raise it"
                    ),
                );
                return self.fail_locked(state, fault);
            }
        }
        let aborted = fetched.aborted.iter().map(|aborted| AbortedTransaction {
            producer_id: aborted.producer_id,
            first_offset: aborted.first_offset.0,
        });
        let mut taken = Taken::default();
        let outcome = flow
            .intake
            .take(fetched.records, aborted.collect(), &mut taken);
        self.shared.paths.dropped(taken.dropped);
        if let Some(needed) = taken.bytes_needed {
            flow.needs(needed);
        }
        flow.enqueue(taken.ready, bytes);
        flow.pass();
        flow.fault_ahead = outcome.err().map(|fault| self.at_source(fault));
    }

    /// A fault of what the source gave, with the name of its partition.
    fn at_source(&self, fault: Fault) -> Fault {
        let (topic, partition) = (&self.source.topic, self.source.partition);
        let cause = fault.cause;
        Fault::new(
            fault.kind,
            format!("source topic {topic} partition {partition}: {cause}"),
        )
    }

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
                // Another owner has delivered what is on its way, or more; where that ends is told by what
                // follows, and who drains reads nothing more.
                Some(exact::Action::Reread { .. }) if flow.draining => {
                    flow.failed = true;
                    self.tell(Event::Settled);
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
                self.read_on(flow);
            }
        }
        if flow.backlog.is_some() {
            self.take_backlog(state);
            let Some(flow) = state.flow.as_mut() else {
                return;
            };
            if flow.backlog.is_none() && !flow.failed {
                self.read_on(flow);
                self.pump(state);
            }
        }
    }

    /// There is room again: the fetcher reads on, or, when it has ended, another one is looked for.
    fn read_on(self: &Arc<Self>, flow: &mut Flow) {
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
