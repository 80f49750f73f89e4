//! Wrong specs are refused with every fault at once, each with its path and remedy; nothing secret
//! is repeated.

use std::collections::BTreeMap;

use kreplicator_model::spec::{Cluster, Engine, Link, StartPolicy, Subscription};
use kreplicator_proto::{
    fault::FieldFault,
    spec_convert::{EXCLUDES_MAX, TEXT_BYTES_MAX},
    v1,
};

fn cluster() -> v1::Cluster {
    v1::Cluster {
        id: "dc-1".to_owned(),
        bootstrap_servers: vec!["kafka-1:9092".to_owned()],
        ..v1::Cluster::default()
    }
}

fn link() -> v1::Link {
    v1::Link {
        id: "a-b".to_owned(),
        source: "a".to_owned(),
        target: "b".to_owned(),
        ..v1::Link::default()
    }
}

fn subscription(by: v1::selector::By) -> v1::Subscription {
    v1::Subscription {
        link: "a-b".to_owned(),
        selector: Some(v1::Selector { by: Some(by) }),
        ..v1::Subscription::default()
    }
}

fn paths(faults: &[FieldFault]) -> Vec<&str> {
    faults.iter().map(|fault| fault.path.as_str()).collect()
}

#[test]
fn every_fault_of_a_cluster_is_told_at_once() {
    let message = v1::Cluster {
        id: "DC 1".to_owned(),
        bootstrap_servers: vec![
            "kafka-1".to_owned(),
            "PLAINTEXT://kafka-1:9092".to_owned(),
            "kafka-1:0".to_owned(),
            "::1:9092".to_owned(),
            "a:1,b:2".to_owned(),
            ":9092".to_owned(),
        ],
        security: Some(v1::Security {
            tls: Some(v1::Tls {
                cert_file: "/cert.pem".to_owned(),
                key_password: Some(v1::SecretRef { from: None }),
                ..v1::Tls::default()
            }),
            sasl: Some(v1::Sasl::default()),
        }),
        client_options: BTreeMap::from([("bad name".to_owned(), "1".to_owned())]),
        expected_cluster_id: "x\n".to_owned(),
    };
    let faults = Cluster::try_from(&message).expect_err("refused");
    assert_eq!(
        paths(&faults),
        [
            "id",
            "bootstrap_servers[0]",
            "bootstrap_servers[1]",
            "bootstrap_servers[2]",
            "bootstrap_servers[3]",
            "bootstrap_servers[4]",
            "bootstrap_servers[5]",
            "client_options[\"bad name\"]",
            "expected_cluster_id",
            "security.tls.key_file",
            "security.tls.key_password",
            "security.tls.key_password",
            "security.sasl.mechanism",
            "security.sasl.username",
            "security.sasl.password",
        ]
    );
}

#[test]
fn a_cluster_without_servers_is_refused_and_a_plain_one_accepted() {
    let empty = v1::Cluster {
        bootstrap_servers: Vec::new(),
        ..cluster()
    };
    let faults = Cluster::try_from(&empty).expect_err("refused");
    assert_eq!(paths(&faults), ["bootstrap_servers"]);
    let accepted = Cluster::try_from(&cluster()).expect("accepted");
    assert_eq!(v1::Cluster::from(&accepted), cluster());
}

#[test]
fn a_password_written_in_place_of_its_variable_is_not_repeated() {
    let password = "hunter2!";
    let message = v1::Cluster {
        security: Some(v1::Security {
            tls: None,
            sasl: Some(v1::Sasl {
                mechanism: v1::SaslMechanism::Plain.into(),
                username: "u".to_owned(),
                password: Some(v1::SecretRef {
                    from: Some(v1::secret_ref::From::Env(password.to_owned())),
                }),
            }),
        }),
        ..cluster()
    };
    let faults = Cluster::try_from(&message).expect_err("refused");
    assert_eq!(paths(&faults), ["security.sasl.password.env"]);
    assert!(!faults[0].to_string().contains(password), "{}", faults[0]);
}

#[test]
fn every_fault_of_a_link_is_told_at_once() {
    let message = v1::Link {
        target: "a".to_owned(),
        naming: Some(v1::Naming {
            prefix: "dc 1/".to_owned(),
            rename: BTreeMap::from([
                ("orders".to_owned(), "all".to_owned()),
                ("payments".to_owned(), "all".to_owned()),
                ("x/y".to_owned(), "xy".to_owned()),
            ]),
        }),
        start: Some(v1::StartPolicy { at: None }),
        on_gap: 9,
        checkpoint_on: -1,
        target_topics: Some(v1::TargetTopics {
            replication_factor: -1,
            ..v1::TargetTopics::default()
        }),
        engine: 7,
        ..link()
    };
    let faults = Link::try_from(&message).expect_err("refused");
    assert_eq!(
        paths(&faults),
        [
            "target",
            "naming.prefix",
            "naming.rename[\"payments\"]",
            "naming.rename[\"x/y\"]",
            "start",
            "on_gap",
            "checkpoint_on",
            "target_topics.replication_factor",
            "engine",
        ]
    );
}

