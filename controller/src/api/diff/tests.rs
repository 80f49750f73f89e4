use kreplicator_model::spec::{Sasl, SaslMechanism, SecretRef, Tls};

use super::*;
use crate::api::samples::{cluster, desired, exact, link};

/// One line a change and a field.
fn lines(before: &Desired, after: &Desired) -> Vec<String> {
    let mut lines = Vec::new();
    for change in diff(before, after) {
        lines.push(format!(
            "{:?} {} {}",
            change.action(),
            change.kind,
            change.id
        ));
        for field in change.fields {
            lines.push(format!(
                "  {}: {:?} -> {:?}",
                field.path, field.before, field.after
            ));
        }
    }
    lines
}

#[test]
fn equal_states_differ_in_nothing() {
    assert!(diff(&desired(&["t"]), &desired(&["t"])).is_empty());
}

#[test]
fn things_come_before_what_needs_them_and_go_after() {
    let created = lines(&Desired::default(), &desired(&["t"]));
    let heads: Vec<&String> = created
        .iter()
        .filter(|line| !line.starts_with(' '))
        .collect();
    assert_eq!(
        heads,
        [
            "Create cluster a",
            "Create cluster b",
            "Create link a-b",
            "Create subscription a-b/t",
        ]
    );
    assert_eq!(
        lines(&desired(&["t"]), &Desired::default()),
        [
            "Delete subscription a-b/t",
            "Delete link a-b",
            "Delete cluster a",
            "Delete cluster b",
        ]
    );
}

#[test]
fn every_field_of_a_spec_can_be_told() {
    let before = desired(&["t"]);
    let mut after = before.clone();
    let mut changed = cluster("a");
    changed.security.tls = Some(Tls {
        ca_file: Some("/etc/ca.pem".to_owned()),
        skip_hostname_check: true,
        ..Tls::default()
    });
    changed.security.sasl = Some(Sasl {
        mechanism: SaslMechanism::ScramSha512,
        username: "mirror".to_owned(),
        password: SecretRef::Env("MIRROR_PASSWORD".to_owned()),
    });
    changed.expected_cluster_id = Some("xyz".to_owned());
    after.clusters.insert(changed.id.clone(), changed);
    let mut changed = link("a-b", "a", "b");
    changed.naming.prefix = "a.".to_owned();
    changed.target_topics.replication_factor = Some(3);
    changed
        .target_topics
        .config
        .insert("retention.ms".to_owned(), "1".to_owned());
    after.links.insert(changed.id.clone(), changed);
    let mut changed = exact("a-b", "t");
    changed.paused = true;
    let place = (changed.link.clone(), "t".to_owned());
    after.subscriptions.insert(place, changed);
    assert_eq!(
        lines(&before, &after),
        [
            "Update cluster a",
            "  expected_cluster_id: \"\" -> \"xyz\"",
            "  security.sasl.mechanism: \"\" -> \"SCRAM-SHA-512\"",
            "  security.sasl.password.env: \"\" -> \"MIRROR_PASSWORD\"",
            "  security.sasl.username: \"\" -> \"mirror\"",
            "  security.tls: \"\" -> \"true\"",
            "  security.tls.ca_file: \"\" -> \"/etc/ca.pem\"",
            "  security.tls.skip_hostname_check: \"\" -> \"true\"",
            "Update link a-b",
            "  naming.prefix: \"\" -> \"a.\"",
            "  target_topics.config[\"retention.ms\"]: \"\" -> \"1\"",
            "  target_topics.replication_factor: \"\" -> \"3\"",
            "Update subscription a-b/t",
            "  paused: \"\" -> \"true\"",
        ]
    );
}
