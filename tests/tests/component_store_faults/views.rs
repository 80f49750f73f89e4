//! Views that are cut off see everything in the end.

use std::sync::Arc;

use kreplicator_store::{Error, Op, View, ViewOptions};
use kreplicator_tests::{proxy::Proxy, wait};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::rig::{
    NOTICE, RECOVERY, Rig, SECOND, TTL, catches_up, config, delete, next, notices, put, recovers,
    session, store, view, write,
};

#[tokio::test]
async fn c051_a_view_cut_off_through_a_compaction_reads_again() {
    let rig = Rig::start().await;
    write(
        &rig.direct,
        vec![put("a", "1"), put("b", "1"), put("c", "1")],
    )
    .await;
    let mut view = view(&rig.proxied, "");
    assert_eq!(next(&mut view, RECOVERY).await.changes.len(), 3);
    rig.proxy.refuse().await;
    notices(&view, NOTICE).await;
    write(&rig.direct, vec![put("a", "2"), delete("b")]).await;
    write(&rig.direct, vec![put("d", "1")]).await;
    rig.etcd.compact().await.expect("etcd is up");
    rig.proxy.pass().await;
    let delta = next(&mut view, RECOVERY).await;
    assert!(delta.reset);
    let keys: Vec<&str> = delta
        .changes
        .iter()
        .map(|change| change.key.as_str())
        .collect();
    assert_eq!(keys, ["a", "b", "d"], "real differences only");
    catches_up(&mut view, &rig.direct, SECOND).await;
    write(&rig.direct, vec![put("e", "1")]).await;
    assert!(!next(&mut view, RECOVERY).await.reset, "the watch goes on");
}

#[tokio::test]
async fn c052_a_delete_at_the_compacted_revision_is_not_missed() {
    let rig = Rig::start().await;
    write(&rig.direct, vec![put("a", "1"), put("b", "1")]).await;
    let options = ViewOptions {
        resync_interval: 3 * SECOND,
        drift_grace: SECOND,
        ..ViewOptions::default()
    };
    let cancel = CancellationToken::new();
    let mut view = View::open(Arc::clone(&rig.proxied), "", options, cancel);
    next(&mut view, RECOVERY).await;
    for round in 0..5 {
        let deleted = write(&rig.direct, vec![delete("a")]).await;
        let compacted = rig.etcd.compact().await.expect("etcd is up");
        assert_eq!(compacted, deleted.0, "the delete is the newest revision");
        // Whoever opens a watch from that very revision is told of it, or that it is gone.
        let told = match rig.direct.watch("", deleted).await {
            Ok(mut watch) => timeout(SECOND, watch.next()).await.is_ok(),
            Err(error) => matches!(error, Error::Compacted { .. }),
        };
        // Should etcd keep silent, as some versions did, the timer finds it.
        catches_up(&mut view, &rig.direct, 3 * options.resync_interval).await;
        assert!(
            told,
            "round {round}: a watch from the compacted revision stays silent"
        );
        write(&rig.direct, vec![put("a", "1")]).await;
    }
    catches_up(&mut view, &rig.direct, RECOVERY).await;
}

#[tokio::test]
async fn c053_a_lease_that_ended_while_the_view_was_cut_off_is_seen() {
    let rig = Rig::start().await;
    let lease = rig.direct.grant(2 * SECOND).await.expect("etcd is up");
    let leased = Op::Put {
        key: "worker/live/b".to_owned(),
        value: Vec::new(),
        lease: Some(lease),
    };
    write(&rig.direct, vec![leased, put("worker/live/a", "")]).await;
    let mut view = view(&rig.proxied, "worker/live/");
    assert_eq!(next(&mut view, RECOVERY).await.changes.len(), 2);
    rig.proxy.refuse().await;
    wait::until_true("the end of the lease", RECOVERY, async || {
        Ok(rig.direct.get("worker/live/b").await?.is_none())
    })
    .await
    .expect("it ends");
    assert_eq!(view.entries().len(), 2, "nobody told");
    rig.proxy.pass().await;
    let delta = next(&mut view, RECOVERY).await;
    assert_eq!(delta.changes.len(), 1);
    assert_eq!(delta.changes[0].key, "worker/live/b");
    assert_eq!(delta.changes[0].after, None);
}

