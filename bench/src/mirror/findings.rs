//! What a run has found, as numbers that can be asked for: where, of whom, of what.

use clap::ValueEnum;

use super::{
    figures::{Figures, Ratios, of},
    options::{Load, PeerName},
};

/// What contestants are put through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trial {
    /// A load is copied.
    Load(Load),
    /// One of two workers is killed.
    Failover,
    /// Thousands of partitions are watched in which nothing happens.
    Quiet,
    /// One partition is copied from far away.
    Rtt,
    /// The same over a link that passes so much and no more.
    Link,
}

impl Trial {
    /// Those that are no loads.
    const OTHERS: [Self; 4] = [Self::Failover, Self::Quiet, Self::Rtt, Self::Link];

    /// Its name in results and bounds.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Load(load) => load.name(),
            Self::Failover => "failover",
            Self::Quiet => "quiet",
            Self::Rtt => "rtt",
            Self::Link => "link",
        }
    }

    /// The one of this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let load = Load::from_str(name, false).ok().map(Self::Load);
        load.or_else(|| Self::OTHERS.into_iter().find(|trial| trial.name() == name))
    }
}

/// What is measured of a contestant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum Measure {
    /// Processor time of MirrorMaker 2, divided by that of ours.
    Cpu,
    /// Peak memory of MirrorMaker 2, divided by that of ours.
    Memory,
    /// Time of MirrorMaker 2 for the copy, divided by that of ours.
    Throughput,
    /// 99th percentile of the latency of MirrorMaker 2, divided by that of ours.
    P99,
    /// Records on the target beyond those of the source.
    Repeats,
    /// Records that never came.
    Missing,
    /// Seconds from a kill until all partitions flow again.
    Seconds,
    /// Peak memory in megabytes (of 10^6 bytes).
    MemoryMb,
    /// Processor time in hundredths of a core.
    CorePercent,
    /// Megabytes (of 10^6 bytes) of keys and values a second.
    MbS,
    /// Share of the link's rate that is used, in hundredths.
    LinkPercent,
}

impl Measure {
    /// Its name in bounds.
    pub(crate) fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Whether more of it is better.
    pub(crate) fn is_better_when_larger(self) -> bool {
        match self {
            Self::Cpu | Self::Memory | Self::Throughput | Self::P99 => true,
            Self::MbS | Self::LinkPercent => true,
            Self::Repeats | Self::Missing | Self::Seconds => false,
            Self::MemoryMb | Self::CorePercent => false,
        }
    }

    /// Whether it compares ours with MirrorMaker 2.
    pub(crate) fn is_ratio(self) -> bool {
        matches!(
            self,
            Self::Cpu | Self::Memory | Self::Throughput | Self::P99
        )
    }

    /// Whether a trial tells it.
    pub(crate) fn is_of(self, trial: Trial) -> bool {
        match trial {
            Trial::Load(_) => self.is_ratio() || self == Self::Repeats,
            Trial::Failover => matches!(self, Self::Repeats | Self::Missing | Self::Seconds),
            Trial::Quiet => matches!(self, Self::MemoryMb | Self::CorePercent),
            Trial::Rtt => self == Self::MbS,
            Trial::Link => matches!(self, Self::MbS | Self::LinkPercent),
        }
    }
}

/// One number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Finding {
    /// Where it was measured.
    pub(crate) trial: Trial,
    /// Of whom.
    pub(crate) of: PeerName,
    /// What it is.
    pub(crate) measure: Measure,
    /// None: it could not be measured.
    pub(crate) value: Option<f64>,
}

impl Finding {
    /// Several of one contestant in one trial.
    pub(crate) fn all(
        trial: Trial,
        of: PeerName,
        found: impl IntoIterator<Item = (Measure, f64)>,
    ) -> impl Iterator<Item = Self> {
        found.into_iter().map(move |(measure, value)| Self {
            trial,
            of,
            measure,
            value: Some(value),
        })
    }
}

/// What the figures of a load say of each engine of ours.
pub(crate) fn of_load(figures: &[Figures]) -> Vec<Finding> {
    let ours = figures.iter().filter(|ours| ours.peer != PeerName::Mm2);
    let findings = ours.flat_map(|ours| {
        let ratios = of(figures, PeerName::Mm2).map(|peer| Ratios::of(peer, ours));
        let ratio = |of: fn(&Ratios) -> Option<f64>| ratios.as_ref().and_then(of);
        let values = [
            (Measure::Cpu, ratio(|ratios| ratios.cpu)),
            (Measure::Memory, ratio(|ratios| ratios.memory)),
            (Measure::Throughput, ratio(|ratios| ratios.throughput)),
            (Measure::P99, ratio(|ratios| ratios.p99)),
            (Measure::Repeats, Some(ours.repeats as f64)),
        ];
        values.map(|(measure, value)| Finding {
            trial: Trial::Load(ours.load),
            of: ours.peer,
            measure,
            value,
        })
    });
    findings.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trials_are_found_by_their_names() {
        let all = [
            "lz4", "zstd", "none", "single", "failover", "quiet", "rtt", "link",
        ];
        for name in all {
            let trial = Trial::named(name).expect("there is one");
            assert_eq!(trial.name(), name);
        }
        assert_eq!(Trial::named("gzip"), None);
        assert_eq!(Trial::named("mm2"), None);
    }

    #[test]
    fn every_measure_is_told_by_some_trial() {
        let trials = [&Trial::OTHERS[..], &[Trial::Load(Load::Lz4)]].concat();
        for measure in Measure::value_variants() {
            let is_told = trials.iter().any(|trial| measure.is_of(*trial));
            assert!(is_told, "{}", measure.name());
        }
    }

    #[test]
    fn a_load_tells_of_each_engine_of_ours_and_of_nobody_else() {
        let peers = [PeerName::Mm2, PeerName::Records, PeerName::Batches];
        let mut figures = peers.map(Figures::sample);
        figures[1].repeats = 7;
        let found = of_load(&figures);
        let value = |of, measure| {
            let mut all = found.iter();
            let one = all.find(|found| found.of == of && found.measure == measure);
            one.expect("it is told").value
        };
        assert_eq!(found.len(), 10);
        assert_eq!(value(PeerName::Batches, Measure::Cpu), Some(1.0));
        assert_eq!(value(PeerName::Batches, Measure::P99), None);
        assert_eq!(value(PeerName::Records, Measure::Repeats), Some(7.0));
        let alone = of_load(&figures[2..]);
        assert_eq!(alone[0].value, None, "compared with nobody");
    }
}
