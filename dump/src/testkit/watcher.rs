//! Troubles, written down.

use std::sync::Mutex;

use crate::trouble::{Trouble, Watcher};

/// Notes what it is told.
#[derive(Debug, Default)]
pub(crate) struct Noted(Mutex<Vec<Option<Trouble>>>);

impl Noted {
    /// What was told so far; None: it was over.
    pub(crate) fn all(&self) -> Vec<Option<Trouble>> {
        self.0.lock().expect("no panics").clone()
    }
}

impl Watcher for Noted {
    fn trouble(&self, trouble: &Trouble) {
        let mut noted = self.0.lock().expect("no panics");
        noted.push(Some(trouble.clone()));
    }

    fn over(&self) {
        self.0.lock().expect("no panics").push(None);
    }
}
