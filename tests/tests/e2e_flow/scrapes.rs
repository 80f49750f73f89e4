//! What workers and controllers tell in `/metrics`, once or again and again while something happens.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use futures::future::join_all;
use kreplicator_tests::{
    checker::Lane,
    http,
    rig::{LINK, Rig},
    settings,
};
use tokio::time::{Instant, sleep};
use tokio_util::task::AbortOnDropHandle;

const INTERVAL: Duration = Duration::from_millis(200);
const LAG: &str = "kreplicator_worker_lag_records";
const TASKS: &str = "kreplicator_controller_tasks";
const WORKERS: &str = "kreplicator_controller_workers";
const MOVES: &str = "kreplicator_controller_plan_moves_total";
const DOUBLE_CLAIMS: &str = "kreplicator_controller_double_claimed_tasks";

/// Series of one process.
pub(crate) type Series = BTreeMap<String, f64>;

/// Where processes tell their metrics, by name.
#[derive(Debug, Clone, Default)]
struct Ports {
    workers: BTreeMap<String, u16>,
    controllers: BTreeMap<String, u16>,
}

/// What was told at about one time by those who answered.
#[derive(Debug, Clone)]
pub(crate) struct Round {
    pub(crate) workers: BTreeMap<String, Series>,
    controllers: BTreeMap<String, Series>,
    /// After the last answer.
    pub(crate) at: Instant,
}

/// Asks all processes again and again.
#[derive(Debug)]
pub(crate) struct Scraper {
    shared: Arc<Mutex<(Ports, Vec<Round>)>>,
    _asking: AbortOnDropHandle<()>,
}

impl Scraper {
    /// Begins with the processes that there are.
    pub(crate) fn start(rig: &mut Rig) -> Self {
        let shared = Arc::new(Mutex::new((Ports::of(rig), Vec::new())));
        let asking = {
            let shared = Arc::clone(&shared);
            async move {
                loop {
                    let ports = lock(&shared).0.clone();
                    let round = ports.ask().await;
                    lock(&shared).1.push(round);
                    sleep(INTERVAL).await;
                }
            }
        };
        Self {
            shared,
            _asking: AbortOnDropHandle::new(tokio::spawn(asking)),
        }
    }

    /// Asks also the workers that have come since.
    pub(crate) fn look_again(&self, rig: &mut Rig) {
        lock(&self.shared).0 = Ports::of(rig);
    }

    /// Ends, and tells what was heard.
    pub(crate) fn finish(self) -> Vec<Round> {
        std::mem::take(&mut lock(&self.shared).1)
    }
}

impl Ports {
    fn of(rig: &mut Rig) -> Self {
        let workers = rig.system.workers().iter();
        let workers = workers.map(|(name, worker)| (name.clone(), worker.http_port()));
        let workers = workers.collect();
        let controllers = rig.system.controllers().iter();
        let controllers = controllers.map(|one| (one.name().to_owned(), one.http_port()));
        Self {
            workers,
            controllers: controllers.collect(),
        }
    }

    async fn ask(&self) -> Round {
        let all = async |ports: &BTreeMap<String, u16>| {
            let answers = ports.iter().map(async |(name, port)| {
                let series = http::metrics(*port).await.ok()?;
                Some((name.clone(), series))
            });
            join_all(answers).await.into_iter().flatten().collect()
        };
        Round {
            workers: all(&self.workers).await,
            controllers: all(&self.controllers).await,
            at: Instant::now(),
        }
    }
}

impl Round {
    /// What all processes tell now.
    pub(crate) async fn now(rig: &mut Rig) -> Self {
        Ports::of(rig).ask().await
    }

    /// Lag of the base link by partition, and which worker tells it.
    ///
    /// # Errors
    /// C115: when one is below 0.
    fn lags(&self) -> Result<BTreeMap<Lane, Vec<(&str, f64)>>> {
        let mut lags: BTreeMap<Lane, Vec<(&str, f64)>> = BTreeMap::new();
        for (worker, series) in &self.workers {
            for (labels, lag) in of(series, LAG).filter(|(labels, _)| labels["link"] == LINK) {
                ensure!(lag >= 0.0, "{worker}: a lag of {lag} of {labels:?}");
                let partition = labels.get("partition").context("lag by partition")?;
                let lane = (labels["topic"].to_owned(), partition.parse()?);
                lags.entry(lane).or_default().push((worker.as_str(), lag));
            }
        }
        Ok(lags)
    }

    /// Lag of a topic on the base link, over all workers.
    ///
    /// # Errors
    /// As for each partition.
    pub(crate) fn lag_of(&self, topic: &str) -> Result<f64> {
        let lags = self.lags()?.into_iter();
        let own = lags.filter(|((name, _), _)| name == topic);
        Ok(own.flat_map(|(_, told)| told).map(|(_, lag)| lag).sum())
    }

