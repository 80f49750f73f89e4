//! Settings of a controller: what an operator may set, its defaults and its checks.
//!
//! Durations are written as people write them (`5s`, `1h 30m`); unknown keys are refused.

use std::{
    net::{IpAddr, SocketAddr},
    ops::RangeInclusive,
    time::Duration,
};

use kreplicator_model::ids::ControllerId;
use kreplicator_service::human;
use serde::{Deserialize, Serialize};

/// Settings of a controller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Name of this process among the controllers, stable across restarts. Empty: the host's name.
    pub id: String,
    /// Where the gRPC API listens.
    pub listen_grpc: SocketAddr,
    /// Most connections to the gRPC API at once; further ones are refused. Each worker, each other
    /// controller and each command has one.
    pub grpc_connections_max: usize,
    /// `host:port` at which other controllers and workers reach the gRPC API. Empty: the address
    /// listened on, or `id` with its port where that is every address of the host.
    pub advertised_address: String,
    /// Where `/metrics`, `/healthz` and `/readyz` are served.
    pub listen_http: SocketAddr,
    /// How long after its last sign of life a leader is succeeded.
    #[serde(with = "human::duration")]
    pub lease_ttl: Duration,
    /// Time between looks at each cluster's topics.
    #[serde(with = "human::duration")]
    pub discovery_interval: Duration,
    /// Longest wait for a cluster's answer to a look at its topics.
    #[serde(with = "human::duration")]
    pub discovery_timeout: Duration,
    /// Longest wait for a cluster's answer to anything else.
    #[serde(with = "human::duration")]
    pub admin_timeout: Duration,
    /// Time between looks at the settings of target topics that are in order.
    #[serde(with = "human::duration")]
    pub target_check_interval: Duration,
    /// How long after a worker's lease ended its tasks are given to others. Covers what the clocks of
    /// the store and of the worker may differ by over one lease.
    #[serde(with = "human::duration")]
    pub worker_margin: Duration,
    /// Silence after which a worker is succeeded, before its lease ends, in those of its tasks that deliver
    /// each record once whoever sends it; 0: only when its lease ended.
    #[serde(with = "human::duration")]
    pub suspect_after: Duration,
    /// How long a new leader waits for workers that have tasks but no lease.
    #[serde(with = "human::duration")]
    pub startup_grace: Duration,
    /// How long tasks stay where they are when every worker that has some is gone at once.
    #[serde(with = "human::duration")]
    pub mass_loss_grace: Duration,
    /// How long changes are collected before the plan is made again.
    #[serde(with = "human::duration")]
    pub replan_debounce: Duration,
    /// Time after which an assigned task that its worker has not taken on counts as stuck.
    #[serde(with = "human::duration")]
    pub stuck_after: Duration,
    /// How long the answer to a request is kept for repetitions of it.
    #[serde(with = "human::duration")]
    pub request_retention: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            id: String::new(),
            listen_grpc: SocketAddr::from(([0, 0, 0, 0], 7070)),
            grpc_connections_max: 4_096,
            advertised_address: String::new(),
            listen_http: SocketAddr::from(([0, 0, 0, 0], 7072)),
            lease_ttl: Duration::from_secs(5),
            discovery_interval: Duration::from_secs(10),
            discovery_timeout: Duration::from_secs(10),
            admin_timeout: Duration::from_secs(15),
            target_check_interval: Duration::from_secs(300),
            worker_margin: Duration::from_millis(500),
            suspect_after: Duration::from_secs(1),
            startup_grace: Duration::from_secs(5),
            mass_loss_grace: Duration::from_secs(30),
            replan_debounce: Duration::from_millis(50),
            stuck_after: Duration::from_secs(15),
            request_retention: Duration::from_secs(3600),
        }
    }
}

/// Fewer would not hold a small fleet and whoever looks at it; more would not be one process's work.
const CONNECTIONS: RangeInclusive<usize> = 16..=100_000;
/// Shortest silence that says anything: workers are heard four times a second.
const SUSPECT_AFTER_MIN: Duration = Duration::from_millis(500);

/// A setting that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The setting, as a path within the controller's settings.
    pub path: String,
    /// What is wrong and what to do.
    pub message: String,
}

