//! The two ends of a link as the engine sees them: clients, and questions put together for all tasks.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use kreplicator_kafka::secrets::SecretSource;
use kreplicator_model::{
    exact::{ProducerEpoch, ProducerState, Sequence, StateAnswer},
    ids::{Offset, TopicName, UnixMillis},
    spec::{Cluster, SecretRef},
};
use kreplicator_wire::{
    cluster::{
        ClusterClient,
        group::Committed,
        offsets::{At, Isolation},
    },
    error::Error,
    settings::{Secret, Secrets, Settings},
    topic::TopicPartition,
};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use super::gather::Gather;
use crate::fault::{Fault, Kind};

/// Secrets of this process as the client wants them.
#[derive(Debug)]
struct Adapter(Arc<dyn SecretSource>);

impl Secrets for Adapter {
    fn read(&self, reference: &SecretRef) -> Result<Secret, String> {
        let secret = self.0.read(reference).map_err(|error| error.to_string())?;
        Ok(Secret::new(secret.expose()))
    }
}

/// A client of a cluster.
pub(super) fn client(
    cluster: &Cluster,
    secrets: &Arc<dyn SecretSource>,
    tracker: &TaskTracker,
) -> ClusterClient {
    let client_id = cluster.client_options.get("client.id");
    let client_id = client_id.map_or("kreplicator", String::as_str);
    ClusterClient::new(
        Settings::of(cluster, client_id),
        Arc::new(Adapter(Arc::clone(secrets))),
        tracker.clone(),
    )
}

/// What a cluster's error means to a task, with the name of the cluster and the setting to look at.
pub(super) fn fault(kind: Kind, client: &ClusterClient, error: &Error) -> Fault {
    let cluster = &client.settings().cluster;
    match error {
        Error::Authentication { cause, .. } => Fault::new(
            kind,
            format!(
                "authentication refused by cluster {cluster}: check sasl.username and its password \
                 ({cause})"
            ),
        ),
        Error::TlsFile { .. } | Error::Secret { .. } => {
            Fault::new(Kind::Settings, format!("cluster {cluster}: {error}"))
        }
        other => Fault::new(kind, format!("cluster {cluster}: {other}")),
    }
}

/// First offset and end of a log.
pub(super) type Range = (Offset, Offset);

/// A cluster's answers about partitions.
#[derive(Debug, Clone)]
pub(super) struct Questions {
    pub(super) client: ClusterClient,
    /// Log start and last stable offset.
    committed_ranges: Gather<TopicPartition, Result<Range, Error>>,
    /// Log start and high watermark.
    ranges: Gather<TopicPartition, Result<Range, Error>>,
    /// Log end of the leader, committed or not.
    log_ends: Gather<TopicPartition, Option<Offset>>,
    /// Every producer's state.
    producers: Gather<TopicPartition, Result<Vec<State>, Error>>,
    /// Whether a topic is compacted.
    compacted: Gather<TopicName, Result<bool, Error>>,
    deadline: Duration,
}

type State = kreplicator_wire::cluster::producers::ProducerState;

impl Questions {
    pub(super) fn new(client: ClusterClient, deadline: Duration, tracker: &TaskTracker) -> Self {
        let by_isolation = |isolation| {
            let client = client.clone();
            Gather::new(tracker, move |keys: Vec<TopicPartition>| {
                let client = client.clone();
                Box::pin(async move {
                    let end = Instant::now() + deadline;
                    let of = |at: At| {
                        let asked = keys.iter().map(|key| (key.clone(), at)).collect();
                        client.list_offsets(asked, isolation, end)
                    };
                    let (starts, mut ends) = futures::join!(of(At::Earliest), of(At::Latest));
                    let ranges = starts.into_iter().filter_map(|(at, start)| {
                        let end = ends.remove(&at)?;
                        Some((at, range(start, end)))
                    });
                    ranges.collect()
                })
            })
        };
        let log_ends = {
            let client = client.clone();
            Gather::new(tracker, move |keys: Vec<TopicPartition>| {
                let client = client.clone();
                Box::pin(async move {
                    let end = Instant::now() + deadline;
                    let epochs = keys.into_iter().filter_map(|at| {
                        let epoch = client.known_leader(&at)?.epoch?;
                        Some((at, epoch))
                    });
                    let told = client.offset_for_leader_epoch(epochs.collect(), end).await;
                    told.into_iter()
                        .map(|(at, told)| (at, told.ok().flatten().map(|told| told.end)))
                        .collect()
                })
            })
        };
        let producers = {
            let client = client.clone();
            Gather::new(tracker, move |keys: Vec<TopicPartition>| {
                let client = client.clone();
                Box::pin(async move {
                    let end = Instant::now() + deadline;
                    client
                        .describe_producers(keys.into_iter().collect(), end)
                        .await
                })
            })
        };
        let compacted = {
            let client = client.clone();
            Gather::new(tracker, move |topics: Vec<TopicName>| {
                let client = client.clone();
                Box::pin(async move {
                    let end = Instant::now() + deadline;
                    let asks = topics.into_iter().map(|topic| {
                        let client = &client;
                        async move {
                            let configs = client.topic_configs(&topic, &["cleanup.policy"], end);
                            let configs = configs.await;
                            let is_compacted = configs.map(|configs| {
                                let policy = configs.get("cleanup.policy");
                                policy.is_some_and(|policy| policy.contains("compact"))
                            });
                            (topic, is_compacted)
                        }
                    });
                    futures::future::join_all(asks).await.into_iter().collect()
                })
            })
        };
        Self {
            committed_ranges: by_isolation(Isolation::Committed),
            ranges: by_isolation(Isolation::Uncommitted),
            log_ends,
            producers,
            compacted,
            client,
            deadline,
        }
    }

