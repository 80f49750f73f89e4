//! One connection to one broker: requests go out in the order they are submitted, many before the
//! first answer, and answers come back in that order, as brokers promise.
//!
//! Two tasks own the halves of the stream ([`writer`], [`reader`]); handles talk to them by a queue
//! that is limited in bytes. A request whose deadline passes ends the connection, because from
//! then on nobody knows which answer belongs to whom; all who wait get the same error. The tasks
//! end when the last handle is dropped.

mod pending;
mod reader;
mod waiting;
mod writer;

#[cfg(test)]
mod tests;

use std::{
    fmt,
    future::Future,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::{AcquireError, OwnedSemaphorePermit, Semaphore, mpsc, oneshot},
    time::{Instant, timeout_at},
};
use tokio_util::sync::CancellationToken;

pub use self::pending::Pending;
use self::{
    waiting::{Waiter, Waiting},
    writer::{Claim, Submission},
};
use crate::{
    call::Call, error::Error, parts::Parts, settings::Limits, tasks::Tasks,
    versions::BrokerVersions,
};

/// A stream to a broker, encrypted or not.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Stream for T {}

/// A connection. Clones are the same connection; it ends with the last of them.
#[derive(Clone)]
pub struct Connection {
    handle: Arc<Handle>,
}

/// What ends the tasks when dropped.
struct Handle {
    shared: Arc<Shared>,
    versions: OnceLock<BrokerVersions>,
    requests: mpsc::UnboundedSender<Submission>,
    /// Requests that pass a held queue: authentication.
    privileged: mpsc::UnboundedSender<Submission>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.end(|broker| Error::Disconnected {
            broker,
            cause: "no longer used".to_owned(),
        });
    }
}

/// What handles and tasks share.
pub(crate) struct Shared {
    broker: Arc<str>,
    limits: Limits,
    ended: CancellationToken,
    fault: OnceLock<Error>,
    waiting: Waiting,
    /// Bytes that may wait to be written.
    queue_bytes: Arc<Semaphore>,
    /// Requests that may wait for an answer.
    in_flight: Arc<Semaphore>,
    /// Nothing is written before (KIP-219).
    silent_until: Mutex<Option<Instant>>,
    /// Ordinary requests wait while it is set.
    held: AtomicBool,
    released: tokio::sync::Notify,
}

impl Shared {
    /// Ends the connection; the first cause is kept and told to all who wait.
    fn end(&self, cause: impl FnOnce(Arc<str>) -> Error) {
        let fault = self
            .fault
            .get_or_init(|| cause(Arc::clone(&self.broker)))
            .clone();
        self.ended.cancel();
        self.queue_bytes.close();
        self.in_flight.close();
        self.waiting.fail_all(&fault);
    }

    /// Why the connection ended.
    fn fault(&self) -> Error {
        let fault = self.fault.get().cloned();
        fault.unwrap_or_else(|| Error::Disconnected {
            broker: Arc::clone(&self.broker),
            cause: "it was shut down".to_owned(),
        })
    }

    fn silent_until(&self) -> Option<Instant> {
        *self
            .silent_until
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The time of a request is over before anything of it was written: the connection is as good as
    /// before.
    fn not_written(&self, api: &'static str) -> Error {
        let broker = Arc::clone(&self.broker);
        match self.silent_until() {
            Some(until) if until > Instant::now() => Error::Throttled { broker, api },
            _ => Error::Timeout { broker, api },
        }
    }

    fn keep_silent(&self, pause: Duration) {
        if pause.is_zero() {
            return;
        }
        let Some(until) = Instant::now().checked_add(pause) else {
            return;
        };
        let mut silent_until = self
            .silent_until
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *silent_until = silent_until.max(Some(until));
    }
}

/// Ends a connection with a task of it, also with one that panics: nobody waits for ever.
struct EndsWith(Arc<Shared>);

impl EndsWith {
    async fn around(self, work: impl Future<Output = ()>) {
        work.await;
    }
}

impl Drop for EndsWith {
    fn drop(&mut self) {
        self.0.end(|broker| Error::Disconnected {
            broker,
            cause: "a part of it broke".to_owned(),
        });
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("broker", &self.handle.shared.broker)
            .field("closed", &self.is_closed())
            .finish_non_exhaustive()
    }
}

impl Connection {
    /// Takes over a connected stream. Nothing is sent before the first call.
    pub(crate) fn start(
        stream: impl Stream,
        broker: Arc<str>,
        client_id: &str,
        limits: Limits,
        tasks: &dyn Tasks,
    ) -> Self {
        let shared = Arc::new(Shared {
            broker,
            limits,
            ended: CancellationToken::new(),
            fault: OnceLock::new(),
            waiting: Waiting::default(),
            queue_bytes: Arc::new(Semaphore::new(limits.queue_bytes_max as usize)),
            in_flight: Arc::new(Semaphore::new(limits.in_flight_max)),
            silent_until: Mutex::new(None),
            held: AtomicBool::new(false),
            released: tokio::sync::Notify::new(),
        });
        let (requests, ordinary) = mpsc::unbounded_channel();
        let (privileged, urgent) = mpsc::unbounded_channel();
        let (read, write) = tokio::io::split(stream);
        let queues = writer::Queues::new(ordinary, urgent);
        let writing = writer::run(write, Arc::clone(&shared), queues, client_id.to_owned());
        let reading = reader::run(read, Arc::clone(&shared));
        let writing = EndsWith(Arc::clone(&shared)).around(writing);
        tasks.spawn("the writing of a connection", Box::pin(writing));
        let reading = EndsWith(Arc::clone(&shared)).around(reading);
        tasks.spawn("the reading of a connection", Box::pin(reading));
        Self {
            handle: Arc::new(Handle {
                shared,
                versions: OnceLock::new(),
                requests,
                privileged,
            }),
        }
    }

