//! What all contestants have in common: they are given a job, run as processes, and can be asked what
//! they cost and whether they still live.

use std::fmt::Debug;

use anyhow::{Result, bail};
use async_trait::async_trait;
use kreplicator_tests::{
    etcd::Etcd,
    folder::RunDir,
    process::{Managed, ending},
};

use super::{options::PeerName, procfs::Group};

/// How a contestant is to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// One process that does everything.
    Alone,
    /// This many workers, and whatever they need beside them.
    Fleet(usize),
}

/// What is to be copied.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    /// Name of the measurement, for folders and groups; letters, digits and `-`.
    pub(crate) name: String,
    /// Where clients of the source start.
    pub(crate) source: Vec<String>,
    /// Where clients of the target start.
    pub(crate) target: Vec<String>,
    /// Topics of the source; names without dots.
    pub(crate) topics: Vec<String>,
    /// Codec that the copy shall be written in by those who compress anew.
    pub(crate) codec: &'static str,
    /// How to run.
    pub(crate) layout: Layout,
}

/// A replicator that can be measured.
// Not `Send`: measurements follow one another in one task, so that none disturbs another.
#[async_trait(?Send)]
pub(crate) trait Peer: Debug + Send + Sync {
    /// Which one it is.
    fn name(&self) -> PeerName;

    /// The topic that it copies a source topic to: its own, so that contestants never meet.
    fn target_topic(&self, source_topic: &str) -> String;

    /// Starts copying, from the beginning of each topic. Does not wait until anything flows.
    async fn start(&self, job: &Job) -> Result<Running>;
}

/// A contestant at work; its processes end when it is dropped.
#[derive(Debug)]
pub(crate) struct Running {
    /// The processes that copy; they are measured.
    pub(crate) workers: Vec<Managed>,
    /// Processes beside them; they are not.
    pub(crate) others: Vec<Managed>,
    /// The metadata store of a fleet.
    pub(crate) _store: Option<Etcd>,
    // Last: processes end before their logs are deleted.
    pub(crate) folder: RunDir,
}

impl Running {
    /// The processes that copy, to be sampled.
    pub(crate) fn group(&self) -> Group {
        Group::of(self.workers.iter().map(Managed::id))
    }

    /// Fails when a process ended that nobody asked to.
    ///
    /// # Errors
    /// Shows the end of its log.
    pub(crate) fn check(&mut self) -> Result<()> {
        for process in self.workers.iter_mut().chain(&mut self.others) {
            if let Some(status) = process.ended()? {
                bail!(
                    "{} ended with {}\n{}",
                    process.log().display(),
                    ending(status),
                    process.log_tail()
                );
            }
        }
        Ok(())
    }

    /// The ends of all logs, for an error.
    pub(crate) fn logs(&self) -> String {
        let processes = self.workers.iter().chain(&self.others);
        let logs = processes.map(|process| {
            let log = process.log();
            format!("--- end of {}\n{}", log.display(), process.log_tail())
        });
        logs.collect::<Vec<_>>().join("\n")
    }
}
