//! What goes into a request.

use std::collections::BTreeMap;

use kreplicator_wire::topic::TopicId;
use proptest::prelude::*;

use super::*;
use crate::batches::outlet::tests::{item, lanes};

/// The next request.
fn gather(queue: &mut Queue) -> (Vec<Item>, Request) {
    let gathered = queue.gather(Duration::from_secs(1));
    gathered.expect("something waits")
}

/// Partition and id of each item.
fn names(items: &[Item]) -> Vec<(i32, u64)> {
    let name = |item: &Item| (item.lane.target.partition.0, item.id.0);
    items.iter().map(name).collect()
}

#[test]
fn a_request_holds_one_batch_of_each_partition() {
    let lanes = lanes(2);
    let mut queue = Queue::default();
    queue.items.extend([
        item(&lanes[0], 0, 100),
        item(&lanes[0], 1, 100),
        item(&lanes[1], 0, 100),
        item(&lanes[0], 2, 100),
        item(&lanes[1], 1, 100),
    ]);
    let (items, request) = gather(&mut queue);
    assert_eq!(names(&items), [(0, 0), (1, 0)]);
    assert_eq!(request.record_bytes(), 200);
    assert_eq!(names(&gather(&mut queue).0), [(0, 1), (1, 1)]);
    assert_eq!(names(&gather(&mut queue).0), [(0, 2)]);
    assert!(queue.is_empty());
}

#[test]
fn a_small_batch_does_not_overtake_a_large_one_of_its_partition() {
    let lanes = lanes(3);
    let mut queue = Queue::default();
    let large = REQUEST_BYTES_MAX / 2 + 1;
    queue.items.extend([
        item(&lanes[0], 0, large),
        item(&lanes[1], 0, large),
        item(&lanes[1], 1, 100),
        item(&lanes[2], 0, 100),
    ]);
    assert_eq!(names(&gather(&mut queue).0), [(0, 0), (2, 0)]);
    assert_eq!(names(&gather(&mut queue).0), [(1, 0)]);
    assert_eq!(names(&gather(&mut queue).0), [(1, 1)]);
}

#[test]
fn a_batch_larger_than_a_request_goes_alone() {
    let lanes = lanes(2);
    let mut queue = Queue::default();
    queue.items.extend([
        item(&lanes[0], 0, REQUEST_BYTES_MAX + 1),
        item(&lanes[1], 0, 100),
    ]);
    assert_eq!(names(&gather(&mut queue).0), [(0, 0)]);
    assert_eq!(names(&gather(&mut queue).0), [(1, 0)]);
}

#[test]
fn a_topic_that_was_made_anew_does_not_share_a_request_with_itself() {
    let lanes = lanes(3);
    let mut queue = Queue::default();
    let of = |number: u128, item: Item| Item {
        topic_id: Some(TopicId::from_u128(number)),
        ..item
    };
    queue.items.extend([
        of(1, item(&lanes[0], 0, 100)),
        of(2, item(&lanes[1], 0, 100)),
        of(2, item(&lanes[1], 1, 100)),
        of(1, item(&lanes[2], 0, 100)),
    ]);
    assert_eq!(names(&gather(&mut queue).0), [(0, 0), (2, 0)]);
    assert_eq!(names(&gather(&mut queue).0), [(1, 0)]);
    assert_eq!(names(&gather(&mut queue).0), [(1, 1)]);
}

#[test]
fn what_is_taken_away_keeps_its_order_and_leaves_the_others_theirs() {
    let lanes = lanes(3);
    let mut queue = Queue::default();
    for id in 0..2 {
        let items = lanes.iter().map(|lane| item(lane, id, 100));
        queue.items.extend(items);
    }
    let taken = queue.take_of(|at| at.partition.0 != 1);
    assert_eq!(names(&taken), [(0, 0), (2, 0), (0, 1), (2, 1)]);
    assert_eq!(names(&gather(&mut queue).0), [(1, 0)]);
    assert_eq!(names(&gather(&mut queue).0), [(1, 1)]);
    assert!(queue.gather(Duration::from_secs(1)).is_none());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// C030: whoever waits longest is in the next request, so nobody waits for ever.
    #[test]
    fn c030_batches_leave_in_the_order_of_their_partition_and_the_longest_waiting_always(
        waiting in proptest::collection::vec((0_usize..6, 62_usize..900_000), 1..40),
    ) {
        let lanes = lanes(6);
        let mut queue = Queue::default();
        let mut given = BTreeMap::<usize, u64>::new();
        for (lane, bytes) in &waiting {
            let id = given.entry(*lane).or_default();
            queue.push(item(&lanes[*lane], *id, *bytes));
            *id += 1;
        }
        let mut left: BTreeMap<i32, u64> = BTreeMap::new();
        let mut count = 0;
        while let Some(longest) = queue.items.front() {
            let longest = (longest.lane.target.partition.0, longest.id.0);
            let (items, request) = gather(&mut queue);
            let names = names(&items);
            prop_assert_eq!(names.first(), Some(&longest));
            prop_assert!(items.len() == 1 || request.record_bytes() <= REQUEST_BYTES_MAX);
            for (partition, id) in names {
                let next = left.entry(partition).or_default();
                prop_assert_eq!(id, *next);
                *next += 1;
                count += 1;
            }
        }
        prop_assert_eq!(count, waiting.len());
    }
}
