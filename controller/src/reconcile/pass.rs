//! One pass of the loop, and what is remembered from one to the next.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use kreplicator_model::{
    backoff::Backoff,
    ids::{LinkTopic, PlanGeneration, WorkerId},
    liveness::{Liveness, Verdict},
    resolve::{Resolved, resolve},
    selector::Matchers,
};
use kreplicator_store::{api::Error as StoreError, election::Term};
use tokio::time::Instant;
use tracing::{Instrument, debug, error, info, info_span, warn};

use super::{
    Parts,
    book::Book,
    chunks::{Terms, chunk_writes},
    decide::{Decision, Situation, decide},
    first_looks::FirstLooks,
    plan_book::PLAN,
    reasons::{Intent, Reasons},
    sources::{Sources, sources},
    state::{Facts, fleet_state},
    stuck::{Findings, StuckTasks, takers},
    succession::{Spoken, Succession, harmless},
    topics,
    views::Views,
    wants::wants,
    writer::{Published, WriteError, Writer, note_oversized},
};
use crate::{discovery::Snapshot, heavy::heavy, targets::TargetState};

/// Waits after writes that failed or conflicted.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(2));

/// Shortest wait until the next look at tasks that are on their way from one worker to another.
const LOOK_AGAIN: Duration = Duration::from_millis(250);
/// That wait is at least this many times as long as a pass takes.
const LOOK_AGAIN_PASSES: u32 = 4;

/// What is remembered from pass to pass of one term.
#[derive(Debug)]
pub(super) struct Pass {
    parts: Parts,
    writer: Writer,
    book: Book,
    matchers: Matchers,
    began: Instant,
    liveness: Liveness,
    stuck: StuckTasks,
    first_looks: FirstLooks,
    reasons: Reasons,
    succession: Succession,
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
    /// Tasks go on where they were until their successors copy.
    pub(super) covering: bool,
}

impl Pass {
    pub(super) fn new(parts: Parts, term: Term, book: Book) -> Self {
        let writer = Writer {
            store: parts.store.clone(),
            term,
            first_generation: PlanGeneration(u64::try_from(parts.clock.now().0).unwrap_or(0)),
            metrics: parts.metrics.clone(),
        };
        Self {
            writer,
            book,
            matchers: Matchers::default(),
            began: Instant::now(),
            liveness: Liveness::new(parts.settings.liveness, Duration::ZERO),
            stuck: StuckTasks::new(parts.settings.stuck_after),
            first_looks: FirstLooks::default(),
            reasons: Reasons::default(),
            succession: Succession::default(),
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
        let mut outcome = self.pass(views).instrument(span).await;
        let took = began.elapsed();
        self.parts.metrics.pass.record(took);
        if outcome.covering {
            let look_again = LOOK_AGAIN.max(took * LOOK_AGAIN_PASSES);
            outcome.next = outcome.next.min(began + took + look_again);
        }
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

        let sources = heavy(|| sources(&self.book.desired, &self.book.records, &snapshot));
        let mut resolved = self.resolve(&sources);
        let mut written = Ok(());
        if writable {
            written = self
                .note_topics(&mut resolved, &sources, &snapshot, &targets)
                .await;
        }
        let halted = heavy(|| {
            let book = &self.book;
            topics::halted(&book.desired, &resolved, &book.records, &snapshot)
        });
        let wants = heavy(|| wants(&self.book, &resolved, &halted, &snapshot));
        self.parts.targets.want(wants);

        let now = self.began.elapsed();
        let (verdict, stuck, decision);
        if writable && self.know_plan().await {
            let live = self.book.workers.keys().cloned().collect();
            verdict = self.liveness.step(now, &live, &self.book.ledger.workers());
            stuck = self.find_stuck(now, &verdict, &resolved);
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
        let covering = !decision.steps.covering.is_empty();
        let outcome = self.outcome(&written, &verdict, &stuck, covering);
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
            doubles: self.succession.double_claims(&self.book.ledger),
            reasons: self.reasons.texts(),
            suspicious: &sources.suspicious,
            oversized: &self.oversized,
            store_fault,
            write_fault,
            ready: self.ready,
            now: self.parts.clock.now(),
        });
        outcome
    }

