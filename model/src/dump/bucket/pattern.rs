//! How directories are named.

use std::fmt;

use super::{Bucket, Unit, civil};
use crate::{
    dump::{
        names,
        path::{PathError, StorePath},
    },
    ids::TopicName,
};

/// Longest pattern, in bytes.
const PATTERN_BYTES_MAX: usize = 200;
/// Hive's name of a partition whose value is null.
const HIVE_NULL: &str = "__HIVE_DEFAULT_PARTITION__";
/// The same where there is no column name before it: a name that is not hidden.
const UNDATED: &str = "undated";

/// A pattern that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("directory pattern {pattern:?} {rule}")]
pub struct PatternError {
    /// The pattern as given, cut to its longest length.
    pub pattern: String,
    /// The rule it breaks, written to follow the pattern.
    pub rule: &'static str,
}

/// How the directories of a topic are named, for example `{topic}/dt=YYYY-MM-DD/hour=HH`, the default.
///
/// `{topic}` stands for the topic, once, in a component of its own and before any time. `YYYY`, `MM`, `DD` and `HH` stand for year,
/// month, day and hour of the record's timestamp in UTC; the smallest one is the length of a bucket, and all
/// larger ones must be there too, so that a bucket has one directory and a directory one bucket. The rest is letters,
/// digits and `=_-.`; no component is hidden.
#[derive(Clone, PartialEq, Eq)]
pub struct Pattern {
    text: String,
    /// Parts of each component.
    components: Vec<Vec<Part>>,
    unit: Unit,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Topic,
    Time(Unit),
}

impl Pattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// [`PatternError`] with the rule that it breaks.
    pub fn new(text: &str) -> Result<Self, PatternError> {
        parse(text).map_err(|rule| PatternError {
            pattern: text.chars().take(PATTERN_BYTES_MAX).collect(),
            rule,
        })
    }

    /// The length of a bucket.
    #[must_use]
    pub fn unit(&self) -> Unit {
        self.unit
    }

    /// The directory of a topic's bucket.
    ///
    /// # Errors
    /// The path is too long.
    pub fn directory(&self, topic: &TopicName, bucket: Bucket) -> Result<StorePath, PathError> {
        let components = self.components.iter();
        let names = components.map(|parts| component(parts, topic, bucket));
        StorePath::new(names.collect::<Vec<_>>().join("/"))
    }
}

impl Default for Pattern {
    fn default() -> Self {
        Self::new("{topic}/dt=YYYY-MM-DD/hour=HH").expect("the default is legal")
    }
}

fn component(parts: &[Part], topic: &TopicName, bucket: Bucket) -> String {
    let mut name = String::new();
    for part in parts {
        match (part, bucket) {
            (Part::Text(text), _) => name.push_str(text),
            (Part::Topic, _) => name.push_str(&names::topic_folder(topic)),
            (Part::Time(unit), Bucket::Dated { start }) => {
                let time = civil::of(start.0);
                name.push_str(&match unit {
                    Unit::Year => format!("{:04}", time.year),
                    Unit::Month => format!("{:02}", time.month),
                    Unit::Day => format!("{:02}", time.day),
                    Unit::Hour => format!("{:02}", time.hour),
                });
            }
            // One word for all of its times.
            (Part::Time(_), Bucket::Undated) => {
                let is_column = name.contains('=');
                name.push_str(if is_column { HIVE_NULL } else { UNDATED });
                break;
            }
        }
    }
    name
}

fn parse(text: &str) -> Result<Pattern, &'static str> {
    if text.len() > PATTERN_BYTES_MAX {
        return Err("is longer than 200 bytes; shorten it");
    }
    let mut components = Vec::new();
    for component in text.split('/') {
        if component.is_empty() {
            return Err("has an empty component; leave out the slash");
        }
        if component.starts_with(['_', '.']) {
            return Err("has a component that begins with '_' or '.', which readers pass over");
        }
        components.push(parts(component)?);
    }
    let all: Vec<&Part> = components.iter().flatten().collect();
    let topics = components
        .iter()
        .filter(|parts| parts.contains(&Part::Topic));
    let is_alone = |parts: &&Vec<Part>| parts.len() == 1;
    if topics.clone().count() != 1 || !topics.clone().all(|parts| is_alone(&parts)) {
        return Err("must have {topic} once, as a component of its own");
    }
    let topic_at = all.iter().position(|part| **part == Part::Topic);
    let time_at = all.iter().position(|part| matches!(part, Part::Time(_)));
    if topic_at > time_at {
        return Err("must have {topic} before any time, so that a topic is one folder");
    }
    let mut units: Vec<Unit> = Vec::new();
    for part in all {
        if let Part::Time(unit) = part {
            if units.contains(unit) {
                return Err("has a time twice");
            }
            units.push(*unit);
        }
    }
    let order = [Unit::Year, Unit::Month, Unit::Day, Unit::Hour];
    let Some(&unit) = units.iter().max() else {
        return Err("must have a time: YYYY, MM, DD or HH");
    };
    let wanted = order.iter().filter(|larger| **larger <= unit);
    if !wanted.clone().all(|larger| units.contains(larger)) {
        return Err("must have all of YYYY, MM and DD above its smallest time");
    }
    Ok(Pattern {
        text: text.to_owned(),
        components,
        unit,
    })
}

