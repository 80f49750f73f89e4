//! Giving the files of a committed group their final names.

use super::{
    super::{manifest::Manifest, names::Books, path::StorePath},
    Answer, Fault, Op, Removed, RenameOutcome,
};

/// What is done for one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    /// `again`: it was under neither name before.
    Rename { again: bool },
    /// This machine has renamed it: look at its length.
    Check,
    /// It was not in the attempt's folder, so another has renamed it: make that durable, and look at its
    /// length.
    Confirm { again: bool },
    /// Something is under the final name, and the file is in the attempt's folder too.
    Compare,
}

/// The rest of a group's files.
#[derive(Debug, Clone)]
pub(super) struct Finish {
    pub(super) manifest: Manifest,
    index: usize,
    at: At,
    pub(super) removed: Vec<Removed>,
}

/// How far it is.
pub(super) enum Progress {
    /// Go on with [`Finish::op`]. True: the last operation told nothing, so wait.
    More(bool),
    /// All files have their final names.
    Done,
    Stopped(Fault),
}

impl Finish {
    pub(super) fn new(manifest: Manifest) -> Self {
        Self {
            manifest,
            index: 0,
            at: At::Rename { again: false },
            removed: Vec::new(),
        }
    }

    /// The next operation; None when all is done.
    pub(super) fn op(&self, books: &Books) -> Option<Op> {
        let target = self.manifest.files.get(self.index)?.path.clone();
        Some(match self.at {
            At::Rename { .. } => Op::Rename {
                source: self.source(books),
                target,
            },
            At::Check => Op::Length(target),
            At::Confirm { .. } => Op::Confirm(target),
            At::Compare => Op::Same(self.source(books), target),
        })
    }

    fn source(&self, books: &Books) -> StorePath {
        books.attempt_file(self.manifest.from, &self.manifest.attempt, self.index)
    }

    /// What came of [`Finish::op`].
    pub(super) fn answer(&mut self, answer: Answer) -> Progress {
        let file = &self.manifest.files[self.index];
        match (self.at, answer) {
            (At::Rename { .. }, Answer::Renamed(RenameOutcome::Done)) => {
                self.at = At::Check;
                Progress::More(false)
            }
            (At::Rename { again }, Answer::Renamed(RenameOutcome::SourceMissing)) => {
                self.at = At::Confirm { again };
                Progress::More(false)
            }
            (At::Rename { .. }, Answer::Renamed(RenameOutcome::Occupied)) => {
                self.at = At::Compare;
                Progress::More(false)
            }
            (At::Rename { .. }, Answer::Renamed(RenameOutcome::Unknown)) => Progress::More(true),
            (At::Check | At::Confirm { .. }, Answer::Length(Some(found))) => {
                let (path, expected) = (file.path.clone(), file.bytes);
                if found == expected {
                    return self.next();
                }
                Progress::Stopped(Fault::Altered {
                    path,
                    expected,
                    found,
                })
            }
            // Under neither name. Either a rename that we saw was lost in a crash of the store, then the file is
            // where it was; or somebody has moved or deleted it since it had its final name (C082).
            (At::Check | At::Confirm { again: false }, Answer::Length(None)) => {
                self.at = At::Rename { again: true };
                Progress::More(false)
            }
            (At::Confirm { again: true }, Answer::Length(None)) => {
                self.removed.push(Removed {
                    path: file.path.clone(),
                    records: file.records,
                });
                self.next()
            }
            // The other one is left where it is: deleting is the sweeper's.
            (At::Compare, Answer::Same(Some(true))) => self.next(),
            (At::Compare, Answer::Same(Some(false))) => Progress::Stopped(Fault::Occupied {
                path: file.path.clone(),
            }),
            (At::Compare, Answer::Same(None)) => {
                self.at = At::Rename { again: false };
                Progress::More(true)
            }
            (at, answer) => panic!("{answer:?} is no answer to {at:?}"),
        }
    }

    fn next(&mut self) -> Progress {
        self.index += 1;
        self.at = At::Rename { again: false };
        if self.index == self.manifest.files.len() {
            Progress::Done
        } else {
            Progress::More(false)
        }
    }
}
