//! Which replica of a source partition is read: the leader, or a follower nearer to us that the leader names
//! when it is told where we stand (`client.rack`).
//!
//! ```text
//!          the leader names one              it fails, lags, is gone
//!   Asking ────────────────────► Follower ──────────────────────────► Leader
//!     ▲                             │ after some minutes                 │ after some minutes
//!     └─────────────────────────────┴────────────────────────────────────┘
//! ```
//!
//! While asking, the leader is told our rack and gives records, if it names nobody. After a follower failed
//! it is not told our rack: it would name the same follower again instead of giving records.
//!
//! # Source
//! KIP-392; `ReplicaManager.scala` of Kafka 4.3.1: a leader that names a replica gives no records.

use std::time::Duration;

use kreplicator_wire::topic::BrokerId;
use tokio::time::Instant;

/// For how long a choice holds before the leader is asked anew: `metadata.max.age.ms` of Kafka's own
/// consumer.
const CHOICE_AGE_MAX: Duration = Duration::from_secs(300);

/// The choice for one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Nearest {
    /// Whom the leader names, if anybody, when it is told our rack.
    Asking,
    /// The one that it named then.
    Follower(BrokerId, Instant),
    /// The leader, since a follower failed then.
    Leader(Instant),
}

/// How a partition is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Way {
    /// From whom.
    pub(super) broker: BrokerId,
    /// It is told our rack.
    pub(super) tells_rack: bool,
    /// It does not lead the partition, so what it refuses the leader may give.
    pub(super) is_follower: bool,
}

impl Nearest {
    /// The way to take; the leader is asked anew when it is time, or when the follower is listed by the
    /// cluster no longer or leads by now.
    pub(super) fn way(
        &mut self,
        leader: BrokerId,
        is_listed: impl FnOnce(BrokerId) -> bool,
        now: Instant,
    ) -> Way {
        if let Self::Follower(broker, _) = *self
            && (broker == leader || !is_listed(broker))
        {
            *self = Self::Asking;
        }
        if self.is_due(now) {
            *self = Self::Asking;
        }
        match *self {
            Self::Asking => Way {
                broker: leader,
                tells_rack: true,
                is_follower: false,
            },
            Self::Follower(broker, _) => Way {
                broker,
                tells_rack: false,
                is_follower: true,
            },
            Self::Leader(_) => Way {
                broker: leader,
                tells_rack: false,
                is_follower: false,
            },
        }
    }

    /// Whether the choice is so old that the leader is to be asked anew.
    pub(super) fn is_due(self, now: Instant) -> bool {
        match self {
            Self::Asking => false,
            Self::Follower(_, since) | Self::Leader(since) => now - since >= CHOICE_AGE_MAX,
        }
    }

    /// The leader names a replica.
    pub(super) fn told(&mut self, replica: BrokerId, now: Instant) {
        *self = Self::Follower(replica, now);
    }

    /// The replica that was read from gives nothing. True: the leader may.
    pub(super) fn failed(&mut self, now: Instant) -> bool {
        let was_follower = matches!(self, Self::Follower(..));
        if was_follower {
            *self = Self::Leader(now);
        }
        was_follower
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEADER: BrokerId = BrokerId(1);
    const NEAR: BrokerId = BrokerId(2);

    fn way(nearest: &mut Nearest, now: Instant) -> (i32, bool, bool) {
        let way = nearest.way(LEADER, |_| true, now);
        (way.broker.0, way.tells_rack, way.is_follower)
    }

    #[test]
    fn the_named_follower_is_read_until_it_fails_and_then_the_leader_without_our_rack() {
        let now = Instant::now();
        let mut nearest = Nearest::Asking;
        assert_eq!(way(&mut nearest, now), (1, true, false));
        assert!(!nearest.failed(now), "it was the leader");
        nearest.told(NEAR, now);
        assert_eq!(way(&mut nearest, now), (2, false, true));
        assert!(nearest.failed(now));
        assert_eq!(way(&mut nearest, now), (1, false, false));
    }

    #[test]
    fn after_some_minutes_the_leader_is_asked_anew() {
        let now = Instant::now();
        for mut nearest in [Nearest::Follower(NEAR, now), Nearest::Leader(now)] {
            let soon = now + CHOICE_AGE_MAX / 2;
            assert!(!nearest.is_due(soon));
            assert!(!way(&mut nearest, soon).1);
            let late = now + CHOICE_AGE_MAX;
            assert!(nearest.is_due(late));
            assert_eq!(way(&mut nearest, late), (1, true, false));
            assert!(!nearest.is_due(late), "it is asked once");
        }
    }

    #[test]
    fn a_follower_that_is_gone_or_leads_by_now_is_not_read_as_one() {
        let now = Instant::now();
        let mut nearest = Nearest::Follower(NEAR, now);
        let way = nearest.way(LEADER, |_| false, now);
        assert_eq!((way.broker, way.is_follower), (LEADER, false));
        let mut nearest = Nearest::Follower(NEAR, now);
        let way = nearest.way(NEAR, |_| true, now);
        assert_eq!((way.broker, way.is_follower), (NEAR, false));
    }
}
