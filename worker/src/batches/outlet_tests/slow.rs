//! Lanes on one broker, some of whose partitions are not acknowledged for a while.

use kreplicator_model::{exact::TargetView, ids::Offset};
use tokio::{task::JoinSet, time::sleep};

use super::*;
use crate::batches::testkit::{FakeBroker, Made};

/// How long the broker may wait for replicas. No test waits so long.
const LONG: Duration = Duration::from_secs(60);
const PATIENCE: Patience = Patience {
    least: Duration::from_millis(200),
    most: LONG,
};
/// For whatever is to happen; a fraction of [`LONG`].
const SOON: Duration = Duration::from_secs(20);
/// How far a lane reads ahead of its acknowledgements, in records.
const AHEAD: i64 = 40;

/// Lanes and the outlet that they share. The test is their life and their fetcher.
struct Link {
    broker: FakeBroker,
    rigs: Vec<Rig>,
    handle: OutletHandle,
    _outlet: JoinSet<()>,
}

impl Link {
    async fn start(lanes: i32, patience: Patience) -> Self {
        let broker = FakeBroker::start().await;
        let (outlet, handle) = Outlet::new(broker.client(), FakeBroker::ID, 1, patience);
        let rigs = (0..lanes).map(|partition| {
            let rig = Rig::with(RigMade {
                partition,
                ..RigMade::default()
            });
            rig.open_at(0);
            rig
        });
        let mut running = JoinSet::new();
        running.spawn(outlet.run());
        Self {
            rigs: rigs.collect(),
            broker,
            handle,
            _outlet: running,
        }
    }

    fn view(&self, rig: &Rig, tail_from: Option<Offset>) -> TargetView {
        self.broker.view(rig.lane.target.partition.0, tail_from)
    }

    /// Does what a lane asks for, and gives it more to send.
    fn serve(&self, rig: &Rig) {
        for event in rig.events() {
            match event {
                Event::FindTarget => rig.lane.set_outlet(self.handle.clone()),
                Event::AskTarget => rig.lane.target_seen(&self.view(rig, None)),
                Event::ReadTail(from) => rig.lane.target_seen(&self.view(rig, Some(from))),
                other => panic!("{}: {other:?}", rig.lane.target),
            }
        }
        rig.lane.tick();
        let position = rig.lane.position().expect("open").0;
        if position < rig.checkpoint() + AHEAD {
            rig.fetch([&Made::dense(position, 2).batch()]);
        }
    }

    fn checkpoint(&self, partition: i32) -> i64 {
        self.rigs[usize::try_from(partition).expect("small")].checkpoint()
    }

    fn partitions(&self) -> impl Iterator<Item = i32> + '_ {
        self.rigs.iter().map(|rig| rig.lane.target.partition.0)
    }

    /// Flows until something is so.
    async fn until(&self, what: &str, is_so: impl Fn() -> bool) {
        let began = Instant::now();
        while !is_so() {
            let places: Vec<_> = self.partitions().map(|at| self.checkpoint(at)).collect();
            assert!(began.elapsed() < SOON, "{what}; checkpoints {places:?}");
            self.rigs.iter().for_each(|rig| self.serve(rig));
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// Flows until each of these partitions has so many records more.
    async fn advance(&self, partitions: &[i32], records: i64) {
        let goals = partitions
            .iter()
            .map(|at| (*at, self.checkpoint(*at) + records));
        let goals: Vec<_> = goals.collect();
        let are_there = || goals.iter().all(|(at, goal)| self.checkpoint(*at) >= *goal);
        self.until("more records", are_there).await;
    }

    /// What is acknowledged is what the target has, once and in order.
    fn check(&self) {
        for at in self.partitions() {
            assert!(self.checkpoint(at) <= self.broker.committed(at), "{at}");
        }
        assert_eq!(self.broker.refused(), 0, "out of order");
    }

    /// All that were found slow and the others go by the same connection.
    async fn come_together(&self) {
        let is_one = || {
            let mut on = self.partitions().map(|at| self.broker.last_on(at));
            let first = on.next();
            on.all(|connection| Some(connection) == first)
        };
        self.until("one connection", is_one).await;
    }
}

const OTHERS: [i32; 5] = [0, 1, 3, 4, 5];
const ALL: [i32; 6] = [0, 1, 2, 3, 4, 5];

#[tokio::test]
async fn c027_a_partition_that_is_not_acknowledged_holds_up_no_other() {
    let link = Link::start(6, PATIENCE).await;
    link.advance(&ALL, 20).await;
    link.broker.set_stuck([2]);
    let there = link.broker.committed(2);
    link.advance(&OTHERS, 400).await;
    assert!(link.checkpoint(2) <= there, "nothing was acknowledged");
    link.check();

    link.broker.set_stuck([]);
    link.advance(&ALL, 100).await;
    link.come_together().await;
    link.advance(&ALL, 100).await;
    link.check();
}

#[tokio::test]
async fn c028_many_stuck_partitions_take_no_more_connections_than_one() {
    let link = Link::start(30, PATIENCE).await;
    let all: Vec<i32> = (0..30).collect();
    let (stuck, others) = all.split_at(15);
    link.advance(&all, 10).await;
    link.broker.set_stuck(stuck.iter().copied());
    link.advance(others, 200).await;
    // One of the stuck recovers; the rest does not keep it.
    link.broker.set_stuck(stuck[1..].iter().copied());
    link.advance(&stuck[..1], 100).await;
    link.broker.set_stuck([]);
    link.advance(&all, 50).await;
    link.come_together().await;
    link.check();
    // One that was given up may not have noticed it yet.
    let connections = link.broker.connections_max();
    assert!(connections <= CONNECTIONS_MAX + 1, "{connections}");
}

#[tokio::test]
async fn c104_the_loss_of_one_connection_is_nothing_to_those_on_the_other() {
    let link = Link::start(6, PATIENCE).await;
    link.advance(&ALL, 20).await;
    link.broker.set_stuck([2]);
    let is_apart = || link.broker.last_on(2) != link.broker.last_on(0);
    link.until("two connections", is_apart).await;
    link.advance(&OTHERS, 20).await;
    let (main, apart) = (link.broker.last_on(0), link.broker.last_on(2));
    link.broker.set_stuck([]);
    link.broker.cut(apart.expect("known"));
    link.until("the slow one goes on", || link.broker.last_on(2) != apart)
        .await;
    link.advance(&ALL, 20).await;
    assert_eq!(link.broker.last_on(0), main, "the main one is as it was");

    link.broker.cut(main.expect("known"));
    link.advance(&ALL, 100).await;
    assert_ne!(link.broker.last_on(0), main);
    link.come_together().await;
    link.check();
}

#[tokio::test]
async fn c107_a_broker_that_takes_no_second_connection_is_served_by_one() {
    let link = Link::start(6, PATIENCE).await;
    link.advance(&ALL, 20).await;
    link.broker.take_no_more();
    link.broker.set_stuck([2]);
    link.advance(&OTHERS, 50).await;
    link.broker.set_stuck([]);
    link.advance(&ALL, 50).await;
    link.come_together().await;
    link.check();
    assert_eq!(link.broker.connections_max(), 1);
}