impl Config {
    /// Every setting that cannot be used; empty when the settings are sound.
    #[must_use]
    pub fn validate(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        let mut fault = |path: &str, message: String| {
            faults.push(Fault {
                path: path.to_owned(),
                message,
            });
        };
        if let Err(error) = ControllerId::new(&self.id) {
            fault("id", error.to_string());
        }
        if !self.advertised_address.is_empty() && !is_host_port(&self.advertised_address) {
            fault(
                "advertised_address",
                format!("{:?} is not host:port", self.advertised_address),
            );
        }
        if !CONNECTIONS.contains(&self.grpc_connections_max) {
            fault(
                "grpc_connections_max",
                format!(
                    "{} is out of range; give it {} to {}",
                    self.grpc_connections_max,
                    CONNECTIONS.start(),
                    CONNECTIONS.end()
                ),
            );
        }
        if self.listen_grpc == self.listen_http && self.listen_grpc.port() != 0 {
            fault(
                "listen_http",
                format!(
                    "{} is listen_grpc too; give it another port",
                    self.listen_http
                ),
            );
        }
        let seconds = Duration::from_secs;
        let millis = Duration::from_millis;
        for (path, value, least, most) in [
            ("lease_ttl", self.lease_ttl, seconds(2), seconds(60)),
            (
                "discovery_interval",
                self.discovery_interval,
                millis(100),
                seconds(3600),
            ),
            (
                "discovery_timeout",
                self.discovery_timeout,
                millis(100),
                seconds(300),
            ),
            (
                "admin_timeout",
                self.admin_timeout,
                millis(100),
                seconds(300),
            ),
            (
                "target_check_interval",
                self.target_check_interval,
                seconds(1),
                seconds(86_400),
            ),
            (
                "worker_margin",
                self.worker_margin,
                millis(100),
                seconds(60),
            ),
            (
                "suspect_after",
                // 0 means never.
                if self.suspect_after.is_zero() {
                    SUSPECT_AFTER_MIN
                } else {
                    self.suspect_after
                },
                SUSPECT_AFTER_MIN,
                seconds(3600),
            ),
            (
                "startup_grace",
                self.startup_grace,
                Duration::ZERO,
                seconds(600),
            ),
            (
                "mass_loss_grace",
                self.mass_loss_grace,
                Duration::ZERO,
                seconds(3600),
            ),
            (
                "replan_debounce",
                self.replan_debounce,
                Duration::ZERO,
                seconds(5),
            ),
            ("stuck_after", self.stuck_after, seconds(1), seconds(3600)),
            (
                "request_retention",
                self.request_retention,
                seconds(60),
                seconds(86_400),
            ),
        ] {
            if value < least || value > most {
                fault(
                    path,
                    format!(
                        "{} is out of range; give it {} to {}",
                        humantime::format_duration(value),
                        humantime::format_duration(least),
                        humantime::format_duration(most)
                    ),
                );
            }
        }
        faults
    }

    /// What others are told to reach the API at, once it listens on `bound`.
    #[must_use]
    pub fn advertised(&self, bound: SocketAddr) -> String {
        if !self.advertised_address.is_empty() {
            return self.advertised_address.clone();
        }
        let everywhere = match bound.ip() {
            IpAddr::V4(ip) => ip.is_unspecified(),
            IpAddr::V6(ip) => ip.is_unspecified(),
        };
        if everywhere {
            format!("{}:{}", self.id, bound.port())
        } else {
            bound.to_string()
        }
    }
}

fn is_host_port(address: &str) -> bool {
    address.rsplit_once(':').is_some_and(|(host, port)| {
        let port_fits = port.parse::<u16>().is_ok_and(|port| port != 0);
        !host.is_empty() && !host.contains(char::is_whitespace) && port_fits
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named() -> Config {
        Config {
            id: "controller-0".to_owned(),
            ..Config::default()
        }
    }

    #[test]
    fn the_defaults_are_sound_but_for_the_name() {
        assert_eq!(named().validate(), []);
        let faults = Config::default().validate();
        assert_eq!(faults.len(), 1);
        assert_eq!(faults[0].path, "id");
    }

    #[test]
    fn every_fault_is_told_with_its_path() {
        let config = Config {
            grpc_connections_max: 15,
            advertised_address: "nowhere".to_owned(),
            listen_http: SocketAddr::from(([0, 0, 0, 0], 7070)),
            lease_ttl: Duration::from_millis(10),
            stuck_after: Duration::ZERO,
            suspect_after: Duration::from_nanos(1),
            ..named()
        };
        let faults = config.validate();
        let paths: Vec<_> = faults.iter().map(|fault| fault.path.as_str()).collect();
        assert_eq!(
            paths,
            [
                "advertised_address",
                "grpc_connections_max",
                "listen_http",
                "lease_ttl",
                "suspect_after",
                "stuck_after"
            ]
        );
        assert!(faults[3].message.contains("10ms"), "{:?}", faults[3]);
    }

    #[test]
    fn nobody_is_suspected_early_where_it_is_switched_off() {
        let off = Config {
            suspect_after: Duration::ZERO,
            ..named()
        };
        assert_eq!(off.validate(), []);
    }

    #[test]
    fn settings_read_back_as_written_and_unknown_keys_are_refused() {
        let text = r#"{"id":"c","lease_ttl":"3s","discovery_interval":"1m 30s"}"#;
        let config: Config = serde_json::from_str(text).expect("legal");
        assert_eq!(config.lease_ttl, Duration::from_secs(3));
        assert_eq!(config.discovery_interval, Duration::from_secs(90));
        let written = serde_json::to_string(&config).expect("serializable");
        assert_eq!(
            serde_json::from_str::<Config>(&written).expect("legal"),
            config
        );
        assert!(serde_json::from_str::<Config>(r#"{"leas_ttl":"3s"}"#).is_err());
        let fault = serde_json::from_str::<Config>(r#"{"lease_ttl":"3 parsecs"}"#)
            .expect_err("no duration");
        assert!(fault.to_string().contains("3 parsecs"), "{fault}");
    }

    #[test]
    fn the_address_told_to_others_can_be_reached() {
        let any = SocketAddr::from(([0, 0, 0, 0], 7070));
        let loopback = SocketAddr::from(([127, 0, 0, 1], 4321));
        assert_eq!(named().advertised(any), "controller-0:7070");
        assert_eq!(named().advertised(loopback), "127.0.0.1:4321");
        let told = Config {
            advertised_address: "c0.example:9".to_owned(),
            ..named()
        };
        assert_eq!(told.advertised(loopback), "c0.example:9");
        assert_eq!(told.validate(), []);
    }
}
