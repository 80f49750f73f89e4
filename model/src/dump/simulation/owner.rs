//! One owner of the partition: the machine, and what it has read.

use std::collections::BTreeMap;

use super::{
    super::{
        bucket::{Bucket, Pattern},
        commit::{Answer, Checkpoint, Draft, Machine, Next, Op, Open, RenameOutcome, WriteOutcome},
        digest::Digest,
        ledger::Ledger,
        manifest::DataFile,
        names::{AttemptNames, DataName},
    },
    Broken, Held, World, books, source,
    store::{Store, is_change},
};
use crate::ids::{Offset, OwnerEpoch, Partition, UnixMillis, WorkerId};

const HOUR_MS: i64 = 3_600_000;

#[derive(Debug)]
pub(super) struct Owner {
    index: usize,
    pub(super) is_frozen: bool,
    pub(super) running: Option<Running>,
}

#[derive(Debug)]
pub(super) struct Running {
    machine: Machine,
    /// What the machine has opened, and how far we have read; None: something else is going on.
    open: Option<(Open, i64)>,
}

/// What became of an operation, for the one who waits for it.
enum Told {
    Answer(Answer),
    Nothing,
}

impl Owner {
    pub(super) fn new(index: usize) -> Self {
        Self {
            index,
            is_frozen: false,
            running: None,
        }
    }

    pub(super) fn take_over(&mut self, world: &mut World) {
        let kept = world.kept.len();
        // The newest one, seldom an older one.
        let checkpoint = match world.below(4) {
            0 if kept > 0 => {
                let index = world.index_below(kept);
                Some(world.kept[index])
            }
            _ => world.kept.last().copied(),
        };
        let start = world.index_below(world.source.len()) as i64;
        let start = if world.broken == Broken::NoBegin {
            start
        } else {
            start.min(4)
        };
        world.incarnations += 1;
        let is_repeat = world.broken == Broken::NamesUsedAgain;
        let incarnation = if is_repeat { 1 } else { world.incarnations };
        let worker = WorkerId::new(format!("w{}", self.index)).expect("legal");
        let names = AttemptNames::new(&worker, OwnerEpoch(1), incarnation);
        let checkpoint = checkpoint.filter(|_| world.broken != Broken::NoBegin);
        if world.broken == Broken::NoBegin {
            world.store.apply(&Op::Delete(books().begin()));
        }
        let machine = Machine::take_over(source(), names, checkpoint, Offset(start), UnixMillis(0));
        let open = None;
        self.running = Some(Running { machine, open });
    }

    /// Does one thing.
    pub(super) fn act(&mut self, world: &mut World) {
        let Some(running) = &mut self.running else {
            return;
        };
        let now = match world.broken {
            Broken::NoAge => std::time::Duration::ZERO,
            _ => world.now,
        };
        let op = match running.machine.next(now) {
            Next::Stopped(fault) => panic!("stopped: {fault}"),
            Next::Open(open) => {
                let open = open.clone();
                running.opened(open, world);
                return;
            }
            Next::Do { op, .. } => op,
        };
        running.open = match running.open.take() {
            // Kept over our own commit, where reading goes on.
            Some((open, at)) if !matches!(op, Op::Delete(_)) => Some((open, at)),
            _ => None,
        };
        let told = world.perform(&op);
        let is_manifest = matches!(&op, Op::Rename { target, .. } if target.name().ends_with(".json") && target.name() != "begin.json");
        let answer = match told {
            Told::Answer(answer) => answer,
            Told::Nothing => match op {
                Op::Rename { .. } if is_manifest && world.broken == Broken::LostMeansFailed => {
                    self.start_over(&op, world);
                    return;
                }
                Op::Rename { .. } => Answer::Renamed(RenameOutcome::Unknown),
                Op::Write { .. } => Answer::Written(WriteOutcome::Failed),
                _ => {
                    running.machine.failed();
                    return;
                }
            },
        };
        if world.broken == Broken::CheckpointBeforeFinish
            && is_manifest
            && answer == Answer::Renamed(RenameOutcome::Done)
            && let Some((open, at)) = &running.open
        {
            world.kept.push(Checkpoint {
                position: Offset(*at),
                last: Some(open.checkpoint.position),
            });
        }
        running.machine.answer(answer);
    }

    /// Takes a lost answer for a failure: deletes what it had, and begins anew.
    fn start_over(&mut self, op: &Op, world: &mut World) {
        if let Op::Rename { source, .. } = op {
            let folder = source.parent().expect("in an attempt's folder");
            world.store.apply(&Op::Delete(folder));
            world.store.sync();
        }
        self.take_over(world);
    }
}

