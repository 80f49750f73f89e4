//! Two clusters, a link between them, a steady load on five topics of eight partitions, a system
//! that copies them, and a reader that watches the target: what end-to-end scenarios share.
//!
//! The tests of one program share one ([`crate::shared`]).

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    time::Duration,
};

use anyhow::{Result, ensure};
use tokio::time::{Instant, sleep_until};

use crate::{
    api::{self, Api},
    arrivals::Window,
    checker::{Counts, Lane, Report},
    kafka::{KafkaCluster, KafkaOptions},
    load::{Load, LoadOptions},
    settings,
    shared::{Shared, Stage},
    system::{System, SystemOptions},
    tail::Tail,
    wait,
};

/// The link that copies the base topics, which keep their names.
pub const LINK: &str = "a-b";
/// The topics of the steady load.
pub const TOPICS: [&str; 5] = ["clicks", "orders", "payments", "searches", "views"];
/// Partitions of each.
pub const PARTITIONS: i32 = 8;
/// Records a second over all partitions.
pub const RATE: u32 = 2_000;
/// Pauses up to this are not told from noise of a busy machine.
pub const NOISE: Duration = Duration::from_secs(1);
/// How long the target may need to catch up when everything runs.
pub const CATCH_UP: Duration = Duration::from_secs(60);

/// Everything together.
#[derive(Debug)]
pub struct Rig {
    /// The system under test.
    pub system: System,
    /// The load on `source`.
    pub load: Load,
    /// The reader of `target`.
    pub tail: Tail,
    /// The cluster that is copied from, `a`.
    pub source: KafkaCluster,
    /// The cluster that is copied to, `b`.
    pub target: KafkaCluster,
    /// A client of the controllers.
    pub api: Api,
    /// What [`Rig::allowed_pauses`] found, by partition.
    allowed: Option<BTreeMap<Lane, Duration>>,
}

/// Who runs a task: worker and epoch.
pub type Placement = BTreeMap<Lane, (String, u64)>;

impl Rig {
    /// Starts clusters and system, subscribes the base topics and waits until they flow.
    ///
    /// # Errors
    /// When something does not start.
    pub async fn start(options: SystemOptions) -> Result<Self> {
        let small = |name: &str| {
            // 500 more topics are made on it in one scenario.
            KafkaOptions {
                heap_mebibytes: 512,
                ..KafkaOptions::single(name)
            }
        };
        let (source, target, system) = futures::try_join!(
            KafkaCluster::start(small("a")),
            KafkaCluster::start(small("b")),
            System::start(options),
        )?;
        let names = TOPICS.map(String::from);
        source.create_topics(&names, PARTITIONS, &[]).await?;
        let tail = Tail::start(&target.client_config())?;
        let load = Load::start(
            &source.client_config(),
            LoadOptions {
                records_per_second: RATE,
                padding: 100,
            },
        )?;
        for topic in TOPICS {
            tail.follow(topic);
            load.add(topic, PARTITIONS);
        }
        let api = system.api()?;
        let mut rig = Self {
            system,
            load,
            tail,
            source,
            target,
            api,
            allowed: None,
        };
        rig.declare().await.inspect_err(|_| rig.failed())?;
        rig.settle().await.inspect_err(|_| rig.failed())?;
        Ok(rig)
    }

    async fn declare(&self) -> Result<()> {
        self.api
            .put_cluster(api::cluster("a", self.source.bootstrap()))
            .await?;
        self.api
            .put_cluster(api::cluster("b", self.target.bootstrap()))
            .await?;
        self.api.put_link(api::link(LINK, "a", "b", "")).await?;
        let all = TOPICS.map(|topic| api::topic(LINK, topic));
        self.api.subscribe(all.to_vec()).await?;
        Ok(())
    }

    /// The partitions of the base topics.
    #[must_use]
    pub fn base_lanes() -> Vec<Lane> {
        let topics = TOPICS.iter();
        topics
            .flat_map(|topic| lanes(topic, 0..PARTITIONS))
            .collect()
    }

    /// What the load was told is safe of the base topics.
    #[must_use]
    pub fn base_counts(&self) -> Counts {
        let mut counts = self.load.acknowledged();
        counts.retain(|(topic, _), _| TOPICS.contains(&topic.as_str()));
        counts
    }

