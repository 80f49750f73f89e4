//! The command line's side of the gRPC API: finds a controller that answers, keeps to one deadline
//! and repeats what is safe to repeat.
//!
//! Every call that changes something carries a request id made here, so repeating it after a lost
//! answer changes nothing twice (C112).
//!
//! - [`endpoint`]: where controllers are.
//! - [`mod@request_id`]: ids of requests.

mod endpoint;
mod request_id;

use std::{error::Error as _, future::Future, time::Duration};

use rand::Rng;
use tokio::time::{Instant, sleep_until, timeout_at};
use tonic::{Code, Request, Response, Status, TimeoutExpired, transport::Channel};

pub(crate) use self::{endpoint::Target, request_id::request_id};
use crate::exit::Failure;

/// Largest answer accepted: a page of 1,000 subscriptions with 100 topics each is far below.
pub(crate) const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Wait before the second round over all controllers, doubled for each later one.
const BACKOFF_MIN: Duration = Duration::from_millis(100);
/// Longest wait between rounds.
const BACKOFF_MAX: Duration = Duration::from_secs(2);

/// Controllers and a deadline.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    targets: Vec<(String, Channel)>,
    timeout: Duration,
}

/// One try of a call.
#[derive(Debug, Clone)]
pub(crate) struct Attempt {
    /// A channel to the controller tried now.
    pub(crate) channel: Channel,
    left: Duration,
}

impl Attempt {
    /// A request that tells the server how much time is left.
    pub(crate) fn request<M>(&self, message: M) -> Request<M> {
        let mut request = Request::new(message);
        request.set_timeout(self.left);
        request
    }
}

/// How one try ended.
enum Tried<T> {
    Done(T),
    /// Nobody answered; another controller, or the same one later, may.
    Again(Status),
    Refused(Status),
}

impl Client {
    /// A client for these controllers, tried in order. Connects when first used.
    pub(crate) fn new(targets: &[Target], timeout: Duration) -> Self {
        let channel = |target: &Target| (target.to_string(), target.channel());
        Self {
            targets: targets.iter().map(channel).collect(),
            timeout,
        }
    }

    /// Makes a unary call. UNAVAILABLE is repeated, on each controller in turn, until the deadline.
    ///
    /// # Errors
    /// [`Failure::Answer`] with what a controller said; [`Failure::Unreachable`] when none answered.
    pub(crate) async fn call<T, F, R>(&self, attempt: F) -> Result<T, Failure>
    where
        F: Fn(Attempt) -> R,
        R: Future<Output = Result<Response<T>, Status>>,
    {
        self.open(attempt).await.map(Response::into_inner)
    }

    /// As [`call`](Self::call), for calls that answer with a stream; the deadline is for its beginning.
    pub(crate) async fn open<T, F, R>(&self, attempt: F) -> Result<Response<T>, Failure>
    where
        F: Fn(Attempt) -> R,
        R: Future<Output = Result<Response<T>, Status>>,
    {
        let deadline = Instant::now() + self.timeout;
        let mut backoff = BACKOFF_MIN;
        loop {
            let mut last = None;
            for (name, channel) in &self.targets {
                match try_once(channel, deadline, &attempt).await {
                    Tried::Done(answer) => return Ok(answer),
                    Tried::Refused(status) if is_stranger(&status) => {
                        return Err(stranger(name, &status));
                    }
                    Tried::Refused(status) => return Err(answer(&status)),
                    Tried::Again(status) => last = Some((name, status)),
                }
            }
            let (name, status) = last.expect("there is at least one endpoint");
            let wait = backoff.mul_f64(rand::rng().random_range(0.5..1.0));
            if Instant::now() + wait >= deadline {
                return Err(self.unreachable(name, &status));
            }
            sleep_until(Instant::now() + wait).await;
            backoff = (backoff * 2).min(BACKOFF_MAX);
        }
    }

    fn unreachable(&self, name: &str, status: &Status) -> Failure {
        // The answer of a controller says more than we can; ours is for when there was none.
        if status.source().is_none() && status.code() == Code::Unavailable {
            return answer(status);
        }
        let tried: Vec<&str> = self.targets.iter().map(|(name, _)| name.as_str()).collect();
        let timeout = humantime::format_duration(self.timeout);
        Failure::Unreachable(format!(
            "no controller answered within {timeout} (tried {}): {name}: {}; start one, or name it \
             with --endpoint",
            tried.join(", "),
            cause(status)
        ))
    }
}

async fn try_once<T, F, R>(channel: &Channel, deadline: Instant, attempt: &F) -> Tried<Response<T>>
where
    F: Fn(Attempt) -> R,
    R: Future<Output = Result<Response<T>, Status>>,
{
    let left = deadline.saturating_duration_since(Instant::now());
    let channel = channel.clone();
    match timeout_at(deadline, attempt(Attempt { channel, left })).await {
        Ok(Ok(answer)) => Tried::Done(answer),
        Ok(Err(status)) if status.code() == Code::Unavailable => Tried::Again(status),
        Ok(Err(status)) if is_late(&status) => Tried::Again(late()),
        Ok(Err(status)) => Tried::Refused(status),
        Err(_) => Tried::Again(late()),
    }
}

fn late() -> Status {
    Status::deadline_exceeded("no answer in time")
}

/// Whether the client library itself ended the call at the request's deadline.
fn is_late(status: &Status) -> bool {
    let mut cause = status.source();
    while let Some(inner) = cause {
        if inner.is::<TimeoutExpired>() {
            return true;
        }
        cause = inner.source();
    }
    false
}

