//! One measured copy: from the first record on the target to the last.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::{
    ends::Ends,
    machine,
    peer::Running,
    procfs::{Group, Usage},
    stage::Stage,
};

/// Time between looks at the target: what times and processor time may be off by, in favour of nobody.
const LOOK: Duration = Duration::from_millis(25);
/// Longest time in which nothing arrives.
const STALL: Duration = Duration::from_secs(180);

/// What a copy took.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Copy {
    /// Records that had arrived at the end.
    pub(crate) records: u64,
    /// From before the first record to the last.
    pub(crate) wall: Duration,
    /// Processor time of the contestant in `wall`.
    pub(crate) cpu: Duration,
    /// From the start of the contestant to the first record.
    pub(crate) startup: Duration,
    /// Processor time of the contestant in `startup`.
    pub(crate) startup_cpu: Duration,
    /// Most memory that the contestant had at any time.
    pub(crate) memory_peak_bytes: u64,
    /// Processor time of both brokers in `wall`.
    pub(crate) brokers_cpu: Duration,
    /// Processor time of everything on the machine in `wall`.
    pub(crate) machine_cpu: Duration,
}

/// Everything at one moment.
#[derive(Debug, Clone, Copy)]
struct Look {
    at: Instant,
    usage: Usage,
    brokers: Duration,
    machine: Duration,
}

impl Look {
    fn now(stage: &Stage, group: &mut Group) -> Result<Self> {
        Ok(Self {
            at: Instant::now(),
            usage: group.sample()?,
            brokers: stage.cpu_time()?,
            machine: machine::busy()?,
        })
    }
}

/// Watches a contestant that was started a moment ago until the target, empty before, holds `records`.
///
/// # Errors
/// When the contestant ends, or nothing arrives for three minutes; shows its log.
pub(crate) async fn watch(
    stage: &Stage,
    running: &mut Running,
    ends: &Ends,
    records: u64,
) -> Result<Copy> {
    let started = Instant::now();
    let mut group = running.group();
    let mut look = interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut before = Look::now(stage, &mut group)?;
    let mut arrived = 0;
    let mut progress = Instant::now();
    let mut sampled_peak = 0;
    loop {
        look.tick().await;
        running.check()?;
        let now = Look::now(stage, &mut group)?;
        sampled_peak = sampled_peak.max(now.usage.resident_bytes);
        let sum = ends.sum().await?;
        if sum > arrived {
            arrived = sum;
            progress = Instant::now();
        } else if progress.elapsed() > STALL {
            bail!(
                "{arrived} of {records} records arrived, and none for {STALL:?}\n{}",
                running.logs()
            );
        }
        if arrived == 0 {
            before = now;
        } else if arrived >= records {
            let after = Look::now(stage, &mut group)?;
            return Ok(Copy {
                records: arrived,
                wall: after.at - before.at,
                cpu: after.usage.cpu.saturating_sub(before.usage.cpu),
                startup: before.at - started,
                startup_cpu: before.usage.cpu,
                memory_peak_bytes: after.usage.peak_bytes.max(sampled_peak),
                brokers_cpu: after.brokers.saturating_sub(before.brokers),
                machine_cpu: after.machine.saturating_sub(before.machine),
            });
        }
    }
}

/// Waits until the target holds `records`, without measuring.
///
/// # Errors
/// As [`watch`].
pub(crate) async fn wait(running: &mut Running, ends: &Ends, records: u64) -> Result<()> {
    let mut look = interval(Duration::from_millis(250));
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut arrived = 0;
    let mut progress = Instant::now();
    while arrived < records {
        look.tick().await;
        running.check()?;
        let sum = ends.sum().await.context("cannot look at the target")?;
        if sum > arrived {
            arrived = sum;
            progress = Instant::now();
        } else if progress.elapsed() > STALL {
            bail!(
                "{arrived} of {records} records arrived, and none for {STALL:?}\n{}",
                running.logs()
            );
        }
    }
    Ok(())
}
