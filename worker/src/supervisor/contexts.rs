//! What is the same for all tasks of a link, put together from the stored links and clusters.
//!
//! A link or cluster that was deleted or cannot be read ends nothing here: tasks run on with what
//! they were started with until the controller takes them away.

use std::{collections::BTreeMap, sync::Arc};

use kreplicator_model::{
    ids::{ClusterId, LinkId},
    spec::{CheckpointSide, Cluster, Link},
};
use kreplicator_proto::stored::{Stored, Unreadable};
use kreplicator_store::{Change, keys};

use crate::engine::LinkContext;

/// The links that tasks can be started for.
#[derive(Debug, Default)]
pub(super) struct Contexts {
    clusters: BTreeMap<ClusterId, Cluster>,
    links: BTreeMap<LinkId, Link>,
    whole: BTreeMap<LinkId, Arc<LinkContext>>,
}

impl Contexts {
    /// Takes in one change of a key under [`keys::CLUSTERS`] or [`keys::LINKS`].
    ///
    /// # Errors
    /// [`Unreadable`]; what was there before stays.
    pub(super) fn apply(&mut self, change: &Change) -> Result<(), Unreadable> {
        if let Some(name) = change.key.strip_prefix(keys::CLUSTERS) {
            match &change.after {
                Some(entry) => {
                    let cluster = Cluster::decode(&change.key, &entry.value)?;
                    self.clusters.insert(cluster.id.clone(), cluster);
                }
                None => {
                    self.clusters.remove(name);
                }
            }
        } else if let Some(name) = change.key.strip_prefix(keys::LINKS) {
            match &change.after {
                Some(entry) => {
                    let link = Link::decode(&change.key, &entry.value)?;
                    self.links.insert(link.id.clone(), link);
                }
                None => {
                    self.links.remove(name);
                }
            }
        }
        Ok(())
    }

    /// Puts the contexts together anew after changes. A context is replaced only by one that running
    /// tasks have to be started anew for: nothing pauses that need not, and tasks of a link share
    /// their clients.
    pub(super) fn refresh(&mut self) {
        let mut whole = BTreeMap::new();
        for (id, link) in &self.links {
            let source = self.clusters.get(&link.source);
            let target = self.clusters.get(&link.target);
            let Some((source, target)) = source.zip(target) else {
                continue;
            };
            let context = LinkContext {
                link: link.clone(),
                source: source.clone(),
                target: target.clone(),
            };
            let same = self
                .whole
                .get(id)
                .filter(|before| !needs_restart(before, &context));
            let context = same.cloned().unwrap_or_else(|| Arc::new(context));
            whole.insert(id.clone(), context);
        }
        self.whole = whole;
    }

    /// The context of a link; None: it is not known, or one of its clusters is not.
    pub(super) fn get(&self, link: &LinkId) -> Option<&Arc<LinkContext>> {
        self.whole.get(link)
    }
}

/// Whether a task that was started with one context has to be started anew to follow another. What
/// reaches a task by its assignment (names, start) or concerns only the controller (pausing, making
/// topics) does not count: nothing pauses that need not.
fn needs_restart(running: &LinkContext, wanted: &LinkContext) -> bool {
    // There checkpoints go by the names of target topics.
    let is_kept_by_name = wanted.link.checkpoint_on == CheckpointSide::Target;
    (is_kept_by_name && running.link.naming != wanted.link.naming)
        || running.source != wanted.source
        || running.target != wanted.target
        || running.link.on_gap != wanted.link.on_gap
        || running.link.checkpoint_on != wanted.link.checkpoint_on
        || running.link.engine() != wanted.link.engine()
}

#[cfg(test)]
mod tests {
    use kreplicator_model::spec::{Engine, GapPolicy, Naming, Security, StartPolicy, TargetTopics};
    use kreplicator_store::{Entry, Revision};

    use super::*;

    fn cluster(name: &str, server: &str) -> Cluster {
        Cluster {
            id: ClusterId::new(name).expect("legal"),
            bootstrap_servers: vec![server.to_owned()],
            security: Security::default(),
            client_options: BTreeMap::new(),
            expected_cluster_id: None,
        }
    }

