//! Compares what arrived in the partitions of a target with what was produced.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use tokio::time::Instant;

use crate::{record::Content, settings};

/// A topic and a partition of it.
pub type Lane = (String, i32);

/// Number of records by lane. As records are numbered without holes, `n` stands for `0..n`.
pub type Counts = BTreeMap<Lane, u64>;

/// Examples kept of each kind of fault.
const EXAMPLES: usize = 5;

/// What has arrived so far.
#[derive(Debug, Default)]
pub struct Checker {
    streams: BTreeMap<Lane, Stream>,
}

/// What an arrival was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// Seen for the first time, and nothing after it was seen before it.
    New,
    /// Seen for the first time, but after a later record.
    Late,
    /// Seen before.
    Repeat,
    /// Not as written; does not count as seen.
    Altered,
}

#[derive(Debug, Default)]
struct Stream {
    source_topic: Option<String>,
    /// One above the highest number seen.
    next: u64,
    /// Numbers below `next` that were not seen.
    holes: BTreeSet<u64>,
    late: u64,
    repeats: Vec<(Instant, u64)>,
    altered: u64,
    altered_examples: Vec<String>,
}

impl Checker {
    /// Takes note of a record that was read from a partition of the target.
    pub fn observe(
        &mut self,
        at: Instant,
        target_topic: &str,
        partition: i32,
        content: &Content,
    ) -> Arrival {
        let stream = match self.streams.get_mut(&(target_topic.to_owned(), partition)) {
            Some(stream) => stream,
            None => self
                .streams
                .entry((target_topic.to_owned(), partition))
                .or_default(),
        };
        stream.observe(at, partition, content)
    }

    /// Records seen in each partition, each counted once.
    #[must_use]
    pub fn seen(&self) -> Counts {
        let streams = self.streams.iter();
        streams
            .map(|(lane, stream)| (lane.clone(), stream.next - stream.holes.len() as u64))
            .collect()
    }

    /// One above the highest record number seen in each partition.
    #[must_use]
    pub fn reached(&self) -> Counts {
        let streams = self.streams.iter();
        streams
            .map(|(lane, stream)| (lane.clone(), stream.next))
            .collect()
    }

    /// Numbers of the records that arrived again at or after `since`, by partition; partitions
    /// without are left out.
    #[must_use]
    pub fn repeats_since(&self, since: Instant) -> BTreeMap<Lane, Vec<u64>> {
        let streams = self.streams.iter();
        let repeats = streams.map(|(lane, stream)| {
            let repeats = stream.repeats.iter();
            let late = repeats.filter(|(at, _)| *at >= since);
            (lane.clone(), late.map(|(_, seq)| *seq).collect::<Vec<_>>())
        });
        repeats.filter(|(_, seqs)| !seqs.is_empty()).collect()
    }

    /// Compares with what was produced, by *target* topic. Records beyond `produced` are not
    /// judged: a producer may go on.
    #[must_use]
    pub fn report(&self, produced: &Counts) -> Report {
        let mut report = Report::default();
        for (lane, count) in produced {
            report.produced += count;
            let name = format!("{}/{}", lane.0, lane.1);
            let Some(stream) = self.streams.get(lane) else {
                report.missing.add(*count, || format!("all of {name}"));
                continue;
            };
            let holes: Vec<u64> = stream.holes.range(..count).copied().collect();
            let absent = count.saturating_sub(stream.next);
            report
                .missing
                .add(holes.len() as u64, || format!("{name}: {}", ranges(&holes)));
            report
                .missing
                .add(absent, || format!("{name}: {}..{count}", stream.next));
            report
                .reordered
                .add(stream.late, || format!("{name}: {}", stream.late));
            let again: Vec<u64> = stream.repeats.iter().map(|(_, seq)| *seq).collect();
            report
                .repeated
                .add(again.len() as u64, || format!("{name}: {}", ranges(&again)));
            report.altered.add(stream.altered, || {
                format!("{name}: {}", stream.altered_examples.join("; "))
            });
        }
        report
    }
}

impl Stream {
    fn observe(&mut self, at: Instant, partition: i32, content: &Content) -> Arrival {
        let Some(stamp) = content.stamp() else {
            return self.altered(format!("no stamp in {content:?}"));
        };
        let source_topic = self.source_topic.get_or_insert_with(|| stamp.topic.clone());
        if *source_topic != stamp.topic || stamp.partition != partition {
            return self.altered(format!("a record of {}/{}", stamp.topic, stamp.partition));
        }
        if let Some(difference) = content.difference(&stamp) {
            return self.altered(format!("{}: {difference}", stamp.seq));
        }
        if stamp.seq >= self.next {
            self.holes.extend(self.next..stamp.seq);
            self.next = stamp.seq + 1;
            Arrival::New
        } else if self.holes.remove(&stamp.seq) {
            self.late += 1;
            Arrival::Late
        } else {
            self.repeats.push((at, stamp.seq));
            Arrival::Repeat
        }
    }

    fn altered(&mut self, what: String) -> Arrival {
        self.altered += 1;
        if self.altered_examples.len() < EXAMPLES {
            self.altered_examples.push(what);
        }
        Arrival::Altered
    }
}

