//! What lanes ask of a fetcher, and what becomes of lanes that it has lost.

use std::{collections::BTreeMap, sync::atomic::Ordering};

use kreplicator_model::{
    ids::{ClusterId, Partition},
    spec,
};
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
        let room = Room::new(Budget::new(64 << 20).fetcher());
        let handle = FetcherHandle {
            orders: sender,
            room: Arc::downgrade(&room),
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

/// A fetcher of broker 1 without network, and the lanes that it has lost.
fn fetcher() -> (
    Fetcher,
    FetcherHandle,
    mpsc::UnboundedSender<Arc<Lane>>,
    mpsc::UnboundedReceiver<Arc<Lane>>,
) {
    let (homeless, lost) = mpsc::unbounded_channel();
    let (fetcher, handle) = Fetcher::new(
        client(),
        BrokerId(1),
        Purpose::Fetch(1),
        None,
        Budget::new(64 << 20).fetcher(),
        homeless.downgrade(),
    );
    (fetcher, handle, homeless, lost)
}

/// Another broker than that of [`fetcher`].
const OTHER: BrokerId = BrokerId(2);

/// What broker 1 answers about a lane.
fn answer(rig: &Rig, change: impl FnOnce(&mut Fetched)) -> Answer {
    let position = rig.lane.position().expect("open");
    let mut fetched = rig.answer(position, Bytes::new());
    change(&mut fetched);
    Answer {
        partitions: vec![fetched],
        nodes: Vec::new(),
    }
}

fn way(rig: &Rig) -> (BrokerId, bool, bool) {
    let way = rig.lane.way(BrokerId(1), |_| true, Instant::now());
    let way = way.expect("open");
    (way.broker, way.tells_rack, way.is_follower)
}

fn cause(rig: &Rig) -> String {
    rig.lane.status().cause
}

#[test]
fn c102_a_lane_that_was_lost_while_it_had_no_room_finds_a_new_fetcher() {
    let rig = Rig::new();
    rig.open_at(0);
    let (mut fetcher, handle, _homeless, mut lost) = fetcher();
    assert!(handle.read(&rig.lane, Place::default()));
    let order = fetcher.orders.try_recv().expect("told to read");
    fetcher.obey(order);
    assert!(!fetcher.session.is_empty());

    assert!(handle.resume(&rig.lane));
    let order = fetcher.orders.try_recv().expect("called back");
    fetcher.obey(order);
    assert!(lost.try_recv().is_err(), "it is read here");

    // As after the second failure in a row.
    fetcher.forget(&rig.lane.source);
    assert!(handle.resume(&rig.lane));
    let order = fetcher.orders.try_recv().expect("called back");
    fetcher.obey(order);
    let found = lost.try_recv().expect("sent away");
    assert!(Arc::ptr_eq(&found, &rig.lane));
}

#[test]
fn c036_room_comes_back_when_an_answer_is_let_go() {
    let room = Room::new(Budget::new(64 << 20).fetcher());
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
    let (mut fetcher, handle, _homeless, _lost) = fetcher();
    rig.lane.close();
    assert!(handle.read(&rig.lane, Place::default()));
    assert!(
        fetcher.orders.try_recv().is_err(),
        "nobody wants to read any more"
    );

    // It is closed while the order waits.
    fetcher.obey(Order::Read(Arc::clone(&rig.lane), Place::default()));
    assert!(fetcher.lanes.is_empty());
    assert_eq!(fetcher.paused, 0, "it would wait shorter for ever");
    assert!(fetcher.session.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_nearer_replica_is_read_and_after_it_failed_the_leader_without_a_loop() {
    let rig = Rig::new();
    rig.open_at(5);
    let (mut fetcher, _handle, _homeless, mut lost) = fetcher();
    fetcher.obey(Order::Read(Arc::clone(&rig.lane), Place::default()));
    assert_eq!(way(&rig), (BrokerId(1), true, false));

    let refusal = answer(&rig, |fetched| fetched.preferred_replica = Some(OTHER));
    fetcher.take(refusal, Instant::now());
    assert!(lost.try_recv().is_ok());
    assert!(fetcher.lanes.is_empty());
    assert_eq!(way(&rig), (OTHER, false, true));
    assert!(rig.lane.pause(1.0).is_zero());

    let follower = Place {
        is_follower: true,
        ..Place::default()
    };
    fetcher.obey(Order::Read(Arc::clone(&rig.lane), follower));
    let refusal = answer(&rig, |fetched| fetched.code = Code::OFFSET_OUT_OF_RANGE);
    fetcher.take(refusal, Instant::now());
    assert!(lost.try_recv().is_ok());
    assert!(rig.events().is_empty(), "a follower that lags is no gap");
    assert_eq!(way(&rig), (BrokerId(1), false, false));

    // One that names a follower even so is not asked without pause.
    let mut pauses = Vec::new();
    for _ in 0..3 {
        fetcher.obey(Order::Read(Arc::clone(&rig.lane), Place::default()));
        let refusal = answer(&rig, |fetched| fetched.preferred_replica = Some(OTHER));
        fetcher.take(refusal, Instant::now());
        assert!(lost.try_recv().is_ok());
        pauses.push(rig.lane.pause(1.0));
    }
    assert!(!pauses[0].is_zero() && pauses.is_sorted_by(|one, next| one < next));
}

#[tokio::test(start_paused = true)]
async fn a_follower_whose_log_ends_early_or_that_is_away_is_left_for_the_leader() {
    let rig = Rig::new();
    let (mut fetcher, _handle, _homeless, mut lost) = fetcher();
    let follower = Place {
        is_follower: true,
        ..Place::default()
    };
    for fails in [
        |fetcher: &mut Fetcher, rig: &Rig| {
            let end = kreplicator_wire::fetch::EpochEnd {
                epoch: 3,
                end: kreplicator_model::ids::Offset(2),
            };
            fetcher.take(
                answer(rig, |fetched| fetched.diverging = Some(end)),
                Instant::now(),
            );
        },
        |fetcher: &mut Fetcher, _: &Rig| {
            let fault = Error::Disconnected {
                broker: "b:1".into(),
                cause: "reset".to_owned(),
            };
            fetcher.trouble(&fault, Duration::ZERO);
        },
    ] {
        rig.open_at(5);
        rig.lane.nearer(BrokerId(1), Instant::now());
        fetcher.obey(Order::Read(Arc::clone(&rig.lane), follower));
        fails(&mut fetcher, &rig);
        assert!(lost.try_recv().is_ok());
        assert!(rig.events().is_empty());
        assert_eq!(way(&rig), (BrokerId(1), false, false));
    }
}

#[tokio::test(start_paused = true)]
async fn a_partition_that_is_refused_again_and_again_is_shown_with_growing_pauses() {
    let rig = Rig::new();
    rig.open_at(0);
    let (mut fetcher, _handle, _homeless, _lost) = fetcher();
    let mut pauses = Vec::new();
    for time in 1..=4 {
        fetcher.obey(Order::Read(Arc::clone(&rig.lane), Place::default()));
        let refusal = answer(&rig, |fetched| fetched.code = Code::KAFKA_STORAGE_ERROR);
        fetcher.take(refusal, Instant::now());
        // The next answer of its broker says nothing of it.
        rig.lane.source_answers();
        let is_shown = cause(&rig).contains("KAFKA_STORAGE_ERROR");
        assert_eq!(is_shown, time > 1, "{time}: {:?}", cause(&rig));
        pauses.push(rig.lane.pause(1.0));
    }
    assert!(pauses[0].is_zero());
    assert!(pauses.is_sorted_by(|one, next| one < next), "{pauses:?}");

    rig.fetch(&[]);
    assert_eq!(cause(&rig), "");
    assert!(rig.lane.pause(1.0).is_zero());
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_does_not_answer_in_time_loses_its_lanes_at_once() {
    let rig = Rig::new();
    rig.open_at(0);
    let (mut fetcher, _handle, _homeless, mut lost) = fetcher();
    fetcher.obey(Order::Read(Arc::clone(&rig.lane), Place::default()));
    let reset = Error::Disconnected {
        broker: "b:1".into(),
        cause: "reset".to_owned(),
    };
    fetcher.trouble(&reset, Duration::from_millis(3));
    assert!(lost.try_recv().is_err(), "it may be back at once");
    let silence = Error::Timeout {
        broker: "b:1".into(),
        api: "Fetch",
    };
    fetcher.trouble(&silence, ANSWER_TIME);
    assert!(lost.try_recv().is_ok());
    assert!(fetcher.lanes.is_empty());

    fetcher.obey(Order::Read(Arc::clone(&rig.lane), Place::default()));
    let vanished = Error::Silent {
        broker: "b:1".into(),
    };
    // Its last request may have been a young one.
    fetcher.trouble(&vanished, Duration::from_millis(3));
    assert!(lost.try_recv().is_ok());
    assert!(cause(&rig).contains("no longer answers"), "{}", cause(&rig));
}

#[tokio::test(start_paused = true)]
async fn c107_a_fetcher_that_has_had_no_lane_for_a_while_ends_and_gives_its_memory_back() {
    let rig = Rig::new();
    let budget = Budget::new(64 << 20);
    let (homeless, mut lost) = mpsc::unbounded_channel();
    let (fetcher, handle) = Fetcher::new(
        client(),
        BrokerId(1),
        Purpose::Fetch(1),
        None,
        budget.fetcher(),
        homeless.downgrade(),
    );
    assert!(budget.used_bytes() > 0);
    let began = Instant::now();
    fetcher.run().await;
    assert_eq!(began.elapsed(), IDLE_MAX);
    assert_eq!(budget.used_bytes(), 0, "though a handle is left");
    assert!(!handle.is_alive() && !handle.has_room());
    rig.open_at(0);
    assert!(!handle.read(&rig.lane, Place::default()));
    assert!(!handle.resume(&rig.lane));
    assert!(lost.try_recv().is_err());
}

#[test]
fn c107_with_a_part_smaller_than_any_answer_it_is_still_asked_for_one_at_a_time() {
    let budget = Budget::new(16 << 10);
    let room = Room::new(budget.fetcher());
    assert_eq!(room.for_an_answer(), Some(4 << 10));
    let occupied = room.occupy(3 << 10);
    assert_eq!(room.for_an_answer(), None);
    drop(occupied);
    assert!(room.for_an_answer().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_leader_whose_log_has_parted_from_what_was_read_is_no_plain_restart() {
    let rig = Rig::new();
    rig.open_at(5);
    let (mut fetcher, _handle, _homeless, mut lost) = fetcher();
    fetcher.obey(Order::Read(Arc::clone(&rig.lane), Place::default()));
    let end = kreplicator_model::ids::Offset(2);
    let parted = kreplicator_wire::fetch::EpochEnd { epoch: 3, end };
    fetcher.take(
        answer(&rig, |fetched| fetched.diverging = Some(parted)),
        Instant::now(),
    );
    assert!(lost.try_recv().is_err());
    let truncated = Fault::replaced(kreplicator_model::ids::Offset(5), Some(end));
    assert_eq!(
        rig.events(),
        [crate::batches::lane::Event::Failed(truncated)]
    );
}

#[tokio::test(start_paused = true)]
async fn after_an_answer_that_brought_little_a_broker_with_many_partitions_is_given_a_rest() {
    let rig = Rig::new();
    rig.open_at(0);
    let (mut fetcher, handle, _homeless, _lost) = fetcher();
    fetcher.obey(Order::Read(Arc::clone(&rig.lane), Place::default()));
    let position = fetcher.session.position(&rig.lane.source).expect("read");
    for partition in 1_000..1_999 {
        let mut quiet = rig.lane.source.clone();
        quiet.partition = Partition(partition);
        fetcher.session.update(quiet, None, position);
    }
    let asked_at = Instant::now();
    fetcher.take(answer(&rig, |_| ()), asked_at);
    assert!(handle.resume(&rig.lane));
    assert!(fetcher.rests().await);
    assert_eq!(
        asked_at.elapsed(),
        Duration::ZERO,
        "who wants something is heard"
    );
    assert!(fetcher.rests().await);
    assert_eq!(asked_at.elapsed(), Duration::from_millis(40));
    assert!(!fetcher.rests().await);

    // Also where memory allows no more: it would lag behind for ever.
    let mut poor = rig.lane.source.clone();
    poor.partition = Partition(1_000);
    let least = Position {
        bytes_max: 2 << 10,
        ..position
    };
    fetcher.session.update(poor.clone(), None, least);
    for (bytes, rests) in [(1_000, true), (1 << 10, false)] {
        let told = answer(&rig, |fetched| {
            fetched.partition = poor.clone();
            fetched.records = Bytes::from(vec![0; bytes]);
        });
        fetcher.take(told, Instant::now());
        assert_eq!(fetcher.rests().await, rests, "{bytes}");
        sleep(Duration::from_secs(1)).await;
    }

    let asked_at = Instant::now();
    let much = Bytes::from(vec![0; 64 << 10]);
    fetcher.take(answer(&rig, |fetched| fetched.records = much), asked_at);
    assert!(!fetcher.rests().await, "more may wait behind it");
}
