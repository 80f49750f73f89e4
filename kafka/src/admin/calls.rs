//! The calls of an [`Admin`]. Each ends by its deadline, whatever the network does.

use std::{collections::BTreeMap, future::Future, sync::Arc, time::Duration};

use kreplicator_model::ids::TopicName;
use rdkafka::{
    admin::{
        AdminOptions, ConfigSource, NewPartitions, NewTopic as LibraryTopic, ResourceSpecifier,
        TopicReplication, TopicResult,
    },
    consumer::{BaseConsumer, Consumer},
    error::{KafkaError, KafkaResult, RDKafkaErrorCode as Code},
    metadata::MetadataTopic,
    util::Timeout,
};
use tokio::time::{Instant, timeout};
use tracing::debug;

use super::{Admin, ClusterMetadata, ConfigValue, NewTopic, TopicMetadata, clients::Handles};
use crate::{
    diagnosis::Diagnosis,
    error::{Class, Error, class_of, explain},
};

/// Topics described in one request.
const DESCRIBE_CHUNK: usize = 200;
/// What the library may take over its own deadline before we stop waiting for it.
const GRACE: Duration = Duration::from_secs(1);

impl Admin {
    /// Everything the cluster tells: its id, its brokers, its topics. Never creates a topic (C068).
    ///
    /// # Errors
    /// [`Error::WrongCluster`] where another cluster was pinned; otherwise what kept it from
    /// answering.
    pub async fn metadata(&self) -> Result<ClusterMetadata, Error> {
        let metadata = self
            .blocking("listing topics", self.end(), |handles, end| {
                let metadata = handles.reader.fetch_metadata(None, left(end))?;
                let id = handles.reader.client().fetch_cluster_id(left(end));
                let topics = metadata
                    .topics()
                    .iter()
                    .filter_map(|topic| match TopicName::new(topic.name()) {
                        Ok(name) => Some((name, topic_metadata(topic))),
                        Err(fault) => {
                            debug!(%fault, "topic with an unusual name left out");
                            None
                        }
                    })
                    .collect();
                Ok(ClusterMetadata {
                    kafka_cluster_id: id,
                    brokers: metadata.brokers().len(),
                    topics,
                })
            })
            .await?;
        match (&self.expected_cluster_id, &metadata.kafka_cluster_id) {
            (Some(expected), Some(found)) if expected != found => Err(Error::WrongCluster {
                cluster: self.cluster.clone(),
                expected: expected.clone(),
                found: found.clone(),
            }),
            _ => Ok(metadata),
        }
    }

    /// One topic, or None when it does not exist. Never creates it (C068).
    ///
    /// # Errors
    /// What kept the cluster from answering.
    pub async fn topic(&self, name: &TopicName) -> Result<Option<TopicMetadata>, Error> {
        self.topic_by(self.end(), name).await
    }

    async fn topic_by(
        &self,
        end: Instant,
        name: &TopicName,
    ) -> Result<Option<TopicMetadata>, Error> {
        let topic = name.clone();
        self.blocking("looking up a topic", end, move |handles, end| {
            one_topic(&handles.reader, &topic, left(end))
        })
        .await
    }

    /// One topic, which the cluster may create by itself with its own defaults. For clusters that
    /// have no call to create topics and whose options allow it ([`crate::properties::ALLOW_AUTO_CREATE`]).
    ///
    /// # Errors
    /// [`Error::Unsupported`] where it is not allowed; otherwise what kept the cluster from
    /// answering or the topic from appearing.
    pub async fn topic_auto(&self, name: &TopicName) -> Result<TopicMetadata, Error> {
        if !self.auto_create {
            return Err(Error::Unsupported {
                cluster: self.cluster.clone(),
                call: "automatic topic creation, since its client options do not allow it".into(),
            });
        }
        let mut config = self.clients.properties().to_config();
        config.set("allow.auto.create.topics", "true");
        let cluster = self.cluster.clone();
        let topic = name.clone();
        let found = self
            .blocking(
                "creating a topic by looking it up",
                self.end(),
                move |_, end| {
                    let reader: BaseConsumer<Diagnosis> =
                        config.create_with_context(Diagnosis::new(cluster))?;
                    // The first answer may say that the topic is not there yet.
                    loop {
                        let left = left(end);
                        let found = one_topic(&reader, &topic, left)?;
                        if left.is_zero()
                            || found.as_ref().is_some_and(|topic| topic.partitions > 0)
                        {
                            return Ok(found);
                        }
                    }
                },
            )
            .await?;
        found.ok_or_else(|| Error::UnknownTopic {
            cluster: self.cluster.clone(),
            topic: name.clone(),
        })
    }

