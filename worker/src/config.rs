//! Settings of a worker: what an operator may set, its defaults and its checks.
//!
//! Durations and sizes are written as people write them (`5s`, `1h 30m`, `512MiB`); unknown keys are
//! refused.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use kreplicator_model::ids::WorkerId;
use kreplicator_service::human;
use serde::{Deserialize, Serialize};

/// Settings of a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Name of this process among the workers, stable across restarts (a pod's name). Empty: the
    /// host's name.
    pub id: String,
    /// Where `/metrics`, `/healthz` and `/readyz` are served.
    pub listen: SocketAddr,
    /// `host:port` at which others reach that endpoint. Empty: the address listened on, or `id` with
    /// its port where that is every address of the host.
    pub advertised_address: String,
    /// Most tasks this worker takes; 0: no limit of its own.
    pub capacity_tasks: u32,
    /// Most bytes of records held in memory, over all tasks.
    #[serde(with = "human::bytes")]
    pub memory_budget_bytes: u64,
    /// How long after its last sign of life this worker's tasks may be given to others. Short: quick
    /// take-over. Long: patience with a slow store. Tasks that deliver exactly once go on here all the same
    /// until others have taken over.
    #[serde(with = "human::duration")]
    pub lease_ttl: Duration,
    /// How long before its lease can end the worker stops tasks by itself, except those that deliver exactly
    /// once whoever else runs them. Covers the requests that are under way at that moment.
    #[serde(with = "human::duration")]
    pub fence_margin: Duration,
    /// Time between saves of checkpoints: what a crash may repeat.
    #[serde(with = "human::duration")]
    pub checkpoint_interval: Duration,
    /// Time between saves of checkpoints that did not move, so that brokers do not forget them. Well
    /// below the clusters' `offsets.retention.minutes`.
    #[serde(with = "human::duration")]
    pub checkpoint_refresh_interval: Duration,
    /// Time between looks at the source's log starts and ends: how old a lag may be.
    #[serde(with = "human::duration")]
    pub inspection_interval: Duration,
    /// For how long the machine of a broker may leave unanswered what the network should bring to it before
    /// its connections are given up. Brokers may be as slow as they like, it is the machine that counts. Longer
    /// where networks pause for longer. Tasks of the engine `records` do not heed it.
    #[serde(with = "human::duration")]
    pub broker_silence_max: Duration,
    /// Shortest wait before a faulted task tries again.
    #[serde(with = "human::duration")]
    pub retry_min: Duration,
    /// Longest wait before a faulted task tries again.
    #[serde(with = "human::duration")]
    pub retry_max: Duration,
    /// Longest time that a task may take to deliver what it has read when it is stopped; what is left
    /// then is thrown away and read again by the next owner.
    #[serde(with = "human::duration")]
    pub task_stop_timeout: Duration,
    /// Longest time from being told to stop until the process ends: first the controller moves the
    /// tasks away one by one, then, for the last `task_stop_timeout` of it, what is left is stopped.
    #[serde(with = "human::duration")]
    pub drain_timeout: Duration,
    /// Time between reports to the leading controller.
    #[serde(with = "human::duration")]
    pub report_interval: Duration,
    /// Lag with a series for each partition instead of each topic. Costly with many partitions.
    pub metrics_per_partition: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            id: String::new(),
            listen: SocketAddr::from(([0, 0, 0, 0], 7071)),
            advertised_address: String::new(),
            capacity_tasks: 0,
            memory_budget_bytes: 512 << 20,
            lease_ttl: Duration::from_secs(5),
            fence_margin: Duration::from_secs(1),
            checkpoint_interval: Duration::from_secs(1),
            checkpoint_refresh_interval: Duration::from_secs(600),
            inspection_interval: Duration::from_secs(3),
            broker_silence_max: Duration::from_secs(5),
            retry_min: Duration::from_millis(500),
            retry_max: Duration::from_secs(30),
            task_stop_timeout: Duration::from_secs(10),
            drain_timeout: Duration::from_secs(25),
            report_interval: Duration::from_secs(2),
            metrics_per_partition: false,
        }
    }
}