    /// The series of the one controller that tells of the fleet.
    ///
    /// # Errors
    /// When there is not exactly one.
    pub(crate) fn leader(&self) -> Result<&Series> {
        let leaders = self.controllers.values();
        let mut leaders = leaders.filter(|series| of(series, TASKS).next().is_some());
        let leader = leaders.next().context("no controller tells of the fleet")?;
        ensure!(leaders.next().is_none(), "two controllers tell of it");
        Ok(leader)
    }

    /// C119: every partition's lag is told by its one owner.
    ///
    /// # Errors
    /// Names those that nobody or more than one tells of.
    pub(crate) fn check_one_owner(&self, lanes: &[Lane]) -> Result<()> {
        let lags = self.lags()?;
        for lane in lanes {
            let told = lags.get(lane).map_or(&[][..], Vec::as_slice);
            ensure!(told.len() == 1, "the lag of {lane:?} is told by {told:?}");
        }
        Ok(())
    }

    /// Tasks given to workers so far, by the reason of the move; those without are left out.
    ///
    /// # Errors
    /// When nobody leads.
    pub(crate) fn moves(&self) -> Result<BTreeMap<String, f64>> {
        let moves = of(self.leader()?, MOVES).filter(|(_, count)| *count > 0.0);
        Ok(moves
            .map(|(labels, count)| (labels["reason"].to_owned(), count))
            .collect())
    }

    /// Workers by state, as the leader counts them; states without are left out.
    ///
    /// # Errors
    /// When nobody leads.
    pub(crate) fn workers_by_state(&self) -> Result<BTreeMap<String, f64>> {
        let workers = of(self.leader()?, WORKERS).filter(|(_, count)| *count > 0.0);
        Ok(workers
            .map(|(labels, count)| (labels["state"].to_owned(), count))
            .collect())
    }
}

/// Whatever happened: the lag of a partition is never below 0 and told by its owner alone, but for a move that
/// overlaps; the tasks of all states are all the tasks.
///
/// # Errors
/// The first round in which that did not hold.
pub(crate) fn check_always(rounds: &[Round], tasks: usize) -> Result<()> {
    ensure!(rounds.len() > 2, "only {} rounds", rounds.len());
    let owners_max = if settings::is_exactly_once() { 2 } else { 1 };
    for round in rounds {
        for (lane, told) in round.lags()? {
            let owners = told.len();
            ensure!(owners <= owners_max, "the lag of {lane:?}: {told:?}");
        }
        let Ok(leader) = round.leader() else {
            continue;
        };
        let by_state = of(leader, TASKS).filter(|(labels, _)| labels["link"] == LINK);
        let counts: Vec<_> = by_state.collect();
        let sum: f64 = counts.iter().map(|(_, count)| count).sum();
        ensure!(sum == as_float(tasks), "{tasks} tasks, told: {counts:?}");
    }
    Ok(())
}

/// Nothing changed hands: no round knows of two owners, by their own word or by the leader's count.
///
/// # Errors
/// The first round in which that did not hold.
pub(crate) fn check_no_second_owner(rounds: &[Round]) -> Result<()> {
    ensure!(rounds.len() > 2, "only {} rounds", rounds.len());
    for round in rounds {
        for (lane, told) in round.lags()? {
            ensure!(told.len() == 1, "the lag of {lane:?} is told by {told:?}");
        }
        for (name, series) in &round.controllers {
            let claims = http::sum(series, DOUBLE_CLAIMS).unwrap_or_default();
            ensure!(claims == 0.0, "{name} counts {claims} double claims");
        }
    }
    Ok(())
}

/// What has been added to counts.
pub(crate) fn growth(
    before: &BTreeMap<String, f64>,
    after: &BTreeMap<String, f64>,
) -> BTreeMap<String, f64> {
    let grown = after.iter().map(|(name, count)| {
        let before = before.get(name).copied().unwrap_or_default();
        (name.clone(), count - before)
    });
    grown.filter(|(_, grown)| *grown != 0.0).collect()
}

/// Series of one name: labels and value.
pub(crate) fn of<'a>(
    series: &'a Series,
    name: &'a str,
) -> impl Iterator<Item = (BTreeMap<&'a str, &'a str>, f64)> {
    series.iter().filter_map(move |(full, value)| {
        let rest = full.strip_prefix(name)?;
        let labels = rest.strip_prefix('{')?.strip_suffix('}')?;
        // No value of a label holds a quote.
        let pairs = labels.split("\",").filter_map(|pair| pair.split_once('='));
        let labels = pairs.map(|(label, value)| (label, value.trim_matches('"')));
        Some((labels.collect(), *value))
    })
}

/// A count as metrics tell it.
#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
pub(crate) fn as_float(count: usize) -> f64 {
    count as f64
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Holders only copy; a panic between two steps leaves nothing half-done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
