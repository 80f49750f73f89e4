//! Answers of the source become ready batches, as far as there is memory. What has to be opened goes by way
//! of the rewriter, one batch at a time, and holds up what follows it.

use std::sync::Arc;

use super::{
    Lane, State,
    flow::{Backlog, Flow},
};
use crate::{
    batches::{
        fetcher::FetcherHandle,
        intake::{PLAIN_BYTES_MAX, Taken, UNFOLDS_FURTHER, Unopened},
        rewriter::{COPIES, Job, Opened, Work},
    },
    budget::Grant,
    fault::{Fault, Kind},
};

/// Batches in line are no more than this; what needs no opening of an answer is taken whole.
const LINE_MAX: usize = 64;

/// What comes after a step.
enum Step {
    /// Another may be possible.
    On,
    /// Nothing before something else happens.
    Wait,
    Fail(Fault),
}

impl Lane {
    /// Turns the backlog into ready batches as far as there is memory. True: there is some news in the flow.
    pub(super) fn take_backlog(self: &Arc<Self>, state: &mut State) -> bool {
        let run = state.run;
        let mut has_news = false;
        loop {
            let Some(flow) = state.flow.as_mut() else {
                return has_news;
            };
            if flow.failed || flow.opening.is_some() || flow.line.len() >= LINE_MAX {
                return has_news;
            }
            let Some(backlog) = flow.backlog.take() else {
                return has_news;
            };
            let step = if backlog.unread.closed().is_some() {
                self.ask_to_open(run, flow, backlog)
            } else {
                self.pass_unopened(flow, backlog)
            };
            match step {
                Step::On => has_news = true,
                Step::Wait => return has_news,
                Step::Fail(fault) => {
                    self.fail_locked(state, fault);
                    return has_news;
                }
            }
        }
    }

    /// Takes what needs no opening.
    fn pass_unopened(&self, flow: &mut Flow, mut backlog: Backlog) -> Step {
        let bytes = backlog.unread.bytes_left();
        match flow.share.take(bytes) {
            Grant::Granted => flow.lacking = None,
            Grant::NotNow => return wait(flow, backlog, bytes),
            Grant::Never => return Step::Fail(self.too_large(flow, bytes)),
        }
        let mut taken = Taken::default();
        let outcome = flow.intake.pass(&mut backlog.unread, &mut taken);
        self.shared.paths.dropped(taken.dropped);
        if let Some(needed) = taken.bytes_needed {
            flow.needs(needed);
        }
        let left = match outcome {
            Ok(()) => backlog.unread.bytes_left(),
            Err(_) => 0,
        };
        flow.share.give(left);
        flow.enqueue(taken.ready, bytes - left);
        flow.pass();
        match outcome {
            Err(fault) => flow.fault_ahead = Some(self.at_source(fault)),
            Ok(()) if backlog.unread.is_over() => {}
            Ok(()) => flow.backlog = Some(backlog),
        }
        Step::On
    }

    /// Has the next batch opened.
    fn ask_to_open(self: &Arc<Self>, run: u64, flow: &mut Flow, backlog: Backlog) -> Step {
        flow.backlog = Some(backlog);
        flow.jobs += 1;
        flow.opening = Some(flow.jobs);
        self.shared.rewriter.submit(Job {
            lane: Arc::clone(self),
            run,
            number: flow.jobs,
        });
        Step::Wait
    }

