//! Which store to use.

use std::{path::PathBuf, sync::Arc};

use crate::{
    api::{MetaStore, Result},
    embedded::EmbeddedStore,
    etcd::{EtcdConfig, EtcdStore},
};

/// One of the stores there are.
#[derive(Debug, Clone)]
pub enum StoreConfig {
    /// etcd, for fleets.
    Etcd(EtcdConfig),
    /// One file of this process alone.
    File(PathBuf),
    /// This process's memory: gone at its end.
    Memory,
}

impl StoreConfig {
    /// Makes the store. etcd need not be up.
    ///
    /// # Errors
    /// [`crate::api::Error::Invalid`] for settings that cannot be used; for a file also what the disk
    /// says.
    ///
    /// # Panics
    /// Outside a Tokio runtime.
    pub async fn open(self) -> Result<Arc<dyn MetaStore>> {
        Ok(match self {
            Self::Etcd(config) => Arc::new(EtcdStore::connect(config)?),
            Self::File(path) => Arc::new(EmbeddedStore::open(path).await?),
            Self::Memory => Arc::new(EmbeddedStore::in_memory()),
        })
    }
}
