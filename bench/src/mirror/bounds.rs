//! What a run has to reach, for scripts that shall fail when it does not.
//!
//! A bound is `[TRIAL.][ENGINE.]MEASURE=VALUE`: `cpu=15`, `single.cpu=3`, `records.cpu=1`,
//! `quiet.memory_mb=150`. Without a trial it is asked of every trial that tells the measure, without an
//! engine of `batches`. Whether it is a least or a most is said by the flag that it is given to; a flag
//! refuses what is better the other way.

use std::fmt;

use clap::ValueEnum as _;

use super::{
    findings::{Finding, Measure, Trial},
    options::{Options, PeerName},
};

/// A number that has to be reached, or not to be passed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Bound {
    /// None: every trial that tells the measure.
    trial: Option<Trial>,
    ours: PeerName,
    /// Says by which side is better whether `limit` is a least or a most.
    measure: Measure,
    limit: f64,
}

/// A bound that is given to `--at-least`.
///
/// # Errors
/// Says what is wrong with it.
pub(crate) fn at_least(text: &str) -> Result<Bound, String> {
    let bound = parse(text)?;
    if !bound.measure.is_better_when_larger() {
        let measure = bound.measure.name();
        return Err(format!("less of {measure} is better: give it to --at-most"));
    }
    if bound.limit <= 0.0 {
        return Err(format!("{} is reached by everything", bound.limit));
    }
    Ok(bound)
}

/// A bound that is given to `--at-most`.
///
/// # Errors
/// As [`at_least`].
pub(crate) fn at_most(text: &str) -> Result<Bound, String> {
    let bound = parse(text)?;
    if bound.measure.is_better_when_larger() {
        let measure = bound.measure.name();
        return Err(format!(
            "more of {measure} is better: give it to --at-least"
        ));
    }
    if bound.limit < 0.0 {
        return Err(format!("nothing is below {}", bound.limit));
    }
    Ok(bound)
}

fn parse(text: &str) -> Result<Bound, String> {
    let (name, limit) = text.split_once('=').ok_or("no `=VALUE` in it")?;
    let number = limit.parse().ok();
    let limit = number
        .filter(|limit: &f64| limit.is_finite())
        .ok_or_else(|| format!("{limit:?} is no number"))?;
    let mut words: Vec<&str> = name.split('.').collect();
    let measure = words.pop().unwrap_or_default();
    let measure = Measure::from_str(measure, false).map_err(|_| {
        let all = Measure::value_variants().iter();
        let all: Vec<String> = all.map(|measure| measure.name()).collect();
        format!("{measure:?} is none of {}", all.join(", "))
    })?;
    let (mut trial, mut ours) = (None, None);
    for word in words {
        if let Some(named) = Trial::named(word)
            && trial.is_none()
        {
            if !measure.is_of(named) {
                return Err(format!("{word} does not tell {}", measure.name()));
            }
            trial = Some(named);
        } else if let Ok(named @ (PeerName::Records | PeerName::Batches)) =
            PeerName::from_str(word, false)
            && ours.is_none()
        {
            ours = Some(named);
        } else {
            return Err(format!(
                "{word:?} is neither a trial nor an engine of ours, or one too many"
            ));
        }
    }
    Ok(Bound {
        trial,
        ours: ours.unwrap_or(PeerName::Batches),
        measure,
        limit,
    })
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(trial) = self.trial {
            write!(f, "{}.", trial.name())?;
        }
        let (ours, measure) = (self.ours.name(), self.measure.name());
        let side = match self.measure.is_better_when_larger() {
            true => "at least",
            false => "at most",
        };
        write!(f, "{ours}.{measure} {side} {}", self.limit)
    }
}

impl Bound {
    fn is_asked_of(&self, trial: Trial) -> bool {
        self.trial.is_none_or(|own| own == trial) && self.measure.is_of(trial)
    }

    fn is_about(&self, found: &Finding) -> bool {
        self.is_asked_of(found.trial) && (self.ours, self.measure) == (found.of, found.measure)
    }

    fn is_kept_by(&self, found: f64) -> bool {
        match self.measure.is_better_when_larger() {
            true => found >= self.limit,
            false => found <= self.limit,
        }
    }

