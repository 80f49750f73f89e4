//! The two links of every scenario.

use kreplicator_proto::v1;
use kreplicator_tests::api;

/// A link of one engine, which puts a name of its own before those of topics.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Side {
    pub(crate) link: &'static str,
    prefix: &'static str,
    engine: v1::Engine,
}

pub(crate) const BATCHES: Side = Side {
    link: "by-batches",
    prefix: "batches.",
    engine: v1::Engine::Batches,
};

pub(crate) const RECORDS: Side = Side {
    link: "by-records",
    prefix: "records.",
    engine: v1::Engine::Records,
};

pub(crate) const SIDES: [Side; 2] = [BATCHES, RECORDS];

/// The promise of a task whose records come once, as the API tells it.
pub(crate) const EXACTLY_ONCE: (&str, &str) = ("exactly_once", "");

impl Side {
    /// The name of a topic on the target.
    pub(crate) fn copy_of(self, topic: &str) -> String {
        format!("{}{topic}", self.prefix)
    }

    /// As it is declared through the API.
    pub(crate) fn declared(self) -> v1::Link {
        v1::Link {
            engine: self.engine.into(),
            ..api::link(self.link, "a", "b", self.prefix)
        }
    }

    /// As it is declared in a file, with these topics.
    pub(crate) fn in_file(self, topics: &[&str]) -> String {
        let Self { link, prefix, .. } = self;
        let topics = topics.join(", ");
        format!(
            "  {link}: {{source: a, target: b, naming: {{prefix: \"{prefix}\"}}, topics: [{topics}]}}\n"
        )
    }

    /// What a task promises, and why no more than that, where batches promise `batches`.
    pub(crate) fn promise(
        self,
        batches: (&'static str, &'static str),
    ) -> (&'static str, &'static str) {
        match self.engine {
            v1::Engine::Records => ("at_least_once", "records_engine"),
            v1::Engine::Batches | v1::Engine::Unspecified => batches,
        }
    }
}
