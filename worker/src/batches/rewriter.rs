//! Opens batches beside the threads that serve connections, and writes them anew.
//!
//! Most batches pass unopened. One that has to be opened takes a thread for as long as its codec needs, up to
//! seconds, and memory for what it unfolds to. So a lane asks for it by a [`Job`], and reads nothing
//! meanwhile: order is kept without a lock being held. A lane has one job at a time, and jobs are begun in
//! the order they come, so lanes take turns however much each has. Memory is taken from the byte budget when a
//! job begins, and not while it waits: no more of it is taken than there are threads at work.

use std::{panic::resume_unwind, sync::Arc};

use tokio::{
    sync::mpsc,
    task::{JoinError, JoinSet},
};

use super::{
    intake::{Closed, Intake, Taken, Unopened},
    lane::Lane,
};
use crate::budget::Loan;

/// Parts of a batch that are in memory at a time, each as large as what it unfolds to: its records as they lie
/// opened, the same gathered again, and as much once more while either grows.
pub(super) const COPIES: u64 = 3;

/// A lane whose next batch is to be opened.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) lane: Arc<Lane>,
    /// Number of the flow.
    pub(super) run: u64,
    /// Number among the jobs of the flow.
    pub(super) number: u64,
}

/// A job that was begun.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) job: Job,
    /// As it is at the batch.
    pub(super) intake: Intake,
    pub(super) closed: Closed,
    /// What the batch may unfold to.
    pub(super) plain_bytes_max: u64,
    /// Memory for it; given back with the work, whatever becomes of it.
    pub(super) loan: Loan,
}

/// What became of a batch.
#[derive(Debug)]
pub(super) struct Opened {
    /// After the batch.
    pub(super) intake: Intake,
    pub(super) taken: Taken,
    pub(super) outcome: Result<(), Unopened>,
    pub(super) plain_bytes_max: u64,
    pub(super) loan: Loan,
}

impl Job {
    /// Does it, if it is still wanted and there is memory for it.
    pub(super) fn run(self) {
        if let Some(work) = self.begin() {
            work.run();
        }
    }

    /// Takes the memory for it. None: it is not wanted any more, or the lane asks for it again.
    pub(super) fn begin(self) -> Option<Work> {
        let lane = Arc::clone(&self.lane);
        lane.begin_opening(self)
    }
}

impl Work {
    /// Does it, and tells the lane.
    pub(super) fn run(self) {
        let Self {
            job,
            mut intake,
            closed,
            plain_bytes_max,
            loan,
        } = self;
        let mut taken = Taken::default();
        let limit = usize::try_from(plain_bytes_max).unwrap_or(usize::MAX);
        let outcome = intake.open(&closed, limit, &mut taken);
        drop(closed);
        let opened = Opened {
            intake,
            taken,
            outcome,
            plain_bytes_max,
            loan,
        };
        job.lane.opened(job.run, job.number, opened);
    }
}

/// The way to where jobs are done. Clones are the same.
#[derive(Debug, Clone)]
pub(super) struct Rewriter(mpsc::UnboundedSender<Job>);

/// Jobs that wait. A lane has one at most that it still wants.
pub(super) type Jobs = mpsc::UnboundedReceiver<Job>;

impl Rewriter {
    /// The way, and where it leads.
    pub(super) fn new() -> (Self, Jobs) {
        let (sender, jobs) = mpsc::unbounded_channel();
        (Self(sender), jobs)
    }

    /// Hands a job over. It is dropped where the engine is closed.
    pub(super) fn submit(&self, job: Job) {
        drop(self.0.send(job));
    }
}

/// Does jobs, `at_a_time` (at least one) at a time, until there is no way to it any more.
///
/// # Panics
/// As a job does.
pub(super) async fn work(mut jobs: Jobs, at_a_time: usize) {
    let mut running = JoinSet::new();
    loop {
        tokio::select! {
            Some(done) = running.join_next(), if !running.is_empty() => pass_on_panic(done),
            job = jobs.recv(), if running.len() < at_a_time.max(1) => match job {
                Some(job) => drop(running.spawn_blocking(|| job.run())),
                None => break,
            },
        }
    }
    while let Some(done) = running.join_next().await {
        pass_on_panic(done);
    }
}

fn pass_on_panic(done: Result<(), JoinError>) {
    if let Err(error) = done
        && error.is_panic()
    {
        resume_unwind(error.into_panic());
    }
}
