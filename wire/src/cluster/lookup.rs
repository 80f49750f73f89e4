//! Keeps the metadata fresh: topics are asked for when somebody needs them and what is known is old
//! or was found wrong; never more often than the settings allow, and once for all who wait.

use std::{collections::BTreeMap, sync::Arc};

use kafka_protocol::messages::{MetadataRequest, metadata_request::MetadataRequestTopic};
use kreplicator_model::ids::TopicName;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::{ClusterClient, metadata::Topic};
use crate::{
    code::Code,
    error::Error,
    topic::{BrokerId, Leader, Node, TopicPartition, to_wire},
};

/// When the cluster was asked last.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// The last question ended, answered or not: the next one has a pause to keep.
    asked_at: Option<Instant>,
    /// The last answer came.
    told_at: Option<Instant>,
}

impl ClusterClient {
    /// Topics as they are known, asked for where that is old or doubtful. One that the cluster does
    /// not know is an error of its own with [`Code::UNKNOWN_TOPIC_OR_PARTITION`].
    ///
    /// # Errors
    /// When no broker answers until `deadline`.
    pub async fn topics(
        &self,
        names: &[TopicName],
        deadline: Instant,
    ) -> Result<BTreeMap<TopicName, Result<Arc<Topic>, Error>>, Error> {
        let now = Instant::now();
        let oldest = now.checked_sub(self.inner.settings.metadata_age_max);
        let due: Vec<_> = {
            let mut metadata = self.metadata();
            metadata.note_use(names, now);
            let due = names
                .iter()
                .filter(|name| metadata.fresh(name, oldest).is_none());
            due.cloned().collect()
        };
        if !due.is_empty() {
            self.refresh(&due, now, deadline).await?;
        }
        let metadata = self.metadata();
        let topics = names.iter().map(|name| {
            // Others may have found it wrong again: it is as new as was asked for.
            let known = metadata.told(name);
            let known = known.unwrap_or(Err(Code::LEADER_NOT_AVAILABLE));
            let topic = known.map_err(|code| Error::Refused {
                what: format!("topic {name} on cluster {}", self.inner.settings.cluster),
                code,
            });
            (name.clone(), topic)
        });
        Ok(topics.collect())
    }

    /// One topic; see [`Self::topics`].
    ///
    /// # Errors
    /// As [`Self::topics`], for the topic too.
    pub async fn topic(&self, name: &TopicName, deadline: Instant) -> Result<Arc<Topic>, Error> {
        let mut topics = self.topics(std::slice::from_ref(name), deadline).await?;
        topics
            .remove(name)
            .unwrap_or_else(|| unreachable!("every name asked for is told"))
    }

    /// The leader of a partition; waits until there is one.
    ///
    /// # Errors
    /// [`Error::NoLeader`] when there is none until `deadline`; at once when the topic or the partition
    /// does not exist.
    pub async fn leader(&self, at: &TopicPartition, deadline: Instant) -> Result<Leader, Error> {
        let mut retry = self.retry(deadline);
        loop {
            let topic = self.topic(&at.topic, deadline).await?;
            match topic.partitions.get(&at.partition) {
                Some(Some(leader)) => return Ok(*leader),
                Some(None) => self.mark_stale(&at.topic),
                None => {
                    // It may be a new one.
                    self.mark_stale(&at.topic);
                    return Err(Error::Refused {
                        what: format!("{at} on cluster {}", self.inner.settings.cluster),
                        code: Code::UNKNOWN_TOPIC_OR_PARTITION,
                    });
                }
            }
            retry.pause(self.no_leader(at)).await?;
        }
    }

    pub(super) fn no_leader(&self, at: &TopicPartition) -> Error {
        Error::NoLeader {
            what: at.to_string(),
            cluster: self.inner.settings.cluster.clone(),
        }
    }

    /// The leader as far as it is known, without asking.
    #[cfg(test)]
    pub(crate) fn known_leader(&self, at: &TopicPartition) -> Option<Leader> {
        self.metadata().leader(at)
    }

    /// Takes over a leader that a broker named in an answer of Fetch or Produce (KIP-951), with the
    /// `nodes` of that answer. True when this is news; else [`Self::mark_stale`] is the way.
    pub fn note_leader(&self, at: &TopicPartition, leader: Leader, nodes: &[Node]) -> bool {
        self.metadata().note_leader(at, leader, nodes)
    }

