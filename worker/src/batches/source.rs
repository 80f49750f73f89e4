//! The source of a link: one fetcher for each broker that leads anything, and the task that finds out
//! which that is.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use futures::{StreamExt as _, stream::FuturesUnordered};
use kreplicator_wire::{
    cluster::{ClusterClient, Purpose},
    topic::{BrokerId, Leader, TopicId},
};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep},
};

use super::{
    ends,
    fetcher::{Fetcher, FetcherHandle, Place},
    lane::{Lane, Next, Side},
    nearest::Way,
};
use crate::{budget::Budget, fault::Kind, spawner::Spawner};

/// Longest question for a leader.
const LEADER_TIME: Duration = Duration::from_secs(10);
/// Between questions that were not answered.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Finds fetchers for lanes. Its tasks end when it and all lanes are gone.
#[derive(Debug, Clone)]
pub(super) struct Source {
    homeless: mpsc::UnboundedSender<Arc<Lane>>,
}

impl Source {
    /// A source whose fetchers have connections of the number `number` of their own.
    pub(super) fn new(
        client: ClusterClient,
        number: u32,
        rack: Option<String>,
        budget: Arc<Budget>,
        spawner: Spawner,
    ) -> Self {
        let (homeless, lanes) = mpsc::unbounded_channel();
        let router = Router {
            client,
            number,
            rack,
            budget,
            spawner: spawner.clone(),
            homeless: homeless.downgrade(),
            fetchers: HashMap::new(),
            looked_for: HashSet::new(),
        };
        spawner.spawn("the reading of a link", router.run(lanes));
        Self { homeless }
    }

    /// Reads for a lane from where it says.
    pub(super) fn read(&self, lane: &Arc<Lane>) {
        drop(self.homeless.send(Arc::clone(lane)));
    }
}

struct Router {
    client: ClusterClient,
    number: u32,
    rack: Option<String>,
    budget: Arc<Budget>,
    spawner: Spawner,
    homeless: mpsc::WeakUnboundedSender<Arc<Lane>>,
    /// By broker, and whether it is told our rack.
    fetchers: HashMap<(BrokerId, bool), FetcherHandle>,
    /// Numbers of the lanes whose leader is being asked for.
    looked_for: HashSet<u64>,
}

impl Router {
    async fn run(mut self, mut lanes: mpsc::UnboundedReceiver<Arc<Lane>>) {
        let mut looking = FuturesUnordered::new();
        loop {
            tokio::select! {
                lane = lanes.recv() => match lane {
                    // Whoever is looked for already is read from where it says by then.
                    Some(lane) => if self.looked_for.insert(lane.number) {
                        looking.push(find(self.client.clone(), lane));
                    },
                    None => return,
                },
                Some((lane, found)) = looking.next(), if !looking.is_empty() => {
                    match found {
                        Some((leader, topic_id)) => {
                            self.looked_for.remove(&lane.number);
                            self.assign(&lane, leader, topic_id);
                        }
                        // It was opened again after it was given up.
                        None if lane.reading_at() != Next::Gone => {
                            looking.push(find(self.client.clone(), lane));
                        }
                        None => {
                            self.looked_for.remove(&lane.number);
                        }
                    }
                }
            }
        }
    }

    fn assign(&mut self, lane: &Arc<Lane>, leader: Leader, topic_id: Option<TopicId>) {
        let is_listed = |broker| self.client.nodes().iter().any(|node| node.id == broker);
        let Some(way) = lane.way(leader.broker, is_listed, Instant::now()) else {
            return;
        };
        let place = Place {
            topic_id,
            leader_epoch: leader.epoch,
            is_follower: way.is_follower,
        };
        self.fetchers.retain(|_, fetcher| fetcher.is_alive());
        // Without a rack all ways to a broker are one.
        let tells_rack = way.tells_rack && self.rack.is_some();
        let key = (way.broker, tells_rack);
        let is_taken = |fetcher: &FetcherHandle| fetcher.read(lane, place);
        if self.fetchers.get(&key).is_some_and(is_taken) {
            return;
        }
        let fetcher = self.spawn(Way { tells_rack, ..way });
        let is_taken = is_taken(&fetcher);
        debug_assert!(is_taken, "a fetcher has ended that nobody has left");
        self.fetchers.insert(key, fetcher);
    }

    fn spawn(&self, way: Way) -> FetcherHandle {
        // A broker answers one question of a connection at a time.
        let connection = self.number.wrapping_mul(2);
        let connection = connection.wrapping_add(u32::from(way.tells_rack));
        let (fetcher, handle) = Fetcher::new(
            self.client.clone(),
            way.broker,
            Purpose::Fetch(connection),
            self.rack.clone().filter(|_| way.tells_rack),
            self.budget.fetcher(),
            self.homeless.clone(),
        );
        self.spawner.spawn("a fetcher", fetcher.run());
        handle
    }
}

/// The leader of a partition, and the topic's id.
type Found = (Leader, Option<TopicId>);

/// The leader of a lane's partition; None: nobody wants to know any more.
async fn find(client: ClusterClient, lane: Arc<Lane>) -> (Arc<Lane>, Option<Found>) {
    // Who was turned away again and again takes time.
    sleep(lane.pause(rand::random())).await;
    let found = leader_of(&client, &lane).await;
    (lane, found)
}

async fn leader_of(client: &ClusterClient, lane: &Lane) -> Option<Found> {
    loop {
        if lane.reading_at() == Next::Gone {
            return None;
        }
        let deadline = Instant::now() + LEADER_TIME;
        let at = &lane.source;
        let found = match client.leader(at, deadline).await {
            Ok(leader) => client
                .topic(&at.topic, deadline)
                .await
                .map(|topic| (leader, topic.id)),
            Err(fault) => Err(fault),
        };
        match found {
            Ok((_, topic_id)) if !lane.reads_topic(topic_id) => return None,
            Ok(found) => return Some(found),
            Err(fault) if fault.is_retryable() => {
                lane.trouble(Side::Source, Some(&fault.to_string()));
                sleep(AGAIN_AFTER).await;
            }
            Err(fault) => {
                lane.fail(ends::fault(Kind::Source, client, &fault));
                return None;
            }
        }
    }
}
