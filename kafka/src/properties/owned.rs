//! Client options that users may not set, with what to do instead.

use std::collections::BTreeMap;

use rdkafka::ClientConfig;

use super::ALLOW_AUTO_CREATE;

/// An option that is ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnedOption {
    /// Its name; with a trailing dot, every name that starts so.
    pub name: &'static str,
    /// What to do instead, written to follow "is set by KReplicator; ".
    pub remedy: &'static str,
}

impl OwnedOption {
    fn covers(&self, option: &str) -> bool {
        option == self.name || (self.name.ends_with('.') && option.starts_with(self.name))
    }
}

const ADDRESS: &str = "set `bootstrap_servers` of the cluster";
const SECURITY: &str = "set `security` of the cluster";
const DELIVERY: &str = "it carries the delivery guarantee; leave it out";
const READING: &str = "reading and progress rest on it; leave it out";
const MEMORY: &str = "memory is shared out by the worker; set the worker's memory budget";
const PROCESS: &str = "it would act on the whole process; leave it out";

/// By what they rule: addresses, security, delivery, reading, memory, the process.
const OWNED: &[(&str, &[&str])] = &[
    (ADDRESS, &["bootstrap.servers", "metadata.broker.list"]),
    (
        SECURITY,
        &[
            "security.protocol",
            "sasl.",
            "ssl.",
            "https.",
            "enable.ssl.certificate.verification",
            "enable.sasl.oauthbearer.unsecure.jwt",
        ],
    ),
    (
        DELIVERY,
        &[
            "acks",
            "request.required.acks",
            "enable.idempotence",
            "enable.gapless.guarantee",
            "transactional.id",
            "transaction.timeout.ms",
            "max.in.flight",
            "max.in.flight.requests.per.connection",
            "retries",
            "message.send.max.retries",
            "message.timeout.ms",
            "delivery.timeout.ms",
            "request.timeout.ms",
            "partitioner",
            "partitioner_cb",
            "msg_order_cmp",
            "queuing.strategy",
            "delivery.report.only.error",
            "produce.offset.report",
            "allow.auto.create.topics",
        ],
    ),
    (
        READING,
        &[
            "group.",
            "partition.assignment.strategy",
            "session.timeout.ms",
            "heartbeat.interval.ms",
            "max.poll.interval.ms",
            "enable.auto.commit",
            "auto.commit.enable",
            "auto.commit.interval.ms",
            "enable.auto.offset.store",
            "offset.store.",
            "auto.offset.reset",
            "isolation.level",
            "check.crcs",
            "enable.partition.eof",
            "statistics.interval.ms",
        ],
    ),
    (
        MEMORY,
        &[
            "queued.min.messages",
            "queued.max.messages.kbytes",
            "fetch.max.bytes",
            "fetch.message.max.bytes",
            "max.partition.fetch.bytes",
            "receive.message.max.bytes",
            "message.max.bytes",
            "message.copy.max.bytes",
            "batch.size",
            "batch.num.messages",
            "queue.buffering.max.messages",
            "queue.buffering.max.kbytes",
        ],
    ),
    (
        PROCESS,
        &[
            "plugin.library.paths",
            "log.queue",
            "log_level",
            "test.mock.",
            "internal.termination.signal",
            "opaque",
            "interceptors",
            "dr_cb",
            "dr_msg_cb",
            "error_cb",
            "throttle_cb",
            "stats_cb",
            "log_cb",
            "socket_cb",
            "connect_cb",
            "closesocket_cb",
            "open_cb",
            "resolve_cb",
            "rebalance_cb",
            "offset_commit_cb",
            "consume_cb",
            "background_event_cb",
            "default_topic_conf",
        ],
    ),
];

/// Every option that users may not set, in the order of what they rule.
pub fn owned_options() -> impl Iterator<Item = OwnedOption> {
    OWNED
        .iter()
        .flat_map(|(remedy, names)| names.iter().map(move |name| OwnedOption { name, remedy }))
}

