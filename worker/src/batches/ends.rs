//! The two ends of a link as the engine sees them: clients, and questions put together for all tasks.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use futures::future::join_all;
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

use crate::{
    fault::{Fault, Kind},
    gather::Gather,
};

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

/// The topic setting that tells whether records are removed by key.
const CLEANUP_POLICY: &str = "cleanup.policy";

/// First offset and end of a log.
pub(super) type Range = (Offset, Offset);

/// A cluster's answers about partitions. Clones put their questions together.
#[derive(Debug, Clone)]
pub(super) struct Questions {
    pub(super) client: ClusterClient,
    deadline: Duration,
    waiting: Arc<Waiting>,
}

/// Those who wait for the next call of each kind.
#[derive(Debug, Default)]
struct Waiting {
    /// Log start and last stable offset.
    committed_ranges: Gather<(), TopicPartition, Result<Range, Error>>,
    /// Log start and high watermark.
    ranges: Gather<(), TopicPartition, Result<Range, Error>>,
    /// Log end of the leader, committed or not.
    log_ends: Gather<(), TopicPartition, Option<Offset>>,
    /// Every producer's state.
    producers: Gather<(), TopicPartition, Result<Vec<State>, Error>>,
    /// Whether a topic is compacted.
    compacted: Gather<(), TopicName, Result<bool, Error>>,
}

type State = kreplicator_wire::cluster::producers::ProducerState;

impl Questions {
    /// Questions that are answered, or not, within `deadline` each.
    pub(super) fn new(client: ClusterClient, deadline: Duration) -> Self {
        Self {
            client,
            deadline,
            waiting: Arc::default(),
        }
    }

    /// Log start and last stable offset of a partition.
    pub(super) async fn committed_range(&self, at: &TopicPartition) -> Result<Range, Error> {
        let call = |asked| self.ranges_of(asked, Isolation::Committed);
        let gather = &self.waiting.committed_ranges;
        gather.ask(&(), at.clone(), call).await
    }

    /// Log start and high watermark of a partition.
    pub(super) async fn range(&self, at: &TopicPartition) -> Result<Range, Error> {
        let call = |asked| self.ranges_of(asked, Isolation::Uncommitted);
        self.waiting.ranges.ask(&(), at.clone(), call).await
    }

    async fn ranges_of(
        &self,
        asked: Vec<TopicPartition>,
        isolation: Isolation,
    ) -> Vec<Result<Range, Error>> {
        let end = Instant::now() + self.deadline;
        let of = |at: At| {
            let asked = asked.iter().map(|partition| (partition.clone(), at));
            self.client.list_offsets(asked.collect(), isolation, end)
        };
        let (starts, ends) = futures::join!(of(At::Earliest), of(At::Latest));
        let answers = asked.iter().map(|at| {
            let told = starts.get(at).zip(ends.get(at));
            let (start, end) = told.ok_or_else(|| self.silence(at))?;
            range(start.clone(), end.clone())
        });
        answers.collect()
    }

    /// The leader's log end, committed or not; None where it cannot tell.
    pub(super) async fn log_end(&self, at: &TopicPartition) -> Option<Offset> {
        let call = |asked: Vec<TopicPartition>| async move {
            let end = Instant::now() + self.deadline;
            let epochs = asked.iter().filter_map(|at| {
                let epoch = self.client.known_leader(at)?.epoch?;
                Some((at.clone(), epoch))
            });
            let told = self.client.offset_for_leader_epoch(epochs.collect(), end);
            let told = told.await;
            let answers = asked
                .iter()
                .map(|at| told.get(at)?.as_ref().ok()?.map(|told| told.end));
            answers.collect()
        };
        self.waiting.log_ends.ask(&(), at.clone(), call).await
    }

