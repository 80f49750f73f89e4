//! Watching subscriptions: the present state, then every change.
//!
//! Level-triggered: what was sent last is compared with what is so now, so that a watcher that reads
//! slowly misses states in between but never the latest, and holds no queue of its own growing. One
//! that does not read at all is told to watch again.
//!
//! Numbers that move all the time (lag) are sent along, but are no reason to send.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use kreplicator_model::ids::LinkId;
use kreplicator_proto::{status::Refusal, v1};
use prost::Message;
use sha2::{Digest, Sha256};
use tokio::{
    sync::mpsc,
    time::{Instant, MissedTickBehavior, interval, sleep_until},
};
use tonic::Status;

use super::{
    core::Core,
    leadership::moved,
    picture::Picture,
    subscription_view::{TOPICS_LISTED_MAX, info, topics_of},
};
use crate::reports::View;

/// Events on their way to one watcher.
const BUFFER: usize = 256;
/// Shortest time between two comparisons: changes within it are sent together.
const PACE: Duration = Duration::from_millis(200);
/// Reports of workers, and what was written past the API, are looked at this often.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// A watcher that takes nothing for this long is cut off.
const PATIENCE: Duration = Duration::from_secs(30);

type Events = mpsc::Sender<Result<v1::SubscriptionEvent, Status>>;

/// Where a subscription is, with the digest of what was sent of it last.
type Sent = BTreeMap<(LinkId, String), [u8; 32]>;

/// Starts a watch.
pub(crate) async fn open(
    core: &Arc<Core>,
    request: v1::WatchRequest,
) -> Result<mpsc::Receiver<Result<v1::SubscriptionEvent, Status>>, Refusal> {
    let link = match request.link.as_str() {
        "" => None,
        link => {
            let loaded = core.desired.load().await?;
            let known = loaded.desired.links.get(link).ok_or(Refusal::NotFound {
                kind: "link",
                id: request.link.clone(),
            })?;
            Some(known.id.clone())
        }
    };
    let (sender, receiver) = mpsc::channel(BUFFER);
    let watcher = Watcher {
        core: Arc::clone(core),
        link,
        sender,
        sent: Sent::new(),
    };
    core.tasks.spawn(watcher.run());
    Ok(receiver)
}

struct Watcher {
    core: Arc<Core>,
    link: Option<LinkId>,
    sender: Events,
    sent: Sent,
}

impl Watcher {
    async fn run(mut self) {
        let sender = self.sender.clone();
        let core = Arc::clone(&self.core);
        // The last word has its place however full the buffer is.
        let Ok(last_word) = sender.clone().reserve_owned().await else {
            return;
        };
        let end = tokio::select! {
            refusal = self.follow() => refusal,
            () = core.shutdown.cancelled() => shutting_down(),
            () = sender.closed() => return,
        };
        last_word.send(Err(Status::from(end)));
    }

    /// Follows until something ends it.
    async fn follow(&mut self) -> Refusal {
        match self.try_follow().await {
            Ok(never) => match never {},
            Err(refusal) => refusal,
        }
    }

    async fn try_follow(&mut self) -> Result<std::convert::Infallible, Refusal> {
        let core = Arc::clone(&self.core);
        let term = core.leadership.term()?;
        let mut fleet = core.parts.fleet.clone();
        let mut changes = core.writer.changes();
        let mut look = interval(LOOK_EVERY);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        look.reset();
        // The first picture is worth waiting for.
        core.fleet().await;
        let mut is_synced = false;
        loop {
            fleet.mark_unchanged();
            changes.mark_unchanged();
            let began = Instant::now();
            self.send_changes().await?;
            if !is_synced {
                self.send(v1::subscription_event::Event::Synced(true))
                    .await?;
                is_synced = true;
            }
            sleep_until(began + PACE).await;
            tokio::select! {
                () = core.leadership.over(&term) => return Err(moved()),
                changed = fleet.changed() => changed.map_err(|_| shutting_down())?,
                changed = changes.changed() => changed.map_err(|_| shutting_down())?,
                _ = look.tick() => {}
            }
        }
    }

    /// Sends what is not as it was sent last.
    async fn send_changes(&mut self) -> Result<(), Refusal> {
        let events = self.changes().await?;
        for event in events {
            self.send(event).await?;
        }
        Ok(())
    }

    async fn changes(&mut self) -> Result<Vec<v1::subscription_event::Event>, Refusal> {
        use v1::subscription_event::Event;

        let loaded = self.core.desired.load().await?;
        let fleet = Arc::clone(&self.core.parts.fleet.borrow());
        let is_wanted = |link: &LinkId| self.link.as_ref().is_none_or(|wanted| wanted == link);
        let sent = &self.sent;
        let walk = |reports: &View| {
            let picture = Picture::new(&fleet, reports);
            let topics = topics_of(picture, is_wanted);
            let mut events = Vec::new();
            let mut now = Sent::new();
            for (place, subscription) in &loaded.desired.subscriptions {
                if !is_wanted(&place.0) {
                    continue;
                }
                let info = info(
                    &loaded.desired,
                    picture,
                    &topics,
                    &place.1,
                    subscription,
                    TOPICS_LISTED_MAX,
                );
                let digest = digest(&info);
                if sent.get(place) != Some(&digest) {
                    events.push(Event::Updated(info));
                }
                now.insert(place.clone(), digest);
            }
            (events, now)
        };
        let (mut events, now) = self.core.walk(walk).await;
        for (link, id) in self.sent.keys() {
            if !now.contains_key(&(link.clone(), id.clone())) {
                events.push(Event::Deleted(v1::SubscriptionRef {
                    link: link.to_string(),
                    id: id.clone(),
                }));
            }
        }
        self.sent = now;
        Ok(events)
    }

    async fn send(&self, event: v1::subscription_event::Event) -> Result<(), Refusal> {
        let event = v1::SubscriptionEvent { event: Some(event) };
        match self.sender.send_timeout(Ok(event), PATIENCE).await {
            Ok(()) => Ok(()),
            Err(mpsc::error::SendTimeoutError::Timeout(_)) => Err(Refusal::Exhausted(format!(
                "nothing was read from this watch for {PATIENCE:?}; watch again and read faster"
            ))),
            // Nobody listens any more: the caller of `follow` ends on that.
            Err(mpsc::error::SendTimeoutError::Closed(_)) => Err(shutting_down()),
        }
    }
}

fn shutting_down() -> Refusal {
    Refusal::Unavailable("this controller is shutting down; watch again".to_owned())
}

/// A digest of what is worth telling.
fn digest(info: &v1::SubscriptionInfo) -> [u8; 32] {
    let mut info = info.clone();
    if let Some(status) = &mut info.status {
        status.lag_records = None;
    }
    Sha256::digest(info.encode_to_vec()).into()
}

#[cfg(test)]
mod tests;
