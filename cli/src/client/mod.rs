//! The command line's side of the gRPC API: finds a controller that answers, keeps to one deadline
//! and repeats what is safe to repeat.
//!
//! A controller that is slow is waited for; one that is silent, so that not even its transport answers, is
//! given up in time for the next one to be tried. The one that answered is asked first the next time.
//!
//! Every call that changes something carries a request id made here, so repeating it after a lost
//! answer changes nothing twice (C112).
//!
//! - [`answers`]: what became of a try.
//! - [`endpoint`]: where controllers are.
//! - [`mod@request_id`]: ids of requests.

mod answers;
mod endpoint;
mod request_id;

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use rand::Rng;
use tokio::time::{Instant, sleep_until, timeout_at};
use tonic::{Code, Request, Response, Status, transport::Channel};

use self::answers::{answer, cause, is_answer, is_cut_off, is_late, is_stranger, late};
pub(crate) use self::{endpoint::Target, request_id::request_id};
use crate::exit::Failure;

/// Largest answer accepted: a page of 1,000 subscriptions with 100 topics each is far below.
pub(crate) const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Wait before the second round over all controllers, doubled for each later one.
const BACKOFF_MIN: Duration = Duration::from_millis(100);
/// Longest wait between rounds.
const BACKOFF_MAX: Duration = Duration::from_secs(2);
/// How long a controller may be silent at most.
const PATIENCE_MAX: Duration = Duration::from_secs(5);
/// Least time that a controller is given, however short the deadline is.
const PATIENCE_MIN: Duration = Duration::from_millis(200);

/// Controllers and a deadline.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    targets: Vec<(String, Channel)>,
    timeout: Duration,
    /// The target that answered last; shared by clones.
    answered: Arc<AtomicUsize>,
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
    /// Our own deadline passed.
    Late,
}

impl Client {
    /// A client for these controllers, tried in order. Connects when first used.
    pub(crate) fn new(targets: &[Target], timeout: Duration) -> Self {
        let patience = patience(timeout, targets.len());
        let channel = |target: &Target| (target.to_string(), target.channel(patience));
        Self {
            targets: targets.iter().map(channel).collect(),
            timeout,
            answered: Arc::default(),
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
        // What each target did last, but for those that our own deadline cut short.
        let mut done: Vec<Option<Status>> = self.targets.iter().map(|_| None).collect();
        loop {
            for number in self.in_order() {
                match try_once(&self.targets[number].1, deadline, &attempt).await {
                    Tried::Done(answer) => {
                        self.answered.store(number, Ordering::Relaxed);
                        return Ok(answer);
                    }
                    Tried::Refused(status) if !is_stranger(&status) => {
                        self.answered.store(number, Ordering::Relaxed);
                        return Err(answer(&status));
                    }
                    Tried::Refused(status) | Tried::Again(status) => done[number] = Some(status),
                    Tried::Late => {}
                }
            }
            let wait = backoff.mul_f64(rand::rng().random_range(0.5..1.0));
            // Time does not make controllers of others.
            let is_hopeless = done.iter().all(|did| did.as_ref().is_some_and(is_stranger));
            if is_hopeless || Instant::now() + wait >= deadline {
                return Err(self.unreachable(done));
            }
            sleep_until(Instant::now() + wait).await;
            backoff = (backoff * 2).min(BACKOFF_MAX);
        }
    }

    /// Numbers of the targets: the one that answered last, then the others as they were given.
    fn in_order(&self) -> impl Iterator<Item = usize> + use<> {
        let first = self.answered.load(Ordering::Relaxed);
        let others = (0..self.targets.len()).filter(move |number| *number != first);
        std::iter::once(first).chain(others)
    }

    /// What each target did, in their order.
    fn unreachable(&self, done: Vec<Option<Status>>) -> Failure {
        let done = done.into_iter().map(|did| did.unwrap_or_else(late));
        let names = self.targets.iter().map(|(name, _)| name.as_str());
        let tries: Vec<(&str, Status)> = names.zip(done).collect();
        // The answer of a controller says more than we can; ours is for when there was none.
        if let [(_, status)] = tries.as_slice()
            && is_answer(status)
        {
            return answer(status);
        }
        let each = tries.iter().map(|(name, status)| {
            if is_stranger(status) {
                format!(
                    "{name} does not answer as a controller does ({})",
                    cause(status)
                )
            } else {
                format!("{name}: {}", cause(status))
            }
        });
        let each: Vec<String> = each.collect();
        let each = each.join("; ");
        if tries.iter().all(|(_, status)| is_stranger(status)) {
            return Failure::Unreachable(format!(
                "{each}; name the gRPC port of a controller with --endpoint"
            ));
        }
        let timeout = humantime::format_duration(self.timeout);
        let remedy = if tries.iter().any(|(_, status)| is_answer(status)) {
            ""
        } else {
            "; start one, or name it with --endpoint"
        };
        Failure::Unreachable(format!(
            "no controller answered within {timeout}: {each}{remedy}"
        ))
    }
}

/// How long each of `targets` controllers may be silent, so that every one of them is tried, and one of them
/// again, within `timeout`.
fn patience(timeout: Duration, targets: usize) -> Duration {
    let shares = u32::try_from(targets).unwrap_or(u32::MAX).saturating_add(1);
    (timeout / shares).clamp(PATIENCE_MIN, PATIENCE_MAX)
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
        Ok(Err(status)) if is_late(&status) => Tried::Late,
        Ok(Err(status)) if is_cut_off(&status) => Tried::Again(status),
        Ok(Err(status)) => Tried::Refused(status),
        Err(_) => Tried::Late,
    }
}

#[cfg(test)]
mod tests;
