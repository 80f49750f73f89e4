//! One task's way into the shared producer.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use kreplicator_kafka::blocking::blocking;
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
    fault::{Fault, Kind},
};

/// How long the receipts of a purge may take; they come from our own process.
const PURGE_TIME: Duration = Duration::from_secs(2);
/// How long a broker is taken to remember what a producer wrote last; its own setting
/// (`producer.id.expiration.ms`) is a day by default.
const MEMORY_OF_BROKERS: Duration = Duration::from_secs(3_600);
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
    /// Which generation the partition's broker knows, and when it last showed that.
    known: Option<(u64, Instant)>,
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
            if failure.is_none() {
                let number = state
                    .generation
                    .as_ref()
                    .map(|generation| generation.number);
                state.known = number.map(|number| (number, Instant::now()));
            }
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

    /// The generation for the next record; None: wait for what is outstanding, or for a producer.
    fn generation(&self, state: &mut State) -> Option<Arc<Generation>> {
        if state.outstanding > 0 {
            // Order is kept by staying with one producer until everything in it has its receipt.
            let live = state.generation.as_ref().filter(|kept| kept.is_live());
            return live.cloned();
        }
        let current = self.pool.current()?;
        state.generation = Some(Arc::clone(&current));
        Some(current)
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
        let Some(generation) = way.generation(&mut state) else {
            return Offer::Full;
        };
        if state.outstanding > 0 && !is_known(&state, &generation) {
            return Offer::Full;
        }
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
            blocking(move || pool.retire(&generation, purge_at)).await;
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

/// Whether the partition's broker knows the producer by something that it wrote there.
///
/// Until then one record goes alone. A broker takes any sequence from a producer that it does not
/// know: if it refuses the first batch (its partition is not there yet, replicas are missing) and takes
/// the second, which was on its way already, the library takes the second's success for proof of the
/// first, and the first is lost. A broker that knows the producer refuses the second as well.
fn is_known(state: &State, generation: &Generation) -> bool {
    state
        .known
        .is_some_and(|(number, at)| number == generation.number && at.elapsed() < MEMORY_OF_BROKERS)
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
