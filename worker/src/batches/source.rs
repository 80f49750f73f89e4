//! The source of a link: one fetcher for each broker that leads anything, and the task that finds out
//! which that is.

use std::{collections::HashMap, sync::Arc, time::Duration};

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
    lane::{Lane, Side},
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
}

impl Router {
    async fn run(mut self, mut lanes: mpsc::UnboundedReceiver<Arc<Lane>>) {
        let mut looking = FuturesUnordered::new();
        loop {
            tokio::select! {
                lane = lanes.recv() => match lane {
                    Some(lane) => looking.push(find(self.client.clone(), lane)),
                    None => return,
                },
                Some(found) = looking.next(), if !looking.is_empty() => {
                    if let Some((lane, leader, topic_id)) = found {
                        self.assign(&lane, leader, topic_id);
                    }
                }
            }
        }
    }

    fn assign(&mut self, lane: &Arc<Lane>, leader: Leader, topic_id: Option<TopicId>) {
        self.fetchers.retain(|_, fetcher| fetcher.is_alive());
        let fetcher = match self.fetchers.get(&leader.broker) {
            Some(fetcher) => fetcher.clone(),
            None => {
                let Some(homeless) = self.homeless.upgrade() else {
                    return;
                };
                let (fetcher, handle) = Fetcher::new(
                    self.client.clone(),
                    leader.broker,
                    Purpose::Fetch(self.number),
                    self.rack.clone(),
                    self.budget.reserve(),
                    homeless.downgrade(),
                );
                self.tracker.spawn(fetcher.run());
                self.fetchers.insert(leader.broker, handle.clone());
                handle
            }
        };
        fetcher.read(lane, topic_id, leader.epoch);
    }
}

/// The leader of a lane's partition; None: nobody wants to know any more.
async fn find(
    client: ClusterClient,
    lane: Arc<Lane>,
) -> Option<(Arc<Lane>, Leader, Option<TopicId>)> {
    loop {
        lane.reading_at()?;
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
            Ok((leader, topic_id)) => return Some((lane, leader, topic_id)),
            Err(fault) if fault.is_retryable() => {
                lane.trouble(Side::Source, Some(&fault.to_string()));
                sleep(AGAIN_AFTER).await;
            }
            Err(fault) => {
                lane.fail(ends::fault(Kind::Source, &client, &fault));
                return None;
            }
        }
    }
}