/// Numbers as half-open ranges, the first few.
fn ranges(numbers: &[u64]) -> String {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some((_, end)) if *end == *number => *end += 1,
            _ => runs.push((*number, number + 1)),
        }
    }
    let shown: Vec<String> = runs
        .iter()
        .take(EXAMPLES)
        .map(|(from, to)| format!("{from}..{to}"))
        .collect();
    let more = if runs.len() > EXAMPLES { ", …" } else { "" };
    format!("{}{more}", shown.join(", "))
}

/// A kind of fault: how often, and examples.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Faults {
    /// How many records.
    pub count: u64,
    /// Where, for people.
    pub examples: Vec<String>,
}

impl Faults {
    fn add(&mut self, count: u64, example: impl FnOnce() -> String) {
        if count == 0 {
            return;
        }
        self.count += count;
        if self.examples.len() < EXAMPLES {
            self.examples.push(example());
        }
    }
}

/// What is wrong with a target.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Records produced.
    pub produced: u64,
    /// Records that never arrived.
    pub missing: Faults,
    /// Records that arrived again.
    pub repeated: Faults,
    /// Records that first arrived after a later one.
    pub reordered: Faults,
    /// Records that are not as written, or in a wrong place.
    pub altered: Faults,
}

impl Report {
    /// Nothing missing, reordered or altered; repeats are allowed.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.missing.count == 0 && self.reordered.count == 0 && self.altered.count == 0
    }

    /// Complete, and every record once.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.is_complete() && self.repeated.count == 0
    }

    /// Whether the copy is what the engine under test promises: exact, or complete.
    #[must_use]
    pub fn is_as_promised(&self) -> bool {
        if settings::is_exactly_once() {
            self.is_exact()
        } else {
            self.is_complete()
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} produced", self.produced)?;
        for (what, faults) in [
            ("missing", &self.missing),
            ("repeated", &self.repeated),
            ("reordered", &self.reordered),
            ("altered", &self.altered),
        ] {
            write!(f, ", {} {what}", faults.count)?;
            if !faults.examples.is_empty() {
                write!(f, " ({})", faults.examples.join("; "))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Stamp;

    fn content(partition: i32, seq: u64) -> Content {
        Stamp {
            topic: "orders".to_owned(),
            partition,
            seq,
            timestamp_ms: 1,
            padding: 0,
        }
        .content()
    }

    fn check(seqs: &[u64], produced: u64) -> Report {
        let mut checker = Checker::default();
        for seq in seqs {
            checker.observe(Instant::now(), "a.orders", 0, &content(0, *seq));
        }
        checker.report(&Counts::from([(("a.orders".to_owned(), 0), produced)]))
    }

    #[test]
    fn a_faithful_copy_is_exact() {
        let report = check(&[0, 1, 2, 3], 4);
        assert!(report.is_exact(), "{report}");
    }

    #[test]
    fn lost_records_are_found_inside_at_the_end_and_of_whole_partitions() {
        let report = check(&[0, 3, 4], 7);
        assert_eq!(report.missing.count, 4, "{report}");
        assert_eq!(
            report.missing.examples,
            ["a.orders/0: 1..3", "a.orders/0: 5..7"]
        );
        assert_eq!(report.reordered.count, 0);
        let nothing = Checker::default().report(&Counts::from([(("x".to_owned(), 1), 9)]));
        assert_eq!(nothing.missing.count, 9);
        assert!(!nothing.is_complete());
    }

    #[test]
    fn a_rewind_is_counted_as_repeats_and_nothing_else() {
        let report = check(&[0, 1, 2, 1, 2, 3], 4);
        assert!(report.is_complete() && !report.is_exact(), "{report}");
        assert_eq!(report.repeated.count, 2);
        assert_eq!(report.repeated.examples, ["a.orders/0: 1..3"]);
    }

    #[test]
    fn swapped_records_are_reordered_and_not_missing() {
        let report = check(&[0, 2, 1, 3], 4);
        assert_eq!((report.reordered.count, report.missing.count), (1, 0));
        assert!(!report.is_complete());
    }

    #[test]
    fn altered_and_misplaced_records_are_found_and_do_not_count_as_arrived() {
        let mut checker = Checker::default();
        let now = Instant::now();
        let mut altered = content(0, 0);
        altered.headers.push(("added".to_owned(), None));
        assert_eq!(
            checker.observe(now, "orders", 0, &altered),
            Arrival::Altered
        );
        assert_eq!(
            checker.observe(now, "orders", 0, &content(1, 0)),
            Arrival::Altered
        );
        let report = checker.report(&Counts::from([(("orders".to_owned(), 0), 1)]));
        assert_eq!((report.altered.count, report.missing.count), (2, 1));
    }

    #[test]
    fn records_beyond_what_was_counted_are_not_judged() {
        let report = check(&[0, 1, 2, 5], 2);
        assert!(report.is_exact(), "{report}");
    }

    #[test]
    fn repeats_are_told_by_the_time_of_the_second_arrival() {
        let mut checker = Checker::default();
        let start = Instant::now();
        let later = start + std::time::Duration::from_secs(1);
        for (at, seq) in [(start, 0), (start, 0), (later, 0)] {
            checker.observe(at, "orders", 0, &content(0, seq));
        }
        let lane = ("orders".to_owned(), 0);
        assert_eq!(checker.repeats_since(start)[&lane], [0, 0]);
        assert_eq!(checker.repeats_since(later)[&lane], [0]);
        assert!(
            checker
                .repeats_since(later + std::time::Duration::from_secs(1))
                .is_empty()
        );
    }
}