/// The parts of one component.
fn parts(component: &str) -> Result<Vec<Part>, &'static str> {
    let tokens = [
        ("{topic}", Part::Topic),
        ("YYYY", Part::Time(Unit::Year)),
        ("MM", Part::Time(Unit::Month)),
        ("DD", Part::Time(Unit::Day)),
        ("HH", Part::Time(Unit::Hour)),
    ];
    let mut parts = Vec::new();
    let mut literal = String::new();
    let mut rest = component;
    while let Some(first) = rest.chars().next() {
        let token = tokens
            .iter()
            .find_map(|(token, part)| Some((part, rest.strip_prefix(token)?)));
        if let Some((part, after)) = token {
            if !literal.is_empty() {
                parts.push(Part::Text(std::mem::take(&mut literal)));
            }
            parts.push(part.clone());
            rest = after;
            continue;
        }
        if !(first.is_ascii_alphanumeric() || "=_-.".contains(first)) {
            return Err("may hold letters, digits, '=', '_', '-', '.', {topic} and times only");
        }
        literal.push(first);
        rest = rest.strip_prefix(first).unwrap_or_default();
    }
    if !literal.is_empty() {
        parts.push(Part::Text(literal));
    }
    Ok(parts)
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.text)
    }
}

impl std::str::FromStr for Pattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        Self::new(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::UnixMillis;

    fn directory(pattern: &str, topic: &str, timestamp: i64) -> String {
        let pattern = Pattern::new(pattern).expect("legal");
        let topic = TopicName::new(topic).expect("legal");
        let bucket = pattern.unit().bucket(UnixMillis(timestamp));
        let directory = pattern.directory(&topic, bucket).expect("short");
        assert!(!directory.is_hidden(), "{directory}");
        directory.to_string()
    }

    #[test]
    fn c090_directories_follow_from_the_record() {
        let default = Pattern::default().to_string();
        let nine = 1_796_029_200_000;
        for (pattern, timestamp, expected) in [
            (&*default, nine, "orders/dt=2026-11-30/hour=09"),
            (&*default, nine - 1, "orders/dt=2026-11-30/hour=08"),
            (
                &*default,
                -1,
                "orders/dt=__HIVE_DEFAULT_PARTITION__/hour=__HIVE_DEFAULT_PARTITION__",
            ),
            ("raw/{topic}/YYYYMMDD", nine, "raw/orders/20261130"),
            (
                "{topic}/YYYY/MM/DD/HH",
                -1,
                "orders/undated/undated/undated/undated",
            ),
            ("{topic}/y=YYYY", nine, "orders/y=2026"),
            ("{topic}/m=YYYY-MM", nine, "orders/m=2026-11"),
        ] {
            assert_eq!(directory(pattern, "orders", timestamp), expected);
        }
        assert_eq!(
            directory(&default, "_schemas", 0),
            "%5Fschemas/dt=1970-01-01/hour=00"
        );
        let longest = "x".repeat(249);
        assert!(directory(&default, &longest, 0).starts_with(&longest));
    }

    #[test]
    fn patterns_that_would_mix_topics_or_buckets_are_refused() {
        for bad in [
            "",
            "/",
            "dt=YYYY",
            "{topic}",
            "{topic}/",
            "{topic}/dt=MM-DD",
            "{topic}/hour=HH",
            "{topic}/YYYY/YYYY",
            "{topic}/{topic}/YYYY",
            "x-{topic}/YYYY",
            "dt=YYYY/{topic}",
            "{topic}/_d=YYYY",
            "{topic}/../YYYY",
            "{topic}/d:YYYY",
            "{topic}/d=YYYY MM",
            "{other}/YYYY",
        ] {
            assert!(Pattern::new(bad).is_err(), "{bad:?}");
        }
        assert!(Pattern::new(&format!("{{topic}}/{}YYYY", "x".repeat(200))).is_err());
    }
}
