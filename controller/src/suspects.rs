//! Listens for workers that fall silent, apart from the reconcile loop: that may take long, and takes its
//! time from others only when there is news.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use kreplicator_model::{
    ids::WorkerId,
    suspicion::{Heard, Suspicion},
};
use tokio::{
    sync::watch,
    time::{Instant, MissedTickBehavior, interval},
};
use tracing::{info, warn};

use crate::{fleet::FleetState, reports::Reports};

/// Looks in the time after which a worker is suspected.
const LOOKS: u32 = 8;

/// Suspects now.
pub(crate) type Suspects = Arc<BTreeSet<WorkerId>>;

/// Tells who is silent, for ever. Nobody is when `after` is zero.
pub(crate) async fn listen(
    after: Duration,
    reports: Arc<Reports>,
    fleet: watch::Receiver<Arc<FleetState>>,
    suspects: watch::Sender<Suspects>,
) {
    if after.is_zero() {
        return std::future::pending().await;
    }
    let base = Instant::now();
    let mut suspicion = Suspicion::new(after);
    let mut tick = interval(after / LOOKS);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let now = Instant::now();
        let workers = {
            let fleet = fleet.borrow();
            let view = reports.view(now);
            let live = fleet.workers.iter().filter(|(_, worker)| worker.live);
            let heard = live.map(|(id, worker)| {
                let heard = view.heard(id, &worker.incarnation);
                let heard = heard.unwrap_or_else(|| Heard {
                    incarnation: worker.incarnation.clone(),
                    silent: Duration::ZERO,
                    interval: Duration::ZERO,
                });
                (id.clone(), heard)
            });
            heard.collect::<BTreeMap<_, _>>()
        };
        let found = suspicion.step(now - base, &workers);
        suspects.send_if_modified(|known| {
            if **known == *found {
                return false;
            }
            for worker in found.difference(known) {
                warn!(%worker, "worker is silent; what bears a second owner is given to others");
            }
            for worker in known.difference(found) {
                info!(%worker, "worker is no longer suspected: it was heard, or its lease is over");
            }
            *known = Arc::new(found.clone());
            true
        });
    }
}
