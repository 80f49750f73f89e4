//! What every metadata store must do: one suite, run against each implementation.

use std::{future::Future, sync::Arc, time::Duration};

use kreplicator_store::{
    Compare, Entry, Error, LeaseId, MetaStore, Op, Outcome, Revision, Txn, Watch, WatchEvent,
    api::TXN_OPS_MAX,
};
use tokio::time::timeout;

/// Longest wait for something that should happen at once.
const SOON: Duration = Duration::from_secs(10);

/// A store under test. Its clock may be real or paused.
pub(crate) trait Fixture {
    /// The store, empty.
    fn store(&self) -> Arc<dyn MetaStore>;
    /// Makes the store forget all history before its newest revision.
    fn compact(&self) -> impl Future<Output = ()>;
}

/// Runs the suite on the fixture that the expression makes.
macro_rules! contract_tests {
    ($attribute:meta, $fixture:expr, $($name:ident),* $(,)?) => {
        $(
            #[$attribute]
            async fn $name() {
                contract::$name(&$fixture.await).await;
            }
        )*
    };
    ($attribute:meta, $fixture:expr) => {
        contract_tests!(
            $attribute,
            $fixture,
            values_carry_the_revisions_that_made_and_wrote_them,
            a_transaction_happens_only_when_every_comparison_holds,
            a_transaction_that_changes_nothing_keeps_the_revision,
            transactions_that_can_never_succeed_are_refused_and_change_nothing,
            a_prefix_is_deleted_whole_and_nothing_beside_it,
            a_large_prefix_is_read_at_one_revision,
            keys_go_with_their_lease_and_not_before,
            a_revoked_lease_is_gone_with_its_keys,
            a_put_moves_a_key_from_lease_to_lease,
            a_watch_replays_history_and_goes_on_live,
            a_watch_gives_whole_revisions,
            a_watch_sees_only_its_prefix,
            a_dropped_wait_loses_no_event,
            c051_a_watch_from_compacted_history_says_so,
            large_revisions_arrive_whole,
        );
    };
}
pub(crate) use contract_tests;

pub(crate) fn put(key: &str, value: &str) -> Op {
    put_leased(key, value, None)
}

pub(crate) fn put_leased(key: &str, value: &str, lease: Option<LeaseId>) -> Op {
    Op::Put {
        key: key.to_owned(),
        value: value.as_bytes().to_vec(),
        lease,
    }
}

pub(crate) async fn commit(store: &dyn MetaStore, compares: Vec<Compare>, ops: Vec<Op>) -> Outcome {
    let txn = Txn { compares, ops };
    store.commit(txn).await.expect("the store is up")
}

pub(crate) async fn write(store: &dyn MetaStore, ops: Vec<Op>) -> Revision {
    match commit(store, Vec::new(), ops).await {
        Outcome::Committed(revision) => revision,
        Outcome::Conflict => panic!("nothing was compared"),
    }
}

pub(crate) async fn get(store: &dyn MetaStore, key: &str) -> Option<Entry> {
    store.get(key).await.expect("the store is up")
}

async fn keys(store: &dyn MetaStore, prefix: &str) -> Vec<String> {
    let snapshot = store.list(prefix).await.expect("the store is up");
    snapshot.entries.into_keys().collect()
}

async fn watch(store: &dyn MetaStore, prefix: &str, from: Revision) -> Box<dyn Watch> {
    store.watch(prefix, from).await.expect("history is kept")
}

/// Events up to and including revision `last`.
async fn events_to(watch: &mut Box<dyn Watch>, last: Revision) -> Vec<WatchEvent> {
    let mut events = Vec::new();
    while events
        .last()
        .is_none_or(|event: &WatchEvent| event.revision < last)
    {
        let next = timeout(SOON, watch.next()).await.expect("in time");
        events.extend(next.expect("the watch runs"));
    }
    events
}

