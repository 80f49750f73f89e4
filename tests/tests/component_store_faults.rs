//! What the store, views and sessions do when etcd or the way to it fails.

use std::{sync::Arc, time::Duration};

use kreplicator_store::{
    Compare, Delta, Election, Error, EtcdConfig, EtcdIdentity, EtcdStore, EtcdTls, EtcdUser,
    MetaStore, Op, Outcome, Revision, Session, SessionConfig, Txn, View, ViewOptions,
};
use kreplicator_tests::{etcd::Etcd, folder::RunDir, proxy::Proxy, wait};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

const SECOND: Duration = Duration::from_secs(1);
/// Within this a dead peer has to be noticed.
const NOTICE: Duration = Duration::from_secs(10);
/// Within this everything has to be well again once etcd is.
const RECOVERY: Duration = Duration::from_secs(20);
const TTL: Duration = Duration::from_secs(5);

fn config(urls: &[String]) -> EtcdConfig {
    EtcdConfig::new(urls)
}

fn store(config: EtcdConfig) -> Arc<dyn MetaStore> {
    Arc::new(EtcdStore::connect(config).expect("usable settings"))
}

/// An etcd, and a way to it that can be broken.
struct Rig {
    etcd: Etcd,
    proxy: Proxy,
    /// Straight to etcd.
    direct: Arc<dyn MetaStore>,
    /// By the proxy.
    proxied: Arc<dyn MetaStore>,
}

impl Rig {
    async fn start() -> Self {
        Self::start_with(&[]).await
    }

    async fn start_with(flags: &[&str]) -> Self {
        let etcd = Etcd::start_with(flags).await.expect("etcd starts");
        let proxy = Proxy::start(etcd.address()).await.expect("proxy starts");
        Self {
            direct: store(config(&[etcd.endpoint()])),
            proxied: store(config(&[proxy.http_url()])),
            etcd,
            proxy,
        }
    }
}

fn view(store: &Arc<dyn MetaStore>, prefix: &str) -> View {
    let options = ViewOptions::default();
    View::open(Arc::clone(store), prefix, options, CancellationToken::new())
}

fn session(store: &Arc<dyn MetaStore>, key: &str) -> Session {
    let config = SessionConfig::new(key, b"x".to_vec(), TTL);
    Session::start(Arc::clone(store), config, CancellationToken::new()).expect("the times fit")
}

fn put(key: &str, value: &str) -> Op {
    Op::Put {
        key: key.to_owned(),
        value: value.as_bytes().to_vec(),
        lease: None,
    }
}

fn delete(key: &str) -> Op {
    Op::Delete(key.to_owned())
}

async fn write(store: &Arc<dyn MetaStore>, ops: Vec<Op>) -> Revision {
    let compares = Vec::new();
    match store.commit(Txn { compares, ops }).await {
        Ok(Outcome::Committed(revision)) => revision,
        other => panic!("{other:?}"),
    }
}

async fn next(view: &mut View, limit: Duration) -> Delta {
    timeout(limit, view.next()).await.expect("a delta in time")
}

/// Takes deltas until the view holds what the store holds.
async fn catches_up(view: &mut View, store: &Arc<dyn MetaStore>, limit: Duration) {
    let truth = store.list("").await.expect("the store is up").entries;
    let caught_up = timeout(limit, async {
        while *view.entries() != truth {
            view.next().await;
        }
    });
    if caught_up.await.is_err() {
        panic!("{:?}\nis not\n{truth:?}", view.entries());
    }
}

async fn notices(view: &View, limit: Duration) {
    wait::until_true("the view notices", limit, async || Ok(!view.is_synced()))
        .await
        .expect("a dead peer is noticed");
}

async fn recovers(view: &View, limit: Duration) {
    wait::until_true("the view follows again", limit, async || {
        Ok(view.is_synced())
    })
    .await
    .expect("the view recovers");
}

#[tokio::test]
async fn a_store_can_be_made_before_etcd_is_up() {
    let mut etcd = Etcd::start().await.expect("etcd starts");
    etcd.stop().await.expect("it ran");
    let store = store(config(&[etcd.endpoint()]));
    let began = Instant::now();
    let refusal = store.list("").await.expect_err("nobody is there");
    assert!(matches!(refusal, Error::Unavailable(_)), "{refusal}");
    assert!(refusal.to_string().contains(&etcd.endpoint()), "{refusal}");
    assert!(began.elapsed() < 6 * SECOND);
    let mut view = view(&store, "");
    let session = session(&store, "worker/live/a");
    etcd.restart().await.expect("etcd starts");
    assert!(next(&mut view, RECOVERY).await.reset);
    timeout(RECOVERY, session.registered())
        .await
        .expect("in time");
}

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
    rig.etcd.freeze().expect("it runs");
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

