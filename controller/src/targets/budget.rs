//! How many new partitions one target cluster is asked for at a time, whatever links ask.
//!
//! A broker that makes thousands of partitions at once keeps its other clients waiting (C049); so new
//! ones are asked for no faster than it shows that it is done with those before. The broker does not
//! care which link they are for, so the links of one target share its budget: each may take what is
//! free as long as nobody else waits, and an equal part of it otherwise.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use kreplicator_model::ids::{ClusterId, LinkId};
use tokio::sync::watch;

/// Most partitions that were made or grown on one cluster and do not show in its metadata yet, unless
/// one topic alone has more.
const UNSEEN_PARTITIONS_MAX: i32 = 256;

/// The budgets of all target clusters that are in use.
#[derive(Debug, Default)]
pub(super) struct Budgets(Mutex<BTreeMap<ClusterId, Weak<Budget>>>);

/// One cluster's: the claims of the links that write to it.
#[derive(Debug)]
struct Budget(watch::Sender<BTreeMap<LinkId, Claim>>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Claim {
    /// Partitions that were asked for and do not show yet.
    unseen: i32,
    /// It was refused more.
    waits: bool,
}

/// One link's part in the budget of its target; given back when dropped.
#[derive(Debug)]
pub(super) struct Share {
    link: LinkId,
    budget: Arc<Budget>,
    freed: watch::Receiver<BTreeMap<LinkId, Claim>>,
}

impl Budgets {
    /// The part of a link in the budget of a cluster.
    pub(super) fn share(&self, target: &ClusterId, link: &LinkId) -> Share {
        let mut budgets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        budgets.retain(|_, budget| budget.strong_count() > 0);
        let known = budgets.get(target).and_then(Weak::upgrade);
        let budget = known.unwrap_or_else(|| Arc::new(Budget(watch::Sender::default())));
        budgets.insert(target.clone(), Arc::downgrade(&budget));
        Share {
            link: link.clone(),
            freed: budget.0.subscribe(),
            budget,
        }
    }
}

impl Share {
    /// Begins a round with so many partitions that do not show yet. Whatever is freed from now on is
    /// told by [`Self::freed`].
    pub(super) fn begin(&mut self, unseen: i32) {
        let claim = Claim {
            unseen,
            waits: false,
        };
        self.put((claim.unseen > 0).then_some(claim));
        self.freed.mark_unchanged();
    }

    /// Whether so many new partitions may be asked for.
    pub(super) fn takes(&self, partitions: i32) -> bool {
        let mut takes = false;
        self.budget.0.send_if_modified(|claims| {
            let own = claims.get(&self.link).map_or(0, |claim| claim.unseen);
            let all = claims.values().map(|claim| claim.unseen);
            let others = all.fold(0, i32::saturating_add).saturating_sub(own);
            let room = UNSEEN_PARTITIONS_MAX.saturating_sub(others);
            let others_count = claims.keys().filter(|link| **link != self.link).count();
            let claimants = i32::try_from(others_count)
                .unwrap_or(i32::MAX)
                .saturating_add(1);
            let fair = (UNSEEN_PARTITIONS_MAX / claimants).max(1);
            let sum = own.saturating_add(partitions);
            takes = if own == 0 {
                // One topic alone may have more than there is.
                sum <= room || room >= fair
            } else {
                sum <= room.min(fair)
            };
            let claim = Claim {
                unseen: if takes { sum } else { own },
                waits: !takes,
            };
            claims.insert(self.link.clone(), claim);
            // Nothing was freed.
            false
        });
        takes
    }

    /// Waits until some of the budget was freed, if more was refused; for ever otherwise.
    pub(super) async fn freed(&mut self) {
        let waits = |claims: &BTreeMap<LinkId, Claim>| {
            claims.get(&self.link).is_some_and(|claim| claim.waits)
        };
        if !waits(&self.budget.0.borrow()) || self.freed.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    fn put(&self, claim: Option<Claim>) {
        self.budget.0.send_if_modified(|claims| {
            let before = match claim {
                Some(claim) => claims.insert(self.link.clone(), claim),
                None => claims.remove(&self.link),
            };
            let left = claim.map_or(0, |claim| claim.unseen);
            // A link that waits no more leaves the others larger parts.
            before.is_some_and(|before| before.unseen > left || before.waits)
        });
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.put(None);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    fn share(budgets: &Budgets, target: &str, link: &str) -> Share {
        budgets.share(
            &ClusterId::new(target).expect("legal"),
            &LinkId::new(link).expect("legal"),
        )
    }

    #[test]
    fn c049_links_of_one_target_share_its_budget() {
        let budgets = Budgets::default();
        let (first, second) = (share(&budgets, "b", "a-b"), share(&budgets, "b", "c-b"));
        let elsewhere = share(&budgets, "d", "a-d");
        assert!(first.takes(200));
        assert!(
            !second.takes(100),
            "100 more than the broker is to make at once"
        );
        assert!(second.takes(56));
        assert!(elsewhere.takes(256), "another cluster's broker");
        drop(first);
        assert!(second.takes(200));
    }

    #[test]
    fn c049_a_link_that_waits_gets_its_part_before_another_goes_on() {
        let budgets = Budgets::default();
        let (mut first, second) = (share(&budgets, "b", "a-b"), share(&budgets, "b", "c-b"));
        assert!(first.takes(256));
        assert!(!second.takes(100));
        first.begin(200);
        assert!(!first.takes(1), "the second waits");
        first.begin(128);
        assert!(second.takes(100));
    }

    #[test]
    fn a_topic_that_alone_has_more_is_made_alone() {
        let budgets = Budgets::default();
        let (first, second) = (share(&budgets, "b", "a-b"), share(&budgets, "b", "c-b"));
        assert!(first.takes(1_000));
        assert!(!first.takes(1));
        assert!(!second.takes(1));
    }

    #[tokio::test(start_paused = true)]
    async fn who_was_refused_hears_when_some_is_freed() {
        let budgets = Budgets::default();
        let (mut first, mut second) = (share(&budgets, "b", "a-b"), share(&budgets, "b", "c-b"));
        let hears = async |share: &mut Share| {
            let freed = timeout(Duration::from_secs(60), share.freed());
            freed.await.is_ok()
        };
        first.begin(0);
        assert!(first.takes(256));
        second.begin(0);
        assert!(!second.takes(10));
        assert!(!hears(&mut second).await, "nothing was freed");
        first.begin(100);
        assert!(hears(&mut second).await);
        second.begin(0);
        assert!(second.takes(10));
        first.begin(0);
        assert!(!hears(&mut second).await, "it waits for nothing");
    }
}