    /// Settings of topics, inherited ones included. A topic that does not exist or that this user
    /// may not describe is left out.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for clusters without the call; [`Error::Denied`] when no topic at all
    /// may be described; otherwise what kept the cluster from answering.
    pub async fn topic_configs(
        &self,
        names: &[TopicName],
    ) -> Result<BTreeMap<TopicName, BTreeMap<String, ConfigValue>>, Error> {
        let call = "describing topic settings";
        let end = self.end();
        let mut found = BTreeMap::new();
        let mut denied = false;
        let broker = self.broker_for_calls(end).await?;
        for chunk in names.chunks(DESCRIBE_CHUNK) {
            let resources: Vec<_> = chunk
                .iter()
                .map(|name| ResourceSpecifier::Topic(name.as_str()))
                .collect();
            let handles = self.clients.handles();
            let answer = self
                .waiting(call, end, broker, |options| {
                    handles.admin.describe_configs(&resources, &options)
                })
                .await?;
            // Answers come in the order asked for.
            for (name, result) in chunk.iter().zip(answer) {
                match result {
                    Ok(resource) => {
                        let values = resource.entries.into_iter().map(|entry| {
                            let value = ConfigValue {
                                value: entry.value,
                                is_topic_override: entry.source == ConfigSource::DynamicTopic,
                            };
                            (entry.name, value)
                        });
                        found.insert(name.clone(), values.collect());
                    }
                    Err(Code::UnknownTopicOrPartition) => {}
                    Err(Code::TopicAuthorizationFailed | Code::ClusterAuthorizationFailed) => {
                        debug!(cluster = %self.cluster, topic = %name, "settings may not be described");
                        denied = true;
                    }
                    Err(code) => return Err(self.refusal(call, code)),
                }
            }
        }
        if found.is_empty() && denied {
            return Err(self.refusal(call, Code::TopicAuthorizationFailed));
        }
        Ok(found)
    }

    /// Makes a topic, or with `validate_only` asks whether it could be made.
    ///
    /// # Errors
    /// [`Error::AlreadyExists`]; [`Error::Unsupported`] for clusters without the call; otherwise why
    /// the cluster refused or did not answer.
    pub async fn create_topic(&self, new: NewTopic, validate_only: bool) -> Result<(), Error> {
        let results = self.create_topics(&[new], validate_only).await?;
        results.into_iter().next().expect("an answer for the topic")
    }

    /// Makes topics by one request, which is many times faster than one each: a result for each, in
    /// order. Keep to some dozens, so that the answer comes within the deadline.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for clusters without the call; otherwise what kept the cluster from
    /// answering. The results are as those of [`Self::create_topic`].
    pub async fn create_topics(
        &self,
        new: &[NewTopic],
        validate_only: bool,
    ) -> Result<Vec<Result<(), Error>>, Error> {
        let call = match new {
            [] => return Ok(Vec::new()),
            [one] => format!("creating topic {}", one.name),
            [first, rest @ ..] => {
                format!("creating topic {} and {} others", first.name, rest.len())
            }
        };
        let end = self.end();
        let topics: Vec<LibraryTopic<'_>> = new.iter().map(library_topic).collect();
        let broker = self.broker_for_calls(end).await?;
        let handles = self.clients.handles();
        let results = self
            .waiting(&call, end, broker, |options| {
                let options = options.validate_only(validate_only);
                handles.admin.create_topics(&topics, &options)
            })
            .await?;
        let mut codes: BTreeMap<String, Option<Code>> = results
            .into_iter()
            .map(|result| match result {
                Ok(name) => (name, None),
                Err((name, code)) => (name, Some(code)),
            })
            .collect();
        let results = new.iter().map(|topic| {
            match codes
                .remove(topic.name.as_str())
                .unwrap_or(Some(Code::Fail))
            {
                None => Ok(()),
                Some(Code::TopicAlreadyExists) => Err(Error::AlreadyExists {
                    cluster: self.cluster.clone(),
                    topic: topic.name.clone(),
                }),
                Some(code) => Err(self.refusal(&format!("creating topic {}", topic.name), code)),
            }
        });
        Ok(results.collect())
    }

