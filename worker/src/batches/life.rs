//! One task's life: start, flow, faults and stop, and whatever takes time in between.
//!
//! The records engine leaves these decisions to the machine of `model::task`. That machine cannot take them for
//! this engine without losing what is promised here, so they are told apart on purpose:
//! - to begin again is no fault ([`End::Again`]): a new line, another owner ahead or a refused record end a flow
//!   that is well, and how long to pause then depends on how far it has got;
//! - a fault stays shown while the task already runs again, until it has got further than that;
//! - a shut fence stops only the beginning; what delivers each record once goes on without a lease;
//! - the time for a drain comes with each stop, and what is left of the machine's `Release` and `Kill` is done
//!   by the supervisor and by dropping the flow.

mod act;

use std::{sync::Arc, time::Duration};

use kreplicator_model::{
    exact::{Checkpoint, Restart},
    ids::Offset,
    task::FaultKind,
};
use tokio::{
    sync::oneshot,
    time::{Instant, sleep, sleep_until, timeout_at},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use self::act::act;
use super::{
    lane::{Event, Lane},
    link::Tools,
    mailbox,
};
use crate::{
    engine::{State, Stopped},
    fault::Fault,
};

/// Between questions that were not answered, to begin with.
const AGAIN_AFTER: Duration = Duration::from_millis(200);
/// Why a task does not begin while the fence is shut.
const UNREGISTERED: &str = "this worker is not registered in the metadata store; the task begins when it \
     is again";
/// A last save may take as long.
const SAVE_TIME: Duration = Duration::from_secs(5);

/// A request to stop.
#[derive(Debug)]
pub(super) struct Stop {
    pub(super) deadline: Duration,
    pub(super) reply: oneshot::Sender<Stopped>,
}

/// What a life works with.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) lane: Arc<Lane>,
    pub(super) events: mailbox::Receiver<Event>,
    pub(super) stops: mailbox::Receiver<Stop>,
    /// Held until the task is over, even after the link has changed.
    pub(super) tools: Arc<Tools>,
    pub(super) cancel: CancellationToken,
}

/// One task's life.
pub(super) struct Life {
    parts: Parts,
    /// Attempts that failed in a row.
    failures: u32,
    flowing_since: Option<Instant>,
    complained_about: Option<String>,
    /// What the sender has ended with, until a start was found.
    restart: Option<Restart>,
    /// Where it was begun again last, and how often in a row it has got no further.
    begun_again_at: Option<Option<Checkpoint>>,
    agains: u32,
}

/// How a stretch of flowing ended.
enum End {
    Stop(Stop),
    Cancelled,
    Fault(Fault),
    /// Begin again: line, ownership or log have to be looked at anew.
    Again,
    /// Begin again in a new line.
    Restart(Restart),
    /// Begin again, and find out which record is refused.
    Isolate,
}

impl Life {
    pub(super) fn new(parts: Parts) -> Self {
        Self {
            parts,
            failures: 0,
            flowing_since: None,
            complained_about: None,
            restart: None,
            begun_again_at: None,
            agains: 0,
        }
    }

    /// Lives until it is stopped or cancelled.
    pub(super) async fn run(mut self) {
        let cancel = self.parts.cancel.clone();
        loop {
            let end = tokio::select! {
                biased;
                () = cancel.cancelled() => End::Cancelled,
                end = self.once() => end,
            };
            match end {
                End::Cancelled => {
                    self.parts.lane.close();
                    return;
                }
                End::Stop(stop) => return Box::pin(self.stop(stop)).await,
                End::Isolate => self.forget(),
                End::Again => {
                    if let Some(stop) = self.begin_again().await {
                        return Box::pin(self.stop(stop)).await;
                    }
                }
                End::Restart(restart) => {
                    self.restart = Some(restart);
                    if let Some(stop) = self.begin_again().await {
                        return Box::pin(self.stop(stop)).await;
                    }
                }
                End::Fault(fault) => {
                    self.forget();
                    if let Some(stop) = self.wait_after(fault).await {
                        return Box::pin(self.stop(stop)).await;
                    }
                }
            }
        }
    }

