//! A broker on real sockets, of a target for the most part: it answers the requests of a connection one after the other, as brokers do,
//! and acknowledges a partition only while its replicas keep up.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use kafka_protocol::{
    messages::{
        ApiKey, ApiVersionsResponse, BrokerId as WireBroker, ListOffsetsRequest,
        ListOffsetsResponse, MetadataRequest, MetadataResponse, ProduceRequest, ProduceResponse,
        RequestHeader,
        api_versions_response::ApiVersion,
        list_offsets_response::{ListOffsetsPartitionResponse, ListOffsetsTopicResponse},
        metadata_response::{
            MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
        },
        produce_response::{PartitionProduceResponse, TopicProduceResponse},
    },
    protocol::{Decodable as _, Encodable, StrBytes},
};
use kreplicator_batch::Batch;
use kreplicator_model::{backoff::Backoff, exact, ids, spec};
use kreplicator_wire::{
    cluster::ClusterClient,
    code::Code,
    settings::{NoSecrets, Settings},
    topic::BrokerId,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
    time::timeout,
};
use tokio_util::task::TaskTracker;

use super::{BASE_TIME, PRODUCER};

/// Newest versions that are spoken, none of them with tags.
const SPEAKS: [(ApiKey, i16); 4] = [
    (ApiKey::ApiVersions, 2),
    (ApiKey::ListOffsets, 5),
    (ApiKey::Metadata, 7),
    (ApiKey::Produce, 8),
];

/// Asks for the beginning of a log.
const EARLIEST: i64 = -2;

/// A running broker; it ends when dropped.
pub(in crate::batches) struct FakeBroker {
    inner: Arc<Inner>,
    _serving: JoinSet<()>,
}

struct Inner {
    address: std::net::SocketAddr,
    /// Partitions whose replicas do not keep up.
    stuck: watch::Sender<BTreeSet<i32>>,
    book: Mutex<Book>,
}

#[derive(Default)]
struct Book {
    logs: BTreeMap<i32, Log>,
    /// Connections with produce requests.
    connections: BTreeSet<usize>,
    connections_made: usize,
    connections_max: usize,
    /// Open connections of any kind.
    open: usize,
    open_limit: Option<usize>,
    /// The connection that took the last batch of a partition.
    last_on: BTreeMap<i32, usize>,
    connections_to_cut: BTreeSet<usize>,
    /// Batches that did not follow, by connection.
    refused: BTreeMap<usize, usize>,
}

/// What a partition holds: first and next sequence of each batch, in order.
#[derive(Default, Clone)]
struct Log {
    batches: Vec<(i64, i64)>,
    committed: i64,
}

impl Log {
    fn end(&self) -> i64 {
        self.batches.last().map_or(0, |(_, next)| *next)
    }

    /// Takes a batch that follows, knows one that it has, and refuses any other.
    fn take(&mut self, first: i64, next: i64) -> Code {
        if self.batches.contains(&(first, next)) {
            Code::NONE
        } else if first == self.end() {
            self.batches.push((first, next));
            Code::NONE
        } else {
            Code::OUT_OF_ORDER_SEQUENCE_NUMBER
        }
    }
}

impl FakeBroker {
    pub(in crate::batches) const ID: BrokerId = BrokerId(1);