    /// What the load was told is safe of one topic.
    #[must_use]
    pub fn counts_of(&self, topic: &str) -> Counts {
        let mut counts = self.load.acknowledged();
        counts.retain(|(name, _), _| name == topic);
        counts
    }

    /// Starts what does not run, and waits until all tasks run and the target has caught up.
    ///
    /// # Errors
    /// When it does not come to that.
    pub async fn settle(&mut self) -> Result<()> {
        self.system.check()?;
        self.system.start_missing().await?;
        let tasks = i32::try_from(Self::base_lanes().len())?;
        self.system.wait_running(tasks, CATCH_UP).await?;
        self.every_worker_has_some().await?;
        self.caught_up().await?;
        Ok(())
    }

    /// Waits until one that has come back has got its share: a placement that is asked for before would not last.
    async fn every_worker_has_some(&mut self) -> Result<()> {
        let workers: BTreeSet<String> = self.system.workers().keys().cloned().collect();
        wait::until_true("tasks on every worker", CATCH_UP, async || {
            let placement = self.placement().await?;
            let busy = placement.into_values().map(|(worker, _)| worker).collect();
            Ok(workers.is_subset(&busy))
        })
        .await
    }

    /// Waits until everything that is safe now on the source's base topics is on the target, and
    /// nothing of them was reordered or altered.
    ///
    /// # Errors
    /// When something is missing after a minute.
    pub async fn caught_up(&self) -> Result<Report> {
        let report = self.tail.complete(&self.base_counts(), CATCH_UP).await?;
        ensure!(
            report.is_as_promised(),
            "the target is not a copy: {report}"
        );
        Ok(report)
    }

    /// Lets the load flow for a while and tells from when to when.
    pub async fn observe(&self, time: Duration) -> Window {
        let start = Instant::now();
        sleep_until(start + time).await;
        start..Instant::now()
    }

    /// Who runs each task of the base topics.
    ///
    /// # Errors
    /// When the API does not answer.
    pub async fn placement(&self) -> Result<Placement> {
        let tasks = self.api.tasks(LINK).await?;
        let base = tasks
            .into_iter()
            .filter(|task| TOPICS.contains(&task.topic.as_str()));
        Ok(base
            .map(|task| ((task.topic, task.partition), (task.worker, task.epoch)))
            .collect())
    }

    /// The longest pause that partitions which did not move may show: twice their latency that
    /// 99.9 % of their records keep while nothing happens, and at least [`NOISE`]. Measured once, in
    /// a soak anew for each scenario; to be asked for before anything is done to the system.
    pub async fn allowed_pauses(&mut self) -> BTreeMap<Lane, Duration> {
        if let Some(allowed) = &self.allowed
            && !settings::soak()
        {
            return allowed.clone();
        }
        let time = settings::length(Duration::from_secs(6), Duration::from_secs(30));
        let steady = self.observe(time).await;
        let allowed = |lane: &Lane| {
            let latency = self.tail.latency(lane, &steady).quantile(999);
            NOISE.max(latency.unwrap_or_default() * 2)
        };
        let lanes = Self::base_lanes().into_iter();
        let allowed: BTreeMap<Lane, Duration> =
            lanes.map(|lane| (lane.clone(), allowed(&lane))).collect();
        self.allowed = Some(allowed.clone());
        allowed
    }

