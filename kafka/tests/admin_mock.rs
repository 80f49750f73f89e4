//! The admin against librdkafka's mock cluster: a real network edge, no broker needed.

use std::{collections::BTreeMap, time::Duration};

use kreplicator_kafka::{
    admin::{Admin, NewTopic},
    error::{Class, Error},
    properties::ALLOW_AUTO_CREATE,
    secrets::ProcessSecrets,
};
use kreplicator_model::{
    ids::{ClusterId, TopicName},
    spec::{Cluster, Security},
};
use rdkafka::{mocking::MockCluster, types::RDKafkaRespErr};

fn cluster(bootstrap: &str) -> Cluster {
    Cluster {
        id: ClusterId::new("mock").expect("legal"),
        bootstrap_servers: bootstrap.split(',').map(str::to_owned).collect(),
        security: Security::default(),
        client_options: BTreeMap::new(),
        expected_cluster_id: None,
    }
}

fn name(topic: &str) -> TopicName {
    TopicName::new(topic).expect("legal")
}

fn connect(cluster: &Cluster) -> Admin {
    Admin::connect(cluster, &ProcessSecrets)
        .expect("legal settings")
        .with_deadline(Duration::from_secs(10))
}

#[tokio::test]
async fn metadata_tells_topics_partitions_brokers_and_the_cluster_id() {
    let mock = MockCluster::new(3).expect("a mock cluster");
    mock.create_topic("orders", 4, 3).expect("made");
    mock.create_topic("clicks", 1, 1).expect("made");
    let admin = connect(&cluster(&mock.bootstrap_servers()));
    let metadata = admin.metadata().await.expect("answers");
    assert_eq!(metadata.brokers, 3);
    assert!(metadata.kafka_cluster_id.is_some());
    let partitions: Vec<_> = metadata
        .topics
        .iter()
        .map(|(name, topic)| (name.as_str(), topic.partitions, topic.error.as_deref()))
        .collect();
    assert_eq!(partitions, [("clicks", 1, None), ("orders", 4, None)]);
}

#[tokio::test]
async fn c068_looking_up_a_topic_does_not_create_it() {
    let mock = MockCluster::new(1).expect("a mock cluster");
    mock.create_topic("orders", 2, 1).expect("made");
    let admin = connect(&cluster(&mock.bootstrap_servers()));
    let orders = admin.topic(&name("orders")).await.expect("answers");
    assert_eq!(orders.map(|topic| topic.partitions), Some(2));
    assert_eq!(admin.topic(&name("absent")).await.expect("answers"), None);
    let topics = admin.metadata().await.expect("answers").topics;
    assert!(!topics.contains_key(&name("absent")), "{topics:?}");
}

#[tokio::test]
async fn calls_that_a_mock_cluster_lacks_are_told_as_unsupported() {
    let mock = MockCluster::new(1).expect("a mock cluster");
    let mut cluster = cluster(&mock.bootstrap_servers());
    let strict = connect(&cluster);
    let auto = strict.topic_auto(&name("made")).await;
    assert!(
        matches!(auto, Err(Error::Unsupported { .. })),
        "not allowed: {auto:?}"
    );
    cluster
        .client_options
        .insert(ALLOW_AUTO_CREATE.to_owned(), "true".to_owned());
    let admin = connect(&cluster);
    let began = tokio::time::Instant::now();
    let new = NewTopic {
        name: name("made"),
        partitions: 1,
        replication_factor: None,
        config: BTreeMap::new(),
    };
    let created = admin.create_topic(new, false).await;
    assert!(
        matches!(created, Err(Error::Unsupported { .. })),
        "{created:?}"
    );
    let configs = admin.topic_configs(&[name("orders")]).await;
    assert!(
        matches!(configs, Err(Error::Unsupported { .. })),
        "{configs:?}"
    );
    assert!(
        began.elapsed() < Duration::from_secs(3),
        "told at once, not at the deadline: {:?}",
        began.elapsed()
    );
}

#[tokio::test]
async fn a_call_of_several_requests_has_one_deadline() {
    let mock = MockCluster::new(1).expect("a mock cluster");
    mock.create_topic("orders", 2, 1).expect("made");
    let mut cluster = cluster(&mock.bootstrap_servers());
    cluster
        .client_options
        .insert(ALLOW_AUTO_CREATE.to_owned(), "true".to_owned());
    let admin = connect(&cluster);
    admin.metadata().await.expect("connected");
    // Growing looks the topic up first and asks for the brokers then: together longer than allowed.
    mock.broker_round_trip_time(1, Duration::from_millis(1_500))
        .expect("set");
    let admin = admin.with_deadline(Duration::from_secs(2));
    let began = tokio::time::Instant::now();
    let grown = admin.grow_topic(&name("orders"), 4).await;
    assert!(grown.is_err(), "{grown:?}");
    assert!(
        began.elapsed() < Duration::from_millis(2_700),
        "{:?}: {grown:?}",
        began.elapsed()
    );
}

