//! Settings of topics: which of the source's a new target topic is made with, what a target topic
//! refuses, and what about it deserves a warning.

use std::{collections::BTreeMap, time::Duration};

use kreplicator_model::{spec::TargetTopics, target_limits::TargetLimits};

use crate::cluster_admin::TopicSettings;

/// Settings of the source topic that the target topic is made with where they are set on the topic
/// itself. Left out on purpose:
/// - `message.timestamp.*`: the source has applied them when the record arrived. A copy arrives later, so
///   the window would refuse what the source accepted, and `LogAppendTime` would alter the timestamp.
/// - throttles and tiered storage: they belong to one cluster's brokers.
const COPIED: [&str; 14] = [
    "cleanup.policy",
    "compression.type",
    "delete.retention.ms",
    "max.compaction.lag.ms",
    "max.message.bytes",
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
    "retention.bytes",
    "retention.ms",
    "segment.bytes",
    "segment.index.bytes",
    "segment.jitter.ms",
    "segment.ms",
    MIN_IN_SYNC,
];

const MIN_IN_SYNC: &str = "min.insync.replicas";
const MAX_MESSAGE_BYTES: &str = "max.message.bytes";
/// Kafka's default of `max.message.bytes`.
const MAX_MESSAGE_BYTES_DEFAULT: u64 = 1_048_588;

/// The settings that a target topic is made with: the source topic's own, then the link's.
#[must_use]
pub(crate) fn for_creation(
    source: &TopicSettings,
    policy: &TargetTopics,
) -> BTreeMap<String, String> {
    let mut settings = BTreeMap::new();
    for name in COPIED {
        let Some(found) = source.get(name) else {
            continue;
        };
        let Some(value) = &found.value else {
            continue;
        };
        let carried = match name {
            // More than the replicas that the topic will have would refuse every record. How many a
            // broker gives by default is not known here.
            MIN_IN_SYNC => {
                let fits = |replicas: u16| value.parse::<u16>().is_ok_and(|min| min <= replicas);
                found.is_topic_override && policy.replication_factor.is_some_and(fits)
            }
            // A smaller limit on the target would refuse records, so a raised default counts too.
            MAX_MESSAGE_BYTES => {
                let raised = |bytes: u64| bytes > MAX_MESSAGE_BYTES_DEFAULT;
                found.is_topic_override || value.parse::<u64>().is_ok_and(raised)
            }
            _ => found.is_topic_override,
        };
        if carried {
            settings.insert(name.to_owned(), value.clone());
        }
    }
    settings.extend(
        policy
            .config
            .iter()
            .map(|(name, value)| (name.clone(), value.clone())),
    );
    settings
}

/// What a topic with these settings refuses.
#[must_use]
pub(crate) fn limits(target: &TopicSettings) -> TargetLimits {
    // Before Kafka 3.6 one setting held for both directions.
    let difference = number(target, "message.timestamp.difference.max.ms");
    let window = |name| {
        number(target, name)
            .or(difference)
            .filter(|millis| *millis < i64::MAX.unsigned_abs())
            .map(Duration::from_millis)
    };
    TargetLimits {
        max_message_bytes: number(target, MAX_MESSAGE_BYTES),
        timestamp_before_max: window("message.timestamp.before.max.ms"),
        timestamp_after_max: window("message.timestamp.after.max.ms"),
        compacted: is_compacted(target),
        log_append_time: text(target, "message.timestamp.type") == Some("LogAppendTime"),
    }
}

/// What may go wrong between a source and a target topic with these settings; None: nothing.
#[must_use]
pub(crate) fn warning(source: &TopicSettings, target: &TopicSettings) -> Option<String> {
    let mut warnings = Vec::new();
    let sizes = (
        number(source, MAX_MESSAGE_BYTES),
        number(target, MAX_MESSAGE_BYTES),
    );
    if let (Some(source), Some(target)) = sizes
        && target < source
    {
        warnings.push(format!(
            "max.message.bytes is {target} and {source} on the source: larger records will be \
             refused, raise it"
        ));
    }
    if is_compacted(target) && !is_compacted(source) {
        warnings.push(
            "is compacted and the source is not: records without a key will be refused and older \
             records of a key removed, change its cleanup.policy"
                .to_owned(),
        );
    }
    if text(target, "message.timestamp.type") == Some("LogAppendTime") {
        warnings.push(
            "has message.timestamp.type=LogAppendTime: timestamps of records are not kept"
                .to_owned(),
        );
    }
    (!warnings.is_empty()).then(|| warnings.join("; "))
}

fn is_compacted(settings: &TopicSettings) -> bool {
    text(settings, "cleanup.policy")
        .is_some_and(|policy| policy.split(',').any(|part| part.trim() == "compact"))
}

