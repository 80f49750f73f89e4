//! Fake Kafka clusters behind the controller's own interface.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use kreplicator_controller::cluster_admin::{
    AdminConnector, AdminError, ClusterAdmin, TopicSettings,
};
use kreplicator_kafka::admin::{ClusterMetadata, ConfigValue, NewTopic, TopicMetadata};
use kreplicator_model::{ids::TopicName, spec::Cluster};
use tokio::time::{Instant, sleep};

/// How a cluster answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Up,
    /// Refuses connections.
    Down,
    /// Accepts everything and never answers.
    BlackHole,
    /// Knows metadata only, and makes topics that are asked for.
    Mock,
}

/// Every cluster, by the host of its first bootstrap server.
#[derive(Debug, Clone, Default)]
pub(crate) struct FakeKafka(Arc<Mutex<BTreeMap<String, FakeCluster>>>);

#[derive(Debug)]
struct FakeCluster {
    id: String,
    mode: Mode,
    topics: BTreeMap<TopicName, FakeTopic>,
    log: Vec<String>,
    connects: usize,
    hidden: bool,
    /// Partitions that new topics show per second, one topic after the other; None: all at once.
    shown_per_second: Option<u32>,
    /// When the last topic that was made shows.
    all_shown_at: Option<Instant>,
    unshown_max: i32,
    files: Files,
    /// What the client that asked last was made from.
    asked_with: u32,
}

/// Certificates on disk.
#[derive(Debug, Clone, Copy, Default)]
struct Files {
    /// Rises when they are renewed.
    version: u32,
    unusable: bool,
}

#[derive(Debug, Clone)]
struct FakeTopic {
    shown_at: Option<Instant>,
    partitions: i32,
    settings: BTreeMap<String, String>,
}

/// Time of one call.
const CALL: Duration = Duration::from_millis(5);

pub(crate) fn topic(name: &str) -> TopicName {
    TopicName::new(name).expect("legal")
}

impl FakeKafka {
    fn with<T>(&self, host: &str, work: impl FnOnce(&mut FakeCluster) -> T) -> T {
        let mut clusters = self.0.lock().expect("no test panics inside");
        let cluster = clusters
            .entry(host.to_owned())
            .or_insert_with(|| FakeCluster {
                id: format!("kafka-{host}"),
                mode: Mode::Up,
                topics: BTreeMap::new(),
                log: Vec::new(),
                connects: 0,
                hidden: false,
                shown_per_second: None,
                all_shown_at: None,
                unshown_max: 0,
                files: Files::default(),
                asked_with: 0,
            });
        work(cluster)
    }

    pub(crate) fn set_mode(&self, host: &str, mode: Mode) {
        self.with(host, |cluster| cluster.mode = mode);
    }

    /// Shows no topics though they are there, as a broker that has just started or that denies the
    /// right to see them.
    pub(crate) fn set_hidden(&self, host: &str, hidden: bool) {
        self.with(host, |cluster| cluster.hidden = hidden);
    }

    /// Shows topics that are made no faster than so many partitions per second, as a broker does that
    /// has to make their logs first.
    pub(crate) fn show_slowly(&self, host: &str, partitions_per_second: u32) {
        self.with(host, |cluster| {
            cluster.shown_per_second = Some(partitions_per_second);
        });
    }

    /// Most partitions that were made and did not show yet, at any time.
    pub(crate) fn unshown_max(&self, host: &str) -> i32 {
        self.with(host, |cluster| cluster.unshown_max)
    }

    /// Replaces the cluster by an empty one.
    pub(crate) fn wipe(&self, host: &str, id: &str) {
        self.with(host, |cluster| {
            cluster.id = id.to_owned();
            cluster.topics.clear();
        });
    }

    pub(crate) fn put_topic(&self, host: &str, name: &str, partitions: i32) {
        self.put_topic_with(host, name, partitions, &[]);
    }

    pub(crate) fn put_topic_with(
        &self,
        host: &str,
        name: &str,
        partitions: i32,
        settings: &[(&str, &str)],
    ) {
        let settings = settings
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        self.with(host, |cluster| {
            let made = FakeTopic {
                shown_at: None,
                partitions,
                settings,
            };
            cluster.topics.insert(topic(name), made);
        });
    }

