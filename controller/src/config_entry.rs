//! What operators asked for, as it stands under `config/`: the one reader of keys and values, for the
//! API and for the reconcile loop.

use kreplicator_model::{
    ids::{ClusterId, LinkId},
    spec::{Cluster, Link},
};
use kreplicator_proto::{
    stored::{Stored, Unreadable},
    subscription_record::SubscriptionRecord,
};
use kreplicator_store::keys;

/// What a key stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    Cluster(ClusterId),
    Link(LinkId),
    Subscription(LinkId, String),
}

/// A value that stands where it belongs.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Item {
    Cluster(Cluster),
    Link(Link),
    Subscription(SubscriptionRecord),
}

/// What a key stands for; None: for nothing of ours.
pub(crate) fn place(key: &str) -> Option<Place> {
    if let Some(id) = key.strip_prefix(keys::CLUSTERS) {
        return ClusterId::new(id).ok().map(Place::Cluster);
    }
    if let Some(id) = key.strip_prefix(keys::LINKS) {
        return LinkId::new(id).ok().map(Place::Link);
    }
    let (link, id) = key.strip_prefix(keys::SUBSCRIPTIONS)?.split_once('/')?;
    let (link, id) = (LinkId::new(link).ok()?, keys::decode(id)?);
    Some(Place::Subscription(link, id))
}

/// Reads the value found at a key; None: it is nothing of ours.
///
/// # Errors
/// It cannot be read, or belongs to another key: nobody of ours has written it there.
pub(crate) fn read(key: &str, value: &[u8]) -> Result<Option<Item>, Unreadable> {
    let (item, belongs_at) = if key.starts_with(keys::CLUSTERS) {
        let cluster = Cluster::decode(key, value)?;
        let at = keys::cluster(&cluster.id);
        (Item::Cluster(cluster), at)
    } else if key.starts_with(keys::LINKS) {
        let link = Link::decode(key, value)?;
        let at = keys::link(&link.id);
        (Item::Link(link), at)
    } else if key.starts_with(keys::SUBSCRIPTIONS) {
        let record = SubscriptionRecord::decode(key, value)?;
        let subscription = &record.subscription;
        let at = keys::subscription(&subscription.link, &subscription.selector.id());
        (Item::Subscription(record), at)
    } else {
        return Ok(None);
    };
    if belongs_at != key {
        return Err(Unreadable {
            key: key.to_owned(),
            reason: "the value belongs to another key; delete it".to_owned(),
        });
    }
    Ok(Some(item))
}