    fn resolve(&mut self, sources: &Sources) -> Resolved {
        let (book, matchers) = (&self.book, &mut self.matchers);
        heavy(|| {
            resolve(
                &book.desired,
                &sources.inventory,
                &book.records,
                &book.baseline(),
                matchers,
            )
        })
    }

    /// Notes down new topics, what is new about known ones, and which subscriptions' first discovery
    /// pass is over.
    async fn note_topics(
        &mut self,
        resolved: &mut Resolved,
        sources: &Sources,
        snapshot: &Snapshot,
        targets: &BTreeMap<LinkTopic, TargetState>,
    ) -> Result<(), WriteError> {
        let desired = &self.book.desired;
        let new = topics::new_records(desired, resolved, snapshot, self.parts.clock.now());
        if !new.is_empty() {
            info!(topics = new.len(), "new topics");
            self.writer.records(&mut self.book, new).await?;
            *resolved = self.resolve(sources);
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
        // What these looks found has just been noted down.
        let discovery = &self.parts.discovery;
        let over = self.first_looks.over(&self.book, discovery, snapshot);
        if !over.is_empty() {
            debug!(subscriptions = over.len(), "first discovery pass over");
            self.writer.baseline(&mut self.book, over).await?;
        }
        Ok(())
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

    fn find_stuck(&mut self, now: Duration, verdict: &Verdict, resolved: &Resolved) -> Findings {
        let book = &self.book;
        let suspects = self.parts.suspects.borrow().clone();
        let takers = takers(book, &verdict.active, &suspects);
        let stuck = &mut self.stuck;
        let findings = heavy(|| stuck.step(now, &book.ledger, resolved, &verdict.active, &takers));
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
        let suspects = self.parts.suspects.borrow().clone();
        let now = Instant::now();
        let suspects = harmless(&suspects, &self.parts.reports.view(now), &book.ledger);
        let words = Spoken {
            reports: &self.parts.reports,
            links: &book.desired.links,
            now,
        };
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
                suspects: &suspects,
                words: &words,
                pinned: &stuck.pinned,
            });
            let terms = Terms::new(book, resolved, targets);
            let writes = chunk_writes(book, &decision, &terms, &verdict.lost, &stuck.again);
            (decision, writes)
        });
        let intent = Intent::of(&decision, &book.ledger, &stuck.pinned);
        self.reasons.leave(&decision, &intent);
        let mut published = Published::default();
        let written = self
            .writer
            .chunks(&mut self.book, writes, &mut published)
            .await;
        self.plan_unknown = written.is_err();
        let whole = written.is_ok();
        for worker in note_oversized(&mut self.oversized, published.oversized, whole) {
            error!(%worker, "an assignment is too large to store");
        }
        let ledger = &self.book.ledger;
        self.succession.note(&decision, ledger);
        let doubles = self.succession.double_claims(ledger).len();
        self.parts.metrics.double_claims.set(doubles as f64);
        let moves = self.reasons.given(published.given, &intent, ledger);
        self.reasons.forget(&decision, ledger);
        for (reason, tasks) in moves {
            info!(reason, tasks, generation = %self.book.plan.generation(), "tasks assigned");
            self.parts.metrics.moved(reason, tasks);
        }
        (decision, written)
    }

    fn outcome(
        &mut self,
        written: &Result<(), WriteError>,
        verdict: &Verdict,
        stuck: &Findings,
        covering: bool,
    ) -> Outcome {
        let now = Instant::now();
        let conflict = matches!(written, Err(WriteError::Conflict));
        match written {
            Ok(()) if !self.plan_unknown => self.failures = 0,
            Ok(()) => self.failures += 1,
            Err(error) => {
                match error {
                    WriteError::Store(StoreError::Invalid(_)) => {
                        error!(%error, "a write is refused");
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
            covering,
        }
    }

    fn publish_state(&self, facts: Facts<'_>) {
        let before = self.parts.fleet.borrow().clone();
        let state = heavy(|| fleet_state(facts, &before));
        self.parts.fleet.send_replace(Arc::new(state));
    }
}
