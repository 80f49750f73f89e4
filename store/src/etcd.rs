//! The store of a fleet: etcd v3.
//!
//! - One connection at a time, to one endpoint. It is made when first needed, so nothing fails when
//!   etcd is down at the start, and left for the next endpoint when a call on it fails or hangs.
//! - Every call has our deadline. What can be repeated without harm is tried once more, on another
//!   endpoint, within that deadline; a transaction is not, since it may have happened.
//! - A dead peer is noticed within ten seconds: HTTP/2 pings under calls and watches, and progress
//!   requests on every watch ([`watch::EtcdWatch`]).
//! - Refused tokens lead to a new login and a second attempt, watches included; refused passwords to a
//!   pause ([`connect`]).

mod connect;
mod fault;
mod list;
mod watch;

use std::{fmt, time::Duration};

use async_trait::async_trait;
use etcd_client::{
    Compare as EtcdCompare, CompareOp, DeleteOptions, PutOptions, Txn as EtcdTxn, TxnOp,
};
use tokio::time::timeout;

use crate::{
    api::{
        Compare, Entry, Error, Key, LeaseId, MetaStore, Op, Outcome, Result, Revision, Snapshot,
        Txn, Watch,
    },
    check::check,
};
use connect::{Connector, Link};
use fault::Fault;

/// Largest message taken from etcd: its own limit of a request is 1.5 MiB by default, so this leaves
/// room for pages and for servers set to more.
const MESSAGE_BYTES_MAX: usize = 32 << 20;

/// How to reach etcd.
#[derive(Clone)]
pub struct EtcdConfig {
    /// `http://host:port` or `https://host:port`, at least one.
    pub endpoints: Vec<String>,
    /// Absent: no login.
    pub user: Option<EtcdUser>,
    /// Needed for `https` endpoints.
    pub tls: Option<EtcdTls>,
    /// Put before every key. Ends in a slash.
    pub root: String,
    /// Deadline of each call.
    pub call_timeout: Duration,
}

impl EtcdConfig {
    /// Endpoints without login and TLS, keys under `/kreplicator/`, five seconds a call.
    #[must_use]
    pub fn new(endpoints: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            endpoints: endpoints.into_iter().map(Into::into).collect(),
            user: None,
            tls: None,
            root: "/kreplicator/".to_owned(),
            call_timeout: Duration::from_secs(5),
        }
    }
}

impl fmt::Debug for EtcdConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdConfig")
            .field("endpoints", &self.endpoints)
            .field("user", &self.user)
            .field("tls", &self.tls.is_some())
            .field("root", &self.root)
            .field("call_timeout", &self.call_timeout)
            .finish()
    }
}

/// A login. The password is never printed.
#[derive(Clone)]
pub struct EtcdUser {
    /// Name of the user.
    pub name: String,
    /// The password itself.
    pub password: String,
}

impl fmt::Debug for EtcdUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdUser")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// TLS material, all PEM.
#[derive(Clone)]
pub struct EtcdTls {
    /// Certificates that sign etcd's.
    pub ca: Vec<u8>,
    /// Our certificate and its key, where etcd asks for one.
    pub identity: Option<EtcdIdentity>,
    /// Name to expect in etcd's certificate; absent: the endpoint's host.
    pub server_name: Option<String>,
}

/// A client certificate. The key is never printed.
#[derive(Clone)]
pub struct EtcdIdentity {
    /// Certificate chain.
    pub certificate: Vec<u8>,
    /// Private key.
    pub key: Vec<u8>,
}

impl fmt::Debug for EtcdTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdTls")
            .field("identity", &self.identity)
            .field("server_name", &self.server_name)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for EtcdIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdIdentity").finish_non_exhaustive()
    }
}

/// A metadata store in etcd.
pub struct EtcdStore {
    connector: Connector,
    root: String,
    call_timeout: Duration,
}

/// Whether a call may be made twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Repeat {
    Harmless,
    Never,
}

impl EtcdStore {
    /// Checks `config`. Nothing is sent yet: the connection is made by the first call.
    ///
    /// # Errors
    /// [`Error::Invalid`] when an endpoint, the root or the TLS material cannot be used.
    pub fn connect(config: EtcdConfig) -> Result<Self> {
        if config.root.is_empty() || !config.root.ends_with('/') {
            return Err(Error::Invalid(format!(
                "root {:?} does not end in a slash; write for example /kreplicator/",
                config.root
            )));
        }
        if config.call_timeout < Duration::from_millis(100) {
            return Err(Error::Invalid(format!(
                "call timeout {:?} is under 100 ms",
                config.call_timeout
            )));
        }
        Ok(Self {
            connector: Connector::new(&config)?,
            root: config.root,
            call_timeout: config.call_timeout,
        })
    }

    fn full(&self, key: &str) -> Vec<u8> {
        format!("{}{key}", self.root).into_bytes()
    }

    /// Makes a call under our deadline. A refused token leads to a new login and a second attempt;
    /// so does a lost connection where that is harmless.
    async fn call<T, Fut>(&self, repeat: Repeat, call: impl Fn(Link) -> Fut) -> Result<T>
    where
        Fut: Future<Output = std::result::Result<T, Fault>>,
    {
        let attempts = async {
            let mut last = false;
            loop {
                let link = self.connector.link().await?;
                let generation = link.generation;
                let under_way = self.connector.under_way(generation);
                let answer = call(link).await;
                under_way.answered();
                let fault = match answer {
                    Ok(answer) => return Ok(answer),
                    Err(fault) => fault,
                };
                let again = match &fault {
                    Fault::Login(_) => self.connector.log_in_again(generation).await,
                    Fault::Away(_) => {
                        self.connector.leave(generation).await;
                        repeat == Repeat::Harmless
                    }
                    Fault::Refused(_) => false,
                };
                if last || !again {
                    return Err(fault.into());
                }
                last = true;
            }
        };
        timeout(self.call_timeout, attempts)
            .await
            .unwrap_or_else(|_| {
                Err(Error::Unavailable(format!(
                    "no answer from etcd ({}) within {:?}",
                    self.connector, self.call_timeout
                )))
            })
    }