    /// Adds partitions until the topic has `total`; does nothing when it has as many or more.
    ///
    /// # Errors
    /// [`Error::UnknownTopic`]; [`Error::Unsupported`] for clusters without the call; otherwise why
    /// the cluster refused or did not answer.
    pub async fn grow_topic(&self, name: &TopicName, total: i32) -> Result<(), Error> {
        let unknown = || Error::UnknownTopic {
            cluster: self.cluster.clone(),
            topic: name.clone(),
        };
        let has_enough = |topic: Option<TopicMetadata>| {
            topic
                .map(|topic| topic.partitions >= total)
                .ok_or_else(unknown)
        };
        let end = self.end();
        if has_enough(self.topic_by(end, name).await?)? {
            return Ok(());
        }
        let call = format!("growing topic {name} to {total} partitions");
        let count = usize::try_from(total).unwrap_or_default();
        let grown = NewPartitions::new(name.as_str(), count);
        let broker = self.broker_for_calls(end).await?;
        let handles = self.clients.handles();
        let results = self
            .waiting(&call, end, broker, |options| {
                handles.admin.create_partitions([&grown], &options)
            })
            .await?;
        match topic_result(results) {
            Ok(()) => Ok(()),
            Err(Code::UnknownTopicOrPartition) => Err(unknown()),
            // Somebody else was faster.
            Err(Code::InvalidPartitions) if has_enough(self.topic_by(end, name).await?)? => Ok(()),
            Err(code) => Err(self.refusal(&call, code)),
        }
    }

    /// When a call that begins now has to be over, with all its requests.
    fn end(&self) -> Instant {
        Instant::now() + self.deadline
    }

