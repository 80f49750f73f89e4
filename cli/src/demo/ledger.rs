//! The demo's book: what was produced and what arrived, so that nothing can be claimed that was not
//! counted. Pure; time is handed in.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// A topic and a partition.
pub(super) type Slot = (String, i32);

/// What was produced and what arrived of one partition.
#[derive(Debug, Clone, Default)]
struct Account {
    /// Sequence numbers acknowledged by the source. They are acknowledged in order, so these are
    /// `0..produced`.
    produced: u64,
    /// Sequence numbers below this have all arrived.
    arrived_below: u64,
    /// Those that arrived above it.
    arrived_ahead: BTreeSet<u64>,
    arrivals: u64,
    doubled: u64,
    altered: u64,
    reordered: u64,
    first_produced: Option<Duration>,
    first_arrival: Option<Duration>,
    last_arrival: Option<Duration>,
    longest_pause: Pause,
}

/// The longest time between two arrivals of new records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Pause {
    /// How long it was.
    pub(super) length: Duration,
    /// When it ended, since the demo's start.
    pub(super) ended: Duration,
}

/// The whole book.
#[derive(Debug, Clone, Default)]
pub(super) struct Ledger {
    accounts: BTreeMap<Slot, Account>,
}

/// Sums over all partitions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Totals {
    /// Partitions that were written to.
    pub(super) partitions: usize,
    /// Records acknowledged by the source.
    pub(super) produced: u64,
    /// Records read at the target, whatever they were.
    pub(super) arrivals: u64,
    /// Of these, how many arrived at least once.
    pub(super) mirrored: u64,
    /// Of these, how many never arrived.
    pub(super) missing: u64,
    /// Arrivals beyond the first of a record.
    pub(super) doubled: u64,
    /// Arrivals whose content is not what was produced.
    pub(super) altered: u64,
    /// First arrivals after a later record of their partition.
    pub(super) reordered: u64,
    /// The longest pause of any partition.
    pub(super) longest_pause: Pause,
    /// The partition that had it.
    pub(super) paused: Option<Slot>,
    /// The longest time from a partition's first record until its first arrival.
    pub(super) longest_start: Duration,
}

impl Ledger {
    /// The source acknowledged the next record of a partition.
    pub(super) fn produced(&mut self, slot: &Slot, now: Duration) {
        let account = self.account(slot);
        account.produced += 1;
        account.first_produced.get_or_insert(now);
    }

    /// A record arrived at the target.
    pub(super) fn arrived(&mut self, slot: &Slot, seq: u64, now: Duration) {
        let account = self.account(slot);
        account.arrivals += 1;
        if seq < account.arrived_below || account.arrived_ahead.contains(&seq) {
            account.doubled += 1;
            return;
        }
        if let Some(last) = account.last_arrival {
            let length = now.saturating_sub(last);
            if length > account.longest_pause.length {
                account.longest_pause = Pause { length, ended: now };
            }
        }
        account.first_arrival.get_or_insert(now);
        account.last_arrival = Some(now);
        if account.arrived_ahead.last().is_some_and(|&last| last > seq) {
            account.reordered += 1;
        }
        account.arrived_ahead.insert(seq);
        while account.arrived_ahead.remove(&account.arrived_below) {
            account.arrived_below += 1;
        }
    }

    /// A record arrived whose content is not what was produced.
    pub(super) fn altered(&mut self, slot: &Slot) {
        let account = self.account(slot);
        account.arrivals += 1;
        account.altered += 1;
    }

    /// Records read at the target, whatever they were.
    pub(super) fn arrivals(&self) -> u64 {
        self.accounts.values().map(|account| account.arrivals).sum()
    }

    /// Whether every produced record has arrived.
    pub(super) fn is_settled(&self) -> bool {
        self.accounts.values().all(|account| account.missing() == 0)
    }

    /// Partitions that wait for a record and got none since `since`.
    pub(super) fn waiting(&self, since: Duration) -> usize {
        let waits = |account: &&Account| {
            account.missing() > 0 && account.last_arrival.is_none_or(|last| last < since)
        };
        self.accounts.values().filter(waits).count()
    }

    /// Sums, as of `now`: a partition that still waits has paused until now.
    pub(super) fn totals(&self, now: Duration) -> Totals {
        let mut totals = Totals {
            partitions: self.accounts.len(),
            ..Totals::default()
        };
        for (slot, account) in &self.accounts {
            totals.produced += account.produced;
            totals.arrivals += account.arrivals;
            totals.missing += account.missing();
            totals.mirrored += account.produced - account.missing();
            totals.doubled += account.doubled;
            totals.altered += account.altered;
            totals.reordered += account.reordered;
            let pause = account.pause(now);
            if totals.paused.is_none() || pause.length > totals.longest_pause.length {
                totals.longest_pause = pause;
                totals.paused = Some(slot.clone());
            }
            if let Some(produced) = account.first_produced {
                let arrived = account.first_arrival.unwrap_or(now);
                totals.longest_start = totals.longest_start.max(arrived.saturating_sub(produced));
            }
        }
        totals
    }

