//! The book of lines on a real etcd.

#[path = "../../worker/tests/line_book/mod.rs"]
mod line_book;

use std::sync::Arc;

use kreplicator_store::{EtcdConfig, EtcdStore, MetaStore};
use kreplicator_tests::etcd::Etcd;

struct Held {
    store: Arc<EtcdStore>,
    _etcd: Etcd,
}

impl Held {
    async fn start() -> Self {
        let etcd = Etcd::start().await.expect("etcd starts");
        let config = EtcdConfig::new([etcd.endpoint()]);
        Self {
            store: Arc::new(EtcdStore::connect(config).expect("usable settings")),
            _etcd: etcd,
        }
    }

    fn store(&self) -> Arc<dyn MetaStore> {
        Arc::clone(&self.store) as Arc<dyn MetaStore>
    }
}

line_book::line_book_tests!(tokio::test(flavor = "multi_thread"), Held::start());
