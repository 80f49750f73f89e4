//! The work under one registration.

mod carry;
mod leave;
mod release;
mod tell;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use kreplicator_model::ids::{LinkId, TaskId};
use kreplicator_store::{Change, Delta, View, ViewOptions, keys};
use tokio::{
    task::{JoinError, JoinSet},
    time::{Instant, MissedTickBehavior, interval, sleep_until},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use super::{
    Error, Supervisor, TICK,
    books::{Action, Books, Circumstances, StopReason},
    stopping::{self, Stop},
    write::{Written, write},
};
use crate::{
    assignment::Assignments,
    engine::{LinkContext, State, TaskSpec},
    membership::Tenure,
    metrics,
    tasks::Live,
};
use leave::Leaving;
use tell::Pace;

/// How a shift ended. Nothing runs any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// The registration was lost; there will be another.
    Lost,
    /// This worker was told to leave.
    Left,
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
    leaving: Option<Leaving>,
    /// Carried tasks that are not ours any more and have not stopped yet.
    clearing: BTreeSet<TaskId>,
    /// The data path acts in the name of this registration.
    is_admitted: bool,
}

impl<'a> Shift<'a> {
    /// Begins to work. Of the registration before only what is carried over still runs.
    pub(super) fn begin(supervisor: &'a mut Supervisor, tenure: Tenure) -> Self {
        let parts = &supervisor.parts;
        assert_eq!(
            parts.tasks.len(),
            supervisor.carried.len(),
            "tasks outlived their registration"
        );
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
            leaving: None,
            clearing: BTreeSet::new(),
            is_admitted: false,
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
            if self.leaving.is_some() && self.is_idle() {
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
        if !self.is_read() || !self.admit() {
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
        self.supervisor.idle.remove(&spec.id.link);
        let parts = &self.supervisor.parts;
        let id = spec.id.clone();
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
        let stop = stopping::stop(id.clone(), task, reason, limit);
        self.stops.spawn(stop);
    }

    fn stopped(&mut self, stop: Result<Stop, JoinError>) -> Result<(), Error> {
        let id = stopping::note(stop, &self.supervisor.parts.tasks)?;
        if !self.clearing.remove(&id) {
            self.books.stopped(&id);
        }
        self.supervisor.idle.insert(id.link, Instant::now());
        Ok(())
    }

    /// The fence has closed: everything stops at once that does not bear a second owner, and whatever the
    /// store holds of us is void.
    async fn fenced(&mut self) -> Result<(), Error> {
        let parts = &self.supervisor.parts;
        parts.health.lost();
        self.writes.abort_all();
        metrics::ownership_lost();
        self.carry_over();
        let carried = &self.supervisor.carried;
        let keeps = |id: &TaskId| carried.contains_key(id);
        let stopping = self.books.stop_all_but(&keeps, StopReason::Fenced);
        warn!(
            incarnation = self.tenure.incarnation,
            stopping = stopping.len(),
            going_on = carried.len(),
            "ownership has ended; tasks that bear a second owner go on, every other stops"
        );
        for id in stopping {
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

    fn tick(&mut self) {
        self.release_idle_links();
        self.tick_leaving();
    }
}
