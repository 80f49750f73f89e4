//! An etcd with a way to it that can be broken, and what the tests wait for.

use std::{sync::Arc, time::Duration};

use kreplicator_store::{
    Delta, EtcdConfig, EtcdStore, MetaStore, Op, Outcome, Revision, Session, SessionConfig, Txn,
    View, ViewOptions,
};
use kreplicator_tests::{etcd::Etcd, proxy::Proxy, wait};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

pub(crate) const SECOND: Duration = Duration::from_secs(1);
/// Within this a dead peer has to be noticed.
pub(crate) const NOTICE: Duration = Duration::from_secs(10);
/// Within this everything has to be well again once etcd is.
pub(crate) const RECOVERY: Duration = Duration::from_secs(20);
pub(crate) const TTL: Duration = Duration::from_secs(5);

pub(crate) fn config(urls: &[String]) -> EtcdConfig {
    EtcdConfig::new(urls)
}

pub(crate) fn store(config: EtcdConfig) -> Arc<dyn MetaStore> {
    Arc::new(EtcdStore::connect(config).expect("usable settings"))
}

/// An etcd, and a way to it that can be broken.
pub(crate) struct Rig {
    pub(crate) etcd: Etcd,
    pub(crate) proxy: Proxy,
    /// Straight to etcd.
    pub(crate) direct: Arc<dyn MetaStore>,
    /// By the proxy.
    pub(crate) proxied: Arc<dyn MetaStore>,
}

impl Rig {
    pub(crate) async fn start() -> Self {
        Self::start_with(&[]).await
    }

    pub(crate) async fn start_with(flags: &[&str]) -> Self {
        let etcd = Etcd::start_with(flags).await.expect("etcd starts");
        let proxy = Proxy::start(etcd.address()).await.expect("proxy starts");
        Self {
            direct: store(config(&[etcd.endpoint()])),
            proxied: store(config(&[proxy.http_url()])),
            etcd,
            proxy,
        }
    }
}

pub(crate) fn view(store: &Arc<dyn MetaStore>, prefix: &str) -> View {
    let options = ViewOptions::default();
    View::open(Arc::clone(store), prefix, options, CancellationToken::new())
}

pub(crate) fn session(store: &Arc<dyn MetaStore>, key: &str) -> Session {
    let config = SessionConfig::new(key, b"x".to_vec(), TTL);
    Session::start(Arc::clone(store), config, CancellationToken::new()).expect("the times fit")
}

pub(crate) fn put(key: &str, value: &str) -> Op {
    Op::Put {
        key: key.to_owned(),
        value: value.as_bytes().to_vec(),
        lease: None,
    }
}

pub(crate) fn delete(key: &str) -> Op {
    Op::Delete(key.to_owned())
}

pub(crate) async fn write(store: &Arc<dyn MetaStore>, ops: Vec<Op>) -> Revision {
    let compares = Vec::new();
    match store.commit(Txn { compares, ops }).await {
        Ok(Outcome::Committed(revision)) => revision,
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn next(view: &mut View, limit: Duration) -> Delta {
    timeout(limit, view.next()).await.expect("a delta in time")
}

/// Takes deltas until the view holds what the store holds.
pub(crate) async fn catches_up(view: &mut View, store: &Arc<dyn MetaStore>, limit: Duration) {
    let truth = store.list("").await.expect("the store is up").entries;
    let caught_up = timeout(limit, async {
        while *view.entries() != truth {
            view.next().await;
        }
    });
    if caught_up.await.is_err() {
        panic!("{:?}\nis not\n{truth:?}", view.entries());
    }
}

pub(crate) async fn notices(view: &View, limit: Duration) {
    wait::until_true("the view notices", limit, async || Ok(!view.is_synced()))
        .await
        .expect("a dead peer is noticed");
}

pub(crate) async fn recovers(view: &View, limit: Duration) {
    wait::until_true("the view follows again", limit, async || {
        Ok(view.is_synced())
    })
    .await
    .expect("the view recovers");
}
