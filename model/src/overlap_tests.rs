use proptest::prelude::*;

use super::*;
use crate::spec::{Pattern, Selector};

fn pattern(include: &str, exclude: &[&str]) -> Matcher {
    let selector = Selector::Pattern(Pattern {
        include: include.to_owned(),
        exclude: exclude.iter().map(|text| (*text).to_owned()).collect(),
    });
    Matcher::compile(&selector).expect("legal")
}

fn topic(name: &str) -> TopicName {
    TopicName::new(name).expect("legal")
}

fn exact(name: &str) -> Matcher {
    Matcher::compile(&Selector::Topic(topic(name))).expect("legal")
}

#[test]
fn exact_names_are_asked_for() {
    assert_eq!(of(&[&exact("a"), &exact("b")]), Overlap::Disjoint);
    assert_eq!(
        of(&[&exact("a"), &exact("a")]),
        Overlap::Example(topic("a"))
    );
    let all = pattern(".*", &["b"]);
    assert_eq!(of(&[&all, &exact("a")]), Overlap::Example(topic("a")));
    assert_eq!(of(&[&exact("b"), &all]), Overlap::Disjoint);
    assert_eq!(
        of(&[&exact("_schemas"), &all]),
        Overlap::Disjoint,
        "internal"
    );
    let ours = exact("__kreplicator_origins");
    assert_eq!(of(&[&ours, &ours]), Overlap::Disjoint, "ours mean nothing");
}

#[test]
fn patterns_are_decided_by_prefix_suffix_and_exclusion() {
    let disjoint = [
        (pattern("eu\\..*", &[]), pattern("us\\..*", &[])),
        (pattern(".*-eu", &[]), pattern(".*-us", &[])),
        (pattern(".*", &["us\\..*"]), pattern("us\\..*", &[])),
        (pattern("a+", &[]), pattern("b*", &[])),
        (pattern("[0-9]{4}", &[]), pattern("[0-9]{5}", &[])),
        (pattern("__.*", &[]), pattern(".*", &[])),
        (pattern("\\.\\.?", &[]), pattern(".*", &[])),
        (pattern("(?i)ORDERS", &[]), pattern("[A-Z]+", &["ORDERS"])),
    ];
    for (a, b) in &disjoint {
        assert_eq!(of(&[a, b]), Overlap::Disjoint, "{a:?} {b:?}");
    }
}

#[test]
fn an_overlap_comes_with_an_example() {
    let overlapping = [
        (pattern(".*", &[]), pattern(".*", &[]), "a"),
        (pattern("orders.*", &[]), pattern(".*-eu", &[]), "orders-eu"),
        (pattern(".*", &["us\\..*"]), pattern("us.*", &[]), "us"),
        (pattern("(?i)orders", &[]), pattern("[A-Z]+", &[]), "ORDERS"),
        (pattern("a{3,}", &[]), pattern("a{0,3}", &[]), "aaa"),
    ];
    for (a, b, example) in &overlapping {
        assert_eq!(of(&[a, b]), Overlap::Example(topic(example)), "{a:?} {b:?}");
    }
}

#[test]
fn three_patterns_may_overlap_in_pairs_and_not_together() {
    let (a, b, c) = (
        pattern("x|y", &[]),
        pattern("y|z", &[]),
        pattern("z|x", &[]),
    );
    for pair in [[&a, &b], [&b, &c], [&c, &a]] {
        assert!(of(&pair).is_possible());
    }
    assert_eq!(of(&[&a, &b, &c]), Overlap::Disjoint);
}

#[test]
fn other_names_do_not_count() {
    let (a, b) = (pattern("x|y", &[]), pattern("y|z", &[]));
    let others = [topic("y")];
    let others = others.iter().collect();
    assert_eq!(except(&[&a, &b], &others), Overlap::Disjoint);
    assert_eq!(except(&[&exact("y"), &b], &others), Overlap::Disjoint);
    assert!(except(&[&a, &a], &others).is_possible());
}

#[test]
fn names_too_long_for_kafka_are_no_example() {
    let long = pattern("x{249}y?", &[]);
    assert_eq!(
        of(&[&long, &long]),
        Overlap::Example(topic(&"x".repeat(249)))
    );
    assert_eq!(of(&[&long, &pattern(".*y", &[])]), Overlap::Disjoint);
}

#[test]
fn what_cannot_be_decided_is_not_ruled_out() {
    // Each automaton remembers where the last letters were: too many combinations to look at.
    let far = |letter: char| pattern(&format!(".*{letter}.{{16}}"), &[]);
    let (a, b) = (far('a'), far('b'));
    assert_eq!(of(&[&a, &b]), Overlap::Unknown);
}

/// A small pattern over three letters.
fn patterns() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![Just("a"), Just("b"), Just("[ab]"), Just("."), Just("c")];
    let leaf = leaf.prop_map(str::to_owned);
    leaf.prop_recursive(3, 8, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 1..3).prop_map(|parts| parts.concat()),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("(?:{a}|{b})")),
            inner.prop_map(|part| format!("(?:{part})*")),
        ]
    })
}

/// Every name of up to five of the three letters.
fn names() -> Vec<TopicName> {
    let mut all = vec![String::new()];
    let mut names = Vec::new();
    for _ in 0..5 {
        all = all
            .iter()
            .flat_map(|name| "abc".chars().map(move |c| format!("{name}{c}")))
            .collect();
        names.extend(all.iter().map(|name| topic(name)));
    }
    names
}

proptest! {
    #[test]
    fn the_search_agrees_with_trying_every_name(
        a in patterns(), b in patterns(), exclude in prop::option::of(patterns()),
    ) {
        let exclude: Vec<&str> = exclude.iter().map(String::as_str).collect();
        let (a, b) = (pattern(&a, &exclude), pattern(&b, &[]));
        let is_common = |name: &TopicName| [&a, &b].iter().all(|matcher| matcher.matches(name));
        match of(&[&a, &b]) {
            Overlap::Disjoint => {
                let common = names().into_iter().find(is_common);
                prop_assert_eq!(common, None, "{:?} {:?}", a, b);
            }
            Overlap::Example(name) => prop_assert!(is_common(&name), "{name} {a:?} {b:?}"),
            Overlap::Unknown => prop_assert!(false, "too small to give up on"),
        }
    }
}
