//! Every change through the API goes this way: one at a time, decided on the desired state as it is,
//! written by transactions that only the leader can commit, and safe to repeat.
//!
//! # Invariants
//! - A change is decided on a state that no other change through the API has left since:
//!   each step compares [`keys::DESIRED_STATE`], which each step writes.
//! - A deposed leader writes nothing (C062).
//! - Once begun, a change goes on though its caller is gone.

use std::{sync::Arc, time::Duration};

use kreplicator_proto::status::Refusal;
use kreplicator_store::{Compare, Error, MetaStore, Op, Outcome, Revision, election::Term, keys};
use prost::Message;
use tokio::{
    sync::{Mutex, watch},
    time::{Instant, sleep},
};
use tokio_util::task::TaskTracker;
use tracing::{debug, info};

use super::{
    draft::Step,
    leadership::{Leadership, moved},
    loaded::{DesiredReader, Loaded, refusal},
    repeat::{Answers, Call, Found},
};
use crate::heavy::heavy;

/// Attempts at one change while others (the reconcile loop) write the same keys.
const ATTEMPTS_MAX: u32 = 8;
/// First wait after a conflict; doubled each time.
const CONFLICT_WAIT: Duration = Duration::from_millis(10);
/// Longest time spent on one change when the store does not answer.
const GIVE_UP_AFTER: Duration = Duration::from_secs(15);

/// A change as decided.
#[derive(Debug, Clone)]
pub(crate) struct Edit<R> {
    /// What to write, in order; none: nothing changes.
    pub(crate) steps: Vec<Step>,
    /// Whether the steps change the desired state.
    pub(crate) is_desired: bool,
    /// What to answer.
    pub(crate) answer: R,
}

/// How a change is decided: from the desired state, and whether an earlier attempt of the same call
/// may already have done a part of it, so that what is gone is no fault.
pub(crate) trait Decide<R>:
    Fn(&Loaded, bool) -> Result<Edit<R>, Refusal> + Send + Sync + 'static
{
}

impl<R, F> Decide<R> for F where
    F: Fn(&Loaded, bool) -> Result<Edit<R>, Refusal> + Send + Sync + 'static
{
}

/// An answer that can be kept.
pub(crate) trait Answer: Message + Clone + Default + Send + Sync + 'static {}

impl<R: Message + Clone + Default + Send + Sync + 'static> Answer for R {}

/// Writes changes.
#[derive(Debug, Clone)]
pub(crate) struct Writer(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    store: Arc<dyn MetaStore>,
    leadership: Leadership,
    desired: Arc<DesiredReader>,
    answers: Answers,
    turn: Arc<Mutex<()>>,
    changes: watch::Sender<u64>,
    tasks: TaskTracker,
}

impl Writer {
    pub(crate) fn new(
        store: Arc<dyn MetaStore>,
        leadership: Leadership,
        desired: Arc<DesiredReader>,
        answers: Answers,
        tasks: TaskTracker,
    ) -> Self {
        Self(Arc::new(Inner {
            store,
            leadership,
            desired,
            answers,
            turn: Arc::default(),
            changes: watch::Sender::new(0),
            tasks,
        }))
    }

    /// Rises with every change of the desired state.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    /// The answer that was given to this call before.
    pub(crate) async fn answered<R: Answer>(&self, call: &Call) -> Result<Option<R>, Refusal> {
        Ok(match self.0.answers.find(call).await? {
            Found::Answer(answer) => Some(answer),
            Found::Nothing | Found::Done | Found::Begun { .. } => None,
        })
    }

    /// Makes a change and gives its answer. `decide` may be called several times.
    pub(crate) async fn write<R: Answer>(
        &self,
        call: Call,
        decide: impl Decide<R>,
    ) -> Result<R, Refusal> {
        // A caller that is gone before its turn leaves nothing behind.
        let turn = Arc::clone(&self.0.turn).lock_owned().await;
        let inner = Arc::clone(&self.0);
        let method = call.method;
        let task = self.0.tasks.spawn(async move {
            let _turn = turn;
            Attempt::new(&inner, call).run(decide).await
        });
        task.await
            .unwrap_or_else(|error| Err(Refusal::Internal(format!("{method} failed: {error}"))))
    }
}

/// One change on its way.
struct Attempt<'a, R> {
    inner: &'a Inner,
    call: Call,
    /// The answer decided on before anything was written.
    answer: Option<R>,
    /// A part of the change may be written.
    begun: bool,
}

/// What became of the steps.
enum Progress {
    Done,
    /// Something was not as it was read. Whether a step was written before.
    Conflict {
        written: bool,
    },
    /// The store did not answer: the last step may be written or not.
    Unknown(Error),
}

impl<'a, R: Answer> Attempt<'a, R> {
    fn new(inner: &'a Inner, call: Call) -> Self {
        Self {
            inner,
            call,
            answer: None,
            begun: false,
        }
    }

