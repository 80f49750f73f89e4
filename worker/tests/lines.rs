//! The book of lines on the embedded store, in memory and in a file.

mod line_book;

use std::sync::Arc;

use kreplicator_store::{EmbeddedStore, MetaStore};

struct Held {
    store: Arc<dyn MetaStore>,
    /// The file's folder, while the store lives.
    _folder: Option<tempfile::TempDir>,
}

impl Held {
    fn store(&self) -> Arc<dyn MetaStore> {
        Arc::clone(&self.store)
    }
}

mod in_memory {
    use super::{Arc, EmbeddedStore, Held, line_book};

    async fn open() -> Held {
        Held {
            store: Arc::new(EmbeddedStore::in_memory()),
            _folder: None,
        }
    }

    line_book::line_book_tests!(tokio::test(flavor = "multi_thread"), open());
}

mod in_a_file {
    use super::{Arc, EmbeddedStore, Held, line_book};

    async fn open() -> Held {
        let folder = tempfile::tempdir().expect("a folder");
        let store = EmbeddedStore::open(folder.path().join("store")).await;
        Held {
            store: Arc::new(store.expect("opens")),
            _folder: Some(folder),
        }
    }

    line_book::line_book_tests!(tokio::test(flavor = "multi_thread"), open());
}
