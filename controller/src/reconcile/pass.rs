//! One pass of the loop, and what is remembered from one to the next.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use kreplicator_model::{
    backoff::Backoff,
    ids::{ClusterId, LinkId, LinkTopic, TaskId, WorkerId},
    liveness::{Liveness, Verdict},
    planner::Reason,
    resolve::{Resolved, resolve},
};
use kreplicator_store::{api::Error as StoreError, election::Term};
use tokio::{runtime, time::Instant};
use tracing::{Instrument, debug, info, info_span, warn};

use super::{
    Parts,
    book::Book,
    chunks::{Terms, chunk_writes},
    decide::{Decision, Situation, decide},
    plan_book::PLAN,
    state::{Facts, fleet_state},
    stuck::{Findings, StuckTasks},
    topics,
    views::Views,
    writer::{Given, Published, WriteError, Writer},
};
use crate::{
    discovery::{Snapshot, inventory},
    targets::{LinkWants, TargetState, Want},
};

/// Waits after writes that failed or conflicted.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(2));

/// What is remembered from pass to pass of one term.
#[derive(Debug)]
pub(super) struct Pass {
    parts: Parts,
    writer: Writer,
    book: Book,
    began: Instant,
    liveness: Liveness,
    stuck: StuckTasks,
    /// Looks asked for when a subscription was first seen: once such a look has succeeded, its first
    /// discovery pass is over.
    tickets: BTreeMap<(LinkId, String), u64>,
    reasons: BTreeMap<TaskId, String>,
    /// Workers with more tasks than can be written down.
    oversized: BTreeSet<WorkerId>,
    /// The plan has to be read again before anything is decided.
    plan_unknown: bool,
    failures: u32,
    ready: bool,
}

/// How a pass ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Outcome {
    /// When the next one is due, without any news.
    pub(super) next: Instant,
    /// A guarded write was refused.
    pub(super) conflict: bool,
}

impl Pass {
    pub(super) fn new(parts: Parts, term: Term, book: Book) -> Self {
        let writer = Writer {
            store: parts.store.clone(),
            term,
            metrics: parts.metrics.clone(),
        };
        Self {
            writer,
            book,
            began: Instant::now(),
            liveness: Liveness::new(parts.settings.liveness, Duration::ZERO),
            stuck: StuckTasks::new(parts.settings.stuck_after),
            tickets: BTreeMap::new(),
            reasons: BTreeMap::new(),
            oversized: BTreeSet::new(),
            plan_unknown: false,
            failures: 0,
            ready: false,
            parts,
        }
    }

    pub(super) fn book(&mut self) -> &mut Book {
        &mut self.book
    }

    /// Makes one pass.
    pub(super) async fn run(&mut self, views: &mut Views) -> Outcome {
        let span = info_span!("reconcile", generation = %self.book.plan.generation());
        let began = Instant::now();
        let outcome = self.pass(views).instrument(span).await;
        self.parts.metrics.pass.record(began.elapsed());
        outcome
    }

    async fn pass(&mut self, views: &mut Views) -> Outcome {
        self.parts.metrics.drift.increment(views.new_drift());
        self.parts.discovery.watch(&self.book.desired.clusters);
        let snapshot = self.parts.discovery.snapshot();
        let targets = self.parts.targets.states();
        let store_fault = views.fault();
        // While the store is away nothing can be written, and what is known of workers is old.
        let writable = store_fault.is_none();

        let mut resolved = self.resolve(&snapshot);
        let mut written = Ok(());
        if writable {
            written = self.note_topics(&mut resolved, &snapshot, &targets).await;
        }
        let halted = heavy(|| {
            let book = &self.book;
            topics::halted(&book.desired, &resolved, &book.records, &snapshot)
        });
        self.want_targets(&resolved, &halted, &snapshot);

        let now = self.began.elapsed();
        let (verdict, stuck, decision);
        if writable && self.know_plan().await {
            let live = self.book.workers.keys().cloned().collect();
            verdict = self.liveness.step(now, &live, &self.book.ledger.workers());
            stuck = self.find_stuck(now, &verdict);
            let planned = self
                .plan_and_publish(&resolved, &targets, &halted, &verdict, &stuck)
                .await;
            decision = planned.0;
            written = written.and(planned.1);
        } else {
            verdict = Verdict::default();
            stuck = Findings::default();
            decision = Decision::default();
        }
        self.ready |= writable && !self.plan_unknown && written.is_ok();
        let outcome = self.outcome(&written, &verdict, &stuck);
        let write_fault = match written {
            Err(WriteError::Store(error)) => Some(error.to_string()),
            Err(WriteError::Conflict) | Ok(()) => None,
        };
        self.publish_state(Facts {
            book: &self.book,
            snapshot: &snapshot,
            resolved,
            targets: &targets,
            halted: &halted,
            decision,
            verdict: &verdict,
            stuck: &stuck,
            reasons: &self.reasons,
            oversized: &self.oversized,
            store_fault,
            write_fault,
            ready: self.ready,
            now: self.parts.clock.now(),
        });
        outcome
    }

