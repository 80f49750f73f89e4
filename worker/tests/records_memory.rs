//! Memory over many records. Alone in its process, since it is the process that is measured.
//!
//! The mock clusters are in it too: they keep the last 5 MiB of each partition, which fills within the
//! rounds of warming up.

#[path = "records_mock/rig.rs"]
#[expect(dead_code, reason = "the other tests use the rest")]
mod rig;

use self::rig::{PATIENCE, Rig, copied, fill, numbered};

/// Records of one round.
const ROUND: usize = 50_000;
/// Rounds before memory is looked at, and after.
const WARM_UP: usize = 8;
const ROUNDS: usize = 11;
/// Most growth for each record in the round that is neither the best nor the worst: less than the
/// smallest piece of memory that could be kept for one (C108). Single jumps are the allocator's.
const GROWTH_BYTES_MAX: usize = 32;

/// Bytes of memory that this process has in use.
fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|line| line.trim().strip_suffix(" kB"));
    let kibibytes: usize = kibibytes
        .and_then(|number| number.parse().ok())
        .expect("a number of kB");
    kibibytes << 10
}

#[tokio::test(flavor = "multi_thread")]
async fn c108_memory_does_not_grow_with_the_number_of_records() {
    let rig = Rig::new();
    rig.topic("orders", 1);
    let task = rig.start("orders", 0);
    let mut used = Vec::new();
    for round in 0..=WARM_UP + ROUNDS {
        let range = round * ROUND..(round + 1) * ROUND;
        let end = i64::try_from(range.end).expect("small");
        fill(&rig.source, "orders", &numbered(0, range));
        copied(task.as_ref(), end).await;
        used.push(resident_bytes());
    }
    let rounds = used[WARM_UP..].windows(2);
    let mut growth: Vec<usize> = rounds.map(|pair| pair[1].saturating_sub(pair[0])).collect();
    growth.sort_unstable();
    let usual = growth[growth.len() / 2];
    assert!(
        usual < GROWTH_BYTES_MAX * ROUND,
        "{usual} bytes more in each round of {ROUND} records: {used:?}"
    );
    task.stop(PATIENCE).await;
}
