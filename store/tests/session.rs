//! Sessions hold their key, fence themselves in time, and come back.

mod support;

use std::{sync::Arc, time::Duration};

use kreplicator_store::{
    Compare, Election, Error, MetaStore, Op, Outcome, Registration, Role, Session, SessionConfig,
    SessionState,
};
use support::{Flaky, Weather, put, within, write};
use tokio::time::{Instant, advance, sleep};
use tokio_util::sync::CancellationToken;

const KEY: &str = "worker/live/w1";
const MINUTE: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);
const TTL: Duration = Duration::from_secs(5);
/// A fifth of the time to live.
const MARGIN: Duration = SECOND;

fn start_as(store: &Arc<Flaky>, key: &str, value: &str) -> Session {
    let config = SessionConfig::new(key, value.as_bytes().to_vec(), TTL);
    let store = Arc::clone(store) as Arc<dyn MetaStore>;
    Session::start(store, config, CancellationToken::new()).expect("the times fit")
}

async fn start(store: &Arc<Flaky>) -> (Session, Registration) {
    let session = start_as(store, KEY, "one");
    let registration = within(MINUTE, session.registered()).await;
    (session, registration)
}

/// The registration with this number.
async fn incarnation(session: &Session, number: u64) -> Registration {
    let mut events = session.events();
    let reached = events.wait_for(|state| {
        matches!(state, SessionState::Registered(registration) if registration.incarnation >= number)
    });
    within(MINUTE, reached).await.expect("the session runs");
    session.registration().expect("it has just been registered")
}

async fn lost(session: &Session) {
    let mut events = session.events();
    let lost = events.wait_for(|state| matches!(state, SessionState::Lost));
    within(MINUTE, lost).await.expect("the session runs");
}

#[tokio::test(start_paused = true)]
async fn a_session_holds_its_key_for_as_long_as_it_lives() {
    let store = Flaky::new();
    let (session, registration) = start(&store).await;
    let entry = store.get(KEY).await.expect("up").expect("registered");
    assert_eq!(entry.value, b"one");
    assert_eq!(entry.lease, Some(registration.lease));
    assert_eq!(entry.create_revision, registration.revision);
    assert_eq!((registration.incarnation, session.incarnation()), (1, 1));
    for _ in 0..600 {
        assert!(registration.fence.is_open());
        // A keep-alive is answered each third of the time to live.
        let least = TTL - MARGIN - TTL / 3 - Duration::from_millis(5);
        assert!(registration.fence.remaining() >= least);
        sleep(SECOND).await;
    }
    session.close().await;
    assert!(!registration.fence.is_open());
    assert_eq!(store.get(KEY).await.expect("up"), None, "gone at once");
}

