//! A lane without network: the test is its fetcher, its outlet and its life.

use std::{
    collections::VecDeque,
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use kreplicator_batch::Batch;
use kreplicator_model::{
    exact::{Count, DeliveryMode, Place, Producer, ProducerEpoch, ProducerId, Sender, Start},
    ids::{Offset, OwnerEpoch, TopicName, UnixMillis, WorkerId},
    spec::StartPolicy,
    target_limits::TargetLimits,
};
use kreplicator_wire::{
    code::Code,
    fetch::{Aborted, Fetched},
};
use tokio::{sync::mpsc, time::Instant};

use super::answer;
use crate::{
    batches::{
        config::BatchConfig,
        fetcher::{FetcherHandle, tests::FakeFetcher},
        lane::{Event, Lane, Next, Opening, Shared},
        mailbox,
        metrics::BatchMetrics,
        outlet::{Item, tests::fake},
        rewriter::{Jobs, Rewriter, Work},
    },
    budget::Budget,
    clock::WallClock,
    engine::TaskSpec,
    fence::OwnershipFence,
    flow_metrics::LinkMetrics,
    testkit::{link_id, task},
};

/// When tests happen, milliseconds since 1970.
pub(in crate::batches) const BASE_TIME: i64 = 1_700_000_000_000;

/// Who sends.
pub(in crate::batches) const PRODUCER: Producer = Producer {
    id: ProducerId(4_000),
    epoch: ProducerEpoch(3),
};

/// A fence that a test opens and shuts.
#[derive(Default)]
pub(in crate::batches) struct Shutter {
    is_shut: AtomicBool,
}

impl Shutter {
    pub(in crate::batches) fn open(&self) {
        self.is_shut.store(false, Ordering::Release);
    }

    pub(in crate::batches) fn shut(&self) {
        self.is_shut.store(true, Ordering::Release);
    }
}

impl fmt::Debug for Shutter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shutter")
    }
}

impl OwnershipFence for Shutter {
    fn is_open(&self) -> bool {
        !self.is_shut.load(Ordering::Acquire)
    }
}

/// What a lane is made with.
#[derive(Debug, Clone, Copy)]
pub(in crate::batches) struct Made {
    pub(in crate::batches) partition: i32,
    pub(in crate::batches) budget_bytes: u64,
    pub(in crate::batches) limits: TargetLimits,
    pub(in crate::batches) mode: DeliveryMode,
}

impl Default for Made {
    fn default() -> Self {
        Self {
            partition: 0,
            budget_bytes: 64 << 20,
            limits: TargetLimits::default(),
            mode: DeliveryMode::ExactlyOnce,
        }
    }
}

/// Begins to flow at a source offset, where the line begins.
pub(in crate::batches) fn open(lane: &Lane, offset: Offset, mode: DeliveryMode, is_reset: bool) {
    let worker = WorkerId::new("w").expect("legal");
    let place = Place {
        offset,
        count: Count(0),
        target_end: Offset(0),
    };
    let start = Start {
        producer: PRODUCER,
        place,
        skip_records: 0,
        skip_end: None,
        first_alone: false,
        mode,
    };
    let now = lane.shared.now();
    lane.open(Opening {
        sender: Sender::new(BatchConfig::new(worker).sender, start, now),
        producer: PRODUCER,
        read_from: offset,
        skip_records: 0,
        source_epoch: None,
        target_topic_id: None,
        is_reset,
    });
}

/// A lane and everything around it.
#[derive(Debug)]
pub(in crate::batches) struct Rig {
    pub(in crate::batches) lane: Arc<Lane>,
    pub(in crate::batches) budget: Arc<Budget>,
    pub(in crate::batches) fence: Arc<Shutter>,
    made: Made,
    around: Mutex<Around>,
}

#[derive(Debug)]
struct Around {
    events: mailbox::Receiver<Event>,
    fetcher: FakeFetcher,
    handle: FetcherHandle,
    /// What is to be opened.
    jobs: Jobs,
    /// Opening takes as long as the test wants.
    holds_jobs: bool,
    /// The outlets set so far; the last is in use.
    outlets: Vec<mpsc::UnboundedReceiver<Item>>,
}

impl Rig {
    pub(in crate::batches) fn new() -> Self {
        Self::with(Made::default())
    }

    pub(in crate::batches) fn with(made: Made) -> Self {
        let budget = Budget::new(made.budget_bytes);
        let fence = Arc::new(Shutter::default());
        let link = link_id("a-b");
        let (rewriter, jobs) = Rewriter::new();
        let shared = Shared {
            budget: Arc::clone(&budget),
            fence: Arc::clone(&fence) as Arc<dyn OwnershipFence>,
            clock: WallClock::from_fn(|| UnixMillis(BASE_TIME + 60_000)),
            metrics: LinkMetrics::new(&link),
            paths: BatchMetrics::new(&link),
            base: Instant::now(),
            news: crate::news::News::default(),
            rewriter,
        };
        let spec = TaskSpec {
            id: task(made.partition),
            epoch: OwnerEpoch(1),
            target_topic: TopicName::new("orders").expect("legal"),
            start: StartPolicy::Earliest,
            limits: made.limits,
        };
        let (sender, events) = mailbox::mailbox();
        let lane = Lane::new(1, spec, Arc::new(shared), sender);
        let (fetcher, handle) = FakeFetcher::new();
        Self {
            lane,
            budget,
            fence,
            made,
            around: Mutex::new(Around {
                events,
                fetcher,
                handle,
                jobs,
                holds_jobs: false,
                outlets: Vec::new(),
            }),
        }
    }

