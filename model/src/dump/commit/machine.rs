//! The states of the machine.

use std::time::Duration;

use super::{
    super::{
        manifest::{Begin, Manifest, Source},
        names::{AttemptName, AttemptNames, Books},
        path::StorePath,
        sweep::COMMIT_WITHIN,
    },
    Answer, Checkpoint, Draft, Fault, Next, Op, Open, Removed, RenameOutcome, WriteOutcome,
    finish::{Finish, Progress},
};
use crate::ids::{Offset, UnixMillis};

/// A document on its way to its final path.
#[derive(Debug, Clone)]
struct Publication {
    /// First offset of the attempt's group: which folder it lies in.
    from: Offset,
    attempt: AttemptName,
    bytes: Vec<u8>,
    target: StorePath,
    /// Counts the paths that were used for writing it.
    writes: u32,
}

impl Publication {
    fn document(&self, books: &Books) -> StorePath {
        books.attempt_document(self.from, &self.attempt, self.writes)
    }
}

/// Who holds the files that are being finished, and what follows.
#[derive(Debug, Clone)]
enum Whose {
    /// Ours, just committed: a new attempt is made.
    Ours,
    /// Found on the way to the head of the chain.
    Found,
    /// Another's, where we had an attempt of our own.
    Winner { ours: (Offset, AttemptName) },
}

#[derive(Debug)]
enum State {
    /// Reading the manifest that a checkpoint names.
    ReadLast(Checkpoint),
    ReadBegin,
    /// Making the folder for the attempt at `begin.json`.
    MakeBegin(Publication),
    WriteBegin(Publication),
    RenameBegin(Publication),
    /// Reading the manifest at the position.
    Walk,
    MakeAttempt(AttemptName),
    Open(Open),
    Write(Publication, Manifest),
    Rename(Publication, Manifest),
    /// After a rename that was not done: who is there? `is_gone`: our document was not.
    Inspect {
        publication: Publication,
        ours: Manifest,
        is_gone: bool,
    },
    Finish(Finish, Whose),
    /// Deleting a folder of ours, nothing of which can be committed any more.
    DeleteAttempt {
        folder: StorePath,
        then: Then,
    },
    /// Deleting the folder of our committed group, which should be empty.
    DeleteEmpty(StorePath),
    Stopped(Fault),
}

#[derive(Debug, Clone, Copy)]
enum Then {
    Walk,
    MakeAttempt,
}

/// Commits the groups of one partition for one owner. See the [module](super).
#[derive(Debug)]
pub struct Machine {
    source: Source,
    books: Books,
    names: AttemptNames,
    /// Where to begin if the partition was never dumped.
    start: Offset,
    checkpoint: Checkpoint,
    /// Whether something was kept of an earlier owner.
    had_checkpoint: bool,
    watermark: Option<UnixMillis>,
    /// Whether what was read beyond the position is to be forgotten.
    reread: bool,
    removed: Vec<Removed>,
    /// When the folder of our attempt was first asked for, on our monotonic clock.
    made_at: Option<Duration>,
    /// How often in a row an operation told nothing.
    again: u32,
    wall: UnixMillis,
    state: State,
}

impl Machine {
    /// A new owner. `checkpoint`: what was kept, however old; None: nothing. `start`: where to begin if the
    /// partition was never dumped, not negative. `wall`: our clock, for what is written for people.
    #[must_use]
    pub fn take_over(
        source: Source,
        names: AttemptNames,
        checkpoint: Option<Checkpoint>,
        start: Offset,
        wall: UnixMillis,
    ) -> Self {
        let last = checkpoint.filter(|checkpoint| checkpoint.last.is_some());
        Self {
            books: Books::of(&source.topic, source.partition),
            source,
            names,
            start,
            checkpoint: Checkpoint {
                position: start,
                last: None,
            },
            had_checkpoint: checkpoint.is_some(),
            watermark: None,
            reread: true,
            removed: Vec::new(),
            made_at: None,
            again: 0,
            wall,
            state: last.map_or(State::ReadBegin, State::ReadLast),
        }
    }

    /// Where its books lie.
    #[must_use]
    pub fn books(&self) -> &Books {
        &self.books
    }