impl Running {
    fn opened(&mut self, open: Open, world: &mut World) {
        let is_new = self
            .open
            .as_ref()
            .is_none_or(|(known, _)| known.attempt != open.attempt);
        let position = open.checkpoint.position;
        if is_new {
            let at = self.open.as_ref().map(|(_, at)| *at);
            if !open.reread {
                assert_eq!(at, Some(position.0), "reading goes on elsewhere");
            }
            let attempt = books().attempt(position, &open.attempt);
            world
                .attempts_made
                .entry(attempt.to_string())
                .or_insert(world.now);
            self.open = Some((open.clone(), position.0));
        }
        let (_, at) = self.open.as_mut().expect("opened");
        match world.below(10) {
            0..3 => world.kept.push(open.checkpoint),
            3..7 => {
                let more = 1 + world.below(6);
                *at = world.source_end().min(at.saturating_add_unsigned(more));
            }
            7 if world.below(4) == 0 => {
                self.open = None;
                self.machine.give_up();
            }
            _ if *at > position.0 => {
                let to = Offset(*at);
                match write(&open, to, world) {
                    Some(draft) => self.machine.commit(draft, UnixMillis(0)),
                    None => {
                        self.open = None;
                        self.machine.give_up();
                    }
                }
            }
            _ => {}
        }
    }
}

/// Writes the files of a group; None: one of them failed.
fn write(open: &Open, to: Offset, world: &mut World) -> Option<Draft> {
    let from = open.checkpoint.position;
    let (pattern, source) = (Pattern::default(), source());
    let mut ledger = Ledger::default();
    let mut buckets: BTreeMap<Bucket, Vec<i64>> = BTreeMap::new();
    for offset in from.0..to.0 {
        match world.held(offset) {
            Held::Record(hour) => {
                let bucket = pattern.unit().bucket(UnixMillis(hour * HOUR_MS));
                buckets.entry(bucket).or_default().push(offset);
            }
            Held::Nothing(why) => ledger.add(why, Offset(offset), Offset(offset + 1)),
        }
    }
    let mut files = Vec::new();
    for (index, (bucket, offsets)) in buckets.into_iter().enumerate() {
        let path = books().attempt_file(from, &open.attempt, index);
        let first = Offset(*offsets.first().expect("some"));
        let last = Offset(*offsets.last().expect("some"));
        let name = DataName::new(&source.topic, Partition(0), first, last);
        let directory = pattern.directory(&source.topic, bucket).expect("short");
        let Bucket::Dated { start } = bucket else {
            panic!("dated")
        };
        files.push(DataFile {
            path: directory.join(name.to_string()).expect("short"),
            bucket,
            records: offsets.len() as u64,
            first,
            last,
            bytes: 1 + offsets.len() as u64,
            timestamps: (start, start),
            digest: Digest::default(),
        });
        // The process may die, or the store fail, in the middle of a file.
        let is_torn = world.below(25) == 0;
        let written = if is_torn { Vec::new() } else { offsets };
        if !world.store.write_data(path.as_str(), written) || is_torn {
            return None;
        }
        world.store.sync();
    }
    Some(Draft {
        to,
        files,
        left_out: ledger.entries().to_vec(),
        watermark: None,
    })
}

impl World {
    /// Does an operation, or not, or later, and tells about it, or not.
    fn perform(&mut self, op: &Op) -> Told {
        self.store.renames_overwrite = self.broken == Broken::RenameOverwrites;
        match self.below(20) {
            // Done, and the answer lost: not durable yet for all that anybody knows.
            0 | 1 => {
                self.store.apply(op);
                Told::Nothing
            }
            2 => Told::Nothing,
            3 if is_change(op) => {
                self.store.late.push(op.clone());
                Told::Nothing
            }
            _ => {
                let answer = self.store.apply(op);
                // A refusal changes nothing, so nothing is put on the disks for it.
                let is_refusal = matches!(
                    answer,
                    Answer::Renamed(RenameOutcome::Occupied | RenameOutcome::SourceMissing)
                        | Answer::Written(WriteOutcome::FolderMissing | WriteOutcome::Failed)
                );
                let is_confirmed = match (op, &answer) {
                    (Op::Read(_), Answer::Read(found)) => found.is_some(),
                    (Op::Confirm(_), Answer::Length(found)) => found.is_some(),
                    _ => false,
                } && self.broken != Broken::SeenIsDurable;
                if (is_change(op) && !is_refusal) || is_confirmed {
                    self.store.sync();
                }
                Told::Answer(answer)
            }
        }
    }
}

/// A final file of the length that its manifest says; others are torn.
pub(super) fn is_whole(node: &super::Node) -> bool {
    Store::length(node).is_some_and(|length| length > 1)
}
