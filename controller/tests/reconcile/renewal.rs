//! Certificates of clusters are renewed while the leader reaches them (C127).

use std::time::Duration;

use crate::support::{Fleet, Mode};

const SOON: Duration = Duration::from_secs(3);
const MINUTE: Duration = Duration::from_secs(60);

fn fault(fleet: &Fleet, cluster: &str) -> Option<String> {
    let state = fleet.state();
    state.clusters.get(cluster)?.renewal_fault.clone()
}

#[tokio::test(start_paused = true)]
async fn c127_clients_are_made_from_renewed_files_and_kept_while_these_cannot_be_used() {
    let fleet = Fleet::ready(&["w1"]).await;
    fleet.kafka.put_topic("a", "orders", 2);
    fleet.subscribe("a-b", &["orders"]).await;
    fleet.until_running(2, SOON).await;
    let before = fleet.kafka.connects("b");

    fleet.kafka.renew_files("b", true);
    fleet
        .until("the fault is told", MINUTE, |fleet| {
            fault(fleet, "b").is_some()
        })
        .await;
    let told = fault(&fleet, "b").expect("just seen");
    assert!(told.contains("tls.key_file"), "{told}");
    assert_eq!(fault(&fleet, "a"), None);
    // The client there is goes on.
    fleet.kafka.put_topic("a", "orders", 4);
    fleet.until_running(4, MINUTE).await;
    assert_eq!(fleet.kafka.partitions("b", "a.orders"), Some(4));
    assert_eq!(fleet.kafka.asked_with("b"), 0);
    let reachable = |fleet: &Fleet| fleet.state().clusters["b"].reachable;
    assert_eq!(reachable(&fleet), Some(true));

    // Away for longer than it takes to make a client anew: the one there is may be the last that works.
    fleet.kafka.set_mode("b", Mode::Down);
    tokio::time::sleep(2 * MINUTE).await;
    assert_eq!(reachable(&fleet), Some(false));
    fleet.kafka.set_mode("b", Mode::Up);
    fleet
        .until("the cluster is reached", MINUTE, |fleet| {
            reachable(fleet) == Some(true)
        })
        .await;
    assert_eq!(fleet.kafka.asked_with("b"), 0);

    fleet.kafka.renew_files("b", false);
    fleet
        .until("the fault is over", MINUTE, |fleet| {
            fault(fleet, "b").is_none()
        })
        .await;
    // Also what is asked besides looking.
    fleet.kafka.put_topic("a", "orders", 6);
    fleet.until_running(6, MINUTE).await;
    assert_eq!(fleet.kafka.partitions("b", "a.orders"), Some(6));
    assert_eq!(fleet.kafka.asked_with("b"), 2);
    assert_eq!(
        fleet.kafka.connects("b"),
        before,
        "none was connected blindly"
    );
}