fn brief(events: &[WatchEvent]) -> Vec<(&str, Option<&str>, Revision)> {
    events
        .iter()
        .map(|event| {
            let text = event
                .entry
                .as_ref()
                .map(|entry| std::str::from_utf8(&entry.value).expect("the tests write text"));
            (event.key.as_str(), text, event.revision)
        })
        .collect()
}

pub(crate) async fn values_carry_the_revisions_that_made_and_wrote_them(fixture: &impl Fixture) {
    let store = fixture.store();
    assert_eq!(get(&*store, "a").await, None);
    let first = write(&*store, vec![put("a", "1")]).await;
    let second = write(&*store, vec![put("a", "2"), put("b", "")]).await;
    assert_eq!(second, first.next());
    let entry = get(&*store, "a").await.expect("put");
    assert_eq!(
        (
            entry.value.as_slice(),
            entry.create_revision,
            entry.mod_revision,
            entry.lease
        ),
        (b"2".as_slice(), first, second, None)
    );
    let third = write(&*store, vec![Op::Delete("a".to_owned())]).await;
    assert_eq!(get(&*store, "a").await, None);
    let fourth = write(&*store, vec![put("a", "3")]).await;
    let entry = get(&*store, "a").await.expect("put again");
    assert_eq!(entry.create_revision, fourth, "made anew after {third:?}");
    let snapshot = store.list("").await.expect("up");
    assert_eq!(snapshot.revision, fourth);
    assert_eq!(snapshot.entries.len(), 2);
    assert_eq!(snapshot.entries["b"].mod_revision, second);
}

pub(crate) async fn a_transaction_happens_only_when_every_comparison_holds(fixture: &impl Fixture) {
    let store = fixture.store();
    let made = write(&*store, vec![put("a", "1")]).await;
    let written = write(&*store, vec![put("a", "2")]).await;
    let (a, b) = (|| "a".to_owned(), || "b".to_owned());
    let good = [
        Compare::CreatedAt(a(), made),
        Compare::ModifiedAt(a(), written),
        Compare::Absent(b()),
    ];
    let bad = [
        Compare::Absent(a()),
        Compare::CreatedAt(a(), written),
        Compare::ModifiedAt(a(), made),
        Compare::CreatedAt(b(), made),
        Compare::ModifiedAt(b(), made),
    ];
    for compare in bad {
        let compares = [good.as_slice(), std::slice::from_ref(&compare)].concat();
        let outcome = commit(&*store, compares, vec![put("c", "x")]).await;
        assert_eq!(outcome, Outcome::Conflict, "{compare:?}");
    }
    assert_eq!(get(&*store, "c").await, None);
    let outcome = commit(&*store, good.to_vec(), vec![put("b", "x"), put("a", "3")]).await;
    assert_eq!(outcome, Outcome::Committed(written.next()));
    let entry = get(&*store, "a").await.expect("put");
    assert_eq!(
        (entry.create_revision, entry.mod_revision),
        (made, written.next())
    );
}

pub(crate) async fn a_transaction_that_changes_nothing_keeps_the_revision(fixture: &impl Fixture) {
    let store = fixture.store();
    let revision = write(&*store, vec![put("a", "1")]).await;
    let nothing = vec![Op::Delete("b".to_owned()), Op::DeletePrefix("c".to_owned())];
    assert_eq!(write(&*store, nothing).await, revision);
    assert_eq!(write(&*store, Vec::new()).await, revision);
    let same = write(&*store, vec![put("a", "1")]).await;
    assert_eq!(same, revision.next(), "a put of the same value is a change");
}