    pub(in crate::batches) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let inner = Arc::new(Inner {
            address: listener.local_addr().expect("an address"),
            stuck: watch::Sender::default(),
            book: Mutex::default(),
        });
        let mut serving = JoinSet::new();
        let serve = Arc::clone(&inner);
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.expect("a client");
                let serve = Arc::clone(&serve);
                connections.spawn(async move {
                    let Some(number) = serve.opened() else {
                        return;
                    };
                    // Clients leave when they like.
                    let _end = serve.serve(stream, number).await;
                    let mut book = serve.book();
                    book.open -= 1;
                    book.connections.remove(&number);
                    book.refused.remove(&number);
                });
            }
        });
        Self {
            inner,
            _serving: serving,
        }
    }

    pub(in crate::batches) fn client(&self) -> ClusterClient {
        let cluster = spec::Cluster {
            id: ids::ClusterId::new("there").expect("legal"),
            bootstrap_servers: vec![self.inner.address.to_string()],
            security: spec::Security::default(),
            client_options: BTreeMap::new(),
            expected_cluster_id: None,
        };
        let mut settings = Settings::of(&cluster, "test");
        settings.metadata_pause_min = Duration::from_millis(10);
        settings.backoff = Backoff::new(Duration::from_millis(10), Duration::from_millis(100));
        ClusterClient::new(settings, Arc::new(NoSecrets), TaskTracker::new())
    }

    /// From now on the replicas of just these partitions do not keep up.
    pub(in crate::batches) fn set_stuck(&self, partitions: impl IntoIterator<Item = i32>) {
        self.inner
            .stuck
            .send_replace(partitions.into_iter().collect());
    }

    /// Puts records into a partition.
    pub(in crate::batches) fn write(&self, partition: i32, records: i64) {
        let mut book = self.inner.book();
        let log = book.logs.entry(partition).or_default();
        log.batches.push((log.end(), log.end() + records));
    }

    /// Records that all replicas of a partition have.
    pub(in crate::batches) fn committed(&self, partition: i32) -> i64 {
        self.inner.commit(partition)
    }

    /// Most connections with produce requests at a time.
    pub(in crate::batches) fn connections_max(&self) -> usize {
        self.inner.book().connections_max
    }

    /// Batches that did not follow the one before, on connections that are open: what was still on its way on
    /// another may come too late.
    pub(in crate::batches) fn refused(&self) -> usize {
        self.inner.book().refused.values().sum()
    }

    /// The connection that the last batch of a partition came by.
    pub(in crate::batches) fn last_on(&self, partition: i32) -> Option<usize> {
        self.inner.book().last_on.get(&partition).copied()
    }

    /// Takes no connection over those that are open now.
    pub(in crate::batches) fn take_no_more(&self) {
        let mut book = self.inner.book();
        book.open_limit = Some(book.open);
    }

    /// Cuts a connection when its next request comes.
    pub(in crate::batches) fn cut(&self, connection: usize) {
        self.inner.book().connections_to_cut.insert(connection);
    }

    /// What it says of the line of [`PRODUCER`], with the tail from an offset if that is asked for.
    pub(in crate::batches) fn view(
        &self,
        partition: i32,
        tail_from: Option<ids::Offset>,
    ) -> exact::TargetView {
        let committed = self.inner.commit(partition);
        let end = self.inner.book().logs.get(&partition).map_or(0, Log::end);
        let sequence = |count: i64| exact::Count(count.unsigned_abs()).sequence();
        let state = match end {
            0 => exact::StateAnswer::Absent,
            end => exact::StateAnswer::Known(exact::ProducerState {
                epoch: PRODUCER.epoch,
                last_sequence: sequence(end - 1),
                last_timestamp: ids::UnixMillis(BASE_TIME),
            }),
        };
        let tail = tail_from.map(|from| {
            let mut scan = exact::TailScan::new(PRODUCER, from);
            let records = (committed - from.0).max(0).unsigned_abs();
            if records > 0 {
                let first = Some(sequence(from.0));
                scan.batch(Some(PRODUCER), first, records, ids::Offset(committed));
            }
            exact::Tail::Read(scan)
        });
        exact::TargetView {
            state,
            start: ids::Offset(0),
            log_end: Some(ids::Offset(end)),
            end: ids::Offset(committed),
            tail,
        }
    }
}

impl Inner {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of a new connection; None: there are too many.
    fn opened(&self) -> Option<usize> {
        let mut book = self.book();
        if book.open_limit.is_some_and(|limit| book.open >= limit) {
            return None;
        }
        book.open += 1;
        book.connections_made += 1;
        Some(book.connections_made)
    }

    fn commit(&self, partition: i32) -> i64 {
        let is_stuck = self.stuck.borrow().contains(&partition);
        let mut book = self.book();
        let log = book.logs.entry(partition).or_default();
        if !is_stuck {
            log.committed = log.end();
        }
        log.committed
    }

    async fn serve(&self, mut stream: TcpStream, number: usize) -> std::io::Result<()> {
        loop {
            let length = stream.read_i32().await?;
            let mut frame = vec![0; usize::try_from(length).expect("positive")];
            stream.read_exact(&mut frame).await?;
            let mut frame = Bytes::from(frame);
            let (mut api, mut version) = (&frame[..2], &frame[2..4]);
            let api = ApiKey::try_from(api.get_i16()).expect("known");
            let version = version.get_i16();
            let header = RequestHeader::decode(&mut frame, api.request_header_version(version));
            let mut reply = BytesMut::new();
            reply.put_i32(header.expect("a header").correlation_id);
            let answer = match api {
                ApiKey::ApiVersions => versions(version),
                ApiKey::Metadata => {
                    let request = MetadataRequest::decode(&mut frame, version).expect("a request");
                    self.metadata(request, version)
                }
                ApiKey::ListOffsets => {
                    let request = ListOffsetsRequest::decode(&mut frame, version);
                    body(&self.offsets(request.expect("a request")), version)
                }
                ApiKey::Produce => {
                    if self.book().connections_to_cut.remove(&number) {
                        return Ok(());
                    }
                    let request = ProduceRequest::decode(&mut frame, version).expect("a request");
                    body(&self.produce(request, number).await, version)
                }
                other => panic!("{other:?} is not spoken"),
            };
            reply.put_slice(&answer);
            stream
                .write_i32(i32::try_from(reply.len()).expect("small"))
                .await?;
            stream.write_all(&reply).await?;
        }
    }