/// Whether something answered that does not speak gRPC: its answer was made up by the client library.
fn is_stranger(status: &Status) -> bool {
    status.code() != Code::Unavailable
        && (status
            .source()
            .is_some_and(|source| source.is::<tonic::transport::Error>())
            || status.message().starts_with("grpc-status header missing"))
}

fn stranger(name: &str, status: &Status) -> Failure {
    Failure::Unreachable(format!(
        "{name} does not answer as a controller does ({}); name the gRPC port of one with --endpoint",
        cause(status)
    ))
}

fn answer(status: &Status) -> Failure {
    let code = status.code();
    let message = match status.message() {
        "" => format!("the controller answered {code:?} without a reason"),
        message => message.to_owned(),
    };
    Failure::Answer { code, message }
}

/// The innermost cause: "connection refused" rather than "transport error".
fn cause(status: &Status) -> String {
    let mut cause = status.source();
    while let Some(inner) = cause.and_then(std::error::Error::source) {
        cause = Some(inner);
    }
    cause.map_or_else(|| status.message().to_owned(), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn client(timeout: Duration) -> Client {
        let target: Target = "127.0.0.1:1".parse().expect("an endpoint");
        Client::new(&[target.clone(), target], timeout)
    }

    #[tokio::test(start_paused = true)]
    async fn c112_unavailable_is_repeated_until_it_is_done() {
        let tries = AtomicUsize::new(0);
        let answer = client(Duration::from_secs(10))
            .call(|_| async {
                match tries.fetch_add(1, Ordering::Relaxed) {
                    0..5 => Err(Status::unavailable("not yet")),
                    _ => Ok(Response::new(7)),
                }
            })
            .await;
        assert_eq!(answer.expect("done"), 7);
        assert_eq!(tries.load(Ordering::Relaxed), 6);
    }

    #[tokio::test(start_paused = true)]
    async fn refusals_are_not_repeated() {
        let tries = AtomicUsize::new(0);
        let answer = client(Duration::from_secs(10))
            .call(|_| async {
                tries.fetch_add(1, Ordering::Relaxed);
                Err::<Response<()>, _>(Status::not_found("link \"x\" does not exist"))
            })
            .await;
        let failure = answer.expect_err("refused");
        assert_eq!(failure.to_string(), "link \"x\" does not exist");
        assert_eq!(tries.load(Ordering::Relaxed), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn c110_a_call_without_answer_ends_at_the_deadline() {
        let started = Instant::now();
        let answer = client(Duration::from_secs(3))
            .call(|_| std::future::pending::<Result<Response<()>, Status>>())
            .await;
        let failure = answer.expect_err("no answer");
        assert!(matches!(failure, Failure::Unreachable(_)), "{failure:?}");
        assert!(failure.to_string().contains("--endpoint"), "{failure}");
        assert_eq!(started.elapsed(), Duration::from_secs(3));
    }

    async fn status_of(address: std::net::SocketAddr, timeout: Duration) -> String {
        let target: Target = address.to_string().parse().expect("an endpoint");
        let client = Client::new(&[target], timeout);
        let answer = client.call(|attempt| async move {
            let mut grpc =
                kreplicator_proto::v1::status_client::StatusClient::new(attempt.channel.clone());
            let request = attempt.request(kreplicator_proto::v1::GetStatusRequest {});
            grpc.get_status(request).await
        });
        let failure = answer.await.expect_err("no controller is there");
        assert!(matches!(failure, Failure::Unreachable(_)), "{failure:?}");
        failure.to_string()
    }

    /// Answers each connection with these bytes.
    fn stranger_that_says(bytes: &'static [u8]) -> (std::net::SocketAddr, impl Drop) {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("a listener");
        let address = listener.local_addr().expect("an address");
        let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
        let serve = tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                let mut request = [0; 1024];
                if socket.read(&mut request).await.is_ok() && socket.write_all(bytes).await.is_ok()
                {
                    // What follows is read, so that nothing is reset before the answer was.
                    while socket.read(&mut request).await.is_ok_and(|read| read > 0) {}
                }
            }
        });
        (address, tokio_util::task::AbortOnDropHandle::new(serve))
    }

    #[tokio::test]
    async fn a_port_that_is_no_controllers_is_named_with_the_remedy() {
        for says in [
            b"HTTP/1.1 400 Bad Request\r\n\r\n".as_slice(),
            b"\x00\x00\x00\x10 something else entirely",
        ] {
            let (address, _serving) = stranger_that_says(says);
            let shown = status_of(address, Duration::from_secs(5)).await;
            assert!(shown.contains(&address.to_string()), "{shown}");
            assert!(shown.contains("--endpoint"), "{shown}");
        }
    }

    #[tokio::test]
    async fn c110_a_port_that_stays_silent_is_told_apart_from_a_wrong_one() {
        let (address, _serving) = stranger_that_says(b"");
        let shown = status_of(address, Duration::from_millis(300)).await;
        assert!(
            shown.contains("no controller answered within 300ms"),
            "{shown}"
        );
        assert!(shown.contains("no answer in time"), "{shown}");
    }

    #[tokio::test]
    async fn a_closed_port_is_named_with_its_cause() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        drop(listener);
        let target: Target = address.to_string().parse().expect("an endpoint");
        let client = Client::new(&[target], Duration::from_millis(300));
        let answer = client
            .call(|attempt| async move {
                let mut grpc = kreplicator_proto::v1::status_client::StatusClient::new(
                    attempt.channel.clone(),
                );
                let request = attempt.request(kreplicator_proto::v1::GetStatusRequest {});
                grpc.get_status(request).await
            })
            .await;
        let shown = answer.expect_err("closed").to_string();
        assert!(shown.contains(&address.to_string()), "{shown}");
        assert!(shown.contains("refused"), "{shown}");
    }
}
