//! What stores refuse.

use kreplicator_model::dump::path::StorePath;

/// What kind of refusal it is, as far as it decides what is done about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A folder or a file that is needed is not there.
    Missing,
    /// Something is there that is in the way.
    Taken,
    /// No permission, or the login failed. Waits for a person.
    Denied,
    /// No space, a quota, too many names in a folder. Waits for a person or for time.
    Full,
    /// The store takes no changes now: safe mode, standby. Waits for time.
    NotNow,
    /// The store was not reached; the call was not done.
    Unreachable,
    /// Nothing is known of the call: its answer was lost, or is later than its deadline. It may be done yet.
    Unknown,
    /// A setting is wrong.
    Setting,
    /// Anything else: what the store says of it is in the text.
    Other,
}

/// A call that failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{root}/{path}: {text}", path = path.as_ref().map_or("", |path| path.as_str()))]
pub struct StoreError {
    /// Which kind it is.
    pub kind: Kind,
    /// The store, as [`FileStore::root`](super::FileStore::root).
    pub root: String,
    /// What it was about; None: the store as a whole.
    pub path: Option<StorePath>,
    /// One line for people, with the remedy where there is one; no stack traces, no secrets.
    pub text: String,
}