    /// Checks that none of `lanes` paused longer than allowed within `window`.
    ///
    /// # Errors
    /// Names those that did, for how long, and when in the window it began.
    pub fn check_pauses<'a>(
        &self,
        lanes: impl IntoIterator<Item = &'a Lane>,
        window: &Window,
        allowed: &BTreeMap<Lane, Duration>,
    ) -> Result<()> {
        let pauses = self.tail.pauses_at(lanes, window);
        let too_long: Vec<String> = pauses
            .iter()
            .filter(|(lane, pause)| pause.length > allowed.get(lane).copied().unwrap_or(NOISE))
            .map(|((topic, partition), pause)| {
                let at = pause.from - window.start;
                let lane = (topic.clone(), *partition);
                let around = pause.from..pause.from + pause.length * 2;
                let latency = self.tail.latency(&lane, &around).quantile(1_000);
                let late = latency.unwrap_or_default();
                // Told, and not allowed for: a busy machine keeps the load from writing as well.
                let before = pause.from - NOISE..pause.from + pause.length;
                let load = self.load.longest_pause(&lane, &before).length;
                format!(
                    "{topic}/{partition}: {:.2?} at {at:.1?}, then {late:.2?} late; the load itself gave it \
                     nothing for {load:.2?}",
                    pause.length
                )
            })
            .collect();
        ensure!(
            too_long.is_empty(),
            "{} of {} partitions paused: {}",
            too_long.len(),
            pauses.len(),
            too_long.join(", ")
        );
        Ok(())
    }

    /// Committed source offsets of the base topics, and who committed them.
    ///
    /// # Errors
    /// When the source does not answer.
    pub async fn checkpoints(&self) -> Result<BTreeMap<Lane, (i64, String)>> {
        let group = format!("kreplicator.{LINK}");
        self.source.committed(&group, &Self::base_lanes()).await
    }
}

impl Stage for Rig {
    fn check(&mut self) -> Result<()> {
        self.system.check()
    }

    async fn recover(&mut self) -> Result<()> {
        self.source.restart_all().await?;
        self.target.restart_all().await?;
        self.system.recover().await?;
        self.settle().await
    }

    async fn settle(&mut self) -> Result<()> {
        Self::settle(self).await
    }

    fn failed(&self) {
        self.source.failed();
        self.target.failed();
        self.system.failed();
    }
}

/// Partitions of a topic.
#[must_use]
pub fn lanes(topic: &str, partitions: Range<i32>) -> Vec<Lane> {
    partitions
        .map(|partition| (topic.to_owned(), partition))
        .collect()
}

/// Tasks that have another owner, or the same one anew.
#[must_use]
pub fn moved(before: &Placement, after: &Placement) -> BTreeSet<Lane> {
    let same = |lane: &Lane| before.get(lane) == after.get(lane);
    before.keys().filter(|lane| !same(lane)).cloned().collect()
}

/// Tasks of one worker.
#[must_use]
pub fn tasks_of(placement: &Placement, worker: &str) -> BTreeSet<Lane> {
    let own = placement.iter().filter(|(_, (owner, _))| owner == worker);
    own.map(|(lane, _)| lane.clone()).collect()
}

static SHARED: Shared<Rig> = Shared::new();

/// Runs a scenario on the shared rig with two controllers and three workers, in the tier of
/// end-to-end tests.
///
/// # Panics
/// When the scenario fails; logs are shown and kept.
pub fn scenario(run: impl AsyncFnOnce(&mut Rig) -> Result<()>) {
    let mut options = SystemOptions::new("flow", 2, 3);
    // So that it can be seen who tells of a partition.
    options.set_worker("metrics_per_partition", "true");
    scenario_on(options, run);
}

/// As [`scenario`], with another system: the same one in all scenarios of a program.
///
/// # Panics
/// As [`scenario`].
pub fn scenario_on(options: SystemOptions, run: impl AsyncFnOnce(&mut Rig) -> Result<()>) {
    SHARED.scenario(async || Rig::start(options).await, run);
}

/// Waits until a topic of the base link is gone from the tasks.
///
/// # Errors
/// When it is not within 10 s.
pub async fn wait_gone(api: &Api, link: &str, topic: &str) -> Result<()> {
    let what = format!("tasks of {topic} to end");
    wait::until_true(&what, Duration::from_secs(10), async || {
        let tasks = api.tasks(link).await?;
        Ok(tasks.iter().all(|task| task.topic != topic))
    })
    .await
}

/// Waits until nothing of a topic has arrived for two seconds.
///
/// # Errors
/// When it still flows after 20 s.
pub async fn wait_stopped(tail: &Tail, topic: &str) -> Result<()> {
    let silence = Duration::from_secs(2);
    let what = format!("the flow of {topic} to stop");
    wait::until_true(&what, Duration::from_secs(20), async || {
        let now = Instant::now();
        let seen = tail.seen();
        let mut own = seen.keys().filter(|(name, _)| name == topic);
        Ok(own.all(|lane| tail.count(lane, &(now - silence..now)) == 0))
    })
    .await
}
