//! Specs: messages of `spec.proto` ↔ values of `kreplicator_model::spec`.
//!
//! `spec::Cluster::try_from(&message)` and its siblings check everything that concerns the value
//! alone and give *all* faults; `v1::Cluster::from(&cluster)` goes back. What concerns several values
//! (unknown clusters, loops, clashing names) is checked by `kreplicator_model::desired`, and which
//! client options are ours by `kreplicator-kafka`, which knows the client.
//!
//! # Invariants
//! - `try_from(&from(&value)) == Ok(value)` for every value that `try_from` gave.
//! - A value that passes fits into one entry of the metadata store.

mod cluster;
mod link;
mod start;
mod subscription;

use std::collections::BTreeMap;

use crate::fault::Faults;

/// Most bootstrap servers of a cluster.
pub const BOOTSTRAP_SERVERS_MAX: usize = 100;
/// Most client options of a cluster, and most settings of target topics.
pub const OPTIONS_MAX: usize = 200;
/// Longest name of an option or setting, in bytes.
pub const OPTION_NAME_BYTES_MAX: usize = 255;
/// Longest value of an option or setting, path, user or variable name, in bytes.
pub const TEXT_BYTES_MAX: usize = 4_096;
/// Most renamed topics of a link: with two names of 249 bytes each they fill 1 MB.
pub const RENAMES_MAX: usize = 2_000;
/// Most patterns excluded by a subscription.
pub const EXCLUDES_MAX: usize = 100;
/// Longest prefix of target topics: leaves room for a name within Kafka's 249 characters.
pub const PREFIX_BYTES_MAX: usize = 200;

/// Option and setting names: what Kafka and librdkafka use, nothing that could hide a mistake.
fn check_options(faults: &mut Faults, path: &str, options: &BTreeMap<String, String>) {
    faults.at_most(path, options.len(), OPTIONS_MAX);
    for (name, value) in options {
        let entry = format!("{path}[{name:?}]");
        let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || !name.chars().all(allowed) {
            faults.add(
                entry.clone(),
                "is no option name: use ASCII letters, digits, '-', '_' and '.'",
            );
        }
        faults.text(&entry, name, OPTION_NAME_BYTES_MAX);
        faults.text(&entry, value, TEXT_BYTES_MAX);
    }
}
