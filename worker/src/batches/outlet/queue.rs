//! Batches that wait to be sent, and the requests that are made of them.

use std::{
    collections::{HashSet, VecDeque},
    time::Duration,
};

use bytes::Bytes;
use kreplicator_wire::{
    produce::{self, Request},
    topic::TopicPartition,
};

use super::Item;

/// Bytes of records in one request, unless one batch alone has more.
pub(super) const REQUEST_BYTES_MAX: usize = 1 << 20;

/// Waiting batches in the order they came.
#[derive(Debug, Default)]
pub(super) struct Queue {
    items: VecDeque<Item>,
}

impl Queue {
    pub(super) fn push(&mut self, item: Item) {
        self.items.push_back(item);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub(super) fn retain(&mut self, keeps: impl FnMut(&Item) -> bool) {
        self.items.retain(keeps);
    }

    pub(super) fn take_all(&mut self) -> VecDeque<Item> {
        std::mem::take(&mut self.items)
    }

    /// Takes the batches of some partitions, in their order.
    pub(super) fn take_of(&mut self, is_wanted: impl Fn(&TopicPartition) -> bool) -> Vec<Item> {
        let (taken, kept): (Vec<_>, Vec<_>) = std::mem::take(&mut self.items)
            .into_iter()
            .partition(|item| is_wanted(&item.lane.target));
        self.items = kept.into();
        taken
    }

    /// The next request: one batch of each partition, in the order of waiting. `patience`: how long the broker
    /// may wait for its replicas. None: nothing waits.
    pub(super) fn gather(&mut self, patience: Duration) -> Option<(Vec<Item>, Request)> {
        let mut request = Request::new(patience);
        let mut items = Vec::new();
        let mut seen: HashSet<TopicPartition> = HashSet::new();
        let mut rest = VecDeque::with_capacity(self.items.len());
        let mut bytes = 0;
        while let Some(item) = self.items.pop_front() {
            let size: usize = item.parts.iter().map(Bytes::len).sum();
            let fits = items.is_empty() || bytes + size <= REQUEST_BYTES_MAX;
            let at = &item.lane.target;
            // Those behind a batch that has to wait wait too, or they would overtake it.
            if !fits || seen.contains(at) {
                seen.insert(at.clone());
                rest.push_back(item);
                continue;
            }
            seen.insert(at.clone());
            let batch = produce::Batch {
                topic: at.topic.clone(),
                topic_id: item.topic_id,
                partition: at.partition,
                records: item.parts.to_vec(),
            };
            match request.add(batch) {
                Ok(()) => {
                    bytes += size;
                    items.push(item);
                }
                Err(_) => rest.push_back(item),
            }
        }
        self.items = rest;
        (!items.is_empty()).then_some((items, request))
    }
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
