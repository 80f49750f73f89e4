//! What the scenarios share: both clusters, the system, a link of each engine, and what is asked of both.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kreplicator_proto::v1;
use kreplicator_tests::{
    api::{self, Api},
    contents::{Rec, read},
    kafka::{KafkaCluster, KafkaOptions},
    rig::wait_gone,
    shared::{self, Shared},
    system::{System, SystemOptions},
    wait,
};

use crate::sides::{BATCHES, SIDES, Side};

/// How long anything may take that takes no time on a machine of its own.
pub(crate) const SOON: Duration = Duration::from_secs(60);
/// How long nothing may happen where nothing is to happen: some retries of a faulted task.
const WATCHED: Duration = Duration::from_secs(2);

/// The path that a batch takes, and why that one, as status and metrics name them.
pub(crate) type Way<'a> = (&'a str, &'a str);

pub(crate) struct Stage {
    pub(crate) system: System,
    pub(crate) a: KafkaCluster,
    pub(crate) b: KafkaCluster,
    pub(crate) api: Api,
}

impl Stage {
    async fn start() -> Result<Self> {
        // Cleaned, and given up as transactions, within moments.
        let source = KafkaOptions::single("a")
            .property("log.cleaner.backoff.ms", 200)
            .property(
                "transaction.abort.timed.out.transaction.cleanup.interval.ms",
                500,
            );
        let mut options = SystemOptions::new("data", 1, 1);
        options.set_worker("retry_max", "1s");
        let (a, b, system) = futures::try_join!(
            KafkaCluster::start(source),
            KafkaCluster::start(KafkaOptions::single("b")),
            System::start(options),
        )?;
        let api = system.api()?;
        for cluster in [&a, &b] {
            let declared = api::cluster(cluster.name(), cluster.bootstrap());
            api.put_cluster(declared).await?;
        }
        for side in SIDES {
            api.put_link(side.declared()).await?;
        }
        Ok(Self { system, a, b, api })
    }

    /// Has topics copied by both links.
    pub(crate) async fn mirror(&self, topics: &[&str]) -> Result<()> {
        let subscriptions = SIDES
            .iter()
            .flat_map(|side| topics.iter().map(move |topic| api::topic(side.link, topic)));
        self.api.subscribe(subscriptions.collect()).await?;
        Ok(())
    }

    /// Has them copied no more.
    pub(crate) async fn leave(&self, topics: &[&str]) -> Result<()> {
        let references = SIDES.iter().flat_map(|side| {
            topics
                .iter()
                .map(move |topic| api::reference(side.link, topic))
        });
        self.api.unsubscribe(references.collect()).await?;
        for side in SIDES {
            for topic in topics {
                wait_gone(&self.api, side.link, topic).await?;
            }
        }
        Ok(())
    }

    /// What is told of a task; None: there is none yet.
    pub(crate) async fn task(
        &self,
        side: Side,
        topic: &str,
        partition: i32,
    ) -> Result<Option<v1::Task>> {
        let tasks = self.api.tasks(side.link).await?.into_iter();
        let mut found = tasks.filter(|task| task.topic == topic && task.partition == partition);
        Ok(found.next())
    }

    /// Waits until both links have a partition copied up to the source's last stable offset `end`, with
    /// nothing left; gives what is told of both.
    pub(crate) async fn caught_up(
        &self,
        topic: &str,
        partition: i32,
        end: i64,
    ) -> Result<[v1::TaskReport; 2]> {
        let [first, second] = SIDES.map(|side| self.side_caught_up(side, topic, partition, end));
        let (first, second) = futures::try_join!(first, second)?;
        Ok([first, second])
    }

    async fn side_caught_up(
        &self,
        side: Side,
        topic: &str,
        partition: i32,
        end: i64,
    ) -> Result<v1::TaskReport> {
        let what = format!("{topic}/{partition} of {} at its end {end}", side.link);
        wait::until(&what, SOON, async || {
            let task = self.task(side, topic, partition).await?.context("a task")?;
            let report = task.report.clone().context("a report")?;
            let numbers = (report.checkpoint, report.log_end, report.lag_records);
            let is_running = task.state() == v1::TaskState::Running;
            ensure!(
                is_running && numbers == (Some(end), Some(end), Some(0)),
                "{task:?}"
            );
            Ok(Some(report))
        })
        .await
    }

    /// Waits until both links tell that a partition cannot be copied on from `at`, with a cause that holds
    /// the topic of one side or the other and all of `parts`; and until then, and for a while from then
    /// on, nothing from there on is copied.
    pub(crate) async fn halted(
        &self,
        topic: &str,
        partition: i32,
        at: i64,
        parts: &[&str],
    ) -> Result<()> {
        let place = [format!("partition {partition}"), format!("offset {at}")];
        let place = place.iter().map(String::as_str).chain([topic]);
        let halt = Halt {
            topic,
            partition,
            at,
            parts: parts.iter().copied().chain(place).collect(),
        };
        let [first, second] = SIDES.map(|side| halt.told(self, side));
        futures::try_join!(first, second)?;
        wait::holds_for("the halt", WATCHED, async || {
            for side in SIDES {
                halt.check(self, side).await?;
                let copied = self.copied(side, topic, partition).await?;
                ensure!(copied == (0, at), "{} has {copied:?}", side.link);
            }
            Ok(true)
        })
        .await
    }

