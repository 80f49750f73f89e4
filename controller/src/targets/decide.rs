//! What is to be done about one target topic. Pure: facts in, step out.

use kreplicator_model::{
    ids::{ClusterId, LinkTopic, TopicName},
    spec::TargetTopics,
};

/// What is known about one topic of a link and its target topic.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Facts<'a> {
    /// The topic on its link.
    pub(crate) topic: &'a LinkTopic,
    /// Its name on the target.
    pub(crate) target_topic: &'a TopicName,
    /// The target cluster.
    pub(crate) target: &'a ClusterId,
    /// Partitions on the source.
    pub(crate) wanted: i32,
    /// Partitions of the target topic; None: it does not exist.
    pub(crate) found: Option<i32>,
    /// A topic that was not found is not there for certain.
    pub(crate) confirmed: bool,
    /// The target topic was there once, with records of ours in it.
    pub(crate) verified_before: bool,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing is certain yet.
    Wait,
    /// Make the topic.
    Create,
    /// Raise its partitions to those of the source.
    Grow,
    /// It is there with enough partitions: look at its settings.
    Check {
        /// What deserves a warning.
        note: Option<String>,
    },
    /// Somebody has to act.
    Hold {
        /// Partitions that may be copied to all the same.
        partitions: i32,
        /// Names the thing and the remedy.
        problem: String,
        /// What runs must stop.
        stops: bool,
    },
}

/// Decides on one topic.
#[must_use]
pub(crate) fn decide(facts: &Facts<'_>, policy: &TargetTopics) -> Step {
    let Facts {
        topic,
        target_topic,
        target,
        wanted,
        ..
    } = *facts;
    match facts.found {
        None if facts.verified_before && !facts.confirmed => Step::Wait,
        None if facts.verified_before => Step::Hold {
            partitions: 0,
            problem: format!(
                "target topic {target_topic} was deleted from cluster {target}: copying stopped; make it \
                 again with {wanted} partitions, or unsubscribe and subscribe again to have it made; \
                 copying goes on at the checkpoint"
            ),
            stops: true,
        },
        None if policy.refuse_create => Step::Hold {
            partitions: 0,
            problem: format!(
                "target topic {target_topic} does not exist on cluster {target}; create it with {wanted} \
                 partitions, or drop refuse_create from link {}",
                topic.link
            ),
            stops: true,
        },
        None => Step::Create,
        Some(found) if found < wanted && policy.refuse_grow => Step::Hold {
            // Half a topic is not begun; what was begun goes on.
            partitions: if facts.verified_before { found } else { 0 },
            problem: format!(
                "target topic {target_topic} on cluster {target} has {found} partitions and its source \
                 {wanted}; add partitions to it, or drop refuse_grow from link {}",
                topic.link
            ),
            stops: false,
        },
        Some(found) if found < wanted => Step::Grow,
        Some(found) => Step::Check {
            note: (found > wanted).then(|| {
                format!("has {found} partitions and its source {wanted}: the last ones stay empty")
            }),
        },
    }
}

#[cfg(test)]
mod tests {
    use kreplicator_model::ids::LinkId;

    use super::*;

    fn step(found: Option<i32>, verified_before: bool, policy: &TargetTopics) -> Step {
        let topic = LinkTopic {
            link: LinkId::new("a-b").expect("legal"),
            topic: TopicName::new("orders").expect("legal"),
        };
        let facts = Facts {
            topic: &topic,
            target_topic: &TopicName::new("dc1.orders").expect("legal"),
            target: &ClusterId::new("b").expect("legal"),
            wanted: 5,
            found,
            confirmed: true,
            verified_before,
        };
        let unconfirmed = Facts {
            confirmed: false,
            ..facts
        };
        let expected = match decide(&facts, policy) {
            Step::Hold { stops: true, .. } if verified_before => Step::Wait,
            step => step,
        };
        assert_eq!(decide(&unconfirmed, policy), expected, "told too early");
        decide(&facts, policy)
    }

    fn free() -> TargetTopics {
        TargetTopics::default()
    }

    fn strict() -> TargetTopics {
        TargetTopics {
            refuse_create: true,
            refuse_grow: true,
            ..free()
        }
    }

    #[test]
    fn a_missing_target_is_made_unless_refused() {
        assert_eq!(step(None, false, &free()), Step::Create);
        let Step::Hold {
            partitions,
            problem,
            ..
        } = step(None, false, &strict())
        else {
            panic!("made against the link's policy");
        };
        assert_eq!(partitions, 0);
        for part in ["dc1.orders", "cluster b", "5", "refuse_create", "a-b"] {
            assert!(problem.contains(part), "{part} is not in {problem}");
        }
    }

    #[test]
    fn c068_a_deleted_target_is_never_made_again_silently() {
        for policy in [free(), strict()] {
            let Step::Hold {
                partitions,
                stops,
                problem,
            } = step(None, true, &policy)
            else {
                panic!("made again");
            };
            assert!(stops && partitions == 0);
            assert!(problem.contains("deleted") && problem.contains("subscribe again"));
        }
    }

    #[test]
    fn c067_a_smaller_target_is_grown_or_held() {
        assert_eq!(step(Some(1), false, &free()), Step::Grow);
        let held = |verified| match step(Some(1), verified, &strict()) {
            Step::Hold {
                partitions, stops, ..
            } => (partitions, stops),
            other => panic!("{other:?}"),
        };
        assert_eq!(held(false), (0, false), "half a topic is begun");
        assert_eq!(held(true), (1, false), "what runs is stopped");
    }

    #[test]
    fn c067_a_larger_target_is_accepted_with_a_note() {
        let Step::Check { note: Some(note) } = step(Some(8), false, &strict()) else {
            panic!("a larger target is refused or not noted");
        };
        assert!(note.contains('8') && note.contains('5'), "{note}");
        assert_eq!(step(Some(5), false, &strict()), Step::Check { note: None });
    }
}
