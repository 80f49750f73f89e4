//! What a run has to reach, for scripts that shall fail when it does not.

use std::{fmt, str::FromStr};

use clap::ValueEnum as _;

use super::{
    figures::{Figures, Ratios},
    options::{Load, PeerName},
};

/// A ratio of MirrorMaker 2's figure to that of an engine that has to be reached.
///
/// Written as `[LOAD.][ENGINE.]MEASURE=RATIO`: `cpu=15`, `single.cpu=3`, `records.cpu=1`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Bound {
    /// None: with every load.
    load: Option<Load>,
    ours: PeerName,
    measure: Measure,
    ratio: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Measure {
    Cpu,
    Memory,
    Throughput,
    P99,
}

impl Measure {
    fn of(self, ratios: &Ratios) -> Option<f64> {
        match self {
            Self::Cpu => ratios.cpu,
            Self::Memory => ratios.memory,
            Self::Throughput => ratios.throughput,
            Self::P99 => ratios.p99,
        }
    }
}

impl FromStr for Bound {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, ratio) = text.split_once('=').ok_or("no `=RATIO` in it")?;
        let ratio: f64 = ratio
            .parse()
            .ok()
            .filter(|ratio: &f64| ratio.is_finite() && *ratio > 0.0)
            .ok_or_else(|| format!("{ratio} is no ratio above 0"))?;
        let mut words: Vec<&str> = name.split('.').collect();
        let measure = words.pop().unwrap_or_default();
        let measure = Measure::from_str(measure, false)
            .map_err(|_| format!("{measure} is none of cpu, memory, throughput, p99"))?;
        let (mut load, mut ours) = (None, None);
        for word in words {
            if let Ok(named) = Load::from_str(word, false)
                && load.is_none()
            {
                load = Some(named);
            } else if let Ok(named @ (PeerName::Records | PeerName::Batches)) =
                PeerName::from_str(word, false)
                && ours.is_none()
            {
                ours = Some(named);
            } else {
                return Err(format!("{word} is neither a load nor an engine of ours"));
            }
        }
        Ok(Self {
            load,
            ours: ours.unwrap_or(PeerName::Batches),
            measure,
            ratio,
        })
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(load) = self.load {
            write!(f, "{}.", load.name())?;
        }
        let measure = self.measure.to_possible_value();
        let measure = measure.as_ref().map_or("", |value| value.get_name());
        write!(f, "{}.{measure}={}", self.ours.name(), self.ratio)
    }
}

/// What was asked for and is not reached by the figures of one load, a sentence each. What was not measured is
/// not reached.
pub(crate) fn unmet(bounds: &[Bound], of_load: &[Figures]) -> Vec<String> {
    let of = |peer: PeerName| of_load.iter().find(|figures| figures.peer == peer);
    let mut unmet = Vec::new();
    for bound in bounds {
        let here = |load: Load| bound.load.is_none_or(|own| own == load);
        let Some(load) = of_load.first().map(|figures| figures.load) else {
            continue;
        };
        if !here(load) {
            continue;
        }
        let ratios = of(PeerName::Mm2)
            .zip(of(bound.ours))
            .map(|(peer, ours)| Ratios::of(peer, ours));
        let found = ratios.and_then(|ratios| bound.measure.of(&ratios));
        if found.is_none_or(|found| found < bound.ratio) {
            let found = found.map_or("not measured".to_owned(), |found| format!("{found:.2}"));
            unmet.push(format!("{}: {bound} asked for, {found}", load.name()));
        }
    }
    unmet
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::mirror::copy::Copy;

    fn bound(text: &str) -> Bound {
        text.parse().expect("legal")
    }

    fn figures(peer: PeerName, load: Load, cpu_ms: u64) -> Figures {
        Figures {
            peer,
            load,
            bytes: 3_000_000,
            copy: Copy {
                records: 10_000,
                wall: Duration::from_secs(2),
                cpu: Duration::from_millis(cpu_ms),
                startup: Duration::from_secs(3),
                startup_cpu: Duration::from_secs(2),
                memory_peak_bytes: 64 << 20,
                brokers_cpu: Duration::from_secs(2),
                machine_cpu: Duration::from_secs(4),
            },
            repeats: 0,
            compared: 0,
            latency: None,
        }
    }

    #[test]
    fn a_bound_names_a_measure_and_if_need_be_a_load_and_an_engine() {
        let plain = Bound {
            load: None,
            ours: PeerName::Batches,
            measure: Measure::Cpu,
            ratio: 15.0,
        };
        assert_eq!(bound("cpu=15"), plain);
        let narrow = Bound {
            load: Some(Load::Single),
            ours: PeerName::Records,
            measure: Measure::P99,
            ratio: 1.5,
        };
        assert_eq!(bound("single.records.p99=1.5"), narrow);
        assert_eq!(bound("records.single.p99=1.5"), narrow);
        assert_eq!(narrow.to_string(), "single.records.p99=1.5");
    }

    #[test]
    fn what_is_no_bound_is_refused() {
        let wrong = [
            "",
            "cpu",
            "cpu=",
            "cpu=0",
            "cpu=inf",
            "disk=1",
            "mm2.cpu=1",
            "lz4.zstd.cpu=1",
            ".cpu=1",
        ];
        for text in wrong {
            assert!(text.parse::<Bound>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_not_reached_or_was_not_measured_is_told() {
        let of_load = [
            figures(PeerName::Mm2, Load::Lz4, 30_000),
            figures(PeerName::Batches, Load::Lz4, 2_000),
        ];
        let asked = [
            "cpu=15",
            "cpu=15.5",
            "single.cpu=99",
            "records.cpu=1",
            "p99=5",
        ]
        .map(bound);
        let expected = [
            "lz4: batches.cpu=15.5 asked for, 15.00",
            "lz4: records.cpu=1 asked for, not measured",
            "lz4: batches.p99=5 asked for, not measured",
        ];
        assert_eq!(unmet(&asked, &of_load), expected);
    }
}
