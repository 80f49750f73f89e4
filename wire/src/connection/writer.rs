//! The writing half: takes requests from the queues, gives each its number and writes it whole.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use bytes::{BufMut as _, Bytes, BytesMut};
use kafka_protocol::{
    messages::{ApiKey, RequestHeader},
    protocol::{Encodable as _, StrBytes},
};
use tokio::{
    io::AsyncWrite,
    sync::{OwnedSemaphorePermit, mpsc, oneshot},
    time::{Instant, sleep_until, timeout_at},
};

use super::{Shared, waiting::Waiter};
use crate::{error::Error, frame, silence};

/// A request to be written.
#[derive(Debug)]
pub(super) struct Submission {
    pub(super) api: ApiKey,
    pub(super) version: i16,
    pub(super) body: Vec<Bytes>,
    pub(super) body_bytes: usize,
    pub(super) waiter: Waiter,
    /// Told when the request was given to the system, or never will be.
    pub(super) written: oneshot::Sender<Result<(), Error>>,
    /// Whether it is written at all.
    pub(super) claim: Claim,
    /// Frees room in the queue when dropped.
    pub(super) room: Option<OwnedSemaphorePermit>,
}

/// A request is either written or withdrawn, whoever comes first: the writer or the caller whose time
/// is over.
#[derive(Debug, Clone, Default)]
pub(super) struct Claim(Arc<AtomicBool>);

impl Claim {
    /// True for the first who takes it.
    pub(super) fn take(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }
}

/// Where requests come from.
#[derive(Debug)]
pub(super) struct Queues {
    ordinary: mpsc::UnboundedReceiver<Submission>,
    urgent: mpsc::UnboundedReceiver<Submission>,
    /// Taken from `ordinary` just as a hold began.
    parked: Option<Submission>,
}

impl Queues {
    pub(super) fn new(
        ordinary: mpsc::UnboundedReceiver<Submission>,
        urgent: mpsc::UnboundedReceiver<Submission>,
    ) -> Self {
        Self {
            ordinary,
            urgent,
            parked: None,
        }
    }

    /// The next request; None when all handles are gone.
    async fn next(&mut self, shared: &Shared) -> Option<Submission> {
        loop {
            let held = shared.held.load(Ordering::Acquire);
            if !held && let Some(parked) = self.parked.take() {
                return Some(parked);
            }
            tokio::select! {
                biased;
                urgent = self.urgent.recv() => return urgent,
                () = shared.released.notified(), if held => {}
                ordinary = self.ordinary.recv(), if !held => self.parked = Some(ordinary?),
            }
        }
    }
}

/// Writes requests until the connection ends.
pub(super) async fn run<W>(mut io: W, shared: Arc<Shared>, mut queues: Queues, client_id: String)
where
    W: AsyncWrite + Send + Unpin,
{
    let client_id = StrBytes::from_string(client_id);
    let mut correlation_id = 0_i32;
    loop {
        let submission = tokio::select! {
            biased;
            () = shared.ended.cancelled() => return,
            submission = queues.next(&shared) => submission,
        };
        let Some(submission) = submission else {
            return;
        };
        if let Some(refusal) = await_silence(&shared, &submission).await {
            drop(submission.written.send(Err(refusal)));
            continue;
        }
        if !submission.claim.take() {
            continue;
        }
        correlation_id = correlation_id.wrapping_add(1);
        let writing = write(&mut io, &shared, submission, correlation_id, &client_id);
        tokio::select! {
            biased;
            () = shared.ended.cancelled() => return,
            () = writing => {}
        }
    }
}

/// Waits until the broker wants to hear of us again. Some: the request's time is over before.
async fn await_silence(shared: &Shared, submission: &Submission) -> Option<Error> {
    let deadline = submission.waiter.deadline;
    while let Some(until) = shared
        .silent_until()
        .filter(|until| *until > Instant::now())
    {
        if until >= deadline {
            return Some(Error::Throttled {
                broker: Arc::clone(&shared.broker),
                api: submission.waiter.name,
            });
        }
        tokio::select! {
            () = shared.ended.cancelled() => return Some(shared.fault()),
            () = sleep_until(until) => {}
        }
    }
    (Instant::now() >= deadline).then(|| Error::Timeout {
        broker: Arc::clone(&shared.broker),
        api: submission.waiter.name,
    })
}

async fn write<W>(
    io: &mut W,
    shared: &Shared,
    submission: Submission,
    correlation_id: i32,
    client_id: &StrBytes,
) where
    W: AsyncWrite + Unpin,
{
    let Submission {
        api,
        version,
        body,
        body_bytes,
        waiter,
        written,
        claim: _,
        room,
    } = submission;
    let (deadline, name) = (waiter.deadline, waiter.name);
    let head = match head(api, version, correlation_id, client_id, body_bytes) {
        Ok(head) => head,
        Err(cause) => {
            let broker = Arc::clone(&shared.broker);
            let refusal = Error::Request {
                api: name,
                broker,
                cause,
            };
            drop(written.send(Err(refusal)));
            return;
        }
    };
    let mut parts = Vec::with_capacity(body.len() + 1);
    parts.push(head);
    parts.extend(body);
    // Before the first byte: the answer must find its waiter.
    shared.waiting.push(correlation_id, waiter);
    let outcome = timeout_at(deadline, frame::write_parts(io, &parts)).await;
    drop(room);
    match outcome {
        Ok(Ok(())) => drop(written.send(Ok(()))),
        Ok(Err(fault)) if silence::is_silence(&fault) => {
            shared.end(|broker| Error::Silent { broker });
        }
        Ok(Err(fault)) => shared.end(|broker| Error::Disconnected {
            broker,
            cause: fault.to_string(),
        }),
        Err(_elapsed) => shared.end(|broker| Error::Timeout { broker, api: name }),
    }
}

/// Length of the frame and header of the request.
fn head(
    api: ApiKey,
    version: i16,
    correlation_id: i32,
    client_id: &StrBytes,
    body_bytes: usize,
) -> Result<Bytes, String> {
    let header = RequestHeader::default()
        .with_request_api_key(api as i16)
        .with_request_api_version(version)
        .with_correlation_id(correlation_id)
        .with_client_id(Some(client_id.clone()));
    let mut head = BytesMut::with_capacity(64 + client_id.len());
    head.put_i32(0);
    header
        .encode(&mut head, api.request_header_version(version))
        .map_err(|fault| fault.to_string())?;
    let length = head.len() - 4 + body_bytes;
    let length = i32::try_from(length).map_err(|_| format!("{length} bytes fit no frame"))?;
    head[..4].copy_from_slice(&length.to_be_bytes());
    Ok(head.freeze())
}
