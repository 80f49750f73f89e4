//! A watch on etcd that notices a silent peer.
//!
//! Nothing comes on a watch while nothing changes, so silence must be told from death: after some
//! seconds without a message the watch asks for its progress and expects an answer (C054).

use std::{fmt, time::Duration};

use async_trait::async_trait;
use etcd_client::{Client, EventType, WatchOptions, WatchRequestSender, WatchResponseStream};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::{
    MESSAGE_BYTES_MAX,
    fault::{self, Fault},
    list::entry,
};
use crate::api::{Error, Result, Revision, Watch, WatchEvent};

/// Silence after which the peer is asked for a sign of life.
const ASK_AFTER: Duration = Duration::from_secs(3);
/// Longest wait for that sign; with the silence before it, under ten seconds.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Both halves of the stream. etcd ends a watch whose requesting half was dropped (C056).
pub(super) struct EtcdWatch {
    requests: WatchRequestSender,
    responses: WatchResponseStream,
    root: String,
    /// Changes before this one are not asked for.
    from: Revision,
    /// Fragments of revisions that are not whole yet.
    pending: Vec<WatchEvent>,
    /// When the silence began.
    heard_at: Instant,
    /// Set while a sign of life is asked for.
    answer_by: Option<Instant>,
}

impl EtcdWatch {
    /// Opens a watch and waits until etcd took it.
    pub(super) async fn open(
        client: Client,
        root: String,
        prefix: &str,
        from: Revision,
    ) -> std::result::Result<Self, Fault> {
        // A watch from a revision that is still to come gets no sign of life before it has come (etcd 3.7.2,
        // `mvcc/watchable_store.go`: `progressIfSync`), so it begins one earlier.
        let options = WatchOptions::new()
            .with_prefix()
            .with_start_revision((from.0 - 1).max(1))
            .with_progress_notify()
            .with_fragment();
        let mut watches = client
            .watch_client()
            .max_decoding_message_size(MESSAGE_BYTES_MAX);
        let stream = watches
            .watch(format!("{root}{prefix}"), Some(options))
            .await?;
        let (requests, responses) = stream.split();
        let mut watch = Self {
            requests,
            responses,
            root,
            from,
            pending: Vec::new(),
            heard_at: Instant::now(),
            answer_by: None,
        };
        match watch.receive().await? {
            Received::Created => Ok(watch),
            Received::Progress | Received::Events(_) => {
                Err(Fault::Away("etcd answered a watch out of order".to_owned()))
            }
        }
    }

    /// The next message. Cancel safe.
    async fn receive(&mut self) -> std::result::Result<Received, Fault> {
        loop {
            let response = self
                .responses
                .message()
                .await?
                .ok_or_else(|| Fault::Away("etcd ended the watch".to_owned()))?;
            self.heard_at = Instant::now();
            self.answer_by = None;
            if response.canceled() {
                let reason = response.cancel_reason();
                return Err(fault::of_cancelled(reason, response.compact_revision()));
            }
            if response.created() {
                return Ok(Received::Created);
            }
            for event in response.events() {
                self.pending.extend(self.event(event));
            }
            if response.0.fragment {
                continue;
            }
            return Ok(if self.pending.is_empty() {
                Received::Progress
            } else {
                Received::Events(std::mem::take(&mut self.pending))
            });
        }
    }

    fn event(&self, event: &etcd_client::Event) -> Option<WatchEvent> {
        let kv = event.kv().filter(|kv| kv.mod_revision() >= self.from.0)?;
        let key = kv.key_str().ok()?.strip_prefix(&self.root)?;
        Some(WatchEvent {
            key: key.to_owned(),
            entry: match event.event_type() {
                EventType::Put => Some(entry(kv)),
                EventType::Delete => None,
            },
            revision: Revision(kv.mod_revision()),
        })
    }

    /// Asks for a sign of life.
    async fn ask(&mut self) -> Result<()> {
        let answer_by = Instant::now() + ANSWER_WITHIN;
        self.answer_by = Some(answer_by);
        match timeout_at(answer_by, self.requests.request_progress()).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(Fault::from(error).into()),
            Err(_) => Err(silent()),
        }
    }
}

/// A message, sorted.
enum Received {
    Created,
    Progress,
    Events(Vec<WatchEvent>),
}

fn silent() -> Error {
    Error::Unavailable("etcd went silent on a watch".to_owned())
}

#[async_trait]
impl Watch for EtcdWatch {
    async fn next(&mut self) -> Result<Vec<WatchEvent>> {
        loop {
            let (wake_at, asked) = match self.answer_by {
                Some(answer_by) => (answer_by, true),
                None => (self.heard_at + ASK_AFTER, false),
            };
            tokio::select! {
                biased;
                received = self.receive() => {
                    if let Received::Events(events) = received? {
                        return Ok(events);
                    }
                }
                () = sleep_until(wake_at) => {
                    if asked {
                        return Err(silent());
                    }
                    self.ask().await?;
                }
            }
        }
    }
}

impl fmt::Debug for EtcdWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdWatch")
            .field("root", &self.root)
            .field("heard_at", &self.heard_at)
            .finish_non_exhaustive()
    }
}
