//! Links.

use std::collections::BTreeMap;

use kreplicator_model::{
    ids::{ClusterId, LinkId, TopicName},
    spec::{CheckpointSide, Engine, GapPolicy, Link, Naming, StartPolicy, TargetTopics},
};

use super::{PREFIX_BYTES_MAX, RENAMES_MAX, check_options};
use crate::{
    fault::{Faults, FieldFault},
    v1,
};

impl TryFrom<&v1::Link> for Link {
    type Error = Vec<FieldFault>;

    fn try_from(message: &v1::Link) -> Result<Self, Self::Error> {
        let mut faults = Faults::default();
        let id = faults.take("id", LinkId::new(&message.id));
        let source = faults.take("source", ClusterId::new(&message.source));
        let target = faults.take("target", ClusterId::new(&message.target));
        if source.is_some() && source == target {
            faults.add(
                "target",
                format!(
                    "{:?} is the source as well; a link joins two clusters",
                    message.target
                ),
            );
        }
        let naming = match &message.naming {
            None => Some(Naming::default()),
            Some(naming) => faults.part("naming", Naming::try_from(naming)),
        };
        let start = match &message.start {
            None => Some(StartPolicy::default()),
            Some(start) => faults.part("start", StartPolicy::try_from(start)),
        };
        let on_gap = match v1::GapPolicy::try_from(message.on_gap) {
            Ok(v1::GapPolicy::Unspecified | v1::GapPolicy::ContinueAndReport) => {
                Some(GapPolicy::ContinueAndReport)
            }
            Ok(v1::GapPolicy::Halt) => Some(GapPolicy::Halt),
            Err(_) => {
                faults.add("on_gap", "is not known; use CONTINUE_AND_REPORT or HALT");
                None
            }
        };
        let checkpoint_on = match v1::CheckpointSide::try_from(message.checkpoint_on) {
            Ok(v1::CheckpointSide::Unspecified | v1::CheckpointSide::Source) => {
                Some(CheckpointSide::Source)
            }
            Ok(v1::CheckpointSide::Target) => Some(CheckpointSide::Target),
            Err(_) => {
                faults.add("checkpoint_on", "is not known; use SOURCE or TARGET");
                None
            }
        };
        let target_topics = match &message.target_topics {
            None => Some(TargetTopics::default()),
            Some(topics) => faults.part("target_topics", TargetTopics::try_from(topics)),
        };
        let engine = match v1::Engine::try_from(message.engine) {
            Ok(v1::Engine::Unspecified) => Some(None),
            Ok(v1::Engine::Records) => Some(Some(Engine::Records)),
            Ok(v1::Engine::Batches) => Some(Some(Engine::Batches)),
            Err(_) => {
                faults.add("engine", "is not known; use RECORDS or BATCHES");
                None
            }
        };
        let whole = || {
            Some(Self {
                id: id?,
                source: source?,
                target: target?,
                naming: naming?,
                start: start?,
                on_gap: on_gap?,
                checkpoint_on: checkpoint_on?,
                target_topics: target_topics?,
                paused: message.paused,
                engine: engine?,
            })
        };
        faults.finish(whole())
    }
}

impl TryFrom<&v1::Naming> for Naming {
    type Error = Vec<FieldFault>;

    fn try_from(message: &v1::Naming) -> Result<Self, Self::Error> {
        let mut faults = Faults::default();
        let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if !message.prefix.chars().all(allowed) {
            faults.add(
                "prefix",
                format!(
                    "{:?} cannot begin a topic name; use ASCII letters, digits, '-', '_' and '.'",
                    message.prefix
                ),
            );
        }
        faults.text("prefix", &message.prefix, PREFIX_BYTES_MAX);
        faults.at_most("rename", message.rename.len(), RENAMES_MAX);
        let mut rename = BTreeMap::new();
        let mut renamed_to: BTreeMap<&str, &str> = BTreeMap::new();
        for (source, target) in &message.rename {
            let path = format!("rename[{source:?}]");
            let source_name = faults.take(path.clone(), TopicName::new(source));
            let target_name = faults.take(path.clone(), TopicName::new(target));
            if let Some(other) = renamed_to.insert(target, source) {
                faults.add(
                    path,
                    format!("{target:?} is the target of {other:?} as well; give each its own"),
                );
            }
            rename.extend(source_name.zip(target_name));
        }
        faults.finish(Some(Self {
            prefix: message.prefix.clone(),
            rename,
        }))
    }
}

impl TryFrom<&v1::TargetTopics> for TargetTopics {
    type Error = Vec<FieldFault>;

    fn try_from(message: &v1::TargetTopics) -> Result<Self, Self::Error> {
        let mut faults = Faults::default();
        check_options(&mut faults, "config", &message.config);
        // Kafka's replication factor is a 16-bit number.
        let factor = u16::try_from(message.replication_factor)
            .ok()
            .filter(|factor| *factor <= i16::MAX.unsigned_abs());
        if factor.is_none() {
            faults.add(
                "replication_factor",
                format!(
                    "{} is out of range; use 1 to {}, or 0 for the target cluster's default",
                    message.replication_factor,
                    i16::MAX
                ),
            );
        }
        faults.finish(Some(Self {
            refuse_create: message.refuse_create,
            refuse_grow: message.refuse_grow,
            replication_factor: factor.filter(|factor| *factor > 0),
            config: message.config.clone(),
        }))
    }
}

impl From<&Link> for v1::Link {
    fn from(link: &Link) -> Self {
        let on_gap = match link.on_gap {
            GapPolicy::ContinueAndReport => v1::GapPolicy::ContinueAndReport,
            GapPolicy::Halt => v1::GapPolicy::Halt,
        };
        let checkpoint_on = match link.checkpoint_on {
            CheckpointSide::Source => v1::CheckpointSide::Source,
            CheckpointSide::Target => v1::CheckpointSide::Target,
        };
        let engine = match link.engine {
            None => v1::Engine::Unspecified,
            Some(Engine::Records) => v1::Engine::Records,
            Some(Engine::Batches) => v1::Engine::Batches,
        };
        Self {
            id: link.id.to_string(),
            source: link.source.to_string(),
            target: link.target.to_string(),
            naming: (link.naming != Naming::default()).then(|| v1::Naming::from(&link.naming)),
            start: Some(v1::StartPolicy::from(&link.start)),
            on_gap: on_gap.into(),
            checkpoint_on: checkpoint_on.into(),
            target_topics: (link.target_topics != TargetTopics::default())
                .then(|| v1::TargetTopics::from(&link.target_topics)),
            paused: link.paused,
            engine: engine.into(),
        }
    }
}

impl From<&Naming> for v1::Naming {
    fn from(naming: &Naming) -> Self {
        Self {
            prefix: naming.prefix.clone(),
            rename: naming
                .rename
                .iter()
                .map(|(source, target)| (source.to_string(), target.to_string()))
                .collect(),
        }
    }
}

impl From<&TargetTopics> for v1::TargetTopics {
    fn from(topics: &TargetTopics) -> Self {
        Self {
            refuse_create: topics.refuse_create,
            refuse_grow: topics.refuse_grow,
            replication_factor: topics.replication_factor.map_or(0, i32::from),
            config: topics.config.clone(),
        }
    }
}
