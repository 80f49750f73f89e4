//! `demo`: two embedded Kafka clusters, a controller and workers in one process; records keep arriving
//! while a topic and a worker are added and a worker is killed. Everything produced is looked for at
//! the target, record by record.
//!
//! - [`kafka`]: an embedded cluster. [`fleet`]: controller and workers.
//! - [`event`], [`producer`]: what is written. [`tail`]: what is read back.
//! - [`ledger`]: what was produced and what arrived.
//! - [`story`]: what happens when. [`view`], [`screen`], [`summary`]: what is shown.

mod event;
mod fleet;
mod kafka;
mod ledger;
mod producer;
mod screen;
mod story;
mod summary;
mod tail;
mod view;

use std::{sync::PoisonError, time::Duration};

use anyhow::Context as _;
use kreplicator_proto::v1::{self, selector::By};
use tokio::time::{Instant, interval, sleep};
use tokio_util::sync::CancellationToken;

use self::{
    fleet::Fleet,
    kafka::EmbeddedKafka,
    ledger::Totals,
    producer::{SharedLedger, Topics, book, produce},
    screen::Screen,
    story::{Act, acts},
    summary::{Deeds, Summary},
    tail::Tail,
    view::View,
};
use crate::{
    args,
    commands::print,
    config::{Log, log::LogFormat},
    exit::Exit,
    links::Declared,
    logging, signals,
};

/// Topics at the start, by name; further ones are numbered.
const TOPICS: [&str; 5] = ["orders", "payments", "clicks", "shipments", "reviews"];
/// The topic that appears later.
const LATE_TOPIC: &str = "refunds";
/// Longest wait for the first record at the target.
const FIRST_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest wait, after the last record was produced, for all to arrive.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);
/// Time between looks at the book.
const LOOK: Duration = Duration::from_millis(100);

/// Runs the demo.
pub(crate) async fn run(args: &args::Demo) -> anyhow::Result<Exit> {
    // What fails on purpose would fill the screen; with --verbose it is all there.
    let filter = if args.verbose { "info" } else { "off" };
    logging::start(&Log {
        format: LogFormat::Text,
        filter: filter.to_owned(),
    })?;
    let mut demo = Demo::start(args).await?;
    let interrupted = CancellationToken::new();
    signals::cancel_on_signal(interrupted.clone())?;
    demo.flow(args.run_for, &interrupted).await?;
    demo.end().await
}

struct Demo {
    start: Instant,
    screen: Screen,
    ledger: SharedLedger,
    topics: Topics,
    partitions: u32,
    source: EmbeddedKafka,
    target: EmbeddedKafka,
    tail: Tail,
    fleet: Fleet,
    stop_producing: CancellationToken,
    /// None until it starts and after it ended.
    producing: Option<tokio::task::JoinHandle<anyhow::Result<()>>>,
    deeds: Deeds,
}

impl Demo {
    async fn start(args: &args::Demo) -> anyhow::Result<Self> {
        let start = Instant::now();
        let screen = Screen::new(start)?;
        let ledger = SharedLedger::default();
        let source = EmbeddedKafka::start("east")?;
        let target = EmbeddedKafka::start("west")?;
        screen.line(&format!(
            "two embedded Kafka clusters: east at {}, west at {}",
            source.bootstrap(),
            target.bootstrap()
        ))?;
        let tail = Tail::start(target.bootstrap(), ledger.clone(), start)?;

        let mut fleet = Fleet::start().await?;
        for id in ["worker-1", "worker-2"] {
            fleet.add_worker(id).await?;
        }
        screen.line(&format!(
            "a controller and two workers; look at them meanwhile with `kreplicator get tasks -e {}`",
            fleet.address()
        ))?;

        let topics = Topics::default();
        let stop_producing = CancellationToken::new();
        let mut demo = Self {
            start,
            screen,
            ledger: ledger.clone(),
            topics: topics.clone(),
            partitions: args.partitions,
            tail,
            fleet,
            stop_producing: stop_producing.clone(),
            producing: None,
            deeds: Deeds::default(),
            source,
            target,
        };
        for index in 0..args.topics {
            demo.add_topic(&topic_name(index))?;
        }
        demo.fleet.declare(&demo.declared()).await?;
        demo.screen.line(&format!(
            "link east-west subscribed to the pattern events\\..*: {} topics with {} partitions each",
            args.topics, args.partitions
        ))?;
        let bootstrap = demo.source.bootstrap().to_owned();
        let (rate, start) = (args.rate, demo.start);
        demo.producing = Some(tokio::spawn(async move {
            produce(&bootstrap, topics, rate, ledger, start, stop_producing).await
        }));
        demo.screen.line(&format!(
            "a producer writes {} records/s to east",
            args.rate
        ))?;
        Ok(demo)
    }

    fn declared(&self) -> Declared {
        let pattern = v1::Pattern {
            include: "events\\..*".to_owned(),
            exclude: Vec::new(),
        };
        Declared {
            clusters: vec![self.source.declare("east"), self.target.declare("west")],
            links: vec![v1::Link {
                id: "east-west".to_owned(),
                source: "east".to_owned(),
                target: "west".to_owned(),
                // A mock cluster cannot say what it has of a producer.
                engine: v1::Engine::Records.into(),
                ..v1::Link::default()
            }],
            subscriptions: vec![v1::Subscription {
                link: "east-west".to_owned(),
                selector: Some(v1::Selector {
                    by: Some(By::Pattern(pattern)),
                }),
                ..v1::Subscription::default()
            }],
            ..Declared::default()
        }
    }

