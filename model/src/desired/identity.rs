//! Which of our cluster names stand for the same Kafka cluster.

use std::collections::BTreeMap;

use crate::{ids::ClusterId, spec::Cluster};

/// Cluster names grouped by the Kafka cluster that they stand for: those that share an address, or
/// that are pinned to the same id of Kafka's. One cluster may well have two names, for two users say;
/// it must not be mistaken for two.
#[derive(Debug, Clone, Default)]
pub struct Identities {
    same_as: BTreeMap<ClusterId, ClusterId>,
}

impl Identities {
    /// Groups clusters by what their settings give away.
    #[must_use]
    pub fn of(clusters: &BTreeMap<ClusterId, Cluster>) -> Self {
        let mut identities = Self::default();
        let mut owners: BTreeMap<String, &ClusterId> = BTreeMap::new();
        for (id, cluster) in clusters {
            let addresses = cluster.bootstrap_servers.iter();
            let addresses = addresses.map(|address| address.trim().to_ascii_lowercase());
            let pinned = cluster.expected_cluster_id.iter();
            // A slash occurs in no address.
            let marks = addresses.chain(pinned.map(|id| format!("/{id}")));
            for mark in marks {
                let owner = *owners.entry(mark).or_insert(id);
                identities.join(owner, id);
            }
        }
        identities
    }

    /// The name that stands for the Kafka cluster behind `id`: the first of its names.
    #[must_use]
    pub fn get<'a>(&'a self, id: &'a ClusterId) -> &'a ClusterId {
        self.same_as.get(id).unwrap_or(id)
    }

    /// Whether two names stand for the same Kafka cluster.
    #[must_use]
    pub fn are_same(&self, a: &ClusterId, b: &ClusterId) -> bool {
        self.get(a) == self.get(b)
    }

    fn join(&mut self, a: &ClusterId, b: &ClusterId) {
        let (a, b) = (self.get(a).clone(), self.get(b).clone());
        if a == b {
            return;
        }
        let (first, other) = if a < b { (a, b) } else { (b, a) };
        for same in self.same_as.values_mut().filter(|same| **same == other) {
            *same = first.clone();
        }
        self.same_as.insert(other, first);
    }
}
