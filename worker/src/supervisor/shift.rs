//! The work under one registration.

mod leave;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use kreplicator_model::ids::{LinkId, TaskId};
use kreplicator_store::{Change, Delta, View, ViewOptions, keys};
use tokio::{
    task::{JoinError, JoinSet},
    time::{Instant, MissedTickBehavior, interval, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use super::{
    Error, STOP_OVERRUN_MAX, Supervisor, TICK,
    books::{Action, Books, Circumstances, StopReason},
    write::{Written, write},
};
use crate::{
    assignment::Assignments,
    engine::{LinkContext, State, Stopped, TaskSpec},
    membership::Tenure,
    metrics,
    tasks::Live,
};
use leave::Leaving;

/// How a shift ended. Nothing runs any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// The registration was lost; there will be another.
    Lost,
    /// This worker was told to leave.
    Left,
}

/// One task's stop: how it ended, or that it did not.
type Stop = (TaskId, StopReason, Instant, Result<Stopped, Duration>);

/// When a chunk may be written next.
#[derive(Debug, Clone, Copy)]
struct Pace {
    failures: u32,
    not_before: Instant,
}

/// The work under one registration.
#[derive(Debug)]
pub(super) struct Shift<'a> {
    supervisor: &'a mut Supervisor,
    tenure: Tenure,
    assigned: View,
    owned: View,
    assignments: Assignments,
    books: Books,
    assignment_read: bool,
    owned_read: bool,
    stops: JoinSet<Stop>,
    writes: JoinSet<(u32, Written)>,
    paces: BTreeMap<u32, Pace>,
    /// Links whose clients are being let go of.
    releasing: BTreeSet<LinkId>,
    releases: JoinSet<LinkId>,
    /// Links that have lost their last task, and when.
    idle: BTreeMap<LinkId, Instant>,
    leaving: Option<Leaving>,
}

impl<'a> Shift<'a> {
    /// Begins to work. Everything of the registration before has stopped.
    pub(super) fn begin(supervisor: &'a mut Supervisor, tenure: Tenure) -> Self {
        let parts = &supervisor.parts;
        assert!(parts.tasks.is_empty(), "tasks outlived their registration");
        if parts.membership.is_outdated() {
            parts.membership.publish();
        }
        let view = |prefix: String| {
            let options: ViewOptions = parts.settings.views;
            View::open(
                Arc::clone(&parts.store),
                prefix,
                options,
                CancellationToken::new(),
            )
        };
        let assigned = view(keys::assignments_of(&parts.worker));
        let owned = view(keys::owned_of(&parts.worker));
        parts.health.registered(tenure.incarnation.clone());
        parts.gate.admit(tenure.registration.fence.clone());
        metrics::registered();
        Self {
            supervisor,
            tenure,
            assigned,
            owned,
            assignments: Assignments::default(),
            books: Books::default(),
            assignment_read: false,
            owned_read: false,
            stops: JoinSet::new(),
            writes: JoinSet::new(),
            paces: BTreeMap::new(),
            releasing: BTreeSet::new(),
            releases: JoinSet::new(),
            idle: BTreeMap::new(),
            leaving: None,
        }
    }