pub(crate) async fn transactions_that_can_never_succeed_are_refused_and_change_nothing(
    fixture: &impl Fixture,
) {
    let store = fixture.store();
    let before = write(&*store, vec![put("a/1", "1")]).await;
    let delete = |key: &str| Op::Delete(key.to_owned());
    let refused = [
        vec![put("k", "1"), put("k", "2")],
        vec![put("k", "1"), delete("k")],
        vec![Op::DeletePrefix("a/".to_owned()), put("a/2", "2")],
        vec![put("", "1")],
        (0..=TXN_OPS_MAX)
            .map(|n| put(&format!("n/{n}"), ""))
            .collect(),
        vec![put("k", &"x".repeat(2 << 20))],
    ];
    for ops in refused {
        let what = format!("{:.80?}", ops);
        let txn = Txn {
            compares: Vec::new(),
            ops,
        };
        let refusal = store.commit(txn).await.expect_err(&what);
        assert!(matches!(refusal, Error::Invalid(_)), "{what}: {refusal}");
    }
    let full: Vec<Op> = (0..TXN_OPS_MAX)
        .map(|n| put(&format!("n/{n}"), ""))
        .collect();
    assert_eq!(write(&*store, full).await, before.next());
    // Deleting twice is no contradiction.
    let ops = vec![delete("a/1"), Op::DeletePrefix("a/".to_owned())];
    assert_eq!(write(&*store, ops).await, before.next().next());
}

pub(crate) async fn a_prefix_is_deleted_whole_and_nothing_beside_it(fixture: &impl Fixture) {
    let store = fixture.store();
    let ops = ["a", "a/1", "a/2/x", "a0", "b/a/1"]
        .map(|key| put(key, ""))
        .to_vec();
    write(&*store, ops).await;
    assert_eq!(keys(&*store, "a/").await, ["a/1", "a/2/x"]);
    write(&*store, vec![Op::DeletePrefix("a/".to_owned())]).await;
    assert_eq!(keys(&*store, "").await, ["a", "a0", "b/a/1"]);
}

pub(crate) async fn a_large_prefix_is_read_at_one_revision(fixture: &impl Fixture) {
    const KEYS: usize = 2_300;
    let store = fixture.store();
    let names: Vec<String> = (0..KEYS).map(|n| format!("many/{n:05}")).collect();
    for names in names.chunks(TXN_OPS_MAX) {
        write(&*store, names.iter().map(|name| put(name, "0")).collect()).await;
    }
    // Two keys at opposite ends change together while the prefix is read again and again.
    let writer = {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            for n in 1..60 {
                let value = n.to_string();
                write(
                    &*store,
                    vec![put("many/00000", &value), put("many/02299", &value)],
                )
                .await;
            }
        })
    };
    loop {
        let done = writer.is_finished();
        let snapshot = store.list("many/").await.expect("up");
        assert_eq!(snapshot.entries.len(), KEYS);
        assert_eq!(
            snapshot.entries["many/00000"].value,
            snapshot.entries["many/02299"].value
        );
        let newest = snapshot
            .entries
            .values()
            .map(|entry| entry.mod_revision)
            .max();
        assert!(newest <= Some(snapshot.revision));
        if done {
            break;
        }
        tokio::task::yield_now().await;
    }
    writer.await.expect("every write was committed");
}

pub(crate) async fn keys_go_with_their_lease_and_not_before(fixture: &impl Fixture) {
    let store = fixture.store();
    // etcd grants no less than its election time-out, so ask for more.
    let ttl = Duration::from_secs(3);
    let lease = store.grant(ttl).await.expect("up");
    let kept = store.grant(ttl).await.expect("up");
    let ops = vec![
        put_leased("a", "", Some(lease)),
        put_leased("b", "", Some(kept)),
        put("c", ""),
    ];
    let revision = write(&*store, ops).await;
    assert_eq!(get(&*store, "a").await.expect("put").lease, Some(lease));
    let mut watch = watch(&*store, "", revision.next()).await;
    for _ in 0..3 {
        tokio::time::sleep(ttl / 3).await;
        assert_eq!(store.keep_alive(kept).await.expect("not over"), ttl);
    }
    let gone = timeout(SOON, watch.next())
        .await
        .expect("in time")
        .expect("runs");
    assert_eq!(brief(&gone), [("a", None, revision.next())]);
    assert_eq!(keys(&*store, "").await, ["b", "c"]);
    let ended = store.keep_alive(lease).await.expect_err("over");
    assert!(
        matches!(ended, Error::LeaseGone(id) if id == lease),
        "{ended}"
    );
    let txn = Txn {
        compares: Vec::new(),
        ops: vec![put("d", ""), put_leased("a", "", Some(lease))],
    };
    let refused = store.commit(txn).await.expect_err("over");
    assert!(
        matches!(refused, Error::LeaseGone(id) if id == lease),
        "{refused}"
    );
    assert_eq!(get(&*store, "d").await, None, "all or nothing");
}

