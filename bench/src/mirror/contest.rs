//! One load, copied by each contestant in turn.

use std::time::Duration;

use anyhow::{Context as _, Result};

use super::{
    copy,
    ends::Ends,
    figures::Figures,
    fill::{Shape, fill},
    latency,
    options::{Load, Options},
    peer::{Job, Layout, Peer},
    pulse::Pulse,
    report::{line, say},
    stage::{PARTITIONS, Stage},
};

/// Fills a source topic and lets all contestants copy it; prints the raw figures of each.
///
/// # Errors
/// When a contestant does not copy everything as it was.
pub(crate) async fn run(
    stage: &Stage,
    peers: &[&dyn Peer],
    options: &Options,
    load: Load,
) -> Result<Vec<Figures>> {
    let shape = Shape {
        load,
        batch_bytes: options.batch_bytes,
    };
    let topic = format!("load-{}", load.name());
    stage.source.create_topic(&topic, PARTITIONS, &[]).await?;
    say(&format!("{topic}: writing {} records", options.records));
    let config = stage.source.client_config();
    let bytes = fill(config, shape, topic.clone(), PARTITIONS, options.records).await?;
    let mut all = Vec::new();
    for peer in peers {
        let name = peer.name().name();
        let figures = one(stage, *peer, options, shape, &topic, bytes)
            .await
            .with_context(|| format!("{name} with load {}", load.name()))?;
        line(&figures.json())?;
        all.push(figures);
        stage
            .target
            .delete_topics(&[&peer.target_topic(&topic)])
            .await?;
    }
    stage.source.delete_topics(&[&topic]).await?;
    Ok(all)
}

async fn one(
    stage: &Stage,
    peer: &dyn Peer,
    options: &Options,
    shape: Shape,
    topic: &str,
    bytes: u64,
) -> Result<Figures> {
    let load = shape.load;
    let pulse_topic = format!("pulse-{}-{}", load.name(), peer.name().name());
    let copies = [topic, &pulse_topic].map(|topic| peer.target_topic(topic));
    // Made by the bench, so that all write to topics of the same settings and can be watched at once.
    stage
        .source
        .create_topic(&pulse_topic, PARTITIONS, &[])
        .await?;
    stage.target.create_topics(&copies, PARTITIONS, &[]).await?;
    let [copy_topic, copy_pulse] = copies;
    stage.forget_mm2().await?;
    stage.calm().await?;

    say(&format!("{topic}: {} copies", peer.name().name()));
    let job = Job {
        name: load.name().to_owned(),
        source: stage.source.bootstrap(),
        target: stage.target.bootstrap(),
        topics: vec![topic.to_owned(), pulse_topic.clone()],
        codec: load.codec(),
        layout: Layout::Alone,
    };
    let ends = Ends::of(
        &stage.target.client_config(),
        std::slice::from_ref(&copy_topic),
        PARTITIONS,
    )?;
    let mut running = peer.start(&job).await?;
    let copy = copy::watch(stage, &mut running, &ends, options.records).await?;
    let compared = stage.compare(topic, &copy_topic).await?;
    let repeats = ends.sum().await?.saturating_sub(options.records);
    let latency = match options.latency_seconds {
        0 => None,
        seconds => {
            let time = Duration::from_secs(u64::from(seconds));
            say(&format!("{topic}: latency through {}", peer.name().name()));
            let pulse = Pulse::start(stage, load.codec(), &pulse_topic, &copy_pulse, PARTITIONS)?;
            Some(latency::measure(pulse, &mut running, time).await?)
        }
    };
    Ok(Figures {
        peer: peer.name(),
        load,
        bytes,
        copy,
        repeats,
        compared,
        latency,
    })
}
