//! A store that shows changes before they are durable, and loses answers.

use std::{collections::BTreeMap, rc::Rc};

use super::super::{
    commit::{Answer, Op, RenameOutcome, WriteOutcome},
    manifest::Manifest,
    names::BOOKS,
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Node {
    Folder,
    Document(Rc<Document>),
    /// The offsets of the records in a data file.
    Data(Rc<Vec<i64>>),
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Document {
    pub(super) bytes: Vec<u8>,
    /// None: another document.
    pub(super) manifest: Option<Manifest>,
}

/// Shared, since a store is copied with every change that becomes durable.
type Tree = BTreeMap<Rc<str>, Node>;

#[derive(Debug, Default)]
pub(super) struct Store {
    pub(super) live: Tree,
    /// What is left after a crash.
    durable: Tree,
    /// Changes whose callers wait no longer and which may still be done.
    pub(super) late: Vec<Op>,
    pub(super) renames_overwrite: bool,
    /// Counts whatever may have changed something.
    pub(super) changes: u64,
}

impl Store {
    /// Everything so far is on the disks: a caller was told so, or it was time.
    pub(super) fn sync(&mut self) {
        self.durable = self.live.clone();
    }

    pub(super) fn crash(&mut self) {
        self.changes += 1;
        self.live = self.durable.clone();
    }

    /// Data files under final names.
    pub(super) fn finals(&self) -> impl Iterator<Item = (&str, &[i64])> {
        let finals = self
            .live
            .iter()
            .filter(|(path, _)| !path.starts_with(BOOKS));
        finals.filter_map(|(path, node)| match node {
            Node::Data(offsets) => Some((&**path, &***offsets)),
            _ => None,
        })
    }

    pub(super) fn length(node: &Node) -> Option<u64> {
        match node {
            Node::Folder => None,
            Node::Document(document) => Some(document.bytes.len() as u64),
            Node::Data(offsets) => Some(1 + offsets.len() as u64),
        }
    }

    /// The manifest at a path.
    pub(super) fn manifest(&self, path: &str) -> Option<&Manifest> {
        match self.live.get(path) {
            Some(Node::Document(document)) => document.manifest.as_ref(),
            _ => None,
        }
    }

    fn folder_of(path: &str) -> &str {
        path.rsplit_once('/').map_or("", |(folder, _)| folder)
    }

    /// A data file is written; false: its folder is not there, or something is at the path.
    pub(super) fn write_data(&mut self, path: &str, offsets: Vec<i64>) -> bool {
        let has_folder = self.live.contains_key(Self::folder_of(path));
        if !has_folder || self.live.contains_key(path) {
            return false;
        }
        self.changes += 1;
        self.live.insert(path.into(), Node::Data(Rc::new(offsets)));
        true
    }

    /// Does an operation, and gives its answer; durable only once somebody is told.
    pub(super) fn apply(&mut self, op: &Op) -> Answer {
        self.changes += u64::from(is_change(op));
        match op {
            Op::Read(path) => Answer::Read(match self.live.get(path.as_str()) {
                Some(Node::Document(document)) => Some(document.bytes.clone()),
                _ => None,
            }),
            Op::MakeFolder(path) => {
                self.live
                    .entry(path.as_str().into())
                    .or_insert(Node::Folder);
                Answer::Made
            }
            Op::Write { path, bytes } => {
                if !self.live.contains_key(Self::folder_of(path.as_str())) {
                    return Answer::Written(WriteOutcome::FolderMissing);
                }
                if self.live.contains_key(path.as_str()) {
                    return Answer::Written(WriteOutcome::Failed);
                }
                let document = Document {
                    bytes: bytes.clone(),
                    manifest: Manifest::from_json(bytes).ok(),
                };
                let document = Node::Document(Rc::new(document));
                self.live.insert(path.as_str().into(), document);
                Answer::Written(WriteOutcome::Done)
            }
            Op::Rename { source, target } => {
                let Some(node) = self.live.get(source.as_str()).cloned() else {
                    return Answer::Renamed(RenameOutcome::SourceMissing);
                };
                if self.live.contains_key(target.as_str()) && !self.renames_overwrite {
                    return Answer::Renamed(RenameOutcome::Occupied);
                }
                self.live.remove(source.as_str());
                self.live.insert(target.as_str().into(), node);
                Answer::Renamed(RenameOutcome::Done)
            }
            Op::Length(path) | Op::Confirm(path) => {
                Answer::Length(self.live.get(path.as_str()).and_then(Self::length))
            }
            Op::Same(one, other) => {
                let (one, other) = (self.live.get(one.as_str()), self.live.get(other.as_str()));
                Answer::Same(one.zip(other).map(|(one, other)| one == other))
            }
            Op::Delete(path) => {
                let below = format!("{path}/");
                self.live
                    .retain(|at, _| **at != *path.as_str() && !at.starts_with(&below));
                Answer::Deleted
            }
            Op::DeleteEmpty(path) => {
                let below = format!("{path}/");
                if !self.live.keys().any(|at| at.starts_with(&below)) {
                    self.live.remove(path.as_str());
                }
                Answer::Deleted
            }
        }
    }
}

/// Whether an operation changes what is there.
pub(super) fn is_change(op: &Op) -> bool {
    !matches!(
        op,
        Op::Read(_) | Op::Length(_) | Op::Confirm(_) | Op::Same(..)
    )
}
