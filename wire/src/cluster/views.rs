//! What many ask of single partitions. Each question goes to the partition's leader, together with
//! whatever else is asked of that broker at the time; each asker tries again by itself. So a partition
//! without a leader, one that is gone, or a broker that is frozen, delays nobody but those who ask about
//! it.
//!
//! A [`View`] is of one leadership. Answers of two leaders do not fit together: the old one may speak
//! of records that the new one lacks.

use std::{collections::BTreeMap, future::Future};

use kreplicator_model::ids::Offset;
use tokio::time::{Instant, timeout_at};

use super::{
    ByPartition, ClusterClient,
    offsets::{At, Isolation, Listed},
    producers::ProducerState,
};
use crate::{
    code::{Class, Code},
    error::Error,
    gather::Gather,
    topic::{BrokerId, Leader, TopicPartition},
};

/// First offset and end (exclusive) of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// The first offset.
    pub start: Offset,
    /// The end, by the isolation asked for.
    pub end: Offset,
}

/// What the leader of a partition says of it, all in one leadership. The producers were asked for first,
/// then the log end, then the range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// Producers that it remembers; None where it cannot or may not tell.
    pub producers: Option<Vec<ProducerState>>,
    /// End of its log, replicated or not; None where it cannot or may not tell.
    pub log_end: Option<Offset>,
    /// Log start and high watermark.
    pub range: Range,
}

type Asked = (TopicPartition, Leader);
type Line<A> = Gather<BrokerId, Asked, Result<A, Error>>;

/// Those who wait for the next call of each kind, by broker.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    committed_ranges: Line<Range>,
    views: Line<View>,
}

impl ClusterClient {
    /// Log start and last stable offset of a partition.
    ///
    /// # Errors
    /// Why its leader has not told it until `deadline`.
    pub async fn committed_range(
        &self,
        at: &TopicPartition,
        deadline: Instant,
    ) -> Result<Range, Error> {
        let call = |broker, asked| self.ranges_at(broker, asked, Isolation::Committed, deadline);
        let line = &self.inner.waiting.committed_ranges;
        self.ask_leader_of(at, line, call, deadline).await
    }

    /// What a partition's leader says of it.
    ///
    /// # Errors
    /// Why no leader has told all of it, in one leadership, until `deadline`.
    pub async fn view(&self, at: &TopicPartition, deadline: Instant) -> Result<View, Error> {
        let call = |broker, asked| self.views_at(broker, asked, deadline);
        let line = &self.inner.waiting.views;
        self.ask_leader_of(at, line, call, deadline).await
    }

    /// Asks the leader of `at`, with all who wait in `line` for the same broker, until it answers. Nobody
    /// whose time is over carries the question of others.
    async fn ask_leader_of<A: Clone, F>(
        &self,
        at: &TopicPartition,
        line: &Line<A>,
        call: impl Fn(BrokerId, BTreeMap<TopicPartition, Leader>) -> F,
        deadline: Instant,
    ) -> Result<A, Error>
    where
        F: Future<Output = ByPartition<A>>,
    {
        let mut retry = self.retry(deadline);
        loop {
            let answer = match self.leader(at, deadline).await {
                Ok(leader) => {
                    let together = |asked| all(asked, |asked| call(leader.broker, asked));
                    let question = (at.clone(), leader);
                    let asking = line.ask(&leader.broker, question, together);
                    // Whoever has the turn may have more time than we have.
                    match timeout_at(deadline, asking).await {
                        Ok(answer) => answer,
                        Err(_elapsed) => return Err(self.no_turn(at, leader)),
                    }
                }
                Err(fault) => Err(fault),
            };
            let fault = match answer {
                Ok(answer) => return Ok(answer),
                Err(fault) => fault,
            };
            if fault.class() == Class::Refresh {
                self.mark_stale(&at.topic);
            }
            retry.pause(fault).await?;
        }
    }

    fn no_turn(&self, at: &TopicPartition, leader: Leader) -> Error {
        Error::Unreachable {
            cluster: self.inner.settings.cluster.clone(),
            cause: format!("broker {} has told nothing of {at}", leader.broker.0),
        }
    }

