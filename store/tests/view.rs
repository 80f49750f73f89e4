//! Views stay true whatever happens to the store and its watches.

mod support;

use std::{sync::Arc, time::Duration};

use kreplicator_store::{
    Change, Delta, EmbeddedOptions, EmbeddedStore, MetaStore, Op, View, ViewOptions,
};
use support::{Flaky, Weather, put, put_leased, within, write};
use tokio::time::{Instant, advance, sleep, timeout};
use tokio_util::sync::CancellationToken;

const MINUTE: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);

fn open(store: &Arc<Flaky>, prefix: &str) -> View {
    View::open(
        Arc::clone(store) as Arc<dyn MetaStore>,
        prefix,
        ViewOptions::default(),
        CancellationToken::new(),
    )
}

async fn next(view: &mut View) -> Delta {
    within(MINUTE, view.next()).await
}

fn text(entry: Option<&kreplicator_store::Entry>) -> Option<&str> {
    entry.map(|entry| std::str::from_utf8(&entry.value).expect("the tests write text"))
}

/// Key, value before, value after.
fn brief(changes: &[Change]) -> Vec<(&str, Option<&str>, Option<&str>)> {
    changes
        .iter()
        .map(|change| {
            (
                change.key.as_str(),
                text(change.before.as_ref()),
                text(change.after.as_ref()),
            )
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn the_first_delta_is_the_snapshot_also_when_it_is_empty() {
    let store = Flaky::new();
    write(&*store, vec![put("a/1", "x"), put("b/1", "y")]).await;
    let mut empty = open(&store, "c/");
    let delta = next(&mut empty).await;
    assert_eq!((delta.reset, delta.changes.len()), (true, 0));
    let mut view = open(&store, "a/");
    assert!(view.entries().is_empty());
    let delta = next(&mut view).await;
    assert!(delta.reset);
    assert_eq!(brief(&delta.changes), [("a/1", None, Some("x"))]);
    assert_eq!(view.revision(), store.list("").await.expect("up").revision);
}

#[tokio::test(start_paused = true)]
async fn changes_come_with_what_was_before() {
    let store = Flaky::new();
    write(&*store, vec![put("a", "1")]).await;
    let mut view = open(&store, "");
    next(&mut view).await;
    write(&*store, vec![put("a", "2"), put("b", "1")]).await;
    let delta = next(&mut view).await;
    assert!(!delta.reset);
    assert_eq!(
        brief(&delta.changes),
        [("a", Some("1"), Some("2")), ("b", None, Some("1"))]
    );
    let revision = write(&*store, vec![Op::Delete("a".to_owned())]).await;
    let delta = next(&mut view).await;
    assert_eq!(brief(&delta.changes), [("a", Some("2"), None)]);
    assert_eq!(view.entries().keys().collect::<Vec<_>>(), ["b"]);
    assert_eq!(view.revision(), revision);
    assert!(view.is_synced());
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_a_slow_consumer_is_merged_by_key() {
    let store = Flaky::new();
    let mut view = open(&store, "");
    next(&mut view).await;
    for n in 0..500 {
        write(
            &*store,
            vec![put("a", &n.to_string()), put(&format!("t/{n}"), "")],
        )
        .await;
        write(&*store, vec![Op::DeletePrefix("t/".to_owned())]).await;
    }
    sleep(SECOND).await;
    let delta = next(&mut view).await;
    assert_eq!(brief(&delta.changes), [("a", None, Some("499"))]);
    let more = timeout(MINUTE, view.next()).await;
    assert!(more.is_err(), "everything was taken: {more:?}");
}

#[tokio::test(start_paused = true)]
async fn a_dropped_wait_loses_nothing() {
    let store = Flaky::new();
    let mut view = open(&store, "");
    next(&mut view).await;
    assert!(timeout(SECOND, view.next()).await.is_err());
    write(&*store, vec![put("a", "1")]).await;
    sleep(SECOND).await;
    assert_eq!(
        brief(&next(&mut view).await.changes),
        [("a", None, Some("1"))]
    );
}

#[tokio::test(start_paused = true)]
async fn c053_what_happened_while_the_watch_was_broken_is_found_by_reading_again() {
    let store = Flaky::new();
    let inner = store.inner();
    let lease = inner.grant(10 * SECOND).await.expect("up");
    let ops = vec![
        put_leased("worker/b", "x", Some(lease)),
        put("worker/a", "x"),
    ];
    write(&*inner, ops).await;
    let mut view = open(&store, "worker/");
    next(&mut view).await;
    store.set(Weather::Silent);
    // B dies meanwhile, C comes and goes, A stays as it is.
    sleep(20 * SECOND).await;
    write(&*inner, vec![put("worker/c", "")]).await;
    write(&*inner, vec![Op::Delete("worker/c".to_owned())]).await;
    assert!(!view.is_synced());
    store.set(Weather::Clear);
    let delta = within(15 * SECOND, view.next()).await;
    assert!(delta.reset);
    assert_eq!(brief(&delta.changes), [("worker/b", Some("x"), None)]);
    within(SECOND, async {
        while !view.is_synced() {
            sleep(SECOND / 10).await
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn c051_compaction_while_away_leads_to_a_full_read() {
    let limited = EmbeddedStore::in_memory_with(EmbeddedOptions {
        history_bytes_max: 2_000,
    });
    let store = Flaky::before(Arc::new(limited));
    let inner = store.inner();
    write(&*inner, vec![put("a", "1"), put("b", "1")]).await;
    let mut view = open(&store, "");
    next(&mut view).await;
    store.set(Weather::Away);
    write(&*inner, vec![Op::Delete("b".to_owned())]).await;
    for n in 0..100 {
        write(&*inner, vec![put("a", &n.to_string())]).await;
    }
    store.set(Weather::Clear);
    let delta = next(&mut view).await;
    assert!(delta.reset);
    assert_eq!(
        brief(&delta.changes),
        [("a", Some("1"), Some("99")), ("b", Some("1"), None)]
    );
    write(&*store, vec![put("c", "1")]).await;
    assert_eq!(
        brief(&next(&mut view).await.changes),
        [("c", None, Some("1"))]
    );
}

#[tokio::test(start_paused = true)]
async fn c052_an_event_that_never_came_is_found_by_the_timer_and_counted() {
    let store = Flaky::new();
    write(&*store, vec![put("a", "1"), put("b", "1"), put("c", "1")]).await;
    let mut view = open(&store, "");
    next(&mut view).await;
    store.swallow_deletes(true);
    let deleted = Instant::now();
    write(&*store, vec![Op::Delete("a".to_owned()), put("b", "2")]).await;
    assert_eq!(
        brief(&next(&mut view).await.changes),
        [("b", Some("1"), Some("2"))]
    );
    assert!(view.entries().contains_key("a"), "nobody told");
    store.swallow_deletes(false);
    let delta = within(6 * MINUTE, view.next()).await;
    assert!(delta.reset);
    assert_eq!(brief(&delta.changes), [("a", Some("1"), None)]);
    assert_eq!(view.drift_total(), 1);
    assert!(deleted.elapsed() >= 4 * MINUTE, "found by the timer");
    // The view goes on and is true again.
    write(&*store, vec![Op::Delete("c".to_owned())]).await;
    assert_eq!(
        brief(&next(&mut view).await.changes),
        [("c", Some("1"), None)]
    );
}

#[tokio::test(start_paused = true)]
async fn changes_under_way_during_a_check_are_no_drift() {
    let store = Flaky::new();
    let options = ViewOptions {
        resync_interval: 3 * SECOND,
        drift_grace: SECOND,
        ..ViewOptions::default()
    };
    let mut view = View::open(
        Arc::clone(&store) as Arc<dyn MetaStore>,
        "",
        options,
        CancellationToken::new(),
    );
    next(&mut view).await;
    let mut deltas = 0;
    // Over some dozen checks keys are made, changed and deleted at every moment.
    for n in 0..2_000 {
        let key = format!("k/{}", n % 7);
        let op = if n % 3 == 0 {
            Op::Delete(key)
        } else {
            put(&key, &n.to_string())
        };
        write(&*store, vec![op]).await;
        advance(Duration::from_millis(37)).await;
        if n % 11 == 0
            && let Ok(delta) = timeout(Duration::from_millis(1), view.next()).await
        {
            assert!(!delta.reset, "no reset while all is well");
            deltas += 1;
        }
    }
    assert!(deltas > 100, "{deltas}");
    while timeout(SECOND, view.next()).await.is_ok() {}
    assert_eq!(view.drift_total(), 0);
    assert_eq!(*view.entries(), store.list("").await.expect("up").entries);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_went_back_is_taken_as_it_is() {
    let store = Flaky::new();
    for n in 0..50 {
        write(&*store, vec![put("a", &n.to_string()), put("b", "same")]).await;
    }
    let mut view = open(&store, "");
    next(&mut view).await;
    let before = view.revision();
    let restored = Arc::new(EmbeddedStore::in_memory());
    let now = write(&*restored, vec![put("a", "old")]).await;
    store.replace(restored);
    sleep(10 * SECOND).await;
    store.set(Weather::Clear);
    let delta = next(&mut view).await;
    assert!(delta.reset);
    assert_eq!(
        brief(&delta.changes),
        [("a", Some("49"), Some("old")), ("b", Some("same"), None)]
    );
    assert!(now < before);
    assert_eq!(view.revision(), now);
    write(&*store, vec![put("c", "")]).await;
    assert_eq!(
        brief(&next(&mut view).await.changes),
        [("c", None, Some(""))]
    );
}

#[tokio::test(start_paused = true)]
async fn c055_a_store_that_is_away_is_asked_seldom() {
    let store = Flaky::new();
    let mut view = open(&store, "");
    next(&mut view).await;
    store.set(Weather::Away);
    sleep(MINUTE).await;
    let before = store.calls();
    sleep(5 * MINUTE).await;
    let per_minute = (store.calls() - before) / 5;
    // At most each 2.5 s, at least each 5 s.
    assert!(
        (11..=25).contains(&per_minute),
        "{per_minute} attempts a minute"
    );
    let health = view.health();
    assert!(!health.synced);
    assert!(
        health.since.elapsed() >= 6 * MINUTE,
        "since it broke, not since the last attempt"
    );
    assert!(
        health
            .error
            .is_some_and(|error| error.contains("it is away"))
    );
    store.set(Weather::Clear);
    assert!(within(6 * SECOND, view.next()).await.reset);
    within(SECOND, async {
        while !view.is_synced() {
            sleep(SECOND / 10).await
        }
    })
    .await;
    assert!(view.health().error.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_dropped_view_lets_go_of_the_store() {
    let store = Flaky::new();
    let mut view = open(&store, "");
    next(&mut view).await;
    drop(view);
    within(SECOND, async {
        while Arc::strong_count(&store) > 1 {
            sleep(SECOND / 100).await;
        }
    })
    .await;
}