    fn is_planned(&self, options: &Options) -> bool {
        let mut trials = options.trials().into_iter();
        let is_told = trials.any(|trial| {
            let peers = options.peers_of(trial);
            let is_compared = !self.measure.is_ratio() || peers.contains(&PeerName::Mm2);
            self.is_asked_of(trial) && peers.contains(&self.ours) && is_compared
        });
        is_told && (options.latency_seconds > 0 || self.measure != Measure::P99)
    }
}

/// What is asked of a run that will not tell it, a sentence each: better known before an hour of measuring
/// than after it.
pub(crate) fn unplanned(bounds: &[Bound], options: &Options) -> Vec<String> {
    let unplanned = bounds.iter().filter(|bound| !bound.is_planned(options));
    unplanned
        .map(|bound| format!("{bound}: nothing of it is to be measured"))
        .collect()
}

/// What was asked for and is not reached, a sentence each. What was not measured is not reached.
pub(crate) fn unmet(bounds: &[Bound], findings: &[Finding]) -> Vec<String> {
    let mut unmet = Vec::new();
    for bound in bounds {
        let mut is_told = false;
        for found in findings.iter().filter(|found| bound.is_about(found)) {
            is_told = true;
            if found.value.is_some_and(|value| bound.is_kept_by(value)) {
                continue;
            }
            let value = match found.value {
                Some(value) => format!("{value:.2}"),
                None => "not measured".to_owned(),
            };
            unmet.push(format!(
                "{}: {bound} asked for, {value}",
                found.trial.name()
            ));
        }
        if !is_told {
            unmet.push(format!("{bound} asked for, nothing of it was measured"));
        }
    }
    unmet
}

#[cfg(test)]
mod tests {
    use super::{super::options::Load, *};

    fn least(text: &str) -> Bound {
        at_least(text).expect("legal")
    }

    fn most(text: &str) -> Bound {
        at_most(text).expect("legal")
    }

    fn found(trial: Trial, of: PeerName, measure: Measure, value: f64) -> Finding {
        Finding {
            trial,
            of,
            measure,
            value: Some(value),
        }
    }

    #[test]
    fn a_bound_names_a_measure_and_if_need_be_a_trial_and_an_engine() {
        for (text, told) in [
            ("cpu=15", "batches.cpu at least 15"),
            ("single.records.p99=1.5", "single.records.p99 at least 1.5"),
            ("records.single.p99=1.5", "single.records.p99 at least 1.5"),
            ("rtt.mb_s=20", "rtt.batches.mb_s at least 20"),
            (
                "link.link_percent=60",
                "link.batches.link_percent at least 60",
            ),
        ] {
            assert_eq!(least(text).to_string(), told);
        }
        for (text, told) in [
            ("quiet.memory_mb=150", "quiet.batches.memory_mb at most 150"),
            ("core_percent=3", "batches.core_percent at most 3"),
            ("failover.repeats=0", "failover.batches.repeats at most 0"),
            ("records.missing=0", "records.missing at most 0"),
            ("lz4.repeats=0", "lz4.batches.repeats at most 0"),
            ("seconds=2.5", "batches.seconds at most 2.5"),
        ] {
            assert_eq!(most(text).to_string(), told);
        }
    }

    #[test]
    fn what_is_no_bound_is_refused_with_what_is_wrong() {
        for (text, fault) in [
            ("cpu", "no `=VALUE` in it"),
            ("cpu=", "\"\" is no number"),
            ("cpu=inf", "\"inf\" is no number"),
            ("cpu=0", "0 is reached by everything"),
            (
                "disk=1",
                "\"disk\" is none of cpu, memory, throughput, p99, repeats, missing, seconds, \
                 memory_mb, core_percent, mb_s, link_percent",
            ),
            (
                "mm2.cpu=1",
                "\"mm2\" is neither a trial nor an engine of ours, or one too many",
            ),
            (
                "lz4.zstd.cpu=1",
                "\"zstd\" is neither a trial nor an engine of ours, or one too many",
            ),
            (
                ".cpu=1",
                "\"\" is neither a trial nor an engine of ours, or one too many",
            ),
            ("quiet.cpu=1", "quiet does not tell cpu"),
            (
                "memory_mb=150",
                "less of memory_mb is better: give it to --at-most",
            ),
        ] {
            assert_eq!(at_least(text), Err(fault.to_owned()), "{text}");
        }
        for (text, fault) in [
            ("cpu=15", "more of cpu is better: give it to --at-least"),
            ("repeats=-1", "nothing is below -1"),
        ] {
            assert_eq!(at_most(text), Err(fault.to_owned()), "{text}");
        }
    }

