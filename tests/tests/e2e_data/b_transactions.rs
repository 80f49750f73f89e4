//! Transactions of Kafka's own producer and of librdkafka, committed and aborted.

use std::time::Duration;

use anyhow::{Result, ensure};
use kreplicator_batch::control::{self, Control};
use kreplicator_tests::{
    commands::verify,
    contents::{Rec, producer, read, send, values},
    process::Managed,
    wait,
};
use rdkafka::producer::Producer as _;

use crate::{
    raw::{batches, end, record_count},
    sides::{EXACTLY_ONCE, SIDES},
    stage::{SOON, Stage, scenario},
};

/// Written by Kafka's own producer.
const JAVA: &str = "java-ledger";
/// Written by librdkafka.
const LIBRARY: &str = "library-ledger";
const WRITER: &str = "org.apache.kafka.tools.ProducerPerformance";
/// Records that are committed by Java.
const COMMITTED: usize = 400;
/// Records, at least, of the transactions that are never committed.
const ABANDONED: i64 = 100;

#[test]
fn c016_c018_aborted_transactions_are_passed_over_and_nothing_of_them_is_copied() {
    scenario(async |stage| {
        for topic in [JAVA, LIBRARY] {
            stage.a.create_topic(topic, 1, &[]).await?;
        }
        stage.mirror(&[JAVA, LIBRARY]).await?;
        abandon(stage).await?;
        // Its producer goes on under the name of one that was killed, which aborts what that one had begun;
        // the transaction of the other is aborted when its time is over.
        let count = COMMITTED.to_string();
        let pace = ["--num-records", &count, "--throughput", "2000"];
        let codec = ["--command-property", "compression.type=gzip"];
        let args = [&java("killed", "50")[..], &pace[..], &codec[..]].concat();
        stage.a.tool(WRITER, &args).await?;
        let by_library = commit_and_abort(stage)?;

        let end_of_java = wait::until("the abort of both", SOON, async || {
            let log = batches(&stage.a, JAVA, 0)?;
            let mut aborts = 0;
            for batch in log.iter().filter(|batch| batch.shape().is_control()) {
                aborts += i32::from(matches!(control::parse(batch)?, Control::Abort { .. }));
            }
            Ok((aborts == 2).then(|| end(&log)))
        })
        .await?;
        let all = record_count(&batches(&stage.a, JAVA, 0)?);
        ensure!(
            all >= i64::try_from(COMMITTED)? + ABANDONED,
            "{all} records in all"
        );
        stage.caught_up(JAVA, 0, end_of_java).await?;
        let committed = read(&stage.a, JAVA, 0).await?;
        let numbers: Vec<String> = (0..COMMITTED).map(|number| number.to_string()).collect();
        ensure!(values(&committed) == numbers, "{:?}", values(&committed));
        stage.check_copies(JAVA, 0, &committed).await?;

        let end_of_library = end(&batches(&stage.a, LIBRARY, 0)?);
        stage.caught_up(LIBRARY, 0, end_of_library).await?;
        stage.check_copies(LIBRARY, 0, &by_library).await?;

        let ends = [(JAVA, end_of_java), (LIBRARY, end_of_library)];
        saved(stage, &ends).await?;
        for topic in [JAVA, LIBRARY] {
            stage.check_promises(topic, EXACTLY_ONCE).await?;
        }
        compare(stage, COMMITTED + by_library.len()).await?;
        stage.leave(&[JAVA, LIBRARY]).await
    });
}

/// The arguments of a producer in transactions of so many milliseconds, whose records are numbers.
fn java<'a>(id: &'a str, transaction_ms: &'a str) -> [&'a str; 7] {
    [
        "--topic",
        JAVA,
        "--payload-monotonic",
        "--transactional-id",
        id,
        "--transaction-duration-ms",
        transaction_ms,
    ]
}

/// Kills two producers in mid transaction, which nobody has ended then.
async fn abandon(stage: &Stage) -> Result<()> {
    let endless = ["--num-records", "1000000", "--throughput", "300"];
    let start = |id: &str, codec: &str, timeout: &str| -> Result<Managed> {
        let settings = ["--command-property", codec, timeout, "linger.ms=20"];
        let args = [&java(id, "600000")[..], &endless[..], &settings[..]].concat();
        stage.a.start_tool(id, WRITER, &args)
    };
    let mut producers = [
        start(
            "killed",
            "compression.type=lz4",
            "transaction.timeout.ms=600000",
        )?,
        start(
            "silent",
            "compression.type=zstd",
            "transaction.timeout.ms=5000",
        )?,
    ];
    wait::until_true("two open transactions", SOON, async || {
        let log = batches(&stage.a, JAVA, 0)?;
        let mut ids: Vec<i64> = log.iter().map(|batch| batch.header().producer.id).collect();
        ids.sort_unstable();
        ids.dedup();
        Ok(ids.len() == 2 && record_count(&log) >= ABANDONED)
    })
    .await?;
    for producer in &mut producers {
        producer.kill().await?;
    }
    Ok(())
}

/// Commits and aborts in turn, an abort last; gives what was committed.
fn commit_and_abort(stage: &Stage) -> Result<Vec<Rec>> {
    let settings = [("transactional.id", "library"), ("compression.type", "lz4")];
    let producer = producer(&stage.a, &settings)?;
    producer.init_transactions(SOON)?;
    let mut committed = Vec::new();
    for round in 0..4 {
        producer.begin_transaction()?;
        let records: Vec<_> = (0..10)
            .map(|number| Rec::new(format!("{round},{number}")))
            .collect();
        send(&producer, LIBRARY, 0, &records)?;
        if round % 2 == 0 {
            producer.commit_transaction(SOON)?;
            committed.extend(records);
        } else {
            producer.flush(SOON)?;
            producer.abort_transaction(SOON)?;
        }
    }
    Ok(committed)
}

/// Waits until the ends are saved as offsets of the links' groups, as every tool of Kafka sees them.
async fn saved(stage: &Stage, ends: &[(&str, i64)]) -> Result<()> {
    let lanes: Vec<_> = ends
        .iter()
        .map(|(topic, _)| ((*topic).to_owned(), 0))
        .collect();
    for side in SIDES {
        let group = format!("kreplicator.{}", side.link);
        wait::until_true("the saved ends", Duration::from_secs(20), async || {
            let committed = stage.a.committed(&group, &lanes).await?;
            let saved = committed.into_iter();
            let saved: Vec<_> = saved
                .map(|((topic, _), (offset, _))| (topic, offset))
                .collect();
            let is_all = ends
                .iter()
                .all(|(topic, end)| saved.contains(&((*topic).to_owned(), *end)));
            ensure!(is_all, "{saved:?}, expected {ends:?}");
            Ok(true)
        })
        .await?;
    }
    Ok(())
}

/// `verify` finds as many records on both sides of each link.
async fn compare(stage: &Stage, count: usize) -> Result<()> {
    let topics = [JAVA, LIBRARY];
    let links = SIDES.map(|side| side.in_file(&topics)).concat();
    let clusters = [&stage.a, &stage.b].map(|cluster| {
        let (name, servers) = (cluster.name(), cluster.direct());
        format!("  {name}: {{bootstrap_servers: [\"{servers}\"]}}\n")
    });
    let declared = format!("clusters:\n{}links:\n{links}", clusters.concat());
    for side in SIDES {
        let compared = verify(&declared, side.link).await?;
        ensure!(
            compared == u64::try_from(count)?,
            "{compared} compared, {count} are committed"
        );
    }
    Ok(())
}
