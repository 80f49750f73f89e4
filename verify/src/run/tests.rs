use super::*;

fn name(name: &str) -> TopicName {
    TopicName::new(name).expect("legal")
}

fn options() -> Options {
    Options {
        from: None,
        to: None,
        partition: None,
        ignored: Parts::default(),
        tolerate_duplicates: false,
        wait: Duration::from_secs(1),
        stall_timeout: Duration::from_secs(60),
        partitions_at_once: 4,
        findings: 20,
        seed: 1,
    }
}

fn pair(target_compaction: Compaction) -> Pair {
    Pair {
        source_topic: name("ants"),
        target_topic: name("ants"),
        partition: Partition(0),
        starts_late: false,
        source_compaction: Compaction::Off,
        target_compaction,
    }
}

fn told(target_compaction: Compaction, tally: Tally) -> PartitionReport {
    let outcome = Outcome {
        tally,
        ..Outcome::default()
    };
    report(pair(target_compaction), outcome, &options())
}

#[test]
fn missing_keys_of_a_topic_whose_settings_may_not_be_read_are_neither_lost_nor_compacted() {
    let tally = Tally {
        equal: 9,
        compacted_on_target: 2,
        ..Tally::default()
    };
    let unknown = told(Compaction::Unknown, tally);
    assert_eq!(unknown.verdict, Verdict::NotCompared);
    assert!(unknown.notes[0].contains("DESCRIBE_CONFIGS"), "{unknown:?}");
    assert_eq!(told(Compaction::On, tally).verdict, Verdict::Equal);
    let lost = Tally {
        missing: 1,
        ..tally
    };
    assert_eq!(told(Compaction::Unknown, lost).verdict, Verdict::Different);
    let complete = Tally {
        compacted_on_target: 0,
        ..tally
    };
    assert_eq!(told(Compaction::Unknown, complete).verdict, Verdict::Equal);
}
