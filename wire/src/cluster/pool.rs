//! Connections to brokers, one for each broker and purpose, opened when they are needed. A broker
//! that cannot be reached is left alone for growing pauses, whoever asks for it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::time::{Instant, sleep_until, timeout_at};

use super::Purpose;
use crate::{
    connection::Connection,
    error::Error,
    open::{self, Profile},
    topic::BrokerId,
};

/// Where to connect to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    /// A broker by its number.
    Broker(BrokerId),
    /// The bootstrap server of this index.
    Bootstrap(usize),
}

pub(super) struct Pool {
    profile: Profile,
    slots: Mutex<BTreeMap<(Place, Purpose), Arc<Slot>>>,
    health: Mutex<BTreeMap<Place, Health>>,
}

/// A connection and the lane of those who want it opened.
#[derive(Debug, Default)]
struct Slot {
    /// The connection and the address it was opened to.
    connection: tokio::sync::Mutex<Option<(Connection, String)>>,
}

/// Failures since a place was last reached.
#[derive(Debug, Clone)]
struct Health {
    failures: u32,
    retry_at: Instant,
    fault: Error,
}

impl Pool {
    pub(super) fn new(profile: Profile) -> Self {
        Self {
            profile,
            slots: Mutex::default(),
            health: Mutex::default(),
        }
    }

    /// The open connection, or a new one.
    pub(super) async fn get(
        &self,
        place: Place,
        purpose: Purpose,
        address: &str,
        deadline: Instant,
    ) -> Result<Connection, Error> {
        let slot = {
            let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(slots.entry((place, purpose)).or_default())
        };
        let unready = || Error::Connect {
            broker: Arc::from(address),
            cause: "the connection was not ready in time".to_owned(),
        };
        // Whoever comes first opens it; the others find it open.
        let mut current = timeout_at(deadline, slot.connection.lock())
            .await
            .map_err(|_elapsed| unready())?;
        if let Some((connection, opened_to)) = &*current
            && !connection.is_closed()
            && opened_to == address
        {
            return Ok(connection.clone());
        }
        *current = None;
        if let Some(health) = self.health(place) {
            if health.retry_at >= deadline {
                return Err(health.fault);
            }
            sleep_until(health.retry_at).await;
        }
        // Rare, and much larger than a look at what is open.
        match Box::pin(open::open(&self.profile, address, purpose, deadline)).await {
            Ok(connection) => {
                self.note(place, None);
                *current = Some((connection.clone(), address.to_owned()));
                Ok(connection)
            }
            Err(fault) => {
                tracing::debug!(%address, ?purpose, %fault, "connection not opened");
                self.note(place, Some(fault.clone()));
                Err(fault)
            }
        }
    }

    fn health(&self, place: Place) -> Option<Health> {
        let health = self.health.lock().unwrap_or_else(PoisonError::into_inner);
        health.get(&place).cloned()
    }

    fn note(&self, place: Place, fault: Option<Error>) {
        let mut health = self.health.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(fault) = fault else {
            health.remove(&place);
            return;
        };
        let failures = health.get(&place).map_or(0, |health| health.failures);
        let backoff = self.profile.settings.backoff;
        let retry_at = Instant::now() + backoff.delay(failures, rand::random());
        let failures = failures.saturating_add(1);
        let now = Health {
            failures,
            retry_at,
            fault,
        };
        health.insert(place, now);
    }

    /// How likely a place is to answer soon: less is better.
    pub(super) fn rank(&self, place: Place) -> (bool, bool, bool) {
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = slots.get(&(place, Purpose::Control));
        let is_open = slot.is_some_and(|slot| {
            let connection = slot.connection.try_lock();
            connection.is_ok_and(|connection| {
                let open = connection.as_ref();
                open.is_some_and(|(connection, _)| !connection.is_closed())
            })
        });
        let is_bootstrap = matches!(place, Place::Bootstrap(_));
        (self.health(place).is_some(), !is_open, is_bootstrap)
    }

    /// Forgets brokers that the cluster no longer has.
    pub(super) fn retain(&self, has: impl Fn(BrokerId) -> bool) {
        let keep = |place: &Place| match place {
            Place::Broker(id) => has(*id),
            Place::Bootstrap(_) => true,
        };
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.retain(|(place, _), _| keep(place));
        drop(slots);
        let mut health = self.health.lock().unwrap_or_else(PoisonError::into_inner);
        health.retain(|place, _| keep(place));
    }
}
