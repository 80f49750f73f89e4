use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn tracker_with(offsets: &[i64]) -> AckTracker {
    let mut tracker = AckTracker::new(Offset(0));
    for &offset in offsets {
        tracker.sent(Offset(offset), 10).expect("in order");
    }
    tracker
}

#[test]
fn the_checkpoint_is_the_lowest_offset_not_done() {
    let mut tracker = tracker_with(&[0, 1, 2]);
    assert!(tracker.acked(Offset(1)));
    assert_eq!(tracker.checkpoint(), Offset(0));
    assert!(tracker.acked(Offset(0)));
    assert_eq!(tracker.checkpoint(), Offset(2));
    assert!(tracker.acked(Offset(2)));
    assert_eq!(tracker.checkpoint(), Offset(3));
    assert!(tracker.is_settled());
}

#[test]
fn holes_between_records_do_not_hold_the_checkpoint() {
    let mut tracker = tracker_with(&[5, 9]);
    assert_eq!(tracker.checkpoint(), Offset(5));
    tracker.acked(Offset(5));
    assert_eq!(tracker.checkpoint(), Offset(9));
}

#[test]
fn skipped_offsets_count_once_everything_before_them_is_done() {
    let mut tracker = tracker_with(&[0]);
    tracker.skipped(Offset(1)..Offset(50)).expect("chained");
    assert_eq!(tracker.checkpoint(), Offset(0));
    tracker.acked(Offset(0));
    assert_eq!(tracker.checkpoint(), Offset(50));
    tracker
        .skipped(Offset(10)..Offset(20))
        .expect("known already");
    assert_eq!(tracker.checkpoint(), Offset(50));
}

#[test]
fn offsets_out_of_order_change_nothing() {
    let mut tracker = tracker_with(&[0, 1]);
    let fault = tracker.sent(Offset(1), 10).expect_err("sent before");
    assert_eq!((fault.offset, fault.position), (Offset(1), Offset(2)));
    tracker
        .skipped(Offset(3)..Offset(9))
        .expect_err("offset 2 is not accounted for");
    assert_eq!(tracker.position(), Offset(2));
    assert_eq!(tracker.outstanding_records(), 2);
}

#[test]
fn c025_a_failed_delivery_holds_the_checkpoint() {
    let mut tracker = tracker_with(&[0, 1, 2, 3]);
    // Offset 1 is given up by the client: there is no acknowledgement.
    for offset in [0, 2, 3] {
        tracker.acked(Offset(offset));
    }
    assert_eq!(tracker.checkpoint(), Offset(1));
    assert_eq!(tracker.outstanding_records(), 1);
}

#[test]
fn c026_sending_is_not_progress() {
    let mut tracker = tracker_with(&[0, 1, 2]);
    assert_eq!(tracker.checkpoint(), Offset(0));
    tracker.acked(Offset(0));
    // A crash here starts again at 1: nothing that was only sent is passed over.
    assert_eq!(tracker.checkpoint(), Offset(1));
}

#[test]
fn c032_a_rewind_keeps_everything_acknowledged_in_a_row() {
    let offsets: Vec<i64> = (0..50_000).collect();
    let mut tracker = tracker_with(&offsets);
    for offset in 0..49_990 {
        tracker.acked(Offset(offset));
    }
    assert_eq!(tracker.rewind(), Offset(49_990));
    assert_eq!(tracker.position(), Offset(49_990));
    assert_eq!(tracker.outstanding_bytes(), 0);
    assert!(!tracker.acked(Offset(49_991)), "given up");
    tracker.sent(Offset(49_990), 10).expect("read again");
    assert!(tracker.acked(Offset(49_990)));
    assert_eq!(tracker.checkpoint(), Offset(49_991));
}

#[test]
fn c040_the_position_of_the_reader_is_never_the_checkpoint() {
    let mut tracker = tracker_with(&[0, 1, 2, 3, 4, 5, 6, 7, 8]);
    tracker.acked(Offset(0));
    assert_eq!(tracker.position(), Offset(9));
    assert_eq!(tracker.checkpoint(), Offset(1));
}

#[derive(Debug, Clone)]
enum Event {
    Sent { hole: i64, bytes: u64 },
    Acked { pick: usize },
    Skipped { back: i64, len: i64 },
    Rewind,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        4 => (0_i64..3, 0_u64..100).prop_map(|(hole, bytes)| Event::Sent { hole, bytes }),
        4 => (0_usize..12).prop_map(|pick| Event::Acked { pick }),
        1 => (0_i64..3, 0_i64..6).prop_map(|(back, len)| Event::Skipped { back, len }),
        1 => Just(Event::Rewind),
    ];
    proptest::collection::vec(event, 0..80)
}

/// Every offset below the position that is not done, with its bytes.
#[derive(Default)]
struct Naive {
    open: BTreeMap<i64, u64>,
    position: i64,
}

impl Naive {
    fn checkpoint(&self) -> i64 {
        self.open.keys().next().copied().unwrap_or(self.position)
    }
}

proptest! {
    #[test]
    fn the_tracker_agrees_with_a_set_of_open_offsets(events in events()) {
        let mut tracker = AckTracker::new(Offset(0));
        let mut naive = Naive::default();
        let mut last = Offset(0);
        for event in events {
            match event {
                Event::Sent { hole, bytes } => {
                    let offset = naive.position + hole;
                    tracker.sent(Offset(offset), bytes).expect("in order");
                    naive.open.insert(offset, bytes);
                    naive.position = offset + 1;
                }
                Event::Acked { pick } => {
                    let offset = naive.checkpoint() + i64::try_from(pick).expect("small");
                    let known = naive.open.remove(&offset).is_some();
                    prop_assert_eq!(tracker.acked(Offset(offset)), known);
                }
                Event::Skipped { back, len } => {
                    let start = naive.position - back;
                    tracker.skipped(Offset(start)..Offset(start + len)).expect("no gap");
                    naive.position = naive.position.max(start + len);
                }
                Event::Rewind => {
                    naive.position = naive.checkpoint();
                    naive.open.clear();
                    prop_assert_eq!(tracker.rewind(), Offset(naive.position));
                }
            }
            prop_assert_eq!(tracker.checkpoint(), Offset(naive.checkpoint()));
            prop_assert_eq!(tracker.position(), Offset(naive.position));
            prop_assert_eq!(tracker.outstanding_records(), naive.open.len());
            prop_assert_eq!(tracker.outstanding_bytes(), naive.open.values().sum::<u64>());
            prop_assert_eq!(tracker.is_settled(), naive.open.is_empty());
            prop_assert!(tracker.checkpoint() >= last, "the checkpoint moved back");
            last = tracker.checkpoint();
        }
    }
}

#[test]
fn a_hundred_thousand_outstanding_records_are_no_burden() {
    let count = 100_000;
    let offsets: Vec<i64> = (0..count).collect();
    let mut tracker = tracker_with(&offsets);
    // The worst order: nothing can be dropped until the last acknowledgement.
    for offset in (0..count).rev() {
        assert!(tracker.acked(Offset(offset)));
    }
    assert_eq!(tracker.checkpoint(), Offset(count));
}