#[test]
fn a_link_that_says_little_gets_the_documented_defaults() {
    let accepted = Link::try_from(&link()).expect("accepted");
    assert_eq!(accepted.start, StartPolicy::Earliest);
    assert_eq!(accepted.target_topics.replication_factor, None);
    assert_eq!(accepted.engine(), Engine::DEFAULT);
    let again = Link::try_from(&v1::Link::from(&accepted)).expect("accepted");
    assert_eq!(again, accepted);
}

#[test]
fn the_engine_asked_for_is_kept_apart_from_the_default() {
    for (engine, read) in [
        (v1::Engine::Unspecified, None),
        (v1::Engine::Records, Some(Engine::Records)),
        (v1::Engine::Batches, Some(Engine::Batches)),
    ] {
        let message = v1::Link {
            engine: engine.into(),
            ..link()
        };
        let accepted = Link::try_from(&message).expect("accepted");
        assert_eq!(accepted.engine, read);
        assert_eq!(v1::Link::from(&accepted).engine(), engine);
    }
}

#[test]
fn a_subscription_needs_a_selector_that_selects() {
    let nothing = v1::Subscription {
        selector: None,
        ..subscription(v1::selector::By::Topic(String::new()))
    };
    let faults = Subscription::try_from(&nothing).expect_err("refused");
    assert_eq!(paths(&faults), ["selector"]);

    let star = subscription(v1::selector::By::Topic("orders.*".to_owned()));
    let faults = Subscription::try_from(&star).expect_err("a pattern is no topic name");
    assert_eq!(paths(&faults), ["selector.topic"]);

    let empty = subscription(v1::selector::By::Pattern(v1::Pattern {
        include: String::new(),
        exclude: vec![String::new()],
    }));
    let faults = Subscription::try_from(&empty).expect_err("refused");
    assert_eq!(
        paths(&faults),
        ["selector.pattern.include", "selector.pattern.exclude[0]"]
    );
}

#[test]
fn every_expression_that_does_not_compile_is_told_and_our_topics_are_refused() {
    let broken = subscription(v1::selector::By::Pattern(v1::Pattern {
        include: "orders(".to_owned(),
        exclude: vec!["fine.*".to_owned(), "[z-a]".to_owned()],
    }));
    let faults = Subscription::try_from(&broken).expect_err("refused");
    assert_eq!(
        paths(&faults),
        ["selector.pattern.include", "selector.pattern.exclude[1]"]
    );
    assert!(faults[0].message.contains("orders("), "{}", faults[0]);

    let ours = subscription(v1::selector::By::Topic("__kreplicator_origins".to_owned()));
    let faults = Subscription::try_from(&ours).expect_err("refused");
    assert_eq!(paths(&faults), ["selector.topic"]);
}

#[test]
fn patterns_beyond_the_limits_are_told_once_and_not_compiled() {
    let message = subscription(v1::selector::By::Pattern(v1::Pattern {
        include: "(".repeat(TEXT_BYTES_MAX + 1),
        exclude: vec!["(".to_owned(); EXCLUDES_MAX + 1],
    }));
    let faults = Subscription::try_from(&message).expect_err("over the limits");
    let at = |path: &str| faults.iter().filter(|fault| fault.path == path).count();
    assert_eq!(at("selector.pattern.include"), 1);
    assert_eq!(at("selector.pattern.exclude"), 1);
    assert_eq!(at("selector.pattern.exclude[99]"), 1);
    assert_eq!(at("selector.pattern.exclude[100]"), 0);
}

#[test]
fn a_start_is_one_thing_and_not_before_1970() {
    use v1::start_policy::At;
    let start = |at| {
        StartPolicy::try_from(&v1::StartPolicy { at: Some(at) })
            .map_err(|faults| faults[0].path.clone())
    };
    assert_eq!(start(At::Latest(true)), Ok(StartPolicy::Latest));
    assert_eq!(start(At::Latest(false)), Err("latest".to_owned()));
    assert_eq!(start(At::Earliest(false)), Err("earliest".to_owned()));
    assert_eq!(start(At::TimestampMs(-1)), Err("timestamp_ms".to_owned()));
}
