//! Each rule is needed: without it the simulation fails.

use super::{Broken, Profile, run};

/// Fails unless some run of a broken world is caught, by one of these complaints.
fn is_caught(broken: Broken, complaints: &[&str]) {
    let is_caught = (0..3_000).any(|seed| {
        let Err(panic) = std::panic::catch_unwind(|| run(Profile::Exact, broken, seed)) else {
            return false;
        };
        let text = panic.downcast_ref::<String>().map_or("", String::as_str);
        complaints.iter().any(|complaint| text.contains(complaint))
    });
    assert!(is_caught, "{broken:?} goes unnoticed");
}

#[test]
fn a_base_that_is_not_agreed_is_caught() {
    is_caught(Broken::BaseNotAgreed, &["not a prefix", "and not copied"]);
}

#[test]
fn other_boundaries_taken_for_a_repeat_are_caught() {
    is_caught(Broken::OtherBoundariesAreARepeat, &["and not copied"]);
}

#[test]
fn sending_after_a_freeze_without_asking_is_caught() {
    is_caught(Broken::NoQuestionAfterFreeze, &["not a prefix"]);
}

#[test]
fn c026_a_checkpoint_before_the_acknowledgement_is_caught() {
    is_caught(Broken::CheckpointBeforeAck, &["and not copied"]);
}

#[test]
fn a_skip_that_is_off_by_one_is_caught() {
    is_caught(Broken::SkipOffByOne, &["not a prefix"]);
}

#[test]
fn several_batches_without_a_guarding_state_are_caught() {
    is_caught(Broken::FirstNotAlone, &["not a prefix"]);
}

#[test]
fn skipping_what_is_not_committed_is_caught() {
    is_caught(Broken::UncommittedSkipped, &["not a prefix"]);
}
