//! One task's way into the shared producer.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use kreplicator_model::{ids::Offset, target_limits::TargetLimits};
use rdkafka::{
    message::{BorrowedHeaders, Header, OwnedHeaders},
    producer::BaseRecord,
    types::RDKafkaErrorCode as Code,
};
use tokio::{
    sync::Notify,
    time::{Instant, timeout},
};
use tracing::warn;

use super::{
    super::{Headers, Offer, Outlet, Receipt, Receipts, Record},
    generation::{Generation, Ticket},
    pool::Pool,
    refusal::{self, Place},
};
use crate::{
    engine::TaskSpec,
    records::fault::{Fault, Kind},
};

/// How long the receipts of a purge may take; they come from our own process.
const PURGE_TIME: Duration = Duration::from_secs(2);
/// The wire's "no timestamp".
const NO_TIMESTAMP: i64 = -1;

/// One task's way into the shared producer, as the task holds it.
#[derive(Debug)]
pub(super) struct KafkaOutlet(Arc<Way>);

/// The way itself; every record in the producer holds on to it.
pub(super) struct Way {
    topic: String,
    partition: i32,
    limits: TargetLimits,
    receipts: Arc<dyn Receipts>,
    pool: Arc<Pool>,
    state: Mutex<State>,
    settled: Notify,
}

#[derive(Default)]
struct State {
    generation: Option<Arc<Generation>>,
    outstanding: u64,
    condemned: bool,
    /// Of what was condemned: may be on its way through the network, or was delivered after all.
    uncertain: u64,
}

impl KafkaOutlet {
    pub(super) fn new(spec: &TaskSpec, receipts: Arc<dyn Receipts>, pool: Arc<Pool>) -> Self {
        Self(Arc::new(Way {
            topic: spec.target_topic.to_string(),
            partition: spec.id.partition.0,
            limits: spec.limits,
            receipts,
            pool,
            state: Mutex::default(),
            settled: Notify::new(),
        }))
    }
}

impl Way {
    /// A receipt from the library. Tells whether the record had been condemned.
    pub(super) fn receipt(&self, ticket: &Ticket, failure: Option<Code>) -> bool {
        let condemned = {
            let mut state = self.lock();
            state.outstanding -= 1;
            if state.condemned && failure != Some(Code::PurgeQueue) {
                state.uncertain += 1;
            }
            if state.outstanding == 0 {
                self.settled.notify_waiters();
            }
            state.condemned
        };
        if condemned {
            return true;
        }
        let receipt = Receipt {
            offset: ticket.offset,
            payload_bytes: ticket.payload_bytes,
            timestamp: ticket.timestamp,
        };
        match failure {
            None => self.receipts.delivered(receipt),
            Some(code) => {
                let fault = refusal::fault(self.place(), ticket.offset, ticket.payload_bytes, code);
                self.receipts.failed(receipt, fault);
            }
        }
        false
    }

