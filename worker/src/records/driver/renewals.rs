//! Clients made anew when certificates or passwords were renewed (C127).
//!
//! New clients are made beside the old ones, which go on until the cluster has let in a client made from
//! what is there now. Then partitions are opened on the new reader where they are, and saves go through
//! the new checkpoint client after those under way.

use std::sync::Arc;

use kreplicator_kafka::{
    admin::Admin, blocking::blocking, error::Error as ClusterError, properties::ClientProperties,
    renewal::Renewal, secrets::SecretSource,
};
use kreplicator_model::{ids::ClusterId, spec::Cluster};
use tokio::time::Instant;
use tracing::info;

use super::{Done, Driver};
use crate::{
    checkpoint::kafka::KafkaCheckpoints,
    engine::LinkContext,
    fault::{Fault, Kind},
    flow_metrics,
    records::reader::Reader,
};

/// When to look, and what looks remember.
pub(super) struct Schedule {
    next_at: Instant,
    /// None while a look is under way.
    looks: Option<Looks>,
    trouble: Option<String>,
}

/// One for each of the link's clients; the sink's has its own.
pub(super) struct Looks {
    source: Renewal,
    checkpoints: Renewal,
}

/// What a look found.
pub(super) struct Renewed {
    looks: Looks,
    reader: Result<Option<Reader>, Fault>,
    checkpoints: Result<Option<KafkaCheckpoints>, Fault>,
    sink: Result<(), Fault>,
}

impl Schedule {
    pub(super) fn new(now: Instant, looks: Looks) -> Self {
        Self {
            next_at: now,
            looks: Some(looks),
            trouble: None,
        }
    }

    /// Why clients are not made anew though they should be.
    pub(super) fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }
}

impl Looks {
    pub(super) fn new(context: &LinkContext, secrets: &Arc<dyn SecretSource>) -> Self {
        let of = |cluster: &Cluster| Renewal::new(cluster.clone(), Arc::clone(secrets));
        Self {
            source: of(&context.source),
            checkpoints: of(context.checkpoint_cluster()),
        }
    }
}

impl Driver {
    /// Looks, when it is time, for all clients that the link uses.
    pub(super) fn begin_renewal(&mut self) {
        let now = Instant::now();
        if now < self.renewals.next_at {
            return;
        }
        let Some(clients) = &self.clients else { return };
        let Some(mut looks) = self.renewals.looks.take() else {
            return;
        };
        // Not all links at once.
        let jitter = rand::random_range(0.8..=1.2);
        self.renewals.next_at = now + self.config.renewal_interval.mul_f64(jitter);
        let context = Arc::clone(&self.context);
        let sink = Arc::clone(&self.sink);
        let deadline = self.config.call_timeout;
        let read_with = clients.reader.made_from().clone();
        let checkpoints = Arc::clone(&clients.checkpoints);
        let fence = Arc::clone(&self.shared.fence);
        let make_reader = self.reader_from_properties();
        self.jobs.spawn(async move {
            let (source, group) = (&context.source, context.checkpoint_cluster().clone());
            let Looks {
                source: reading,
                checkpoints: saving,
            } = &mut looks;
            let look = reading.look(&read_with, deadline);
            let reader = renewed(&source.id, Kind::Source, look, make_reader);
            let look = saving.look(checkpoints.made_from(), deadline);
            let before = Arc::clone(&checkpoints);
            let holder = group.id.clone();
            let saver = renewed(&holder, Kind::Checkpoint, look, move |properties| {
                before
                    .renewed(&group, properties, fence)
                    .map_err(|error| Fault::from((Kind::Checkpoint, &error)))
            });
            let (reader, checkpoints, sink) = tokio::join!(reader, saver, sink.renew(deadline));
            Done::Renewed(Box::new(Renewed {
                looks,
                reader,
                checkpoints,
                sink,
            }))
        });
    }

    /// Takes over what a look has made.
    pub(super) fn renewed(&mut self, renewed: Renewed) {
        let Renewed {
            looks,
            reader,
            checkpoints,
            sink,
        } = renewed;
        self.renewals.looks = Some(looks);
        let faults = [
            reader.as_ref().err(),
            checkpoints.as_ref().err(),
            sink.as_ref().err(),
        ];
        let fault = faults.into_iter().flatten().next();
        self.renewals.trouble = fault.map(|fault| fault.cause.clone());
        if let (Some(clients), Ok(Some(checkpoints))) = (&mut self.clients, checkpoints) {
            clients.checkpoints = Arc::new(checkpoints);
        }
        if let Ok(Some(reader)) = reader
            && self.clients.is_some()
        {
            info!(link = %self.context.link.id, "reader is replaced by one with renewed certificates or passwords");
            self.take_reader(reader);
        }
    }
}

/// A client made from what was renewed; `make` may block for some milliseconds.
async fn renewed<T: Send + 'static>(
    cluster: &ClusterId,
    kind: Kind,
    look: impl Future<Output = Result<Option<Admin>, ClusterError>>,
    make: impl FnOnce(&ClientProperties) -> Result<T, Fault> + Send + 'static,
) -> Result<Option<T>, Fault> {
    let made = match look.await {
        Ok(None) => return Ok(None),
        Ok(Some(admin)) => blocking(move || make(admin.properties())).await,
        Err(error) => Err(Fault::from((kind, &error))),
    };
    match &made {
        Ok(_) => flow_metrics::client_renewed(cluster),
        Err(_) => flow_metrics::renewal_failed(cluster),
    }
    made.map(Some)
}
