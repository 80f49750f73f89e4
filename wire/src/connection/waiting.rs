//! Requests that were written, in the order their answers will come.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use kafka_protocol::messages::ApiKey;
use tokio::{
    sync::{Notify, OwnedSemaphorePermit, oneshot},
    time::Instant,
};

use crate::error::Error;

/// Who waits for an answer.
#[derive(Debug)]
pub(super) struct Waiter {
    api: ApiKey,
    pub(super) name: &'static str,
    version: i16,
    pub(super) deadline: Instant,
    answer: oneshot::Sender<Result<Bytes, Error>>,
    /// Frees a place in flight when dropped.
    _flight: Option<OwnedSemaphorePermit>,
}

impl Waiter {
    pub(super) fn new(
        api: ApiKey,
        name: &'static str,
        version: i16,
        deadline: Instant,
        answer: oneshot::Sender<Result<Bytes, Error>>,
        flight: Option<OwnedSemaphorePermit>,
    ) -> Self {
        Self {
            api,
            name,
            version,
            deadline,
            answer,
            _flight: flight,
        }
    }

    /// Version of the header that its answer has.
    pub(super) fn header_version(&self) -> i16 {
        self.api.response_header_version(self.version)
    }

    /// Hands over the answer; nobody may be waiting any more.
    pub(super) fn answer(self, answer: Result<Bytes, Error>) {
        drop(self.answer.send(answer));
    }
}

/// The queue of waiters.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    queue: Mutex<Queue>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    waiters: VecDeque<(i32, Waiter)>,
    /// Set once the connection has ended: nobody will be answered.
    fault: Option<Error>,
    last_used: Option<Instant>,
}

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a waiter; it is answered at once when the connection has ended.
    pub(super) fn push(&self, correlation_id: i32, waiter: Waiter) {
        let mut queue = self.lock();
        if let Some(fault) = queue.fault.clone() {
            drop(queue);
            waiter.answer(Err(fault));
            return;
        }
        queue.last_used = Some(Instant::now());
        queue.waiters.push_back((correlation_id, waiter));
        drop(queue);
        self.changed.notify_one();
    }

    /// Takes the waiter whose answer is next.
    pub(super) fn pop(&self) -> Option<(i32, Waiter)> {
        let mut queue = self.lock();
        queue.last_used = Some(Instant::now());
        queue.waiters.pop_front()
    }

    /// The earliest deadline and whose it is.
    pub(super) fn earliest(&self) -> Option<(Instant, &'static str)> {
        let queue = self.lock();
        let deadlines = queue.waiters.iter();
        deadlines
            .map(|(_, waiter)| (waiter.deadline, waiter.name))
            .min()
    }

    /// Since when nobody waits; None while somebody does, or before the first request.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        let queue = self.lock();
        if queue.waiters.is_empty() {
            queue.last_used
        } else {
            None
        }
    }

    /// Waits until a waiter was added.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Answers everybody, now and later, with `fault`.
    pub(super) fn fail_all(&self, fault: &Error) {
        let mut queue = self.lock();
        queue.fault.get_or_insert_with(|| fault.clone());
        let waiters = std::mem::take(&mut queue.waiters);
        drop(queue);
        for (_, waiter) in waiters {
            waiter.answer(Err(fault.clone()));
        }
    }
}
