//! A NameNode that is silent, gone, or not alone.

use std::time::Duration;

use kreplicator_dump::store::{FileStore as _, Kind, hdfs::HdfsSettings};
use kreplicator_model::dump::commit::RenameOutcome;
use kreplicator_tests::{ports, proxy::Proxy, wait};
use tokio::time::Instant;

use crate::{
    contract::{content, path, write},
    rig::{RECOVERY, alone, folder, hasty, ready, settings, store, told, write_anew},
};

/// What a call may take on top of its deadline, on a busy machine.
const SLACK: Duration = Duration::from_secs(3);

#[tokio::test(flavor = "multi_thread")]
async fn c086_a_namenode_that_is_silent_holds_nobody_up_and_is_found_again() {
    alone(async |hdfs| {
        let settings = hasty(&hdfs.url(&folder()));
        let deadline = settings.deadline;
        let store = ready(settings).await;
        write(&store, "attempt/file", b"1").await;
        let (source, target) = (path("attempt/file"), path("final/file"));
        hdfs.freeze_namenode().await.expect("it runs");
        let begun = Instant::now();
        let (other, nothing) = (path("attempt/other"), path("nothing"));
        let silent = tokio::join!(
            store.rename(&source, &target),
            store.length(&source),
            store.create(&other),
            store.confirm(&nothing),
            store.delete(&nothing),
            store.list(None, None, 1),
        );
        assert!(begun.elapsed() < deadline + SLACK, "{:?}", begun.elapsed());
        assert_eq!(silent.0, Ok(RenameOutcome::Unknown));
        for error in [
            silent.1.map(drop).expect_err("silent"),
            silent.2.map(drop).expect_err("silent"),
            silent.3.map(drop).expect_err("silent"),
            silent.4.expect_err("silent"),
            silent.5.map(drop).expect_err("silent"),
        ] {
            told(&error, Kind::Unknown, "no answer within 4s");
        }
        hdfs.thaw_namenode().expect("it runs");
        // The rename was sent: it is done now, or later, or never; and one of the names is there all the time.
        wait::until_true("the NameNode", RECOVERY, async || {
            Ok(store.confirm(&source).await.is_ok())
        })
        .await
        .expect("it answers again");
        let again = store.rename(&source, &target).await.expect("an outcome");
        assert!(
            matches!(again, RenameOutcome::Done | RenameOutcome::SourceMissing),
            "{again:?}"
        );
        assert_eq!(store.confirm(&target).await, Ok(Some(1)));
        assert_eq!(store.length(&source).await, Ok(None));
        write_anew(&store, "attempt").await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namenode_that_restarts_has_kept_what_it_has_answered() {
    alone(async |hdfs| {
        let store = ready(settings(&hdfs.url(&folder()))).await;
        write(&store, "attempt/file", b"12345").await;
        write(&store, "attempt/other", b"1").await;
        let renamed = store
            .rename(&path("attempt/file"), &path("final/file"))
            .await;
        assert_eq!(renamed, Ok(RenameOutcome::Done));
        hdfs.kill_namenode().await.expect("it runs");
        let begun = Instant::now();
        let (there, source, target) = (path("final/file"), path("attempt/other"), path("b"));
        let gone = tokio::join!(store.length(&there), store.rename(&source, &target));
        for error in [gone.0.map(drop), gone.1.map(drop)] {
            told(
                &error.expect_err("gone"),
                Kind::Unreachable,
                "is it running",
            );
        }
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "{:?}",
            begun.elapsed()
        );
        hdfs.start_namenode().expect("it starts");
        hdfs.restore().await.expect("it is ready");
        assert_eq!(store.confirm(&path("final/file")).await, Ok(Some(5)));
        let kept = content(&store, "final/file").await;
        assert_eq!(kept.as_deref(), Some(&b"12345"[..]));
        assert_eq!(store.length(&path("attempt/file")).await, Ok(None));
        write_anew(&store, "attempt").await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn safe_mode_refuses_changes_and_ends() {
    alone(async |hdfs| {
        let store = ready(settings(&hdfs.url(&folder()))).await;
        write(&store, "a", b"1").await;
        hdfs.set_safe_mode(true).await.expect("on");
        for error in [
            store
                .create(&path("b"))
                .await
                .map(drop)
                .expect_err("refused"),
            store.make_folder(&path("c")).await.expect_err("refused"),
            store
                .rename(&path("a"), &path("b"))
                .await
                .expect_err("refused"),
            store.confirm(&path("a")).await.expect_err("refused"),
            store.delete(&path("a")).await.expect_err("refused"),
            store.ready().await.expect_err("refused"),
        ] {
            told(&error, Kind::NotNow, "safe mode");
        }
        assert_eq!(
            store.length(&path("a")).await,
            Ok(Some(1)),
            "looking is allowed"
        );
        hdfs.set_safe_mode(false).await.expect("off");
        let renamed = store.rename(&path("a"), &path("b")).await;
        assert_eq!(renamed, Ok(RenameOutcome::Done));
    })
    .await;
}

/// A name service of two, as its configuration tells clients.
fn name_service(first: &str, second: &str, folder: &str) -> HdfsSettings {
    let mut settings = hasty(&format!("hdfs://pair{folder}"));
    settings.properties = [
        ("dfs.nameservices", "pair"),
        ("dfs.ha.namenodes.pair", "first,second"),
        ("dfs.namenode.rpc-address.pair.first", first),
        ("dfs.namenode.rpc-address.pair.second", second),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into();
    settings
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_service_is_served_by_the_namenode_that_is_there() {
    alone(async |hdfs| {
        let nobody = format!("127.0.0.1:{}", ports::free().expect("a port"));
        let store = ready(name_service(&nobody, &hdfs.address(), &folder())).await;
        write(&store, "a", b"1").await;
        assert!(
            store.root().starts_with("hdfs://pair/dumps/"),
            "{}",
            store.root()
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namenode_whose_machine_is_gone_is_passed_by() {
    alone(async |hdfs| {
        let proxy = Proxy::start(hdfs.address()).await.expect("a port");
        let place = folder();
        let settings = name_service(&proxy.address().to_string(), &hdfs.address(), &place);
        let store = ready(settings).await;
        write(&store, "a", b"1").await;
        // Nothing says so: the connection stays, and so does one that is made anew.
        proxy.black_hole();
        let silent = store.length(&path("a")).await.expect_err("silent");
        told(&silent, Kind::Unknown, "no answer");
        wait::until_true("the other NameNode", RECOVERY, async || {
            Ok(store.length(&path("a")).await? == Some(1))
        })
        .await
        .expect("it is found");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c094_where_nobody_listens_that_is_told_at_once() {
    let nobody = format!("127.0.0.1:{}", ports::free().expect("a port"));
    let begun = Instant::now();
    let refusing = store(settings(&format!("hdfs://{nobody}/a")));
    let nameless = store(hasty("hdfs://no-such-host.invalid:8020/a"));
    let (refused, unknown) = tokio::join!(refusing.ready(), nameless.ready());
    told(
        &refused.expect_err("nobody"),
        Kind::Unreachable,
        "is it running",
    );
    assert!(
        begun.elapsed() < Duration::from_secs(15),
        "{:?}",
        begun.elapsed()
    );
    let unknown = unknown.expect_err("no such host");
    assert!(
        matches!(unknown.kind, Kind::Unreachable | Kind::Unknown),
        "{unknown}"
    );
}
