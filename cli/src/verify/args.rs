//! The command line of `verify`.

use std::{path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};
use kreplicator_model::{
    compare::Parts,
    ids::{LinkId, TopicName},
};

use crate::args::{Output, duration, setting};

/// `verify`
#[derive(Debug, Args)]
#[command(
    group = clap::ArgGroup::new("what").required(true).args(["link", "source_bootstrap"]),
    long_about = "Compare the source and the target of a link record by record\n\n\
        Reads both clusters itself and needs no service of KReplicator, so it works on the copy of any \
        other replicator too. Compares order, keys, values, headers and timestamps of committed records, \
        up to the end of the source as of now; a link in use can be compared while it runs. Ends with 0 \
        when everything is equal, 11 when something differs, 12 when it could not be told."
)]
pub(crate) struct Verify {
    /// File with clusters and links (YAML), as for apply; - for standard input
    #[arg(short, long, value_name = "FILE", requires = "link")]
    pub(crate) file: Option<PathBuf>,
    /// The link in FILE
    #[arg(short, long, requires = "file")]
    pub(crate) link: Option<LinkId>,
    /// Instead of a file: where the source is reached
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',')]
    #[arg(
        conflicts_with = "file",
        requires = "target_bootstrap",
        requires = "topic"
    )]
    pub(crate) source_bootstrap: Vec<String>,
    /// Instead of a file: where the target is reached
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',')]
    #[arg(conflicts_with = "file", requires = "source_bootstrap")]
    pub(crate) target_bootstrap: Vec<String>,
    /// A client property of librdkafka for the source, for example security.protocol=ssl; repeatable.
    /// Passwords are better kept in a file: others can see command lines
    #[arg(long, value_name = "KEY=VALUE", value_parser = setting)]
    pub(crate) source_option: Vec<(String, String)>,
    /// A client property for the target; repeatable
    #[arg(long, value_name = "KEY=VALUE", value_parser = setting)]
    pub(crate) target_option: Vec<(String, String)>,
    /// Only this topic of the source; default: every topic of the link
    #[arg(short, long)]
    pub(crate) topic: Option<TopicName>,
    /// Its name on the target; default: as the link names it, else the same
    #[arg(long, value_name = "TOPIC", requires = "topic")]
    pub(crate) target_topic: Option<TopicName>,
    /// Only this partition
    #[arg(short, long, requires = "topic", value_name = "N")]
    #[arg(value_parser = clap::value_parser!(i32).range(0..i64::from(i32::MAX)))]
    pub(crate) partition: Option<i32>,
    /// Only source offsets from this one on
    #[arg(long, requires = "partition", value_name = "OFFSET")]
    #[arg(value_parser = clap::value_parser!(i64).range(0..))]
    pub(crate) from_offset: Option<i64>,
    /// Only source offsets below this one
    #[arg(long, requires = "partition", value_name = "OFFSET")]
    #[arg(value_parser = clap::value_parser!(i64).range(0..))]
    pub(crate) to_offset: Option<i64>,
    /// Do not compare this part of records; repeatable
    #[arg(long, value_enum, value_name = "PART", value_delimiter = ',')]
    pub(crate) ignore: Vec<Part>,
    /// Count records that the target has more than once, but take them for right: the copy promises
    /// each record at least once
    #[arg(long)]
    pub(crate) tolerate_duplicates: bool,
    /// How long a target that lacks records may give nothing new before they count as missing
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    pub(crate) wait: Duration,
    /// How long a cluster may give nothing at all before it is given up
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    pub(crate) stall_timeout: Duration,
    /// Partitions compared at the same time; each takes up to two connections to each broker
    #[arg(long, value_name = "N", default_value_t = 4)]
    #[arg(value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) partitions_at_once: u8,
    /// Differences told one by one for each partition; neighbours count as one
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(crate) findings: u16,
    /// How to show it.
    #[command(flatten)]
    pub(crate) output: Output,
}

/// Parts of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// Its key
    Key,
    /// Its value
    Value,
    /// Its headers
    Headers,
    /// Its timestamp, for example where the target stamps records itself
    Timestamp,
}

impl Verify {
    /// Parts that are not compared.
    pub(crate) fn ignored(&self) -> Parts {
        let has = |part| self.ignore.contains(&part);
        Parts {
            key: has(Part::Key),
            value: has(Part::Value),
            headers: has(Part::Headers),
            timestamp: has(Part::Timestamp),
        }
    }
}