    /// It is the turn of a job: takes memory for what the batch unfolds to.
    pub(in crate::batches) fn begin_opening(self: &Arc<Self>, job: Job) -> Option<Work> {
        let mut state = self.lock();
        if state.run != job.run {
            return None;
        }
        let flow = state.flow.as_mut()?;
        // The place may have been left meanwhile.
        if flow.failed || flow.opening != Some(job.number) {
            return None;
        }
        let backlog = flow.backlog.take()?;
        let closed = backlog.unread.closed()?.clone();
        let bytes = closed.bytes();
        let expected = closed.plain_bytes().unwrap_or(bytes * flow.unfolds);
        let wanted = expected.max(flow.tried_bytes.saturating_mul(UNFOLDS_FURTHER));
        let possible = flow.share.most().saturating_sub(bytes) / COPIES;
        let plain_bytes_max = wanted.min(PLAIN_BYTES_MAX as u64).min(possible);
        let is_enough = closed.plain_bytes().is_none_or(|plain| plain <= possible);
        let need = bytes + COPIES * plain_bytes_max;
        let grant = if plain_bytes_max > flow.tried_bytes && is_enough {
            flow.share.take(need)
        } else {
            Grant::Never
        };
        match grant {
            Grant::Granted => {
                flow.lacking = None;
                flow.backlog = Some(backlog);
                Some(Work {
                    intake: flow.intake.clone(),
                    closed,
                    plain_bytes_max,
                    loan: flow.share.lend(need),
                    job,
                })
            }
            Grant::NotNow => {
                flow.opening = None;
                wait(flow, backlog, need);
                None
            }
            Grant::Never => {
                flow.opening = None;
                // What comes before it is delivered first.
                flow.fault_ahead = Some(self.too_large(flow, bytes + COPIES * wanted));
                self.went_on(&mut state);
                None
            }
        }
    }

    /// A batch was opened, or could not be.
    pub(in crate::batches) fn opened(self: &Arc<Self>, run: u64, number: u64, opened: Opened) {
        let Opened {
            intake,
            taken,
            outcome,
            plain_bytes_max,
            loan,
        } = opened;
        let mut state = self.lock();
        if state.run != run {
            return;
        }
        let Some(flow) = state.flow.as_mut() else {
            return;
        };
        // The place may have been left meanwhile.
        if flow.opening != Some(number) {
            return;
        }
        flow.opening = None;
        let bytes = loan.bytes();
        flow.share.take_back(loan);
        match outcome {
            Ok(()) => {
                let sizes = taken.ready.iter().map(|ready| ready.batch.size_bytes());
                let held = (sizes.sum::<usize>() as u64).min(bytes);
                flow.share.give(bytes - held);
                flow.intake = intake;
                flow.enqueue(taken.ready, held);
                flow.note_opened(plain_bytes_max);
                flow.pass();
            }
            Err(Unopened::TooLarge) => {
                flow.share.give(bytes);
                flow.tried_bytes = plain_bytes_max;
                if plain_bytes_max >= PLAIN_BYTES_MAX as u64 {
                    flow.fault_ahead = Some(self.at_source(flow.intake.unfolds_too_far()));
                    flow.backlog = None;
                }
            }
            Err(Unopened::Damaged(fault)) => {
                flow.share.give(bytes);
                flow.fault_ahead = Some(self.at_source(fault));
                flow.backlog = None;
            }
        }
        self.take_backlog(&mut state);
        self.went_on(&mut state);
    }

    /// There is news in the flow: batches in line, or a fault ahead.
    pub(super) fn went_on(self: &Arc<Self>, state: &mut State) {
        let Some(flow) = state.flow.as_mut() else {
            return;
        };
        if flow.backlog.is_none() && !flow.failed {
            self.read_on(flow);
        }
        self.pump(state);
    }

    /// A fault of what the source gave, with the name of its partition.
    fn at_source(&self, fault: Fault) -> Fault {
        fault.at_source(&self.source.topic, self.source.partition)
    }

    /// The fault behind what can never be held.
    fn too_large(&self, flow: &Flow, bytes: u64) -> Fault {
        let limit = self.shared.budget.limit_bytes();
        let position = flow.intake.position();
        Fault::new(
            Kind::Memory,
            format!(
                "the batch at source offset {position} takes some {bytes} bytes, more than the memory budget \
                 of this worker ({limit} bytes) can hold for one task; raise it"
            ),
        )
    }
}

/// There is no room for so many bytes. Those that wait long must not use up what others read with (C036).
fn wait(flow: &mut Flow, backlog: Backlog, bytes: u64) -> Step {
    flow.lacking = Some(bytes);
    let may_wait = flow.fetcher.as_ref().is_none_or(FetcherHandle::has_room);
    if may_wait {
        flow.backlog = Some(backlog);
    } else {
        flow.starved = Some(bytes);
    }
    Step::Wait
}
