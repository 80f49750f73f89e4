//! The etcd store keeps the contract of every store, on a real etcd.

#[path = "../../store/tests/contract/mod.rs"]
mod contract;

use std::sync::Arc;

use contract::{Fixture, contract_tests, put, write};
use kreplicator_store::{Error, EtcdConfig, EtcdStore, MetaStore};
use kreplicator_tests::etcd::Etcd;

struct Real {
    store: Arc<EtcdStore>,
    etcd: Etcd,
}

impl Real {
    async fn start() -> Self {
        let etcd = Etcd::start().await.expect("etcd starts");
        let config = EtcdConfig::new([etcd.endpoint()]);
        let store = EtcdStore::connect(config).expect("usable settings");
        Self {
            store: Arc::new(store),
            etcd,
        }
    }
}

impl Fixture for Real {
    fn store(&self) -> Arc<dyn MetaStore> {
        Arc::clone(&self.store) as Arc<dyn MetaStore>
    }

    async fn compact(&self) {
        self.etcd.compact().await.expect("etcd is up");
    }
}

contract_tests!(tokio::test(flavor = "multi_thread"), Real::start());

#[tokio::test]
async fn keys_live_under_the_root_and_nothing_else_is_seen() {
    let real = Real::start().await;
    let mut client = real.etcd.client().await.expect("up");
    for foreign in ["/kreplicato", "/kreplicator", "/kreplicator0", "a"] {
        client.put(foreign, "x", None).await.expect("up");
    }
    write(&*real.store, vec![put("a", "1")]).await;
    let snapshot = real.store.list("").await.expect("up");
    assert_eq!(snapshot.entries.keys().collect::<Vec<_>>(), ["a"]);
    let answer = client.get("/kreplicator/a", None).await.expect("up");
    assert_eq!(answer.kvs()[0].value(), b"1");
}

#[tokio::test]
async fn values_of_any_size_together_are_listed() {
    let real = Real::start().await;
    // More than fits in one message of the transport.
    let value = "x".repeat(1_000_000);
    for n in 0..45 {
        write(&*real.store, vec![put(&format!("big/{n:02}"), &value)]).await;
    }
    let snapshot = real.store.list("big/").await.expect("in smaller pages");
    assert_eq!(snapshot.entries.len(), 45);
    let whole = |value: &[u8]| value.len() == 1_000_000;
    assert!(snapshot.entries.values().all(|entry| whole(&entry.value)));
}

#[tokio::test]
async fn settings_that_cannot_work_are_refused_with_what_is_wrong() {
    let good = EtcdConfig::new(["http://127.0.0.1:1"]);
    let endpoints = |endpoints: &[&str]| EtcdConfig {
        endpoints: endpoints.iter().map(|url| (*url).to_owned()).collect(),
        ..good.clone()
    };
    let cases = [
        (endpoints(&[]), "no etcd endpoint"),
        (endpoints(&["127.0.0.1:2379"]), "write http://host:port"),
        (endpoints(&["https://etcd:2379"]), "certificate authority"),
        (endpoints(&["http://bad host"]), "http://bad host"),
        (
            EtcdConfig {
                root: "/kreplicator".to_owned(),
                ..good.clone()
            },
            "does not end in a slash",
        ),
    ];
    for (config, expected) in cases {
        let refusal = EtcdStore::connect(config).expect_err(expected);
        assert!(matches!(refusal, Error::Invalid(_)), "{refusal}");
        assert!(refusal.to_string().contains(expected), "{refusal}");
    }
}