    /// Address of the broker as configured or advertised.
    #[must_use]
    pub fn broker(&self) -> &Arc<str> {
        &self.handle.shared.broker
    }

    /// Whether the connection has ended; a new one is needed then.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.handle.shared.ended.is_cancelled()
    }

    /// Waits for the end of the connection and says why it ended.
    pub async fn closed(&self) -> Error {
        self.handle.shared.ended.cancelled().await;
        self.handle.shared.fault()
    }

    /// Ends the connection now; waiting requests fail.
    pub fn close(&self, cause: &str) {
        self.handle.shared.end(|broker| Error::Disconnected {
            broker,
            cause: cause.to_owned(),
        });
    }

    pub(crate) fn fail(&self, fault: Error) {
        self.handle.shared.end(|_| fault);
    }

    /// Ends with the connection, for tasks that belong to it without keeping it alive.
    pub(crate) fn ended(&self) -> CancellationToken {
        self.handle.shared.ended.clone()
    }

    /// A handle that does not keep the connection alive.
    pub(crate) fn downgrade(&self) -> WeakConnection {
        WeakConnection(Arc::downgrade(&self.handle))
    }

    /// What the broker speaks; set once by the opening of the connection.
    pub(crate) fn set_versions(&self, versions: BrokerVersions) {
        // A second negotiation of the same connection would tell the same.
        drop(self.handle.versions.set(versions));
    }

    /// Whether the broker knows `C` in a version that we speak.
    #[cfg(test)]
    pub(crate) fn supports<C: Call>(&self) -> bool {
        self.version::<C>().is_ok()
    }

    /// The version that `C` is spoken in.
    ///
    /// # Errors
    /// [`Error::Unsupported`].
    pub fn version<C: Call>(&self) -> Result<i16, Error> {
        self.handle
            .versions
            .get()
            .and_then(BrokerVersions::pick::<C>)
            .ok_or_else(|| Error::Unsupported {
                api: C::NAME,
                broker: Arc::clone(self.broker()),
            })
    }

    /// Sends a request and waits for its answer.
    ///
    /// # Errors
    /// See [`Error`]; the connection has ended unless the request was never written or its answer
    /// was whole.
    pub async fn send<C: Call>(&self, call: C, deadline: Instant) -> Result<C::Answer, Error> {
        self.submit(call, deadline).await?.answer().await
    }

    /// Writes a request and returns as soon as it was given to the system, so that requests
    /// submitted one after the other are carried out in that order. `deadline` is that of the answer; a
    /// request that is not being written by then never will be. Giving up the future once it was polled
    /// does not take the request back.
    ///
    /// # Errors
    /// As [`Self::send`].
    pub async fn submit<C: Call>(&self, call: C, deadline: Instant) -> Result<Pending<C>, Error> {
        let negotiated = self.version::<C>()?;
        let version = negotiated.min(call.version_max());
        let lowest = self
            .handle
            .versions
            .get()
            .and_then(BrokerVersions::lowest::<C>);
        if lowest.is_some_and(|lowest| version < lowest) {
            return Err(Error::Unsupported {
                api: C::NAME,
                broker: Arc::clone(self.broker()),
            });
        }
        self.submit_as(call, version, deadline, Lane::Ordinary)
            .await
    }

