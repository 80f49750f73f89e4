//! The names of files and attempts, and where they lie.
//!
//! ```text
//! <directory>/<topic>+<partition>+<first>+<last>.parquet      a data file under its final name
//! _kreplicator/<topic>/<partition>/begin.json                 where the dump of a partition begins
//! _kreplicator/<topic>/<partition>/<from>.json                the manifest of the group that begins at <from>
//! _kreplicator/<topic>/<partition>/attempt/<from>/<attempt>/  what one attempt at that group has written
//! ```
//! Offsets have 19 digits, so that names sort as numbers do. `+` is in no topic's name, so names can be taken
//! apart. An attempt's folder is shared with nobody: worker, ownership epoch, incarnation of the process and a
//! count (C087). All that is not final lies below `_kreplicator`, which readers of tables pass over (C101).

mod attempt;
mod data;

pub use attempt::{AttemptName, AttemptNames};
pub use data::{DataName, NameError};

use super::path::StorePath;
use crate::ids::{Offset, Partition, TopicName};

/// The folder for everything that is not data.
pub const BOOKS: &str = "_kreplicator";
/// The extension of data files.
pub const EXTENSION: &str = "parquet";

/// A topic as the name of a folder: as it is, but for a leading `_` or `.`, which would hide it.
#[must_use]
pub fn topic_folder(topic: &TopicName) -> String {
    let name = topic.as_str();
    match (name.strip_prefix('_'), name.strip_prefix('.')) {
        (Some(rest), _) => format!("%5F{rest}"),
        (_, Some(rest)) => format!("%2E{rest}"),
        (None, None) => name.to_owned(),
    }
}

/// The topic of a folder that [`topic_folder`] has named.
#[must_use]
pub fn topic_of_folder(folder: &str) -> Option<TopicName> {
    let name = match (folder.strip_prefix("%5F"), folder.strip_prefix("%2E")) {
        (Some(rest), _) => format!("_{rest}"),
        (_, Some(rest)) => format!(".{rest}"),
        (None, None) if folder.starts_with(['_', '.']) => return None,
        (None, None) => folder.to_owned(),
    };
    TopicName::new(name).ok()
}

/// 19 digits: the most that an offset has.
fn digits(offset: Offset) -> String {
    format!("{:019}", offset.0)
}

/// An offset written by [`digits`].
fn offset_of(digits: &str) -> Option<Offset> {
    let is_number = digits.len() == 19 && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number: i64 = is_number.then(|| digits.parse().ok())??;
    Some(Offset(number))
}

/// Where the books of one partition lie.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Books {
    folder: StorePath,
}

impl Books {
    /// Of one partition of a topic. Partitions are not negative.
    #[must_use]
    pub fn of(topic: &TopicName, partition: Partition) -> Self {
        let folder = format!("{BOOKS}/{}/{partition}", topic_folder(topic));
        Self {
            folder: StorePath::new(folder).expect("names of topics are short and plain"),
        }
    }

    /// The folder of all of them.
    #[must_use]
    pub fn folder(&self) -> &StorePath {
        &self.folder
    }

    fn at(&self, name: &str) -> StorePath {
        self.folder
            .join(name)
            .expect("our own names are short and plain")
    }

    /// Where the dump of the partition begins.
    #[must_use]
    pub fn begin(&self) -> StorePath {
        self.at("begin.json")
    }

    /// The manifest of the group that begins at `from`.
    #[must_use]
    pub fn manifest(&self, from: Offset) -> StorePath {
        self.at(&format!("{}.json", digits(from)))
    }

    /// The offset of a manifest's name, as it is found in a listing.
    #[must_use]
    pub fn manifest_offset(name: &str) -> Option<Offset> {
        offset_of(name.strip_suffix(".json")?)
    }

    /// Folder of all attempts at all groups.
    #[must_use]
    pub fn attempts(&self) -> StorePath {
        self.at("attempt")
    }

    /// The offset of a folder of [`Books::attempts`].
    #[must_use]
    pub fn attempts_offset(name: &str) -> Option<Offset> {
        offset_of(name)
    }

    /// The folder of an attempt at the group that begins at `from`.
    #[must_use]
    pub fn attempt(&self, from: Offset, attempt: &AttemptName) -> StorePath {
        self.at(&format!("attempt/{}/{attempt}", digits(from)))
    }

    /// The data file of this index, 0 upwards, in an attempt.
    #[must_use]
    pub fn attempt_file(&self, from: Offset, attempt: &AttemptName, index: usize) -> StorePath {
        self.at(&format!(
            "attempt/{}/{attempt}/{index}.{EXTENSION}",
            digits(from)
        ))
    }

    /// A document that an attempt writes, before it has its final name. `count` tells failed writes apart.
    #[must_use]
    pub fn attempt_document(&self, from: Offset, attempt: &AttemptName, count: u32) -> StorePath {
        self.at(&format!("attempt/{}/{attempt}/{count}.json", digits(from)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_topics_are_not_hidden_and_can_be_read_back() {
        for name in [
            "orders",
            "_schemas",
            "__consumer_offsets",
            ".x",
            "...",
            "a_b.c-d",
        ] {
            let topic = TopicName::new(name).expect("legal");
            let folder = topic_folder(&topic);
            assert!(!folder.starts_with(['_', '.']), "{folder}");
            assert_eq!(topic_of_folder(&folder), Some(topic));
        }
        assert_eq!(topic_of_folder("_kreplicator"), None);
        assert_eq!(topic_of_folder("a%5F"), None);
    }

    #[test]
    fn books_lie_where_the_layout_says() {
        let topic = TopicName::new("orders").expect("legal");
        let books = Books::of(&topic, Partition(3));
        assert_eq!(books.begin().as_str(), "_kreplicator/orders/3/begin.json");
        let manifest = books.manifest(Offset(1200));
        assert_eq!(
            manifest.as_str(),
            "_kreplicator/orders/3/0000000000000001200.json"
        );
        assert_eq!(Books::manifest_offset(manifest.name()), Some(Offset(1200)));
        for name in [
            "begin.json",
            "1200.json",
            "-000000000000001200.json",
            "9999999999999999999.json",
        ] {
            assert_eq!(Books::manifest_offset(name), None, "{name}");
        }
    }
}
