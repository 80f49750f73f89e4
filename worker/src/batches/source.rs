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
use tokio_util::task::TaskTracker;

use super::{
    ends,
    fetcher::{Fetcher, FetcherHandle},
    lane::{Lane, Next, Side},
};
use crate::{budget::Budget, fault::Kind};

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
        tracker: TaskTracker,
    ) -> Self {
        let (homeless, lanes) = mpsc::unbounded_channel();
        let router = Router {
            client,
            number,
            rack,
            budget,
            tracker: tracker.clone(),
            homeless: homeless.downgrade(),
            fetchers: HashMap::new(),
            looked_for: HashSet::new(),
        };
        tracker.spawn(router.run(lanes));
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
    tracker: TaskTracker,
    homeless: mpsc::WeakUnboundedSender<Arc<Lane>>,
    fetchers: HashMap<BrokerId, FetcherHandle>,
    /// Numbers of the lanes whose leader is being asked for.
    looked_for: HashSet<u64>,
}

/// Where a lane's partition is read.
struct Place {
    leader: Leader,
    topic_id: Option<TopicId>,
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
                Some((lane, place)) = looking.next(), if !looking.is_empty() => {
                    match place {
                        Some(place) => {
                            self.looked_for.remove(&lane.number);
                            self.assign(&lane, &place);
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

    fn assign(&mut self, lane: &Arc<Lane>, place: &Place) {
        let is_taken =
            |fetcher: &FetcherHandle| fetcher.read(lane, place.topic_id, place.leader.epoch);
        self.fetchers.retain(|_, fetcher| fetcher.is_alive());
        let broker = place.leader.broker;
        if self.fetchers.get(&broker).is_some_and(is_taken) {
            return;
        }
        let fetcher = self.spawn(broker);
        let is_taken = is_taken(&fetcher);
        debug_assert!(is_taken, "a fetcher has ended that nobody has left");
        self.fetchers.insert(broker, fetcher);
    }

    fn spawn(&self, broker: BrokerId) -> FetcherHandle {
        let (fetcher, handle) = Fetcher::new(
            self.client.clone(),
            broker,
            Purpose::Fetch(self.number),
            self.rack.clone(),
            self.budget.reserve(),
            self.homeless.clone(),
        );
        self.tracker.spawn(fetcher.run());
        handle
    }
}

/// The leader of a lane's partition; None: nobody wants to know any more.
async fn find(client: ClusterClient, lane: Arc<Lane>) -> (Arc<Lane>, Option<Place>) {
    let place = leader_of(&client, &lane).await;
    (lane, place)
}

async fn leader_of(client: &ClusterClient, lane: &Lane) -> Option<Place> {
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
            Ok((leader, topic_id)) => return Some(Place { leader, topic_id }),
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
