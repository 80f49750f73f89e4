//! A subscription as stored: what was asked for and what was noted about it.

use kreplicator_model::{ids::UnixMillis, spec::Subscription};

use crate::{
    fault::{Faults, FieldFault},
    v1,
};

/// Value of `config/subscription/<link>/<id>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubscriptionRecord {
    /// What was asked for.
    pub subscription: Subscription,
    /// When it was first asked for.
    pub created_at: UnixMillis,
    /// The first discovery pass over the source is done: topics that appear from now on are new and
    /// are read from offset 0.
    pub baseline: bool,
}

impl TryFrom<&v1::SubscriptionRecord> for SubscriptionRecord {
    type Error = Vec<FieldFault>;

    fn try_from(message: &v1::SubscriptionRecord) -> Result<Self, Self::Error> {
        let mut faults = Faults::default();
        let subscription = match &message.subscription {
            Some(subscription) => faults.part("subscription", Subscription::try_from(subscription)),
            None => {
                faults.add("subscription", "is missing");
                None
            }
        };
        faults.finish(subscription.map(|subscription| Self {
            subscription,
            created_at: UnixMillis(message.created_at_ms),
            baseline: message.baseline,
        }))
    }
}

impl From<&SubscriptionRecord> for v1::SubscriptionRecord {
    fn from(record: &SubscriptionRecord) -> Self {
        Self {
            subscription: Some(v1::Subscription::from(&record.subscription)),
            created_at_ms: record.created_at.0,
            baseline: record.baseline,
        }
    }
}