#[tokio::test]
async fn c056_a_quiet_watch_lives_on_one_connection() {
    let rig = Rig::start().await;
    let mut from = write(&rig.direct, vec![put("a", "0")]).await.next();
    let mut watch = rig.proxied.watch("", from).await.expect("etcd is up");
    // Pauses longer than the sign of life, and together than several pings: etcd hangs up on
    // clients that ping too often.
    for (n, pause) in [0, 1, 4, 13].into_iter().enumerate() {
        let early = timeout(pause * SECOND, watch.next()).await;
        assert!(early.is_err(), "{early:?}");
        let revision = write(&rig.direct, vec![put("a", &n.to_string())]).await;
        let events = timeout(SECOND, watch.next()).await.expect("in time");
        let events = events.expect("the watch lives");
        assert_eq!((events.len(), events[0].revision), (1, from));
        from = revision.next();
    }
    assert_eq!(rig.proxy.accepted(), 1);
}

#[tokio::test]
async fn an_idle_store_keeps_its_connection() {
    let rig = Rig::start().await;
    rig.proxied.list("").await.expect("etcd is up");
    // Pings without a call under way would make etcd hang up by now.
    sleep(14 * SECOND).await;
    rig.proxied.list("").await.expect("etcd is up");
    assert_eq!(rig.proxy.accepted(), 1);
}

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

fn with_user(url: &str, password: &str) -> EtcdConfig {
    EtcdConfig {
        user: Some(EtcdUser {
            name: "root".to_owned(),
            password: password.to_owned(),
        }),
        ..EtcdConfig::new([url])
    }
}

#[tokio::test]
async fn c060_a_token_that_expired_while_idle_leads_to_a_new_login() {
    let mut rig = Rig::start_with(&["--auth-token-ttl", "2"]).await;
    rig.etcd.enable_auth("secret").await.expect("etcd is up");
    let store = store(with_user(&rig.proxy.http_url(), "secret"));
    let revision = write(&store, vec![put("a", "1")]).await;
    // Any use prolongs a token, so be idle.
    sleep(5 * SECOND).await;
    let mut watch = store.watch("", revision).await.expect("logged in again");
    let events = timeout(SECOND, watch.next()).await.expect("in time");
    assert_eq!(events.expect("the watch runs").len(), 1);
    assert_eq!(rig.proxy.accepted(), 2, "one more login");
    drop(watch);
    sleep(5 * SECOND).await;
    write(&store, vec![put("a", "2")]).await;
    assert_eq!(rig.proxy.accepted(), 3, "one more login");
}

#[tokio::test]
async fn c060_tokens_that_expire_in_use_or_are_forgotten_stop_nothing() {
    let folder = RunDir::new("jwt").expect("a folder");
    let key = folder.path().join("key");
    std::fs::write(&key, "not a secret, for tests only").expect("written");
    let token = format!("jwt,priv-key={},sign-method=HS256,ttl=3s", key.display());
    let mut rig = Rig::start_with(&["--auth-token", &token]).await;
    rig.etcd.enable_auth("secret").await.expect("etcd is up");
    let store = store(with_user(&rig.proxy.http_url(), "secret"));
    let mut view = view(&store, "");
    next(&mut view, RECOVERY).await;
    let session = session(&store, "worker/live/a");
    timeout(RECOVERY, session.registered())
        .await
        .expect("in time");
    for n in 0..5 {
        sleep(2 * SECOND).await;
        write(&store, vec![put("a", &n.to_string())]).await;
        catches_up(&mut view, &store, RECOVERY).await;
    }
    let logins = rig.proxy.accepted();
    assert!((3..=8).contains(&logins), "{logins} logins in ten seconds");
    assert_eq!(
        session.incarnation(),
        1,
        "the lease was kept through it all"
    );
    // A restarted etcd has another revision of its users, and knows no connection.
    rig.etcd.restart().await.expect("etcd starts");
    recovers(&view, RECOVERY).await;
    write(&store, vec![put("a", "last")]).await;
    catches_up(&mut view, &store, RECOVERY).await;
    wait::until_true("an open fence", RECOVERY, async || {
        Ok(session.fence().is_open())
    })
    .await
    .expect("the session goes on");
}

