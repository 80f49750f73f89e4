//! What a change of the desired state comes to, for people: created, updated and deleted things, each
//! field with its value before and after. Pure.

use std::collections::BTreeMap;

use kreplicator_model::desired::Desired;
use kreplicator_proto::v1::{self, change::Action};

use super::fields::{self, Fields};

/// The changes from one desired state to another, in the order in which they are made: clusters, links,
/// subscriptions, then deletions the other way round.
pub(crate) fn diff(before: &Desired, after: &Desired) -> Vec<v1::Change> {
    let cluster_id = ToString::to_string;
    let link_id = ToString::to_string;
    let clusters = Kind {
        name: "cluster",
        before: &before.clusters,
        after: &after.clusters,
        id: cluster_id,
        fields: fields::of_cluster,
    };
    let links = Kind {
        name: "link",
        before: &before.links,
        after: &after.links,
        id: link_id,
        fields: fields::of_link,
    };
    let subscriptions = Kind {
        name: "subscription",
        before: &before.subscriptions,
        after: &after.subscriptions,
        id: |(link, id): &(_, String)| format!("{link}/{id}"),
        fields: fields::of_subscription,
    };
    let mut changes = clusters.puts();
    changes.extend(links.puts());
    changes.extend(subscriptions.puts());
    changes.extend(subscriptions.deletes());
    changes.extend(links.deletes());
    changes.extend(clusters.deletes());
    changes
}

/// One kind of thing in both states.
struct Kind<'a, K, V, I> {
    name: &'static str,
    before: &'a BTreeMap<K, V>,
    after: &'a BTreeMap<K, V>,
    id: I,
    fields: fn(&V) -> Fields,
}

impl<K: Ord, V: PartialEq, I: Fn(&K) -> String> Kind<'_, K, V, I> {
    fn puts(&self) -> Vec<v1::Change> {
        let mut changes = Vec::new();
        for (key, value) in self.after {
            let old = self.before.get(key);
            if old == Some(value) {
                continue;
            }
            let action = match old {
                Some(_) => Action::Update,
                None => Action::Create,
            };
            let before = old.map(self.fields).unwrap_or_default();
            let fields = field_changes(&before, &(self.fields)(value));
            changes.push(self.change(action, key, fields));
        }
        changes
    }

    fn deletes(&self) -> Vec<v1::Change> {
        self.before
            .keys()
            .filter(|key| !self.after.contains_key(key))
            .map(|key| self.change(Action::Delete, key, Vec::new()))
            .collect()
    }

    fn change(&self, action: Action, key: &K, fields: Vec<v1::FieldChange>) -> v1::Change {
        v1::Change {
            action: action.into(),
            kind: self.name.to_owned(),
            id: (self.id)(key),
            fields,
        }
    }
}

fn field_changes(before: &Fields, after: &Fields) -> Vec<v1::FieldChange> {
    let mut paths: Vec<&String> = before.keys().chain(after.keys()).collect();
    paths.sort_unstable();
    paths.dedup();
    paths
        .into_iter()
        .filter(|path| before.get(*path) != after.get(*path))
        .map(|path| v1::FieldChange {
            path: path.clone(),
            before: before.get(path).cloned().unwrap_or_default(),
            after: after.get(path).cloned().unwrap_or_default(),
        })
        .collect()
}

#[cfg(test)]
mod tests;
