//! What the scenarios share: both clusters, the system, a steady load from the one to the other and
//! a reader of what arrives. The next scenario gets it caught up and with nothing else subscribed.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use kreplicator_proto::v1;
use kreplicator_tests::{
    api::{self, Api},
    checker::{Counts, Lane, Report},
    kafka::{KafkaCluster, KafkaOptions},
    load::{Load, LoadOptions},
    rig::{Placement, lanes},
    settings,
    shared::{self, Shared},
    system::{System, SystemOptions},
    tail::Tail,
    wait,
};
use tokio::time::{Instant, sleep};

/// The link from the cluster of one broker to that of three.
pub(crate) const LINK: &str = "one-three";
/// The topic of the steady load.
pub(crate) const BASE: &str = "orders";
pub(crate) const PARTITIONS: i32 = 12;
/// Records a second over all of its partitions.
const RATE: u32 = 1_000;
/// How long anything may take that takes no time on a machine of its own.
pub(crate) const SOON: Duration = Duration::from_secs(30);
/// Pauses up to this are not told from what the clusters themselves do when topics go or grow large.
pub(crate) const UNDISTURBED: Duration = Duration::from_secs(3);
/// How long the target may need to catch up when all brokers run.
pub(crate) const CATCH_UP: Duration = Duration::from_secs(60);

pub(crate) struct Stage {
    pub(crate) system: System,
    /// Writes to `one`.
    pub(crate) load: Load,
    /// Reads `three`.
    pub(crate) tail: Tail,
    pub(crate) one: KafkaCluster,
    pub(crate) three: KafkaCluster,
    pub(crate) api: Api,
    /// What [`Stage::allowed_pauses`] found: what 99.9 % of the records keep, by partition.
    steady: BTreeMap<Lane, Duration>,
}

/// A committed offset and who committed it, by partition.
pub(crate) type Checkpoints = BTreeMap<Lane, (i64, String)>;

impl Stage {
    async fn start() -> Result<Self> {
        let mut options = SystemOptions::new("brokers", 1, 2);
        // The least there is, so that what cannot be delivered fills it (C036).
        options.set_worker("memory_budget_bytes", "16MiB");
        // C068: whoever asks for a topic that is gone would bring it back.
        let open = |options: KafkaOptions| options.property("auto.create.topics.enable", true);
        let (one, three, system) = futures::try_join!(
            KafkaCluster::start(open(KafkaOptions::single("one"))),
            KafkaCluster::start(open(KafkaOptions::triple("three"))),
            System::start(options),
        )?;
        one.create_topic(BASE, PARTITIONS, &[]).await?;
        let tail = Tail::start(&three.client_config())?;
        tail.follow(BASE);
        let load = start_load(&one, RATE, 100)?;
        load.add(BASE, PARTITIONS);
        let api = system.api()?;
        let mut stage = Self {
            system,
            load,
            tail,
            one,
            three,
            api,
            steady: BTreeMap::new(),
        };
        let begun = async {
            for cluster in [&stage.one, &stage.three] {
                let declared = api::cluster(cluster.name(), cluster.bootstrap());
                stage.api.put_cluster(declared).await?;
            }
            let link = api::link(LINK, "one", "three", "");
            stage.api.put_link(link).await?;
            stage.api.subscribe(vec![api::topic(LINK, BASE)]).await?;
            stage.settle().await
        };
        let begun = begun.await;
        begun.inspect_err(|_| stage.failed())?;
        Ok(stage)
    }

    /// Waits until every task runs and the target has caught up.
    pub(crate) async fn settle(&mut self) -> Result<()> {
        self.system.check()?;
        self.system.wait_running(PARTITIONS, CATCH_UP).await?;
        self.caught_up().await?;
        Ok(())
    }

