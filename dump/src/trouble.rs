//! What keeps a dump from going on, for people.
//!
//! The dump never gives up because of a store: it tries again for as long as it is wanted. So whoever runs it must learn what it
//! is waiting for: each fault goes to a [`Watcher`], and to the log once for as long as it stays the same.

use std::fmt;

use kreplicator_model::dump::path::StorePath;

use crate::store::{Kind, StoreError};

/// One thing that went wrong and is tried again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// A call of the store failed.
    Store(StoreError),
    /// A file could not be encoded.
    Encoder {
        /// Where the file was to be.
        path: StorePath,
        /// One line for people.
        text: String,
    },
    /// A file that was written and closed is not what it should be.
    Verification {
        /// The file.
        path: StorePath,
        /// One line for people.
        text: String,
    },
}

/// Who can end a trouble.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WaitsFor {
    /// It ends with time: a fail-over, a restart, a network.
    Time,
    /// Somebody has to do something.
    Person,
}

impl Trouble {
    /// Who can end it.
    #[must_use]
    pub fn waits_for(&self) -> WaitsFor {
        match self {
            Self::Store(error) => match error.kind {
                Kind::NotNow | Kind::Unreachable | Kind::Unknown => WaitsFor::Time,
                // What is missing or taken where a store is alone with us is somebody's doing.
                Kind::Missing
                | Kind::Taken
                | Kind::Denied
                | Kind::Full
                | Kind::Setting
                | Kind::Other => WaitsFor::Person,
            },
            Self::Encoder { .. } | Self::Verification { .. } => WaitsFor::Person,
        }
    }

    /// Whether it is the same for a person who reads a log.
    fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Store(one), Self::Store(other)) => one.kind == other.kind,
            (Self::Encoder { .. }, Self::Encoder { .. })
            | (Self::Verification { .. }, Self::Verification { .. }) => true,
            _ => false,
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => error.fmt(f),
            Self::Encoder { path, text } => write!(f, "{path} cannot be encoded: {text}"),
            Self::Verification { path, text } => {
                write!(f, "{path} was written and is not whole: {text}")
            }
        }
    }
}

/// Learns what a dump waits for. Its calls return at once.
pub trait Watcher: fmt::Debug + Send + Sync {
    /// Something failed and is tried again.
    fn trouble(&self, trouble: &Trouble);

    /// What was in trouble goes on.
    fn over(&self);
}

/// Passes troubles on, and logs each once.
#[derive(Debug)]
pub(crate) struct Troubles {
    watcher: std::sync::Arc<dyn Watcher>,
    /// What the log tells of: a partition.
    about: String,
    last: Option<Trouble>,
}

impl Troubles {
    pub(crate) fn new(watcher: std::sync::Arc<dyn Watcher>, about: String) -> Self {
        Self {
            watcher,
            about,
            last: None,
        }
    }

    pub(crate) fn note(&mut self, trouble: Trouble) {
        self.watcher.trouble(&trouble);
        let is_known = self
            .last
            .as_ref()
            .is_some_and(|last| last.is_like(&trouble));
        if !is_known {
            let (partition, waits_for) = (&self.about, trouble.waits_for());
            match waits_for {
                WaitsFor::Time => {
                    tracing::warn!(%partition, %trouble, "the dump waits and tries again");
                }
                WaitsFor::Person => {
                    tracing::error!(%partition, %trouble, "the dump waits for somebody's help, and tries again");
                }
            }
        }
        self.last = Some(trouble);
    }

    pub(crate) fn over(&mut self) {
        if self.last.take().is_some() {
            let partition = &self.about;
            tracing::info!(%partition, "the dump goes on");
            self.watcher.over();
        }
    }
}
