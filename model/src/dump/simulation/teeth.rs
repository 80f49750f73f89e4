//! Each rule is needed: without it the simulation fails.

use super::{Broken, run};

/// Fails unless some run of a broken world is caught, by one of these complaints.
fn is_caught(broken: Broken, complaints: &[&str]) {
    let is_caught = (0..3_000).any(|seed| {
        let Err(panic) = std::panic::catch_unwind(|| run(broken, seed)) else {
            return false;
        };
        let text = panic.downcast_ref::<String>().map_or("", String::as_str);
        complaints.iter().any(|complaint| text.contains(complaint))
    });
    assert!(is_caught, "{broken:?} goes unnoticed");
}

const LOST: &str = "is in no file";

#[test]
fn c081_a_rename_that_overwrites_is_caught() {
    is_caught(Broken::RenameOverwrites, &[LOST, "files"]);
}

#[test]
fn c085_a_lost_answer_taken_for_a_failure_is_caught() {
    is_caught(Broken::LostMeansFailed, &[LOST]);
}

#[test]
fn c087_a_sweeper_that_deletes_what_may_be_committed_is_caught() {
    is_caught(Broken::SweptAtOnce, &[LOST]);
}

#[test]
fn c083_a_checkpoint_before_the_files_have_their_names_is_caught() {
    is_caught(Broken::CheckpointBeforeFinish, &[LOST]);
}

#[test]
fn trusting_what_is_not_durable_is_caught() {
    is_caught(Broken::SeenIsDurable, &[LOST, "it has begun"]);
}

#[test]
fn two_beginnings_are_caught() {
    is_caught(Broken::NoBegin, &[LOST, "files", "is not accounted for"]);
}

#[test]
fn c087_names_that_are_used_again_are_caught() {
    is_caught(Broken::NamesUsedAgain, &[LOST, "files"]);
}

#[test]
fn attempts_committed_at_any_age_are_caught() {
    is_caught(Broken::NoAge, &[LOST]);
}