    #[test]
    fn what_is_not_reached_or_was_not_measured_is_told() {
        let lz4 = Trial::Load(Load::Lz4);
        let ours = PeerName::Batches;
        let mut findings = vec![
            found(lz4, ours, Measure::Cpu, 15.0),
            found(lz4, ours, Measure::Repeats, 0.0),
            found(Trial::Failover, ours, Measure::Repeats, 2.0),
            found(Trial::Quiet, ours, Measure::MemoryMb, 150.0),
            found(Trial::Rtt, ours, Measure::MbS, 19.996),
            found(Trial::Link, ours, Measure::MbS, 12.0),
        ];
        findings.push(Finding {
            value: None,
            ..found(lz4, ours, Measure::P99, 0.0)
        });
        let asked = [
            least("cpu=15"),
            least("cpu=15.5"),
            least("single.cpu=99"),
            least("records.cpu=1"),
            least("p99=5"),
            most("repeats=0"),
            most("quiet.memory_mb=150"),
            most("quiet.memory_mb=149.9"),
            least("rtt.mb_s=20"),
            least("mb_s=11"),
        ];
        let expected = [
            "lz4: batches.cpu at least 15.5 asked for, 15.00",
            "single.batches.cpu at least 99 asked for, nothing of it was measured",
            "records.cpu at least 1 asked for, nothing of it was measured",
            "lz4: batches.p99 at least 5 asked for, not measured",
            "failover: batches.repeats at most 0 asked for, 2.00",
            "quiet: quiet.batches.memory_mb at most 149.9 asked for, 150.00",
            "rtt: rtt.batches.mb_s at least 20 asked for, 20.00",
        ];
        assert_eq!(unmet(&asked, &findings), expected);
        let nothing = "batches.cpu at least 15 asked for, nothing of it was measured";
        assert_eq!(unmet(&asked[..1], &[]), [nothing]);
    }

    #[test]
    fn what_a_run_will_not_tell_is_known_before_it_begins() {
        let told = |line: &str| {
            let options = Options::of_line(line);
            let bounds = [&options.at_least[..], &options.at_most[..]].concat();
            unplanned(&bounds, &options)
        };
        let all = "--failover --quiet 10 --rtt 1ms --link-mbit 100 \
                   --at-least cpu=15,p99=5,single.cpu=3,records.cpu=1,rtt.mb_s=20,link_percent=50 \
                   --at-most repeats=0,missing=0,memory_mb=150";
        assert_eq!(told(all), Vec::<String>::new());
        for (line, bound) in [
            (
                "--loads lz4 --at-least single.cpu=3",
                "single.batches.cpu at least 3",
            ),
            ("--records 0 --at-least cpu=15", "batches.cpu at least 15"),
            (
                "--latency-seconds 0 --at-least p99=5",
                "batches.p99 at least 5",
            ),
            (
                "--peers batches --at-least cpu=15",
                "batches.cpu at least 15",
            ),
            (
                "--peers mm2,batches --at-least records.cpu=1",
                "records.cpu at least 1",
            ),
            (
                "--quiet 9 --also-peers mm2 --at-most memory_mb=150",
                "batches.memory_mb at most 150",
            ),
            ("--at-most memory_mb=150", "batches.memory_mb at most 150"),
            (
                "--rtt 1ms --at-least link_percent=50",
                "batches.link_percent at least 50",
            ),
        ] {
            let expected = format!("{bound}: nothing of it is to be measured");
            assert_eq!(told(line), [expected], "{line}");
        }
    }
}
