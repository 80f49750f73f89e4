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

use std::{future::Future, sync::Arc, time::Duration};

use kreplicator_model::{
    backoff::Backoff,
    exact::{Checkpoint, Restart, Stop as SenderStop, TargetView},
    ids::Offset,
    task::FaultKind,
};
use kreplicator_wire::{cluster::ClusterClient, topic::Leader};
use tokio::{
    sync::oneshot,
    time::{Instant, sleep, sleep_until, timeout_at},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::{
    ends,
    lane::{Event, Lane, Side},
    link::Tools,
    mailbox,
    scan::Unread,
    start::Starter,
};
use crate::{
    engine::{State, Stopped},
    fault::{Fault, Kind},
};

/// Longest question for the leader of the target partition.
const LEADER_TIME: Duration = Duration::from_secs(10);
/// Between questions that were not answered, to begin with.
const AGAIN_AFTER: Duration = Duration::from_millis(200);
/// The most between questions to a target for what it has.
const VIEW_AGAIN_AFTER_MAX: Duration = Duration::from_secs(5);
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

/// Does what the lane asked for; Some: the flow is over.
async fn act(lane: &Arc<Lane>, tools: &Tools, event: Event) -> Option<End> {
    let Tools {
        starter,
        source,
        outlets,
        ..
    } = tools;
    match event {
        Event::AskTarget => note_view(lane, starter, None).await,
        Event::ReadTail(from) => note_view(lane, starter, Some(from)).await,
        Event::Read(_) => {
            source.read(lane);
            None
        }
        Event::FindTarget => {
            let found = find_target(lane, &starter.target.client).await;
            match found {
                Ok(Some(leader)) => {
                    lane.set_outlet(outlets.to(leader.broker));
                    None
                }
                Ok(None) => {
                    warn!(task = %lane.spec.id, epoch = %lane.spec.epoch,
                        "the target topic was made anew; what it has to say is asked for from the beginning");
                    Some(End::Again)
                }
                Err(fault) => Some(End::Fault(fault)),
            }
        }
        Event::NewLine(restart) => {
            warn!(task = %lane.spec.id, reason = %restart.why, from = %restart.from.offset,
                repeats_max = restart.repeats_max, "counting in this line has come to an end");
            Some(End::Restart(restart))
        }
        Event::Isolate => Some(End::Isolate),
        Event::Cut => Some(End::Again),
        Event::Overtaken => {
            warn!(task = %lane.spec.id, epoch = %lane.spec.epoch,
                "another worker copies this task while this one is not registered; it is left to the other");
            Some(End::Again)
        }
        Event::Stopped(SenderStop::NewerLine | SenderStop::TakeOver) => Some(End::Again),
        // Refusals are told by the outlet, with their reason.
        Event::Stopped(SenderStop::Terminal(_)) => None,
        Event::Failed(fault) => Some(End::Fault(fault)),
        Event::OutOfRange => out_of_range(lane, starter).await,
        Event::Settled | Event::Unsettled => None,
    }
}

/// Tells the lane what the target says; asked until it answers, or asking again cannot help.
async fn note_view(lane: &Arc<Lane>, starter: &Starter, tail_from: Option<Offset>) -> Option<End> {
    let producer = lane.checkpoint()?.producer;
    let asked = || async move {
        let mut view = starter.view(lane, producer).await?;
        if let Some(from) = tail_from {
            // The target may have deleted what lies before.
            let from = from.max(view.start);
            let tail = starter.read_tail(lane, producer, from, view.end).await?;
            view.tail = Some(tail);
        }
        Ok::<_, Unread>(view)
    };
    match until_heard(lane, asked).await {
        Ok(view) => {
            lane.target_seen(&view);
            None
        }
        Err(fault) => Some(End::Fault(fault)),
    }
}

/// Asks the target until it answers, less and less often.
///
/// # Errors
/// What asking again cannot help.
async fn until_heard<F>(lane: &Lane, mut ask: impl FnMut() -> F) -> Result<TargetView, Fault>
where
    F: Future<Output = Result<TargetView, Unread>>,
{
    let backoff = Backoff::new(AGAIN_AFTER, VIEW_AGAIN_AFTER_MAX);
    let mut attempt = 0;
    loop {
        match ask().await {
            Ok(view) => return Ok(view),
            Err(Unread::Late(fault)) => lane.trouble(Side::Target, Some(&fault.cause)),
            Err(fault) => return Err(fault.into()),
        }
        sleep(backoff.delay(attempt, rand::random())).await;
        attempt += 1;
    }
}

/// The leader of the target partition; None: the topic is not the one that the flow was opened for.
async fn find_target(lane: &Lane, client: &ClusterClient) -> Result<Option<Leader>, Fault> {
    loop {
        let deadline = Instant::now() + LEADER_TIME;
        let at = &lane.target;
        let found = match client.leader(at, deadline).await {
            Ok(leader) => client
                .topic(&at.topic, deadline)
                .await
                .map(|topic| (leader, topic.id)),
            Err(fault) => Err(fault),
        };
        match found {
            Ok((leader, id)) => return Ok(lane.writes_topic(id).then_some(leader)),
            Err(fault) if fault.is_retryable() => {
                lane.trouble(Side::Target, Some(&fault.to_string()));
                sleep(AGAIN_AFTER).await;
            }
            Err(fault) => return Err(ends::fault(Kind::Target, client, &fault)),
        }
    }
}

/// The source has nothing at the position: a gap, or a truncation; the start tells which.
async fn out_of_range(lane: &Arc<Lane>, starter: &Starter) -> Option<End> {
    let Some(position) = lane.position() else {
        return Some(End::Again);
    };
    match starter.source.committed_range(&lane.source).await {
        Ok((start, end)) => {
            lane.measured(start, end);
            if position > end {
                return Some(End::Fault(Fault::truncated(position, end)));
            }
            if position < start {
                lane.source_lost(start);
                return None;
            }
            Some(End::Again)
        }
        Err(fault) => Some(End::Fault(ends::fault(
            Kind::Source,
            &starter.source.client,
            &fault,
        ))),
    }
}

#[cfg(test)]
mod tests {
    use kreplicator_model::exact::DeliveryMode;

    use super::*;
    use crate::batches::{
        testkit::{self, Rig, RigMade},
        tests::{context, engine_behind, spec},
    };

    fn fault() -> Fault {
        Fault::new(Kind::Target, "the user lacks the permission DESCRIBE")
    }

    #[tokio::test(start_paused = true)]
    async fn a_target_that_is_silent_is_asked_less_and_less_often() {
        let rig = Rig::running(RigMade::default());
        let mut asked = 0_u32;
        let heard = until_heard(&rig.lane, || {
            asked += 1;
            async { Err(Unread::Late(fault())) }
        });
        let silence = tokio::time::timeout(Duration::from_secs(60), heard).await;
        assert!(silence.is_err(), "it never ends by itself");
        assert!((12..=30).contains(&asked), "{asked} questions in a minute");
        assert_eq!(rig.lane.status().cause, fault().cause);
    }

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

    #[tokio::test(start_paused = true)]
    async fn what_asking_again_cannot_help_ends_it() {
        let rig = Rig::running(RigMade::default());
        let heard = until_heard(&rig.lane, || async { Err(Unread::Failed(fault())) });
        assert_eq!(heard.await, Err(fault()));
    }
}
