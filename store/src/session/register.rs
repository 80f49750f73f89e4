//! Getting the key: only ever by a write that compares that it is absent.

use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep};
use tracing::{info, warn};

use super::{
    Contention, SessionState,
    keeper::{Held, Keeper, Lease},
};
use crate::api::{Compare, Entry, Error, Op, Outcome, Result, Revision, Txn};

/// Time between warnings that another process holds the key.
const WARN_INTERVAL: Duration = Duration::from_secs(5);
/// The key is read again after this long at most, should its deletion never be seen (C052).
const WAIT_MAX: Duration = Duration::from_secs(30);
/// Longest time a call may take while there is no fence to keep open.
const CALL_DEADLINE: Duration = Duration::from_secs(10);

impl Keeper {
    /// One attempt; None: try again now.
    pub(super) async fn try_register(&mut self) -> Result<Option<Held>> {
        let found = self
            .within(CALL_DEADLINE, self.store.list(&self.config.key))
            .await?;
        if let Some(entry) = found.entries.get(&self.config.key) {
            let ours = self.lease.filter(|lease| entry.lease == Some(lease.id));
            return match ours {
                Some(lease) => self.recognise(lease, entry).await.map(Some),
                None => {
                    self.wait_for_holder(entry.clone(), found.revision).await?;
                    Ok(None)
                }
            };
        }
        let Some(lease) = self.fresh_lease().await? else {
            return Ok(None);
        };
        self.claim(lease).await
    }

    /// The key is ours: the answer to the write that put it was lost.
    async fn recognise(&mut self, lease: Lease, entry: &Entry) -> Result<Held> {
        let lease = self.renew(lease).await?;
        let desired = self.desired.borrow().clone();
        if entry.value == desired.value {
            self.written.send_replace(desired.version);
        }
        Ok(Held {
            lease,
            revision: entry.create_revision,
        })
    }

    /// A lease that was renewed just now; None: the one we had ended.
    async fn fresh_lease(&mut self) -> Result<Option<Lease>> {
        let Some(lease) = self.lease else {
            let renewed_at = Instant::now();
            let id = self
                .within(CALL_DEADLINE, self.store.grant(self.config.ttl))
                .await?;
            self.lease = Some(Lease { id, renewed_at });
            return Ok(self.lease);
        };
        match self.renew(lease).await {
            Ok(lease) => Ok(Some(lease)),
            Err(Error::LeaseGone(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sends a keep-alive outside of a registration.
    async fn renew(&mut self, lease: Lease) -> Result<Lease> {
        let renewed_at = Instant::now();
        match self
            .within(CALL_DEADLINE, self.store.keep_alive(lease.id))
            .await
        {
            Ok(_) => {
                let lease = Lease {
                    id: lease.id,
                    renewed_at,
                };
                self.lease = Some(lease);
                Ok(lease)
            }
            Err(error) => {
                if matches!(error, Error::LeaseGone(_)) {
                    self.lease = None;
                }
                Err(error)
            }
        }
    }

    async fn claim(&mut self, lease: Lease) -> Result<Option<Held>> {
        let desired = self.desired.borrow_and_update().clone();
        let txn = Txn {
            compares: vec![Compare::Absent(self.config.key.clone())],
            ops: vec![Op::Put {
                key: self.config.key.clone(),
                value: desired.value,
                lease: Some(lease.id),
            }],
        };
        match self.within(CALL_DEADLINE, self.store.commit(txn)).await {
            Ok(Outcome::Committed(revision)) => {
                self.written.send_replace(desired.version);
                Ok(Some(Held { lease, revision }))
            }
            Ok(Outcome::Conflict) => Ok(None),
            Err(Error::LeaseGone(_)) => {
                self.lease = None;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Waits until the key is gone or [`WAIT_MAX`] is over.
    async fn wait_for_holder(&mut self, entry: Entry, seen_at: Revision) -> Result<()> {
        // A lease without a key would only have to be kept alive.
        self.revoke().await;
        self.set_holder(entry.value);
        let mut watch = self
            .within(
                CALL_DEADLINE,
                self.store.watch(&self.config.key, seen_at.next()),
            )
            .await?;
        if self.config.contention == Contention::Unexpected {
            info!(key = %self.config.key, "the key is held; waiting until its lease ends");
        }
        let over = sleep(WAIT_MAX.max(3 * self.config.ttl));
        tokio::pin!(over);
        // The lease of a process that died ends within its time to live; only a live one outlasts it.
        let mut remind = interval_at(Instant::now() + self.config.ttl, WARN_INTERVAL);
        remind.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                events = watch.next() => {
                    for event in events?.into_iter().filter(|event| event.key == self.config.key) {
                        match event.entry {
                            Some(entry) => self.set_holder(entry.value),
                            None => return Ok(()),
                        }
                    }
                }
                _ = remind.tick(), if self.config.contention == Contention::Unexpected => {
                    warn!(
                        key = %self.config.key,
                        "another process holds this key; waiting until its lease ends; give each process its own id"
                    );
                }
                () = &mut over => return Ok(()),
            }
        }
    }

    fn set_holder(&self, holder: Vec<u8>) {
        self.state.send_replace(SessionState::Waiting {
            holder: Some(holder),
        });
    }
}
