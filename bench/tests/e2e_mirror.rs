//! The comparison with MirrorMaker 2 in its short form: small copies on real brokers, a few seconds of
//! latency, some hundred quiet partitions, one partition far away. It runs with whatever build the tests run
//! with, mostly an unoptimised one, and beside other tests, so what it asks for is far below what an
//! optimised one reaches alone (see the README): it notices an engine that opens what it should pass on,
//! holds what it should not, waits where it need not, or asks more often than it must.

use std::process::{Command, Output};

use kreplicator_tests::skip::{Tier, skip};
use serde_json::Value;

/// What the bench has told, as JSON lines, and how it ended.
struct Told {
    results: Vec<Value>,
    text: String,
    is_success: bool,
}

/// Runs the bench with the arguments in `line`.
fn bench(line: &str) -> Told {
    let output: Output = Command::new(env!("CARGO_BIN_EXE_kreplicator-bench"))
        .arg("mirror")
        .args(line.split_whitespace())
        .output()
        .expect("the bench runs");
    let [lines, told] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    let results = lines.lines().map(serde_json::from_str);
    Told {
        results: results.collect::<Result<_, _>>().expect("JSON lines"),
        text: format!("{told}\n{lines}"),
        is_success: output.status.success(),
    }
}

impl Told {
    /// The results of one kind.
    fn of(&self, bench: &str) -> Vec<&Value> {
        let all = self.results.iter();
        all.filter(|line| line["bench"] == bench).collect()
    }

    /// Each contestant has copied every record of each load once.
    fn check_runs(&self, expected: usize) {
        let runs = self.of("mirror_run");
        assert_eq!(runs.len(), expected, "{}", self.text);
        for run in runs {
            let is_whole = run["repeats"] == 0 && run["compared_records"] == run["records"];
            assert!(is_whole, "{run}");
        }
        for comparison in self.of("mirror") {
            println!("{comparison}");
        }
    }
}

#[test]
fn a_copy_takes_less_than_mirror_maker_2s() {
    if skip(Tier::EndToEnd) {
        return;
    }
    let told = bench(
        "--records 100000 --loads lz4 --latency-seconds 3 \
         --at-least cpu=2,memory=4,throughput=0.5,p99=0.5,records.cpu=0.3 --at-most repeats=0",
    );
    assert!(told.is_success, "{}", told.text);
    told.check_runs(3);
}

/// Both at once, since both mostly wait: nothing is asked of how long they take.
#[test]
fn one_record_batches_quiet_partitions_and_a_distant_one_are_within_their_bounds() {
    if skip(Tier::EndToEnd) {
        return;
    }
    let (single, others) = std::thread::scope(|scope| {
        let single = scope.spawn(|| {
            bench(
                "--records 40000 --loads single --peers mm2,batches --latency-seconds 0 \
                 --at-least cpu=1 --at-most repeats=0",
            )
        });
        // The last bound nothing can keep: that is told, and nothing else.
        let others = bench(
            "--records 0 --peers batches --quiet 300 --quiet-seconds 3 \
             --rtt 200ms --rtt-records 50000 --link-mbit 100 \
             --at-most quiet.memory_mb=100,quiet.core_percent=30 \
             --at-least rtt.mb_s=1,link.mb_s=1,link.link_percent=101",
        );
        (single.join().expect("no panic"), others)
    });
    assert!(single.is_success, "{}", single.text);
    single.check_runs(2);
    for kind in ["mirror_quiet", "mirror_rtt", "mirror_link"] {
        let lines = others.of(kind);
        assert_eq!(lines.len(), 1, "{}", others.text);
        println!("{}", lines[0]);
    }
    let percent = others.of("mirror_link")[0]["link_percent"].as_f64();
    let percent = percent.expect("the share of the link");
    let unmet = "\nerror: not reached: link: link.batches.link_percent at least 101 asked for, ";
    let expected = format!("{unmet}{percent:.2}\n");
    assert!(others.text.contains(&expected), "{}", others.text);
    assert!(!others.is_success, "{}", others.text);
}

#[test]
fn what_will_not_be_measured_cannot_be_asked_for() {
    let told = bench("--records 0 --quiet 10 --at-least lz4.cpu=15 --at-most memory_mb=150");
    assert!(!told.is_success);
    assert!(told.results.is_empty(), "nothing was begun: {}", told.text);
    let expected = "error: lz4.batches.cpu at least 15: nothing of it is to be measured\n";
    assert!(told.text.contains(expected), "{}", told.text);
}
