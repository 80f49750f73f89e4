//! DataNodes that fail while a file is written.

use std::{collections::BTreeSet, time::Duration};

use bytes::Bytes;
use kreplicator_dump::store::{FileStore as _, FileWriter, Kind, StoreError, hdfs::HdfsSettings};
use kreplicator_tests::{hdfs::Hdfs, wait};
use tokio::time::Instant;

use crate::{
    contract::{content, path},
    rig::{RECOVERY, alone, closed, folder, hasty, ready, settings, write_anew},
};

const PIECE: usize = 1 << 20;

async fn append(file: &mut dyn FileWriter, pieces: usize) -> Result<(), StoreError> {
    for _ in 0..pieces {
        file.write(Bytes::from(vec![b'x'; PIECE])).await?;
    }
    Ok(())
}

/// The DataNodes that have got something since there were those blocks.
async fn writing(hdfs: &Hdfs, before: &BTreeSet<(usize, String)>, count: usize) -> Vec<usize> {
    wait::until("a block that is written", RECOVERY, async || {
        let open = hdfs.open_blocks()?;
        let new: Vec<usize> = open.difference(before).map(|(index, _)| *index).collect();
        Ok((new.len() == count).then_some(new))
    })
    .await
    .expect("the DataNodes get it")
}

#[tokio::test(flavor = "multi_thread")]
async fn c085_a_file_whose_datanode_is_killed_is_whole_or_said_to_be_lost() {
    alone(async |hdfs| {
        let store = ready(HdfsSettings {
            deadline: Duration::from_secs(8),
            ..settings(&hdfs.url(&folder()))
        })
        .await;
        let before = hdfs.open_blocks().expect("readable");
        let mut file = store.create(&path("file")).await.expect("created");
        append(&mut *file, 2).await.expect("written");
        let victim = writing(hdfs, &before, 2).await[0];
        hdfs.kill_datanode(victim).await.expect("it runs");
        let begun = Instant::now();
        let closed = match append(&mut *file, 6).await {
            Ok(()) => file.close().await,
            Err(error) => Err(error),
        };
        match closed {
            Ok(length) => {
                assert_eq!(usize::try_from(length), Ok(8 * PIECE));
                let whole = content(&store, "file").await.expect("is there");
                assert!(whole.len() == 8 * PIECE && whole.iter().all(|&byte| byte == b'x'));
            }
            Err(error) => assert!(
                matches!(error.kind, Kind::Unreachable | Kind::Unknown | Kind::Other),
                "{error}"
            ),
        }
        assert!(
            begun.elapsed() < Duration::from_secs(90),
            "{:?}",
            begun.elapsed()
        );
        write_anew(&store, "again").await;
    })
    .await;
}

/// One copy of each block.
fn single(settings: HdfsSettings) -> HdfsSettings {
    HdfsSettings {
        replication: Some(1),
        ..settings
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c085_a_file_whose_only_datanode_is_killed_is_lost_and_written_anew() {
    alone(async |hdfs| {
        let store = ready(HdfsSettings {
            deadline: Duration::from_secs(8),
            ..single(settings(&hdfs.url(&folder())))
        })
        .await;
        let before = hdfs.open_blocks().expect("readable");
        let mut file = store.create(&path("file")).await.expect("created");
        append(&mut *file, 2).await.expect("written");
        let victim = writing(hdfs, &before, 1).await[0];
        hdfs.kill_datanode(victim).await.expect("it runs");
        let closed = match append(&mut *file, 20).await {
            Ok(()) => file.close().await,
            Err(error) => Err(error),
        };
        let error = closed.expect_err("nobody has its first bytes");
        assert!(
            matches!(error.kind, Kind::Unreachable | Kind::Unknown),
            "{error}"
        );
        assert!(!error.to_string().contains('\n'), "{error}");
        write_anew(&store, "again").await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c086_a_datanode_that_is_silent_holds_a_writer_up_no_longer_than_its_deadline() {
    alone(async |hdfs| {
        let place = folder();
        let settings = single(hasty(&hdfs.url(&place)));
        let deadline = settings.data_deadline;
        let store = ready(settings).await;
        let before = hdfs.open_blocks().expect("readable");
        let mut file = store.create(&path("file")).await.expect("created");
        append(&mut *file, 2).await.expect("written");
        let victim = writing(hdfs, &before, 1).await[0];
        hdfs.freeze_datanode(victim).await.expect("it runs");
        let begun = Instant::now();
        let error = file.close().await.expect_err("nobody answers");
        assert_eq!(error.kind, Kind::Unknown, "{error}");
        assert!(
            begun.elapsed() < deadline + Duration::from_secs(3),
            "{:?}",
            begun.elapsed()
        );
        hdfs.thaw_datanode(victim).expect("it runs");
        write_anew(&store, "again").await;
        // A DataNode whose sync was cut off may never close the block again, but sweeping helps.
        for entry in store.list(None, None, 100).await.expect("up") {
            store.delete(&entry.path).await.expect("deleted");
        }
        closed(hdfs, &place, &[]).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c087_a_file_that_is_dropped_is_closed_while_its_client_writes_another() {
    alone(async |hdfs| {
        let place = folder();
        let store = ready(settings(&hdfs.url(&place))).await;
        let before = hdfs.open_blocks().expect("readable");
        let mut kept = store.create(&path("kept")).await.expect("created");
        append(&mut *kept, 1).await.expect("written");
        let mut dropped = store.create(&path("dropped")).await.expect("created");
        append(&mut *dropped, 1).await.expect("written");
        // One of them is deleted as well: what runs for it ends all the same.
        let mut deleted = store.create(&path("deleted")).await.expect("created");
        append(&mut *deleted, 1).await.expect("written");
        store.delete(&path("deleted")).await.expect("deleted");
        drop((dropped, deleted));
        closed(hdfs, &place, &["kept"]).await;
        wait::until_true("nothing written but two copies", RECOVERY, async || {
            Ok(hdfs.open_blocks()?.difference(&before).count() <= 2)
        })
        .await
        .expect("nothing runs for the others");
        append(&mut *kept, 1).await.expect("it is not disturbed");
        let length = kept.close().await.expect("closed");
        assert_eq!(usize::try_from(length), Ok(2 * PIECE));
        // It is a file like any other, and goes with its folder.
        assert!(store.length(&path("dropped")).await.expect("up").is_some());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_many_blocks_is_synced_at_each_and_reads_back_equal() {
    alone(async |hdfs| {
        let store = ready(HdfsSettings {
            block_size: Some(1 << 20),
            ..settings(&hdfs.url(&folder()))
        })
        .await;
        // Pieces that end before, at and after the ends of blocks.
        let pieces = [300_000, (1 << 20) - 300_000, 1 << 20, 2_500_000, 1];
        let mut whole = Vec::new();
        let mut file = store.create(&path("file")).await.expect("created");
        for (n, length) in pieces.into_iter().enumerate() {
            let piece: Vec<u8> = (0..length)
                .map(|at| u8::try_from((at / 7 + n) % 251).expect("less than 256"))
                .collect();
            whole.extend_from_slice(&piece);
            file.write(piece.into()).await.expect("written");
        }
        let length = file.close().await.expect("closed");
        assert_eq!(usize::try_from(length), Ok(whole.len()));
        assert!(content(&store, "file").await.expect("is there") == whole);
    })
    .await;
}
