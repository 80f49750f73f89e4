//! A local folder keeps the contract of every store.

mod contract;

use std::sync::Arc;

use contract::{Fixture, contract_tests};
use kreplicator_dump::store::{
    FileStore,
    local::{LocalSettings, LocalStore},
};
use tempfile::TempDir;

struct Local {
    store: Arc<LocalStore>,
    _folder: TempDir,
}

impl Local {
    async fn start() -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        let settings = LocalSettings::new(folder.path().join("made/by ready"));
        let store = LocalStore::new(&settings).expect("usable settings");
        store.ready().await.expect("ready");
        Some(Self {
            store: Arc::new(store),
            _folder: folder,
        })
    }
}

impl Fixture for Local {
    fn store(&self) -> Arc<dyn FileStore> {
        Arc::clone(&self.store) as Arc<dyn FileStore>
    }
}

contract_tests!(tokio::test(flavor = "multi_thread"), Local::start());
