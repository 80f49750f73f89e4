//! The target of a link: one outlet for each broker that leads anything.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use kreplicator_wire::{cluster::ClusterClient, topic::BrokerId};

use super::outlet::{Outlet, OutletHandle, Patience};
use crate::spawner::Spawner;

/// Finds outlets. Clones are the same; its tasks end when it and all lanes are gone.
#[derive(Debug, Clone)]
pub(super) struct Outlets {
    client: ClusterClient,
    /// Number of the connections of these outlets.
    number: u32,
    patience: Patience,
    spawner: Spawner,
    outlets: Arc<Mutex<HashMap<BrokerId, OutletHandle>>>,
}

impl Outlets {
    pub(super) fn new(
        client: ClusterClient,
        number: u32,
        patience: Patience,
        spawner: Spawner,
    ) -> Self {
        Self {
            client,
            number,
            patience,
            spawner,
            outlets: Arc::default(),
        }
    }

    /// The outlet to a broker.
    pub(super) fn to(&self, broker: BrokerId) -> OutletHandle {
        let mut outlets = self.outlets.lock().unwrap_or_else(PoisonError::into_inner);
        outlets.retain(|_, outlet| outlet.is_alive());
        let outlet = outlets.entry(broker).or_insert_with(|| {
            let (outlet, handle) =
                Outlet::new(self.client.clone(), broker, self.number, self.patience);
            self.spawner.spawn("an outlet", outlet.run());
            handle
        });
        outlet.clone()
    }
}
