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
            !matcher(&regex_syntax::escape(name), &[]).matches(&topic(name)),
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
fn what_is_too_large_together_is_named_by_the_pattern_that_goes_too_far() {
    let names = |letter: char| {
        let names = (0..100).map(|n| format!("{letter}{n:03}{}", "-name".repeat(6)));
        names.collect::<Vec<_>>().join("|")
    };
    let few: Vec<String> = ('a'..'c').map(names).collect();
    let few: Vec<&str> = few.iter().map(String::as_str).collect();
    let several = matcher(".*", &few);
    assert!(!several.matches(&topic(&format!("b099{}", "-name".repeat(6)))));
    let many: Vec<String> = (0..EXCLUDES_MAX)
        .map(|n| format!("x{n:02}-[a-z]{{500}}"))
        .collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let fault = Matcher::compile(&pattern(".*", &many)).expect_err("too large");
    assert!(fault.fault.contains("together"), "{fault}");
    let place = many.iter().position(|text| *text == fault.pattern);
    let place = place.expect("one of them is named");
    assert!(
        Matcher::compile(&pattern(".*", &many[..place])).is_ok(),
        "those before {fault} fit"
    );
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "how much longer it takes is what is tested"
)]
fn a_hundred_excludes_compile_in_a_few_times_what_one_takes_as_written() {
    let excludes: Vec<String> = (0..EXCLUDES_MAX)
        .map(|n| format!(r"team{n}\.\w+\.(test|staging)-\d+"))
        .collect();
    let excludes: Vec<&str> = excludes.iter().map(String::as_str).collect();
    let selector = pattern(".*", &excludes);
    // The least of several: what others do on the machine only ever adds.
    let time = |compile: &dyn Fn() -> bool| {
        let runs = (0..7).map(|_| {
            let began = std::time::Instant::now();
            assert!(compile());
            began.elapsed()
        });
        runs.min().expect("several runs")
    };
    let one = time(&|| regex_automata::meta::Regex::new(excludes[0]).is_ok());
    let all = time(&|| Matcher::compile(&selector).is_ok());
    assert!(all < one * 100, "one: {one:?}, a hundred: {all:?}");
}

#[test]
fn a_selector_is_compiled_once_for_as_long_as_it_is_asked_for() {
    let (eu, us) = (pattern(".*-eu", &["x", "y"]), pattern(".*-us", &[]));
    let mut matchers = Matchers::default();
    for _ in 0..3 {
        for selector in [&eu, &us, &Selector::Topic(topic("orders"))] {
            assert!(matchers.get(selector).is_ok());
        }
        assert!(matchers.get(&pattern("(", &[])).is_err());
        matchers.forget_unused();
    }
    assert_eq!(matchers.compiled(), 3, "exact names need none");
    let without_y = pattern(".*-eu", &["x"]);
    assert!(
        matchers
            .get(&without_y)
            .expect("legal")
            .matches(&topic("y-eu")),
        "told apart by their excludes"
    );
    matchers.forget_unused();
    assert!(matchers.get(&eu).is_ok());
    assert_eq!(matchers.compiled(), 5, "not asked for, so forgotten");
}

/// Expressions with what Unicode knows more of than topic names hold.
fn expressions() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(vec![
        "a",
        "Z",
        "-",
        r"\.",
        "_",
        "7",
        ".",
        r"\w",
        r"\d",
        r"\W",
        r"\S",
        "[^a]",
        "[k-é]",
        "é",
        r"\p{L}",
        r"\b",
        r"\B",
        "(?-u:\\b)",
        "(?-u:[a-c_])",
        "ſ",
        "$",
        "^",
        "(?i:K)",
        r"\b{start}",
        "",
    ]);
    leaf.prop_map(str::to_owned)
        .prop_recursive(3, 12, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 1..4).prop_map(|parts| parts.concat()),
                (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("(?i:{a}|{b})")),
                (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("(?:{a}|{b})")),
                inner.clone().prop_map(|part| format!("({part})*")),
                inner.prop_map(|part| format!("(?:{part}){{1,3}}")),
            ]
        })
}

proptest! {
    #[test]
    fn cutting_an_expression_down_changes_nothing_for_topic_names(
        expression in expressions(),
        names in prop::collection::vec("[aAkKzZsS7._-]{1,6}", 20),
    ) {
        let as_written = regex_automata::meta::Regex::new(&format!("^(?:{expression})$"));
        let (Ok(as_written), false) = (as_written, expression.is_empty()) else {
            return Ok(());
        };
        let (all, none) = (matcher(&expression, &[]), matcher(".*", &[&expression]));
        for name in names.iter().filter_map(|name| TopicName::new(name).ok()) {
            let expected = as_written.is_match(name.as_str());
            let is_subject = !is_ours(&name) && !is_internal(&name);
            prop_assert_eq!(all.matches(&name), is_subject && expected, "{}", name);
            prop_assert_eq!(none.matches(&name), is_subject && !expected, "{}", name);
        }
    }

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