fn text<'a>(settings: &'a TopicSettings, name: &str) -> Option<&'a str> {
    settings.get(name)?.value.as_deref()
}

fn number(settings: &TopicSettings, name: &str) -> Option<u64> {
    text(settings, name)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use kreplicator_kafka::admin::ConfigValue;

    use super::*;

    /// Settings from `name=value`; a leading `!` marks one set on the topic itself.
    fn settings(entries: &[&str]) -> TopicSettings {
        let entry = |entry: &&str| {
            let (name, value) = entry.split_once('=').expect("name=value");
            let own = name.strip_prefix('!');
            let value = ConfigValue {
                value: Some(value.to_owned()),
                is_topic_override: own.is_some(),
            };
            (own.unwrap_or(name).to_owned(), value)
        };
        entries.iter().map(entry).collect()
    }

    fn created(source: &[&str], policy: &TargetTopics) -> Vec<String> {
        for_creation(&settings(source), policy)
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect()
    }

    #[test]
    fn c064_settings_of_the_topic_itself_are_carried_and_inherited_ones_are_not() {
        let source = [
            "!cleanup.policy=compact",
            "!retention.ms=-1",
            "segment.bytes=1073741824",
            "!leader.replication.throttled.replicas=*",
            "!message.timestamp.type=LogAppendTime",
            "!message.timestamp.before.max.ms=1000",
        ];
        assert_eq!(
            created(&source, &TargetTopics::default()),
            ["cleanup.policy=compact", "retention.ms=-1"]
        );
    }

    #[test]
    fn the_settings_of_the_link_come_last() {
        let policy = TargetTopics {
            config: [
                ("retention.ms", "5"),
                ("message.timestamp.type", "CreateTime"),
            ]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
            ..TargetTopics::default()
        };
        assert_eq!(
            created(&["!retention.ms=-1"], &policy),
            ["message.timestamp.type=CreateTime", "retention.ms=5"]
        );
    }

    #[test]
    fn min_insync_replicas_is_carried_only_where_it_fits_for_certain() {
        let with = |replication_factor| TargetTopics {
            replication_factor,
            ..TargetTopics::default()
        };
        let source = ["!min.insync.replicas=2"];
        assert!(created(&source, &with(None)).is_empty());
        assert!(created(&source, &with(Some(1))).is_empty());
        assert_eq!(created(&source, &with(Some(3))), ["min.insync.replicas=2"]);
    }

    #[test]
    fn a_size_limit_raised_for_the_whole_source_cluster_is_carried() {
        let policy = TargetTopics::default();
        assert!(created(&["max.message.bytes=1048588"], &policy).is_empty());
        assert_eq!(
            created(&["max.message.bytes=10485760"], &policy),
            ["max.message.bytes=10485760"]
        );
    }

    #[test]
    fn limits_tell_what_the_target_refuses() {
        let modern = limits(&settings(&[
            "max.message.bytes=1000",
            "cleanup.policy=delete, compact",
            "message.timestamp.type=CreateTime",
            "message.timestamp.before.max.ms=9223372036854775807",
            "message.timestamp.after.max.ms=3600000",
        ]));
        assert_eq!(
            modern,
            TargetLimits {
                max_message_bytes: Some(1000),
                timestamp_before_max: None,
                timestamp_after_max: Some(Duration::from_secs(3600)),
                compacted: true,
                log_append_time: false,
            }
        );
        let old = limits(&settings(&[
            "message.timestamp.difference.max.ms=60000",
            "message.timestamp.type=LogAppendTime",
        ]));
        assert_eq!(old.timestamp_before_max, Some(Duration::from_secs(60)));
        assert_eq!(old.timestamp_after_max, Some(Duration::from_secs(60)));
        assert!(old.log_append_time && !old.compacted);
        assert_eq!(limits(&TopicSettings::new()), TargetLimits::default());
    }

    #[test]
    fn a_target_that_will_refuse_or_alter_records_is_warned_about() {
        let source = settings(&["max.message.bytes=2000", "cleanup.policy=delete"]);
        assert_eq!(warning(&source, &source), None);
        let small = warning(&source, &settings(&["max.message.bytes=1000"])).expect("too small");
        assert!(small.contains("1000") && small.contains("2000"), "{small}");
        let compacted = warning(&source, &settings(&["cleanup.policy=compact"]));
        assert!(compacted.expect("compacted").contains("key"));
        let stamped = warning(
            &source,
            &settings(&["message.timestamp.type=LogAppendTime"]),
        );
        assert!(stamped.expect("stamps").contains("timestamps"));
    }
}
