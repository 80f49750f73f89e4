//! What an HDFS refuses that is well.

use kreplicator_dump::store::{FileStore as _, Kind, hdfs::HdfsSettings};

use crate::{
    contract::{path, write},
    rig::{alone, folder, ready, settings, store, told, write_bytes},
};

#[tokio::test(flavor = "multi_thread")]
async fn c081_a_used_up_quota_is_told_with_its_remedy_and_passes() {
    alone(async |hdfs| {
        let place = folder();
        let store = ready(settings(&hdfs.url(&place))).await;
        write(&store, "attempt/file", b"1").await;
        let limited = format!("{place}/limited");
        store.make_folder(&path("limited")).await.expect("made");
        // The folder itself counts.
        hdfs.admin(&["-setQuota", "2", &limited])
            .await
            .expect("set");
        write(&store, "limited/one", b"1").await;
        for error in [
            store
                .create(&path("limited/two"))
                .await
                .map(drop)
                .expect_err("full"),
            store
                .make_folder(&path("limited/a/b"))
                .await
                .expect_err("full"),
            store
                .rename(&path("attempt/file"), &path("limited/file"))
                .await
                .expect_err("full"),
        ] {
            told(&error, Kind::Full, "-setQuota");
        }
        assert_eq!(
            store.length(&path("attempt/file")).await,
            Ok(Some(1)),
            "is where it was"
        );
        hdfs.admin(&["-clrQuota", &limited]).await.expect("cleared");
        write(&store, "limited/two", b"1").await;

        // Less than one block.
        hdfs.admin(&["-setSpaceQuota", "1m", &limited])
            .await
            .expect("set");
        let error = write_bytes(&store, &path("limited/three"), 1_000).await;
        told(&error.expect_err("full"), Kind::Full, "-setSpaceQuota");
        let within = ready_in(hdfs.url(&format!("{limited}/root"))).await;
        told(
            &within.expect_err("found out before anything rests on it"),
            Kind::Full,
            "-setSpaceQuota",
        );
    })
    .await;
}

async fn ready_in(url: String) -> kreplicator_dump::store::Result<()> {
    store(settings(&url)).ready().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_without_permission_is_told_so() {
    alone(async |hdfs| {
        let place = folder();
        let owner = ready(settings(&hdfs.url(&place))).await;
        write(&owner, "file", b"1").await;
        let stranger = store(HdfsSettings {
            user: Some("stranger".to_owned()),
            ..settings(&hdfs.url(&place))
        });
        for error in [
            stranger.ready().await.expect_err("denied"),
            stranger
                .create(&path("new"))
                .await
                .map(drop)
                .expect_err("denied"),
            stranger
                .rename(&path("file"), &path("other"))
                .await
                .expect_err("denied"),
            stranger.delete(&path("file")).await.expect_err("denied"),
            stranger.confirm(&path("file")).await.expect_err("denied"),
            stranger.make_folder(&path("a")).await.expect_err("denied"),
        ] {
            told(&error, Kind::Denied, "user=stranger");
            told(&error, Kind::Denied, "-chown");
        }
        assert_eq!(
            stranger.length(&path("file")).await,
            Ok(Some(1)),
            "reading is allowed"
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_where_the_root_should_be_is_told() {
    alone(async |hdfs| {
        let place = folder();
        let above = ready(settings(&hdfs.url(&place))).await;
        write(&above, "file", b"1").await;
        for root in [format!("{place}/file"), format!("{place}/file/below")] {
            let error = ready_in(hdfs.url(&root))
                .await
                .expect_err("a file is there");
            assert_eq!(error.kind, Kind::Taken, "{error}");
        }
    })
    .await;
}
