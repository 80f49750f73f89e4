//! What keeps a dump from going on, for people.
//!
//! The dump never gives up because of a store: it tries again for as long as it is wanted. So whoever runs it must learn what it
//! is waiting for: each fault goes to a [`Watcher`], and to the log once for as long as it stays the same.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

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

/// What shows that a trouble is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    /// The store does what it is asked.
    Done,
    /// A group is committed: the trouble is one of its files, and that a folder can be made says nothing of it.
    Committed,
}

/// Passes troubles on, and logs each once. Clones are the same.
#[derive(Debug, Clone)]
pub(crate) struct Troubles {
    watcher: Arc<dyn Watcher>,
    /// What the log tells of: a partition.
    about: Arc<str>,
    standing: Arc<Mutex<Option<Standing>>>,
}

#[derive(Debug)]
struct Standing {
    last: Trouble,
    until: Until,
}

impl Troubles {
    pub(crate) fn new(watcher: Arc<dyn Watcher>, about: String) -> Self {
        Self {
            watcher,
            about: about.into(),
            standing: Arc::default(),
        }
    }

    pub(crate) fn note(&self, trouble: Trouble, until: Until) {
        self.watcher.trouble(&trouble);
        let mut standing = self.standing();
        let before = standing.as_ref();
        let is_known = before.is_some_and(|before| before.last.is_like(&trouble));
        // One of a file outlasts those of calls that come after it.
        let is_of_file = before.is_some_and(|before| before.until == Until::Committed);
        let until = if is_of_file { Until::Committed } else { until };
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
        *standing = Some(Standing {
            last: trouble,
            until,
        });
    }

    /// This much has been done.
    pub(crate) fn over(&self, shown: Until) {
        let is_over =
            |standing: &mut Standing| shown == Until::Committed || standing.until == Until::Done;
        let over = self.standing().take_if(is_over);
        if over.is_some() {
            let partition = &self.about;
            tracing::info!(%partition, "the dump goes on");
            self.watcher.over();
        }
    }

    /// Nothing panics while it is held.
    fn standing(&self) -> MutexGuard<'_, Option<Standing>> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
