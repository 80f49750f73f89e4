//! Leases and leadership while etcd or the way to it fails.

use std::sync::Arc;

use kreplicator_store::{Compare, Election, Error, MetaStore, Outcome, Txn};
use kreplicator_tests::wait;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::rig::{RECOVERY, Rig, SECOND, TTL, catches_up, next, put, session, view};

#[tokio::test]
async fn c058_when_all_leases_are_revoked_at_once_everybody_registers_again() {
    let rig = Rig::start().await;
    let mut sessions = Vec::new();
    for n in 0..5 {
        let session = session(&rig.direct, &format!("worker/live/{n}"));
        let first = timeout(RECOVERY, session.registered())
            .await
            .expect("in time");
        sessions.push((session, first));
    }
    let mut view = view(&rig.direct, "worker/live/");
    assert_eq!(next(&mut view, RECOVERY).await.changes.len(), 5);
    assert_eq!(rig.etcd.revoke_all_leases().await.expect("etcd is up"), 5);
    let revoked = Instant::now();
    for (session, first) in &sessions {
        let again = wait::until("the next incarnation", TTL, async || {
            Ok(session.registration().filter(|now| now.incarnation == 2))
        });
        let second = again.await.expect("it registers again");
        assert!(second.fence.is_open() && !first.fence.is_open());
        assert_ne!(second.lease, first.lease);
    }
    assert!(revoked.elapsed() < TTL);
    catches_up(&mut view, &rig.direct, RECOVERY).await;
    assert_eq!(view.entries().len(), 5);
}

#[tokio::test]
async fn c059_a_full_etcd_refuses_writes_keeps_leases_and_recovers() {
    let rig = Rig::start_with(&["--quota-backend-bytes", "16777216"]).await;
    let session = session(&rig.direct, "worker/live/a");
    let first = timeout(RECOVERY, session.registered())
        .await
        .expect("in time");
    let value = "x".repeat(1_000_000);
    let fill = |store: Arc<dyn MetaStore>| {
        let value = value.clone();
        async move {
            let ops = vec![put("filler", &value)];
            store
                .commit(Txn {
                    compares: Vec::new(),
                    ops,
                })
                .await
        }
    };
    let mut full = None;
    for _ in 0..60 {
        if let Err(error) = fill(Arc::clone(&rig.direct)).await {
            full = Some(error);
            break;
        }
    }
    let full = full.expect("sixty megabytes do not fit in sixteen");
    assert!(matches!(full, Error::ReadOnly(_)), "{full}");
    assert!(full.is_retryable());
    assert!(
        full.to_string().contains("compact and defragment"),
        "{full}"
    );
    // Reads and keep-alives go on.
    assert!(rig.direct.get("filler").await.expect("readable").is_some());
    sleep(TTL + SECOND).await;
    assert!(first.fence.is_open());
    let granted = rig.direct.grant(TTL).await;
    assert!(matches!(granted, Err(Error::ReadOnly(_))), "{granted:?}");
    rig.etcd.make_room().await.expect("etcd is up");
    fill(Arc::clone(&rig.direct))
        .await
        .expect("there is room again");
    assert_eq!(session.incarnation(), 1, "nothing was lost");
}

#[tokio::test]
async fn c037_a_session_cut_off_is_fenced_before_its_successor_registers() {
    let rig = Rig::start().await;
    let first = session(&rig.proxied, "worker/live/a");
    let old = timeout(RECOVERY, first.registered())
        .await
        .expect("in time");
    let second = session(&rig.direct, "worker/live/a");
    sleep(2 * SECOND).await;
    assert!(
        old.fence.is_open() && second.registration().is_none(),
        "nothing is stolen"
    );
    rig.proxy.black_hole();
    let cut = Instant::now();
    old.fence.closed().await;
    assert!(cut.elapsed() < TTL);
    let held = rig.direct.get("worker/live/a").await.expect("etcd is up");
    assert!(
        held.is_some_and(|entry| entry.lease == Some(old.lease)),
        "the lease still stands"
    );
    timeout(RECOVERY, second.registered())
        .await
        .expect("the successor takes over");
    rig.proxy.pass().await;
    sleep(TTL).await;
    assert!(!old.fence.is_open());
    assert!(first.registration().is_none(), "the key is the successor's");
}

#[tokio::test]
async fn c062_a_deposed_leader_cannot_write() {
    let rig = Rig::start().await;
    let candidate = |store: &Arc<dyn MetaStore>, value: &str| {
        let store = Arc::clone(store);
        let cancel = CancellationToken::new();
        let value = value.as_bytes().to_vec();
        Election::start(store, "controller/leader", value, TTL, cancel).expect("the times fit")
    };
    let elected = async |election: &Election| {
        wait::until("an election", RECOVERY, async || Ok(election.term()))
            .await
            .expect("somebody leads")
    };
    let first = candidate(&rig.proxied, "one");
    let old = elected(&first).await;
    let second = candidate(&rig.direct, "two");
    // The old leader stalls: it cannot even learn that it was deposed.
    rig.proxy.black_hole();
    let new = elected(&second).await;
    assert!(!old.fence.is_open(), "never two at once");
    let commit = async |txn| rig.direct.commit(txn).await.expect("etcd is up");
    let fresh = commit(new.txn(vec![put("plan/state", "new")], Vec::new())).await;
    assert!(matches!(fresh, Outcome::Committed(_)));
    let late = commit(old.txn(vec![put("plan/state", "old")], Vec::new())).await;
    assert_eq!(late, Outcome::Conflict);
    rig.proxy.pass().await;
    let resigned = Instant::now();
    second.close().await;
    let again = elected(&first).await;
    assert!(resigned.elapsed() < RECOVERY);
    assert_ne!(again.guard, old.guard);
    assert!(matches!(again.guard, Compare::CreatedAt(..)));
}