    /// First offset and end of the copy of a partition.
    pub(crate) async fn copied(
        &self,
        side: Side,
        topic: &str,
        partition: i32,
    ) -> Result<(i64, i64)> {
        let copy = side.copy_of(topic);
        let what = format!("the range of {copy}/{partition}");
        wait::until(&what, SOON, async || {
            Ok(self.b.watermarks(&copy).await?.get(&partition).copied())
        })
        .await
    }

    /// Checks that both copies of a partition hold `records`, in order and nothing else.
    pub(crate) async fn check_copies(
        &self,
        topic: &str,
        partition: i32,
        records: &[Rec],
    ) -> Result<()> {
        for side in SIDES {
            let copy = read(&self.b, &side.copy_of(topic), partition).await?;
            let differs = copy.iter().zip(records).position(|(copy, of)| copy != of);
            ensure!(
                copy.len() == records.len() && differs.is_none(),
                "{topic}/{partition} of {}: {} records, of {}; the first that differs: {differs:?} {:?}",
                side.link,
                copy.len(),
                records.len(),
                differs.map(|at| (&copy[at], &records[at]))
            );
        }
        Ok(())
    }

    /// Checks what the tasks of a topic's first partition promise, where batches promise `batches`.
    pub(crate) async fn check_promises(
        &self,
        topic: &str,
        batches: (&'static str, &'static str),
    ) -> Result<()> {
        self.check_promise(topic, 0, batches).await
    }

    /// The same of any partition.
    pub(crate) async fn check_promise(
        &self,
        topic: &str,
        partition: i32,
        batches: (&'static str, &'static str),
    ) -> Result<()> {
        for side in SIDES {
            let task = self.task(side, topic, partition).await?.context("a task")?;
            let report = task.report.clone().context("a report")?;
            let told = (report.delivery.as_str(), report.delivery_reason.as_str());
            ensure!(told == side.promise(batches), "{task:?}");
        }
        Ok(())
    }

    /// How many batches of the link of [`BATCHES`] went which way so far, by the worker's metrics.
    pub(crate) async fn went(&mut self, way: Way<'_>) -> Result<u64> {
        let (path, reason) = way;
        let labels = [("link", BATCHES.link), ("path", path), ("reason", reason)];
        let labels = labels.map(|(name, value)| format!("{name}=\"{value}\""));
        let mut sum = 0.0;
        for worker in self.system.workers().values() {
            for (series, value) in worker.metrics().await? {
                let is_of = |label: &String| series.contains(label);
                if series.starts_with("kreplicator_worker_batches_total{")
                    && labels.iter().all(is_of)
                {
                    sum += value;
                }
            }
        }
        ensure!(sum.fract() == 0.0 && sum >= 0.0, "{sum} batches");
        Ok(sum as u64)
    }

    /// Waits until the links promise as much, where that of batches promises `batches`.
    pub(crate) async fn links_promise(&self, batches: (&'static str, &'static str)) -> Result<()> {
        for side in SIDES {
            let what = format!("the promise of {}", side.link);
            wait::until_true(&what, SOON, async || {
                let status = self.api.link(side.link).await?.status.unwrap_or_default();
                let told = (status.delivery.as_str(), status.delivery_reason.as_str());
                ensure!(told == side.promise(batches), "{status:?}");
                Ok(true)
            })
            .await?;
        }
        Ok(())
    }
}

/// A partition that cannot be copied on.
struct Halt<'a> {
    topic: &'a str,
    partition: i32,
    /// The first source offset that is not copied.
    at: i64,
    /// What the cause names.
    parts: Vec<&'a str>,
}

impl Halt<'_> {
    async fn told(&self, stage: &Stage, side: Side) -> Result<()> {
        let what = format!("the fault of {}/{}", self.topic, self.partition);
        wait::until_true(&what, SOON, async || {
            self.check(stage, side).await?;
            Ok(true)
        })
        .await
    }

    async fn check(&self, stage: &Stage, side: Side) -> Result<()> {
        let task = stage.task(side, self.topic, self.partition).await?;
        let task = task.context("a task")?;
        let report = task.report.clone().unwrap_or_default();
        let is_named = self.parts.iter().all(|part| report.cause.contains(part));
        let is_faulted = task.state() == v1::TaskState::Faulted;
        ensure!(
            is_faulted && is_named && report.checkpoint == Some(self.at),
            "expected {:?}: {task:?}",
            self.parts
        );
        Ok(())
    }
}

static SHARED: Shared<Stage> = Shared::new();

/// Runs a scenario on the shared stage, in the tier of end-to-end tests; after one that failed the next
/// gets a new one.
pub(crate) fn scenario(run: impl AsyncFnOnce(&mut Stage) -> Result<()>) {
    SHARED.scenario(Stage::start, run);
}

impl shared::Stage for Stage {
    const OUTLIVES_FAILURE: bool = false;

    fn check(&mut self) -> Result<()> {
        self.system.check()
    }

    fn failed(&self) {
        self.a.failed();
        self.b.failed();
        self.system.failed();
    }
}