#[tokio::test(start_paused = true)]
async fn times_that_do_not_fit_are_refused() {
    let store = Flaky::new() as Arc<dyn MetaStore>;
    let good = SessionConfig::new(KEY, Vec::new(), TTL);
    let short = SessionConfig {
        ttl: SECOND / 2,
        fence_margin: SECOND / 10,
        ..good.clone()
    };
    let wide = SessionConfig {
        fence_margin: TTL,
        ..good
    };
    for config in [short, wide] {
        let started = Session::start(Arc::clone(&store), config, CancellationToken::new());
        let refusal = started.expect_err("it could not hold its key");
        assert!(
            matches!(&refusal, Error::Invalid(what) if what.contains(KEY)),
            "{refusal}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn c037_a_session_cut_off_closes_its_fence_before_the_lease_can_end() {
    let store = Flaky::new();
    let (session, registration) = start(&store).await;
    sleep(MINUTE).await;
    let remaining = registration.fence.remaining();
    assert!(remaining <= TTL - MARGIN);
    store.set(Weather::Silent);
    let cut = Instant::now();
    registration.fence.closed().await;
    assert!(cut.elapsed() <= remaining + Duration::from_millis(2));
    let inner = store.inner();
    assert!(
        inner.get(KEY).await.expect("up").is_some(),
        "the lease still stands"
    );
    lost(&session).await;
    // It ends a margin later, and nobody opens the old fence again.
    sleep(MARGIN - Duration::from_millis(100)).await;
    assert!(inner.get(KEY).await.expect("up").is_some());
    sleep(SECOND).await;
    assert!(inner.get(KEY).await.expect("up").is_none());
    store.set(Weather::Clear);
    let second = incarnation(&session, 2).await;
    assert!(second.fence.is_open());
    assert!(
        !registration.fence.is_open(),
        "each registration has its own"
    );
    assert_ne!(second.lease, registration.lease);
}

#[tokio::test(start_paused = true)]
async fn c038_a_process_that_was_frozen_finds_its_fence_closed() {
    let store = Flaky::new();
    let (session, registration) = start(&store).await;
    sleep(MINUTE).await;
    assert!(registration.fence.is_open());
    // The clock goes on while no task of ours runs.
    advance(3 * TTL).await;
    assert!(!registration.fence.is_open());
    let second = incarnation(&session, 2).await;
    assert!(second.fence.is_open());
    assert!(!registration.fence.is_open());
}

#[tokio::test(start_paused = true)]
async fn c058_sessions_whose_leases_were_all_revoked_register_again() {
    let store = Flaky::new();
    let mut sessions = Vec::new();
    for n in 0..20 {
        let key = format!("worker/live/w{n}");
        let session = start_as(&store, &key, "x");
        let registration = within(MINUTE, session.registered()).await;
        sessions.push((key, session, registration));
    }
    sleep(MINUTE).await;
    for (_, _, registration) in &sessions {
        store.revoke(registration.lease).await.expect("up");
    }
    let revoked = Instant::now();
    assert!(store.list("worker/").await.expect("up").entries.is_empty());
    for (key, session, first) in &sessions {
        let second = incarnation(session, 2).await;
        assert!(!first.fence.is_open() && second.fence.is_open());
        let entry = store.get(key).await.expect("up").expect("registered");
        assert_eq!(entry.lease, Some(second.lease));
    }
    assert!(
        revoked.elapsed() <= TTL / 3 + SECOND,
        "{:?}",
        revoked.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_outlived_its_fence_is_kept_under_a_new_incarnation() {
    let store = Flaky::new();
    let (session, first) = start(&store).await;
    let revision = store.list("").await.expect("up").revision;
    store.set(Weather::Away);
    first.fence.closed().await;
    lost(&session).await;
    store.set(Weather::Clear);
    let second = incarnation(&session, 2).await;
    assert_eq!(
        (second.lease, second.revision),
        (first.lease, first.revision)
    );
    assert!(second.fence.is_open() && !first.fence.is_open());
    let after = store.list("").await.expect("up");
    assert_eq!(after.revision, revision, "nobody saw it leave");
}

#[tokio::test(start_paused = true)]
async fn c055_writes_that_are_refused_wait_longer_each_time_though_renewals_succeed() {
    let store = Flaky::new();
    let (session, registration) = start(&store).await;
    store.set(Weather::ReadOnly);
    let before = store.commits();
    let written = session.update_value(b"two".to_vec()).await;
    assert!(written.is_err(), "nothing was written");
    sleep(MINUTE).await;
    let tried = store.commits() - before;
    // Half of 5 s at least between attempts in the end.
    assert!((10..=40).contains(&tried), "{tried} attempts in a minute");
    assert!(
        registration.fence.is_open(),
        "the lease is renewed meanwhile"
    );
    store.set(Weather::Clear);
    sleep(2 * TTL).await;
    let entry = store.get(KEY).await.expect("up").expect("registered");
    assert_eq!(
        (entry.value.as_slice(), session.incarnation()),
        (b"two".as_slice(), 1)
    );
}

#[tokio::test(start_paused = true)]
async fn a_second_process_with_the_same_id_waits_for_the_first() {
    let store = Flaky::new();
    let (first, registration) = start(&store).await;
    let second = start_as(&store, KEY, "two");
    sleep(10 * MINUTE).await;
    assert!(registration.fence.is_open(), "nothing was taken");
    let SessionState::Waiting {
        holder: Some(holder),
    } = second.state()
    else {
        panic!("{:?}", second.state());
    };
    assert_eq!(holder, b"one");
    assert!(!second.fence().is_open());
    assert_eq!((second.lease(), second.incarnation()), (None, 0));
    first.close().await;
    within(SECOND, second.registered()).await;
    let entry = store.get(KEY).await.expect("up").expect("registered");
    assert_eq!(entry.value, b"two");
}

#[tokio::test(start_paused = true)]
async fn a_restarted_process_waits_for_the_lease_of_its_last_life() {
    let store = Flaky::new();
    let (first, _) = start(&store).await;
    let died = Instant::now();
    drop(first);
    let second = start_as(&store, KEY, "one");
    within(MINUTE, second.registered()).await;
    let waited = died.elapsed();
    assert!(
        waited >= TTL - TTL / 3 && waited <= TTL + SECOND,
        "{waited:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_registration_whose_answer_was_lost_is_recognised() {
    let store = Flaky::new();
    store.set(Weather::AnswersLost);
    let session = start_as(&store, KEY, "one");
    sleep(SECOND / 10).await;
    assert!(matches!(session.state(), SessionState::Waiting { .. }));
    session.registered().await;
    let registration = session.registration().expect("the key is its own");
    let entry = store.get(KEY).await.expect("up").expect("registered");
    assert_eq!(entry.lease, Some(registration.lease));
    assert_eq!(entry.create_revision, registration.revision);
    assert_eq!(registration.incarnation, 1);
}

#[tokio::test(start_paused = true)]
async fn a_new_value_is_written_now_and_at_every_registration() {
    let store = Flaky::new();
    let (session, first) = start(&store).await;
    session.update_value(b"two".to_vec()).await.expect("up");
    let entry = store.get(KEY).await.expect("up").expect("registered");
    assert_eq!(entry.value, b"two");
    assert_eq!(entry.lease, Some(first.lease), "still on its lease");
    assert_eq!(entry.create_revision, first.revision, "not made anew");
    store.set(Weather::Away);
    let late = session.update_value(b"three".to_vec()).await;
    assert!(matches!(late, Err(Error::Unavailable(_))), "{late:?}");
    sleep(MINUTE).await;
    store.set(Weather::Clear);
    incarnation(&session, 2).await;
    let entry = store.get(KEY).await.expect("up").expect("registered");
    assert_eq!(entry.value, b"three");
    session.update_value(b"four".to_vec()).await.expect("up");
}

#[tokio::test(start_paused = true)]
async fn a_key_deleted_by_hand_is_noticed() {
    let store = Flaky::new();
    let (session, first) = start(&store).await;
    write(&*store, vec![Op::Delete(KEY.to_owned())]).await;
    let deleted = Instant::now();
    let second = incarnation(&session, 2).await;
    assert!(deleted.elapsed() <= TTL + SECOND, "{:?}", deleted.elapsed());
    assert!(!first.fence.is_open());
    write(&*store, vec![Op::Delete(KEY.to_owned())]).await;
    let deleted = Instant::now();
    session.verify();
    incarnation(&session, 3).await;
    assert!(deleted.elapsed() <= SECOND / 10, "{:?}", deleted.elapsed());
    assert!(!second.fence.is_open());
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_two_fifths_of_the_lease_costs_nothing_whenever_it_begins() {
    for tenths in 0..20 {
        let store = Flaky::new();
        let (session, registration) = start(&store).await;
        sleep(tenths * SECOND / 10).await;
        store.set(Weather::Away);
        sleep(2 * TTL / 5).await;
        store.set(Weather::Clear);
        sleep(MINUTE).await;
        assert!(registration.fence.is_open(), "begun at {tenths}/10 s");
        assert_eq!(session.incarnation(), 1);
        session.close().await;
    }
}

#[tokio::test(start_paused = true)]
async fn c055_a_session_asks_a_store_that_is_away_seldom() {
    let store = Flaky::new();
    let (_session, _) = start(&store).await;
    store.set(Weather::Away);
    sleep(MINUTE).await;
    let before = store.calls();
    sleep(5 * MINUTE).await;
    let per_minute = (store.calls() - before) / 5;
    assert!(
        (6..=25).contains(&per_minute),
        "{per_minute} attempts a minute"
    );
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_session_leaves_as_a_closed_one() {
    let store = Flaky::new();
    let cancel = CancellationToken::new();
    let config = SessionConfig::new(KEY, Vec::new(), TTL);
    let shared = Arc::clone(&store) as Arc<dyn MetaStore>;
    let session = Session::start(shared, config, cancel.clone()).expect("the times fit");
    let registration = within(MINUTE, session.registered()).await;
    cancel.cancel();
    registration.fence.closed().await;
    sleep(SECOND / 10).await;
    assert_eq!(store.get(KEY).await.expect("up"), None);
    session.close().await;
}

const LEADER: &str = "controller/leader";

fn candidate(store: &Arc<Flaky>, value: &str) -> Election {
    let store = Arc::clone(store) as Arc<dyn MetaStore>;
    let value = value.as_bytes().to_vec();
    Election::start(store, LEADER, value, TTL, CancellationToken::new()).expect("the times fit")
}

async fn elected(election: &Election) -> kreplicator_store::Term {
    let mut role = election.role();
    let leading = role.wait_for(|role| role.term().is_some());
    let role = within(MINUTE, leading)
        .await
        .expect("the election runs")
        .clone();
    role.term().cloned().expect("just seen")
}

fn leader_seen_by(election: &Election) -> Option<Vec<u8>> {
    match &*election.role().borrow() {
        Role::Following { leader_value } => leader_value.clone(),
        Role::Leading(_) => panic!("it leads itself"),
    }
}

#[tokio::test(start_paused = true)]
async fn one_candidate_leads_and_the_next_takes_over_when_it_resigns() {
    let store = Flaky::new();
    // Keys that only begin alike are none of its business.
    write(&*store, vec![put("controller/leader2", "x")]).await;
    let first = candidate(&store, "one");
    elected(&first).await;
    let second = candidate(&store, "two");
    let third = candidate(&store, "three");
    sleep(10 * MINUTE).await;
    for follower in [&second, &third] {
        assert_eq!(leader_seen_by(follower).as_deref(), Some(b"one".as_slice()));
        assert!(follower.term().is_none());
    }
    let resigned = Instant::now();
    first.close().await;
    let (next, other) = tokio::select! {
        _ = elected(&second) => (&second, &third),
        _ = elected(&third) => (&third, &second),
    };
    assert!(resigned.elapsed() <= SECOND / 2, "{:?}", resigned.elapsed());
    assert!(next.term().is_some());
    sleep(SECOND).await;
    assert!(other.term().is_none());
    assert!(leader_seen_by(other).is_some_and(|value| value != b"one"));
}

#[tokio::test(start_paused = true)]
async fn c062_the_writes_of_a_deposed_leader_conflict() {
    let store = Flaky::new();
    let first = candidate(&store, "one");
    let old = elected(&first).await;
    let guarded = old.txn(vec![put("plan/state", "1")], Vec::new());
    assert!(matches!(
        store.commit(guarded).await,
        Ok(Outcome::Committed(_))
    ));
    let second = candidate(&store, "two");
    sleep(SECOND).await;
    // The first one's lease is taken away behind its back: it believes that it leads.
    let key = store.get(LEADER).await.expect("up").expect("held");
    store.revoke(key.lease.expect("leased")).await.expect("up");
    let new = elected(&second).await;
    let late = old.txn(vec![put("plan/state", "stale")], Vec::new());
    assert_eq!(store.commit(late).await.expect("up"), Outcome::Conflict);
    let fresh = new.txn(vec![put("plan/state", "2")], Vec::new());
    assert!(matches!(
        store.commit(fresh).await,
        Ok(Outcome::Committed(_))
    ));
    let entry = store.get("plan/state").await.expect("up").expect("written");
    assert_eq!(entry.value, b"2");
    // Told of the conflict, it looks and steps down.
    first.verify();
    within(SECOND, old.fence.closed()).await;
    sleep(SECOND / 10).await;
    assert_eq!(leader_seen_by(&first).as_deref(), Some(b"two".as_slice()));
    assert_ne!(old.guard, new.guard);
    assert!(matches!(&new.guard, Compare::CreatedAt(key, _) if key == LEADER));
}

#[tokio::test(start_paused = true)]
async fn a_leader_cut_off_has_closed_its_fence_before_another_leads() {
    let inner = Flaky::new();
    let (near, far) = (Flaky::before(inner.inner()), Flaky::before(inner.inner()));
    let first = candidate(&near, "one");
    let old = elected(&first).await;
    let second = candidate(&far, "two");
    sleep(MINUTE).await;
    near.set(Weather::Silent);
    let cut = Instant::now();
    let new = elected(&second).await;
    assert!(!old.fence.is_open(), "two leaders at once");
    assert!(first.term().is_none());
    assert!(new.fence.is_open());
    assert!(cut.elapsed() <= TTL + SECOND, "{:?}", cut.elapsed());
    near.set(Weather::Clear);
    within(MINUTE, async {
        while leader_seen_by(&first).as_deref() != Some(b"two") {
            sleep(SECOND / 10).await;
        }
    })
    .await;
    let late = old.txn(vec![put("plan/state", "stale")], Vec::new());
    assert_eq!(inner.commit(late).await.expect("up"), Outcome::Conflict);
}

#[tokio::test(start_paused = true)]
async fn conditions_of_a_guarded_write_still_count() {
    let store = Flaky::new();
    let election = candidate(&store, "one");
    let term = elected(&election).await;
    let absent = vec![Compare::Absent("a".to_owned())];
    let txn = |value| term.txn(vec![put("a", value)], absent.clone());
    assert!(matches!(
        store.commit(txn("1")).await,
        Ok(Outcome::Committed(_))
    ));
    assert_eq!(store.commit(txn("2")).await.expect("up"), Outcome::Conflict);
}
