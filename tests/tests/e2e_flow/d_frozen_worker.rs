//! A worker is frozen for longer than its lease and goes on.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context as _, Result, ensure};
use kreplicator_model::ids::WorkerId;
use kreplicator_proto::v1;
use kreplicator_store::keys;
use kreplicator_tests::{
    checker::Lane,
    http,
    load::unix_millis,
    rig::{self, Rig, tasks_of},
    settings,
    system::LEASE,
};
use prost::Message as _;
use tokio::time::Instant;

use crate::d_worker_loss::{TAKE_OVER, check_repeats};

const FROZEN: &str = "worker-3";
/// How long it is watched after it has woken up.
const AWAKE: Duration = Duration::from_secs(5);
/// What may lie in the send queue of librdkafka when its process is frozen: half a second of the load of
/// one of three workers is some 330 records.
const QUEUED_MAX: usize = 1_000;
/// How far the reader of the target may be behind, or the target with what it was sent before a freeze; shorter
/// than the quickest succession.
const ON_ITS_WAY: Duration = Duration::from_secs(1);
const DEADLINE: Duration = Duration::from_secs(20);

/// What may repeat when a frozen process goes on.
fn queued_max() -> usize {
    if settings::is_exactly_once() {
        0
    } else {
        QUEUED_MAX
    }
}

/// C038: a worker that was away for three leases reads and saves nothing more for what it had. It gets nothing new
/// here when it wakes up, so whatever it does then it does for that.
#[test]
fn d3_c038_a_frozen_worker_saves_nothing_and_reads_nothing_when_it_wakes_up() {
    rig::scenario(async |rig| {
        let before = rig.placement().await?;
        let own = tasks_of(&before, FROZEN);
        let allowed = rig.allowed_pauses().await;
        let saved = rig.checkpoints().await?;
        let start = Instant::now();
        let last_words = Done::by(rig, FROZEN).await?;
        rig.system.worker(FROZEN)?.process()?.freeze().await?;
        let sending = start - ON_ITS_WAY..Instant::now() + ON_ITS_WAY;
        // What it can have read lies below.
        let written = rig.load.settle(DEADLINE).await?;
        let frozen = rig.observe(LEASE * 3).await;
        let stayed = before.keys().filter(|lane| !own.contains(*lane));
        rig.check_pauses(stayed, &frozen, &allowed)?;
        let of_own = own.iter().map(|lane| (lane.clone(), TAKE_OVER));
        rig.check_pauses(&own, &frozen, &of_own.collect())?;
        check_repeats(rig, &own, start, &saved)?;

        keep_empty(rig, FROZEN).await?;
        let mut newest = rig.checkpoints().await?;
        let thawed = Instant::now();
        rig.system.worker(FROZEN)?.process()?.thaw()?;
        let mut at_rest = None;
        while thawed.elapsed() < AWAKE {
            let now = rig.checkpoints().await?;
            for lane in &own {
                let (offset, owner) = &now[lane];
                ensure!(*offset >= newest[lane].0, "{lane:?} went back to {offset}");
                ensure!(*owner != saved[lane].1, "{lane:?}: saved by the old owner");
            }
            newest = now;
            let done = Done::by(rig, FROZEN).await?;
            if at_rest.is_none() && done.tasks == 0 {
                println!("its tasks have ended {:?} after the thaw", thawed.elapsed());
                at_rest = Some(done);
            }
        }
        let at_rest = at_rest.context("its old tasks have not ended")?;
        let last = Done::by(rig, FROZEN).await?;
        ensure!(
            last == at_rest,
            "{last:?} without tasks, before {at_rest:?}"
        );

        let repeats = rig.tail.repeats_since(thawed);
        for (lane, seqs) in &repeats {
            let newest = seqs.iter().max().context("left out where there are none")?;
            ensure!(
                own.contains(lane) && *newest < written[lane],
                "{lane:?}: {newest} was read after the thaw; {} were written before",
                written[lane]
            );
        }
        let repeats: usize = repeats.values().map(Vec::len).sum();
        let acknowledged = last.records - last_words.records;
        let given_up = last.given_up - last_words.given_up;
        println!(
            "after the thaw {repeats} records came from the frozen worker's send queue; it counts {given_up} given \
             up in flight, and {acknowledged} acknowledged since shortly before"
        );
        ensure!(
            repeats <= queued_max() && repeats <= given_up + acknowledged,
            "{repeats} records came after the thaw, {given_up} given up and {acknowledged} acknowledged are counted"
        );
        let sent = sent(rig, &own, &sending);
        ensure!(
            acknowledged <= sent + repeats,
            "{acknowledged} records acknowledged, of which {sent} came before the freeze and {repeats} after"
        );
        rig.api.drain(FROZEN, true).await?;
        Ok(())
    });
}

/// Arrivals at the target within a window.
fn sent(rig: &Rig, lanes: &BTreeSet<Lane>, window: &kreplicator_tests::arrivals::Window) -> usize {
    let counts = lanes.iter().map(|lane| rig.tail.count(lane, window));
    counts.sum()
}

/// Asks for a worker to be empty, by the store: the API knows no worker whose lease has ended.
async fn keep_empty(rig: &mut Rig, worker: &str) -> Result<()> {
    let key = keys::worker_drain(&WorkerId::new(worker)?);
    let asked = v1::WorkerDrain {
        requested_at_ms: unix_millis(),
        reason: "test".to_owned(),
    };
    let mut client = rig.system.etcd().client().await?;
    let key = format!("/kreplicator/{key}");
    client.put(key, asked.encode_to_vec(), None).await?;
    Ok(())
}

/// What a worker counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Done {
    /// Tasks it has now.
    tasks: usize,
    /// Records and bytes that the target has acknowledged.
    records: usize,
    bytes: usize,
    /// Records given up while they were with the client.
    given_up: usize,
}

impl Done {
    async fn by(rig: &mut Rig, worker: &str) -> Result<Self> {
        let metrics = rig.system.worker(worker)?.metrics().await?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "counts, far below 2^53"
        )]
        let of = |what: &str| {
            let name = format!("kreplicator_worker_{what}");
            http::sum(&metrics, &name).unwrap_or_default() as usize
        };
        let done = Self {
            tasks: of("tasks"),
            records: of("replicated_records_total"),
            bytes: of("replicated_bytes_total"),
            given_up: of("given_up_in_flight_records_total"),
        };
        ensure!(done.records > 0, "{worker} has never copied anything");
        Ok(done)
    }
}
