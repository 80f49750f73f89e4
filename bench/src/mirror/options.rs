//! What to measure.

use std::time::Duration;

use clap::ValueEnum;

use super::{
    bounds::{self, Bound},
    findings::Trial,
};

/// Copies real data between two real brokers with MirrorMaker 2 and with KReplicator.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    /// Records that each contestant copies of each load; 0: no comparison, only what is asked for
    /// by other flags.
    #[arg(long, default_value_t = 3_000_000)]
    pub(crate) records: u64,
    /// Loads to copy.
    #[arg(long, value_delimiter = ',', default_value = "lz4,zstd,none,single")]
    pub(crate) loads: Vec<Load>,
    /// Who copies them; engines that the binary does not know are left out.
    #[arg(long, value_delimiter = ',', default_value = "mm2,records,batches")]
    pub(crate) peers: Vec<PeerName>,
    /// How long latency is measured at 1,000 records/s; 0: not at all.
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    pub(crate) latency_seconds: u32,
    /// Who goes through what the following three ask for, if not all of --peers.
    #[arg(long, value_name = "PEERS", value_delimiter = ',')]
    pub(crate) also_peers: Vec<PeerName>,
    /// Also: kill -9 of one of two workers. MirrorMaker 2 may need minutes to recover.
    #[arg(long)]
    pub(crate) failover: bool,
    /// Also: what one worker costs that watches this many partitions in which nothing happens.
    #[arg(long, value_name = "PARTITIONS", value_parser = clap::value_parser!(u32).range(1..=20_000))]
    pub(crate) quiet: Option<u32>,
    /// How long quiet partitions are watched.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) quiet_seconds: u32,
    /// Also: copy one partition from a source that is this round trip away (`200ms`).
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub(crate) rtt: Option<Duration>,
    /// Records that are copied from there, for each contestant.
    #[arg(long, value_name = "RECORDS", default_value_t = 500_000, value_parser = clap::value_parser!(u64).range(1_000..))]
    pub(crate) rtt_records: u64,
    /// With --rtt: the same again over a link that passes this many megabits a second each way.
    #[arg(long, value_name = "MBIT", requires = "rtt", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) link_mbit: Option<u32>,
    /// What has to be reached, for scripts; the run fails at its end otherwise. Ratios of MirrorMaker 2's
    /// figure to ours: cpu, memory, throughput, p99; mb_s of rtt and link; link_percent of link. Of every trial
    /// that tells it if none is named, of the engine `batches` if none is named:
    /// `cpu=15,single.cpu=3,records.cpu=1,rtt.mb_s=20`.
    #[arg(
        long,
        value_name = "[TRIAL.][ENGINE.]MEASURE=VALUE",
        value_delimiter = ',',
        value_parser = bounds::at_least
    )]
    pub(crate) at_least: Vec<Bound>,
    /// The same for what may not be passed: memory_mb and core_percent of quiet, repeats of loads and
    /// failover, missing and seconds of failover.
    #[arg(
        long,
        value_name = "[TRIAL.][ENGINE.]MEASURE=VALUE",
        value_delimiter = ',',
        value_parser = bounds::at_most
    )]
    pub(crate) at_most: Vec<Bound>,
    /// Batch size of the producer of the loads, in bytes before compression. As a rule a Java
    /// producer fills its default of 16 KiB after compression.
    #[arg(long, value_name = "BYTES", default_value_t = 32 << 10, value_parser = clap::value_parser!(u32).range(1024..=1 << 20))]
    pub(crate) batch_bytes: u32,
    /// Memory budget that each worker of KReplicator is given for records, in MiB.
    #[arg(long, value_name = "MEBIBYTES", default_value_t = 32, value_parser = clap::value_parser!(u32).range(16..=4096))]
    pub(crate) budget_mebibytes: u32,
    /// Java heap of each node of MirrorMaker 2, in MiB.
    #[arg(long, value_name = "MEBIBYTES", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(256..=16_384))]
    pub(crate) mm2_heap_mebibytes: u32,
}

impl Options {
    /// Who goes through a trial.
    pub(crate) fn peers_of(&self, trial: Trial) -> &[PeerName] {
        match trial {
            Trial::Load(_) => &self.peers,
            _ if self.also_peers.is_empty() => &self.peers,
            _ => &self.also_peers,
        }
    }

    /// What contestants are put through.
    pub(crate) fn trials(&self) -> Vec<Trial> {
        let mut trials = Vec::new();
        if self.records > 0 {
            trials.extend(self.loads.iter().copied().map(Trial::Load));
        }
        let others = [
            (self.failover, Trial::Failover),
            (self.quiet.is_some(), Trial::Quiet),
            (self.rtt.is_some(), Trial::Rtt),
            (self.link_mbit.is_some(), Trial::Link),
        ];
        trials.extend(
            others
                .iter()
                .filter_map(|(is_asked, trial)| is_asked.then_some(*trial)),
        );
        trials
    }
}

/// What the source topic holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Load {
    /// Batches of many records, compressed by lz4.
    Lz4,
    /// The same by zstd.
    Zstd,
    /// The same without compression.
    None,
    /// Each record a batch of its own, without compression (there is nothing to gain by it).
    Single,
}

impl Load {
    /// Its name in results and topics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
            Self::None => "none",
            Self::Single => "single",
        }
    }

    /// Kafka's name of the codec, in which the source is written and the copy shall be.
    pub(crate) fn codec(self) -> &'static str {
        match self {
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
            Self::None | Self::Single => "none",
        }
    }
}

/// Who copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum PeerName {
    /// MirrorMaker 2 of Apache Kafka.
    Mm2,
    /// KReplicator, engine `records`.
    Records,
    /// KReplicator, engine `batches`.
    Batches,
}

impl PeerName {
    /// Its name in results and topics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Mm2 => "mm2",
            Self::Records => "records",
            Self::Batches => "batches",
        }
    }
}

#[cfg(test)]
impl Options {
    /// Of a command line that is legal.
    pub(crate) fn of_line(line: &str) -> Self {
        tests::parse(line).expect("legal")
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    pub(super) fn parse(line: &str) -> Result<Options, clap::Error> {
        let words = std::iter::once("bench").chain(line.split_whitespace());
        Line::try_parse_from(words).map(|line| line.options)
    }

    #[test]
    fn lists_are_given_with_commas_and_the_rest_has_defaults() {
        let options = parse("--loads lz4,single --peers mm2,records --rtt 200ms").expect("legal");
        assert_eq!(options.loads, [Load::Lz4, Load::Single]);
        assert_eq!(options.peers, [PeerName::Mm2, PeerName::Records]);
        assert_eq!(options.rtt, Some(Duration::from_millis(200)));
        assert_eq!((options.records, options.latency_seconds), (3_000_000, 30));
        assert_eq!((options.failover, options.quiet), (false, None));
        assert_eq!(parse("").expect("legal").loads.len(), 4);
    }

    #[test]
    fn unknown_loads_and_peers_are_refused() {
        assert!(parse("--loads gzip").is_err());
        assert!(parse("--peers mm1").is_err());
        assert!(parse("--quiet 0").is_err());
        assert!(parse("--at-least cpu").is_err());
        assert!(parse("--at-most cpu=1").is_err());
        assert!(parse("--link-mbit 100").is_err(), "at no distance");
        let bounded = parse("--at-least cpu=15,single.cpu=3 --at-most quiet.memory_mb=150");
        let bounded = bounded.expect("legal");
        assert_eq!((bounded.at_least.len(), bounded.at_most.len()), (2, 1));
    }
}
