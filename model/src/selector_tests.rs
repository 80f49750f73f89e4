use proptest::prelude::*;

use super::*;

fn topic(name: &str) -> TopicName {
    TopicName::new(name).expect("legal")
}

fn pattern(include: &str, exclude: &[&str]) -> Selector {
    Selector::Pattern(Pattern {
        include: include.to_owned(),
        exclude: exclude.iter().map(|text| (*text).to_owned()).collect(),
    })
}

fn matcher(include: &str, exclude: &[&str]) -> Matcher {
    Matcher::compile(&pattern(include, exclude)).expect("legal")
}

#[test]
fn a_pattern_matches_whole_names() {
    let matcher = matcher("orders|clicks\\..*", &["clicks\\.test"]);
    for name in ["orders", "clicks.eu", "clicks."] {
        assert!(matcher.matches(&topic(name)), "{name}");
    }
    for name in [
        "orders2",
        "my-orders",
        "clicks",
        "clicks.test",
        "xclicks.eu",
    ] {
        assert!(!matcher.matches(&topic(name)), "{name}");
    }
}

#[test]
fn c071_internal_topics_match_by_exact_name_only_and_ours_never() {
    let all = matcher(".*", &[]);
    let internal = [
        "__consumer_offsets",
        "__transaction_state",
        "_schemas",
        "_confluent-metrics",
        "connect-offsets",
        "connect-configs",
        "connect-status",
    ];
    for name in internal {
        assert!(is_internal(&topic(name)), "{name}");
        assert!(!all.matches(&topic(name)), "{name}");
        assert!(
            !matcher(&regex::escape(name), &[]).matches(&topic(name)),
            "{name}"
        );
        let exact = Matcher::compile(&Selector::Topic(topic(name))).expect("legal");
        assert!(exact.matches(&topic(name)), "{name}");
    }
    for name in ["__kreplicator", "__kreplicator_origins"] {
        assert!(is_ours(&topic(name)));
        assert!(!all.matches(&topic(name)));
        let exact = Matcher::compile(&Selector::Topic(topic(name))).expect("legal");
        assert!(!exact.matches(&topic(name)), "{name}");
    }
    for name in [
        "orders",
        "_orders",
        "connect-offsets2",
        "schemas",
        "my__topic",
    ] {
        assert!(!is_internal(&topic(name)), "{name}");
        assert!(all.matches(&topic(name)), "{name}");
    }
}

#[test]
fn the_id_tells_exact_names_and_patterns_apart() {
    assert_eq!(Selector::Topic(topic("orders")).id(), "orders");
    assert_eq!(pattern("orders", &["x"]).id(), "/orders/");
}

#[test]
fn a_bad_pattern_is_named_with_its_fault() {
    let long = "x".repeat(PATTERN_BYTES_MAX + 1);
    let cases = [
        ("orders(", "unclosed group"),
        ("*", "repetition operator missing expression"),
        ("a)|(b", "unopened group"),
        ("(?=x)", "look-around"),
        ("", "is empty"),
        (long.as_str(), "is longer than"),
        ("(?:x{1000}){1000}", "too large"),
    ];
    for (text, expected) in cases {
        let fault = Matcher::compile(&pattern(text, &[])).expect_err(text);
        assert!(fault.to_string().contains(expected), "{fault}");
        let fault = Matcher::compile(&pattern(".*", &[text])).expect_err(text);
        assert!(fault.to_string().contains(expected), "exclude: {fault}");
    }
    let many = vec!["x"; EXCLUDES_MAX + 1];
    let fault = Matcher::compile(&pattern(".*", &many)).expect_err("too many");
    assert!(
        fault.to_string().contains("101 exclude patterns"),
        "{fault}"
    );
}

#[test]
fn may_overlap_is_true_unless_disproved() {
    let eu = pattern(".*-eu", &[]);
    assert!(!may_overlap(&eu, &pattern(".*-us", &[])));
    assert!(may_overlap(&eu, &pattern("orders.*", &[])));
    assert!(may_overlap(&eu, &pattern("(", &[])));
}

proptest! {
    #[test]
    fn no_pattern_matches_an_internal_topic(include in "[a-z_.*|-]{1,8}", name in "__[a-z._-]{0,8}") {
        if let Ok(matcher) = Matcher::compile(&pattern(&include, &[])) {
            prop_assert!(!matcher.matches(&topic(&name)));
        }
    }

    #[test]
    fn a_fault_names_the_pattern_whatever_its_text(text: String) {
        if let Err(fault) = Matcher::compile(&pattern(".*", &[&text])) {
            prop_assert_eq!(fault.pattern, text);
        }
    }
}
