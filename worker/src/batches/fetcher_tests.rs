//! What lanes ask of a fetcher, and what becomes of lanes that it has lost.

use std::collections::BTreeMap;

use kreplicator_model::{ids::ClusterId, spec};
use kreplicator_wire::settings::{NoSecrets, Settings as WireSettings};
use tokio_util::task::TaskTracker;

use super::*;
use crate::{batches::testkit::Rig, budget::Budget};

/// What a fetcher was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::batches) enum Told {
    Read,
    Resume,
    Stop,
}

/// Stands for a fetcher behind its handle.
#[derive(Debug)]
pub(in crate::batches) struct FakeFetcher {
    orders: mpsc::UnboundedReceiver<Order>,
    room: Arc<Room>,
}

impl FakeFetcher {
    pub(in crate::batches) fn new() -> (Self, FetcherHandle) {
        let (sender, orders) = mpsc::unbounded_channel();
        let room = Room::new(Budget::new(64 << 20).reserve());
        let handle = FetcherHandle {
            orders: sender,
            room: Arc::clone(&room),
            heard: Arc::default(),
        };
        (Self { orders, room }, handle)
    }

    pub(in crate::batches) fn occupy(&self, bytes: usize) -> Occupied {
        self.room.occupy(bytes)
    }

    /// Bytes of answers that lie with lanes.
    pub(in crate::batches) fn occupied_bytes(&self) -> usize {
        self.room.backlog.load(Ordering::Acquire)
    }

    /// It ends, as by a panic: what it is told from now on gets lost.
    pub(in crate::batches) fn end(&mut self) {
        self.orders.close();
    }

    /// What it was told since the last call.
    pub(in crate::batches) fn told(&mut self) -> Vec<Told> {
        let orders = std::iter::from_fn(|| self.orders.try_recv().ok());
        orders
            .map(|order| match order {
                Order::Read(..) => Told::Read,
                Order::Resume(_) => Told::Resume,
                Order::Stop(_) => Told::Stop,
            })
            .collect()
    }
}

/// A client that is never used.
pub(in crate::batches) fn client() -> ClusterClient {
    let cluster = spec::Cluster {
        id: ClusterId::new("nowhere").expect("legal"),
        bootstrap_servers: vec!["localhost:1".to_owned()],
        security: spec::Security::default(),
        client_options: BTreeMap::new(),
        expected_cluster_id: None,
    };
    let settings = WireSettings::of(&cluster, "test");
    ClusterClient::new(settings, Arc::new(NoSecrets), TaskTracker::new())
}

#[test]
fn c102_a_lane_that_was_lost_while_it_had_no_room_finds_a_new_fetcher() {
    let rig = Rig::new();
    rig.open_at(0);
    let (homeless, mut lost) = mpsc::unbounded_channel();
    let (mut fetcher, handle) = Fetcher::new(
        client(),
        BrokerId(1),
        Purpose::Fetch(1),
        None,
        Budget::new(64 << 20).reserve(),
        homeless.downgrade(),
    );
    handle.read(&rig.lane, None, None);
    let order = fetcher.orders.try_recv().expect("told to read");
    fetcher.obey(order);
    assert!(!fetcher.session.is_empty());

    handle.resume(&rig.lane);
    let order = fetcher.orders.try_recv().expect("called back");
    fetcher.obey(order);
    assert!(lost.try_recv().is_err(), "it is read here");

    // As after the second failure in a row.
    fetcher.forget(&rig.lane.source);
    handle.resume(&rig.lane);
    let order = fetcher.orders.try_recv().expect("called back");
    fetcher.obey(order);
    let found = lost.try_recv().expect("sent away");
    assert!(Arc::ptr_eq(&found, &rig.lane));
}

#[test]
fn c036_room_comes_back_when_an_answer_is_let_go() {
    let room = Room::new(Budget::new(64 << 20).reserve());
    let whole = room.left();
    let occupied = room.occupy(1_000);
    assert_eq!(room.left(), whole - 1_000);
    drop(occupied);
    assert_eq!(room.left(), whole);
}

#[test]
fn a_lane_that_was_closed_before_it_was_handed_over_is_not_kept() {
    let rig = Rig::new();
    rig.open_at(0);
    let (homeless, _lost) = mpsc::unbounded_channel();
    let (mut fetcher, handle) = Fetcher::new(
        client(),
        BrokerId(1),
        Purpose::Fetch(1),
        None,
        Budget::new(64 << 20).reserve(),
        homeless.downgrade(),
    );
    rig.lane.close();
    assert!(handle.read(&rig.lane, None, None));
    assert!(
        fetcher.orders.try_recv().is_err(),
        "nobody wants to read any more"
    );

    // It is closed while the order waits.
    fetcher.obey(Order::Read(Arc::clone(&rig.lane), None, None));
    assert!(fetcher.lanes.is_empty());
    assert_eq!(fetcher.paused, 0, "it would wait shorter for ever");
    assert!(fetcher.session.is_empty());
}