    fn account(&mut self, slot: &Slot) -> &mut Account {
        if !self.accounts.contains_key(slot) {
            self.accounts.insert(slot.clone(), Account::default());
        }
        self.accounts.get_mut(slot).expect("was inserted above")
    }
}

impl Account {
    /// Produced and not arrived. A record may arrive before its acknowledgement is counted.
    fn missing(&self) -> u64 {
        let ahead = self.arrived_ahead.range(..self.produced).count() as u64;
        self.produced.saturating_sub(self.arrived_below + ahead)
    }

    fn pause(&self, now: Duration) -> Pause {
        let lasts = self.last_arrival.filter(|_| self.missing() > 0);
        match lasts.map(|last| now.saturating_sub(last)) {
            Some(length) if length > self.longest_pause.length => Pause { length, ended: now },
            Some(_) | None => self.longest_pause,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(partition: i32) -> Slot {
        ("t".to_owned(), partition)
    }

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn produce(ledger: &mut Ledger, partition: i32, count: u64) {
        for _ in 0..count {
            ledger.produced(&slot(partition), at(0));
        }
    }

    #[test]
    fn what_never_arrives_is_missing_wherever_it_is() {
        let mut ledger = Ledger::default();
        produce(&mut ledger, 0, 5);
        produce(&mut ledger, 1, 2);
        for seq in [0, 1, 3] {
            ledger.arrived(&slot(0), seq, at(10));
        }
        let totals = ledger.totals(at(10));
        assert_eq!(
            (totals.produced, totals.mirrored, totals.missing),
            (7, 3, 4)
        );
        assert!(!ledger.is_settled());
        for (partition, seq) in [(0, 2), (0, 4), (1, 0), (1, 1)] {
            ledger.arrived(&slot(partition), seq, at(20));
        }
        assert!(ledger.is_settled());
        assert_eq!(ledger.totals(at(20)).missing, 0);
    }

    #[test]
    fn every_further_arrival_counts_as_doubled() {
        let mut ledger = Ledger::default();
        produce(&mut ledger, 0, 3);
        for seq in [0, 2, 2, 1, 0, 0] {
            ledger.arrived(&slot(0), seq, at(1));
        }
        let totals = ledger.totals(at(1));
        assert_eq!(
            (totals.mirrored, totals.doubled, totals.reordered),
            (3, 3, 1)
        );
        assert_eq!((totals.arrivals, ledger.arrivals()), (6, 6));
    }

    #[test]
    fn a_record_may_arrive_before_its_acknowledgement() {
        let mut ledger = Ledger::default();
        ledger.arrived(&slot(0), 0, at(1));
        let early = ledger.totals(at(1));
        assert_eq!((early.produced, early.mirrored, early.missing), (0, 0, 0));
        produce(&mut ledger, 0, 1);
        let late = ledger.totals(at(2));
        assert_eq!((late.produced, late.mirrored, late.missing), (1, 1, 0));
    }

    #[test]
    fn the_longest_pause_is_told_with_its_partition_and_end() {
        let mut ledger = Ledger::default();
        for partition in [0, 1] {
            produce(&mut ledger, partition, 3);
        }
        for (partition, seq, time) in [(0, 0, 100), (0, 1, 400), (0, 2, 450), (1, 0, 100)] {
            ledger.arrived(&slot(partition), seq, at(time));
        }
        let totals = ledger.totals(at(150));
        assert_eq!(totals.longest_pause.length, at(300));
        assert_eq!(totals.paused, Some(slot(0)));
        // Partition 1 still waits: its pause goes on.
        let totals = ledger.totals(at(1_100));
        assert_eq!(
            totals.longest_pause,
            Pause {
                length: at(1_000),
                ended: at(1_100)
            }
        );
        assert_eq!(totals.paused, Some(slot(1)));
        assert_eq!(ledger.waiting(at(1_000)), 1);
    }

    #[test]
    fn doubled_records_do_not_shorten_a_pause() {
        let mut ledger = Ledger::default();
        produce(&mut ledger, 0, 2);
        for (seq, time) in [(0, 100), (0, 500), (1, 900)] {
            ledger.arrived(&slot(0), seq, at(time));
        }
        assert_eq!(ledger.totals(at(900)).longest_pause.length, at(800));
    }
}
