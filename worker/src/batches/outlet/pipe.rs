//! One connection of an outlet, with what is under way on it.
//!
//! Requests are written in order, and their answers come in that order. When anything goes wrong
//! all that is under way is lost together, and nothing more is sent on this connection.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::{FutureExt as _, StreamExt as _, future::BoxFuture, stream::FuturesOrdered};
use kreplicator_wire::{
    cluster::{ClusterClient, Purpose},
    connection::Connection,
    error::Error,
    produce::{Answer, Request},
    topic::{BrokerId, TopicPartition},
};
use tokio::{sync::mpsc, time::Instant};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::Item;

/// Over the broker's own patience with its replicas.
const ANSWER_TIME: Duration = Duration::from_secs(15);

/// Where a connection leads, and for how long the broker may wait there.
#[derive(Debug, Clone)]
pub(super) struct Destination {
    pub(super) client: ClusterClient,
    pub(super) broker: BrokerId,
    pub(super) purpose: Purpose,
    pub(super) patience: Duration,
}

/// Tells pipes of one outlet apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PipeId {
    /// Its place among the outlet's connections.
    pub(super) place: usize,
    /// Rises with each pipe.
    pub(super) number: u64,
}

/// What happens on a pipe.
#[derive(Debug)]
pub(super) enum News {
    /// The first request that was not written yet is.
    Written,
    /// The oldest request is answered.
    Answered(Answer),
}

/// The end of a pipe.
#[derive(Debug)]
pub(super) struct End {
    pub(super) id: PipeId,
    /// None: nothing more was to be sent.
    pub(super) fault: Option<Error>,
    /// Whether there was a connection.
    pub(super) was_open: bool,
}

/// Ways to tell the outlet.
pub(super) type Teller = mpsc::UnboundedSender<(PipeId, News)>;
type Opened = Arc<Mutex<Option<Connection>>>;

/// A connection and what is under way on it. Dropping it closes the connection, and nothing more is sent.
#[derive(Debug)]
pub(super) struct Pipe {
    pub(super) id: PipeId,
    orders: mpsc::UnboundedSender<Request>,
    opened: Opened,
    _end: DropGuard,
    under_way: VecDeque<Vec<Item>>,
    /// Requests of `under_way` that are written.
    written: usize,
    /// Since when there is nothing for the broker to answer before the oldest request.
    head_since: Option<Instant>,
}

impl Drop for Pipe {
    fn drop(&mut self) {
        if let Some(connection) = &*lock(&self.opened) {
            // The pool must not give it out again: the broker is still busy with what was sent.
            connection.close("given up by its producer");
        }
    }
}

impl Pipe {
    /// A pipe, and what carries its requests; that is to be polled until it ends.
    pub(super) fn new(
        to: Destination,
        id: PipeId,
        news: Teller,
    ) -> (Self, BoxFuture<'static, End>) {
        let (orders, requests) = mpsc::unbounded_channel();
        let opened = Opened::default();
        let end = CancellationToken::new();
        let pipe = Self {
            id,
            orders,
            opened: Arc::clone(&opened),
            _end: end.clone().drop_guard(),
            under_way: VecDeque::new(),
            written: 0,
            head_since: None,
        };
        let carrying = async move {
            let fault = tokio::select! {
                biased;
                // First: what was given but not sent counts as lost by now.
                () = end.cancelled() => None,
                fault = carry(&to, id, requests, &news, &opened) => fault.err(),
            };
            let was_open = lock(&opened).is_some();
            End {
                id,
                fault,
                was_open,
            }
        };
        (pipe, carrying.boxed())
    }

    /// Sends a request that holds these.
    pub(super) fn send(&mut self, items: Vec<Item>, request: Request) {
        self.under_way.push_back(items);
        // An end is told by the carrier.
        drop(self.orders.send(request));
    }

    /// Whether another request may be sent: `requests_max` may be under way. While one is being written,
    /// batches gather for the next.
    pub(super) fn has_room(&self, requests_max: usize) -> bool {
        self.written == self.under_way.len() && self.written < requests_max
    }

    pub(super) fn is_idle(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Partitions of all requests.
    pub(super) fn partitions(&self) -> impl Iterator<Item = &TopicPartition> {
        self.under_way
            .iter()
            .flatten()
            .map(|item| &item.lane.target)
    }

    pub(super) fn note_written(&mut self, now: Instant) {
        self.written = (self.written + 1).min(self.under_way.len());
        if self.written == 1 {
            self.head_since = Some(now);
        }
    }

    /// The oldest request is answered: its batches, and how long the broker took.
    pub(super) fn note_answered(&mut self, now: Instant) -> (Vec<Item>, Duration) {
        let items = self.under_way.pop_front().unwrap_or_default();
        self.written = self.written.saturating_sub(1);
        let since = self.head_since.take();
        self.head_since = (self.written > 0).then_some(now);
        (items, since.map_or(Duration::ZERO, |since| now - since))
    }

    /// Gives the pipe up, with everything that is under way.
    pub(super) fn give_up(mut self) -> Vec<Item> {
        std::mem::take(&mut self.under_way)
            .into_iter()
            .flatten()
            .collect()
    }
}

/// Carries requests until nobody can give any more, or until something goes wrong.
async fn carry(
    to: &Destination,
    id: PipeId,
    mut requests: mpsc::UnboundedReceiver<Request>,
    news: &Teller,
    opened: &Opened,
) -> Result<(), Error> {
    let mut sent = FuturesOrdered::new();
    loop {
        tokio::select! {
            biased;
            Some(answer) = sent.next(), if !sent.is_empty() => {
                // Nobody listens when the outlet has ended.
                drop(news.send((id, News::Answered(answer?))));
            }
            request = requests.recv() => {
                let Some(request) = request else {
                    return Ok(());
                };
                let deadline = Instant::now() + to.patience + ANSWER_TIME;
                // One that was closed for want of use is replaced, but not under what is on it.
                let current = lock(opened).clone();
                let connection = match current {
                    Some(connection) if !sent.is_empty() => connection,
                    _ => {
                        *lock(opened) = None;
                        let connection = to.client.connection(to.broker, to.purpose, deadline).await?;
                        *lock(opened) = Some(connection.clone());
                        connection
                    }
                };
                let in_flight = request.submit(&connection, deadline).await?;
                sent.push_back(in_flight.answer());
                drop(news.send((id, News::Written)));
            }
        }
    }
}

fn lock(opened: &Opened) -> std::sync::MutexGuard<'_, Option<Connection>> {
    opened.lock().unwrap_or_else(PoisonError::into_inner)
}
