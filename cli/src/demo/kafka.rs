//! An embedded Kafka cluster: librdkafka's mock cluster, which speaks the real protocol on a
//! loopback port and keeps the last 5 MiB or 100,000 batches of each partition in memory.

use std::{sync::mpsc, thread, time::Duration};

use anyhow::{Context as _, bail};
use kreplicator_proto::v1;
use rdkafka::mocking::MockCluster;

/// Longest wait for the cluster's thread.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// A running cluster; ends when dropped.
#[derive(Debug)]
pub(super) struct EmbeddedKafka {
    bootstrap: String,
    requests: mpsc::Sender<CreateTopic>,
}

struct CreateTopic {
    name: String,
    partitions: u32,
    done: mpsc::Sender<Result<(), String>>,
}

impl EmbeddedKafka {
    /// Starts one with a single broker. It lives on a thread of its own, since its handle may not
    /// leave the thread that made it.
    pub(super) fn start(name: &str) -> anyhow::Result<Self> {
        let (started, start) = mpsc::channel();
        let (requests, received) = mpsc::channel::<CreateTopic>();
        thread::Builder::new()
            .name(format!("kafka-{name}"))
            .spawn(move || {
                let cluster = match MockCluster::new(1) {
                    Ok(cluster) => cluster,
                    Err(error) => {
                        // Nobody listens only if the caller is gone, and then nobody needs to know.
                        drop(started.send(Err(error.to_string())));
                        return;
                    }
                };
                drop(started.send(Ok(cluster.bootstrap_servers())));
                // Ends when the sending half is dropped, and the cluster with it.
                for CreateTopic {
                    name,
                    partitions,
                    done,
                } in received
                {
                    let partitions = i32::try_from(partitions).unwrap_or(i32::MAX);
                    let made = cluster.create_topic(&name, partitions, 1);
                    drop(done.send(made.map_err(|error| error.to_string())));
                }
            })?;
        match start.recv_timeout(ANSWER_TIMEOUT) {
            Ok(Ok(bootstrap)) => Ok(Self {
                bootstrap,
                requests,
            }),
            Ok(Err(error)) => bail!("embedded Kafka cluster {name} could not be started: {error}"),
            Err(error) => bail!("embedded Kafka cluster {name} did not start: {error}"),
        }
    }

    /// `host:port` of its brokers.
    pub(super) fn bootstrap(&self) -> &str {
        &self.bootstrap
    }

    /// Makes a topic. (The mock cluster has no call for that in its protocol.)
    pub(super) fn create_topic(&self, name: &str, partitions: u32) -> anyhow::Result<()> {
        let (done, made) = mpsc::channel();
        let request = CreateTopic {
            name: name.to_owned(),
            partitions,
            done,
        };
        self.requests
            .send(request)
            .context("the embedded Kafka cluster has ended")?;
        let made = made
            .recv_timeout(ANSWER_TIMEOUT)
            .context("the embedded Kafka cluster did not answer")?;
        made.map_err(|error| anyhow::anyhow!("topic {name} could not be made: {error}"))
    }

    /// How it is declared.
    pub(super) fn declare(&self, id: &str) -> v1::Cluster {
        // The mock broker answers a fetch without data only when its wait is over.
        let quick = ("fetch.wait.max.ms".to_owned(), "20".to_owned());
        let auto_create = kreplicator_kafka::properties::ALLOW_AUTO_CREATE.to_owned();
        v1::Cluster {
            id: id.to_owned(),
            bootstrap_servers: vec![self.bootstrap.clone()],
            client_options: [quick, (auto_create, "true".to_owned())]
                .into_iter()
                .collect(),
            ..v1::Cluster::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use rdkafka::{
        ClientConfig,
        consumer::{BaseConsumer, Consumer as _},
    };

    use super::*;

    #[test]
    fn topics_are_made_with_their_partitions() {
        let kafka = EmbeddedKafka::start("test").expect("started");
        kafka.create_topic("orders", 3).expect("made");
        assert!(kafka.create_topic("orders", 3).is_err(), "made twice");
        let consumer: BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", kafka.bootstrap())
            .create()
            .expect("a consumer");
        let metadata = consumer
            .fetch_metadata(Some("orders"), Duration::from_secs(10))
            .expect("metadata");
        assert_eq!(metadata.topics()[0].partitions().len(), 3);
    }
}
