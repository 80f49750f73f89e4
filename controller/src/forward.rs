//! Any controller answers: one that does not lead passes the whole HTTP/2 request on to the leader.
//!
//! A tower layer in front of all services, so no service knows about followers: unary calls and
//! streams, both directions, metadata, trailers and deadlines pass unopened. Health and reflection
//! are answered where they are asked.
//!
//! A request that did not leave this process is tried again at the next leader; one that may have
//! reached a leader is answered UNAVAILABLE, which is safe to repeat with the same request id.
//! A forwarded request is never forwarded again.

mod body;
mod deadline;

use std::{
    convert::Infallible,
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use http::{HeaderName, HeaderValue, Request, Response};
use kreplicator_model::ids::ControllerId;
use kreplicator_proto::status::Refusal;
use metrics::{Counter, Unit, counter, describe_counter};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::{
    Status,
    body::Body,
    transport::{Channel, Endpoint},
};
use tower::{Layer, Service, ServiceExt};
use tracing::{Instrument, debug, debug_span, warn};

use self::body::{Cuttable, Lent};
use crate::api::leadership::{Leadership, Standing};

/// Who forwarded a request: present means that it must not be forwarded again.
const FORWARDED_BY: HeaderName = HeaderName::from_static("kreplicator-forwarded-by");
/// Longest wait for a leader: a lease of the default length ends within it.
const LEADER_WAIT: Duration = Duration::from_secs(5);
/// How often a leader that does not answer is tried again.
const RETRY_EVERY: Duration = Duration::from_millis(250);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Pings to the leader: a dead one is noticed within both together (C110).
const PING_EVERY: Duration = Duration::from_secs(5);
const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// What became of calls that were to be passed on.
const FORWARDED: &str = "kreplicator_controller_forwarded_calls_total";

/// What all forwarded requests share.
struct Shared {
    leadership: Leadership,
    me: HeaderValue,
    /// Ends every response body; see [`ForwardLayer::new`].
    cut: CancellationToken,
    /// The connection to the leader, with its address.
    channel: Mutex<Option<(String, Channel)>>,
    answered: Counter,
    lost: Counter,
    without_leader: Counter,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Forward")
            .field("me", &self.me)
            .finish_non_exhaustive()
    }
}

/// Puts [`Forward`] in front of the services.
#[derive(Debug, Clone)]
pub(crate) struct ForwardLayer(Arc<Shared>);

impl ForwardLayer {
    /// When `cut` fires, every response that is still being sent ends with UNAVAILABLE: so streams
    /// cannot hold up a shutdown.
    pub(crate) fn new(leadership: Leadership, me: &ControllerId, cut: CancellationToken) -> Self {
        describe_counter!(
            FORWARDED,
            Unit::Count,
            "Calls passed on to the leader, by outcome."
        );
        let me = HeaderValue::from_str(me.as_str()).expect("ids hold only visible ASCII");
        Self(Arc::new(Shared {
            leadership,
            me,
            cut,
            channel: Mutex::new(None),
            answered: counter!(FORWARDED, "outcome" => "answered"),
            lost: counter!(FORWARDED, "outcome" => "lost"),
            without_leader: counter!(FORWARDED, "outcome" => "without_leader"),
        }))
    }
}

impl<S> Layer<S> for ForwardLayer {
    type Service = Forward<S>;

    fn layer(&self, inner: S) -> Forward<S> {
        Forward {
            inner,
            shared: Arc::clone(&self.0),
        }
    }
}

/// Answers here or at the leader.
#[derive(Debug, Clone)]
pub(crate) struct Forward<S> {
    inner: S,
    shared: Arc<Shared>,
}

impl<S> Service<Request<Body>> for Forward<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>
        + Clone
        + Send
        + 'static,
    S::Future: Send,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        // The clone takes the place of the service that was made ready.
        let waiting = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, waiting);
        let shared = Arc::clone(&self.shared);
        if shared.cut.is_cancelled() {
            // A connection may outlive the server.
            return Box::pin(std::future::ready(Ok(refuse(shutting_down()))));
        }
        let limit = deadline::of(request.headers());
        let span = debug_span!("rpc", method = request.uri().path());
        let answer = async move {
            let cut = shared.cut.clone();
            let answer = shared.answer(request, inner);
            let response = match tokio::time::timeout(limit, answer).await {
                Ok(response) => response?,
                Err(_) => refuse(Refusal::TooLate(format!(
                    "no answer within {limit:?}; it is not known whether the call was done: repeat it \
                     with the same request id and a longer deadline"
                ))),
            };
            Ok(response.map(|body| Body::new(Cuttable::new(body, cut))))
        };
        Box::pin(answer.instrument(span))
    }
}

impl Shared {
    async fn answer<S>(
        &self,
        request: Request<Body>,
        inner: S,
    ) -> Result<Response<Body>, Infallible>
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    {
        if is_local(request.uri().path()) {
            return inner.oneshot(request).await;
        }
        match self.leadership.standing() {
            Standing::Leading(_) => inner.oneshot(request).await,
            Standing::Following(_) | Standing::Nobody => self.pass_on(request, inner).await,
        }
    }