    fn link() -> Link {
        Link {
            id: LinkId::new("a-b").expect("legal"),
            source: ClusterId::new("a").expect("legal"),
            target: ClusterId::new("b").expect("legal"),
            naming: Naming::default(),
            start: StartPolicy::Earliest,
            on_gap: GapPolicy::ContinueAndReport,
            checkpoint_on: CheckpointSide::Source,
            target_topics: TargetTopics::default(),
            paused: false,
            engine: None,
        }
    }

    fn change(key: String, value: Option<Vec<u8>>) -> Change {
        let after = value.map(|value| Entry {
            value,
            create_revision: Revision(1),
            mod_revision: Revision(2),
            lease: None,
        });
        Change {
            key,
            before: None,
            after,
        }
    }

    fn put_cluster(contexts: &mut Contexts, cluster: &Cluster) {
        let change = change(keys::cluster(&cluster.id), Some(cluster.encode()));
        contexts.apply(&change).expect("readable");
        contexts.refresh();
    }

    fn put_link(contexts: &mut Contexts, link: &Link) {
        let change = change(keys::link(&link.id), Some(link.encode()));
        contexts.apply(&change).expect("readable");
        contexts.refresh();
    }

    fn full() -> Contexts {
        let mut contexts = Contexts::default();
        put_link(&mut contexts, &link());
        put_cluster(&mut contexts, &cluster("a", "a:9092"));
        assert!(contexts.get(&link().id).is_none(), "the target is missing");
        put_cluster(&mut contexts, &cluster("b", "b:9092"));
        contexts
    }

    #[test]
    fn a_context_is_there_once_link_and_both_clusters_are() {
        let mut contexts = full();
        let before = Arc::clone(contexts.get(&link().id).expect("whole"));
        put_cluster(&mut contexts, &cluster("c", "c:9092"));
        let after = contexts.get(&link().id).expect("whole");
        assert!(
            Arc::ptr_eq(&before, after),
            "unrelated changes leave it alone"
        );
        let gone = change(keys::cluster(&cluster("a", "").id), None);
        contexts.apply(&gone).expect("a deletion needs no reading");
        contexts.refresh();
        assert!(contexts.get(&link().id).is_none());
    }

    #[test]
    fn what_cannot_be_read_leaves_what_was() {
        let mut contexts = full();
        let torn = change(keys::link(&link().id), Some(vec![0xff]));
        contexts.apply(&torn).expect_err("unreadable");
        contexts.refresh();
        assert!(contexts.get(&link().id).is_some());
    }

    #[test]
    fn only_what_a_task_uses_restarts_it() {
        let mut contexts = full();
        let before = Arc::clone(contexts.get(&link().id).expect("whole"));
        let mut after = |link: &Link| {
            put_link(&mut contexts, link);
            Arc::clone(contexts.get(&link.id).expect("whole"))
        };
        let harmless = Link {
            paused: true,
            start: StartPolicy::Latest,
            naming: Naming {
                prefix: "x.".to_owned(),
                ..Naming::default()
            },
            target_topics: TargetTopics {
                refuse_grow: true,
                ..TargetTopics::default()
            },
            ..link()
        };
        assert!(Arc::ptr_eq(&before, &after(&harmless)));
        let halting = Link {
            on_gap: GapPolicy::Halt,
            ..link()
        };
        let halted = after(&halting);
        assert_ne!(before, halted);
        let on = |engine| Link {
            engine,
            ..halting.clone()
        };
        let default = after(&on(Some(Engine::DEFAULT)));
        assert!(
            Arc::ptr_eq(&halted, &default),
            "naming the default changes nothing"
        );
        let on_records = after(&on(Some(Engine::Records)));
        assert_ne!(halted, on_records, "another engine is another data path");
        assert_eq!(*after(&halting), *halted);
        put_cluster(&mut contexts, &cluster("b", "b-2:9092"));
        let moved = contexts.get(&link().id).expect("whole");
        assert_ne!(halted, *moved, "a new address is followed");
    }
}
