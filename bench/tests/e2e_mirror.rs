//! The comparison with MirrorMaker 2 in its short form: a small copy on real brokers, and a few seconds of
//! latency. It runs with whatever build the tests run with, mostly an unoptimised one, so what it asks for
//! is far below what an optimised one reaches (see the README): it notices a batch engine that opens what it
//! should pass on, or holds what it should not.

use std::process::Command;

use kreplicator_tests::skip::{Tier, skip};

/// Records of the copy.
const RECORDS: &str = "150000";
/// What has to be reached. Of seconds of latency on a shared machine nothing is asked.
const AT_LEAST: &str = "cpu=2,memory=4,throughput=0.5";

#[test]
fn a_copy_takes_less_than_mirror_maker_2s() {
    if skip(Tier::EndToEnd) {
        return;
    }
    let output = Command::new(env!("CARGO_BIN_EXE_kreplicator-bench"))
        .args(["mirror", "--records", RECORDS, "--loads", "lz4"])
        .args(["--peers", "mm2,batches", "--latency-seconds", "3"])
        .args(["--at-least", AT_LEAST])
        .output()
        .expect("the bench runs");
    let told = String::from_utf8_lossy(&output.stderr);
    let lines = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{told}\n{lines}");
    let results: Vec<serde_json::Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).expect("a JSON line"))
        .collect();
    let runs = results.iter().filter(|line| line["bench"] == "mirror_run");
    let repeats: Vec<_> = runs.map(|run| (&run["peer"], &run["repeats"])).collect();
    assert_eq!(repeats.len(), 2, "{lines}");
    assert!(repeats.iter().all(|(_, count)| **count == 0), "{lines}");
    let comparison = results.iter().find(|line| line["bench"] == "mirror");
    let comparison = comparison.expect("MirrorMaker 2 beside ours");
    println!("{comparison}");
}