    fn etcd_txn(&self, txn: Txn) -> EtcdTxn {
        let compares: Vec<EtcdCompare> = txn
            .compares
            .into_iter()
            .map(|compare| {
                let made = |key: Key, at| {
                    EtcdCompare::create_revision(self.full(&key), CompareOp::Equal, at)
                };
                match compare {
                    Compare::Absent(key) => made(key, 0),
                    Compare::CreatedAt(key, at) => made(key, at.0),
                    Compare::ModifiedAt(key, at) => {
                        EtcdCompare::mod_revision(self.full(&key), CompareOp::Equal, at.0)
                    }
                }
            })
            .collect();
        let ops: Vec<TxnOp> = txn
            .ops
            .into_iter()
            .map(|op| match op {
                Op::Put { key, value, lease } => {
                    let options = lease.map(|lease| PutOptions::new().with_lease(lease.0));
                    TxnOp::put(self.full(&key), value, options)
                }
                Op::Delete(key) => TxnOp::delete(self.full(&key), None),
                Op::DeletePrefix(prefix) => {
                    let options = DeleteOptions::new().with_prefix();
                    TxnOp::delete(self.full(&prefix), Some(options))
                }
            })
            .collect();
        EtcdTxn::new().when(compares).and_then(ops)
    }
}

impl fmt::Debug for EtcdStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdStore")
            .field("connector", &self.connector)
            .field("root", &self.root)
            .finish_non_exhaustive()
    }
}

/// The lease that a transaction needs, if any.
fn lease_of(txn: &Txn) -> Option<LeaseId> {
    txn.ops.iter().find_map(|op| match op {
        Op::Put { lease, .. } => *lease,
        Op::Delete(_) | Op::DeletePrefix(_) => None,
    })
}

#[async_trait]
impl MetaStore for EtcdStore {
    async fn get(&self, key: &str) -> Result<Option<Entry>> {
        self.call(Repeat::Harmless, |mut link| {
            let key = self.full(key);
            async move {
                let answer = link.client.get(key, None).await?;
                Ok(answer.kvs().first().map(list::entry))
            }
        })
        .await
    }

    async fn list(&self, prefix: &str) -> Result<Snapshot> {
        self.list_paged(prefix).await
    }

    async fn commit(&self, txn: Txn) -> Result<Outcome> {
        check(&txn)?;
        let lease = lease_of(&txn);
        let txn = self.etcd_txn(txn);
        self.call(Repeat::Never, |mut link| {
            let txn = txn.clone();
            async move {
                let answer = link
                    .client
                    .txn(txn)
                    .await
                    .map_err(|error| fault::of_lease(error, lease))?;
                if !answer.succeeded() {
                    return Ok(Outcome::Conflict);
                }
                let revision = answer.header().map_or(0, |header| header.revision());
                Ok(Outcome::Committed(Revision(revision)))
            }
        })
        .await
    }

    async fn grant(&self, ttl: Duration) -> Result<LeaseId> {
        if ttl.is_zero() {
            return Err(Error::Invalid("time to live is zero".to_owned()));
        }
        let whole = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
        let seconds = i64::try_from(whole)
            .map_err(|_| Error::Invalid(format!("time to live {ttl:?} is too long")))?;
        // A grant whose answer was lost leaves a lease without keys, which runs out.
        self.call(Repeat::Harmless, |mut link| async move {
            let granted = link.client.lease_grant(seconds, None).await?;
            Ok(LeaseId(granted.id()))
        })
        .await
    }

    async fn keep_alive(&self, lease: LeaseId) -> Result<Duration> {
        self.call(Repeat::Harmless, |mut link| async move {
            // Opening the stream renews the lease but hides the answer; so ask once more.
            let opened = link.client.lease_keep_alive(lease.0).await;
            let (mut keeper, mut answers) =
                opened.map_err(|error| fault::of_lease(error, Some(lease)))?;
            keeper.keep_alive().await?;
            let answer = answers
                .message()
                .await?
                .ok_or_else(|| Fault::Away("etcd ended the keep-alive".to_owned()))?;
            match u64::try_from(answer.ttl()) {
                Ok(seconds) if seconds > 0 => Ok(Duration::from_secs(seconds)),
                _ => Err(Fault::Refused(Error::LeaseGone(lease))),
            }
        })
        .await
    }

    async fn revoke(&self, lease: LeaseId) -> Result<()> {
        let revoked = self.call(Repeat::Harmless, |mut link| async move {
            link.client
                .lease_revoke(lease.0)
                .await
                .map_err(|error| fault::of_lease(error, Some(lease)))?;
            Ok(())
        });
        match revoked.await {
            Ok(()) | Err(Error::LeaseGone(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn watch(&self, prefix: &str, from: Revision) -> Result<Box<dyn Watch>> {
        let watch = self.call(Repeat::Harmless, |link| {
            let (root, prefix) = (self.root.clone(), prefix.to_owned());
            async move { watch::EtcdWatch::open(link.client, root, &prefix, from).await }
        });
        Ok(Box::new(watch.await?))
    }
}
