//! Holding the key: renew, write new values, look whether the key is still there, and fence.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::{
    SessionState,
    keeper::{Held, Keeper},
};
use crate::{
    api::{Compare, Error, Op, Outcome, Result, Txn},
    fence::Fence,
};

/// Each so many keep-alives the key itself is looked at: a lease may live on without it.
const BEATS_PER_CHECK: u32 = 3;
/// Longest time a call may take once the fence is closed.
const CALL_DEADLINE: Duration = Duration::from_secs(5);

/// What to do next.
#[derive(Debug, Clone, Copy)]
enum Step {
    Lapse,
    Renew,
    Write,
    Check,
}

/// What is known of the key after a step.
#[derive(Debug, Clone, Copy)]
enum Key {
    /// Still ours, as far as the store told.
    Ours,
    /// Gone, or somebody else's.
    Gone(&'static str),
}

/// Writes of new values that the store does not take, though it may renew leases all the while (a
/// full disk, a lost quorum behind one member): they wait apart from renewals.
#[derive(Debug, Clone, Copy)]
struct Writes {
    /// In a row.
    failures: u32,
    /// None is tried before.
    due: Instant,
}

impl Keeper {
    /// Holds a registration, through lapses as well, until the key is not ours any more.
    pub(super) async fn hold(&mut self, mut held: Held) {
        let mut fence = self.announce(held);
        let mut failures: u32 = 0;
        let mut writes = Writes {
            failures: 0,
            due: Instant::now(),
        };
        let mut beats: u32 = 0;
        let mut due = held.lease.renewed_at + self.beat();
        loop {
            let done = match self.next_step(&fence, due, failures, writes).await {
                Step::Lapse => {
                    self.lose(&fence, "no keep-alive was answered in time");
                    continue;
                }
                Step::Renew => {
                    beats = beats.wrapping_add(1);
                    let check = beats.is_multiple_of(BEATS_PER_CHECK);
                    self.renew_held(&mut held, &mut fence, check).await
                }
                Step::Write => match self.write(held, &fence).await {
                    Err(error) => {
                        writes.failures = writes.failures.saturating_add(1);
                        self.log_failure(writes.failures, &error, "cannot write, trying again");
                        let delay = self.config.backoff.delay(writes.failures, &mut rand::rng());
                        writes.due = Instant::now() + delay;
                        continue;
                    }
                    done => {
                        writes.failures = 0;
                        done
                    }
                },
                Step::Check => self.check(held, &fence).await,
            };
            match done {
                Ok(Key::Ours) => {
                    failures = 0;
                    due = held.lease.renewed_at + self.beat();
                }
                Ok(Key::Gone(reason)) => {
                    self.lose(&fence, reason);
                    self.written.send_replace(0);
                    self.revoke().await;
                    return;
                }
                Err(error) => {
                    failures = failures.saturating_add(1);
                    self.log_failure(failures, &error, "cannot renew, trying again");
                    let delay = self.config.backoff.delay(failures, &mut rand::rng());
                    // The lease may still be saved: every moment counts. Later there is time.
                    let longest = if fence.is_open() {
                        self.config.ttl / 20
                    } else if held.lease.renewed_at.elapsed() < 2 * self.config.ttl {
                        self.config.ttl / 10
                    } else {
                        Duration::MAX
                    };
                    due = Instant::now() + delay.min(longest);
                }
            }
        }
    }

    /// Waits for something to do. After a renewal that failed only renewing is tried.
    async fn next_step(
        &mut self,
        fence: &Fence,
        due: Instant,
        failures: u32,
        writes: Writes,
    ) -> Step {
        let registered = matches!(&*self.state.borrow(), SessionState::Registered(_));
        if registered && !fence.is_open() {
            return Step::Lapse;
        }
        if Instant::now() >= due {
            return Step::Renew;
        }
        let may_write = registered && failures == 0;
        let is_behind = self.desired.borrow_and_update().version != *self.written.borrow();
        if may_write && is_behind && Instant::now() >= writes.due {
            return Step::Write;
        }
        tokio::select! {
            () = fence.closed(), if registered => Step::Lapse,
            () = sleep_until(due) => Step::Renew,
            () = self.verify.notified() => Step::Check,
            () = sleep_until(writes.due), if may_write && is_behind => Step::Write,
            Ok(()) = self.desired.changed(), if may_write && !is_behind => Step::Write,
        }
    }

    async fn renew_held(&mut self, held: &mut Held, fence: &mut Fence, check: bool) -> Result<Key> {
        let sent = Instant::now();
        let renewed = self.store.keep_alive(held.lease.id);
        match self.within(self.patience(fence), renewed).await {
            Ok(_) => {}
            Err(Error::LeaseGone(_)) => {
                self.lease = None;
                return Ok(Key::Gone("the lease ended"));
            }
            Err(error) => return Err(error),
        }
        held.lease.renewed_at = sent;
        self.lease = Some(held.lease);
        if fence.extend(self.closes_at(sent)) {
            return if check {
                self.check(*held, fence).await
            } else {
                Ok(Key::Ours)
            };
        }
        // The fence lapsed, yet the store kept the lease: whoever relied on that fence has stopped,
        // so this is a new incarnation on the same key, and nobody saw us leave.
        self.lose(fence, "no keep-alive was answered in time");
        let key = self.check(*held, fence).await?;
        if matches!(key, Key::Ours) {
            *fence = self.announce(*held);
        }
        Ok(key)
    }

    async fn write(&self, held: Held, fence: &Fence) -> Result<Key> {
        let desired = self.desired.borrow().clone();
        let txn = Txn {
            compares: vec![Compare::CreatedAt(self.config.key.clone(), held.revision)],
            ops: vec![Op::Put {
                key: self.config.key.clone(),
                value: desired.value,
                lease: Some(held.lease.id),
            }],
        };
        let commit = self.store.commit(txn);
        match self.within(self.patience(fence), commit).await {
            Ok(Outcome::Committed(_)) => {
                self.written.send_replace(desired.version);
                Ok(Key::Ours)
            }
            Ok(Outcome::Conflict) => Ok(Key::Gone("the key is gone or was made anew")),
            Err(Error::LeaseGone(_)) => Ok(Key::Gone("the lease ended")),
            Err(error) => Err(error),
        }
    }

    async fn check(&self, held: Held, fence: &Fence) -> Result<Key> {
        let read = self.store.get(&self.config.key);
        let entry = self.within(self.patience(fence), read).await?;
        let ours = entry.is_some_and(|entry| {
            entry.create_revision == held.revision && entry.lease == Some(held.lease.id)
        });
        Ok(if ours {
            Key::Ours
        } else {
            Key::Gone("the key is gone or was made anew")
        })
    }

    /// Deadline of a call. While the fence is open there must be time for a second attempt, which may
    /// go to another endpoint.
    fn patience(&self, fence: &Fence) -> Duration {
        if fence.is_open() {
            (self.config.ttl / 4).min(fence.remaining())
        } else {
            CALL_DEADLINE
        }
    }
}
