//! When a subscription's first discovery pass is over: what appears from then on is new and is read from
//! its beginning (C006).

use std::collections::BTreeMap;

use kreplicator_model::ids::{ClusterId, LinkId};

use super::book::Book;
use crate::discovery::{Discovery, Snapshot};

/// Remembers the look that was asked for when a subscription was first seen.
#[derive(Debug, Default)]
pub(crate) struct FirstLooks {
    tickets: BTreeMap<(LinkId, String), u64>,
}

impl FirstLooks {
    /// Subscriptions whose source was looked at with success since they were first seen. The others'
    /// sources are asked for a look.
    pub(crate) fn over(
        &mut self,
        book: &Book,
        discovery: &Discovery,
        snapshot: &Snapshot,
    ) -> Vec<(LinkId, String)> {
        self.tickets.retain(|id, _| {
            let known = book.subscriptions.get(id);
            known.is_some_and(|(record, _)| !record.baseline)
        });
        let mut asked: BTreeMap<&ClusterId, u64> = BTreeMap::new();
        let mut over = Vec::new();
        for (id, (record, _)) in &book.subscriptions {
            if record.baseline {
                continue;
            }
            let Some(link) = book.desired.links.get(&id.0) else {
                continue;
            };
            if let Some(ticket) = self.tickets.get(id) {
                let source = snapshot.get(&link.source);
                if source.is_some_and(|source| source.succeeded >= *ticket) {
                    over.push(id.clone());
                }
                continue;
            }
            let known = asked.get(&link.source).copied();
            if let Some(ticket) = known.or_else(|| discovery.ask(&link.source)) {
                asked.insert(&link.source, ticket);
                self.tickets.insert(id.clone(), ticket);
            }
        }
        over
    }
}