    /// What is known of a topic was found wrong: the next who needs it asks anew.
    pub fn mark_stale(&self, topic: &TopicName) {
        self.metadata().mark_stale(topic);
    }

    /// The brokers as they are known, without asking.
    #[must_use]
    pub fn nodes(&self) -> Vec<Node> {
        self.metadata().nodes().cloned().collect()
    }

    /// Kafka's id of the cluster; it is checked against the pinned one whenever it is told.
    ///
    /// # Errors
    /// [`Error::WrongCluster`], or why no broker answers.
    pub async fn cluster_id(&self, deadline: Instant) -> Result<Option<String>, Error> {
        let known = self.metadata().cluster_id().map(str::to_owned);
        if known.is_some() {
            return Ok(known);
        }
        self.refresh(&[], Instant::now(), deadline).await?;
        Ok(self.metadata().cluster_id().map(str::to_owned))
    }

    /// Asks for `names` and everything else that is due, unless somebody was told after `since`. Those who
    /// wait for their turn have their names asked for by whoever has it.
    pub(super) async fn refresh(
        &self,
        names: &[TopicName],
        since: Instant,
        deadline: Instant,
    ) -> Result<(), Error> {
        let late = || Error::Unreachable {
            cluster: self.inner.settings.cluster.clone(),
            cause: "others are still asking for metadata".to_owned(),
        };
        self.metadata().want(names);
        let mut pace = timeout_at(deadline, self.inner.refreshing.lock())
            .await
            .map_err(|_elapsed| late())?;
        let told_since = |told: Option<Instant>| told.is_some_and(|told| told > since);
        let done = if names.is_empty() {
            told_since(pace.told_at)
        } else {
            let metadata = self.metadata();
            names.iter().all(|name| told_since(metadata.told_at(name)))
        };
        if done {
            return Ok(());
        }
        if let Some(asked_at) = pace.asked_at {
            let next = asked_at + self.inner.settings.metadata_pause_min;
            if next >= deadline {
                return Err(late());
            }
            sleep_until(next).await;
        }
        let half_age = self.inner.settings.metadata_age_max / 2;
        let idle_max = self.inner.settings.metadata_idle_max;
        let now = Instant::now();
        let mut asked = {
            let mut metadata = self.metadata();
            if let Some(oldest) = now.checked_sub(idle_max) {
                metadata.drop_idle(oldest);
            }
            metadata.due(now.checked_sub(half_age))
        };
        asked.extend_from_slice(names);
        asked.sort();
        asked.dedup();
        // Thousands may wait for this turn: only who has it has the memory for the call.
        let outcome = Box::pin(self.ask(&asked, deadline)).await;
        pace.asked_at = Some(Instant::now());
        if outcome.is_ok() {
            pace.told_at = pace.asked_at;
        }
        outcome
    }

    async fn ask(&self, names: &[TopicName], deadline: Instant) -> Result<(), Error> {
        let topics = names
            .iter()
            .map(|name| MetadataRequestTopic::default().with_name(Some(to_wire(name))));
        let request = MetadataRequest::default()
            .with_topics(Some(topics.collect()))
            .with_allow_auto_topic_creation(false);
        let response = self.call_any(request, deadline).await?;
        if Code(response.error_code) == Code::REBOOTSTRAP_REQUIRED {
            // What we know leads to another cluster by now (KIP-1102).
            self.metadata().forget_nodes();
        }
        Error::check(response.error_code, || {
            format!("metadata of cluster {}", self.inner.settings.cluster)
        })?;
        self.check_cluster(response.cluster_id.as_deref())?;
        let has = {
            let mut metadata = self.metadata();
            metadata.apply(names, &response, Instant::now());
            let ids = metadata.nodes().map(|node| node.id);
            ids.collect::<std::collections::BTreeSet<BrokerId>>()
        };
        self.inner.pool.retain(|broker| has.contains(&broker));
        Ok(())
    }

    /// What is told by another cluster is never taken over.
    fn check_cluster(&self, found: Option<&str>) -> Result<(), Error> {
        let expected = self.inner.settings.expected_cluster_id.as_deref();
        match (expected, found) {
            (Some(expected), Some(found)) if expected != found => Err(Error::WrongCluster {
                cluster: self.inner.settings.cluster.clone(),
                expected: expected.to_owned(),
                found: found.to_owned(),
            }),
            _ => Ok(()),
        }
    }
}