    /// Each topic asked for has one partition, which this broker leads.
    fn metadata(&self, request: MetadataRequest, version: i16) -> Bytes {
        let broker = MetadataResponseBroker::default()
            .with_node_id(WireBroker(FakeBroker::ID.0))
            .with_host(StrBytes::from_static_str("127.0.0.1"))
            .with_port(i32::from(self.address.port()));
        let topics = request.topics.unwrap_or_default().into_iter().map(|topic| {
            let partition = MetadataResponsePartition::default()
                .with_leader_id(WireBroker(FakeBroker::ID.0))
                .with_leader_epoch(1);
            MetadataResponseTopic::default()
                .with_name(topic.name)
                .with_partitions(vec![partition])
        });
        let answer = MetadataResponse::default()
            .with_brokers(vec![broker])
            .with_topics(topics.collect());
        body(&answer, version)
    }

    /// Logs begin at 0.
    fn offsets(&self, request: ListOffsetsRequest) -> ListOffsetsResponse {
        let topics = request.topics.into_iter().map(|topic| {
            let partitions = topic.partitions.into_iter().map(|asked| {
                let end = self.commit(asked.partition_index);
                let is_earliest = asked.timestamp == EARLIEST;
                ListOffsetsPartitionResponse::default()
                    .with_partition_index(asked.partition_index)
                    .with_offset(if is_earliest { 0 } else { end })
            });
            ListOffsetsTopicResponse::default()
                .with_name(topic.name)
                .with_partitions(partitions.collect())
        });
        ListOffsetsResponse::default().with_topics(topics.collect())
    }

    /// Appends, and answers when all replicas have everything or the request's time is over.
    async fn produce(&self, request: ProduceRequest, number: usize) -> ProduceResponse {
        let mut taken = BTreeMap::new();
        {
            let mut book = self.book();
            book.connections.insert(number);
            book.connections_max = book.connections_max.max(book.connections.len());
            for topic in &request.topic_data {
                for data in &topic.partition_data {
                    let records = data.records.clone().expect("a batch");
                    let batch = Batch::parse(records).expect("whole");
                    let header = batch.header();
                    let first = i64::from(header.producer.base_sequence);
                    let next = first + i64::from(header.record_count);
                    let log = book.logs.entry(data.index).or_default();
                    let code = log.take(first, next);
                    taken.insert(data.index, (code, first));
                    *book.refused.entry(number).or_default() += usize::from(code != Code::NONE);
                    book.last_on.insert(data.index, number);
                }
            }
        }
        let missing = taken
            .iter()
            .filter(|(at, (code, first))| *code == Code::NONE && self.commit(**at) <= *first);
        let missing: BTreeSet<i32> = missing.map(|(at, _)| *at).collect();
        let mut stuck = self.stuck.subscribe();
        let are_all_there = stuck.wait_for(|stuck| missing.is_disjoint(stuck));
        let patience = Duration::from_millis(request.timeout_ms.unsigned_abs().into());
        drop(timeout(patience, are_all_there).await);
        let answers = taken.into_iter().map(|(partition, (code, first))| {
            let is_late = self.commit(partition) <= first;
            let code = if code == Code::NONE && is_late {
                Code::REQUEST_TIMED_OUT
            } else {
                code
            };
            PartitionProduceResponse::default()
                .with_index(partition)
                .with_error_code(code.0)
                .with_base_offset(if code == Code::NONE { first } else { -1 })
        });
        let topic = TopicProduceResponse::default()
            .with_name(request.topic_data[0].name.clone())
            .with_partition_responses(answers.collect());
        ProduceResponse::default().with_responses(vec![topic])
    }
}

fn body(answer: &impl Encodable, version: i16) -> Bytes {
    let mut body = BytesMut::new();
    answer.encode(&mut body, version).expect("legal");
    body.freeze()
}

fn versions(version: i16) -> Bytes {
    if version > 2 {
        // What follows the code is no list.
        return Bytes::from_static(&[0, 35, 0, 0, 0, 9, 1]);
    }
    let apis = SPEAKS.map(|(api, max)| {
        ApiVersion::default()
            .with_api_key(api as i16)
            .with_max_version(max)
    });
    let answer = ApiVersionsResponse::default().with_api_keys(apis.to_vec());
    body(&answer, version)
}