#[tokio::test]
async fn c054_a_watch_on_a_silent_peer_ends_while_nothing_changes() {
    let rig = Rig::start().await;
    let from = write(&rig.direct, vec![put("a", "1")]).await.next();
    let mut watch = rig.proxied.watch("", from).await.expect("etcd is up");
    assert!(
        timeout(4 * SECOND, watch.next()).await.is_err(),
        "silence is no fault"
    );
    rig.proxy.black_hole();
    let swallowed = Instant::now();
    let end = timeout(NOTICE, watch.next())
        .await
        .expect("noticed in time");
    let end = end.expect_err("the peer is silent");
    assert!(matches!(end, Error::Unavailable(_)), "{end}");
    assert!(swallowed.elapsed() < NOTICE);
}

#[tokio::test]
async fn c054_a_black_hole_in_front_of_one_endpoint_is_left_for_the_other() {
    let mut rig = Rig::start().await;
    let other = Proxy::start(rig.etcd.address())
        .await
        .expect("proxy starts");
    rig.proxied = store(config(&[rig.proxy.http_url(), other.http_url()]));
    let mut view = view(&rig.proxied, "");
    next(&mut view, RECOVERY).await;
    let session = session(&rig.proxied, "worker/live/a");
    let registration = timeout(RECOVERY, session.registered())
        .await
        .expect("in time");
    assert_eq!(other.accepted(), 0, "the first endpoint is in use");
    rig.proxy.black_hole();
    write(&rig.direct, vec![put("a", "1")]).await;
    catches_up(&mut view, &rig.direct, RECOVERY).await;
    assert!(other.accepted() > 0);
    // Long enough for every keep-alive that could be missed.
    sleep(TTL).await;
    assert!(
        registration.fence.is_open(),
        "the registration never lapsed"
    );
    assert_eq!(session.incarnation(), 1);
}

#[tokio::test]
async fn c054_a_killed_etcd_that_comes_back_is_followed_again() {
    let mut rig = Rig::start().await;
    write(&rig.direct, vec![put("a", "1")]).await;
    let mut view = view(&rig.proxied, "");
    next(&mut view, RECOVERY).await;
    let session = session(&rig.proxied, "worker/live/a");
    timeout(RECOVERY, session.registered())
        .await
        .expect("in time");
    for round in 0..2 {
        rig.etcd.kill().await.expect("it ran");
        notices(&view, NOTICE).await;
        rig.etcd.restart().await.expect("etcd starts");
        recovers(&view, RECOVERY).await;
        write(&rig.direct, vec![put("b", &round.to_string())]).await;
        wait::until_true("an open fence", RECOVERY, async || {
            Ok(session.fence().is_open())
        })
        .await
        .expect("the session recovers");
        catches_up(&mut view, &rig.direct, RECOVERY).await;
    }
}

#[tokio::test]
async fn c054_a_frozen_etcd_is_noticed_and_followed_again() {
    let mut rig = Rig::start().await;
    let mut view = view(&rig.direct, "");
    next(&mut view, RECOVERY).await;
    rig.etcd.freeze().await.expect("it runs");
    let call = Instant::now();
    let refusal = rig.direct.get("a").await.expect_err("nobody answers");
    assert!(matches!(refusal, Error::Unavailable(_)), "{refusal}");
    assert!(call.elapsed() < 6 * SECOND, "our deadline, not its");
    notices(&view, NOTICE).await;
    rig.etcd.thaw().expect("it exists");
    recovers(&view, RECOVERY).await;
    write(&rig.direct, vec![put("a", "1")]).await;
    catches_up(&mut view, &rig.direct, RECOVERY).await;
}