    pub(crate) fn delete_topic(&self, host: &str, name: &str) {
        self.with(host, |cluster| cluster.topics.remove(&topic(name)));
    }

    pub(crate) fn partitions(&self, host: &str, name: &str) -> Option<i32> {
        self.with(host, |cluster| {
            cluster
                .topics
                .get(&topic(name))
                .map(|topic| topic.partitions)
        })
    }

    pub(crate) fn setting(&self, host: &str, name: &str, setting: &str) -> Option<String> {
        self.with(host, |cluster| {
            cluster
                .topics
                .get(&topic(name))?
                .settings
                .get(setting)
                .cloned()
        })
    }

    pub(crate) fn topics(&self, host: &str) -> usize {
        self.with(host, |cluster| cluster.topics.len())
    }

    /// Clients made for a cluster.
    pub(crate) fn connects(&self, host: &str) -> usize {
        self.with(host, |cluster| cluster.connects)
    }

    /// Writes a cluster's certificates anew; half of them only where they are `unusable`.
    pub(crate) fn renew_files(&self, host: &str, unusable: bool) {
        self.with(host, |cluster| {
            cluster.files.version += 1;
            cluster.files.unusable = unusable;
        });
    }

    /// How often the certificates had been renewed that the last client to ask was made from.
    pub(crate) fn asked_with(&self, host: &str) -> u32 {
        self.with(host, |cluster| cluster.asked_with)
    }

    /// What was changed on a cluster, in order.
    pub(crate) fn log(&self, host: &str) -> Vec<String> {
        self.with(host, |cluster| cluster.log.clone())
    }
}

impl FakeCluster {
    /// When a topic that is made now shows.
    fn shows_at(&mut self, partitions: i32) -> Option<Instant> {
        let per_second = self.shown_per_second?;
        let now = Instant::now();
        let begins = self.all_shown_at.map_or(now, |at| at.max(now));
        let shows = begins + Duration::from_secs(1) * partitions.unsigned_abs() / per_second;
        self.all_shown_at = Some(shows);
        Some(shows)
    }

    fn count_unshown(&mut self) {
        let now = Instant::now();
        let unshown = self
            .topics
            .values()
            .filter(|topic| topic.shown_at > Some(now));
        let partitions = unshown.map(|topic| topic.partitions).sum();
        self.unshown_max = self.unshown_max.max(partitions);
    }
}

impl AdminConnector for FakeKafka {
    fn connect(&self, cluster: &Cluster) -> Result<Arc<dyn ClusterAdmin>, AdminError> {
        let host = cluster.bootstrap_servers[0]
            .split(':')
            .next()
            .expect("host");
        let made_from = self.with(host, |cluster| {
            cluster.connects += 1;
            cluster.files.version
        });
        Ok(Arc::new(FakeAdmin {
            kafka: self.clone(),
            host: host.to_owned(),
            cluster: cluster.clone(),
            made_from,
        }))
    }
}

#[derive(Debug, Clone)]
struct FakeAdmin {
    kafka: FakeKafka,
    host: String,
    cluster: Cluster,
    made_from: u32,
}

impl FakeAdmin {
    /// Takes the time of a call; tells whether the cluster is a mock.
    async fn call(&self) -> Result<bool, AdminError> {
        sleep(CALL).await;
        let mode = self.kafka.with(&self.host, |cluster| {
            cluster.asked_with = self.made_from;
            cluster.mode
        });
        match mode {
            Mode::Up => Ok(false),
            Mode::Mock => Ok(true),
            Mode::Down => Err(AdminError::Unavailable(format!(
                "cluster {} refused the connection",
                self.cluster.id
            ))),
            Mode::BlackHole => std::future::pending().await,
        }
    }

    async fn full_call(&self, what: &str) -> Result<(), AdminError> {
        if self.call().await? {
            return Err(AdminError::Unsupported(format!("does not know {what}")));
        }
        Ok(())
    }
}