    async fn run(mut self, decide: impl Decide<R>) -> Result<R, Refusal> {
        let give_up_at = Instant::now() + GIVE_UP_AFTER;
        let mut wait = CONFLICT_WAIT;
        let mut first_term = None;
        let mut doubt: Option<(Option<Revision>, Error)> = None;
        for attempt in 0..ATTEMPTS_MAX {
            let term = self.inner.leadership.term()?;
            if *first_term.get_or_insert(term.number) != term.number {
                // Another process led meanwhile, and what it wrote is not ours to guess.
                return Err(moved());
            }
            let mut is_done = false;
            let known = match self.inner.answers.find(&self.call).await? {
                Found::Nothing => None,
                Found::Done => {
                    self.begun = true;
                    is_done = true;
                    None
                }
                Found::Answer(answer) => return Ok(answer),
                Found::Begun { answer, revision } => {
                    self.begun = true;
                    self.answer = self.answer.or(answer);
                    Some(revision)
                }
            };
            let loaded = if attempt == 0 {
                self.inner.desired.load().await?
            } else {
                self.inner.desired.reload().await?
            };
            if let Some((version, _)) = &doubt
                && *version != loaded.version
            {
                // Nobody else writes while this process leads: it was our step.
                self.begun = true;
            }
            let edit = heavy(|| decide(&loaded, self.begun))?;
            let answer = self.answer.get_or_insert(edit.answer).clone();
            if is_done {
                // Others may have changed it since: only the answer is worked out anew.
                return Ok(answer);
            }
            let progress = self
                .commit(&term, &loaded, &edit.steps, edit.is_desired, &answer, known)
                .await?;
            match progress {
                Progress::Done => return Ok(answer),
                Progress::Conflict { written } => {
                    self.begun |= written;
                    self.still_leads(&term).await?;
                    debug!(method = self.call.method, attempt, "change met another one");
                }
                Progress::Unknown(error) => {
                    if Instant::now() > give_up_at {
                        return Err(refusal(error));
                    }
                    doubt = Some((loaded.version, error));
                }
            }
            sleep(wait).await;
            wait *= 2;
        }
        Err(match doubt {
            Some((_, error)) => refusal(error),
            None => Refusal::Contended("the desired state".to_owned()),
        })
    }

    async fn commit(
        &self,
        term: &Term,
        loaded: &Loaded,
        steps: &[Step],
        is_desired: bool,
        answer: &R,
        known: Option<Revision>,
    ) -> Result<Progress, Refusal> {
        let nothing = [Step::default()];
        let (steps, is_desired) = match steps {
            [] => (nothing.as_slice(), false),
            steps => (steps, is_desired),
        };
        let mut version = loaded.version;
        let mut known = known;
        for (index, step) in steps.iter().enumerate() {
            let is_last = index + 1 == steps.len();
            let is_first = index == 0;
            let mut compares = step.compares.clone();
            let mut ops = step.ops.clone();
            compares.push(match version {
                Some(revision) => Compare::ModifiedAt(keys::DESIRED_STATE.to_owned(), revision),
                None => Compare::Absent(keys::DESIRED_STATE.to_owned()),
            });
            if is_desired {
                ops.push(Op::Put {
                    key: keys::DESIRED_STATE.to_owned(),
                    value: Vec::new(),
                    lease: None,
                });
            }
            let mut noted = false;
            if is_first || is_last {
                let answers = &self.inner.answers;
                let note = answers.note(&self.call, answer, !is_last, known).await?;
                if let Some(note) = note {
                    compares.push(note.compare);
                    ops.push(note.op);
                    noted = true;
                }
            }
            if ops.is_empty() {
                return Ok(Progress::Done);
            }
            match self.inner.store.commit(term.txn(ops, compares)).await {
                Ok(Outcome::Committed(revision)) => {
                    if is_desired {
                        version = Some(revision);
                        self.inner.changes.send_modify(|count| *count += 1);
                    }
                    if noted {
                        known = Some(revision);
                    }
                }
                Ok(Outcome::Conflict) => {
                    return Ok(Progress::Conflict { written: !is_first });
                }
                Err(Error::LeaseGone(_)) => {
                    self.inner.answers.renew_lease().await;
                    return Ok(Progress::Conflict { written: !is_first });
                }
                Err(error) if error.is_retryable() => return Ok(Progress::Unknown(error)),
                Err(error) => return Err(refusal(error)),
            }
        }
        if is_desired {
            info!(
                method = self.call.method,
                steps = steps.len(),
                "desired state changed"
            );
        }
        Ok(Progress::Done)
    }

    /// After a conflict: whether it was the guard that did not hold.
    async fn still_leads(&self, term: &Term) -> Result<(), Refusal> {
        let (Compare::CreatedAt(key, revision) | Compare::ModifiedAt(key, revision)) = &term.guard
        else {
            return Ok(());
        };
        let entry = self.inner.store.get(key).await.map_err(refusal)?;
        let holds = entry.is_some_and(|entry| match &term.guard {
            Compare::ModifiedAt(..) => entry.mod_revision == *revision,
            Compare::CreatedAt(..) | Compare::Absent(_) => entry.create_revision == *revision,
        });
        if holds { Ok(()) } else { Err(moved()) }
    }
}
