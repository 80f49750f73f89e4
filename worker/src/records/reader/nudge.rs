//! Wakes the library's fetcher.
//!
//! A partition that is opened or resumed is fetched when its broker's thread next looks, and with
//! nothing else to do that thread sleeps for up to a second; nothing tells it. A request to the broker
//! does wake it, so one is made: where the log ends, of which the answer is not needed. On a thread of
//! its own, since it waits for the answer; what comes meanwhile goes with the next one.

use std::{
    collections::BTreeSet,
    sync::{Arc, Condvar, Mutex, PoisonError, Weak},
    thread,
    time::Duration,
};

use rdkafka::{
    TopicPartitionList,
    consumer::{BaseConsumer, Consumer as _},
};

use super::client::Events;

/// Longest wait for an answer. One that does not come has done its work all the same.
const ANSWER_TIME: Duration = Duration::from_secs(2);

/// Wakes the fetcher for partitions.
pub(super) struct Nudger(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    /// Bounded by the partitions that are open.
    partitions: BTreeSet<(String, i32)>,
    ended: bool,
}

impl Nudger {
    /// Starts the thread; it ends when this value is dropped, or sooner with the consumer.
    pub(super) fn start(
        name: String,
        consumer: Weak<BaseConsumer<Events>>,
    ) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            wake: Condvar::new(),
        });
        let served = Arc::clone(&shared);
        thread::Builder::new()
            .name(name)
            .spawn(move || serve(&served, &consumer))?;
        Ok(Self(shared))
    }

    /// Has these partitions looked at soon.
    pub(super) fn nudge(&self, list: &TopicPartitionList) {
        let elements = list.elements();
        if elements.is_empty() {
            return;
        }
        let mut state = self.0.lock();
        for element in elements {
            let place = (element.topic().to_owned(), element.partition());
            state.partitions.insert(place);
        }
        drop(state);
        self.0.wake.notify_one();
    }
}

impl Drop for Nudger {
    fn drop(&mut self) {
        self.0.lock().ended = true;
        self.0.wake.notify_one();
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn serve(shared: &Shared, consumer: &Weak<BaseConsumer<Events>>) {
    loop {
        let partitions = {
            let mut state = shared
                .wake
                .wait_while(shared.lock(), |state| {
                    state.partitions.is_empty() && !state.ended
                })
                .unwrap_or_else(PoisonError::into_inner);
            if state.ended {
                return;
            }
            std::mem::take(&mut state.partitions)
        };
        let Some(consumer) = consumer.upgrade() else {
            return;
        };
        let mut list = TopicPartitionList::with_capacity(partitions.len());
        for (topic, partition) in &partitions {
            let end = rdkafka::Offset::End;
            if list.add_partition_offset(topic, *partition, end).is_err() {
                return;
            }
        }
        // The asking alone wakes the broker's thread.
        drop(consumer.offsets_for_times(list, ANSWER_TIME));
    }
}
