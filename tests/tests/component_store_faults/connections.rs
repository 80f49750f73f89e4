//! Connections: kept, made again, left for another, and over TLS.

use kreplicator_store::{Error, EtcdConfig, EtcdIdentity, EtcdTls, Revision};
use kreplicator_tests::{etcd::Etcd, proxy::Proxy, wait};
use tokio::time::{Instant, sleep, timeout};

use crate::rig::{
    RECOVERY, Rig, SECOND, catches_up, config, next, put, session, store, view, write,
};

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
async fn c056_a_quiet_watch_lives_on_one_connection() {
    let rig = Rig::start().await;
    let mut from = write(&rig.direct, vec![put("a", "0")]).await.next();
    let mut watch = rig.proxied.watch("", from).await.expect("etcd is up");
    // Pauses longer than the sign of life, the first before there is anything to tell of, and together than
    // several pings: etcd hangs up on clients that ping too often.
    for (n, pause) in [9, 1, 13].into_iter().enumerate() {
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