#[tokio::test]
async fn automatic_creation_works_where_the_options_allow_it() {
    let mock = MockCluster::new(1).expect("a mock cluster");
    let mut cluster = cluster(&mock.bootstrap_servers());
    cluster
        .client_options
        .insert(ALLOW_AUTO_CREATE.to_owned(), "true".to_owned());
    let admin = connect(&cluster);
    assert!(admin.allows_auto_create());
    assert_eq!(admin.topic(&name("made")).await.expect("answers"), None);
    let made = admin.topic_auto(&name("made")).await.expect("created");
    assert!(made.partitions > 0, "{made:?}");
    assert_eq!(
        admin.topic(&name("made")).await.expect("answers"),
        Some(made)
    );
}

#[tokio::test]
async fn a_topic_that_the_broker_denies_shows_its_error() {
    let mock = MockCluster::new(1).expect("a mock cluster");
    mock.create_topic("secret", 1, 1).expect("made");
    mock.topic_error(
        "secret",
        RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED,
    )
    .expect("set");
    let admin = connect(&cluster(&mock.bootstrap_servers()));
    let metadata = admin.metadata().await.expect("answers");
    let error = metadata.topics[&name("secret")].error.as_deref();
    assert!(
        error.is_some_and(|text| text.contains("permission")),
        "{error:?}"
    );
}

#[tokio::test]
async fn growing_to_what_is_there_already_is_fine_and_unknown_topics_are_told() {
    let mock = MockCluster::new(1).expect("a mock cluster");
    mock.create_topic("orders", 4, 1).expect("made");
    let admin = connect(&cluster(&mock.bootstrap_servers()));
    admin
        .grow_topic(&name("orders"), 4)
        .await
        .expect("nothing to do");
    let absent = admin.grow_topic(&name("absent"), 4).await;
    assert!(
        matches!(absent, Err(Error::UnknownTopic { .. })),
        "{absent:?}"
    );
}

#[tokio::test]
async fn a_pinned_cluster_id_is_compared() {
    let mock = MockCluster::new(1).expect("a mock cluster");
    let mut cluster = cluster(&mock.bootstrap_servers());
    let found = connect(&cluster).metadata().await.expect("answers");
    cluster.expected_cluster_id = found.kafka_cluster_id;
    connect(&cluster).metadata().await.expect("the right one");
    cluster.expected_cluster_id = Some("another".into());
    let refused = connect(&cluster).metadata().await;
    assert!(
        matches!(refused, Err(Error::WrongCluster { .. })),
        "{refused:?}"
    );
}

#[tokio::test]
async fn c050_an_unreachable_cluster_is_told_within_the_deadline_with_the_true_cause() {
    // A port that was free a moment ago refuses connections.
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .expect("a free port")
        .port();
    let admin =
        connect(&cluster(&format!("127.0.0.1:{port}"))).with_deadline(Duration::from_secs(2));
    let began = tokio::time::Instant::now();
    let fault = admin.metadata().await.expect_err("nobody there");
    assert!(
        began.elapsed() < Duration::from_secs(4),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(fault.class(), Class::Retryable);
    assert!(fault.to_string().contains("Connection refused"), "{fault}");
}

#[tokio::test]
async fn c050_a_black_hole_is_given_up_at_the_deadline() {
    // Accepts connections (the backlog does) and never answers.
    let hole = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = hole.local_addr().expect("bound").to_string();
    let admin = connect(&cluster(&address)).with_deadline(Duration::from_secs(1));
    let began = tokio::time::Instant::now();
    let fault = admin.metadata().await.expect_err("nobody answers");
    assert!(
        began.elapsed() < Duration::from_secs(3),
        "{:?}",
        began.elapsed()
    );
    assert!(matches!(fault, Error::Unreachable { .. }), "{fault}");
}

#[tokio::test(flavor = "current_thread")]
async fn c109_dropping_an_admin_never_holds_up_the_runtime() {
    let hole = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = hole.local_addr().expect("bound").to_string();
    for _ in 0..5 {
        let admin = connect(&cluster(&address));
        let began = tokio::time::Instant::now();
        drop(admin);
        assert!(
            began.elapsed() < Duration::from_millis(100),
            "{:?}",
            began.elapsed()
        );
    }
}