    async fn ranges_at(
        &self,
        broker: BrokerId,
        asked: BTreeMap<TopicPartition, Leader>,
        isolation: Isolation,
        deadline: Instant,
    ) -> ByPartition<Range> {
        let of = |what: At| {
            let asked = asked.iter();
            let asked = asked.map(|(at, leader)| (at.clone(), (what, *leader)));
            self.list_offsets_at(broker, asked.collect(), isolation, deadline)
        };
        let (starts, mut ends) = futures::join!(of(At::Earliest), of(At::Latest));
        let told = starts.into_iter().filter_map(|(at, start)| {
            let end = ends.remove(&at)?;
            Some((at, range(start, end)))
        });
        told.collect()
    }

    async fn views_at(
        &self,
        broker: BrokerId,
        asked: BTreeMap<TopicPartition, Leader>,
        deadline: Instant,
    ) -> ByPartition<View> {
        let mut outcomes = ByPartition::new();
        let mut open = asked;
        let mut give_up = |open: &mut BTreeMap<TopicPartition, Leader>, at, fault| {
            open.remove(&at);
            outcomes.insert(at, Err(fault));
        };
        // The question for producers carries no epoch. A broker that leads in the epoch asked for before
        // and after it has led in it all the while.
        let before = open
            .iter()
            .map(|(at, leader)| (at.clone(), (At::Earliest, *leader)));
        let before = before.collect();
        let before = self.list_offsets_at(broker, before, Isolation::Uncommitted, deadline);
        for (at, outcome) in before.await {
            if let Err(fault) = outcome {
                give_up(&mut open, at, fault);
            }
        }
        let mut producers = BTreeMap::new();
        let told = self.describe_producers_at(broker, open.clone(), deadline);
        for (at, outcome) in told.await {
            match outcome {
                Ok(states) => {
                    producers.insert(at, states);
                }
                Err(fault) if cannot_tell(&fault) => {}
                Err(fault) => give_up(&mut open, at, fault),
            }
        }
        let mut log_ends = BTreeMap::new();
        let epochs = open.iter().filter_map(|(at, leader)| {
            let epoch = leader.epoch?;
            Some((at.clone(), (epoch, *leader)))
        });
        let epochs = epochs.collect();
        let told = self.offset_for_leader_epoch_at(broker, epochs, deadline);
        for (at, outcome) in told.await {
            match outcome {
                // The end of an older epoch is not the end of the log.
                Ok(Some(told)) if open.get(&at).and_then(|l| l.epoch) == Some(told.epoch) => {
                    log_ends.insert(at, told.end);
                }
                Ok(_) => {}
                Err(fault) if fault.is_retryable() => give_up(&mut open, at, fault),
                Err(_) => {}
            }
        }
        let ranges = self.ranges_at(broker, open, Isolation::Uncommitted, deadline);
        for (at, outcome) in ranges.await {
            let view = outcome.map(|range| View {
                producers: producers.remove(&at),
                log_end: log_ends.remove(&at),
                range,
            });
            outcomes.insert(at, view);
        }
        outcomes
    }
}

/// One call for all that was asked, and the answer to each.
async fn all<A: Clone, F>(
    asked: Vec<Asked>,
    call: impl FnOnce(BTreeMap<TopicPartition, Leader>) -> F,
) -> Vec<Result<A, Error>>
where
    F: Future<Output = ByPartition<A>>,
{
    let mut partitions: BTreeMap<TopicPartition, Leader> = BTreeMap::new();
    for (at, leader) in &asked {
        // Whoever asks for an older leadership has not heard of the newer one yet.
        let newest = partitions.entry(at.clone()).or_insert(*leader);
        if newest.epoch < leader.epoch {
            *newest = *leader;
        }
    }
    let told = call(partitions).await;
    let answers = asked.iter().map(|(at, _)| {
        let told = told.get(at).cloned();
        told.unwrap_or_else(|| {
            Err(Error::Refused {
                what: format!("{at}: the broker says nothing of it"),
                code: Code::LEADER_NOT_AVAILABLE,
            })
        })
    });
    answers.collect()
}

fn range(start: Result<Listed, Error>, end: Result<Listed, Error>) -> Result<Range, Error> {
    let (start, end) = (start?.offset, end?.offset);
    let start = start.unwrap_or(Offset(0));
    Ok(Range {
        start,
        end: end.unwrap_or(start),
    })
}

/// Whether the broker is too old to tell of producers, or the user may not see them.
fn cannot_tell(fault: &Error) -> bool {
    matches!(fault, Error::Unsupported { .. }) || fault.is_denied()
}

#[cfg(test)]
mod tests;
