//! What becomes of batches when connections end. Slow partitions are in `slow`.

use super::*;
use crate::batches::{
    fetcher::tests::client,
    lane::Event,
    testkit::{Rig, RigMade},
};

#[path = "outlet_tests/slow.rs"]
mod slow;

/// A way to an outlet that is not there: what was handed over is given to the test.
pub(in crate::batches) fn fake() -> (OutletHandle, mpsc::UnboundedReceiver<Item>) {
    let (sender, items) = mpsc::unbounded_channel();
    (OutletHandle { items: sender }, items)
}

fn outlet() -> Outlet {
    Outlet::new(
        client(),
        BrokerId(1),
        1,
        Patience {
            least: Duration::from_secs(1),
            most: Duration::from_secs(1),
        },
    )
    .0
}

pub(in crate::batches) fn lanes(count: i32) -> Vec<Arc<Lane>> {
    let made = |partition| RigMade {
        partition,
        ..RigMade::default()
    };
    (0..count)
        .map(|partition| Rig::with(made(partition)).lane)
        .collect()
}

pub(in crate::batches) fn item(lane: &Arc<Lane>, id: u64, bytes: usize) -> Item {
    Item {
        lane: Arc::clone(lane),
        run: 1,
        way: 1,
        id: BatchId(id),
        attempt: 1,
        topic_id: None,
        parts: [Bytes::from_static(&[0; 61]), vec![0; bytes - 61].into()],
    }
}

/// A source batch of two records on its way.
pub(in crate::batches) fn under_way(rig: &Rig) -> Item {
    rig.fetch([&crate::batches::testkit::Made::dense(0, 2).batch()]);
    rig.sent().pop_front().expect("room for five")
}

/// The loss of a connection was told for the lane by its old way alone, and what waited by the new one
/// went with it: nobody sent or answered it any more.
#[test]
fn c027_what_came_by_a_newer_way_outlives_the_loss_of_an_older() {
    let rig = Rig::running(RigMade::default());
    let first = under_way(&rig);
    let mut outlet = outlet();
    let gone = Error::Disconnected {
        broker: "b".into(),
        cause: "reset".to_owned(),
    };
    let late = item(&rig.lane, first.id.0, 100);
    outlet.lost(vec![first], &gone);
    rig.connect();
    let again = rig.sent().pop_front().expect("sent again");
    assert_ne!(again.way, late.way);
    outlet.waiting.push(again);
    rig.events();

    outlet.lost(vec![late], &gone);
    assert!(!outlet.waiting.is_empty(), "it is still to be sent");
    outlet.unreachable(Vec::new(), &gone);
    assert!(outlet.waiting.is_empty());
    assert_eq!(rig.events(), [Event::AskTarget], "the lane was told");
}