    /// Makes a topic on both clusters, has it read at the target and written to at the source.
    fn add_topic(&mut self, name: &str) -> anyhow::Result<()> {
        // The mock cluster has no call to make topics, so the target's is made here; a real one is made
        // by the controller.
        self.target.create_topic(name, self.partitions)?;
        self.source.create_topic(name, self.partitions)?;
        self.tail.add(name, self.partitions)?;
        let mut topics = self.topics.lock().unwrap_or_else(PoisonError::into_inner);
        topics.push((name.to_owned(), self.partitions));
        self.deeds.topics = topics.len();
        Ok(())
    }

    /// Lets records flow and the story happen, until the time is over or Ctrl-C.
    async fn flow(
        &mut self,
        run_for: Option<Duration>,
        interrupted: &CancellationToken,
    ) -> anyhow::Result<()> {
        self.wait_for_the_first_record(interrupted).await?;
        let began = Instant::now();
        let mut acts = acts(run_for).into_iter().peekable();
        let mut looks = interval(LOOK);
        let mut view = View::new(self.start);
        while interrupted
            .run_until_cancelled(looks.tick())
            .await
            .is_some()
        {
            if run_for.is_some_and(|run_for| began.elapsed() >= run_for) {
                break;
            }
            if self
                .producing
                .as_ref()
                .is_some_and(|producing| producing.is_finished())
            {
                return self.producer_ended().await;
            }
            view.show(&self.ledger, &self.screen)?;
            let is_time = |(_, at): &(Act, Duration)| began.elapsed() >= *at;
            if let Some((act, _)) = acts.next_if(is_time) {
                self.act(act).await?;
            }
            if let Some(line) = view.recovered(&self.ledger) {
                self.screen.line(&line)?;
                self.show_workers().await?;
            }
        }
        Ok(())
    }

    async fn wait_for_the_first_record(
        &self,
        interrupted: &CancellationToken,
    ) -> anyhow::Result<()> {
        let deadline = Instant::now() + FIRST_TIMEOUT;
        while book(&self.ledger).totals(self.start.elapsed()).mirrored == 0 {
            if Instant::now() >= deadline {
                let waited = humantime::format_duration(FIRST_TIMEOUT);
                anyhow::bail!("no record arrived within {waited}; run with --verbose to see why");
            }
            if interrupted.run_until_cancelled(sleep(LOOK)).await.is_none() {
                return Ok(());
            }
        }
        self.screen.line("the first records arrived at west")
    }

    async fn act(&mut self, act: Act) -> anyhow::Result<()> {
        match act {
            Act::AddTopic => {
                let name = format!("events.{LATE_TOPIC}");
                self.add_topic(&name)?;
                self.screen.line(&format!(
                    "+ topic {name} appeared on east with {} partitions; the pattern will find it",
                    self.partitions
                ))
            }
            Act::AddWorker => {
                self.fleet.add_worker("worker-3").await?;
                self.deeds.workers_added += 1;
                self.screen
                    .line("+ worker-3 joined; it gets its fair share, nothing else moves")
            }
            Act::KillWorker => {
                self.show_workers().await?;
                self.fleet.kill_worker("worker-1").await;
                self.deeds.workers_killed += 1;
                self.screen.line(
                    "x worker-1 was killed without a word; the others take over when its lease is over",
                )
            }
        }
    }

    async fn show_workers(&self) -> anyhow::Result<()> {
        let workers = self.fleet.workers().await?;
        let shown = workers
            .iter()
            .map(|worker| format!("{} {}", worker.id, worker.tasks_owned));
        let shown = shown.collect::<Vec<_>>().join(", ");
        self.screen.line(&format!("  tasks: {shown}"))
    }

    async fn producer_ended(&mut self) -> anyhow::Result<()> {
        let Some(producing) = self.producing.take() else {
            return Ok(());
        };
        let ended = producing.await.context("the sample producer broke")?;
        ended.context("the sample producer failed")
    }

    /// Waits until what was produced has arrived, stops the fleet, reads what is left at the target and
    /// gives the verdict.
    async fn end(mut self) -> anyhow::Result<Exit> {
        self.screen
            .line("the producer stops; waiting for what is under way")?;
        self.stop_producing.cancel();
        self.producer_ended().await?;
        let ran = self.start.elapsed();
        let deadline = Instant::now() + DRAIN_TIMEOUT;
        let mut view = View::new(self.start);
        while !book(&self.ledger).is_settled() && Instant::now() < deadline {
            view.show(&self.ledger, &self.screen)?;
            sleep(LOOK).await;
        }
        // Frozen before the wait below, which is no pause of anybody's.
        let settled = book(&self.ledger).totals(self.start.elapsed());
        // A fleet that does not stop well does not change what was counted.
        if let Err(error) = self.fleet.stop().await {
            eprintln!("warning: {error:#}");
        }
        let on_target = self.tail.finish(&self.ledger).await?;
        let totals = Totals {
            longest_pause: settled.longest_pause,
            paused: settled.paused,
            ..book(&self.ledger).totals(self.start.elapsed())
        };
        self.screen.close();
        let summary = Summary::new(&totals, on_target, self.deeds, ran);
        print(&summary.text(&totals))?;
        print(&serde_json::to_string(&summary)?)?;
        Ok(match summary.is_good() {
            true => Exit::Ok,
            false => Exit::Failed,
        })
    }
}

fn topic_name(index: u32) -> String {
    let named = usize::try_from(index)
        .ok()
        .and_then(|index| TOPICS.get(index));
    named.map_or_else(
        || format!("events.topic-{}", index + 1),
        |name| format!("events.{name}"),
    )
}
