//! Fetch sessions and pipelined produce requests.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kreplicator_model::ids::{Partition, TopicName};
use kreplicator_tests::{
    kafka::{KafkaCluster, KafkaOptions},
    skip::{Tier, skip},
};
use kreplicator_wire::{
    cluster::{ClusterClient, Purpose},
    code::Code,
    connection::Connection,
    fetch::{Answer, Request, Session, Settings},
    produce,
    topic::{BrokerId, TopicPartition},
};
use tokio::time::Instant;

use crate::{
    batch::{NOBODY, Producer, batch, batches},
    bench::{at, client, from, produced, soon},
};

async fn poll(session: &mut Session, connection: &Connection) -> Result<Answer> {
    let version = connection.version::<Request>()?;
    let request = session.next_request(version);
    let response = connection.send(request, soon()).await?;
    Ok(session.apply(response)?)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_tells_news_of_several_topics_and_nothing_else() -> Result<()> {
    if skip(Tier::Component) {
        return Ok(());
    }
    let cluster = KafkaCluster::start(KafkaOptions::single("wire-fetch")).await?;
    let client = client(&cluster);
    let names = ["bees".to_owned(), "ants".to_owned()];
    cluster.create_topics(&names, 2, &[]).await?;
    for by_id in [true, false] {
        session(&cluster, &client, by_id).await?;
    }
    pipeline(&client).await
}

async fn session(cluster: &KafkaCluster, client: &ClusterClient, by_id: bool) -> Result<()> {
    let fetching = client
        .connection(broker(client).await?, Purpose::Fetch(0), soon())
        .await?;
    let mut session = Session::new(Settings {
        wait_max: Duration::from_millis(300),
        ..Settings::default()
    });
    for name in ["ants", "bees"] {
        let ends = cluster.watermarks(name).await?;
        let topic = client.topic(&TopicName::new(name)?, soon()).await?;
        for partition in 0..2 {
            let id = topic.id.filter(|_| by_id);
            let position = from(ends[&partition].1);
            session.update(at(name, partition), id, position);
        }
    }
    let quiet = poll(&mut session, &fetching).await?;
    let empty = |answer: &Answer| answer.partitions.iter().all(|news| news.records.is_empty());
    ensure!(empty(&quiet), "{quiet:?}");
    ensure!(
        quiet.partitions.iter().all(|news| news.code == Code::NONE),
        "{quiet:?}"
    );
    let start = Instant::now();
    let quiet = poll(&mut session, &fetching).await?;
    ensure!(
        quiet.partitions.is_empty(),
        "nothing is told twice: {quiet:?}"
    );
    ensure!(
        start.elapsed() > Duration::from_millis(200),
        "the broker waits"
    );

    let lane = at("bees", 1);
    let offset = session.position(&lane).context("read")?.offset.0;
    let records = batch(NOBODY, 1_700_000_000_000, &["one", "two"]);
    ensure!(produced(client, &lane, records.clone()).await? == offset);
    let news = poll(&mut session, &fetching).await?;
    ensure!(news.partitions.len() == 1, "{news:?}");
    let fetched = &news.partitions[0];
    ensure!(fetched.partition == lane && fetched.offset.0 == offset);
    ensure!(batches(&fetched.records) == [(offset, 2)], "{fetched:?}");
    let sent = records.concat();
    ensure!(
        fetched.records.ends_with(&sent[61..]),
        "the records as sent"
    );
    ensure!(fetched.high_watermark.map(|end| end.0) == Some(offset + 2));
    ensure!(fetched.last_stable_offset == fetched.high_watermark);

    // Not moved: told again. Removed: not any more. Moved: only what follows.
    let again = poll(&mut session, &fetching).await?;
    ensure!(again.partitions.first().map(|news| news.offset.0) == Some(offset));
    let position = session.remove(&lane).context("was read")?;
    ensure!(poll(&mut session, &fetching).await?.partitions.is_empty());
    let id = client
        .topic(&lane.topic, soon())
        .await?
        .id
        .filter(|_| by_id);
    session.update(lane.clone(), id, from(position.offset.0 + 2));
    let moved = poll(&mut session, &fetching).await?;
    ensure!(empty(&moved), "{moved:?}");

    // An offset that is not there is an error of that partition alone.
    session.update(lane.clone(), id, from(1_000_000));
    let out = poll(&mut session, &fetching).await?;
    ensure!(out.partitions.len() == 1, "{out:?}");
    ensure!(
        out.partitions[0].code == Code::OFFSET_OUT_OF_RANGE,
        "{out:?}"
    );
    session.update(lane, id, from(offset));

    // A request whose answer was lost: the session is opened anew by itself.
    let version = fetching.version::<Request>()?;
    let unheard = session.next_request(version);
    fetching.send(unheard, soon()).await?;
    session.lost();
    let news = poll(&mut session, &fetching).await?;
    ensure!(
        news.partitions.iter().any(|news| !news.records.is_empty()),
        "{news:?}"
    );
    // And so it is when the two do not agree on the number of the request.
    let stale = session.next_request(version);
    fetching.send(stale.clone(), soon()).await?;
    let refused = fetching.send(stale, soon()).await?;
    let code = Code(refused.error_code);
    ensure!(code == Code::INVALID_FETCH_SESSION_EPOCH, "{code}");
    ensure!(session.apply(refused)?.partitions.is_empty());
    let news = poll(&mut session, &fetching).await?;
    ensure!(
        news.partitions.iter().any(|news| !news.records.is_empty()),
        "{news:?}"
    );
    Ok(())
}

async fn broker(client: &ClusterClient) -> Result<BrokerId> {
    Ok(client.leader(&at("ants", 0), soon()).await?.broker)
}

/// Five requests on the way for one partition keep their order, each with batches for two.
async fn pipeline(client: &ClusterClient) -> Result<()> {
    let producer = client.init_producer_id(soon()).await?;
    let lanes = [at("ants", 0), at("bees", 0)];
    let connection = client
        .connection(broker(client).await?, Purpose::Produce(1), soon())
        .await?;
    let mut flying = Vec::new();
    for number in 0..5 {
        let mut request = produce::Request::new(Duration::from_secs(10));
        for TopicPartition { topic, partition } in lanes.clone() {
            let id = client.topic(&topic, soon()).await?.id;
            let from = Producer {
                id: producer.id,
                epoch: 0,
                sequence: number * 2,
            };
            let value = "x".repeat(2_000);
            let records = batch(from, 1_700_000_000_000, &[&value, "y"]);
            let batch = produce::Batch {
                topic,
                topic_id: id,
                partition: Partition(partition.0),
                records,
            };
            ensure!(request.add(batch).is_ok());
        }
        flying.push(request.submit(&connection, soon()).await?);
    }
    let mut next = [None, None];
    for flight in flying {
        let answer = flight.answer().await?;
        ensure!(answer.partitions.len() == 2, "{answer:?}");
        for (lane, expected) in lanes.iter().zip(&mut next) {
            let told = answer
                .partitions
                .iter()
                .find(|told| told.partition == *lane);
            let told = told.context("told")?;
            ensure!(told.code == Code::NONE, "{told:?}");
            let base = told.base_offset.context("an offset")?.0;
            ensure!(expected.is_none_or(|expected| expected == base), "{told:?}");
            *expected = Some(base + 2);
        }
    }
    Ok(())
}