    /// Finds the leader and hands the request to it, within [`LEADER_WAIT`] of trying.
    async fn pass_on<S>(
        &self,
        request: Request<Body>,
        inner: S,
    ) -> Result<Response<Body>, Infallible>
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    {
        let give_up_at = Instant::now() + LEADER_WAIT;
        let forwarded = request.headers().get(FORWARDED_BY).cloned();
        let mut request = request;
        let mut fault = "no controller leads".to_owned();
        while Instant::now() < give_up_at {
            let rest = give_up_at.saturating_duration_since(Instant::now());
            let leader = match self.leadership.settled(rest, None).await {
                Standing::Leading(_) => return inner.oneshot(request).await,
                Standing::Nobody => break,
                Standing::Following(leader) => leader,
            };
            if let Some(sender) = &forwarded {
                // Whoever sent it saw this process lead. That is over or about to begin.
                fault = format!("{sender:?} took this controller for the leader");
            } else {
                match self.send(&leader.address, request).await {
                    Sent::Answered(response) => {
                        self.answered.increment(1);
                        return Ok(response);
                    }
                    Sent::Lost(cause) => {
                        self.lost.increment(1);
                        warn!(leader = leader.controller, cause, "forwarded call was lost");
                        return Ok(refuse(Refusal::Unavailable(format!(
                            "the leader {} at {} did not answer: {cause}; repeat the call, with the \
                             same request id",
                            leader.controller, leader.address
                        ))));
                    }
                    Sent::Returned(again, cause) => {
                        debug!(leader = leader.controller, cause, "leader is not reachable");
                        fault = format!(
                            "the leader {} at {} is not reachable: {cause}",
                            leader.controller, leader.address
                        );
                        request = again;
                    }
                }
            }
            // A new leader ends the wait; the same one is tried again, it may be on its way up.
            self.leadership
                .settled(RETRY_EVERY, Some(&leader.address))
                .await;
        }
        self.without_leader.increment(1);
        Ok(refuse(Refusal::Unavailable(format!(
            "{fault}; see that the controllers run and reach the metadata store, then repeat the call, \
             with the same request id"
        ))))
    }

    /// Sends the request to `address`.
    async fn send(&self, address: &str, request: Request<Body>) -> Sent {
        let channel = match self.channel(address).await {
            Ok(channel) => channel,
            Err(cause) => return Sent::Returned(request, cause),
        };
        let (parts, body) = request.into_parts();
        let (body, loan) = Lent::new(body);
        let mut outgoing = Request::new(Body::new(body));
        *outgoing.method_mut() = parts.method.clone();
        *outgoing.uri_mut() = parts.uri.clone();
        *outgoing.version_mut() = parts.version;
        *outgoing.headers_mut() = parts.headers.clone();
        outgoing.headers_mut().insert(FORWARDED_BY, self.me.clone());
        match channel.oneshot(outgoing).await {
            Ok(response) => Sent::Answered(response),
            Err(error) => {
                self.forget(address);
                let cause = cause_of(&error);
                match loan.take_back() {
                    Some(body) => Sent::Returned(Request::from_parts(parts, body), cause),
                    None => Sent::Lost(cause),
                }
            }
        }
    }

    /// The connection to `address`, made when there is none.
    async fn channel(&self, address: &str) -> Result<Channel, String> {
        let known = self.lock().clone();
        if let Some((_, channel)) = known.filter(|(to, _)| to == address) {
            return Ok(channel);
        }
        let endpoint = Endpoint::from_shared(format!("http://{address}"))
            .map_err(|error| format!("its address is not usable: {error}"))?
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_TIMEOUT)
            .keep_alive_while_idle(true);
        let channel = endpoint.connect().await.map_err(|error| cause_of(&error))?;
        *self.lock() = Some((address.to_owned(), channel.clone()));
        Ok(channel)
    }

    fn forget(&self, address: &str) {
        let mut channel = self.lock();
        if channel.as_ref().is_some_and(|(to, _)| to == address) {
            *channel = None;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<(String, Channel)>> {
        self.channel.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What became of a request sent to the leader.
enum Sent {
    Answered(Response<Body>),
    /// Nothing of it has left this process.
    Returned(Request<Body>, String),
    /// It may have arrived.
    Lost(String),
}

/// Services that every controller answers for itself.
fn is_local(path: &str) -> bool {
    path.starts_with("/grpc.health.") || path.starts_with("/grpc.reflection.")
}

fn refuse(refusal: Refusal) -> Response<Body> {
    Status::from(refusal).into_http()
}

/// What callers are told while the process ends.
fn shutting_down() -> Refusal {
    Refusal::Unavailable(
        "this controller is shutting down; repeat the call, another one answers".to_owned(),
    )
}

/// The innermost cause: the outer layers only say "transport error".
fn cause_of(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}
