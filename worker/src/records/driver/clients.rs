//! The clients of a link: made when its first task starts, replaced when the reader is dead.

use std::{sync::Arc, time::Duration};

use kreplicator_kafka::{
    error::Error as ClusterError,
    properties::{ClientProperties, client_properties},
};
use kreplicator_model::spec::Cluster;
use tokio::time::{Instant, timeout_at};
use tracing::{info, warn};

use super::{Done, Driver};
use crate::{
    checkpoint::kafka::KafkaCheckpoints,
    fault::{Fault, Kind},
    records::reader::{Questions, Reader, Settings},
};

/// Doublings of the wait between two readers.
const REBUILD_DOUBLINGS_MAX: u32 = 5;

/// The clients of a link.
pub(super) struct Clients {
    pub(super) reader: Reader,
    pub(super) checkpoints: Arc<KafkaCheckpoints>,
}

impl Clients {
    /// Drops them and waits until they are gone, at most until `end`.
    pub(super) async fn close(self, end: Instant) {
        let waits = [self.reader.ended(), self.checkpoints.ended()];
        drop(self);
        for mut ended in waits {
            // An error means that the thread is gone, which is what is waited for.
            if timeout_at(end, ended.wait_for(|ended| *ended))
                .await
                .is_err()
            {
                return;
            }
        }
    }
}

impl Driver {
    /// Makes the clients, unless they are there or being made.
    pub(super) fn make_clients(&mut self) {
        if self.clients.is_some() || self.making_clients {
            return;
        }
        self.making_clients = true;
        let context = Arc::clone(&self.context);
        let secrets = Arc::clone(&self.secrets);
        let fence = Arc::clone(&self.shared.fence);
        let worker = self.config.worker.clone();
        let reader = self.reader_maker();
        self.jobs.spawn_blocking(move || {
            let made = reader().and_then(|reader| {
                let cluster = context.checkpoint_cluster();
                let fault = |error: &ClusterError| Fault::from((Kind::Checkpoint, error));
                let properties =
                    client_properties(cluster, secrets.as_ref()).map_err(|error| fault(&error))?;
                let link = &context.link;
                let checkpoints =
                    KafkaCheckpoints::create(link, cluster, &properties, worker, fence)
                        .map_err(|error| fault(&error))?;
                Ok(Clients {
                    reader,
                    checkpoints: Arc::new(checkpoints),
                })
            });
            Done::Clients(made)
        });
    }

    fn reader_maker(&self) -> impl FnOnce() -> Result<Reader, Fault> + Send + 'static {
        let context = Arc::clone(&self.context);
        let secrets = Arc::clone(&self.secrets);
        let make = self.reader_from_properties();
        let deadline = self.config.call_timeout;
        move || {
            let source = &context.source;
            let properties = client_properties(source, secrets.as_ref())
                .map_err(|error| Fault::from((Kind::Source, &error)))?;
            let reader = make(&properties)?;
            match &source.expected_cluster_id {
                Some(expected) => {
                    check_cluster_id(source, expected, &reader.questions(), deadline)?;
                    Ok(reader)
                }
                None => Ok(reader),
            }
        }
    }

    pub(super) fn reader_from_properties(
        &self,
    ) -> impl FnOnce(&ClientProperties) -> Result<Reader, Fault> + Send + 'static {
        let context = Arc::clone(&self.context);
        let budget = Arc::clone(&self.shared.budget);
        let settings = Settings {
            statistics_interval: self.config.statistics_interval,
        };
        move |properties| {
            let link = &context.link.id;
            Reader::create(
                link,
                &context.source,
                properties,
                budget.reserve(),
                settings,
            )
        }
    }

    pub(super) fn clients_made(&mut self, made: Result<Clients, Fault>) {
        self.making_clients = false;
        match made {
            Ok(clients) => {
                self.reader_made_at = Instant::now();
                self.clients = Some(clients);
            }
            Err(fault) => {
                let waiting = std::mem::take(&mut self.to_start);
                for lane in waiting {
                    self.fault(lane, fault.clone());
                }
            }
        }
    }

    /// Replaces the reader, unless that was done a moment ago (C126). Tells whether it is under way.
    pub(super) fn rebuild_reader(&mut self, reason: &str) -> bool {
        let doublings = self.rebuilds.min(REBUILD_DOUBLINGS_MAX);
        let wait = self.config.reader_rebuild_interval_min * 2_u32.pow(doublings);
        if self.rebuilding || self.clients.is_none() || self.reader_made_at.elapsed() < wait {
            return self.rebuilding;
        }
        warn!(link = %self.context.link.id, reason, "reader is replaced");
        self.rebuilding = true;
        self.rebuilds += 1;
        self.shared.metrics.reader_rebuilds.increment(1);
        let maker = self.reader_maker();
        self.jobs.spawn_blocking(move || Done::Reader(maker()));
        true
    }

    pub(super) fn reader_rebuilt(&mut self, made: Result<Reader, Fault>) {
        self.rebuilding = false;
        match made {
            Ok(reader) => self.take_reader(reader),
            Err(fault) => {
                self.reader_made_at = Instant::now();
                info!(link = %self.context.link.id, cause = %fault, "the reader cannot be replaced yet");
            }
        }
    }

    /// Puts a reader in the place of the one there is; every partition goes on where it is.
    pub(super) fn take_reader(&mut self, reader: Reader) {
        let Some(clients) = &mut self.clients else {
            return;
        };
        self.reader_made_at = Instant::now();
        clients.reader = reader;
        let open: Vec<_> = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.is_reading())
            .map(|(lane, _)| *lane)
            .collect();
        for lane in open {
            self.reopen(lane);
        }
    }

    /// Opens a task's partition where its reader was, on the reader of now.
    pub(super) fn reopen(&mut self, lane: super::LaneNumber) {
        self.openings += 1;
        let (Some(clients), Some(entry)) = (&self.clients, self.entries.get_mut(&lane)) else {
            return;
        };
        entry.look.reopened();
        if let Some(position) = entry.lane.position() {
            clients.reader.open(&entry.lane, position, self.openings);
        }
    }
}

/// A cluster that was replaced under the same address is not read (C073).
fn check_cluster_id(
    source: &Cluster,
    expected: &str,
    questions: &Questions,
    deadline: Duration,
) -> Result<(), Fault> {
    match questions.cluster_id(deadline) {
        Some(found) if found == expected => Ok(()),
        Some(found) => {
            let error = ClusterError::WrongCluster {
                cluster: source.id.clone(),
                expected: expected.to_owned(),
                found,
            };
            Err(Fault::from((Kind::Source, &error)))
        }
        None => Err(questions.fault(rdkafka::types::RDKafkaErrorCode::OperationTimedOut)),
    }
}
