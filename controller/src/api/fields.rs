//! Specs as flat lists of fields, so that a difference can be shown field by field. Paths are those of
//! `spec.proto`; fields that have their default are left out. Secrets are references, so that they may
//! be shown.

use std::collections::BTreeMap;

use kreplicator_model::spec::{
    CheckpointSide, Cluster, Engine, GapPolicy, Link, SaslMechanism, SecretRef, Selector,
    StartPolicy, Subscription,
};

/// Text of each field by its path.
pub(crate) type Fields = BTreeMap<String, String>;

/// Collects fields.
#[derive(Default)]
struct Collector(Fields);

impl Collector {
    fn text(&mut self, path: &str, value: &str) {
        if !value.is_empty() {
            self.0.insert(path.to_owned(), value.to_owned());
        }
    }

    fn flag(&mut self, path: &str, value: bool) {
        self.text(path, if value { "true" } else { "" });
    }

    fn map<K: AsRef<str>, V: AsRef<str>>(&mut self, path: &str, map: &BTreeMap<K, V>) {
        for (key, value) in map {
            let path = format!("{path}[{:?}]", key.as_ref());
            self.0.insert(path, value.as_ref().to_owned());
        }
    }

    fn secret(&mut self, path: &str, secret: Option<&SecretRef>) {
        match secret {
            Some(SecretRef::Env(name)) => self.text(&format!("{path}.env"), name),
            Some(SecretRef::File(file)) => self.text(&format!("{path}.file"), file),
            None => {}
        }
    }
}

/// The fields of a cluster.
pub(crate) fn of_cluster(cluster: &Cluster) -> Fields {
    let mut fields = Collector::default();
    fields.text("bootstrap_servers", &cluster.bootstrap_servers.join(", "));
    if let Some(tls) = &cluster.security.tls {
        fields.flag("security.tls", true);
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        fields.text("security.tls.ca_file", &text(&tls.ca_file));
        fields.text("security.tls.cert_file", &text(&tls.cert_file));
        fields.text("security.tls.key_file", &text(&tls.key_file));
        fields.secret("security.tls.key_password", tls.key_password.as_ref());
        fields.flag("security.tls.skip_hostname_check", tls.skip_hostname_check);
    }
    if let Some(sasl) = &cluster.security.sasl {
        let mechanism = match sasl.mechanism {
            SaslMechanism::Plain => "PLAIN",
            SaslMechanism::ScramSha256 => "SCRAM-SHA-256",
            SaslMechanism::ScramSha512 => "SCRAM-SHA-512",
        };
        fields.text("security.sasl.mechanism", mechanism);
        fields.text("security.sasl.username", &sasl.username);
        fields.secret("security.sasl.password", Some(&sasl.password));
    }
    fields.map("client_options", &cluster.client_options);
    fields.text(
        "expected_cluster_id",
        cluster.expected_cluster_id.as_deref().unwrap_or_default(),
    );
    fields.0
}

/// The fields of a link.
pub(crate) fn of_link(link: &Link) -> Fields {
    let mut fields = Collector::default();
    fields.text("source", link.source.as_str());
    fields.text("target", link.target.as_str());
    fields.text("naming.prefix", &link.naming.prefix);
    fields.map("naming.rename", &link.naming.rename);
    fields.text("start", &start_text(link.start));
    let on_gap = match link.on_gap {
        GapPolicy::ContinueAndReport => "continue_and_report",
        GapPolicy::Halt => "halt",
    };
    fields.text("on_gap", on_gap);
    let checkpoint_on = match link.checkpoint_on {
        CheckpointSide::Source => "source",
        CheckpointSide::Target => "target",
    };
    fields.text("checkpoint_on", checkpoint_on);
    let topics = &link.target_topics;
    fields.flag("target_topics.refuse_create", topics.refuse_create);
    fields.flag("target_topics.refuse_grow", topics.refuse_grow);
    let factor = topics.replication_factor.map(|factor| factor.to_string());
    fields.text(
        "target_topics.replication_factor",
        &factor.unwrap_or_default(),
    );
    fields.map("target_topics.config", &topics.config);
    fields.flag("paused", link.paused);
    let engine = link.engine.map_or("", Engine::as_str);
    fields.text("engine", engine);
    fields.0
}

/// The fields of a subscription.
pub(crate) fn of_subscription(subscription: &Subscription) -> Fields {
    let mut fields = Collector::default();
    match &subscription.selector {
        Selector::Topic(topic) => fields.text("selector.topic", topic.as_str()),
        Selector::Pattern(pattern) => {
            fields.text("selector.pattern.include", &pattern.include);
            for (index, exclude) in pattern.exclude.iter().enumerate() {
                fields.text(&format!("selector.pattern.exclude[{index}]"), exclude);
            }
        }
    }
    fields.text(
        "start",
        &subscription.start.map_or_else(String::new, start_text),
    );
    fields.flag("paused", subscription.paused);
    fields.0
}

fn start_text(start: StartPolicy) -> String {
    match start {
        StartPolicy::Earliest => "earliest".to_owned(),
        StartPolicy::Latest => "latest".to_owned(),
        StartPolicy::Timestamp(at) => format!("timestamp_ms {at}"),
    }
}
