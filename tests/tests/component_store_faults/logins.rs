//! Logins with user and password.

use kreplicator_store::{Error, EtcdConfig, EtcdUser, Revision};
use kreplicator_tests::{folder::RunDir, wait};
use tokio::time::{Instant, sleep, timeout};

use crate::rig::{
    RECOVERY, Rig, SECOND, catches_up, next, put, recovers, session, store, view, write,
};

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
