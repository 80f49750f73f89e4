use kreplicator_model::spec::{Cluster, Security, Subscription};
use kreplicator_model::{ids::ClusterId, spec::Selector};

use super::*;
use crate::reconcile::fixtures::{empty_book, entry, topic};

#[test]
fn a_value_that_belongs_to_another_key_is_not_taken_for_what_stands_there() {
    let mut book = empty_book();
    let id = |name: &str| ClusterId::new(name).expect("legal");
    let cluster = Cluster {
        id: id("b"),
        bootstrap_servers: vec!["b:9092".to_owned()],
        security: Security::default(),
        client_options: BTreeMap::new(),
        expected_cluster_id: None,
    };
    let value = entry(cluster.encode(), 5);
    let key = keys::cluster(&id("a"));
    book.config_changed(&key, Some(&value));
    assert!(book.desired.clusters.is_empty());
    assert!(book.unreadable[&key].contains("another key"));
    book.config_changed(&keys::cluster(&id("b")), Some(&value));
    assert_eq!(book.desired.clusters.get(&id("b")), Some(&cluster));
    book.config_changed(&key, None);
    assert!(book.unreadable.is_empty());
}

#[test]
fn news_of_a_subscription_from_before_this_leaders_own_write_is_passed_over() {
    let mut book = empty_book();
    let subscription = Subscription {
        link: topic("orders").link,
        selector: Selector::Topic(topic("orders").topic),
        start: None,
        paused: false,
    };
    let id = (subscription.link.clone(), subscription.selector.id());
    let record = SubscriptionRecord {
        subscription,
        baseline: false,
        created_at: Default::default(),
    };
    let key = keys::subscription(&id.0, &id.1);
    book.config_changed(&key, Some(&entry(record.encode(), 5)));
    book.baseline_written(&id, Revision(9));
    book.config_changed(&key, Some(&entry(record.encode(), 7)));
    assert_eq!(book.baseline(), [id.clone()].into());
    assert_eq!(book.subscriptions[&id].1, Revision(9));
    book.config_changed(&key, Some(&entry(record.encode(), 11)));
    assert!(book.baseline().is_empty());
}
