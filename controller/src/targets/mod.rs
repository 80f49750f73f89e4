//! Target topics: each is there, with enough partitions and its settings known, before the first
//! record is written to it (C064, C066, C067, C068).
//!
//! Every link has a task of its own (`keeper`) that compares what the link wants with what discovery
//! sees on its target, and acts: creates, grows, reads settings, in batches (`calls`). A link whose source
//! or target does not answer delays itself alone. What is to be done about a topic is decided
//! in `decide`, with which settings in `settings`; both are pure.

mod budget;
mod calls;
mod decide;
mod keeper;
mod settings;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use kreplicator_model::{
    ids::{LinkId, LinkTopic, TopicName},
    spec::Link,
    target_limits::TargetLimits,
};
use tokio::sync::{Notify, watch};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::discovery::{ClusterTopics, Discovery};
use budget::Budgets;
use keeper::Keeper;

/// How long and how often target clusters are asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Longest wait for one answer.
    pub timeout: Duration,
    /// Time between looks at the settings of a topic that is in order.
    pub check_interval: Duration,
}

/// What a link wants of its target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkWants {
    /// The link.
    pub link: Link,
    /// The topics that shall run.
    pub topics: BTreeMap<LinkTopic, Want>,
    /// The target's topics as seen by whoever wants; a difference means that it is time to look again.
    pub seen: Option<Arc<ClusterTopics>>,
}

/// One topic that shall run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Want {
    /// Its name on the target.
    pub target_topic: TopicName,
    /// Partitions on the source.
    pub partitions: i32,
    /// The target topic was there once: when it is missing, it was deleted.
    pub verified_before: bool,
}

/// What is known of the target topic of a topic.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TargetState {
    /// Partitions that may be written to; None: not looked at yet.
    pub partitions: Option<i32>,
    /// What it refuses; None: not looked at yet.
    pub limits: Option<TargetLimits>,
    /// What is wrong with it.
    pub problem: Option<TargetProblem>,
    /// What deserves a warning, written to follow the topic's name.
    pub note: Option<String>,
}

/// What is wrong with a target topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetProblem {
    /// Names the thing and the remedy.
    pub message: String,
    /// What runs must stop; otherwise only what does not run yet waits.
    pub stops: bool,
}

/// Looks after the target topics of all links.
#[derive(Debug)]
pub struct Targets {
    settings: Settings,
    discovery: Discovery,
    states: Arc<States>,
    budgets: Budgets,
    keepers: BTreeMap<LinkId, Kept>,
    tasks: TaskTracker,
    cancel: CancellationToken,
}

#[derive(Debug)]
struct Kept {
    wants: watch::Sender<Arc<LinkWants>>,
    cancel: CancellationToken,
}

/// What the keepers found, shared with whoever wants.
#[derive(Debug)]
struct States {
    found: Mutex<BTreeMap<LinkTopic, TargetState>>,
    changed: Arc<Notify>,
}

impl Targets {
    /// Looks after nothing yet. `changed` is told whenever a state differs. Tasks run on `tasks` until
    /// `cancel` fires.
    #[must_use]
    pub fn new(
        settings: Settings,
        discovery: Discovery,
        changed: Arc<Notify>,
        tasks: TaskTracker,
        cancel: CancellationToken,
    ) -> Self {
        Self {
            settings,
            discovery,
            states: Arc::new(States {
                found: Mutex::default(),
                changed,
            }),
            budgets: Budgets::default(),
            keepers: BTreeMap::new(),
            tasks,
            cancel,
        }
    }

    /// Looks after exactly these links' topics.
    pub fn want(&mut self, wants: BTreeMap<LinkId, LinkWants>) {
        self.keepers.retain(|id, kept| {
            let stays = wants.get(id).is_some_and(|wanted| {
                let before = kept.wants.borrow();
                before.link.source == wanted.link.source && before.link.target == wanted.link.target
            });
            if !stays {
                kept.cancel.cancel();
                self.states.forget(id);
            }
            stays
        });
        for (id, wanted) in wants {
            match self.keepers.get(&id) {
                Some(kept) => {
                    kept.wants.send_if_modified(|before| {
                        let differs = **before != wanted;
                        if differs {
                            *before = Arc::new(wanted);
                        }
                        differs
                    });
                }
                None => {
                    let kept = self.start(wanted);
                    self.keepers.insert(id, kept);
                }
            }
        }
    }

    fn start(&self, wanted: LinkWants) -> Kept {
        let share = self.budgets.share(&wanted.link.target, &wanted.link.id);
        let (sender, receiver) = watch::channel(Arc::new(wanted));
        let cancel = self.cancel.child_token();
        let keeper = Keeper::new(
            self.settings,
            self.discovery.clone(),
            receiver,
            Arc::clone(&self.states),
            share,
            cancel.clone(),
        );
        self.tasks.spawn(keeper.run());
        Kept {
            wants: sender,
            cancel,
        }
    }

    /// What is known of every topic that was looked at.
    #[must_use]
    pub fn states(&self) -> BTreeMap<LinkTopic, TargetState> {
        self.states.lock().clone()
    }
}

impl States {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<LinkTopic, TargetState>> {
        // Whole after every statement, whoever panicked.
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn forget(&self, link: &LinkId) {
        self.lock().retain(|topic, _| topic.link != *link);
    }

    /// Puts what one keeper knows in place of what it knew, unless it was told to stop: by then
    /// another one may look after the link.
    fn replace(
        &self,
        link: &LinkId,
        states: BTreeMap<LinkTopic, TargetState>,
        cancel: &CancellationToken,
    ) {
        let mut found = self.lock();
        if cancel.is_cancelled() {
            return;
        }
        let before: BTreeMap<_, _> = found
            .extract_if(.., |topic, _| topic.link == *link)
            .collect();
        let differs = before != states;
        found.extend(states);
        drop(found);
        if differs {
            self.changed.notify_one();
        }
    }
}
