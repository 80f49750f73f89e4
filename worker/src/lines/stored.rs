//! The lines in the metadata store.

use std::{future::Future, sync::Arc, time::Duration};

use async_trait::async_trait;
use kreplicator_model::{
    exact::ProducerId,
    ids::{ClusterId, LinkId, LinkTopic, WorkerId},
};
use kreplicator_proto::{
    line_record::{LineEntry, LineRecord, ProducerRecord},
    stored::Stored,
};
use kreplicator_store::{Compare, MetaStore, Op, Outcome, Revision, Txn, backoff::Backoff, keys};
use kreplicator_wire::gather::Gather;
use tokio::time::{sleep, timeout};

use super::{
    Allocate, Error, LineBook, LineTarget, NewEntry, Result, TopicLines, Written, differs,
    draft::{Draft, Request, is_for},
};
use crate::clock::WallClock;

/// Longest time that a call may take, waiting for other callers' turns aside.
const DEADLINE: Duration = Duration::from_secs(15);
/// Waits between attempts that lost to another writer.
const BACKOFF: Backoff = Backoff {
    min: Duration::from_millis(5),
    max: Duration::from_millis(200),
};

/// The book behind [`LineBook`] that all workers share.
#[derive(Debug)]
pub struct StoredLines {
    store: Arc<dyn MetaStore>,
    worker: WorkerId,
    clock: WallClock,
    loads: Gather<LinkTopic, (), Result<Found>>,
    writes: Gather<LinkTopic, Request, Result<Written>>,
    producers: Gather<LinkId, Holder, Option<Result<ProducerId>>>,
}

/// The stored value of a topic.
#[derive(Debug, Clone, Default)]
struct Found {
    revision: Option<Revision>,
    record: Option<Arc<LineRecord>>,
}

/// The stored producer id of a link.
#[derive(Debug, Clone)]
struct Producer {
    revision: Revision,
    record: ProducerRecord,
}

/// Who a producer id is asked from.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Holder {
    cluster: ClusterId,
    cluster_id: Option<String>,
}

impl Holder {
    fn has_given(&self, record: &ProducerRecord) -> bool {
        let known = record.target_cluster_id.as_deref();
        record.target == self.cluster && !differs(known, self.cluster_id.as_deref())
    }
}

impl Found {
    /// What of it is for `target`.
    fn seen_by(&self, target: &LineTarget) -> TopicLines {
        let record = self.record.as_ref();
        let own = record.filter(|record| is_for(record, target)).cloned();
        TopicLines::new(self.revision, own)
    }
}

impl StoredLines {
    /// The book in `store`, written to as `worker`.
    #[must_use]
    pub fn new(store: Arc<dyn MetaStore>, worker: WorkerId, clock: WallClock) -> Self {
        Self {
            store,
            worker,
            clock,
            loads: Gather::new(),
            writes: Gather::new(),
            producers: Gather::new(),
        }
    }

    async fn find(&self, topic: &LinkTopic) -> Result<Found> {
        let key = keys::lines(topic);
        let Some(entry) = self.store.get(&key).await.map_err(Arc::new)? else {
            return Ok(Found::default());
        };
        Ok(Found {
            revision: Some(entry.mod_revision),
            record: Some(Arc::new(LineRecord::decode(&key, &entry.value)?)),
        })
    }

    async fn put(&self, key: &str, seen: Option<Revision>, value: Vec<u8>) -> Result<Outcome> {
        let unchanged = match seen {
            Some(revision) => Compare::ModifiedAt(key.to_owned(), revision),
            None => Compare::Absent(key.to_owned()),
        };
        let txn = Txn {
            compares: vec![unchanged],
            ops: vec![Op::Put {
                key: key.to_owned(),
                value,
                lease: None,
            }],
        };
        Ok(self.store.commit(txn).await.map_err(Arc::new)?)
    }

    /// Writes what fits of `requests` in one transaction, again and again until no other worker is
    /// faster.
    async fn merge(&self, topic: &LinkTopic, requests: &[Request]) -> Result<Vec<Written>> {
        let key = keys::lines(topic);
        let mut failures = 0;
        loop {
            let found = self.find(topic).await?;
            let mut draft = Draft::of(found.revision, found.record.as_deref().cloned());
            let fitting: Vec<bool> = requests.iter().map(|request| draft.take(request)).collect();
            let after = match draft.into_changed() {
                None => found,
                Some(record) => match self.put(&key, found.revision, record.encode()).await? {
                    Outcome::Committed(revision) => Found {
                        revision: Some(revision),
                        record: Some(Arc::new(record)),
                    },
                    Outcome::Conflict => {
                        failures += 1;
                        give_way(failures).await;
                        continue;
                    }
                },
            };
            let answers = requests.iter().zip(fitting).map(|(request, fits)| {
                let lines = after.seen_by(&request.target);
                if fits {
                    Written::Done(lines)
                } else {
                    Written::Conflict(lines)
                }
            });
            return Ok(answers.collect());
        }
    }

