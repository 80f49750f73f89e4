//! Where copying begins and goes on: checkpoints, starts, what is gone.

use kreplicator_model::{
    ids::OwnerEpoch,
    spec::{CheckpointSide, StartPolicy},
};
use kreplicator_worker::engine::TaskSpec;
use rdkafka::{TopicPartitionList, admin::AdminOptions};

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn c001_c005_deleted_source_offsets_are_a_counted_gap_and_nothing_is_reset() -> Result<()> {
    if skip(Tier::Component) {
        return Ok(());
    }
    let cluster = cluster("gaps").await?;
    topic_pair(&cluster, "orders", 2, &[]).await?;
    let records: Vec<_> = (0..50).map(|number| Rec::new(number.to_string())).collect();
    fill(&cluster, "orders", 0, &records)?;
    fill(&cluster, "orders", 1, &records)?;
    commit(&cluster, "orders", 0, 1)?;
    commit(&cluster, "orders", 1, 10_000)?;
    let mut deleted = TopicPartitionList::new();
    deleted.add_partition_offset("orders", 0, rdkafka::Offset::Offset(5))?;
    let options = AdminOptions::new().request_timeout(Some(PATIENCE));
    cluster.admin()?.delete_records(&deleted, &options).await?;

    let engine = engine(quick());
    let context = context(&cluster);
    let below = engine.start(spec("orders", 0), Arc::clone(&context));
    let above = engine.start(spec("orders", 1), Arc::clone(&context));
    let status = caught_up(below.as_ref(), 50).await?;
    assert_eq!(status.gap_records_total, 4, "offsets 1 to 4");
    assert_eq!(status.records_total, 45);
    let status = faulted(above.as_ref(), &["ends at 50, before offset 10000"]).await?;
    assert_eq!(status.records_total, 0);
    assert_eq!(read(&cluster, "copy.orders", 1).await?, Vec::new());

    // An operator decides by resetting the group, as with any consumer.
    commit(&cluster, "orders", 1, 40)?;
    let status = caught_up(above.as_ref(), 50).await?;
    assert_eq!(status.records_total, 10);

    // What is gone stays told, whoever owns the task.
    assert_eq!(below.stop(STOP).await, Stopped::Clean);
    let successor = TaskSpec {
        epoch: OwnerEpoch(99),
        ..spec("orders", 0)
    };
    let below = engine.start(successor, Arc::clone(&context));
    let status = caught_up(below.as_ref(), 50).await?;
    assert_eq!((status.gap_records_total, status.records_total), (4, 0));
    engine.close(PATIENCE).await;
    Ok(())
}

pub(crate) fn commit(
    cluster: &KafkaCluster,
    topic: &str,
    partition: i32,
    offset: i64,
) -> Result<()> {
    commit_as(cluster, topic, partition, offset, "")
}

pub(crate) fn commit_as(
    cluster: &KafkaCluster,
    topic: &str,
    partition: i32,
    offset: i64,
    metadata: &str,
) -> Result<()> {
    use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _};
    let mut config = cluster.client_config();
    config
        .set("group.id", GROUP)
        .set("enable.auto.commit", "false");
    let consumer: BaseConsumer = config.create()?;
    let mut list = TopicPartitionList::new();
    let mut element = list.add_partition(topic, partition);
    element.set_offset(rdkafka::Offset::Offset(offset))?;
    element.set_metadata(metadata);
    Ok(consumer.commit(&list, CommitMode::Sync)?)
}

