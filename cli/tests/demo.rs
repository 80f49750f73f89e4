//! The demo, as `make demo` runs it.

mod support;

use std::time::Duration;

use support::{Service, kreplicator, run};

#[test]
fn the_demo_ends_with_a_verdict_that_nothing_is_missing() {
    let ran = run(kreplicator().args(["demo", "--for", "8s", "--rate", "300"]));
    assert_eq!(ran.code, Some(0), "{}\n{}", ran.stdout, ran.stderr);
    let last = ran.stdout.trim_end().lines().last().expect("a last line");
    let summary: serde_json::Value = serde_json::from_str(last).expect("one JSON object");
    let number = |key: &str| {
        let value = summary.get(key).and_then(serde_json::Value::as_u64);
        value.unwrap_or_else(|| panic!("{key} in {summary}"))
    };
    assert!(number("produced") > 1_000, "{summary}");
    assert_eq!(number("mirrored"), number("produced"), "{summary}");
    assert_eq!(number("missing"), 0, "{summary}");
    assert_eq!(
        number("topics"),
        4,
        "three and the one that was added: {summary}"
    );
    assert_eq!(number("workers_added"), 1, "{summary}");
    assert_eq!(number("workers_killed"), 1, "{summary}");
    // What the killed worker had not checkpointed may come twice: at most what flows in a second.
    assert!(number("doubled") < 1_000, "{summary}");
    // Its partitions wait for its lease, not for minutes.
    assert!(number("longest_pause_ms") < 10_000, "{summary}");
    for line in [
        "+ topic events.refunds",
        "+ worker-3 joined",
        "x worker-1 was killed",
    ] {
        assert!(ran.stdout.contains(line), "{line:?} in\n{}", ran.stdout);
    }
}

#[test]
fn a_demo_without_an_end_gives_its_verdict_at_ctrl_c() {
    let mut demo = Service::start(kreplicator().args(["demo", "--topics", "1", "--rate", "100"]));
    demo.line_with("the first records arrived", Duration::from_secs(30));
    assert_eq!(demo.end("INT"), Some(0));
    let last = demo.all_lines().last().expect("a last line");
    let summary: serde_json::Value = serde_json::from_str(last).expect("one JSON object");
    assert_eq!(summary["missing"], 0, "{summary}");
    assert_eq!(summary["workers_killed"], 0, "{summary}");
}