    /// Works until the registration is lost or this worker has left.
    pub(super) async fn run(mut self, leave: &CancellationToken) -> Result<End, Error> {
        let fence = self.tenure.registration.fence.clone();
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.supervisor.parts.health.beat(Instant::now());
            if !fence.is_open() {
                self.fenced().await?;
                return Ok(End::Lost);
            }
            self.act();
            if self.leaving.is_some() && self.books.is_idle() {
                return Ok(End::Left);
            }
            let next_write = self.next_write();
            tokio::select! {
                biased;
                () = fence.closed() => {}
                () = leave.cancelled(), if self.leaving.is_none() => self.leave(),
                Some(stop) = self.stops.join_next() => {
                    self.stopped(stop)?;
                    while let Some(stop) = self.stops.try_join_next() {
                        self.stopped(stop)?;
                    }
                }
                Some(written) = self.writes.join_next() => self.written(written)?,
                Some(link) = self.releases.join_next() => self.released(link)?,
                delta = self.supervisor.clusters.next() => self.reconfigure(&delta),
                delta = self.supervisor.links.next() => self.reconfigure(&delta),
                delta = self.assigned.next() => self.assign(&delta),
                _ = self.owned.next() => self.observe(),
                Some(alone) = leave::looked(&mut self.leaving) => self.looked(alone),
                () = sleep_until(next_write.unwrap_or_else(Instant::now)), if next_write.is_some() => {}
                _ = tick.tick() => self.tick(),
            }
        }
    }

    /// Whether assignment and lists were read since the registration.
    fn is_read(&self) -> bool {
        self.assignment_read && self.owned_read
    }

    /// Starts and stops what is due, and tells the store what it has to know.
    fn act(&mut self) {
        if !self.is_read() {
            return;
        }
        let tasks = Arc::clone(&self.supervisor.parts.tasks);
        let copies = |id: &TaskId| {
            tasks
                .get(id)
                .is_some_and(|live| live.task.status().state == State::Running)
        };
        let actions = self.books.decide(Circumstances {
            contexts: &self.supervisor.contexts,
            draining: self.leaving.is_some(),
            copies: &copies,
            releasing: &self.releasing,
        });
        let mut started = 0_usize;
        let mut stopping = 0_usize;
        for action in actions {
            match action {
                Action::Start(spec, context) => {
                    self.start(spec, context);
                    started += 1;
                }
                Action::Stop(id, reason) => {
                    self.stop(
                        &id,
                        reason,
                        self.supervisor.parts.settings.task_stop_timeout,
                    );
                    stopping += 1;
                }
            }
        }
        if started + stopping > 0 {
            info!(
                started,
                stopping,
                live = tasks.len(),
                "tasks follow the assignment"
            );
        }
        self.write_due();
        tasks.set_waiting(self.books.waiting());
    }

    fn start(&mut self, spec: TaskSpec, context: Arc<LinkContext>) {
        debug!(task = %spec.id, epoch = spec.epoch.0, "task starts");
        let parts = &self.supervisor.parts;
        let id = spec.id.clone();
        self.idle.remove(&id.link);
        let live = Live {
            task: parts.engine.start(spec, context),
            started_at: parts.clock.now(),
        };
        parts.tasks.insert(id, live);
        metrics::task_started();
    }

    fn stop(&mut self, id: &TaskId, reason: StopReason, limit: Duration) {
        let live = self.supervisor.parts.tasks.get(id);
        let task = live.expect("what runs is in the table").task;
        debug!(task = %id, reason = reason.name(), "task stops");
        let id = id.clone();
        let patience = limit + STOP_OVERRUN_MAX;
        let since = Instant::now();
        self.stops.spawn(async move {
            let stopped = timeout(patience, task.stop(limit)).await;
            (id, reason, since, stopped.map_err(|_| patience))
        });
    }

    fn stopped(&mut self, stop: Result<Stop, JoinError>) -> Result<(), Error> {
        let (id, reason, since, outcome) =
            stop.map_err(|error| Error::Broken(error.to_string()))?;
        let outcome = outcome.map_err(|limit| Error::Stuck {
            task: id.clone(),
            limit,
        })?;
        match outcome {
            Stopped::Clean => {}
            Stopped::Forced { in_flight_records } => {
                warn!(
                    task = %id,
                    reason = reason.name(),
                    in_flight_records,
                    "task was stopped before everything it had read was acknowledged"
                );
            }
        }
        metrics::task_stopped(reason.name(), outcome, since.elapsed());
        self.supervisor.parts.tasks.remove(&id);
        self.books.stopped(&id);
        if !self.books.uses(&id.link) {
            self.idle.insert(id.link, Instant::now());
        }
        Ok(())
    }

    /// The fence has closed: everything stops at once, and whatever the store holds of us is void.
    async fn fenced(&mut self) -> Result<(), Error> {
        let parts = &self.supervisor.parts;
        parts.health.lost();
        self.writes.abort_all();
        metrics::ownership_lost();
        let running = self.books.stop_all(StopReason::Fenced);
        warn!(
            incarnation = self.tenure.incarnation,
            tasks = parts.tasks.len(),
            "ownership has ended, every task stops"
        );
        for id in running {
            self.stop(&id, StopReason::Fenced, Duration::ZERO);
        }
        let mut tick = interval(TICK);
        while !self.stops.is_empty() || !self.releases.is_empty() {
            tokio::select! {
                Some(stop) = self.stops.join_next() => self.stopped(stop)?,
                Some(link) = self.releases.join_next() => self.released(link)?,
                _ = tick.tick() => self.supervisor.parts.health.beat(Instant::now()),
            }
        }
        self.supervisor.parts.tasks.set_waiting(BTreeMap::new());
        Ok(())
    }

    fn reconfigure(&mut self, delta: &Delta) {
        for change in &delta.changes {
            if let Err(error) = self.supervisor.contexts.apply(change) {
                error!(%error, "setting not followed; what was there before goes on");
                metrics::refused("unreadable");
            }
        }
        self.supervisor.contexts.refresh();
    }

    fn assign(&mut self, delta: &Delta) {
        let at = self.assigned.revision();
        for Change { key, after, .. } in &delta.changes {
            match self.assignments.apply(key, after.as_ref(), at) {
                Ok((number, chunk)) => self.books.assign(number, chunk),
                Err(refused) => {
                    error!(key, error = %refused, "assignment not followed; the one before goes on");
                    metrics::refused(refused.reason());
                }
            }
        }
        // A list is linearizable, so the first one is not older than the registration.
        if !self.assignment_read && at >= self.tenure.registration.revision {
            self.assignment_read = true;
            self.read();
        }
    }

    /// Compares what the store holds with what it was told; lists that others changed or deleted are
    /// told again (C043).
    fn observe(&mut self) {
        let seen = self.owned.revision();
        for key in self.owned.entries().keys() {
            if let Some((_, number)) = keys::split_chunk(key, keys::OWNED) {
                // Left by a registration that lapsed on the same lease.
                self.books.adopt(number, self.assigned.revision());
            }
        }
        for number in 0..keys::ASSIGNMENT_CHUNKS {
            let key = keys::owned(&self.supervisor.parts.worker, number);
            let shown = self
                .owned
                .entries()
                .get(&key)
                .map(|entry| entry.mod_revision);
            if self.books.observed(number, shown, seen) && self.owned_read {
                warn!(
                    key,
                    "what this worker runs was changed in the store, telling it again"
                );
                metrics::restored();
            }
        }
        if !self.owned_read {
            self.owned_read = true;
            self.read();
        }
    }

    fn read(&self) {
        if self.is_read() {
            self.supervisor.parts.health.synced();
            info!(
                incarnation = self.tenure.incarnation,
                revision = self.assigned.revision().0,
                "assignment read"
            );
        }
    }

    /// When the next chunk is to be written.
    fn next_write(&self) -> Option<Instant> {
        if !self.is_read() {
            return None;
        }
        let unpublished = self.books.unpublished().into_iter();
        unpublished.map(|number| self.not_before(number)).min()
    }

    fn not_before(&self, number: u32) -> Instant {
        self.paces
            .get(&number)
            .map_or_else(Instant::now, |pace| pace.not_before)
    }

    fn write_due(&mut self) {
        let now = Instant::now();
        for number in self.books.unpublished() {
            if self.not_before(number) > now {
                continue;
            }
            let Some(publication) = self.books.publish(number) else {
                continue;
            };
            let parts = &self.supervisor.parts;
            let failures = self.paces.get(&number).map_or(0, |pace| pace.failures);
            self.paces.insert(
                number,
                Pace {
                    failures,
                    not_before: now + parts.settings.write_interval,
                },
            );
            self.writes.spawn(write(
                Arc::clone(&parts.store),
                parts.worker.clone(),
                self.tenure.clone(),
                number,
                publication,
            ));
        }
    }

    fn written(&mut self, written: Result<(u32, Written), JoinError>) -> Result<(), Error> {
        let (number, written) = written.map_err(|error| Error::Broken(error.to_string()))?;
        match written {
            Written::Committed(revision) => {
                self.books.committed(number, revision);
                self.paces
                    .entry(number)
                    .and_modify(|pace| pace.failures = 0);
                metrics::owned_written("committed");
                self.observe_again();
                return Ok(());
            }
            Written::Found(revision) => {
                self.books.found(number, revision);
                metrics::owned_written("conflict");
                debug!(
                    number,
                    ?revision,
                    "the store holds another list than expected"
                );
            }
            Written::Unregistered => {
                self.books.unknown(number);
                self.supervisor.parts.membership.verify();
                metrics::owned_written("unregistered");
                debug!(number, "the store does not know this registration any more");
            }
            Written::Unknown(error) => {
                self.books.unknown(number);
                metrics::owned_written("failed");
                let failures = self.paces.get(&number).map_or(0, |pace| pace.failures);
                if failures == 0 {
                    warn!(number, %error, "the store was not told what runs here, trying again");
                } else {
                    debug!(number, %error, failures, "the store still was not told what runs here");
                }
            }
        }
        self.back_off(number);
        Ok(())
    }

    fn back_off(&mut self, number: u32) {
        let backoff = self.supervisor.parts.settings.backoff;
        let now = Instant::now();
        let pace = self.paces.entry(number).or_insert(Pace {
            failures: 0,
            not_before: now,
        });
        pace.failures = pace.failures.saturating_add(1);
        pace.not_before = now + backoff.delay(pace.failures, &mut rand::rng());
    }

    /// What the view showed while a write was under way counts now.
    fn observe_again(&mut self) {
        if self.owned_read {
            self.observe();
        }
    }

    fn tick(&mut self) {
        self.release_idle_links();
        self.tick_leaving();
    }

    fn release_idle_links(&mut self) {
        let now = Instant::now();
        let idle_max = self.supervisor.parts.settings.link_idle_max;
        let due: Vec<LinkId> = self
            .idle
            .iter()
            .filter(|(_, since)| now.saturating_duration_since(**since) >= idle_max)
            .map(|(link, _)| link.clone())
            .collect();
        for link in due {
            self.idle.remove(&link);
            if self.books.uses(&link) || !self.releasing.insert(link.clone()) {
                continue;
            }
            let engine = Arc::clone(&self.supervisor.parts.engine);
            let limit = self.supervisor.parts.settings.task_stop_timeout;
            self.releases.spawn(async move {
                engine.release_link(&link, limit).await;
                link
            });
        }
    }

    fn released(&mut self, link: Result<LinkId, JoinError>) -> Result<(), Error> {
        let link = link.map_err(|error| Error::Broken(error.to_string()))?;
        debug!(%link, "clients of an idle link were let go");
        self.releasing.remove(&link);
        Ok(())
    }
}