    /// What is to be done next, at once: `mono` is our monotonic clock.
    #[must_use]
    pub fn next(&mut self, mono: Duration) -> Next<'_> {
        match &self.state {
            State::MakeAttempt(_) => {
                self.made_at.get_or_insert(mono);
            }
            // It may be taken for abandoned, and its data deleted while we commit it.
            State::Write(document, _) if self.is_too_old(mono) => {
                let folder = self.books.attempt(document.from, &document.attempt);
                self.delete_and_reread(folder);
            }
            _ => {}
        }
        self.now()
    }

    fn is_too_old(&self, mono: Duration) -> bool {
        let age = self.made_at.map(|made_at| mono.saturating_sub(made_at));
        age.is_some_and(|age| age >= COMMIT_WITHIN)
    }

    fn now(&self) -> Next<'_> {
        let op = match &self.state {
            State::Open(open) => return Next::Open(open),
            State::Stopped(fault) => return Next::Stopped(fault),
            State::ReadLast(checkpoint) => {
                let last = checkpoint.last.expect("asked for where there is one");
                Op::Read(self.books.manifest(last))
            }
            State::ReadBegin => Op::Read(self.books.begin()),
            State::MakeBegin(begin) => {
                Op::MakeFolder(self.books.attempt(begin.from, &begin.attempt))
            }
            State::WriteBegin(document) | State::Write(document, _) => Op::Write {
                path: document.document(&self.books),
                bytes: document.bytes.clone(),
            },
            State::RenameBegin(document) | State::Rename(document, _) => Op::Rename {
                source: document.document(&self.books),
                target: document.target.clone(),
            },
            State::Walk => Op::Read(self.books.manifest(self.checkpoint.position)),
            State::MakeAttempt(attempt) => {
                Op::MakeFolder(self.books.attempt(self.checkpoint.position, attempt))
            }
            State::Inspect { ours, .. } => Op::Read(self.books.manifest(ours.from)),
            State::Finish(finish, _) => finish
                .op(&self.books)
                .expect("what is finished is left at once"),
            State::DeleteAttempt { folder, .. } => Op::Delete(folder.clone()),
            State::DeleteEmpty(folder) => Op::DeleteEmpty(folder.clone()),
        };
        Next::Do {
            op,
            again: self.again,
        }
    }

    /// An operation failed, or nothing is known of it, and it can be done again: [`Machine::next`] says it again.
    pub fn failed(&mut self) {
        self.again = self.again.saturating_add(1);
    }

    /// What came of the operation that [`Machine::next`] said.
    ///
    /// # Panics
    /// When it is no answer to that operation.
    pub fn answer(&mut self, answer: Answer) {
        let state = std::mem::replace(&mut self.state, State::Walk);
        let again = std::mem::take(&mut self.again);
        // An operation that told nothing counts as one more.
        let unsure = again.saturating_add(1);
        self.state = match (state, answer) {
            (State::ReadLast(checkpoint), Answer::Read(bytes)) => self.proven(checkpoint, bytes),
            (State::ReadBegin, Answer::Read(Some(bytes))) => self.begun(&bytes),
            (State::ReadBegin, Answer::Read(None)) if self.had_checkpoint => {
                let path = self.books.begin();
                State::Stopped(Fault::BooksMissing { path })
            }
            (State::ReadBegin, Answer::Read(None)) => self.begin(),
            (State::MakeBegin(document), Answer::Made) => State::WriteBegin(document),
            (State::WriteBegin(mut document), Answer::Written(outcome)) => match outcome {
                WriteOutcome::Done => State::RenameBegin(document),
                WriteOutcome::FolderMissing => State::ReadBegin,
                WriteOutcome::Failed => {
                    self.again = unsure;
                    document.writes += 1;
                    State::WriteBegin(document)
                }
            },
            // Whoever was first has decided; a lost answer is found out by reading.
            (State::RenameBegin(document), Answer::Renamed(outcome)) => match outcome {
                RenameOutcome::Unknown => {
                    self.again = unsure;
                    State::RenameBegin(document)
                }
                RenameOutcome::Done | RenameOutcome::Occupied | RenameOutcome::SourceMissing => {
                    State::ReadBegin
                }
            },
            (State::Walk, Answer::Read(Some(bytes))) => {
                match self.manifest_at(self.checkpoint.position, &bytes) {
                    Ok(manifest) => self.finish(manifest, Whose::Found),
                    Err(fault) => State::Stopped(fault),
                }
            }
            (State::Walk, Answer::Read(None)) => self.make_attempt(),
            (State::MakeAttempt(attempt), Answer::Made) => State::Open(Open {
                checkpoint: self.checkpoint,
                attempt,
                watermark: self.watermark,
                reread: self.reread,
            }),
            (State::Write(mut document, ours), Answer::Written(outcome)) => match outcome {
                WriteOutcome::Done => State::Rename(document, ours),
                // Our data is gone with the folder.
                WriteOutcome::FolderMissing => self.make_anew(),
                WriteOutcome::Failed => {
                    self.again = unsure;
                    document.writes += 1;
                    State::Write(document, ours)
                }
            },
            (State::Rename(publication, ours), Answer::Renamed(outcome)) => match outcome {
                RenameOutcome::Done => self.finish(ours, Whose::Ours),
                RenameOutcome::Unknown => {
                    self.again = unsure;
                    State::Inspect {
                        publication,
                        ours,
                        is_gone: false,
                    }
                }
                RenameOutcome::Occupied | RenameOutcome::SourceMissing => State::Inspect {
                    publication,
                    ours,
                    is_gone: outcome == RenameOutcome::SourceMissing,
                },
            },
            (
                State::Inspect {
                    publication,
                    ours,
                    is_gone,
                },
                Answer::Read(None),
            ) if !is_gone => {
                self.again = unsure;
                State::Rename(publication, ours)
            }
            // Neither our document nor a manifest: the folder was swept. Should the manifest have been renamed and
            // not be seen yet, it is met when the next attempt is committed; so nothing is deleted.
            (State::Inspect { .. }, Answer::Read(None)) => self.make_anew(),
            (State::Inspect { ours, .. }, Answer::Read(Some(bytes))) => {
                self.inspected(ours, &bytes)
            }
            (State::Finish(mut finish, whose), answer) => match finish.answer(answer) {
                Progress::Done => self.finished(finish, whose),
                Progress::Stopped(fault) => State::Stopped(fault),
                Progress::More(is_unsure) => {
                    self.again = if is_unsure { unsure } else { 0 };
                    State::Finish(finish, whose)
                }
            },
            (State::DeleteEmpty(_), Answer::Deleted) => self.make_attempt(),
            (State::DeleteAttempt { then, .. }, Answer::Deleted) => match then {
                Then::Walk => State::Walk,
                Then::MakeAttempt => self.make_attempt(),
            },
            (state, answer) => panic!("{answer:?} is no answer in {state:?}"),
        };
    }

    /// Commits the open group. `wall`: our clock, for what is written for people.
    ///
    /// # Panics
    /// When no group is open.
    pub fn commit(&mut self, draft: Draft, wall: UnixMillis) {
        let State::Open(open) = &self.state else {
            panic!("no group is open in {:?}", self.state);
        };
        let from = open.checkpoint.position;
        let manifest = Manifest {
            source: self.source.clone(),
            attempt: open.attempt.clone(),
            from,
            to: draft.to,
            previous: open.checkpoint.last,
            watermark: draft.watermark,
            written_at: wall,
            files: draft.files,
            left_out: draft.left_out,
        };
        self.wall = wall;
        self.reread = false;
        self.state = match manifest.to_json() {
            Ok(bytes) => {
                let publication = Publication {
                    from,
                    attempt: manifest.attempt.clone(),
                    bytes,
                    target: self.books.manifest(from),
                    writes: 0,
                };
                State::Write(publication, manifest)
            }
            Err(fault) => State::Stopped(Fault::Draft {
                from,
                to: manifest.to,
                fault,
            }),
        };
    }

    /// Gives up the open group: what was written is deleted, and a new attempt made at the same position.
    ///
    /// # Panics
    /// When no group is open.
    pub fn give_up(&mut self) {
        let State::Open(open) = &self.state else {
            panic!("no group is open in {:?}", self.state);
        };
        let folder = self.books.attempt(open.checkpoint.position, &open.attempt);
        self.delete_and_reread(folder);
    }

    /// Of an attempt whose manifest was never sent: nothing of it can be committed.
    fn delete_and_reread(&mut self, folder: StorePath) {
        self.reread = true;
        self.state = State::DeleteAttempt {
            folder,
            then: Then::MakeAttempt,
        };
    }

    /// Files that had their final names once and are gone, as far as was noticed; told once.
    pub fn take_removed(&mut self) -> Vec<Removed> {
        std::mem::take(&mut self.removed)
    }

    /// Whether the checkpoint is true: its group ends there and is of this dump.
    fn proven(&mut self, checkpoint: Checkpoint, bytes: Option<Vec<u8>>) -> State {
        let last = checkpoint.last.expect("asked for where there is one");
        let Some(bytes) = bytes else {
            return State::ReadBegin;
        };
        match self.manifest_at(last, &bytes) {
            Err(fault) => State::Stopped(fault),
            Ok(manifest) if manifest.to != checkpoint.position => State::ReadBegin,
            // Its files have their names: that was so before the checkpoint was kept.
            Ok(manifest) => {
                self.checkpoint = checkpoint;
                self.watermark = manifest.watermark;
                State::Walk
            }
        }
    }

    fn begun(&mut self, bytes: &[u8]) -> State {
        let path = self.books.begin();
        let begin = match Begin::from_json(bytes) {
            Ok(begin) => begin,
            Err(fault) => return State::Stopped(Fault::Document { path, fault }),
        };
        if let Some(difference) = self.source.difference(&begin.source) {
            return State::Stopped(Fault::Foreign { path, difference });
        }
        self.checkpoint = Checkpoint {
            position: begin.at,
            last: None,
        };
        self.watermark = None;
        State::Walk
    }

    fn begin(&mut self) -> State {
        let attempt = self.names.next_name();
        let begin = Begin {
            source: self.source.clone(),
            attempt: attempt.clone(),
            at: self.start,
            written_at: self.wall,
        };
        match begin.to_json() {
            Ok(bytes) => State::MakeBegin(Publication {
                from: self.start,
                attempt,
                bytes,
                target: self.books.begin(),
                writes: 0,
            }),
            Err(fault) => State::Stopped(Fault::Document {
                path: self.books.begin(),
                fault,
            }),
        }
    }

    /// Reads the manifest that lies where a group from `from` on has it.
    fn manifest_at(&self, from: Offset, bytes: &[u8]) -> Result<Manifest, Fault> {
        let path = self.books.manifest(from);
        let manifest = match Manifest::from_json(bytes) {
            Ok(manifest) => manifest,
            Err(fault) => return Err(Fault::Document { path, fault }),
        };
        if let Some(difference) = self.source.difference(&manifest.source) {
            return Err(Fault::Foreign { path, difference });
        }
        if manifest.from != from {
            let from = manifest.from;
            return Err(Fault::Misplaced { path, from });
        }
        Ok(manifest)
    }

    /// Who has won the position that we wanted.
    fn inspected(&mut self, ours: Manifest, bytes: &[u8]) -> State {
        match self.manifest_at(ours.from, bytes) {
            Err(fault) => State::Stopped(fault),
            Ok(theirs) if theirs.attempt == ours.attempt => self.finish(ours, Whose::Ours),
            Ok(theirs) => {
                let ours = (ours.from, ours.attempt);
                self.finish(theirs, Whose::Winner { ours })
            }
        }
    }

    fn finish(&mut self, manifest: Manifest, whose: Whose) -> State {
        let finish = Finish::new(manifest);
        if finish.manifest.files.is_empty() {
            return self.finished(finish, whose);
        }
        State::Finish(finish, whose)
    }

    fn finished(&mut self, finish: Finish, whose: Whose) -> State {
        self.removed.extend(finish.removed);
        let manifest = finish.manifest;
        self.checkpoint = Checkpoint {
            position: manifest.to,
            last: Some(manifest.from),
        };
        self.watermark = manifest.watermark;
        match whose {
            Whose::Ours => State::DeleteEmpty(self.books.attempt(manifest.from, &manifest.attempt)),
            Whose::Found => State::Walk,
            Whose::Winner {
                ours: (from, attempt),
            } => {
                self.reread = true;
                State::DeleteAttempt {
                    folder: self.books.attempt(from, &attempt),
                    then: Then::Walk,
                }
            }
        }
    }

    fn make_attempt(&mut self) -> State {
        self.made_at = None;
        State::MakeAttempt(self.names.next_name())
    }

    fn make_anew(&mut self) -> State {
        self.reread = true;
        self.make_attempt()
    }
}
