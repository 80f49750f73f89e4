//! What a run has to reach, for scripts that shall fail when it does not.

use std::{fmt, str::FromStr};

use clap::ValueEnum as _;

use super::{
    figures::{Figures, Ratios, of},
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

/// What was asked for and is not reached by the figures of a run, a sentence each. What was not measured is not
/// reached, nor is what was asked of a load that was not copied, or of any load where none was.
pub(crate) fn unmet(bounds: &[Bound], of_loads: &[Vec<Figures>]) -> Vec<String> {
    bounds
        .iter()
        .flat_map(|bound| bound.unmet(of_loads))
        .collect()
}

impl Bound {
    fn unmet(&self, of_loads: &[Vec<Figures>]) -> Vec<String> {
        let mut is_asked = false;
        let mut unmet = Vec::new();
        for of_load in of_loads {
            let Some(load) = of_load.first().map(|figures| figures.load) else {
                continue;
            };
            if self.load.is_some_and(|own| own != load) {
                continue;
            }
            is_asked = true;
            let ratios = of(of_load, PeerName::Mm2)
                .zip(of(of_load, self.ours))
                .map(|(peer, ours)| Ratios::of(peer, ours));
            let found = ratios.and_then(|ratios| self.measure.of(&ratios));
            if found.is_none_or(|found| found < self.ratio) {
                let found = found.map_or("not measured".to_owned(), |found| format!("{found:.2}"));
                unmet.push(format!("{}: {self} asked for, {found}", load.name()));
            }
        }
        if !is_asked {
            unmet.push(format!("{self} asked for, nothing of it was copied"));
        }
        unmet
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(text: &str) -> Bound {
        text.parse().expect("legal")
    }

    fn figures(peer: PeerName, load: Load, cpu_ms: u64) -> Figures {
        let mut figures = Figures::sample(peer);
        figures.load = load;
        figures.copy.cpu = std::time::Duration::from_millis(cpu_ms);
        figures
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
            "single.batches.cpu=99 asked for, nothing of it was copied",
            "lz4: records.cpu=1 asked for, not measured",
            "lz4: batches.p99=5 asked for, not measured",
        ];
        assert_eq!(unmet(&asked, &[of_load.into()]), expected);
        let nothing = "batches.cpu=15 asked for, nothing of it was copied";
        assert_eq!(unmet(&asked[..1], &[]), [nothing]);
    }
}
