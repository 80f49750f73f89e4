//! Files and folders, and what changes them.

use kreplicator_model::dump::{commit::RenameOutcome, path::StorePath};

use super::{Change, Node, State};

impl State {
    pub(super) fn length(&self, path: &StorePath) -> Option<u64> {
        match self.live.get(path.as_str()) {
            Some(Node::File { bytes, .. }) => Some(bytes.len() as u64),
            _ => None,
        }
    }

    pub(super) fn has_folder(&self, path: &StorePath) -> bool {
        matches!(self.live.get(path.as_str()), Some(Node::Folder { .. }))
    }

    pub(super) fn make_folder(&mut self, path: &StorePath) -> bool {
        let mut folder = Some(path.clone());
        while let Some(path) = folder {
            let changed = self.now;
            let node = self.live.entry(path.as_str().into());
            if let Node::File { .. } = node.or_insert(Node::Folder { changed }) {
                return false;
            }
            folder = path.parent();
        }
        true
    }

    pub(super) fn rename(&mut self, source: &StorePath, target: &StorePath) -> RenameOutcome {
        let Some(file @ Node::File { .. }) = self.live.get(source.as_str()).cloned() else {
            return RenameOutcome::SourceMissing;
        };
        if self.live.contains_key(target.as_str()) {
            return RenameOutcome::Occupied;
        }
        if let Some(folder) = target.parent() {
            self.make_folder(&folder);
        }
        self.changes += 1;
        self.live.remove(source.as_str());
        self.live.insert(target.as_str().into(), file);
        RenameOutcome::Done
    }

    pub(super) fn delete(&mut self, path: &StorePath) {
        let below = format!("{path}/");
        self.live
            .retain(|at, _| **at != *path.as_str() && !at.starts_with(&below));
    }

    pub(super) fn delete_empty(&mut self, path: &StorePath) {
        let below = format!("{path}/");
        if !self.live.keys().any(|at| at.starts_with(&below)) && self.has_folder(path) {
            self.live.remove(path.as_str());
        }
    }

    pub(super) fn change(&mut self, change: &Change) {
        self.changes += 1;
        match change {
            Change::MakeFolder(path) => {
                self.make_folder(path);
            }
            Change::Rename(source, target) => {
                self.rename(source, target);
            }
            Change::Delete(path) => self.delete(path),
            Change::DeleteEmpty(path) => self.delete_empty(path),
        }
    }
}
