use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use kreplicator_model::{
    ids::{LinkId, OwnerEpoch, Partition, TaskId, TopicName},
    spec::StartPolicy,
    target_limits::TargetLimits,
};

use super::*;
use crate::sink::{NoHeaders, Receipt};

#[derive(Debug)]
struct Switch(AtomicBool);

impl OwnershipFence for Switch {
    fn is_open(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// A sink whose receipts a test gives by hand.
#[derive(Debug, Default)]
struct Hand {
    outlets: Mutex<Vec<Arc<HandOutlet>>>,
}

#[derive(Debug)]
struct HandOutlet {
    receipts: Arc<dyn Receipts>,
    out: Mutex<Vec<Receipt>>,
    answer: Mutex<Option<Offer>>,
}

#[async_trait]
impl Sink for Hand {
    fn open(&self, _: &TaskSpec, receipts: Arc<dyn Receipts>) -> Arc<dyn Outlet> {
        let outlet = Arc::new(HandOutlet {
            receipts,
            out: Mutex::default(),
            answer: Mutex::default(),
        });
        self.outlets
            .lock()
            .expect("not poisoned")
            .push(Arc::clone(&outlet));
        Arc::new(Held(outlet))
    }

    async fn prepare(&self, _: &[&TaskSpec], _: Duration) -> Result<(), Fault> {
        Ok(())
    }

    fn is_ready(&self) -> bool {
        true
    }

    fn trouble(&self) -> Option<String> {
        None
    }
}

#[derive(Debug)]
struct Held(Arc<HandOutlet>);

#[async_trait]
impl Outlet for Held {
    fn offer(&self, record: &Record<'_>) -> Offer {
        let answer = self.0.answer.lock().expect("not poisoned").take();
        let answer = answer.unwrap_or(Offer::Accepted);
        if answer == Offer::Accepted {
            self.0.out.lock().expect("not poisoned").push(Receipt {
                offset: record.offset,
                payload_bytes: record.payload_bytes,
                timestamp: record.timestamp,
            });
        }
        answer
    }

    fn outstanding(&self) -> u64 {
        self.0.out.lock().expect("not poisoned").len() as u64
    }

    async fn forget(&self, _: Duration) -> u64 {
        0
    }
}

impl HandOutlet {
    fn take(&self, offset: i64) -> Receipt {
        let mut out = self.out.lock().expect("not poisoned");
        let index = out
            .iter()
            .position(|receipt| receipt.offset.0 == offset)
            .expect("outstanding");
        out.remove(index)
    }

    fn deliver(&self, offset: i64) {
        let receipt = self.take(offset);
        self.receipts.delivered(receipt);
    }

    fn fail(&self, offset: i64) {
        let receipt = self.take(offset);
        self.receipts
            .failed(receipt, Fault::new(Kind::Target, "refused"));
    }

    fn answer(&self, offer: Offer) {
        *self.answer.lock().expect("not poisoned") = Some(offer);
    }
}

struct Rig {
    lane: Arc<Lane>,
    outlet: Arc<HandOutlet>,
    fence: Arc<Switch>,
    budget: Arc<Budget>,
    events: mpsc::UnboundedReceiver<(LaneNumber, LaneEvent)>,
    woken: std::sync::mpsc::Receiver<crate::records::reader::Command>,
    opening: u64,
}

const NOW: UnixMillis = UnixMillis(1_800_000_000_000);

impl Rig {
    fn new(budget_bytes: u64, limits: TargetLimits) -> Self {
        let fence = Arc::new(Switch(AtomicBool::new(true)));
        let budget = Budget::new(budget_bytes);
        let (sender, events) = mpsc::unbounded_channel();
        let link = LinkId::new("a-b").expect("legal");
        let topic = TopicName::new("orders").expect("legal");
        let shared = Shared {
            budget: Arc::clone(&budget),
            fence: Arc::clone(&fence) as Arc<dyn OwnershipFence>,
            clock: WallClock::from_fn(|| NOW),
            metrics: LinkMetrics::new(&link),
            events: sender,
        };
        let spec = TaskSpec {
            id: TaskId {
                link,
                topic: topic.clone(),
                partition: Partition(0),
            },
            epoch: OwnerEpoch(1),
            target_topic: topic,
            start: StartPolicy::Earliest,
            limits,
        };
        let lane = Lane::new(1, spec, shared);
        let sink = Hand::default();
        lane.attach(&sink);
        let outlet = Arc::clone(&sink.outlets.lock().expect("not poisoned")[0]);
        let (waker, woken) = Waker::for_tests(lane.number);
        lane.begin(Start::at(Offset(0)), 0);
        lane.open(1, waker);
        Self {
            lane,
            outlet,
            fence,
            budget,
            events,
            woken,
            opening: 1,
        }
    }

    fn ample() -> Self {
        Self::new(64 << 20, TargetLimits::default())
    }

    fn take_sized(&self, offset: i64, payload_bytes: u64) -> Taken {
        let record = Record {
            offset: Offset(offset),
            timestamp: Some(NOW),
            key: Some(b"k"),
            value: None,
            headers: &NoHeaders,
            payload_bytes,
        };
        self.lane.take(self.opening, &record)
    }

    fn take(&self, offset: i64) -> Taken {
        self.take_sized(offset, 100)
    }

    fn event(&mut self) -> Option<LaneEvent> {
        self.events.try_recv().ok().map(|(_, event)| event)
    }

    fn checkpoint(&self) -> i64 {
        self.lane.checkpoint().expect("begun").0
    }
}

#[test]
fn the_checkpoint_follows_acknowledgements_and_not_the_reader() {
    let rig = Rig::ample();
    for offset in [0, 1, 5] {
        assert_eq!(rig.take(offset), Taken::Sent);
    }
    assert_eq!(rig.lane.position(), Some(Offset(6)));
    assert_eq!(rig.checkpoint(), 0);
    rig.outlet.deliver(1);
    assert_eq!(rig.checkpoint(), 0, "0 is not acknowledged");
    rig.outlet.deliver(0);
    assert_eq!(rig.checkpoint(), 5, "offsets 2 to 4 hold nothing");
    rig.outlet.deliver(5);
    assert_eq!(rig.checkpoint(), 6);
    let numbers = rig.lane.numbers();
    assert_eq!(
        (numbers.records, numbers.bytes, numbers.in_flight),
        (3, 300, 0)
    );
    assert_eq!(rig.budget.used_bytes(), 0, "memory is back");
}

#[test]
fn records_of_another_opening_or_read_before_are_dropped() {
    let mut rig = Rig::ample();
    assert_eq!(rig.take(0), Taken::Sent);
    assert_eq!(rig.take(0), Taken::Dropped, "read before");
    rig.opening = 2;
    assert_eq!(rig.take(1), Taken::Dropped, "a reader that was replaced");
    rig.lane.close();
    rig.opening = 1;
    assert_eq!(rig.take(1), Taken::Dropped, "closed");
}

#[test]
fn c032_a_failed_record_holds_the_checkpoint_and_stops_the_lane() {
    let mut rig = Rig::ample();
    for offset in 0..4 {
        assert_eq!(rig.take(offset), Taken::Sent);
    }
    rig.outlet.deliver(0);
    rig.outlet.fail(1);
    assert!(matches!(rig.event(), Some(LaneEvent::Failed(_))));
    assert_eq!(rig.take(4), Taken::Dropped);
    rig.outlet.fail(2);
    assert_eq!(rig.event(), None, "told once");
    assert!(!rig.lane.watch_settled());
    rig.outlet.deliver(3);
    assert_eq!(rig.event(), Some(LaneEvent::Settled));
    assert_eq!(rig.checkpoint(), 1);
    assert_eq!(rig.lane.rewind(), Some(Offset(1)));
    rig.lane.open(1, Waker::for_tests(1).0);
    assert_eq!(
        rig.take(1),
        Taken::Sent,
        "read again from what was acknowledged"
    );
    assert_eq!(rig.budget.used_bytes(), 100 + RECORD_OVERHEAD_BYTES);
}

#[test]
fn a_full_share_holds_the_reader_back_until_half_of_it_has_come_back() {
    let rig = Rig::new(200_000, TargetLimits::default());
    let mut offset = 0;
    while rig.take_sized(offset, 10_000) == Taken::Sent {
        offset += 1;
    }
    assert!(offset > 3, "{offset}");
    assert!(!rig.lane.is_ready());
    let held = rig.budget.used_bytes();
    let mut back = 0;
    while rig.woken.try_recv().is_err() {
        rig.outlet.deliver(back);
        back += 1;
    }
    assert!(rig.budget.used_bytes() <= held / 2);
    assert!(rig.lane.is_ready());
    assert_eq!(rig.take_sized(offset, 10_000), Taken::Sent);
    rig.lane.went_on();
    rig.outlet.deliver(back);
    assert!(
        rig.woken.try_recv().is_err(),
        "woken once for each time it was held back"
    );
}

#[test]
fn c031_a_doubtful_record_waits_for_those_before_it_and_goes_alone() {
    let limits = TargetLimits {
        max_message_bytes: Some(1_000),
        ..TargetLimits::default()
    };
    let rig = Rig::new(64 << 20, limits);
    assert_eq!(rig.take(0), Taken::Sent);
    assert_eq!(
        rig.take_sized(1, 5_000),
        Taken::Full,
        "something is outstanding"
    );
    rig.outlet.deliver(0);
    assert!(rig.woken.try_recv().is_ok());
    assert_eq!(rig.take_sized(1, 5_000), Taken::Sent);
    assert_eq!(rig.take(2), Taken::Full, "nothing goes beside it");
    assert!(!rig.lane.is_ready());
    rig.outlet.deliver(1);
    assert!(rig.lane.is_ready());
    assert_eq!(rig.take(2), Taken::Sent);
}

#[test]
fn a_small_topic_never_has_more_outstanding_than_one_batch_may_hold() {
    let limits = TargetLimits {
        max_message_bytes: Some(10_000),
        ..TargetLimits::default()
    };
    let rig = Rig::new(64 << 20, limits);
    let mut offset = 0;
    while rig.take_sized(offset, 900) == Taken::Sent {
        offset += 1;
    }
    assert!(offset * 900 < 10_000, "{offset} records");
    assert!(offset > 5, "{offset} records");
}

#[test]
fn c037_a_closed_fence_lets_nothing_through() {
    let mut rig = Rig::ample();
    assert_eq!(rig.take(0), Taken::Sent);
    rig.fence.0.store(false, Ordering::SeqCst);
    assert_eq!(rig.take(1), Taken::Dropped);
    assert_eq!(rig.event(), Some(LaneEvent::Fenced));
    rig.fence.0.store(true, Ordering::SeqCst);
    assert_eq!(rig.take(1), Taken::Dropped, "stays closed for this opening");
    assert_eq!(rig.event(), None);
}

#[test]
fn a_sink_that_is_full_or_refuses_keeps_no_memory() {
    let mut rig = Rig::ample();
    rig.outlet.answer(Offer::Full);
    assert_eq!(rig.take(0), Taken::Full);
    assert!(rig.lane.is_ready(), "nothing is outstanding to wait for");
    rig.outlet
        .answer(Offer::Refused(Fault::new(Kind::Refused, "never")));
    assert_eq!(rig.take(0), Taken::Dropped);
    assert!(matches!(rig.event(), Some(LaneEvent::Failed(_))));
    assert_eq!(rig.budget.used_bytes(), 0);
    assert_eq!(rig.checkpoint(), 0);
}

#[test]
fn a_record_larger_than_the_budget_is_a_fault_that_says_so() {
    let mut rig = Rig::new(100_000, TargetLimits::default());
    assert_eq!(rig.take_sized(0, 60_000), Taken::Dropped);
    let Some(LaneEvent::Failed(fault)) = rig.event() else {
        panic!("told");
    };
    assert_eq!(fault.kind, Kind::Memory);
    assert!(fault.cause.contains("100000 bytes"), "{fault}");
}

#[test]
fn c114_offsets_without_records_are_passed_once_nothing_before_them_is_open() {
    let rig = Rig::ample();
    assert_eq!(rig.take(0), Taken::Sent);
    rig.lane.pass_over(1, Offset(3));
    assert_eq!(rig.checkpoint(), 0, "the record before is not acknowledged");
    rig.outlet.deliver(0);
    assert_eq!(rig.checkpoint(), 3);
    rig.lane.pass_over(1, Offset(2));
    rig.lane.pass_over(7, Offset(9));
    assert_eq!(
        rig.checkpoint(),
        3,
        "never back, never by a reader that was replaced"
    );
}

#[test]
fn c001_a_gap_is_counted_once() {
    let rig = Rig::ample();
    assert_eq!(rig.take(0), Taken::Sent);
    assert_eq!(rig.lane.skip_gap(Offset(10)), 9);
    assert_eq!(rig.lane.skip_gap(Offset(10)), 0);
    assert_eq!(rig.lane.numbers().gap_records, 9);
    rig.outlet.deliver(0);
    assert_eq!(rig.checkpoint(), 10);
}

#[test]
fn receipts_after_the_lane_is_gone_go_nowhere() {
    let rig = Rig::ample();
    assert_eq!(rig.take(0), Taken::Sent);
    let Rig {
        lane,
        outlet,
        budget,
        ..
    } = rig;
    drop(lane);
    outlet.deliver(0);
    assert_eq!(budget.used_bytes(), 0, "its share went with it");
}

#[test]
fn c046_what_was_given_up_gives_its_memory_back_and_late_receipts_count_no_more() {
    let mut rig = Rig::ample();
    for offset in 0..3 {
        assert_eq!(rig.take(offset), Taken::Sent);
    }
    rig.outlet.deliver(0);
    rig.lane.give_up();
    assert_eq!(rig.budget.used_bytes(), 0);
    assert_eq!(rig.lane.numbers().in_flight, 0);
    rig.outlet.deliver(1);
    rig.outlet.fail(2);
    assert_eq!(rig.event(), None);
    assert_eq!(rig.checkpoint(), 1);
    assert_eq!(rig.take(3), Taken::Dropped);
}