#[async_trait]
impl ClusterAdmin for FakeAdmin {
    async fn metadata(&self, _timeout: Duration) -> Result<ClusterMetadata, AdminError> {
        self.call().await?;
        let metadata = self.kafka.with(&self.host, |cluster| {
            let now = Instant::now();
            let shown = cluster.topics.iter().filter(|(_, topic)| {
                !cluster.hidden && topic.shown_at.is_none_or(|shown_at| shown_at <= now)
            });
            let topics = shown.map(|(name, topic)| {
                let metadata = TopicMetadata {
                    partitions: topic.partitions,
                    error: None,
                };
                (name.clone(), metadata)
            });
            ClusterMetadata {
                kafka_cluster_id: Some(cluster.id.clone()),
                brokers: 1,
                topics: topics.collect(),
            }
        });
        match (
            &self.cluster.expected_cluster_id,
            &metadata.kafka_cluster_id,
        ) {
            (Some(expected), Some(found)) if expected != found => Err(AdminError::WrongCluster(
                format!("cluster {} is {found}, not {expected}", self.cluster.id),
            )),
            _ => Ok(metadata),
        }
    }

    async fn topic_settings(
        &self,
        topics: &[TopicName],
        _timeout: Duration,
    ) -> Result<BTreeMap<TopicName, TopicSettings>, AdminError> {
        self.full_call("settings").await?;
        let found = topics.iter().filter_map(|name| {
            let settings = self.kafka.with(&self.host, |cluster| {
                cluster.topics.get(name).map(|topic| topic.settings.clone())
            })?;
            let settings = settings.into_iter().map(|(name, value)| {
                let value = ConfigValue {
                    value: Some(value),
                    is_topic_override: true,
                };
                (name, value)
            });
            Some((name.clone(), settings.collect()))
        });
        Ok(found.collect())
    }

    async fn create_topic(&self, new: &NewTopic, _timeout: Duration) -> Result<(), AdminError> {
        self.full_call("creation").await?;
        self.kafka.with(&self.host, |cluster| {
            if cluster.topics.contains_key(&new.name) {
                cluster.log.push(format!("create {} again", new.name));
                return Err(AdminError::AlreadyExists(format!(
                    "topic {} exists",
                    new.name
                )));
            }
            if let Some(bad) = new.config.keys().find(|name| name.starts_with("no.such")) {
                return Err(AdminError::Refused(format!("unknown setting {bad}")));
            }
            cluster
                .log
                .push(format!("create {} {}", new.name, new.partitions));
            let made = FakeTopic {
                shown_at: cluster.shows_at(new.partitions),
                partitions: new.partitions,
                settings: new.config.clone(),
            };
            cluster.topics.insert(new.name.clone(), made);
            cluster.count_unshown();
            Ok(())
        })
    }

    async fn grow_topic(
        &self,
        name: &TopicName,
        total: i32,
        _timeout: Duration,
    ) -> Result<(), AdminError> {
        self.full_call("growth").await?;
        self.kafka.with(&self.host, |cluster| {
            let grown = cluster
                .topics
                .get_mut(name)
                .ok_or_else(|| AdminError::Refused(format!("topic {name} does not exist")))?;
            grown.partitions = grown.partitions.max(total);
            cluster.log.push(format!("grow {name} {total}"));
            Ok(())
        })
    }

    fn may_create_by_asking(&self) -> bool {
        self.kafka
            .with(&self.host, |cluster| cluster.mode == Mode::Mock)
    }

    async fn ask_for_topic(&self, name: &TopicName, _timeout: Duration) -> Result<(), AdminError> {
        self.call().await?;
        self.kafka.with(&self.host, |cluster| {
            cluster.log.push(format!("ask {name}"));
            let made = FakeTopic {
                shown_at: None,
                partitions: 4,
                settings: BTreeMap::new(),
            };
            cluster.topics.entry(name.clone()).or_insert(made);
        });
        Ok(())
    }
    async fn renewed(
        &self,
        _timeout: Duration,
    ) -> Result<Option<Arc<dyn ClusterAdmin>>, AdminError> {
        let files = self.kafka.with(&self.host, |cluster| cluster.files);
        if files.version == self.made_from {
            return Ok(None);
        }
        if files.unusable {
            return Err(AdminError::Refused("tls.key_file is cut short".to_owned()));
        }
        let mut renewed = self.clone();
        renewed.made_from = files.version;
        Ok(Some(Arc::new(renewed)))
    }
}
