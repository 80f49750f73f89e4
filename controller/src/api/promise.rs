//! What the running tasks of a link promise together about repeats. Pure.

use std::{cmp::Reverse, collections::BTreeMap};

use kreplicator_model::{exact::EXACTLY_ONCE, spec::Engine};
use kreplicator_proto::v1::TaskReport;

const AT_LEAST_ONCE: &str = "at_least_once";
const RECORDS_ENGINE: &str = "records_engine";
/// Reason of a task that has not said what it promises.
const NOT_KNOWN: &str = "not_known";

/// What several tasks promise together.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum Promise {
    /// No running task has said.
    #[default]
    Unknown,
    /// All say so.
    ExactlyOnce,
    /// One at least does not; the commonest reason.
    AtLeastOnce(String),
}

/// Promises of tasks, counted.
#[derive(Debug, Clone, Default)]
pub(crate) struct Promises {
    exactly_once: usize,
    weaker: BTreeMap<String, usize>,
    silent: usize,
}

impl Promises {
    /// Takes in a running task, as it was last reported.
    pub(crate) fn add(&mut self, report: Option<&TaskReport>) {
        match report.map(|report| (report.delivery.as_str(), report.delivery_reason.as_str())) {
            Some((EXACTLY_ONCE, _)) => self.exactly_once += 1,
            Some(("", _)) | None => self.silent += 1,
            Some((_, reason)) => *self.weaker.entry(reason.to_owned()).or_default() += 1,
        }
    }

    /// What holds for all of them.
    pub(crate) fn together(&self) -> Promise {
        let commonest = self
            .weaker
            .iter()
            // Of equals the first by name.
            .min_by_key(|(reason, count)| (Reverse(**count), reason.as_str()));
        match commonest {
            Some((reason, _)) => Promise::AtLeastOnce(reason.clone()),
            None if self.exactly_once == 0 => Promise::Unknown,
            None if self.silent > 0 => Promise::AtLeastOnce(NOT_KNOWN.to_owned()),
            None => Promise::ExactlyOnce,
        }
    }
}

impl Promise {
    /// Where nothing runs that could tell, what the engine can promise at most tells something too.
    pub(crate) fn or_of(self, engine: Engine) -> Self {
        match (self, engine) {
            (Self::Unknown, Engine::Records) => Self::AtLeastOnce(RECORDS_ENGINE.to_owned()),
            (promise, Engine::Records | Engine::Batches) => promise,
        }
    }

    /// As in `LinkStatus.delivery`.
    pub(crate) fn delivery(&self) -> &'static str {
        match self {
            Self::Unknown => "",
            Self::ExactlyOnce => EXACTLY_ONCE,
            Self::AtLeastOnce(_) => AT_LEAST_ONCE,
        }
    }

    /// As in `LinkStatus.delivery_reason`.
    pub(crate) fn reason(&self) -> &str {
        match self {
            Self::Unknown | Self::ExactlyOnce => "",
            Self::AtLeastOnce(reason) => reason,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn together(tasks: &[(&str, &str)]) -> Promise {
        let mut promises = Promises::default();
        for (delivery, reason) in tasks {
            let report = TaskReport {
                delivery: (*delivery).to_owned(),
                delivery_reason: (*reason).to_owned(),
                ..TaskReport::default()
            };
            promises.add(Some(&report));
        }
        promises.together()
    }

    #[test]
    fn a_link_is_exactly_once_only_when_all_its_tasks_are() {
        let exact = (EXACTLY_ONCE, "");
        assert_eq!(together(&[exact, exact]), Promise::ExactlyOnce);
        let weaker = together(&[exact, (AT_LEAST_ONCE, "old_records"), exact]);
        assert_eq!(weaker, Promise::AtLeastOnce("old_records".to_owned()));
        let silent = together(&[exact, ("", "")]);
        assert_eq!(silent, Promise::AtLeastOnce(NOT_KNOWN.to_owned()));
    }

    #[test]
    fn the_commonest_reason_is_told_and_of_equals_the_first_by_name() {
        let weak = |reason| (AT_LEAST_ONCE, reason);
        let found = together(&[weak("a"), weak("c"), weak("c"), ("", "")]);
        assert_eq!(found.reason(), "c");
        assert_eq!(together(&[weak("c"), weak("b")]).reason(), "b");
        assert_eq!(found.delivery(), AT_LEAST_ONCE);
    }

    #[test]
    fn what_no_task_has_said_is_known_of_the_records_engine_only() {
        for tasks in [&[][..], &[("", "")]] {
            let unknown = together(tasks);
            assert_eq!(unknown, Promise::Unknown);
            let records = unknown.clone().or_of(Engine::Records);
            let expected = (AT_LEAST_ONCE, RECORDS_ENGINE);
            assert_eq!((records.delivery(), records.reason()), expected);
            let batches = unknown.or_of(Engine::Batches);
            assert_eq!((batches.delivery(), batches.reason()), ("", ""));
        }
        let exact = Promise::ExactlyOnce.or_of(Engine::Records);
        assert_eq!(exact, Promise::ExactlyOnce);
    }
}