    fn resolve(&self, snapshot: &Snapshot) -> Resolved {
        heavy(|| {
            let book = &self.book;
            let inventory = inventory(snapshot);
            resolve(&book.desired, &inventory, &book.records, &book.baseline())
        })
    }

    /// Notes down new topics, what is new about known ones, and which subscriptions' first discovery
    /// pass is over.
    async fn note_topics(
        &mut self,
        resolved: &mut Resolved,
        snapshot: &Snapshot,
        targets: &BTreeMap<LinkTopic, TargetState>,
    ) -> Result<(), WriteError> {
        let desired = &self.book.desired;
        let new = topics::new_records(desired, resolved, snapshot, self.parts.clock.now());
        if !new.is_empty() {
            info!(topics = new.len(), "new topics");
            self.writer.records(&mut self.book, new).await?;
            *resolved = self.resolve(snapshot);
        }
        let book = &self.book;
        let changed = heavy(|| {
            let halted = topics::halted(&book.desired, resolved, &book.records, snapshot);
            topics::changed_records(
                &book.desired,
                resolved,
                &book.records,
                &halted,
                &book.frozen(),
                targets,
                snapshot,
            )
        });
        if !changed.is_empty() {
            self.writer.records(&mut self.book, changed).await?;
        }
        let over = self.first_passes_over(snapshot);
        if !over.is_empty() {
            debug!(subscriptions = over.len(), "first discovery pass over");
            self.writer.baseline(&mut self.book, over).await?;
        }
        Ok(())
    }

    /// Subscriptions whose source was looked at since they were first seen. What that look found has
    /// been noted down in this pass.
    fn first_passes_over(&mut self, snapshot: &Snapshot) -> Vec<(LinkId, String)> {
        let book = &self.book;
        let subscriptions = &book.subscriptions;
        self.tickets.retain(|id, _| {
            let known = subscriptions.get(id);
            known.is_some_and(|(record, _)| !record.baseline)
        });
        let mut asked: BTreeMap<&ClusterId, u64> = BTreeMap::new();
        let mut over = Vec::new();
        for (id, (record, _)) in subscriptions {
            if record.baseline {
                continue;
            }
            let Some(link) = book.desired.links.get(&id.0) else {
                continue;
            };
            let Some(ticket) = self.tickets.get(id) else {
                let known = asked.get(&link.source).copied();
                let ticket = known.or_else(|| self.parts.discovery.ask(&link.source));
                if let Some(ticket) = ticket {
                    asked.insert(&link.source, ticket);
                    self.tickets.insert(id.clone(), ticket);
                }
                continue;
            };
            let looked = snapshot
                .get(&link.source)
                .is_some_and(|source| source.succeeded >= *ticket);
            if looked {
                over.push(id.clone());
            }
        }
        over
    }

    /// Tells the keepers of target topics what is wanted.
    fn want_targets(
        &mut self,
        resolved: &Resolved,
        halted: &BTreeMap<LinkTopic, String>,
        snapshot: &Snapshot,
    ) {
        let book = &self.book;
        let mut wants: BTreeMap<LinkId, LinkWants> = book
            .desired
            .links
            .iter()
            .map(|(id, link)| {
                let target = snapshot.get(&link.target);
                let wants = LinkWants {
                    link: link.clone(),
                    topics: BTreeMap::new(),
                    seen: target.and_then(|target| target.topics.clone()),
                };
                (id.clone(), wants)
            })
            .collect();
        for (id, topic) in &resolved.topics {
            let record = book.records.get(id);
            let (Some(wants), Some(record)) = (wants.get_mut(&id.link), record) else {
                continue;
            };
            if !topic.runs() || halted.contains_key(id) {
                continue;
            }
            let want = Want {
                target_topic: topic.target_topic.clone(),
                partitions: topic.partitions,
                verified_before: record.target_partitions > 0,
            };
            wants.topics.insert(id.clone(), want);
        }
        self.parts.targets.want(wants);
    }

    /// Reads the plan again when a write left open what is stored. False: it cannot be read now.
    async fn know_plan(&mut self) -> bool {
        if !self.plan_unknown {
            return true;
        }
        match self.parts.store.list(PLAN).await {
            Ok(found) => {
                self.book.plan_read(&found.entries, found.revision);
                self.plan_unknown = false;
                true
            }
            Err(error) => {
                warn!(%error, "the plan cannot be read again");
                false
            }
        }
    }

    fn find_stuck(&mut self, now: Duration, verdict: &Verdict) -> Findings {
        let book = &self.book;
        let leaving = |id: &WorkerId| {
            let live = book.workers.get(id);
            book.drains.contains(id) || live.is_some_and(|worker| worker.live.draining)
        };
        let takers = verdict
            .active
            .iter()
            .filter(|id| !leaving(id))
            .cloned()
            .collect();
        let stuck = &mut self.stuck;
        let findings = heavy(|| stuck.step(now, &book.ledger, &verdict.active, &takers));
        self.parts.metrics.stuck.set(findings.stuck.len() as f64);
        for (worker, chunk) in &findings.again {
            warn!(%worker, chunk, "tasks are not taken on, writing their assignment again");
        }
        findings
    }