    /// Log start and last stable offset of a partition.
    pub(super) async fn committed_range(&self, at: &TopicPartition) -> Result<Range, Error> {
        let answer = self.committed_ranges.ask(at.clone()).await;
        answer.unwrap_or_else(|| Err(self.silence(at)))
    }

    /// Log start and high watermark of a partition.
    pub(super) async fn range(&self, at: &TopicPartition) -> Result<Range, Error> {
        let answer = self.ranges.ask(at.clone()).await;
        answer.unwrap_or_else(|| Err(self.silence(at)))
    }

    /// The leader's log end, committed or not; None where it cannot tell.
    pub(super) async fn log_end(&self, at: &TopicPartition) -> Option<Offset> {
        self.log_ends.ask(at.clone()).await.flatten()
    }

    /// What the leader remembers of a producer.
    pub(super) async fn producer_state(
        &self,
        at: &TopicPartition,
        producer_id: i64,
    ) -> Result<StateAnswer, Error> {
        let answer = self.producers.ask(at.clone()).await;
        let states = match answer.unwrap_or_else(|| Err(self.silence(at))) {
            Ok(states) => states,
            Err(Error::Unsupported { .. }) => return Ok(StateAnswer::Unsupported),
            Err(fault) if is_denied(&fault) => return Ok(StateAnswer::Unsupported),
            Err(fault) => return Err(fault),
        };
        let ours = states.into_iter().find(|state| state.id == producer_id);
        let known = ours.and_then(|state| {
            Some(ProducerState {
                epoch: ProducerEpoch(i16::try_from(state.epoch).unwrap_or(i16::MAX)),
                last_sequence: Sequence::new(state.last_sequence?)?,
                last_timestamp: state.last_timestamp.unwrap_or(UnixMillis(0)),
            })
        });
        Ok(known.map_or(StateAnswer::Absent, StateAnswer::Known))
    }

    /// Whether reading a topic again may give other records.
    pub(super) async fn is_compacted(&self, topic: &TopicName) -> Result<bool, Error> {
        let answer = self.compacted.ask(topic.clone()).await;
        match answer {
            Some(Ok(is_compacted)) => Ok(is_compacted),
            // Who may not see settings has to take the careful way.
            Some(Err(fault)) if is_denied(&fault) => Ok(true),
            Some(Err(Error::Unsupported { .. })) => Ok(true),
            Some(Err(fault)) => Err(fault),
            None => Err(self.silence(topic)),
        }
    }

    /// The first offset at or after a time; None: there is none.
    pub(super) async fn at_time(
        &self,
        at: &TopicPartition,
        time: UnixMillis,
    ) -> Result<Option<Offset>, Error> {
        let asked = BTreeMap::from([(at.clone(), At::Timestamp(time))]);
        let end = Instant::now() + self.deadline;
        let mut told = self
            .client
            .list_offsets(asked, Isolation::Committed, end)
            .await;
        let listed = told.remove(at).unwrap_or_else(|| Err(self.silence(at)))?;
        Ok(listed.offset)
    }

    fn silence(&self, what: &dyn std::fmt::Display) -> Error {
        Error::Unreachable {
            cluster: self.client.settings().cluster.clone(),
            cause: format!("no answer about {what}"),
        }
    }
}

fn range(
    start: Result<kreplicator_wire::cluster::offsets::Listed, Error>,
    end: Result<kreplicator_wire::cluster::offsets::Listed, Error>,
) -> Result<Range, Error> {
    let (start, end) = (start?.offset, end?.offset);
    let start = start.unwrap_or(Offset(0));
    Ok((start, end.unwrap_or(start)))
}

fn is_denied(fault: &Error) -> bool {
    use kreplicator_wire::code::Code;
    matches!(
        fault.code(),
        Some(Code::TOPIC_AUTHORIZATION_FAILED | Code::CLUSTER_AUTHORIZATION_FAILED)
    )
}

/// Committed offsets of a group, asked for together.
#[derive(Debug, Clone)]
pub(super) struct Group {
    pub(super) client: ClusterClient,
    pub(super) name: String,
    committed: Gather<TopicPartition, Result<Option<Committed>, Error>>,
}

impl Group {
    pub(super) fn new(
        client: ClusterClient,
        name: String,
        deadline: Duration,
        tracker: &TaskTracker,
    ) -> Self {
        let committed = {
            let (client, name) = (client.clone(), name.clone());
            Gather::new(tracker, move |keys: Vec<TopicPartition>| {
                let (client, name) = (client.clone(), name.clone());
                Box::pin(async move {
                    let end = Instant::now() + deadline;
                    let asked: BTreeSet<_> = keys.iter().cloned().collect();
                    match client.committed_offsets(&name, &asked, end).await {
                        Ok(mut found) => keys
                            .into_iter()
                            .map(|key| {
                                let committed = found.remove(&key);
                                (key, Ok(committed))
                            })
                            .collect(),
                        Err(fault) => keys
                            .into_iter()
                            .map(|key| (key, Err(fault.clone())))
                            .collect(),
                    }
                })
            })
        };
        Self {
            client,
            name,
            committed,
        }
    }

    /// The committed offset of a partition; None: there is none.
    pub(super) async fn committed(&self, at: &TopicPartition) -> Result<Option<Committed>, Error> {
        let answer = self.committed.ask(at.clone()).await;
        answer.unwrap_or_else(|| {
            Err(Error::Unreachable {
                cluster: self.client.settings().cluster.clone(),
                cause: format!("no answer about group {}", self.name),
            })
        })
    }
}