    /// Begins at a source offset; as many records are at the target.
    pub(in crate::batches) fn open_at(&self, offset: i64) {
        self.reopen(Offset(offset), false);
    }

    /// The same; `is_reset`: no checkpoint tells what was copied before.
    pub(in crate::batches) fn reopen(&self, offset: Offset, is_reset: bool) {
        open(&self.lane, offset, self.made.mode, is_reset);
        self.lane
            .set_fetcher(self.with_around(|around| around.handle.clone()));
    }

    /// Gives the lane an outlet.
    pub(in crate::batches) fn connect(&self) {
        let (handle, items) = fake();
        self.with_around(|around| around.outlets.push(items));
        self.lane.set_outlet(handle);
    }

    /// Opens at offset 0 with an outlet.
    pub(in crate::batches) fn running(made: Made) -> Self {
        let rig = Self::with(made);
        rig.open_at(0);
        rig.connect();
        rig
    }

    /// An answer of the source to a question for the lane's position.
    pub(in crate::batches) fn fetch<'a>(
        &self,
        batches: impl IntoIterator<Item = &'a Batch>,
    ) -> Next {
        let position = self.lane.position().expect("open");
        self.fetch_bytes(position, answer(batches))
    }

    pub(in crate::batches) fn fetch_bytes(&self, offset: Offset, records: bytes::Bytes) -> Next {
        self.hand_in(self.answer(offset, records))
    }

    /// What the lane wants once all is opened that has to be, unless that is held up.
    fn hand_in(&self, fetched: Fetched) -> Next {
        let bytes = fetched.records.len();
        let occupied = self.with_around(|around| around.fetcher.occupy(bytes));
        let next = self.lane.fetched(fetched, occupied);
        if self.open_waiting() == 0 {
            return next;
        }
        self.lane.reading_at()
    }

    fn open_waiting(&self) -> usize {
        if self.with_around(|around| around.holds_jobs) {
            return 0;
        }
        std::iter::from_fn(|| self.open_next().then_some(())).count()
    }

    /// From now on what has to be opened waits for [`Rig::open_next`].
    pub(in crate::batches) fn hold_jobs(&self) {
        self.with_around(|around| around.holds_jobs = true);
    }

    /// Begins to open what has waited longest; None: nothing waits, or it is not wanted now.
    pub(in crate::batches) fn begin_next(&self) -> Option<Work> {
        self.with_around(|around| around.jobs.try_recv().ok())?
            .begin()
    }

    /// Opens what has waited longest; false: nothing waits.
    pub(in crate::batches) fn open_next(&self) -> bool {
        let job = self.with_around(|around| around.jobs.try_recv().ok());
        job.map(crate::batches::rewriter::Job::run).is_some()
    }

    /// Number of batches that wait to be opened.
    pub(in crate::batches) fn jobs_waiting(&self) -> usize {
        self.with_around(|around| around.jobs.len())
    }

    /// What has to be opened goes to whoever has this.
    pub(in crate::batches) fn take_jobs(&self) -> Jobs {
        let (_, none) = Rewriter::new();
        self.with_around(|around| std::mem::replace(&mut around.jobs, none))
    }

    /// The same, with a transaction that was aborted.
    pub(in crate::batches) fn fetch_aborted<'a>(
        &self,
        producer_id: i64,
        first_offset: i64,
        batches: impl IntoIterator<Item = &'a Batch>,
    ) -> Next {
        let position = self.lane.position().expect("open");
        let mut fetched = self.answer(position, answer(batches));
        fetched.aborted.push(Aborted {
            producer_id,
            first_offset: Offset(first_offset),
        });
        self.hand_in(fetched)
    }

    /// An answer of the source, as the wire tells it.
    pub(in crate::batches) fn answer(&self, offset: Offset, records: bytes::Bytes) -> Fetched {
        Fetched {
            partition: self.lane.source.clone(),
            offset,
            code: Code::NONE,
            high_watermark: None,
            last_stable_offset: None,
            log_start: None,
            aborted: Vec::new(),
            preferred_replica: None,
            diverging: None,
            leader: None,
            records,
        }
    }

    /// What the lane told its life since the last call.
    pub(in crate::batches) fn events(&self) -> Vec<Event> {
        self.open_waiting();
        self.with_around(|around| std::iter::from_fn(|| around.events.try_recv()).collect())
    }

    /// What was handed to the newest outlet since the last call.
    pub(in crate::batches) fn sent(&self) -> VecDeque<Item> {
        self.open_waiting();
        self.with_around(|around| {
            let items = around.outlets.last_mut();
            let items = items.map(|items| std::iter::from_fn(|| items.try_recv().ok()).collect());
            items.unwrap_or_default()
        })
    }

    /// The newest outlet ends.
    pub(in crate::batches) fn break_outlet(&self) {
        self.with_around(|around| around.outlets.pop());
    }

    pub(in crate::batches) fn with_fetcher<T>(
        &self,
        use_it: impl FnOnce(&mut FakeFetcher) -> T,
    ) -> T {
        self.with_around(|around| use_it(&mut around.fetcher))
    }

    /// The source offset that the checkpoint says.
    pub(in crate::batches) fn checkpoint(&self) -> i64 {
        self.lane.checkpoint().expect("open").place.offset.0
    }

    fn with_around<T>(&self, use_it: impl FnOnce(&mut Around) -> T) -> T {
        use_it(&mut self.around.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