/// A setting that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The setting, as a path within the worker's settings.
    pub path: String,
    /// What is wrong and what to do.
    pub message: String,
}

impl Fault {
    fn new(path: &str, message: impl Into<String>) -> Self {
        Self {
            path: path.to_owned(),
            message: message.into(),
        }
    }
}

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

impl Config {
    /// Every setting that cannot be used; empty when the settings are sound.
    #[must_use]
    pub fn validate(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        if let Err(error) = WorkerId::new(&self.id) {
            faults.push(Fault::new("id", error.to_string()));
        }
        if !self.advertised_address.is_empty() && !is_host_port(&self.advertised_address) {
            faults.push(Fault::new(
                "advertised_address",
                format!("{:?} is not host:port", self.advertised_address),
            ));
        }
        if i32::try_from(self.capacity_tasks).is_err() {
            faults.push(Fault::new(
                "capacity_tasks",
                format!(
                    "{} is out of range; leave it out for no limit",
                    self.capacity_tasks
                ),
            ));
        }
        let least = 16 << 20;
        if self.memory_budget_bytes < least || i64::try_from(self.memory_budget_bytes).is_err() {
            faults.push(Fault::new(
                "memory_budget_bytes",
                format!(
                    "{} is out of range; give it at least {}",
                    bytesize::ByteSize(self.memory_budget_bytes),
                    bytesize::ByteSize(least)
                ),
            ));
        }
        self.check_ranges(&mut faults);
        self.check_pairs(&mut faults);
        faults
    }

    fn check_ranges(&self, faults: &mut Vec<Fault>) {
        let hour = seconds(3_600);
        for (path, value, least, most) in [
            ("lease_ttl", self.lease_ttl, seconds(2), seconds(60)),
            ("fence_margin", self.fence_margin, millis(200), seconds(30)),
            (
                "checkpoint_interval",
                self.checkpoint_interval,
                millis(100),
                seconds(60),
            ),
            (
                "checkpoint_refresh_interval",
                self.checkpoint_refresh_interval,
                seconds(1),
                24 * hour,
            ),
            (
                "inspection_interval",
                self.inspection_interval,
                millis(200),
                seconds(300),
            ),
            (
                "broker_silence_max",
                self.broker_silence_max,
                seconds(5),
                seconds(120),
            ),
            ("retry_min", self.retry_min, millis(10), hour),
            ("retry_max", self.retry_max, millis(10), hour),
            (
                "task_stop_timeout",
                self.task_stop_timeout,
                millis(100),
                seconds(300),
            ),
            ("drain_timeout", self.drain_timeout, Duration::ZERO, hour),
            (
                "report_interval",
                self.report_interval,
                millis(100),
                seconds(60),
            ),
        ] {
            if value < least || value > most {
                faults.push(Fault::new(
                    path,
                    format!(
                        "{} is out of range; give it {} to {}",
                        humantime::format_duration(value),
                        humantime::format_duration(least),
                        humantime::format_duration(most)
                    ),
                ));
            }
        }
    }

    fn check_pairs(&self, faults: &mut Vec<Fault>) {
        if self.fence_margin > self.lease_ttl / 2 {
            faults.push(Fault::new(
                "fence_margin",
                format!(
                    "{} is over half of lease_ttl ({}); shorten it or lengthen lease_ttl",
                    humantime::format_duration(self.fence_margin),
                    humantime::format_duration(self.lease_ttl)
                ),
            ));
        }
        if self.retry_min > self.retry_max {
            faults.push(Fault::new(
                "retry_min",
                format!(
                    "{} is over retry_max ({})",
                    humantime::format_duration(self.retry_min),
                    humantime::format_duration(self.retry_max)
                ),
            ));
        }
    }

