//! Which writes of lines fit what is stored. Pure.

use std::collections::BTreeMap;

use kreplicator_model::{exact::Line, ids::Partition};
use kreplicator_proto::line_record::{LineEntry, LineRecord};
use kreplicator_store::Revision;

use super::{LineTarget, differs};

/// One write as asked for.
#[derive(Debug, Clone)]
pub(super) struct Request {
    pub(super) target: LineTarget,
    /// Revision of the value that was seen.
    pub(super) seen: Option<Revision>,
    /// Line that is replaced.
    pub(super) replaces: Option<Line>,
    pub(super) partition: Partition,
    pub(super) entry: LineEntry,
}

/// A value in the making.
#[derive(Debug)]
pub(super) struct Draft {
    /// Revision of the stored value that it follows.
    revision: Option<Revision>,
    record: Option<LineRecord>,
    is_changed: bool,
}

/// Whether lines are for `target`. What is not known of either is taken for the same.
pub(super) fn is_for(record: &LineRecord, target: &LineTarget) -> bool {
    let known = record.target_cluster_id.as_deref();
    record.target == target.cluster
        && record.target_topic == target.topic
        && !differs(known, target.cluster_id.as_deref())
}

impl Draft {
    /// The value as stored.
    pub(super) fn of(revision: Option<Revision>, record: Option<LineRecord>) -> Self {
        Self {
            revision,
            record,
            is_changed: false,
        }
    }

    /// What is to be stored; None: what is there already.
    pub(super) fn into_changed(self) -> Option<LineRecord> {
        self.record.filter(|_| self.is_changed)
    }

    /// Takes in a line; false: it does not fit and nothing was changed.
    pub(super) fn take(&mut self, request: &Request) -> bool {
        match &mut self.record {
            Some(record) if is_for(record, &request.target) => {
                let Some(is_changed) = merge(record, request) else {
                    return false;
                };
                self.is_changed |= is_changed;
                true
            }
            record => {
                // What is for another target is replaced by whoever has seen it, and by nobody else: it may
                // be the newer of the two.
                let is_seen = request.seen == self.revision && !self.is_changed;
                if request.replaces.is_some() || (record.is_some() && !is_seen) {
                    return false;
                }
                *record = Some(LineRecord {
                    target: request.target.cluster.clone(),
                    target_cluster_id: request.target.cluster_id.clone(),
                    target_topic: request.target.topic.clone(),
                    target_topic_id: request.target.topic_id.clone(),
                    lines: BTreeMap::from([(request.partition, request.entry.clone())]),
                });
                self.is_changed = true;
                true
            }
        }
    }
}

/// Takes a line into a record for the same target. None: it does not fit; else whether anything changes.
fn merge(record: &mut LineRecord, request: &Request) -> Option<bool> {
    let LineTarget {
        cluster_id,
        topic_id,
        ..
    } = &request.target;
    if differs(record.target_topic_id.as_deref(), topic_id.as_deref()) {
        return None;
    }
    let present = record.lines.get(&request.partition);
    let present = present.map(|entry| &entry.line);
    if present == Some(&request.entry.line) {
        return Some(false);
    }
    if present != request.replaces.as_ref() {
        return None;
    }
    if record.target_cluster_id.is_none() {
        record.target_cluster_id.clone_from(cluster_id);
    }
    if record.target_topic_id.is_none() {
        record.target_topic_id.clone_from(topic_id);
    }
    let entry = request.entry.clone();
    record.lines.insert(request.partition, entry);
    Some(true)
}

#[cfg(test)]
mod tests {
    use kreplicator_model::{
        exact::{ProducerEpoch, ProducerId},
        ids::{Offset, OwnerEpoch, UnixMillis},
    };

    use super::*;

    fn target(topic: &str, topic_id: Option<&str>) -> LineTarget {
        LineTarget {
            cluster: "b".parse().expect("legal"),
            cluster_id: Some("kafka-b".to_owned()),
            topic: topic.parse().expect("legal"),
            topic_id: topic_id.map(ToOwned::to_owned),
        }
    }

    fn line(epoch: i16) -> Line {
        Line {
            producer_id: ProducerId(7),
            producer_epoch: ProducerEpoch(epoch),
            base: Offset(0),
            target_from: Offset(0),
        }
    }

    fn request(target: LineTarget, partition: i32, epoch: i16) -> Request {
        Request {
            target,
            seen: None,
            replaces: None,
            partition: Partition(partition),
            entry: LineEntry {
                line: line(epoch),
                written_at: UnixMillis(0),
                worker: "w".parse().expect("legal"),
                owner_epoch: OwnerEpoch(1),
            },
        }
    }

    fn stored(requests: &[Request]) -> Draft {
        let mut draft = Draft::of(None, None);
        for request in requests {
            assert!(draft.take(request));
        }
        Draft::of(Some(Revision(5)), draft.into_changed())
    }

    #[test]
    fn a_line_replaces_the_one_that_was_seen_and_no_other() {
        let orders = || target("orders", None);
        let first = request(orders(), 0, 3);
        let mut draft = stored(&[first.clone(), request(orders(), 1, 0)]);
        let mut next = request(orders(), 0, 4);
        assert!(!draft.take(&next), "there is a line already");
        next.replaces = Some(line(2));
        assert!(!draft.take(&next), "not the one that was seen");
        assert!(draft.take(&first), "the same again");
        next.replaces = Some(line(3));
        assert!(draft.take(&next));
        let record = draft.into_changed().expect("changed");
        let epochs = record.lines.values().map(|e| e.line.producer_epoch.0);
        assert_eq!(epochs.collect::<Vec<_>>(), [4, 0]);
    }

    #[test]
    fn repeating_a_line_changes_nothing() {
        let first = request(target("orders", None), 0, 3);
        let mut draft = stored(std::slice::from_ref(&first));
        assert!(draft.take(&first));
        assert_eq!(draft.into_changed(), None);
    }

    #[test]
    fn lines_for_another_target_are_replaced_only_by_who_has_seen_them() {
        let mut draft = stored(&[request(target("orders", None), 0, 3)]);
        let mut renamed = request(target("b.orders", None), 1, 0);
        assert!(!draft.take(&renamed));
        renamed.seen = Some(Revision(4));
        assert!(!draft.take(&renamed));
        renamed.seen = Some(Revision(5));
        assert!(draft.take(&renamed));
        // Who has seen the same, but comes second, must look again.
        let mut late = request(target("orders", None), 2, 0);
        late.seen = Some(Revision(5));
        assert!(!draft.take(&late));
        let record = draft.into_changed().expect("changed");
        assert_eq!(record.target_topic.as_str(), "b.orders");
        assert_eq!(record.lines.len(), 1);
    }

    #[test]
    fn of_two_targets_at_once_none_is_told_done_and_dropped() {
        let mut draft = Draft::of(None, None);
        assert!(draft.take(&request(target("orders", None), 0, 0)));
        assert!(!draft.take(&request(target("b.orders", None), 0, 0)));
    }

    #[test]
    fn a_topic_made_anew_gets_no_line_and_ids_are_filled_in() {
        let mut draft = stored(&[request(target("orders", None), 0, 3)]);
        assert!(draft.take(&request(target("orders", Some("x")), 1, 0)));
        assert!(!draft.take(&request(target("orders", Some("y")), 2, 0)));
        assert!(draft.take(&request(target("orders", None), 3, 0)));
        let record = draft.into_changed().expect("changed");
        assert_eq!(record.target_topic_id.as_deref(), Some("x"));
        assert_eq!(record.lines.len(), 3);
    }
}