    /// One attempt: start and flow.
    async fn once(&mut self) -> End {
        let lane = Arc::clone(&self.parts.lane);
        if let Some(stop) = self.wait_for_registration().await {
            return End::Stop(stop);
        }
        let now = lane.shared.clock.now();
        if self.complained_about.is_none() {
            lane.board.enter(State::Starting, now);
        }
        let found = tokio::select! {
            biased;
            stop = self.parts.stops.recv() => return asked(stop),
            // Much is asked and read only here: its memory is not kept while the task runs.
            found = Box::pin(self.parts.tools.starter.find(&lane, self.restart)) => found,
        };
        let found = match found {
            Ok(found) => found,
            Err(fault) => return End::Fault(fault),
        };
        self.restart = None;
        if let Some((offset, gaps)) = found.told {
            lane.resume_gaps(offset, gaps);
        }
        if let Some((from, to)) = found.gap {
            lane.count_gap(from, to);
        }
        lane.open(found.opening);
        self.parts.tools.commits.watch(&lane);
        self.parts.tools.source.read(&lane);
        if self.complained_about.is_none() {
            lane.board.enter(State::Running, lane.shared.clock.now());
            lane.shared.news.add();
        }
        self.flowing_since = Some(Instant::now());
        let began_at = lane.checkpoint().map(|checkpoint| checkpoint.place.offset);
        loop {
            let event = tokio::select! {
                biased;
                stop = self.parts.stops.recv() => return asked(stop),
                event = self.parts.events.recv() => event,
                () = sleep(Duration::from_secs(1)), if self.complained_about.is_some() => {
                    self.forgive(began_at);
                    continue;
                }
            };
            let Some(event) = event else {
                return End::Cancelled;
            };
            debug!(task = %lane.spec.id, ?event, "the lane asks");
            // Whatever takes time gives way to a stop.
            let done = tokio::select! {
                biased;
                stop = self.parts.stops.recv() => return asked(stop),
                done = Box::pin(act(&self.parts.lane, &self.parts.tools, event)) => done,
            };
            if let Some(end) = done {
                return end;
            }
        }
    }

    /// Forgets the flow.
    fn forget(&mut self) {
        self.parts.lane.close();
        while self.parts.events.try_recv().is_some() {}
    }

    /// Forgets the flow, and pauses where beginning again has not got any further. Some: it was told to stop.
    async fn begin_again(&mut self) -> Option<Stop> {
        self.forget();
        let at = self.parts.lane.checkpoint();
        let is_further = self.begun_again_at.replace(at) != Some(at);
        if is_further {
            self.agains = 0;
            return None;
        }
        let backoff = self.parts.tools.starter.config.backoff();
        let wait = backoff.delay(self.agains, rand::random());
        self.agains = self.agains.saturating_add(1);
        tokio::select! {
            biased;
            stop = self.parts.stops.recv() => stop,
            () = self.parts.cancel.cancelled() => None,
            () = sleep(wait) => None,
        }
    }

    /// What runs may go on without a registration, but nothing begins without one: what is read from the
    /// store and agreed there has to be in this worker's name. Some: it was told to stop meanwhile.
    async fn wait_for_registration(&mut self) -> Option<Stop> {
        let lane = Arc::clone(&self.parts.lane);
        let mut is_told = false;
        while !lane.shared.fence.is_open() {
            if !is_told {
                is_told = true;
                lane.board
                    .fault(UNREGISTERED, None, lane.shared.clock.now());
            }
            tokio::select! {
                biased;
                stop = self.parts.stops.recv() => return stop,
                () = sleep(AGAIN_AFTER) => {}
            }
        }
        if is_told && let Some(cause) = &self.complained_about {
            // Still true: nothing has got any further meanwhile.
            lane.board.fault(cause, None, lane.shared.clock.now());
        }
        None
    }

    /// A fault is shown until the task has got further than it.
    fn forgive(&mut self, began_at: Option<Offset>) {
        let lane = &self.parts.lane;
        let here = lane.checkpoint().map(|checkpoint| checkpoint.place.offset);
        let is_at_end = lane.log().is_some_and(|(_, end)| here >= Some(end));
        if here > began_at || is_at_end {
            self.complained_about = None;
            self.failures = 0;
            lane.board.enter(State::Running, lane.shared.clock.now());
            lane.shared.news.add();
        }
    }