    /// As [`Self::send`] in a version given, past a held queue when `lane` says so.
    pub(crate) async fn send_as<C: Call>(
        &self,
        call: C,
        version: i16,
        deadline: Instant,
        lane: Lane,
    ) -> Result<C::Answer, Error> {
        let pending = self.submit_as(call, version, deadline, lane).await?;
        pending.answer().await
    }

    pub(crate) async fn submit_as<C: Call>(
        &self,
        call: C,
        version: i16,
        deadline: Instant,
        lane: Lane,
    ) -> Result<Pending<C>, Error> {
        let shared = &self.handle.shared;
        let mut parts = Parts::default();
        call.encode(version, &mut parts)
            .map_err(|cause| Error::Request {
                api: C::NAME,
                broker: Arc::clone(&shared.broker),
                cause,
            })?;
        drop(call);
        let bytes = parts.len();
        if bytes > shared.limits.frame_bytes_max {
            return Err(Error::Request {
                api: C::NAME,
                broker: Arc::clone(&shared.broker),
                cause: format!(
                    "it has {bytes} bytes, and at most {} are sent at once; lower max.message.bytes of the \
                     topics",
                    shared.limits.frame_bytes_max
                ),
            });
        }
        let places = match lane {
            Lane::Ordinary => self.places::<C>(bytes, deadline).await?,
            // Ordinary requests that are held have taken all places, perhaps.
            Lane::Privileged => Places::default(),
        };
        let (answer, answered) = oneshot::channel();
        let (written, mut was_written) = oneshot::channel();
        let claim = Claim::default();
        let submission = Submission {
            api: C::API,
            version,
            body: parts.finish(),
            body_bytes: bytes,
            waiter: Waiter::new(C::API, C::NAME, version, deadline, answer, places.flight),
            written,
            claim: claim.clone(),
            room: places.room,
        };
        let queue = match lane {
            Lane::Ordinary => &self.handle.requests,
            Lane::Privileged => &self.handle.privileged,
        };
        queue.send(submission).map_err(|_| shared.fault())?;
        let outcome = match timeout_at(deadline, &mut was_written).await {
            Ok(outcome) => outcome,
            Err(_elapsed) if claim.take() => return Err(shared.not_written(C::NAME)),
            // It is being written, which ends by the same deadline.
            Err(_elapsed) => was_written.await,
        };
        match outcome {
            Ok(Ok(())) => {}
            Ok(Err(fault)) => return Err(fault),
            Err(_dropped) => return Err(shared.fault()),
        }
        Ok(Pending::new(Arc::clone(shared), version, answered))
    }

    /// Waits for a place in flight and for room in the queue.
    async fn places<C: Call>(&self, bytes: usize, deadline: Instant) -> Result<Places, Error> {
        let shared = &self.handle.shared;
        // One that is larger than the whole queue goes alone.
        let charge = u32::try_from(bytes)
            .unwrap_or(u32::MAX)
            .min(shared.limits.queue_bytes_max);
        let places = async {
            let flight = Arc::clone(&shared.in_flight).acquire_owned().await?;
            let queue = Arc::clone(&shared.queue_bytes);
            let room = queue.acquire_many_owned(charge).await?;
            Ok::<_, AcquireError>(Places {
                flight: Some(flight),
                room: Some(room),
            })
        };
        match timeout_at(deadline, places).await {
            Ok(Ok(places)) => Ok(places),
            Ok(Err(_closed)) => Err(shared.fault()),
            Err(_elapsed) => Err(shared.not_written(C::NAME)),
        }
    }

    /// Ordinary requests wait from now on; those written already are answered.
    pub(crate) fn hold(&self) {
        self.handle.shared.held.store(true, Ordering::Release);
    }

    /// Ends [`Self::hold`].
    pub(crate) fn release(&self) {
        self.handle.shared.held.store(false, Ordering::Release);
        self.handle.shared.released.notify_one();
    }
}

/// What a request occupies until it is answered and written.
#[derive(Default)]
struct Places {
    flight: Option<OwnedSemaphorePermit>,
    room: Option<OwnedSemaphorePermit>,
}

/// A connection that others keep alive.
#[derive(Clone)]
pub(crate) struct WeakConnection(std::sync::Weak<Handle>);

impl WeakConnection {
    /// The connection, while anyone uses it.
    pub(crate) fn upgrade(&self) -> Option<Connection> {
        self.0.upgrade().map(|handle| Connection { handle })
    }
}

/// Which queue a request goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    /// In order of submission.
    Ordinary,
    /// Before ordinary ones: authentication.
    Privileged,
}