    /// What others are told to reach the HTTP endpoint at, once it listens on `bound`.
    #[must_use]
    pub fn advertised(&self, bound: SocketAddr) -> String {
        if !self.advertised_address.is_empty() {
            return self.advertised_address.clone();
        }
        if bound.ip().is_unspecified() {
            return format!("{}:{}", self.id, bound.port());
        }
        bound.to_string()
    }

    /// How long the controller has for moving tasks away before the rest is stopped.
    #[must_use]
    pub fn handover_time(&self) -> Duration {
        self.drain_timeout.saturating_sub(self.task_stop_timeout)
    }
}

fn is_host_port(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else {
        return false;
    };
    let bracketed = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    let legal_host = match bracketed {
        Some(address) => address.parse::<IpAddr>().is_ok(),
        None => WorkerId::new(host).is_ok() && !host.contains(':'),
    };
    legal_host && port.parse::<u16>().is_ok_and(|port| port > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        Config {
            id: "worker-0".to_owned(),
            ..Config::default()
        }
    }

    fn paths(config: &Config) -> Vec<String> {
        config
            .validate()
            .into_iter()
            .map(|fault| fault.path)
            .collect()
    }

    #[test]
    fn the_defaults_are_sound_and_read_back() {
        assert_eq!(config().validate(), Vec::new());
        let text = serde_json::to_string(&config()).expect("serializable");
        assert!(text.contains(r#""lease_ttl":"5s""#), "{text}");
        assert!(text.contains(r#""memory_budget_bytes":"512MiB""#), "{text}");
        let read: Config = serde_json::from_str(&text).expect("what was written is readable");
        assert_eq!(read, config());
        let odd = Config {
            memory_budget_bytes: (512 << 20) + 1,
            ..config()
        };
        let text = serde_json::to_string(&odd).expect("serializable");
        let read: Config = serde_json::from_str(&text).expect("what was written is readable");
        assert_eq!(read, odd, "nothing is rounded");
    }

    #[test]
    fn every_fault_is_told_at_once() {
        let wrong = Config {
            id: "a b".to_owned(),
            advertised_address: "no-port".to_owned(),
            capacity_tasks: u32::MAX,
            memory_budget_bytes: 1,
            lease_ttl: seconds(1),
            fence_margin: seconds(1),
            broker_silence_max: seconds(4),
            retry_min: seconds(61),
            ..Config::default()
        };
        assert_eq!(
            paths(&wrong),
            [
                "id",
                "advertised_address",
                "capacity_tasks",
                "memory_budget_bytes",
                "lease_ttl",
                "broker_silence_max",
                "fence_margin",
                "retry_min"
            ]
        );
    }

    #[test]
    fn sizes_and_durations_are_read_as_people_write_them() {
        let text = r#"{"id": "w", "memory_budget_bytes": "64MiB", "drain_timeout": "1m 5s"}"#;
        let read: Config = serde_json::from_str(text).expect("readable");
        assert_eq!(read.memory_budget_bytes, 64 << 20);
        assert_eq!(read.drain_timeout, seconds(65));
        let number: Config =
            serde_json::from_str(r#"{"memory_budget_bytes": 33554432}"#).expect("plain bytes");
        assert_eq!(number.memory_budget_bytes, 32 << 20);
        let unknown = serde_json::from_str::<Config>(r#"{"lease_tll": "5s"}"#);
        assert!(unknown.is_err(), "unknown keys are refused");
        let bare = serde_json::from_str::<Config>(r#"{"lease_ttl": 5}"#);
        assert!(bare.is_err(), "a number has no unit");
    }

    #[test]
    fn the_address_for_others_is_one_they_can_use() {
        let any = SocketAddr::from(([0, 0, 0, 0], 7071));
        let one = SocketAddr::from(([127, 0, 0, 1], 7071));
        assert_eq!(config().advertised(any), "worker-0:7071");
        assert_eq!(config().advertised(one), "127.0.0.1:7071");
        let named = Config {
            advertised_address: "w:1".to_owned(),
            ..config()
        };
        assert_eq!(named.advertised(any), "w:1");
    }
}