pub(crate) async fn a_revoked_lease_is_gone_with_its_keys(fixture: &impl Fixture) {
    let store = fixture.store();
    let lease = store.grant(Duration::from_secs(60)).await.expect("up");
    let ops = vec![
        put_leased("a", "", Some(lease)),
        put_leased("b", "", Some(lease)),
    ];
    let revision = write(&*store, ops).await;
    let mut watch = watch(&*store, "", revision.next()).await;
    store.revoke(lease).await.expect("up");
    assert!(keys(&*store, "").await.is_empty());
    let gone = events_to(&mut watch, revision.next()).await;
    assert_eq!(gone.len(), 2, "together");
    store.revoke(lease).await.expect("again is fine");
    let gone = store.keep_alive(lease).await.expect_err("revoked");
    assert!(matches!(gone, Error::LeaseGone(_)), "{gone}");
}

pub(crate) async fn a_put_moves_a_key_from_lease_to_lease(fixture: &impl Fixture) {
    let store = fixture.store();
    let ttl = Duration::from_secs(60);
    let (one, two) = (
        store.grant(ttl).await.expect("up"),
        store.grant(ttl).await.expect("up"),
    );
    let ops = vec![
        put_leased("moved", "", Some(one)),
        put_leased("freed", "", Some(one)),
    ];
    write(&*store, ops).await;
    write(
        &*store,
        vec![put_leased("moved", "", Some(two)), put("freed", "")],
    )
    .await;
    store.revoke(one).await.expect("up");
    assert_eq!(keys(&*store, "").await, ["freed", "moved"]);
    assert_eq!(get(&*store, "freed").await.expect("kept").lease, None);
    store.revoke(two).await.expect("up");
    assert_eq!(keys(&*store, "").await, ["freed"]);
}

pub(crate) async fn a_watch_replays_history_and_goes_on_live(fixture: &impl Fixture) {
    let store = fixture.store();
    write(&*store, vec![put("a", "0")]).await;
    let from = write(&*store, vec![put("a", "1")]).await;
    write(&*store, vec![Op::Delete("a".to_owned())]).await;
    let mut watch = watch(&*store, "", from).await;
    let last = write(&*store, vec![put("b", "2")]).await;
    let events = events_to(&mut watch, last).await;
    assert_eq!(
        brief(&events),
        [
            ("a", Some("1"), from),
            ("a", None, from.next()),
            ("b", Some("2"), last)
        ]
    );
    let entry = events[2].entry.as_ref().expect("put");
    assert_eq!((entry.create_revision, entry.mod_revision), (last, last));
    // A watch may also start in the future.
    let mut later = store.watch("", last.next().next()).await.expect("opens");
    write(&*store, vec![put("b", "3")]).await;
    let expected = write(&*store, vec![put("b", "4")]).await;
    assert_eq!(
        brief(&events_to(&mut later, expected).await),
        [("b", Some("4"), expected)]
    );
}

pub(crate) async fn a_watch_gives_whole_revisions(fixture: &impl Fixture) {
    let store = fixture.store();
    let from = write(&*store, vec![put("a/0", "")]).await;
    let mut last = from;
    for round in 0..30 {
        let ops = (0..100).map(|n| put(&format!("a/{n}"), &round.to_string()));
        last = write(&*store, ops.collect()).await;
    }
    let mut watch = watch(&*store, "a/", from.next()).await;
    let mut seen = from;
    while seen < last {
        let events = timeout(SOON, watch.next())
            .await
            .expect("in time")
            .expect("runs");
        assert!(!events.is_empty());
        assert_eq!(events.len() % 100, 0, "half a revision");
        assert!(events.is_sorted_by_key(|event| event.revision));
        assert_eq!(events[0].revision, seen.next(), "a revision is missing");
        seen = events[events.len() - 1].revision;
    }
}