#[tokio::test]
async fn c060_a_wrong_password_is_refused_clearly_and_not_tried_in_a_tight_loop() {
    let mut rig = Rig::start().await;
    rig.etcd.enable_auth("secret").await.expect("etcd is up");
    let wrong = store(with_user(&rig.proxy.http_url(), "wrong"));
    let refusal = wrong.list("").await.expect_err("wrong password");
    assert!(matches!(refusal, Error::Denied(_)), "{refusal}");
    assert!(
        refusal.to_string().contains("check user and password"),
        "{refusal}"
    );
    let began = Instant::now();
    let mut calls = 0_u32;
    while began.elapsed() < 5 * SECOND {
        let refusal = wrong.list("").await.expect_err("still wrong");
        assert!(matches!(refusal, Error::Denied(_)), "{refusal}");
        calls += 1;
        sleep(SECOND / 100).await;
    }
    assert!(calls > 100, "callers are answered at once");
    assert!(rig.proxy.accepted() <= 6, "{} logins", rig.proxy.accepted());
    // Without any login the refusal is as clear.
    let refusal = rig.direct.list("").await.expect_err("no login");
    assert!(matches!(refusal, Error::Denied(_)), "{refusal}");
}

#[tokio::test]
async fn a_login_that_etcd_does_not_ask_for_does_no_harm() {
    let rig = Rig::start().await;
    let store = store(with_user(&rig.etcd.endpoint(), "whatever"));
    write(&store, vec![put("a", "1")]).await;
    let mut watch = store.watch("", Revision(1)).await.expect("etcd is up");
    assert_eq!(watch.next().await.expect("runs").len(), 1);
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

#[tokio::test]
async fn a_dead_endpoint_beside_a_good_one_costs_nothing() {
    let rig = Rig::start().await;
    let dead = Proxy::start("127.0.0.1:1").await.expect("proxy starts");
    dead.refuse().await;
    let swallowing = Proxy::start(rig.etcd.address())
        .await
        .expect("proxy starts");
    swallowing.black_hole();
    let urls = [dead.http_url(), swallowing.http_url(), rig.etcd.endpoint()];
    let store = store(config(&urls));
    let began = Instant::now();
    // The one that swallows takes the connection but answers nothing: reads turn to the next.
    let read = wait::until("a read", RECOVERY, async || Ok(Some(store.list("").await?)));
    read.await.expect("the third endpoint is good");
    assert!(began.elapsed() < 7 * SECOND, "{:?}", began.elapsed());
    write(&store, vec![put("a", "1")]).await;
}

#[tokio::test]
async fn a_restored_etcd_is_taken_as_it_is() {
    let mut rig = Rig::start().await;
    for n in 0..20 {
        write(&rig.direct, vec![put("a", &n.to_string()), put("b", "1")]).await;
    }
    let mut view = view(&rig.direct, "");
    next(&mut view, RECOVERY).await;
    let before = view.revision();
    rig.etcd.restart_empty().await.expect("etcd starts");
    catches_up(&mut view, &rig.direct, RECOVERY).await;
    assert!(view.entries().is_empty());
    assert!(view.revision() < before);
    write(&rig.direct, vec![put("c", "1")]).await;
    catches_up(&mut view, &rig.direct, RECOVERY).await;
}

#[tokio::test]
async fn tls_needs_the_right_authority_and_our_certificate() {
    let etcd = Etcd::start_tls().await.expect("etcd starts");
    let files = etcd.certificates().expect("it speaks TLS");
    let read = |path| std::fs::read(path).expect("made by the harness");
    let tls = EtcdTls {
        ca: read(files.ca()),
        identity: Some(EtcdIdentity {
            certificate: read(files.client_certificate()),
            key: read(files.client_key()),
        }),
        server_name: None,
    };
    let with = |tls: EtcdTls| {
        store(EtcdConfig {
            tls: Some(tls),
            ..EtcdConfig::new([etcd.endpoint()])
        })
    };
    let good = with(tls.clone());
    write(&good, vec![put("a", "1")]).await;
    let mut watch = good.watch("", Revision(1)).await.expect("etcd is up");
    assert_eq!(watch.next().await.expect("runs").len(), 1);
    let nameless = with(EtcdTls {
        identity: None,
        ..tls.clone()
    });
    let stranger = with(EtcdTls {
        ca: read(files.client_certificate()),
        ..tls.clone()
    });
    let misnamed = with(EtcdTls {
        server_name: Some("etcd.example".to_owned()),
        ..tls
    });
    for (store, what) in [
        (nameless, "a client without certificate"),
        (stranger, "a server of another authority"),
        (misnamed, "a server of another name"),
    ] {
        let refusal = store.get("a").await.expect_err(what);
        assert!(
            matches!(refusal, Error::Unavailable(_)),
            "{what}: {refusal}"
        );
    }
}
