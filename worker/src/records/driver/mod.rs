//! Carries the tasks of one link through their lives: the only place that acts on them.
//!
//! What happens next to a task is decided by `model::task`; the driver carries the actions out and
//! feeds back what became of them. Anything that waits runs as a job beside it, for all tasks of the
//! link together: finding starts ([`starts`]), looking at offsets ([`looks`]), saving checkpoints
//! ([`saves`]), making clients, also from renewed certificates ([`renewals`]). At most one job of a kind
//! is under way.

mod clients;
mod entry;
mod life;
mod looks;
mod renewals;
mod saves;
mod starts;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use kreplicator_kafka::secrets::SecretSource;
use kreplicator_model::task::{Action, Input, Machine};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval},
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use self::{
    clients::Clients,
    entry::{Blocked, Entry, Stop},
};
use super::{
    config::RecordsConfig,
    lane::{Lane, LaneEvent, LaneNumber, Shared},
    reader::{Ranges, Reader},
};
use crate::{
    engine::{LinkContext, Stopped},
    fault::Fault,
    flow_metrics,
    sink::{Sink as _, kafka::KafkaSink},
};

/// How often deadlines, retries and the fence are looked at.
const TICK: Duration = Duration::from_millis(100);
/// How long the end of clients is waited for where nobody said how long.
const RELEASE_TIME: Duration = Duration::from_secs(30);

/// What the engine asks of a driver.
#[derive(Debug)]
pub(super) enum Order {
    Add(Arc<Lane>),
    Stop {
        lane: LaneNumber,
        deadline: Duration,
        reply: oneshot::Sender<Stopped>,
    },
    /// End with the last task: the link was changed and new tasks go elsewhere.
    EndWhenEmpty,
    /// Drop the clients and end.
    Release {
        deadline: Duration,
        reply: oneshot::Sender<()>,
    },
}

/// What a job found.
enum Done {
    Clients(Result<Clients, Fault>),
    Reader(Result<Reader, Fault>),
    Starts(Vec<(LaneNumber, Result<starts::Found, Fault>)>),
    Look(Result<Ranges, Fault>),
    Saves(saves::Saved),
    Killed(LaneNumber, u64),
    Sink(Result<(), Fault>),
    Renewed(Box<renewals::Renewed>),
}

/// The driver of one link.
pub(super) struct Driver {
    config: RecordsConfig,
    context: Arc<LinkContext>,
    secrets: Arc<dyn SecretSource>,
    sink: Arc<KafkaSink>,
    shared: Shared,
    entries: BTreeMap<LaneNumber, Entry>,
    clients: Option<Clients>,
    jobs: JoinSet<Done>,
    /// Clients are being made.
    making_clients: bool,
    /// A sink that lost its way is being made ready again.
    preparing_sink: bool,
    sink_fault: Option<Fault>,
    rebuilding: bool,
    rebuilds: u32,
    reader_made_at: Instant,
    /// Tasks that wait for the next job that finds starts.
    to_start: BTreeSet<LaneNumber>,
    finding_starts: bool,
    looks: looks::Schedule,
    saves: saves::Schedule,
    renewals: renewals::Schedule,
    openings: u64,
    base: Instant,
    ends_when_empty: bool,
}

impl Driver {
    pub(super) fn new(
        config: RecordsConfig,
        context: Arc<LinkContext>,
        secrets: Arc<dyn SecretSource>,
        sink: Arc<KafkaSink>,
        shared: Shared,
    ) -> Self {
        let now = Instant::now();
        Self {
            looks: looks::Schedule::new(now),
            saves: saves::Schedule::new(now),
            renewals: renewals::Schedule::new(now, renewals::Looks::new(&context, &secrets)),
            config,
            context,
            secrets,
            sink,
            shared,
            entries: BTreeMap::new(),
            clients: None,
            jobs: JoinSet::new(),
            making_clients: false,
            preparing_sink: false,
            sink_fault: None,
            rebuilding: false,
            rebuilds: 0,
            reader_made_at: now,
            to_start: BTreeSet::new(),
            finding_starts: false,
            openings: 0,
            base: now,
            ends_when_empty: false,
        }
    }

