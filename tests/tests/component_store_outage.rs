//! What an outage of etcd costs. A file of its own: it measures the processor time of its process.

use std::{fs, sync::Arc, time::Duration};

use kreplicator_store::{
    Election, EtcdConfig, EtcdStore, MetaStore, Session, SessionConfig, View, ViewOptions,
};
use kreplicator_tests::{etcd::Etcd, proxy::Proxy, wait};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

const TTL: Duration = Duration::from_secs(5);
const SETTLE: Duration = Duration::from_secs(12);
const OUTAGE: Duration = Duration::from_secs(20);
const RECOVERY: Duration = Duration::from_secs(20);

/// User and system time of this process.
fn cpu_time() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").expect("this is Linux");
    let (_, after_name) = stat.rsplit_once(") ").expect("a name in brackets");
    let fields: Vec<&str> = after_name.split(' ').collect();
    let ticks = |place: usize| fields[place].parse::<u64>().expect("a number");
    Duration::from_millis((ticks(11) + ticks(12)) * 10)
}

#[tokio::test(flavor = "multi_thread")]
async fn c055_an_outage_costs_next_to_nothing() {
    let mut etcd = Etcd::start().await.expect("etcd starts");
    let proxy = Proxy::start(etcd.address()).await.expect("proxy starts");
    let config = EtcdConfig::new([proxy.http_url()]);
    let store: Arc<dyn MetaStore> = Arc::new(EtcdStore::connect(config).expect("usable"));
    let cancel = CancellationToken::new();
    // What a controller has.
    let mut views: Vec<View> = ["config/", "worker/", "plan/", "owned/", "task/"]
        .into_iter()
        .map(|prefix| {
            let options = ViewOptions::default();
            View::open(Arc::clone(&store), prefix, options, cancel.clone())
        })
        .collect();
    let config = SessionConfig::new("worker/live/a", Vec::new(), TTL);
    let session = Session::start(Arc::clone(&store), config, cancel.clone()).expect("fits");
    let leader = "controller/leader";
    let election =
        Election::start(Arc::clone(&store), leader, Vec::new(), TTL, cancel.clone()).expect("fits");
    for view in &mut views {
        view.next().await;
    }
    session.registered().await;
    etcd.kill().await.expect("it ran");
    // The proxy takes each connection and finds nobody behind: an attempt is a connection.
    sleep(SETTLE).await;
    let (attempts, cpu, began) = (proxy.accepted(), cpu_time(), Instant::now());
    sleep(OUTAGE).await;
    let attempts = (proxy.accepted() - attempts) * 60 / OUTAGE.as_secs();
    let used = cpu_time().saturating_sub(cpu);
    let share = used.as_secs_f64() / began.elapsed().as_secs_f64();
    assert!(share < 0.05, "{:.1} % of a processor", share * 100.0);
    // Five views and two sessions ask at most each 2.5 s. A question is tried twice, and the
    // transport tries each time once more on a connection that closes at once.
    let bounds = 7..=7 * 24 * 4;
    assert!(
        bounds.contains(&attempts),
        "{attempts} connections a minute"
    );
    assert!(
        views
            .iter()
            .all(|view| !view.is_synced() && view.health().error.is_some())
    );
    assert!(session.registration().is_none() && election.term().is_none());

    etcd.restart().await.expect("etcd starts");
    wait::until_true("the end of the outage", RECOVERY, async || {
        let followed = views.iter().all(View::is_synced);
        Ok(followed && session.fence().is_open() && election.term().is_some())
    })
    .await
    .expect("everything recovers by itself");
}
