//! Section `log`.

use serde::Serialize;
use tracing_subscriber::EnvFilter;

use crate::yaml::{
    Faults, Fields, Node, Path,
    scalars::{text, word},
};

/// What is logged and how. Logs go to standard error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Log {
    /// `text` for people, `json` for programs.
    pub(crate) format: LogFormat,
    /// Levels by module, for example `info,kreplicator_worker=debug`.
    pub(crate) filter: String,
}

/// Forms of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// One object a line.
    Json,
}

impl Default for Log {
    fn default() -> Self {
        Self {
            format: LogFormat::Text,
            filter: "info".to_owned(),
        }
    }
}

const FORMATS: &[(&str, LogFormat)] = &[("text", LogFormat::Text), ("json", LogFormat::Json)];

/// Reads the section.
pub(super) fn read(node: &Node, path: &Path, faults: &mut Faults) -> Option<Log> {
    let mut fields = Fields::of(node, path, faults)?;
    let format = fields.optional("format", word(FORMATS));
    let filter = fields.optional("filter", filter);
    fields.finish();
    let default = Log::default();
    Some(Log {
        format: format.unwrap_or(default.format),
        filter: filter.unwrap_or(default.filter),
    })
}

fn filter(node: &Node, path: &Path, faults: &mut Faults) -> Option<String> {
    let filter = text(node, path, faults)?;
    match EnvFilter::builder().parse(&filter) {
        Ok(_) => Some(filter),
        Err(error) => {
            let message = format!("{filter:?} is no filter ({error}); write for example info");
            faults.push(&node.place, path, message);
            None
        }
    }
}