    /// Runs until it is released or cancelled.
    pub(super) async fn run(
        mut self,
        mut orders: mpsc::UnboundedReceiver<Order>,
        mut lane_events: mpsc::UnboundedReceiver<(LaneNumber, LaneEvent)>,
        cancel: CancellationToken,
    ) {
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let alarm = self.alarm();
            tokio::select! {
                biased;
                () = cancel.cancelled() => return self.drop_everything().await,
                order = orders.recv() => match order {
                    None => return self.drop_everything().await,
                    Some(Order::Release { deadline, reply }) => {
                        self.release(deadline).await;
                        // Whoever asked may have lost patience.
                        reply.send(()).ok();
                        return;
                    }
                    Some(Order::EndWhenEmpty) => self.ends_when_empty = true,
                    Some(Order::Add(lane)) => self.add(lane),
                    Some(Order::Stop { lane, deadline, reply }) => self.stop(lane, deadline, reply),
                },
                Some((lane, event)) = lane_events.recv() => self.lane_event(lane, event),
                Some(done) = self.jobs.join_next() => match done {
                    Ok(done) => self.done(done),
                    Err(failed) if failed.is_panic() => std::panic::resume_unwind(failed.into_panic()),
                    Err(_) => {}
                },
                () = alarm => self.looks.soon(),
                _ = tick.tick() => self.tick(),
            }
            if self.ends_when_empty && self.entries.is_empty() {
                return self.release(RELEASE_TIME).await;
            }
            self.begin_jobs();
        }
    }

    /// Resolves when the reader has something to complain about.
    fn alarm(&self) -> impl Future<Output = ()> + Send + 'static {
        let news = self
            .clients
            .as_ref()
            .map(|clients| Arc::clone(clients.reader.news()));
        async move {
            match news {
                Some(news) => news.alarm.notified().await,
                None => std::future::pending().await,
            }
        }
    }

    fn add(&mut self, lane: Arc<Lane>) {
        lane.attach(self.sink.as_ref());
        let number = lane.number;
        let entry = Entry::new(lane, Machine::new(self.config.machine()));
        self.entries.insert(number, entry);
        self.step(number, Input::Start);
    }

    fn stop(&mut self, lane: LaneNumber, deadline: Duration, reply: oneshot::Sender<Stopped>) {
        let Some(entry) = self.entries.get_mut(&lane) else {
            // Was stopped before; nothing of it is left.
            reply.send(Stopped::Clean).ok();
            return;
        };
        entry.stop = Some(Stop {
            deadline: Instant::now() + deadline,
            reply,
        });
        if entry.ended {
            self.conclude(lane);
        } else if !entry.machine.is_stopped() {
            self.step(lane, Input::Stop);
        }
    }

    fn lane_event(&mut self, lane: LaneNumber, event: LaneEvent) {
        match event {
            LaneEvent::Failed(fault) => self.fault(lane, fault),
            LaneEvent::Fenced => self.fence_closed(),
            LaneEvent::Settled => self.settled(lane),
        }
    }

    /// Tasks of this registration end here and now.
    fn fence_closed(&mut self) {
        let running: Vec<LaneNumber> = self
            .entries
            .iter()
            .filter(|(_, entry)| !entry.ended && !entry.fenced)
            .map(|(lane, _)| *lane)
            .collect();
        if running.is_empty() {
            return;
        }
        let in_flight: u64 = running
            .iter()
            .map(|lane| self.entries[lane].lane.numbers().in_flight)
            .sum();
        warn!(
            link = %self.context.link.id,
            tasks = running.len(),
            in_flight_records = in_flight,
            "the lease may be over: nothing more is sent or saved"
        );
        for lane in running {
            let Some(entry) = self.entries.get_mut(&lane) else {
                continue;
            };
            entry.fenced = true;
            let was_leaving = entry.machine.is_stopped();
            // Neither a save nor others' records are waited for any more.
            if entry.blocked != Some(Blocked::Killing) {
                entry.blocked = None;
            }
            if was_leaving {
                entry.queue.push_front(Action::Kill);
                self.advance(lane);
            } else {
                self.step(lane, Input::FenceLost);
            }
        }
    }

    fn tick(&mut self) {
        if !self.shared.fence.is_open() {
            self.fence_closed();
        }
        let now = Instant::now();
        let since_base = now.saturating_duration_since(self.base);
        let lanes: Vec<LaneNumber> = self.entries.keys().copied().collect();
        for lane in lanes {
            let Some(entry) = self.entries.get_mut(&lane) else {
                continue;
            };
            if entry.stop.as_ref().is_some_and(|stop| now >= stop.deadline) {
                if !entry.machine.is_stopped() {
                    self.step(lane, Input::DeadlinePassed);
                } else if entry.blocked == Some(Blocked::Settling) {
                    entry.blocked = None;
                    entry.queue.push_front(Action::CommitCheckpoint);
                    entry.queue.push_front(Action::Kill);
                    self.advance(lane);
                }
            } else if entry.machine.next_tick().is_some_and(|at| since_base >= at) {
                self.step(lane, Input::Tick);
            } else if entry
                .unproven
                .is_some_and(|fault| entry.lane.checkpoint() > fault.checkpoint)
            {
                self.proven(lane);
            }
        }
        self.keep_sink_ready();
        self.show_troubles();
        self.count_memory();
    }

    /// A producer that broke is replaced also when no task of this link noticed: they wait with
    /// what they hold.
    fn keep_sink_ready(&mut self) {
        let is_needed = self.entries.values().any(Entry::is_reading);
        if !is_needed || self.preparing_sink || self.sink.is_ready() {
            return;
        }
        self.preparing_sink = true;
        let sink = Arc::clone(&self.sink);
        let deadline = self.config.call_timeout;
        self.jobs
            .spawn(async move { Done::Sink(sink.prepare(&[], deadline).await) });
    }

    fn count_memory(&self) {
        let (used, _) = flow_metrics::budget();
        #[expect(clippy::cast_precision_loss, reason = "a gauge is a float")]
        used.set(self.shared.budget.used_bytes() as f64);
    }

    fn done(&mut self, done: Done) {
        match done {
            Done::Clients(made) => self.clients_made(made),
            Done::Reader(made) => self.reader_rebuilt(made),
            Done::Starts(found) => self.starts_found(found),
            Done::Look(found) => self.looked(found),
            Done::Saves(saved) => self.saved(saved),
            Done::Killed(lane, given_up) => self.killed(lane, given_up),
            Done::Sink(prepared) => {
                self.preparing_sink = false;
                self.sink_fault = prepared.err();
            }
            Done::Renewed(renewed) => self.renewed(*renewed),
        }
    }

    fn begin_jobs(&mut self) {
        self.begin_starts();
        self.begin_look();
        self.begin_saves();
        self.begin_renewal();
    }

    /// Drops the clients in an orderly way.
    async fn release(&mut self, deadline: Duration) {
        if !self.entries.values().all(|entry| entry.ended) {
            warn!(link = %self.context.link.id, "link released while tasks run; they are dropped");
        }
        let end = Instant::now() + deadline;
        self.jobs.abort_all();
        let Some(clients) = self.clients.take() else {
            return;
        };
        for entry in self.entries.values() {
            entry.lane.close();
        }
        clients.close(end).await;
        info!(link = %self.context.link.id, "clients of the link released");
    }

    /// Drops everything as it stands: nothing more is sent or saved.
    async fn drop_everything(&mut self) {
        self.jobs.abort_all();
        for entry in self.entries.values() {
            entry.lane.close();
            if let Some(outlet) = entry.lane.outlet() {
                outlet.forget(Duration::ZERO).await;
            }
        }
        self.clients = None;
    }
}