    /// Brings everything to where a scenario can begin, whatever the one before left.
    async fn recover(&mut self) -> Result<()> {
        for cluster in [&mut self.one, &mut self.three] {
            cluster.restart_all().await?;
            for broker in 0..cluster.size() {
                cluster.thaw(broker)?;
            }
        }
        self.system.recover().await?;
        let all = v1::ListRequest {
            page_size: 1_000,
            ..Default::default()
        };
        let others: Vec<_> = self
            .api
            .list_subscriptions(&all)
            .await?
            .into_iter()
            .filter(|subscription| subscription.id != BASE)
            .filter_map(|other| Some(api::reference(&other.subscription?.link, &other.id)))
            .collect();
        if !others.is_empty() {
            self.api.unsubscribe(others).await?;
        }
        self.settle().await
    }

    pub(crate) fn base_lanes() -> Vec<Lane> {
        lanes(BASE, 0..PARTITIONS)
    }

    /// What the load was told is safe of one topic.
    pub(crate) fn counts_of(&self, topic: &str) -> Counts {
        let mut counts = self.load.acknowledged();
        counts.retain(|(name, _), _| name == topic);
        counts
    }

    /// Waits until everything of the steady load that is safe now is on the target as it was written.
    pub(crate) async fn caught_up(&self) -> Result<Report> {
        let counts = self.counts_of(BASE);
        let report = self.tail.complete(&counts, CATCH_UP).await?;
        ensure!(
            report.is_as_promised(),
            "the target is not a copy: {report}"
        );
        Ok(report)
    }

    /// Who runs each task.
    pub(crate) async fn placement(&self) -> Result<Placement> {
        let tasks = self.api.tasks("").await?.into_iter();
        Ok(tasks
            .map(|task| ((task.topic, task.partition), (task.worker, task.epoch)))
            .collect())
    }

    /// Faults of brokers move nothing between workers.
    pub(crate) async fn check_unmoved(&self, before: &Placement) -> Result<()> {
        let after = self.placement().await?;
        ensure!(
            after == *before,
            "tasks moved: {before:?} before, {after:?} after"
        );
        Ok(())
    }

    /// Committed source offsets of the steady load's topic.
    pub(crate) async fn checkpoints(&self) -> Result<Checkpoints> {
        let group = format!("kreplicator.{LINK}");
        self.one.committed(&group, &Self::base_lanes()).await
    }

    /// Nothing was written again since `start`, or by an engine that does not promise it, nothing that was
    /// saved before. The load is all that ever wrote to
    /// the source, so a record's number is its offset.
    pub(crate) fn check_repeats(&self, start: Instant, saved: &Checkpoints) -> Result<()> {
        let repeats = self.tail.repeats_since(start);
        let count: usize = repeats.values().map(Vec::len).sum();
        println!("{count} records were repeated");
        ensure!(
            repeats.is_empty() || !settings::is_exactly_once(),
            "records were repeated: {repeats:?}"
        );
        for (lane, seqs) in repeats {
            let lowest = seqs.iter().min().copied().unwrap_or_default();
            let (checkpoint, _) = saved.get(&lane).with_context(|| format!("{lane:?}"))?;
            ensure!(
                i64::try_from(lowest)? >= *checkpoint,
                "{lane:?} repeats {lowest}, which was saved: the checkpoint was {checkpoint}"
            );
        }
        Ok(())
    }

    /// The longest pause that partitions may show which nothing was done to: twice what 99.9 % of
    /// their records keep while nothing happens, and at least `floor`. Measured once for each
    /// partition, in a soak anew for each scenario; to be asked for before anything is done.
    pub(crate) async fn allowed_pauses(
        &mut self,
        lanes: &[Lane],
        floor: Duration,
    ) -> BTreeMap<Lane, Duration> {
        if settings::soak() || lanes.iter().any(|lane| !self.steady.contains_key(lane)) {
            let start = Instant::now();
            sleep(Duration::from_secs(5)).await;
            let steady = start..Instant::now();
            for lane in lanes {
                let latency = self.tail.latency(lane, &steady).quantile(999);
                self.steady
                    .insert(lane.clone(), latency.unwrap_or_default());
            }
        }
        let allowed = |lane: &Lane| floor.max(self.steady[lane] * 2);
        lanes
            .iter()
            .map(|lane| (lane.clone(), allowed(lane)))
            .collect()
    }

