//! What `verify` found. The fields of its JSON form are part of the interface.

use std::fmt::Write as _;

use kreplicator_model::compare::{Finding as Found, Tally};
use kreplicator_verify::{
    report::{PartitionReport, Range, Report, Verdict},
    run::Options,
};
use serde::Serialize;

use super::{table::table, units::grouped};

/// A whole comparison.
#[derive(Debug, Serialize)]
pub(crate) struct Verification {
    /// `equal`, `different` or `not_compared`.
    verdict: &'static str,
    /// Names of the clusters.
    source: String,
    target: String,
    seconds: f64,
    tolerate_duplicates: bool,
    /// Parts of records that were not compared.
    ignored: Vec<&'static str>,
    totals: Counts,
    partitions: Vec<Partition>,
}

/// One partition.
#[derive(Debug, Serialize)]
struct Partition {
    source_topic: String,
    target_topic: String,
    /// None: the topic as a whole could not be compared.
    partition: Option<i32>,
    verdict: &'static str,
    /// Why it could not be compared, or not to its end.
    error: Option<String>,
    /// Offsets, half-open.
    source_offsets: Option<Offsets>,
    target_offsets: Option<Offsets>,
    #[serde(flatten)]
    counts: Counts,
    notes: Vec<String>,
    findings: Vec<Finding>,
    /// Differing records in no finding.
    findings_left_out: u64,
}

#[derive(Debug, Serialize)]
struct Offsets {
    from: i64,
    to: i64,
}

/// Records.
#[derive(Debug, Default, Clone, Copy, Serialize)]
struct Counts {
    /// Of the source, looked for on the target.
    compared: u64,
    equal: u64,
    missing: u64,
    /// Of the missing ones, those at the end.
    missing_at_end: u64,
    extra: u64,
    doubled: u64,
    altered: u64,
    reordered: u64,
    /// Set aside, see the notes.
    not_comparable: u64,
}

/// A difference.
#[derive(Debug, Serialize)]
struct Finding {
    kind: &'static str,
    source_offset: Option<i64>,
    target_offset: Option<i64>,
    /// How many in a row.
    records: u64,
    /// What differs, of altered records.
    parts: Vec<&'static str>,
}

impl Verification {
    /// The outcome of a comparison of two clusters.
    pub(crate) fn new(report: &Report, names: (String, String), options: &Options) -> Self {
        let partitions: Vec<Partition> = report.partitions.iter().map(partition).collect();
        let mut totals = Counts::default();
        for partition in &partitions {
            totals.add(&partition.counts);
        }
        Self {
            verdict: word(report.verdict()),
            source: names.0,
            target: names.1,
            seconds: (report.took.as_secs_f64() * 1000.0).round() / 1000.0,
            tolerate_duplicates: options.tolerate_duplicates,
            ignored: options.ignored.names(),
            totals,
            partitions,
        }
    }

    /// For people: a table, the first findings, what else is to be known, and a last line.
    pub(crate) fn text(&self, findings_max: usize) -> String {
        let headings = [
            "TOPIC",
            "TARGET",
            "PARTITION",
            "COMPARED",
            "MISSING",
            "EXTRA",
            "DOUBLED",
            "ALTERED",
            "REORDERED",
            "RESULT",
        ];
        let rows = self.partitions.iter().map(|partition| {
            let number = |number: Option<i32>| number.map_or(String::new(), |n| n.to_string());
            let counts = &partition.counts;
            let counted = [
                counts.compared,
                counts.missing,
                counts.extra,
                counts.doubled,
                counts.altered,
                counts.reordered,
            ];
            let mut row = vec![
                partition.source_topic.clone(),
                partition.target_topic.clone(),
                number(partition.partition),
            ];
            row.extend(counted.map(grouped));
            row.push(partition.verdict.replace('_', " "));
            row
        });
        let mut text = table(&headings, rows);
        self.write_findings(&mut text, findings_max);
        self.write_notes(&mut text);
        let (said, totals) = (self.verdict.replace('_', " "), &self.totals);
        let line = format!(
            "\n\n{said}: {} records of {} compared with {} in {:.1} s",
            grouped(totals.compared),
            self.source,
            self.target,
            self.seconds
        );
        text.push_str(&line);
        if self.tolerate_duplicates && totals.doubled > 0 {
            text.push_str("; doubled records are tolerated");
        }
        text
    }

    fn write_findings(&self, text: &mut String, findings_max: usize) {
        let findings = self.partitions.iter().flat_map(|partition| {
            let findings = partition.findings.iter();
            findings.map(move |finding| (partition, finding))
        });
        let count = findings.clone().count();
        if count == 0 {
            return;
        }
        let headings = [
            "DIFFERENCE",
            "TOPIC",
            "PARTITION",
            "SOURCE OFFSET",
            "TARGET OFFSET",
            "RECORDS",
            "PARTS",
        ];
        let rows = findings
            .clone()
            .take(findings_max)
            .map(|(partition, finding)| {
                let offset =
                    |offset: Option<i64>| offset.map_or(String::new(), |at| at.to_string());
                vec![
                    finding.kind.to_owned(),
                    partition.source_topic.clone(),
                    partition.partition.unwrap_or_default().to_string(),
                    offset(finding.source_offset),
                    offset(finding.target_offset),
                    grouped(finding.records),
                    finding.parts.join(", "),
                ]
            });
        text.push_str("\n\n");
        text.push_str(&table(&headings, rows));
        let unseen = findings.skip(findings_max);
        let unseen: u64 = unseen.map(|(_, finding)| finding.records).sum();
        let left_out: u64 = self.partitions.iter().map(|p| p.findings_left_out).sum();
        if unseen + left_out > 0 {
            let records = grouped(unseen + left_out);
            write_line(
                text,
                &format!("… and {records} records more; see --findings and -o json"),
            );
        }
    }

