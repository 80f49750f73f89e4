//! Changes whose answer is lost.

use std::sync::Arc;

use kreplicator_dump::store::{FileStore, Kind};
use kreplicator_model::dump::commit::RenameOutcome;
use kreplicator_tests::{
    proxy::{Direction, Proxy},
    wait,
};

use crate::{
    contract::{path, write},
    rig::{RECOVERY, alone, closed, folder, ready, settings, told},
};

#[tokio::test(flavor = "multi_thread")]
async fn a_rename_whose_answer_is_lost_is_unknown_and_a_look_tells() {
    alone(async |hdfs| {
        let place = folder();
        let direct = ready(settings(&hdfs.url(&place))).await;
        let proxy = Proxy::start(hdfs.address()).await.expect("a port");
        let url = format!("hdfs://{}{place}", proxy.address());
        let store: Arc<dyn FileStore> = Arc::new(ready(settings(&url)).await);
        write(&*store, "attempt/a", b"1").await;
        write(&*store, "attempt/b", b"22").await;
        let folder = path("final");
        store.make_folder(&folder).await.expect("made");

        proxy.swallow(Direction::FromTarget);
        let (source, target) = (path("attempt/a"), path("final/a"));
        let renaming = tokio::spawn({
            let (store, source, target) = (Arc::clone(&store), source.clone(), target.clone());
            async move { store.rename(&source, &target).await }
        });
        wait::until_true("the rename", RECOVERY, async || {
            Ok(direct.length(&target).await? == Some(1))
        })
        .await
        .expect("it is done");
        proxy.cut();
        let outcome = renaming.await.expect("no panic");
        assert_eq!(outcome, Ok(RenameOutcome::Unknown));
        proxy.pass().await;
        assert_eq!(store.confirm(&target).await, Ok(Some(1)));
        let again = store.rename(&source, &target).await;
        assert_eq!(again, Ok(RenameOutcome::SourceMissing));

        // And one that never arrives.
        let (source, target) = (path("attempt/b"), path("final/b"));
        let sent = proxy.bytes(Direction::ToTarget);
        proxy.swallow(Direction::ToTarget);
        let renaming = tokio::spawn({
            let (store, source, target) = (Arc::clone(&store), source.clone(), target.clone());
            async move { store.rename(&source, &target).await }
        });
        // It waits within the proxy.
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        proxy.cut();
        let outcome = renaming.await.expect("no panic");
        assert_eq!(outcome, Ok(RenameOutcome::Unknown));
        assert_eq!(proxy.bytes(Direction::ToTarget), sent, "nothing has passed");
        proxy.pass().await;
        assert_eq!(store.length(&source).await, Ok(Some(2)));
        let again = store.rename(&source, &target).await;
        assert_eq!(again, Ok(RenameOutcome::Done));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn other_changes_whose_answer_is_lost_are_unknown() {
    alone(async |hdfs| {
        let place = folder();
        let direct = ready(settings(&hdfs.url(&place))).await;
        let proxy = Proxy::start(hdfs.address()).await.expect("a port");
        let url = format!("hdfs://{}{place}", proxy.address());
        let store: Arc<dyn FileStore> = Arc::new(ready(settings(&url)).await);
        write(&*store, "a/file", b"1").await;

        proxy.swallow(Direction::FromTarget);
        let deleting = tokio::spawn({
            let store = Arc::clone(&store);
            async move { store.delete(&path("a")).await }
        });
        wait::until_true("the deletion", RECOVERY, async || {
            Ok(direct.length(&path("a/file")).await?.is_none())
        })
        .await
        .expect("it is done");
        proxy.cut();
        let error = deleting
            .await
            .expect("no panic")
            .expect_err("its answer is lost");
        told(&error, Kind::Unknown, "connection was lost");
        proxy.pass().await;
        store.delete(&path("a")).await.expect("again");

        proxy.swallow(Direction::FromTarget);
        let creating = tokio::spawn({
            let store = Arc::clone(&store);
            async move { store.create(&path("new")).await.map(drop) }
        });
        wait::until_true("the file", RECOVERY, async || {
            Ok(direct.length(&path("new")).await?.is_some())
        })
        .await
        .expect("it is made");
        proxy.cut();
        let error = creating
            .await
            .expect("no panic")
            .expect_err("its answer is lost");
        told(&error, Kind::Unknown, "connection was lost");
        proxy.pass().await;
        // Nobody will write it: it is closed, though its client lives.
        closed(hdfs, &place, &[]).await;
    })
    .await;
}
