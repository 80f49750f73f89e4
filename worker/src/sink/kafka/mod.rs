//! Records into a Kafka cluster, through one idempotent producer that all tasks of the cluster share.
//!
//! The library's producer cannot take back one task's records, and after some errors it refuses
//! everything for good. So producers are disposable: a [`pool::Pool`] makes *generations* of them.
//! When one breaks (C027) or a task that is stuck in it must be thrown out (C046), the next generation
//! is made; tasks move over when nothing of theirs is outstanding, and the old one is purged and
//! dropped on its own thread. What was in a broken one counts as not delivered: tasks go back to what
//! was acknowledged (C028). Renewed certificates and passwords make a next generation, too (C127).

mod generation;
mod outlet;
mod pool;
mod refusal;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use kreplicator_kafka::{
    blocking::blocking, error::Error as ClusterError, properties::client_properties,
    renewal::Renewal, secrets::SecretSource,
};
use kreplicator_model::spec::Cluster;
use tokio::time::Instant;

use self::{outlet::KafkaOutlet, pool::Pool};
use super::{Outlet, Receipts, Sink};
use crate::{
    engine::TaskSpec,
    fault::{Fault, Kind},
    flow_metrics,
};

/// Settings of the producers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// How long records wait for others to share a batch with.
    pub linger: Duration,
    /// Largest batch sent, before compression; what a task may have outstanding is kept below its
    /// topic's own limit besides.
    pub batch_bytes: usize,
    /// Largest record that is tried at all.
    pub record_bytes_max: usize,
    /// Least time between two producers of one cluster, doubled by each that breaks soon (C126).
    pub rebuild_interval_min: Duration,
    /// Most time between two producers of one cluster.
    pub rebuild_interval_max: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            linger: Duration::from_millis(5),
            batch_bytes: 1_000_000,
            record_bytes_max: 128 << 20,
            rebuild_interval_min: Duration::from_secs(1),
            rebuild_interval_max: Duration::from_secs(60),
        }
    }
}

/// How long a producer may take to deliver what it has when certificates or passwords were renewed. One
/// that can still reach its brokers takes milliseconds.
const RENEWAL_GRACE: Duration = Duration::from_secs(30);

/// A Kafka cluster as a sink.
#[derive(Debug)]
pub struct KafkaSink {
    cluster: Cluster,
    secrets: Arc<dyn SecretSource>,
    pool: Arc<Pool>,
    /// Held by whoever looks.
    renewal: tokio::sync::Mutex<Renewal>,
}

impl KafkaSink {
    /// A sink for `cluster`; its first producer is made by [`Sink::prepare`].
    #[must_use]
    pub fn new(cluster: Cluster, secrets: Arc<dyn SecretSource>, settings: Settings) -> Self {
        Self {
            pool: Arc::new(Pool::new(cluster.id.clone(), settings)),
            renewal: Renewal::new(cluster.clone(), Arc::clone(&secrets)).into(),
            cluster,
            secrets,
        }
    }

    /// The cluster written to.
    #[must_use]
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Looks whether certificates or passwords were renewed, and has the next producer made from them once
    /// the cluster has let a client in that was (C127). Of several who look at once one does.
    ///
    /// # Errors
    /// What is there cannot be used; the producer goes on with what it has.
    pub(crate) async fn renew(&self, deadline: Duration) -> Result<(), Fault> {
        let Ok(mut renewal) = self.renewal.try_lock() else {
            return Ok(());
        };
        // One that is yet to be made reads what is there then.
        let Some(running) = self.pool.made_from() else {
            return Ok(());
        };
        let looked = renewal.look(&running, deadline).await;
        let looked = looked.map_err(|error| Fault::from((Kind::Target, &error)));
        let Some(admin) = looked.inspect_err(|_| flow_metrics::renewal_failed(&self.cluster.id))?
        else {
            return Ok(());
        };
        let pool = Arc::clone(&self.pool);
        let purge_at = Instant::now() + RENEWAL_GRACE;
        let made = blocking(move || pool.renew(admin.properties(), purge_at)).await;
        match &made {
            Ok(_) => flow_metrics::client_renewed(&self.cluster.id),
            Err(_) => flow_metrics::renewal_failed(&self.cluster.id),
        }
        made.map(|_| ())
    }

    /// Lets go of the producers; waits at most `deadline` for their threads to end.
    pub async fn close(&self, deadline: Duration) {
        self.pool.retire_all();
        self.pool.ended(deadline).await;
    }
}

#[async_trait]
impl Sink for KafkaSink {
    fn open(&self, spec: &TaskSpec, receipts: Arc<dyn Receipts>) -> Arc<dyn Outlet> {
        Arc::new(KafkaOutlet::new(spec, receipts, Arc::clone(&self.pool)))
    }

    async fn prepare(&self, tasks: &[&TaskSpec], deadline: Duration) -> Result<(), Fault> {
        let mut partitions: BTreeMap<String, i32> = BTreeMap::new();
        for task in tasks {
            let count = partitions.entry(task.target_topic.to_string()).or_default();
            *count = (*count).max(task.id.partition.0 + 1);
        }
        if self.pool.knows(&partitions) {
            return Ok(());
        }
        let cluster = self.cluster.clone();
        let secrets = Arc::clone(&self.secrets);
        let pool = Arc::clone(&self.pool);
        // Reading secrets, making a producer and asking for the cluster's id block.
        blocking(move || {
            let properties = client_properties(&cluster, secrets.as_ref())
                .map_err(|error| Fault::from((Kind::Target, &error)))?;
            pool.prepare(&properties)?;
            if let Some(expected) = &cluster.expected_cluster_id {
                check_cluster_id(&cluster, expected, &pool, deadline)?;
            }
            pool.learn(&partitions, deadline);
            Ok(())
        })
        .await
    }

    fn is_ready(&self) -> bool {
        self.pool.current().is_some()
    }

    fn trouble(&self) -> Option<String> {
        self.pool.trouble()
    }
}

impl Drop for KafkaSink {
    fn drop(&mut self) {
        self.pool.retire_all();
    }
}

/// A cluster that was replaced under the same address gets nothing (C073).
fn check_cluster_id(
    cluster: &Cluster,
    expected: &str,
    pool: &Pool,
    deadline: Duration,
) -> Result<(), Fault> {
    let fault = |error: &ClusterError| Err(Fault::from((Kind::Target, error)));
    match pool.cluster_id(deadline) {
        Some(found) if found == expected => Ok(()),
        Some(found) => {
            pool.retire_all();
            fault(&ClusterError::WrongCluster {
                cluster: cluster.id.clone(),
                expected: expected.to_owned(),
                found,
            })
        }
        None => {
            pool.retire_all();
            fault(&ClusterError::Unreachable {
                cluster: cluster.id.clone(),
                cause: pool
                    .trouble()
                    .unwrap_or_else(|| "its id could not be asked for in time".to_owned()),
            })
        }
    }
}
