//! Calls about partitions that only their leaders answer: partitions are grouped by leader, leaders
//! are asked at the same time, and what another leader has to answer is asked again.

use std::collections::BTreeMap;

use futures::future::join_all;
use kreplicator_model::ids::TopicName;
use tokio::time::Instant;

use super::ClusterClient;
use crate::{
    call::Call,
    code::{Class, Code},
    error::Error,
    topic::{BrokerId, Leader, TopicPartition},
};

/// Answers by partition, each with an error of its own.
pub type ByPartition<T> = BTreeMap<TopicPartition, Result<T, Error>>;

/// One question about partitions.
pub(super) trait Question: Sync {
    /// What is asked of each.
    type Ask: Clone + Send + Sync;
    /// What is told of each.
    type Told: Send;
    /// The request.
    type Request: Call;

    /// What it is called in errors, to be followed by a partition.
    const WHAT: &'static str;

    /// The request for partitions of one leader.
    fn request(&self, asked: &BTreeMap<TopicPartition, (Self::Ask, Leader)>) -> Self::Request;

    /// What the answer tells of each partition. Names that are not legal may be left out.
    fn read(
        &self,
        answer: <Self::Request as Call>::Answer,
    ) -> Vec<(TopicPartition, Result<Self::Told, Code>)>;
}

impl ClusterClient {
    /// Puts `question` to all leaders until every partition is told or `deadline` comes.
    pub(super) async fn ask_leaders<Q: Question>(
        &self,
        question: &Q,
        asked: BTreeMap<TopicPartition, Q::Ask>,
        deadline: Instant,
    ) -> ByPartition<Q::Told> {
        let mut told = BTreeMap::new();
        let mut open = asked;
        let mut retry = self.retry(deadline);
        loop {
            let mut faults = BTreeMap::new();
            let groups = self.by_leader(&open, deadline, &mut faults).await;
            let calls = groups
                .into_iter()
                .map(|(broker, asked)| self.ask_leader(question, broker, asked, deadline));
            for (at, outcome) in join_all(calls).await.into_iter().flatten() {
                match outcome {
                    Ok(value) => {
                        open.remove(&at);
                        told.insert(at, Ok(value));
                    }
                    Err(fault) => {
                        faults.insert(at, fault);
                    }
                }
            }
            for (at, fault) in &faults {
                if !fault.is_retryable() {
                    open.remove(at);
                    told.insert(at.clone(), Err(fault.clone()));
                } else if fault.class() == Class::Refresh {
                    self.mark_stale(&at.topic);
                }
            }
            if open.is_empty() {
                return told;
            }
            if !retry.wait().await {
                for at in open.into_keys() {
                    let fault = faults.remove(&at).unwrap_or_else(|| self.no_leader(&at));
                    told.insert(at, Err(fault));
                }
                return told;
            }
        }
    }

    /// Groups partitions by leader; those without one get a fault.
    async fn by_leader<A: Clone>(
        &self,
        open: &BTreeMap<TopicPartition, A>,
        deadline: Instant,
        faults: &mut BTreeMap<TopicPartition, Error>,
    ) -> BTreeMap<BrokerId, BTreeMap<TopicPartition, (A, Leader)>> {
        let mut names: Vec<TopicName> = open.keys().map(|at| at.topic.clone()).collect();
        names.dedup();
        let mut groups: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
        let topics = match self.topics(&names, deadline).await {
            Ok(topics) => topics,
            Err(fault) => {
                faults.extend(open.keys().map(|at| (at.clone(), fault.clone())));
                return groups;
            }
        };
        for (at, ask) in open {
            let leader = match topics.get(&at.topic) {
                Some(Ok(topic)) => topic.partitions.get(&at.partition).copied().flatten(),
                Some(Err(fault)) => {
                    faults.insert(at.clone(), fault.clone());
                    continue;
                }
                None => None,
            };
            let Some(leader) = leader else {
                faults.insert(at.clone(), self.no_leader(at));
                continue;
            };
            let group = groups.entry(leader.broker).or_default();
            group.insert(at.clone(), (ask.clone(), leader));
        }
        groups
    }

    /// Puts `question` to one broker, once. Every partition asked for has an outcome.
    pub(super) async fn ask_leader<Q: Question>(
        &self,
        question: &Q,
        broker: BrokerId,
        asked: BTreeMap<TopicPartition, (Q::Ask, Leader)>,
        deadline: Instant,
    ) -> ByPartition<Q::Told> {
        if asked.is_empty() {
            return ByPartition::new();
        }
        let request = question.request(&asked);
        let attempt = self.attempt(deadline);
        let answer = match self.call(broker, request, attempt).await {
            Ok(answer) => answer,
            Err(fault) => {
                let all = asked.into_keys().map(|at| (at, Err(fault.clone())));
                return all.collect();
            }
        };
        let refused = |at: &TopicPartition, code| Error::Refused {
            what: format!("{} of {at}", Q::WHAT),
            code,
        };
        // What the broker says nothing of is asked again.
        let silent = asked.into_keys().map(|at| {
            let fault = refused(&at, Code::LEADER_NOT_AVAILABLE);
            (at, Err(fault))
        });
        let mut outcomes: ByPartition<Q::Told> = silent.collect();
        for (at, outcome) in question.read(answer) {
            if let Some(told) = outcomes.get_mut(&at) {
                *told = outcome.map_err(|code| refused(&at, code));
            }
        }
        outcomes
    }
}