    /// What the leader remembers of a producer.
    pub(super) async fn producer_state(
        &self,
        at: &TopicPartition,
        producer_id: i64,
    ) -> Result<StateAnswer, Error> {
        let call = |asked: Vec<TopicPartition>| async move {
            let end = Instant::now() + self.deadline;
            let partitions = asked.iter().cloned().collect();
            let told = self.client.describe_producers(partitions, end).await;
            let answers = asked.iter().map(|at| {
                let told = told.get(at).cloned();
                told.unwrap_or_else(|| Err(self.silence(at)))
            });
            answers.collect()
        };
        let answer = self.waiting.producers.ask(&(), at.clone(), call).await;
        let states = match answer {
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
        let call = |asked: Vec<TopicName>| async move {
            let topics: BTreeSet<&TopicName> = asked.iter().collect();
            let settings = topics.into_iter().map(|topic| async move {
                let end = Instant::now() + self.deadline;
                let configs = self.client.topic_configs(topic, &[CLEANUP_POLICY], end);
                (topic, configs.await)
            });
            let told: BTreeMap<_, _> = join_all(settings).await.into_iter().collect();
            let answers = asked.iter().map(|topic| match &told[topic] {
                Ok(configs) => {
                    let policy = configs.get(CLEANUP_POLICY);
                    Ok(policy.is_some_and(|policy| policy.contains("compact")))
                }
                Err(fault) => Err(fault.clone()),
            });
            answers.collect()
        };
        match self.waiting.compacted.ask(&(), topic.clone(), call).await {
            // Who may not see settings has to take the careful way.
            Err(Error::Unsupported { .. }) => Ok(true),
            Err(fault) if is_denied(&fault) => Ok(true),
            answer => answer,
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

/// Whether the user lacks a right.
pub(super) fn is_denied(fault: &Error) -> bool {
    use kreplicator_wire::code::Code;
    matches!(
        fault.code(),
        Some(Code::TOPIC_AUTHORIZATION_FAILED | Code::CLUSTER_AUTHORIZATION_FAILED)
    )
}

/// Committed offsets of a group, asked for together. Clones put their questions together.
#[derive(Debug, Clone)]
pub(super) struct Group {
    pub(super) client: ClusterClient,
    pub(super) name: String,
    deadline: Duration,
    waiting: Arc<Gather<(), TopicPartition, Result<Option<Committed>, Error>>>,
}

impl Group {
    /// Questions that are answered, or not, within `deadline` each.
    pub(super) fn new(client: ClusterClient, name: String, deadline: Duration) -> Self {
        Self {
            client,
            name,
            deadline,
            waiting: Arc::default(),
        }
    }

    /// The committed offset of a partition; None: there is none.
    pub(super) async fn committed(&self, at: &TopicPartition) -> Result<Option<Committed>, Error> {
        let call = |asked: Vec<TopicPartition>| async move {
            let end = Instant::now() + self.deadline;
            let partitions = asked.iter().cloned().collect();
            let told = self.client.committed_offsets(&self.name, &partitions, end);
            let told = told.await;
            let answers = asked.iter().map(|at| match &told {
                Ok(outcomes) => outcomes[at].clone(),
                Err(fault) => Err(fault.clone()),
            });
            answers.collect()
        };
        self.waiting.ask(&(), at.clone(), call).await
    }
}

#[cfg(test)]
mod tests {
    use kreplicator_wire::code::Code;

    use super::*;

    #[test]
    fn a_missing_right_is_told_from_other_refusals() {
        let refused = |code| Error::Refused {
            what: "orders/0".to_owned(),
            code,
        };
        assert!(is_denied(&refused(Code::TOPIC_AUTHORIZATION_FAILED)));
        assert!(is_denied(&refused(Code::CLUSTER_AUTHORIZATION_FAILED)));
        assert!(!is_denied(&refused(Code::UNKNOWN_TOPIC_OR_PARTITION)));
        assert!(!is_denied(&refused(Code::NOT_LEADER_OR_FOLLOWER)));
    }
}