    async fn plan_and_publish(
        &mut self,
        resolved: &Resolved,
        targets: &BTreeMap<LinkTopic, TargetState>,
        halted: &BTreeMap<LinkTopic, String>,
        verdict: &Verdict,
        stuck: &Findings,
    ) -> (Decision, Result<(), WriteError>) {
        let book = &self.book;
        let frozen = book.frozen();
        let (decision, writes) = heavy(|| {
            let decision = decide(&Situation {
                resolved,
                records: &book.records,
                targets,
                halted,
                frozen: &frozen,
                ledger: &book.ledger,
                workers: &book.workers,
                drains: &book.drains,
                verdict,
                pinned: &stuck.pinned,
            });
            let terms = Terms::new(book, resolved, targets);
            let writes = chunk_writes(book, &decision, &terms, &verdict.lost, &stuck.again);
            (decision, writes)
        });
        let doubles = book.ledger.double_claims().len();
        self.parts.metrics.double_claims.set(doubles as f64);
        let owners = self.owners(&decision);
        let mut published = Published::default();
        let written = self
            .writer
            .chunks(&mut self.book, writes, &mut published)
            .await;
        self.oversized = published.oversized;
        self.note_given(published.given, &decision, &owners, &stuck.pinned);
        if written.is_err() {
            self.plan_unknown = true;
        }
        (decision, written)
    }

    /// Who has the tasks that are about to be given away.
    fn owners(&self, decision: &Decision) -> BTreeMap<TaskId, WorkerId> {
        let tasks = decision.steps.assign.values().flatten();
        let known = tasks.filter_map(|task| {
            let (owner, _) = self.book.ledger.assigned_to(task)?;
            Some((task.clone(), owner.clone()))
        });
        known.collect()
    }

    /// Counts moves and remembers why each task is where it is.
    fn note_given(
        &mut self,
        given: Vec<Given>,
        decision: &Decision,
        owners: &BTreeMap<TaskId, WorkerId>,
        pinned: &BTreeMap<TaskId, WorkerId>,
    ) {
        if given.is_empty() {
            return;
        }
        let planned: BTreeMap<&TaskId, Reason> = decision
            .plan
            .moves
            .iter()
            .map(|planned| (&planned.task, planned.reason))
            .collect();
        let mut counts: BTreeMap<&'static str, u64> = BTreeMap::new();
        for Given { task, worker } in given {
            let reason = if pinned.get(&task) == Some(&worker) {
                "stuck"
            } else {
                planned
                    .get(&task)
                    .map_or(Reason::New.as_str(), |reason| reason.as_str())
            };
            *counts.entry(reason).or_default() += 1;
            let text = match owners.get(&task) {
                Some(owner) if *owner != worker => format!("{reason}: from {owner}"),
                Some(_) | None => reason.to_owned(),
            };
            self.reasons.insert(task, text);
        }
        for (reason, tasks) in counts {
            info!(reason, tasks, generation = %self.book.plan.generation(), "tasks assigned");
            self.parts.metrics.moved(reason, tasks);
        }
        let ledger = &self.book.ledger;
        self.reasons
            .retain(|task, _| ledger.assigned_to(task).is_some());
    }

    fn outcome(
        &mut self,
        written: &Result<(), WriteError>,
        verdict: &Verdict,
        stuck: &Findings,
    ) -> Outcome {
        let now = Instant::now();
        let conflict = matches!(written, Err(WriteError::Conflict));
        match written {
            Ok(()) if !self.plan_unknown => self.failures = 0,
            Ok(()) => self.failures += 1,
            Err(error) => {
                match error {
                    WriteError::Store(StoreError::Invalid(_)) => {
                        tracing::error!(%error, "a write is refused");
                    }
                    _ => debug!(%error, "a write did not happen"),
                }
                self.failures += 1;
            }
        }
        let checks = [verdict.next_check, stuck.next_check];
        let checks = checks.into_iter().flatten().map(|at| self.began + at);
        let retry =
            (self.failures > 0).then(|| now + BACKOFF.delay(self.failures - 1, rand::random()));
        let latest = now + self.parts.settings.interval;
        let next = checks
            .chain(retry)
            .min()
            .map_or(latest, |at| at.min(latest));
        Outcome {
            // Never at once: whatever wants it, others run in between.
            next: next.max(now + Duration::from_millis(1)),
            conflict,
        }
    }

    fn publish_state(&self, facts: Facts<'_>) {
        let before = self.parts.fleet.borrow().clone();
        let state = heavy(|| fleet_state(facts, &before));
        self.parts.fleet.send_replace(std::sync::Arc::new(state));
    }
}

/// Runs what may take long in a large fleet without holding up others on this thread.
fn heavy<T>(work: impl FnOnce() -> T) -> T {
    match runtime::Handle::current().runtime_flavor() {
        runtime::RuntimeFlavor::MultiThread => tokio::task::block_in_place(work),
        _ => work(),
    }
}