    fn write_notes(&self, text: &mut String) {
        let mut is_first = true;
        for partition in &self.partitions {
            let place = match partition.partition {
                Some(number) => format!("{}/{number}", partition.source_topic),
                None => partition.source_topic.clone(),
            };
            let error = partition.error.iter().map(|error| ("not compared", error));
            let notes = partition.notes.iter().map(|note| ("note", note));
            for (kind, line) in error.chain(notes) {
                if std::mem::take(&mut is_first) {
                    text.push('\n');
                }
                write_line(text, &format!("{kind}: {place}: {line}"));
            }
        }
    }
}

fn write_line(text: &mut String, line: &str) {
    write!(text, "\n{line}").expect("text takes everything");
}

impl Counts {
    fn of(tally: &Tally) -> Self {
        Self {
            compared: tally.equal + tally.missing + tally.altered + tally.reordered,
            equal: tally.equal,
            missing: tally.missing,
            missing_at_end: tally.missing_at_end,
            extra: tally.extra,
            doubled: tally.doubled,
            altered: tally.altered,
            reordered: tally.reordered,
            not_comparable: tally.lead_of_source
                + tally.lead_of_target
                + tally.compacted_on_source
                + tally.compacted_on_target,
        }
    }

    fn add(&mut self, other: &Self) {
        self.compared += other.compared;
        self.equal += other.equal;
        self.missing += other.missing;
        self.missing_at_end += other.missing_at_end;
        self.extra += other.extra;
        self.doubled += other.doubled;
        self.altered += other.altered;
        self.reordered += other.reordered;
        self.not_comparable += other.not_comparable;
    }
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Equal => "equal",
        Verdict::Different => "different",
        Verdict::NotCompared => "not_compared",
    }
}

fn partition(report: &PartitionReport) -> Partition {
    let offsets = |range: Range| Offsets {
        from: range.from.0,
        to: range.to.0,
    };
    Partition {
        source_topic: report.source_topic.to_string(),
        target_topic: report.target_topic.to_string(),
        partition: report.partition.map(|partition| partition.0),
        verdict: word(report.verdict),
        error: report.error.clone(),
        source_offsets: report.source.map(offsets),
        target_offsets: report.target.map(offsets),
        counts: Counts::of(&report.tally),
        notes: report.notes.clone(),
        findings: report.findings.iter().map(finding).collect(),
        findings_left_out: report.findings_left_out,
    }
}

fn finding(found: &Found) -> Finding {
    Finding {
        kind: found.kind.name(),
        source_offset: found.source.map(|offset| offset.0),
        target_offset: found.target.map(|offset| offset.0),
        records: found.records,
        parts: found.parts.names(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kreplicator_model::{
        compare::{Kind, Parts},
        ids::{Offset, Partition as Number, TopicName},
    };

    use super::*;

    fn shown() -> Verification {
        let report = |partition, tally, findings, verdict, error: Option<&str>| PartitionReport {
            source_topic: TopicName::new("orders").expect("legal"),
            target_topic: TopicName::new("east.orders").expect("legal"),
            partition: Some(Number(partition)),
            source: Some(Range {
                from: Offset(0),
                to: Offset(1_200),
            }),
            target: None,
            tally,
            findings,
            findings_left_out: 0,
            notes: vec!["7 offsets are gone from the source and not comparable".to_owned()],
            error: error.map(str::to_owned),
            verdict,
        };
        let equal = Tally {
            equal: 1_200,
            ..Tally::default()
        };
        let different = Tally {
            equal: 1_196,
            missing: 3,
            altered: 1,
            doubled: 2,
            ..Tally::default()
        };
        let altered = Found {
            kind: Kind::Altered,
            source: Some(Offset(5)),
            target: Some(Offset(7)),
            records: 1,
            parts: Parts {
                value: true,
                timestamp: true,
                ..Parts::default()
            },
        };
        let missing = Found {
            kind: Kind::Missing,
            source: Some(Offset(9)),
            target: None,
            records: 3,
            parts: Parts::default(),
        };
        let report = Report {
            partitions: vec![
                report(0, equal, Vec::new(), Verdict::Equal, None),
                report(
                    1,
                    different,
                    vec![altered, missing],
                    Verdict::Different,
                    None,
                ),
                report(
                    2,
                    Tally::default(),
                    Vec::new(),
                    Verdict::NotCompared,
                    Some("stopped before the end"),
                ),
            ],
            took: Duration::from_millis(1_500),
        };
        let options = Options {
            from: None,
            to: None,
            partition: None,
            ignored: Parts::default(),
            tolerate_duplicates: true,
            wait: Duration::ZERO,
            stall_timeout: Duration::ZERO,
            partitions_at_once: 1,
            findings: 1,
            seed: 0,
        };
        Verification::new(&report, ("east".to_owned(), "west".to_owned()), &options)
    }

    #[test]
    fn the_text_is_as_recorded() {
        assert_eq!(
            shown().text(1),
            include_str!("golden/verification.txt").trim_end()
        );
    }

    #[test]
    fn the_json_form_is_as_recorded() {
        let json = super::super::data(&shown(), crate::args::Format::Json).expect("data");
        assert_eq!(
            json,
            include_str!("golden/verification.json").trim_end(),
            "\n{json}"
        );
    }
}