pub(crate) async fn a_watch_sees_only_its_prefix(fixture: &impl Fixture) {
    let store = fixture.store();
    let from = write(&*store, vec![put("start", "")]).await.next();
    let mut watch = watch(&*store, "a/", from).await;
    write(&*store, vec![put("a", ""), put("b/1", "")]).await;
    let last = write(&*store, vec![put("a0", ""), put("a/1", "x"), put("c", "")]).await;
    let events = events_to(&mut watch, last).await;
    assert_eq!(brief(&events), [("a/1", Some("x"), last)]);
}

pub(crate) async fn a_dropped_wait_loses_no_event(fixture: &impl Fixture) {
    let store = fixture.store();
    let first = write(&*store, vec![put("a", "0")]).await;
    let mut watch = watch(&*store, "a", first.next()).await;
    let mut events = Vec::new();
    let mut last = first;
    for n in 1..=40 {
        last = write(&*store, vec![put("a", &n.to_string())]).await;
        // Most of these waits are given up at some point under way.
        let patience = Duration::from_micros(50 * (n % 8));
        if let Ok(next) = timeout(patience, watch.next()).await {
            events.extend(next.expect("runs"));
        }
    }
    if events
        .last()
        .is_none_or(|event: &WatchEvent| event.revision < last)
    {
        events.extend(events_to(&mut watch, last).await);
    }
    let revisions: Vec<i64> = events.iter().map(|event| event.revision.0).collect();
    let expected: Vec<i64> = (first.0 + 1..=last.0).collect();
    assert_eq!(revisions, expected);
}

pub(crate) async fn c051_a_watch_from_compacted_history_says_so(fixture: &impl Fixture) {
    let store = fixture.store();
    let first = write(&*store, vec![put("a", "1")]).await;
    write(&*store, vec![Op::Delete("a".to_owned())]).await;
    write(&*store, vec![put("b", "1")]).await;
    fixture.compact().await;
    let refusal = match store.watch("", first).await {
        Err(refusal) => refusal,
        Ok(mut watch) => {
            let next = timeout(SOON, watch.next()).await.expect("in time");
            next.expect_err("that history is gone")
        }
    };
    let Error::Compacted { compacted } = refusal else {
        panic!("{refusal}");
    };
    assert!(compacted > first, "{compacted:?}");
    // A full read and a watch from there go on.
    let snapshot = store.list("").await.expect("up");
    let mut watch = watch(&*store, "", snapshot.revision.next()).await;
    let last = write(&*store, vec![put("c", "x")]).await;
    assert_eq!(
        brief(&events_to(&mut watch, last).await),
        [("c", Some("x"), last)]
    );
}

pub(crate) async fn large_revisions_arrive_whole(fixture: &impl Fixture) {
    let store = fixture.store();
    let from = write(&*store, vec![put("start", "")]).await.next();
    let value = "x".repeat(100_000);
    let mut last = from;
    for round in 0..6 {
        let ops = (0..11).map(|n| put(&format!("big/{n:02}"), &format!("{round}{value}")));
        last = write(&*store, ops.collect()).await;
    }
    let mut watch = watch(&*store, "big/", from).await;
    let mut revisions = Vec::new();
    while revisions.last() != Some(&last) {
        let events = timeout(SOON, watch.next())
            .await
            .expect("in time")
            .expect("runs");
        assert_eq!(events.len() % 11, 0, "half a revision");
        revisions.extend(events.iter().step_by(11).map(|event| event.revision));
        let whole = events.iter().all(|event| {
            event
                .entry
                .as_ref()
                .is_some_and(|entry| entry.value.len() == value.len() + 1)
        });
        assert!(whole, "a value was cut");
    }
    assert_eq!(revisions.len(), 6);
    let snapshot = store
        .list("big/")
        .await
        .expect("pages of any size are read");
    assert_eq!(snapshot.entries.len(), 11);
}
