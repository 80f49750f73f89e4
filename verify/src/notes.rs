//! What people need to be told beside the numbers of a comparison.

use crate::{
    partition::{Outcome, Pair},
    survey::Compaction,
};

/// What else is to be known to judge the numbers of a partition.
pub(crate) fn notes(pair: &Pair, outcome: &Outcome) -> Vec<String> {
    let tally = &outcome.tally;
    let records = |count: u64| match count {
        1 => "1 record".to_owned(),
        count => format!("{count} records"),
    };
    let compacted = |compaction| match compaction {
        Compaction::Unknown => {
            "may be compacted (grant the user DESCRIBE_CONFIGS on the topic, to know)"
        }
        Compaction::On | Compaction::Off => "is compacted",
    };
    let mut notes = Vec::new();
    let mut note = |applies: bool, text: String| {
        if applies {
            notes.push(text);
        }
    };
    note(
        outcome.gone > 0,
        format!(
            "{} offsets are gone from the source and not comparable",
            outcome.gone
        ),
    );
    note(
        tally.lead_of_target > 0,
        format!(
            "{} at the beginning of the target not comparable: before the first one left or asked for on \
             the source",
            records(tally.lead_of_target)
        ),
    );
    note(
        tally.lead_of_source > 0,
        format!(
            "{} at the beginning of the source not comparable: {}",
            records(tally.lead_of_source),
            match pair.starts_late {
                true => "gone from the target, or from before the link's start",
                false => "gone from the target",
            }
        ),
    );
    note(
        tally.compacted_on_target > 0,
        format!(
            "the target {}: {} with keys that it lacks cannot be told from lost ones",
            compacted(pair.target_compaction),
            records(tally.compacted_on_target)
        ),
    );
    note(
        tally.compacted_on_source > 0,
        format!(
            "the source {}: {} with keys that it lacks cannot be told from extra ones",
            compacted(pair.source_compaction),
            records(tally.compacted_on_source)
        ),
    );
    note(
        tally.missing_at_end > 0,
        format!(
            "{} of the missing ones are the last of the source: the target may be behind; see --wait",
            tally.missing_at_end
        ),
    );
    note(
        tally.window_exceeded,
        format!(
            "the sides differ over more than {} records: moved ones may count as missing and extra",
            kreplicator_model::compare::WINDOW_DEFAULT
        ),
    );
    notes
}
