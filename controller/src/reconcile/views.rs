//! The leader's views of the store.

use std::{sync::Arc, time::Duration};

use kreplicator_store::{
    api::{Entry, MetaStore},
    keys,
    view::{Delta, Health, View, ViewOptions},
};
use tokio_util::sync::CancellationToken;

use super::{
    book::{Book, Snapshots},
    plan_book::PLAN,
};

/// Live workers and drain requests.
const WORKERS: &str = "worker/";

/// Everything of the store that a leader follows.
#[derive(Debug)]
pub(crate) struct Views {
    config: View,
    workers: View,
    records: View,
    plan: View,
    owned: View,
    drift: u64,
}

impl Views {
    /// Begins to follow. Opened after the election, so the plan read is the last one before this leader's.
    pub(crate) fn open(store: &Arc<dyn MetaStore>, cancel: &CancellationToken) -> Self {
        let open = |prefix: &str| {
            View::open(
                Arc::clone(store),
                prefix,
                ViewOptions::default(),
                cancel.clone(),
            )
        };
        Self {
            config: open(keys::CONFIG),
            workers: open(WORKERS),
            records: open(keys::TOPIC_RECORDS),
            plan: open(PLAN),
            owned: open(keys::OWNED),
            drift: 0,
        }
    }

    /// Waits for the first snapshots.
    pub(crate) async fn load(&mut self) -> Book {
        tokio::join!(
            self.config.next(),
            self.workers.next(),
            self.records.next(),
            self.plan.next(),
            self.owned.next(),
        );
        Book::load(&Snapshots {
            config: self.config.entries(),
            workers: self.workers.entries(),
            records: self.records.entries(),
            plan: self.plan.entries(),
            plan_revision: self.plan.revision(),
            owned: self.owned.entries(),
        })
    }

    /// Waits for news and enters them into the book. Cancel safe.
    pub(crate) async fn follow(&mut self, book: &mut Book) {
        tokio::select! {
            delta = self.workers.next() => each(&delta, |key, after| book.worker_changed(key, after)),
            delta = self.owned.next() => each(&delta, |key, after| book.owned_changed(key, after)),
            delta = self.config.next() => each(&delta, |key, after| book.config_changed(key, after)),
            delta = self.records.next() => each(&delta, |key, after| book.record_changed(key, after)),
            delta = self.plan.next() => {
                for change in &delta.changes {
                    book.plan_changed(change, self.plan.revision());
                }
            }
        }
    }

    /// What is wrong with following the store, and for how long; None: nothing.
    pub(crate) fn fault(&self) -> Option<(String, Duration)> {
        let views = [
            &self.workers,
            &self.owned,
            &self.config,
            &self.records,
            &self.plan,
        ];
        let mut unsynced = views
            .into_iter()
            .map(View::health)
            .filter(|health| !health.synced);
        unsynced.next().map(|Health { error, since, .. }| {
            let cause = error.unwrap_or_else(|| "reading it anew".to_owned());
            (cause, since.elapsed())
        })
    }

    /// Keys found to differ since the last question though the watch ran.
    pub(crate) fn new_drift(&mut self) -> u64 {
        let views = [
            &self.workers,
            &self.owned,
            &self.config,
            &self.records,
            &self.plan,
        ];
        let total = views.into_iter().map(View::drift_total).sum();
        let new = total - self.drift;
        self.drift = total;
        new
    }
}

fn each(delta: &Delta, mut take: impl FnMut(&str, Option<&Entry>)) {
    for change in &delta.changes {
        take(&change.key, change.after.as_ref());
    }
}