    /// None of the partitions paused for longer than allowed since `start`.
    pub(crate) fn check_pauses(
        &self,
        start: Instant,
        allowed: &BTreeMap<Lane, Duration>,
    ) -> Result<()> {
        let pauses = self
            .tail
            .pauses_at(allowed.keys(), &(start..Instant::now()));
        let told: Vec<String> = pauses
            .iter()
            .map(|((topic, partition), pause)| {
                let at = pause.from - start;
                format!("{topic}/{partition}: {:.2?} at {at:.1?}", pause.length)
            })
            .collect();
        let told = told.join(", ");
        println!("longest pauses: {told}");
        let too_long = pauses
            .iter()
            .find(|(lane, pause)| pause.length > allowed[*lane]);
        ensure!(
            too_long.is_none(),
            "{too_long:?} is longer than allowed; all: {told}"
        );
        Ok(())
    }

    /// Subscribes a topic of a scenario and waits until all its tasks run.
    pub(crate) async fn subscribe(&self, link: &str, topic: &str, partitions: i32) -> Result<()> {
        self.tail.follow(topic);
        self.api.subscribe(vec![api::topic(link, topic)]).await?;
        let what = format!("{partitions} running tasks of {topic}");
        wait::until_true(&what, SOON, async || {
            let tasks = self.tasks_of(link, topic).await?;
            let running = tasks
                .iter()
                .filter(|task| task.state() == v1::TaskState::Running);
            Ok(i32::try_from(running.count())? == partitions)
        })
        .await
    }

    /// Unsubscribes a topic of a scenario and waits until its tasks are gone.
    pub(crate) async fn unsubscribe(&self, link: &str, topic: &str) -> Result<()> {
        self.tail.leave(topic);
        self.api
            .unsubscribe(vec![api::reference(link, topic)])
            .await?;
        kreplicator_tests::rig::wait_gone(&self.api, link, topic).await
    }

    /// Tasks of one topic, by partition.
    pub(crate) async fn tasks_of(&self, link: &str, topic: &str) -> Result<Vec<v1::Task>> {
        let mut tasks = self.api.tasks(link).await?;
        tasks.retain(|task| task.topic == topic);
        tasks.sort_by_key(|task| task.partition);
        Ok(tasks)
    }

    /// Producers and readers that workers made anew so far.
    pub(crate) async fn rebuilds(&mut self) -> Result<f64> {
        let mut sum = 0.0;
        for worker in self.system.workers().values() {
            let series = worker.metrics().await?.into_iter();
            let rebuilds = series.filter(|(name, _)| name.contains("_rebuilds_total"));
            sum += rebuilds.map(|(_, value)| value).sum::<f64>();
        }
        Ok(sum)
    }

    fn failed(&self) {
        self.one.failed();
        self.three.failed();
        self.system.failed();
    }
}

/// A load whose client does not bring back topics that are gone.
pub(crate) fn start_load(
    cluster: &KafkaCluster,
    records_per_second: u32,
    padding: usize,
) -> Result<Load> {
    let mut config = cluster.client_config();
    config.set("allow.auto.create.topics", "false");
    let options = LoadOptions {
        records_per_second,
        padding,
    };
    Load::start(&config, options)
}

/// Names that a message does not hold.
pub(crate) fn unsaid<'a>(text: &str, names: &[&'a str]) -> BTreeSet<&'a str> {
    let missing = names.iter().filter(|name| !text.contains(*name));
    missing.copied().collect()
}

static SHARED: Shared<Stage> = Shared::new();

/// Runs a scenario, in the tier of end-to-end tests.
pub(crate) fn scenario(run: impl AsyncFnOnce(&mut Stage) -> Result<()>) {
    SHARED.scenario(Stage::start, run);
}

impl shared::Stage for Stage {
    fn check(&mut self) -> Result<()> {
        self.system.check()
    }

    async fn recover(&mut self) -> Result<()> {
        Self::recover(self).await
    }

    async fn settle(&mut self) -> Result<()> {
        Self::settle(self).await
    }

    fn failed(&self) {
        Self::failed(self);
    }
}