    /// Runs a blocking call of the library on a thread for that, until `end` and within the limit of
    /// calls at a time. A call that the library does not end keeps its place until it does.
    async fn blocking<T: Send + 'static>(
        &self,
        call: &str,
        end: Instant,
        work: impl FnOnce(&Handles, Instant) -> KafkaResult<T> + Send + 'static,
    ) -> Result<T, Error> {
        let handles = self.clients.handles();
        let permits = Arc::clone(&self.permits);
        let work = async {
            let permit = permits.acquire_owned().await.expect("never closed");
            let handles = Arc::clone(&handles);
            tokio::task::spawn_blocking(move || {
                let result = work(&handles, end);
                handles.drain_events();
                drop(permit);
                result
            })
            .await
        };
        match timeout(left(end) + GRACE, work).await {
            Ok(Ok(result)) => self.sorted(&handles, call, result),
            Ok(Err(panicked)) => std::panic::resume_unwind(panicked.into_panic()),
            Err(_) => Err(handles.diagnosis.unreachable(Code::OperationTimedOut)),
        }
    }

    /// The broker that admin operations go to; None: the controller, which is right for real
    /// clusters. Mock clusters name no controller, so the library would look for it until the
    /// deadline instead of hearing at once that the call is not supported.
    async fn broker_for_calls(&self, end: Instant) -> Result<Option<i32>, Error> {
        if !self.auto_create {
            return Ok(None);
        }
        self.blocking("listing brokers", end, |handles, end| {
            let metadata = handles.reader.fetch_metadata(None, left(end))?;
            Ok(metadata.brokers().first().map(|broker| broker.id()))
        })
        .await
    }

    /// Waits for an admin operation until `end`.
    async fn waiting<T, F: Future<Output = KafkaResult<T>>>(
        &self,
        call: &str,
        end: Instant,
        broker: Option<i32>,
        start: impl FnOnce(AdminOptions) -> F,
    ) -> Result<T, Error> {
        let left = left(end);
        let options = AdminOptions::new()
            .request_timeout(Some(Timeout::After(left)))
            // The controller's own wait for the change to spread.
            .operation_timeout(Some(Timeout::After(left / 2)))
            .broker_id(broker);
        let handles = self.clients.handles();
        match timeout(left + GRACE, start(options)).await {
            Ok(result) => self.sorted(&handles, call, result),
            Err(_) => Err(handles.diagnosis.unreachable(Code::OperationTimedOut)),
        }
    }

    fn sorted<T>(&self, handles: &Handles, call: &str, result: KafkaResult<T>) -> Result<T, Error> {
        let code = match result {
            Ok(value) => {
                handles.diagnosis.clear();
                return Ok(value);
            }
            Err(KafkaError::AdminOp(code)) => code,
            Err(KafkaError::AdminOpCreation(detail)) => {
                return Err(Error::Refused {
                    cluster: self.cluster.clone(),
                    call: call.to_owned(),
                    detail,
                    class: Class::Terminal,
                });
            }
            Err(fault) => fault.rdkafka_error_code().unwrap_or(Code::Fail),
        };
        Err(match code {
            Code::OperationTimedOut
            | Code::RequestTimedOut
            | Code::TimedOutQueue
            | Code::BrokerTransportFailure
            | Code::AllBrokersDown
            | Code::WaitCache
            | Code::Resolve
            | Code::NetworkException => handles.diagnosis.unreachable(code),
            other => self.refusal(call, other),
        })
    }

    fn refusal(&self, call: &str, code: Code) -> Error {
        let cluster = self.cluster.clone();
        let call = call.to_owned();
        match code {
            Code::UnsupportedFeature | Code::UnsupportedVersion | Code::NotImplemented => {
                Error::Unsupported { cluster, call }
            }
            Code::TopicAuthorizationFailed => Error::Denied {
                cluster,
                call,
                right: "CREATE, ALTER and DESCRIBE_CONFIGS on its topics",
            },
            Code::ClusterAuthorizationFailed => Error::Denied {
                cluster,
                call,
                right: "CREATE and DESCRIBE on the cluster",
            },
            Code::SaslAuthenticationFailed | Code::Authentication => Error::Authentication {
                cluster,
                detail: explain(code),
            },
            other => Error::Refused {
                cluster,
                call,
                detail: explain(other),
                class: class_of(other),
            },
        }
    }
}

/// What is left until then.
fn left(end: Instant) -> Duration {
    end.saturating_duration_since(Instant::now())
}

fn topic_metadata(topic: &MetadataTopic) -> TopicMetadata {
    TopicMetadata {
        partitions: i32::try_from(topic.partitions().len()).unwrap_or(i32::MAX),
        error: topic.error().map(|code| explain(code.into())),
    }
}

fn one_topic(
    reader: &BaseConsumer<Diagnosis>,
    name: &TopicName,
    left: Duration,
) -> KafkaResult<Option<TopicMetadata>> {
    let metadata = reader.fetch_metadata(Some(name.as_str()), left)?;
    let Some(topic) = metadata
        .topics()
        .iter()
        .find(|topic| topic.name() == name.as_str())
    else {
        return Ok(None);
    };
    match topic.error().map(Code::from) {
        Some(Code::UnknownTopicOrPartition | Code::UnknownTopic) => Ok(None),
        _ => Ok(Some(topic_metadata(topic))),
    }
}

fn library_topic(new: &NewTopic) -> LibraryTopic<'_> {
    let replicas = new.replication_factor.map_or(-1, i32::from);
    let topic = LibraryTopic::new(
        new.name.as_str(),
        new.partitions,
        TopicReplication::Fixed(replicas),
    );
    let config = new.config.iter();
    config.fold(topic, |topic, (name, value)| topic.set(name, value))
}

fn topic_result(results: Vec<TopicResult>) -> Result<(), Code> {
    match results.into_iter().next() {
        Some(Ok(_)) => Ok(()),
        Some(Err((_, code))) => Err(code),
        None => Err(Code::Fail),
    }
}
