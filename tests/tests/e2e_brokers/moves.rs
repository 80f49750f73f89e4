//! Moves of leaders as they come: brokers that die or are stopped, elections, other replicas.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use kreplicator_tests::{checker::Lane, kafka::KafkaCluster};
use rand::{rngs::StdRng, seq::SliceRandom as _};

use crate::leaders::{Placed, elect_preferred, placed, reassign, wait_placed};

/// What takes partitions away from a broker that leads them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Move {
    /// It is killed.
    Kill,
    /// It is stopped in an orderly way.
    Stop,
    /// Others are preferred and elected.
    Elect,
    /// It is none of their replicas any more.
    Reassign,
}

/// Endless kinds of moves in random order, each as often as the others.
#[derive(Debug, Default)]
pub(crate) struct Kinds(Vec<Move>);

impl Kinds {
    pub(crate) fn next(&mut self, chance: &mut StdRng) -> Result<Move> {
        if self.0.is_empty() {
            self.0 = vec![Move::Kill, Move::Stop, Move::Elect, Move::Reassign];
            self.0.shuffle(chance);
        }
        self.0.pop().context("there are four")
    }
}

/// Brokers that lead at least one of the partitions.
pub(crate) fn leading(placed: &BTreeMap<Lane, Placed>) -> Vec<usize> {
    let mut all: Vec<usize> = placed.values().filter_map(|of| of.leader).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// How many partitions of a topic are led by another broker than before.
pub(crate) fn moved(
    topic: &str,
    before: &BTreeMap<Lane, Placed>,
    after: &BTreeMap<Lane, Placed>,
) -> usize {
    let of_topic = before.iter().filter(|((name, _), _)| name == topic);
    of_topic
        .filter(|(lane, of)| after.get(*lane).is_none_or(|now| now.leader != of.leader))
        .count()
}

impl Move {
    /// Takes away all partitions of `topics` that a broker leads, and waits until others lead them. All
    /// replicas are in sync before.
    pub(crate) async fn make(
        self,
        cluster: &mut KafkaCluster,
        topics: &[&str],
        broker: usize,
        chance: &mut StdRng,
    ) -> Result<BTreeMap<Lane, Placed>> {
        let before = placed(cluster, topics).await?;
        match self {
            Self::Kill => cluster.kill(broker).await?,
            Self::Stop => cluster.stop(broker).await?,
            Self::Elect => {
                let preferred = shuffled(&before, chance, |of, replicas| {
                    if of.leader == Some(broker) && replicas[0] == broker {
                        replicas.rotate_left(1);
                    }
                });
                reassign(cluster, &preferred).await?;
                elect_preferred(cluster).await?;
                let is_first =
                    |lane: &Lane, of: &Placed| of.leader == preferred[lane].first().copied();
                return wait_placed(cluster, topics, "the preferred leaders", is_first).await;
            }
            Self::Reassign => {
                let others = shuffled(&before, chance, |of, replicas| {
                    if of.leader == Some(broker) {
                        replicas.retain(|replica| *replica != broker);
                    }
                });
                reassign(cluster, &others).await?;
                let are_there = |lane: &Lane, of: &Placed| {
                    let mut wanted = others[lane].clone();
                    wanted.sort_unstable();
                    of.replicas == wanted && of.in_sync == wanted
                };
                wait_placed(cluster, topics, "the other replicas", are_there).await?;
            }
        }
        let is_led = |_: &Lane, of: &Placed| of.leader.is_some_and(|leader| leader != broker);
        wait_placed(cluster, topics, "other leaders", is_led).await
    }

    /// Brings the broker back, and waits until all replicas are in sync again.
    pub(crate) async fn undo(
        self,
        cluster: &mut KafkaCluster,
        topics: &[&str],
        broker: usize,
    ) -> Result<()> {
        match self {
            Self::Kill | Self::Stop => cluster.restart(broker).await?,
            Self::Elect => {}
            Self::Reassign => {
                let now = placed(cluster, topics).await?.into_iter();
                let less = now.filter(|(_, of)| !of.replicas.contains(&broker));
                let again = less.map(|(lane, mut of)| {
                    of.replicas.push(broker);
                    (lane, of.replicas)
                });
                reassign(cluster, &again.collect()).await?;
            }
        }
        let all = cluster.size();
        let are_there = |_: &Lane, of: &Placed| of.replicas.len() == all && of.in_sync.len() == all;
        wait_placed(cluster, topics, "all replicas", are_there).await?;
        Ok(())
    }
}

/// The replicas of each partition in another order, and then as `change` has them.
fn shuffled(
    placed: &BTreeMap<Lane, Placed>,
    chance: &mut StdRng,
    change: impl Fn(&Placed, &mut Vec<usize>),
) -> BTreeMap<Lane, Vec<usize>> {
    let partitions = placed.iter().map(|(lane, of)| {
        let mut replicas = of.replicas.clone();
        replicas.shuffle(chance);
        change(of, &mut replicas);
        (lane.clone(), replicas)
    });
    partitions.collect()
}
