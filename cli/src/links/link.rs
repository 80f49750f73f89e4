//! A link in the file, with the topics asked for on it.

use kreplicator_model::{
    ids::{ClusterId, LinkId},
    spec::Engine,
};
use kreplicator_proto::v1;

use super::{Declared, check, cluster::options, start::start, subscription};
use crate::yaml::{
    Faults, Field, Fields, Node, Path,
    scalars::{boolean, list, number, parsed, text, word},
};

const GAP_POLICIES: &[(&str, v1::GapPolicy)] = &[
    ("continue", v1::GapPolicy::ContinueAndReport),
    ("halt", v1::GapPolicy::Halt),
];

const CHECKPOINT_SIDES: &[(&str, v1::CheckpointSide)] = &[
    ("source", v1::CheckpointSide::Source),
    ("target", v1::CheckpointSide::Target),
];

const ENGINES: &[(&str, v1::Engine)] = &[
    (Engine::Records.as_str(), v1::Engine::Records),
    (Engine::Batches.as_str(), v1::Engine::Batches),
];

/// Reads one entry of `links` and adds it and its subscriptions to `declared`.
pub(super) fn read(
    field: &Field,
    path: &Path,
    faults: &mut Faults,
    declared: &mut Declared,
) -> Option<()> {
    let id = LinkId::new(&field.key);
    if let Err(fault) = &id {
        faults.push(&field.place, path, fault.to_string());
    }
    let mut fields = Fields::of(&field.value, path, faults)?;
    let remedy = "name the cluster to read from";
    let source = fields.required("source", remedy, parsed::<ClusterId>);
    let remedy = "name the cluster to write to";
    let target = fields.required("target", remedy, parsed::<ClusterId>);
    let naming = fields.optional("naming", naming);
    let start = fields.optional("start", start);
    let on_gap = fields.optional("on_gap", word(GAP_POLICIES));
    let checkpoint_on = fields.optional("checkpoint_on", word(CHECKPOINT_SIDES));
    let target_topics = fields.optional("target_topics", target_topics);
    let paused = fields.optional("paused", boolean);
    let engine = fields.optional("engine", word(ENGINES));
    let mut subscribe = |node: &Node, read: Option<v1::Subscription>| {
        let subject = read.as_ref().map(subscription::subject);
        let is_new = subject.is_none_or(|subject| declared.places.declare(subject, &node.place));
        if let Some(read) = read.filter(|_| is_new) {
            let index = declared.subscriptions.len();
            declared
                .places
                .declare_item("subscriptions", index, &node.place);
            declared.subscriptions.push(read);
        }
        is_new
    };
    for (key, read) in [
        ("topics", subscription::topic as subscription::Read),
        ("patterns", subscription::pattern as subscription::Read),
    ] {
        fields.optional(key, |node, path, faults| {
            list(node, path, faults, |node, path, faults| {
                let read = read(&field.key, node, path, faults);
                if let Some(read) = &read {
                    check::subscription(read, node, path, faults);
                }
                if !subscribe(node, read) {
                    faults.push(&node.place, path, "given twice on this link; remove one");
                }
                Some(())
            })
        });
    }
    fields.finish();

    let id = id.ok()?.to_string();
    declared.places.declare(format!("link {id}"), &field.place);
    let link = v1::Link {
        id,
        source: source?.to_string(),
        target: target?.to_string(),
        naming,
        start,
        on_gap: on_gap.map_or(0, i32::from),
        checkpoint_on: checkpoint_on.map_or(0, i32::from),
        target_topics,
        paused: paused.unwrap_or_default(),
        engine: engine.map_or(0, i32::from),
    };
    let index = declared.links.len();
    declared.places.declare_item("links", index, &field.place);
    check::link(&link, &field.value, path, faults);
    declared.links.push(link);
    Some(())
}

fn naming(node: &Node, path: &Path, faults: &mut Faults) -> Option<v1::Naming> {
    let mut fields = Fields::of(node, path, faults)?;
    let naming = v1::Naming {
        prefix: fields.optional("prefix", text).unwrap_or_default(),
        rename: fields.optional("rename", options).unwrap_or_default(),
    };
    fields.finish();
    Some(naming)
}

fn target_topics(node: &Node, path: &Path, faults: &mut Faults) -> Option<v1::TargetTopics> {
    let mut fields = Fields::of(node, path, faults)?;
    let factor = fields.optional("replication_factor", number);
    let target_topics = v1::TargetTopics {
        refuse_create: fields
            .optional("refuse_create", boolean)
            .unwrap_or_default(),
        refuse_grow: fields.optional("refuse_grow", boolean).unwrap_or_default(),
        replication_factor: factor.map_or(0, i32::from),
        config: fields.optional("config", options).unwrap_or_default(),
    };
    fields.finish();
    Some(target_topics)
}