    fn place(&self) -> Place<'_> {
        Place {
            topic: &self.topic,
            partition: self.partition,
            limits: self.limits,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The generation for the next record; None: wait for what is outstanding.
    fn generation(&self, state: &mut State) -> Result<Option<Arc<Generation>>, Fault> {
        if state.outstanding > 0 {
            // Order is kept by staying with one producer until everything in it has its receipt.
            let live = state.generation.as_ref().filter(|kept| kept.is_live());
            return Ok(live.cloned());
        }
        let Some(current) = self.pool.current() else {
            return Err(Fault::new(
                Kind::Target,
                format!(
                    "no producer for target topic {} partition {} yet; trying again",
                    self.topic, self.partition
                ),
            ));
        };
        state.generation = Some(Arc::clone(&current));
        Ok(Some(current))
    }
}

#[async_trait]
impl Outlet for KafkaOutlet {
    fn offer(&self, record: &Record<'_>) -> Offer {
        let way = &self.0;
        let timestamp = match record.timestamp {
            None => NO_TIMESTAMP,
            Some(timestamp) if timestamp.0 == 0 && !way.limits.log_append_time => {
                return Offer::Refused(refusal::zero_timestamp(way.place(), record.offset));
            }
            Some(timestamp) => timestamp.0,
        };
        let headers = match own_headers(record.headers, record.offset) {
            Ok(headers) => headers,
            Err(fault) => return Offer::Refused(fault),
        };
        let mut state = way.lock();
        if state.condemned {
            return Offer::Refused(Fault::new(Kind::Target, "the task was stopped"));
        }
        let generation = match way.generation(&mut state) {
            Ok(Some(generation)) => generation,
            Ok(None) => return Offer::Full,
            Err(fault) => return Offer::Refused(fault),
        };
        let ticket = Box::new(Ticket {
            outlet: Arc::clone(way),
            offset: record.offset,
            payload_bytes: record.payload_bytes,
            timestamp: record.timestamp,
        });
        let library_record = BaseRecord {
            topic: &way.topic,
            partition: Some(way.partition),
            payload: record.value,
            key: record.key,
            timestamp: Some(timestamp),
            headers,
            delivery_opaque: ticket,
        };
        match generation.send(library_record) {
            Ok(()) => {
                state.outstanding += 1;
                Offer::Accepted
            }
            Err(Code::QueueFull) => Offer::Full,
            Err(code) => Offer::Refused(refusal::fault(
                way.place(),
                record.offset,
                record.payload_bytes,
                code,
            )),
        }
    }

    fn outstanding(&self) -> u64 {
        self.0.lock().outstanding
    }

    async fn forget(&self, grace: Duration) -> u64 {
        let way = &self.0;
        let settled = way.settled.notified();
        tokio::pin!(settled);
        settled.as_mut().enable();
        let (generation, records) = {
            let mut state = way.lock();
            if state.condemned {
                return state.outstanding + state.uncertain;
            }
            state.condemned = true;
            if state.outstanding == 0 {
                return 0;
            }
            // The callbacks take this lock before they count a condemned record down.
            let generation = state.generation.clone();
            if let Some(generation) = &generation {
                generation.condemn(state.outstanding);
            }
            (generation, state.outstanding)
        };
        warn!(
            topic = %way.topic,
            partition = way.partition,
            records,
            "records given up before they were acknowledged"
        );
        if let Some(generation) = generation {
            let pool = Arc::clone(&way.pool);
            let purge_at = Instant::now() + grace;
            let retired = tokio::task::spawn_blocking(move || pool.retire(&generation, purge_at));
            if let Err(panicked) = retired.await {
                std::panic::resume_unwind(panicked.into_panic());
            }
        }
        // Lapses only if the library does not answer a purge; what is left is counted then.
        let waited = timeout(grace + PURGE_TIME, settled).await;
        let state = way.lock();
        if waited.is_err() && state.outstanding > 0 {
            warn!(
                topic = %way.topic,
                partition = way.partition,
                records = state.outstanding,
                "the producer did not give back what it was told to drop"
            );
        }
        state.outstanding + state.uncertain
    }
}

/// Headers for the library: its own form copied whole, names of any bytes included, or one by one.
fn own_headers(headers: &dyn Headers, offset: Offset) -> Result<Option<OwnedHeaders>, Fault> {
    let count = headers.count();
    if count == 0 {
        return Ok(None);
    }
    let native = headers
        .native()
        .and_then(|any| any.downcast_ref::<BorrowedHeaders>());
    if let Some(native) = native {
        return Ok(Some(native.detach()));
    }
    let mut owned = Some(OwnedHeaders::new_with_capacity(count));
    let visited = headers.visit(&mut |key, value| {
        owned = owned
            .take()
            .map(|owned| owned.insert(Header { key, value }));
    });
    match visited {
        Ok(()) => Ok(owned),
        Err(unreadable) => Err(Fault::new(
            Kind::Refused,
            format!(
                "source offset {offset}: {unreadable}; the record cannot be passed on unchanged"
            ),
        )),
    }
}

impl fmt::Debug for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Way")
            .field("topic", &self.topic)
            .field("partition", &self.partition)
            .finish_non_exhaustive()
    }
}