#[tokio::test(flavor = "multi_thread")]
async fn c001_records_deleted_under_a_stopped_reader_are_reported_and_it_goes_on() -> Result<()> {
    if skip(Tier::Component) {
        return Ok(());
    }
    let cluster = cluster("retention").await?;
    topic_pair(&cluster, "orders", 1, &[]).await?;
    let records = |range: std::ops::Range<i32>| -> Vec<Rec> {
        range.map(|number| Rec::new(number.to_string())).collect()
    };
    fill(&cluster, "orders", 0, &records(0..10))?;
    let engine = engine(quick());
    let context = context(&cluster);
    let task = engine.start(spec("orders", 0), Arc::clone(&context));
    caught_up(task.as_ref(), 10).await?;
    assert_eq!(task.stop(STOP).await, Stopped::Clean);
    fill(&cluster, "orders", 0, &records(10..30))?;
    let mut deleted = TopicPartitionList::new();
    deleted.add_partition_offset("orders", 0, rdkafka::Offset::Offset(25))?;
    let options = AdminOptions::new().request_timeout(Some(PATIENCE));
    cluster.admin()?.delete_records(&deleted, &options).await?;
    let task = engine.start(spec("orders", 0), context);
    let status = caught_up(task.as_ref(), 30).await?;
    assert_eq!((status.gap_records_total, status.records_total), (15, 5));
    engine.close(PATIENCE).await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn c007_a_checkpoint_that_the_broker_forgot_is_written_again_while_idle() -> Result<()> {
    if skip(Tier::Component) {
        return Ok(());
    }
    let cluster = cluster("forgotten").await?;
    topic_pair(&cluster, "orders", 1, &[]).await?;
    let records: Vec<_> = (0..20).map(|number| Rec::new(number.to_string())).collect();
    fill(&cluster, "orders", 0, &records)?;
    let mut config = quick();
    config.recommit_interval = Duration::from_secs(2);
    let engine = engine(config);
    let task = engine.start(spec("orders", 0), context(&cluster));
    caught_up(task.as_ref(), 20).await?;
    let place = [("orders".to_owned(), 0)];
    let is_saved = async || {
        let committed = cluster.committed(GROUP, &place).await?;
        Ok(committed.values().any(|(offset, _)| *offset == 20))
    };
    wait::until_true("the save", PATIENCE, is_saved).await?;
    // Expiry takes more than a minute; deleting the group does to us what expiry does.
    let options = AdminOptions::new().request_timeout(Some(PATIENCE));
    for result in cluster.admin()?.delete_groups(&[GROUP], &options).await? {
        result.map_err(|(group, code)| anyhow::anyhow!("{group}: {code}"))?;
    }
    wait::until_true("the save made again", PATIENCE, is_saved).await?;
    assert_eq!(task.status().records_total, 20, "nothing was copied again");
    engine.close(PATIENCE).await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn checkpoints_on_the_target_go_by_its_topics_and_are_found_again() -> Result<()> {
    if skip(Tier::Component) {
        return Ok(());
    }
    let cluster = cluster("keeper").await?;
    topic_pair(&cluster, "orders", 1, &[]).await?;
    let records: Vec<_> = (0..20).map(|number| Rec::new(number.to_string())).collect();
    fill(&cluster, "orders", 0, &records)?;
    let mut context = (*context(&cluster)).clone();
    context.link.checkpoint_on = CheckpointSide::Target;
    let context = Arc::new(context);
    let first = engine(quick());
    let task = first.start(spec("orders", 0), Arc::clone(&context));
    caught_up(task.as_ref(), 20).await?;
    assert_eq!(task.stop(STOP).await, Stopped::Clean);
    first.close(PATIENCE).await;
    let places = ["orders", "copy.orders"].map(|topic| (topic.to_owned(), 0));
    let committed = cluster.committed(GROUP, &places).await?;
    let committed: Vec<_> = committed
        .iter()
        .map(|((topic, _), (offset, _))| (topic.as_str(), *offset))
        .collect();
    ensure!(committed == [("copy.orders", 20)], "{committed:?}");
    fill(&cluster, "orders", 0, &records[..2])?;
    let second = engine(quick());
    let task = second.start(spec("orders", 0), context);
    let status = caught_up(task.as_ref(), 22).await?;
    assert_eq!(status.records_total, 2, "it goes on from there");
    second.close(PATIENCE).await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn timestamps_as_starts_are_resolved_by_the_source() -> Result<()> {
    if skip(Tier::Component) {
        return Ok(());
    }
    let cluster = cluster("starts").await?;
    topic_pair(&cluster, "orders", 1, &[]).await?;
    let at = |timestamp| Rec {
        timestamp: Some(timestamp),
        ..Rec::new(timestamp.to_string())
    };
    let base = now_ms() - 1_000_000;
    let records: Vec<_> = (0..10).map(|step| at(base + step * 1_000)).collect();
    // A batch each, since brokers look times up by batch and then by record.
    for record in &records {
        fill(&cluster, "orders", 0, std::slice::from_ref(record))?;
    }
    let engine = engine(quick());
    let mut spec = spec("orders", 0);
    spec.start = StartPolicy::Timestamp(kreplicator_model::ids::UnixMillis(base + 3_500));
    let task = engine.start(spec, context(&cluster));
    let status = caught_up(task.as_ref(), 10).await?;
    assert_eq!(status.records_total, 6);
    let copied = read(&cluster, "copy.orders", 0).await?;
    assert!(copied == records[4..], "{copied:?}");
    engine.close(PATIENCE).await;
    Ok(())
}