    /// Shows a fault and waits until it is time to try again.
    async fn wait_after(&mut self, fault: Fault) -> Option<Stop> {
        let lane = &self.parts.lane;
        let config = &self.parts.tools.starter.config;
        let is_steady = self
            .flowing_since
            .take()
            .is_some_and(|since| since.elapsed() >= config.steady_after);
        if is_steady {
            self.failures = 0;
        }
        lane.shared.metrics.fault(fault.kind);
        let spec = &lane.spec;
        let is_final = fault.kind.retry() == FaultKind::Terminal;
        if is_final {
            warn!(task = %spec.id, epoch = %spec.epoch, cause = %fault, "task stopped for good");
        } else if self.complained_about.as_deref() == Some(fault.cause.as_str()) {
            debug!(task = %spec.id, cause = %fault, "task faulted again");
        } else {
            warn!(task = %spec.id, epoch = %spec.epoch, cause = %fault, "task faulted; it is tried again");
        }
        let wait = config.backoff().delay(self.failures, rand::random());
        self.failures += 1;
        let clock = &lane.shared.clock;
        let retry_at = (!is_final).then(|| clock.after(wait));
        lane.forget_troubles();
        lane.board.fault(&fault.cause, retry_at, clock.now());
        self.complained_about = Some(fault.cause);
        let until = Instant::now() + wait;
        tokio::select! {
            biased;
            stop = self.parts.stops.recv() => stop,
            () = self.parts.cancel.cancelled() => None,
            () = sleep_until(until), if !is_final => None,
        }
    }

    /// Delivers what is on its way, saves, and is over.
    async fn stop(mut self, stop: Stop) {
        let lane = Arc::clone(&self.parts.lane);
        let end = Instant::now() + stop.deadline;
        lane.board.enter(State::Stopping, lane.shared.clock.now());
        let mut is_settled = lane.drain();
        while !is_settled {
            let event = timeout_at(end, self.parts.events.recv()).await;
            match event {
                Ok(Some(Event::Settled)) => is_settled = true,
                // Still needed for delivering what is outstanding.
                Ok(Some(event @ (Event::FindTarget | Event::AskTarget | Event::ReadTail(_)))) => {
                    let parts = &self.parts;
                    let acted = act(&lane, &parts.tools, event);
                    // One that is over, or whose time is, delivers nothing more.
                    if !matches!(timeout_at(end, acted).await, Ok(None)) {
                        break;
                    }
                }
                Ok(Some(Event::Read(_) | Event::OutOfRange)) => {}
                // Nothing more is delivered.
                Ok(Some(
                    Event::Failed(_)
                    | Event::Isolate
                    | Event::Cut
                    | Event::NewLine(_)
                    | Event::Overtaken
                    | Event::Unsettled
                    | Event::Stopped(_),
                )) => break,
                Ok(None) | Err(_) => break,
            }
        }
        let in_flight_records = lane.close();
        let save_by = Instant::now() + SAVE_TIME;
        let is_saved = self.parts.tools.commits.save_last(&lane, save_by).await;
        lane.board.enter(State::Stopped, lane.shared.clock.now());
        let stopped = match (is_settled, is_saved) {
            (true, true) => Stopped::Clean,
            (true, false) => Stopped::Unsaved,
            (false, _) => Stopped::Forced { in_flight_records },
        };
        debug!(task = %lane.spec.id, epoch = %lane.spec.epoch, ?stopped, "task stopped");
        // The engine's own patience may have ended.
        stop.reply.send(stopped).ok();
    }
}

fn asked(stop: Option<Stop>) -> End {
    stop.map_or(End::Cancelled, End::Stop)
}

#[cfg(test)]
mod tests {
    use kreplicator_model::exact::DeliveryMode;

    use super::*;
    use crate::batches::{
        testkit,
        tests::{context, engine_behind, spec},
    };

    /// How a task ends that has nothing on its way, beside a group that cannot be reached.
    async fn end_of(is_watched: bool) -> Stopped {
        let engine = engine_behind(Arc::default());
        let (tools, shared) = {
            let mut state = engine.lock();
            let running = engine.link(&mut state, &context("client"));
            (Arc::clone(&running.tools), Arc::clone(&running.shared))
        };
        let (sender, events) = mailbox::mailbox();
        let (_stops, stops) = mailbox::mailbox();
        let lane = Lane::new(1, spec(0), shared, sender);
        testkit::open(&lane, Offset(7), DeliveryMode::ExactlyOnce, false);
        if is_watched {
            tools.commits.watch(&lane);
        }
        let life = Life::new(Parts {
            lane,
            events,
            stops,
            tools,
            cancel: CancellationToken::new(),
        });
        let (reply, stopped) = oneshot::channel();
        let deadline = Duration::from_secs(1);
        life.stop(Stop { deadline, reply }).await;
        stopped.await.expect("told")
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_whose_last_checkpoint_is_not_saved_does_not_end_clean() {
        assert_eq!(end_of(true).await, Stopped::Unsaved);
        assert_eq!(end_of(false).await, Stopped::Clean, "there was none");
    }
}
