//! The two ends of a link as the engine sees them: clients, and questions put together for all tasks.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use kreplicator_kafka::secrets::SecretSource;
use kreplicator_model::{
    checkpoint::CheckpointMeta,
    exact::{CheckpointPlace, ProducerEpoch, ProducerState, Sequence, StateAnswer, TargetView},
    ids::{Offset, TopicName, UnixMillis},
    spec::{CheckpointSide, Cluster, SecretRef},
};
use kreplicator_wire::{
    cluster::{
        ClusterClient,
        group::Committed,
        offsets::{At, Isolation},
        producers::ProducerState as Remembered,
    },
    error::Error,
    fetch::EpochEnd,
    gather::Gather,
    settings::{Secret, Secrets, Settings},
    topic::TopicPartition,
};
use tokio::time::Instant;

use crate::{
    checkpoint::names::Names,
    engine::TaskSpec,
    fault::{Fault, Kind},
    spawner::Spawner,
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

/// A client of a cluster, whose connections are part of the data path. `silence_max`: for how long a machine of
/// it may be silent.
pub(super) fn client(
    cluster: &Cluster,
    secrets: &Arc<dyn SecretSource>,
    silence_max: Duration,
    spawner: &Spawner,
) -> ClusterClient {
    let client_id = cluster.client_options.get("client.id");
    let client_id = client_id.map_or("kreplicator", String::as_str);
    let mut settings = Settings::of(cluster, client_id);
    settings.limits.silence_max = silence_max;
    ClusterClient::new(
        settings,
        Arc::new(Adapter(Arc::clone(secrets))),
        spawner.clone(),
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
    /// Those who ask whether a topic is compacted.
    compacted: Arc<Gather<TopicName, (), Result<bool, Error>>>,
}

impl Questions {
    /// Questions that are answered, or not, within `deadline` each.
    pub(super) fn new(client: ClusterClient, deadline: Duration) -> Self {
        Self {
            client,
            deadline,
            compacted: Arc::default(),
        }
    }

    /// Log start and last stable offset of a partition.
    pub(super) async fn committed_range(&self, at: &TopicPartition) -> Result<Range, Error> {
        let end = Instant::now() + self.deadline;
        let told = self.client.committed_range(at, end).await?;
        Ok((told.start, told.end))
    }

    /// What the leader of a partition says, all in one leadership; its tail is not read.
    pub(super) async fn view(
        &self,
        at: &TopicPartition,
        producer_id: i64,
    ) -> Result<TargetView, Error> {
        let end = Instant::now() + self.deadline;
        let told = self.client.view(at, end).await?;
        Ok(TargetView {
            state: state(told.producers.as_deref(), producer_id),
            start: told.range.start,
            log_end: told.log_end,
            end: told.range.end,
            tail: None,
        })
    }

    /// Where a leader's epoch, or the last one before it, ends in a partition's log; None: the log knows no epoch
    /// so late.
    pub(super) async fn epoch_end(
        &self,
        at: &TopicPartition,
        epoch: i32,
    ) -> Result<Option<EpochEnd>, Error> {
        let asked = BTreeMap::from([(at.clone(), epoch)]);
        let end = Instant::now() + self.deadline;
        let mut told = self.client.offset_for_leader_epoch(asked, end).await;
        told.remove(at).unwrap_or_else(|| Err(self.silence(at)))
    }

    /// Whether reading a topic again may give other records.
    pub(super) async fn is_compacted(&self, topic: &TopicName) -> Result<bool, Error> {
        let call = |asked: Vec<()>| async move {
            let end = Instant::now() + self.deadline;
            let configs = self.client.topic_configs(topic, &[CLEANUP_POLICY], end);
            let answer = configs.await.map(|configs| {
                let policy = configs.get(CLEANUP_POLICY);
                policy.is_some_and(|policy| policy.contains("compact"))
            });
            vec![answer; asked.len()]
        };
        match self.compacted.ask(topic, (), call).await {
            // Who may not see settings has to take the careful way.
            Err(Error::Unsupported { .. }) => Ok(true),
            Err(fault) if fault.is_denied() => Ok(true),
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

/// What is remembered of one of the producers; None: the broker cannot tell of any.
fn state(producers: Option<&[Remembered]>, producer_id: i64) -> StateAnswer {
    let Some(producers) = producers else {
        return StateAnswer::Unsupported;
    };
    let ours = producers.iter().find(|state| state.id == producer_id);
    let known = ours.and_then(|state| {
        Some(ProducerState {
            epoch: ProducerEpoch(i16::try_from(state.epoch).unwrap_or(i16::MAX)),
            last_sequence: Sequence::new(state.last_sequence?)?,
            last_timestamp: state.last_timestamp.unwrap_or(UnixMillis(0)),
        })
    });
    known.map_or(StateAnswer::Absent, StateAnswer::Known)
}

/// Checkpoints in a group. Clones put their questions together.
#[derive(Debug, Clone)]
pub(super) struct Group {
    pub(super) client: ClusterClient,
    pub(super) name: String,
    side: CheckpointSide,
    deadline: Duration,
    waiting: Arc<Gather<(), TopicPartition, Result<Option<Committed>, Error>>>,
}

/// A checkpoint as it was kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Kept {
    /// The next source offset to copy.
    pub(super) offset: Offset,
    /// Epoch of the source's leader that wrote the record before it.
    pub(super) leader_epoch: Option<i32>,
    /// What its text says; None: it was set by somebody else.
    pub(super) meta: Option<CheckpointMeta>,
}

impl Kept {
    /// Where it is, and what was counted up to there.
    pub(super) fn place(&self) -> CheckpointPlace {
        let uncounted = CheckpointPlace {
            offset: self.offset,
            counted: None,
        };
        let meta = self.meta.as_ref();
        meta.map_or(uncounted, |meta| meta.place(self.offset))
    }

    /// The count of gaps that goes with it.
    pub(super) fn gaps(&self) -> u64 {
        self.meta.as_ref().map_or(0, |meta| meta.gaps)
    }
}

impl Group {
    /// Questions that are answered, or not, within `deadline` each. The group is on the `side` of the
    /// link.
    pub(super) fn new(
        client: ClusterClient,
        name: String,
        side: CheckpointSide,
        deadline: Duration,
    ) -> Self {
        Self {
            client,
            name,
            side,
            deadline,
            waiting: Arc::default(),
        }
    }

    /// Under which topics' names the checkpoint of a task is kept.
    pub(super) fn names(&self, spec: &TaskSpec) -> Names {
        Names::new(self.side, &spec.id.topic, &spec.target_topic)
    }

    /// The checkpoint of a task; None: there is none.
    pub(super) async fn checkpoint(&self, spec: &TaskSpec) -> Result<Option<Kept>, Fault> {
        let names = self.names(spec);
        let found = self.read(names.kept(), spec).await?;
        if let Some(kept) = &found
            && names.is_ours(kept.meta.as_ref())
        {
            return Ok(found);
        }
        let Some(former) = names.former() else {
            return Ok(None);
        };
        let found = self.read(former, spec).await?;
        Ok(found.filter(|kept| Names::is_former(kept.meta.as_ref())))
    }

    async fn read(&self, topic: &TopicName, spec: &TaskSpec) -> Result<Option<Kept>, Fault> {
        let group = &self.name;
        let fault = |text: String| Fault::new(Kind::Checkpoint, text);
        let at = TopicPartition::new(topic.clone(), spec.id.partition);
        let committed = self.committed(&at).await.map_err(|error| {
            fault(format!(
                "checkpoints in group {group} cannot be read: {error}"
            ))
        })?;
        let Some(committed) = committed else {
            return Ok(None);
        };
        let meta = CheckpointMeta::parse(&committed.metadata)
            .map_err(|error| fault(format!("checkpoint in group {group}: {error}")))?;
        Ok(Some(Kept {
            offset: committed.offset,
            leader_epoch: committed.leader_epoch,
            meta,
        }))
    }

    async fn committed(&self, at: &TopicPartition) -> Result<Option<Committed>, Error> {
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
    use super::*;

    #[test]
    fn what_is_remembered_of_another_producer_is_not_ours() {
        let remembered = |id, last_sequence| Remembered {
            id,
            epoch: 3,
            last_sequence,
            last_timestamp: None,
            transaction_start: None,
        };
        let all = [
            remembered(1, Some(5)),
            remembered(2, None),
            remembered(3, Some(9)),
        ];
        let StateAnswer::Known(ours) = state(Some(&all), 3) else {
            panic!("it is there");
        };
        assert_eq!(ours.epoch, ProducerEpoch(3));
        assert_eq!(Some(ours.last_sequence), Sequence::new(9));
        assert_eq!(state(Some(&all), 2), StateAnswer::Absent, "no batch of it");
        assert_eq!(state(Some(&all), 4), StateAnswer::Absent);
        assert_eq!(state(None, 3), StateAnswer::Unsupported);
    }
}