    async fn find_producer(&self, link: &LinkId) -> Result<Option<Producer>> {
        let key = keys::producer(link);
        let Some(entry) = self.store.get(&key).await.map_err(Arc::new)? else {
            return Ok(None);
        };
        Ok(Some(Producer {
            revision: entry.mod_revision,
            record: ProducerRecord::decode(&key, &entry.value)?,
        }))
    }

    /// Has the target give out an id and offers it to the store; whatever is there then counts.
    async fn allocate(
        &self,
        link: &LinkId,
        holder: &Holder,
        allocate: &Allocate<'_>,
    ) -> Result<ProducerId> {
        let found = self.find_producer(link).await?;
        if let Some(found) = &found
            && holder.has_given(&found.record)
        {
            return Ok(found.record.producer_id);
        }
        let allocated = allocate().await.map_err(|source| Error::Allocate {
            link: link.clone(),
            source: Arc::from(source),
        })?;
        let record = ProducerRecord {
            producer_id: allocated,
            target: holder.cluster.clone(),
            target_cluster_id: holder.cluster_id.clone(),
        };
        let mut seen = found.map(|found| found.revision);
        let mut failures = 0;
        loop {
            if let Outcome::Committed(_) = self
                .put(&keys::producer(link), seen, record.encode())
                .await?
            {
                return Ok(allocated);
            }
            let found = self.find_producer(link).await?;
            if let Some(found) = &found
                && holder.has_given(&found.record)
            {
                return Ok(found.record.producer_id);
            }
            seen = found.map(|found| found.revision);
            failures += 1;
            give_way(failures).await;
        }
    }
}

/// Waits for other writers, longer each time.
async fn give_way(failures: u32) {
    let delay = BACKOFF.delay(failures, &mut rand::rng());
    sleep(delay).await;
}

/// The same answer or error for everybody.
fn for_each<T: Clone>(count: usize, answer: &T) -> Vec<T> {
    vec![answer.clone(); count]
}

async fn in_time<T>(key: &str, call: impl Future<Output = Result<T>>) -> Result<T> {
    let late = |_| Error::Late {
        key: key.to_owned(),
        seconds: DEADLINE.as_secs(),
    };
    timeout(DEADLINE, call).await.map_err(late)?
}

#[async_trait]
impl LineBook for StoredLines {
    async fn load(&self, topic: &LinkTopic, target: &LineTarget) -> Result<TopicLines> {
        let call = |questions: Vec<()>| async move {
            let found = in_time(&keys::lines(topic), self.find(topic)).await;
            for_each(questions.len(), &found)
        };
        let found = self.loads.ask(topic, (), call).await?;
        Ok(found.seen_by(target))
    }

    async fn write(
        &self,
        topic: &LinkTopic,
        target: &LineTarget,
        expected: &TopicLines,
        entry: NewEntry,
    ) -> Result<Written> {
        let request = Request {
            target: target.clone(),
            seen: expected.revision(),
            replaces: expected.line(entry.partition).cloned(),
            partition: entry.partition,
            entry: LineEntry {
                line: entry.line,
                written_at: self.clock.now(),
                worker: self.worker.clone(),
                owner_epoch: entry.owner_epoch,
            },
        };
        let call = |requests: Vec<Request>| async move {
            match in_time(&keys::lines(topic), self.merge(topic, &requests)).await {
                Ok(written) => written.into_iter().map(Ok).collect(),
                Err(error) => for_each(requests.len(), &Err(error)),
            }
        };
        self.writes.ask(topic, request, call).await
    }

    async fn producer_id(
        &self,
        link: &LinkId,
        target: &ClusterId,
        target_cluster_id: Option<&str>,
        allocate: &Allocate<'_>,
    ) -> Result<ProducerId> {
        let holder = Holder {
            cluster: target.clone(),
            cluster_id: target_cluster_id.map(ToOwned::to_owned),
        };
        loop {
            let call = |holders: Vec<Holder>| {
                let holder = &holder;
                async move {
                    let key = keys::producer(link);
                    let found = in_time(&key, self.allocate(link, holder, allocate)).await;
                    // Those who mean another target have to ask it themselves.
                    let own = |other: Holder| (other == *holder).then(|| found.clone());
                    holders.into_iter().map(own).collect()
                }
            };
            if let Some(found) = self.producers.ask(link, holder.clone(), call).await {
                return found;
            }
        }
    }
}