/// What is wrong with a cluster's client options: one line for each fault, naming the option and
/// the remedy; empty when all is well.
#[must_use]
pub fn check_client_options(options: &BTreeMap<String, String>) -> Vec<String> {
    options
        .iter()
        .filter_map(|(name, value)| check_one(name, value))
        .collect()
}

fn check_one(name: &str, value: &str) -> Option<String> {
    if name == ALLOW_AUTO_CREATE {
        let legal = value == "true" || value == "false";
        return (!legal).then(|| {
            format!("client option {name} is {value:?}; set it to \"true\" or \"false\"")
        });
    }
    if let Some(owned) = owned_options().find(|owned| owned.covers(name)) {
        return Some(format!(
            "client option {name} is set by KReplicator; {}",
            owned.remedy
        ));
    }
    let mut config = ClientConfig::new();
    config.set(name, value);
    let fault = config.create_native_config().err()?;
    let detail = match fault {
        rdkafka::error::KafkaError::ClientConfig(_, detail, _, _) => detail,
        other => other.to_string(),
    };
    Some(format!(
        "client option {name} = {value:?} is not accepted by the client library ({detail}); \
         see librdkafka's list of configuration properties"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(name: &str, value: &str) -> Vec<String> {
        check_client_options(&BTreeMap::from([(name.to_owned(), value.to_owned())]))
    }

    #[test]
    fn owned_options_are_refused_with_the_remedy() {
        for (name, remedy) in [
            ("acks", "delivery guarantee"),
            ("enable.idempotence", "delivery guarantee"),
            ("group.id", "progress"),
            ("group.instance.id", "progress"),
            ("enable.auto.commit", "progress"),
            ("auto.offset.reset", "progress"),
            ("security.protocol", "`security`"),
            ("sasl.password", "`security`"),
            ("ssl.ca.location", "`security`"),
            ("bootstrap.servers", "`bootstrap_servers`"),
            ("partitioner", "delivery guarantee"),
            ("queued.max.messages.kbytes", "memory budget"),
            ("plugin.library.paths", "whole process"),
        ] {
            let faults = faults(name, "1");
            assert_eq!(faults.len(), 1, "{name}");
            assert!(
                faults[0].contains(name) && faults[0].contains(remedy),
                "{faults:?}"
            );
        }
    }

    #[test]
    fn free_options_pass() {
        for (name, value) in [
            ("compression.type", "lz4"),
            ("linger.ms", "20"),
            ("client.rack", "zone-a"),
            ("socket.timeout.ms", "5000"),
            (ALLOW_AUTO_CREATE, "true"),
        ] {
            assert_eq!(faults(name, value), Vec::<String>::new(), "{name}");
        }
    }

    #[test]
    fn unknown_names_and_values_out_of_range_are_told_apart_from_owned_ones() {
        let unknown = faults("linger.milliseconds", "5");
        assert!(unknown[0].contains("linger.milliseconds"), "{unknown:?}");
        assert!(
            unknown[0].contains("No such configuration property"),
            "{unknown:?}"
        );
        let range = faults("linger.ms", "a while");
        assert!(
            range[0].contains("linger.ms") && range[0].contains("a while"),
            "{range:?}"
        );
        let ours = faults(ALLOW_AUTO_CREATE, "yes");
        assert!(ours[0].contains("\"yes\""), "{ours:?}");
    }

    #[test]
    fn all_faults_are_told_at_once() {
        let options = BTreeMap::from([
            ("acks".to_owned(), "1".to_owned()),
            ("group.id".to_owned(), "mine".to_owned()),
            ("linger.ms".to_owned(), "5".to_owned()),
        ]);
        assert_eq!(check_client_options(&options).len(), 2);
    }

    #[test]
    fn values_of_owned_options_never_reach_the_text() {
        let faults = faults("sasl.password", "hunter2");
        assert!(!faults[0].contains("hunter2"), "{faults:?}");
    }

    #[test]
    fn no_owned_option_is_listed_twice() {
        let mut seen = std::collections::BTreeSet::new();
        for owned in owned_options() {
            assert!(seen.insert(owned.name), "{} is listed twice", owned.name);
        }
    }
}
