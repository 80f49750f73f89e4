//! The ways of the machine, one by one.

use std::{collections::BTreeMap, time::Duration};

use super::{
    super::{
        ledger::LeftOut,
        manifest::{Begin, Manifest, Source},
        names::{AttemptNames, Books},
    },
    *,
};
use crate::ids::{
    ClusterId, LinkId, Offset, OwnerEpoch, Partition, TopicName, UnixMillis, WorkerId,
};

fn source() -> Source {
    Source {
        link: LinkId::new("lake").expect("legal"),
        cluster: ClusterId::new("dc1").expect("legal"),
        topic: TopicName::new("orders").expect("legal"),
        topic_id: None,
        partition: Partition(0),
    }
}

fn books() -> Books {
    Books::of(&source().topic, Partition(0))
}

fn machine(checkpoint: Option<Checkpoint>) -> Machine {
    let names = AttemptNames::new(&WorkerId::new("w").expect("legal"), OwnerEpoch(1), 1);
    Machine::take_over(source(), names, checkpoint, Offset(7), UnixMillis(0))
}

/// Only documents and folders; every operation works and is told.
#[derive(Debug, Default)]
struct Plain {
    files: BTreeMap<String, Vec<u8>>,
    ops: Vec<Op>,
}

impl Plain {
    fn apply(&mut self, op: Op) -> Answer {
        let answer = match &op {
            Op::Read(path) => Answer::Read(self.files.get(path.as_str()).cloned()),
            Op::MakeFolder(_) => Answer::Made,
            Op::Write { path, bytes } => {
                self.files.insert(path.to_string(), bytes.clone());
                Answer::Written(WriteOutcome::Done)
            }
            Op::Rename { source, target } => {
                let is_there = self.files.contains_key(source.as_str());
                let is_taken = self.files.contains_key(target.as_str());
                Answer::Renamed(match (is_there, is_taken) {
                    (false, _) => RenameOutcome::SourceMissing,
                    (true, true) => RenameOutcome::Occupied,
                    (true, false) => {
                        let bytes = self.files.remove(source.as_str()).expect("there");
                        self.files.insert(target.to_string(), bytes);
                        RenameOutcome::Done
                    }
                })
            }
            Op::Length(path) | Op::Confirm(path) => {
                let file = self.files.get(path.as_str());
                Answer::Length(file.map(|bytes| bytes.len() as u64))
            }
            Op::Same(one, other) => {
                let of = |path: &StorePath| self.files.get(path.as_str());
                Answer::Same(of(one).zip(of(other)).map(|(one, other)| one == other))
            }
            Op::Delete(path) => {
                self.files.retain(|at, _| !at.starts_with(path.as_str()));
                Answer::Deleted
            }
            Op::DeleteEmpty(_) => Answer::Deleted,
        };
        self.ops.push(op);
        answer
    }

    /// Runs a machine until it is open; what it says if it stops.
    fn run(&mut self, machine: &mut Machine) -> Result<Open, Fault> {
        loop {
            let op = match machine.next(Duration::ZERO) {
                Next::Open(open) => return Ok(open.clone()),
                Next::Stopped(fault) => return Err(fault.clone()),
                Next::Do { op, .. } => op,
            };
            let answer = self.apply(op);
            machine.answer(answer);
        }
    }
}

/// A group in which everything was left out.
fn draft(from: i64, to: i64) -> Draft {
    let (from, to) = (Offset(from), Offset(to));
    Draft {
        to,
        files: Vec::new(),
        left_out: vec![LeftOut::control(from, to)],
        watermark: Some(UnixMillis(to.0)),
    }
}

#[test]
fn a_first_owner_writes_down_where_it_begins_and_goes_on_group_by_group() {
    let mut store = Plain::default();
    let mut machine = machine(None);
    let open = store.run(&mut machine).expect("open");
    assert_eq!((open.checkpoint.position, open.reread), (Offset(7), true));
    let begin = &store.files[books().begin().as_str()];
    assert_eq!(Begin::from_json(begin).expect("ours").at, Offset(7));
    machine.commit(draft(7, 9), UnixMillis(1));
    let next = store.run(&mut machine).expect("open");
    let expected = Checkpoint {
        position: Offset(9),
        last: Some(Offset(7)),
    };
    assert_eq!((next.checkpoint, next.reread), (expected, false));
    assert_eq!(next.watermark, Some(UnixMillis(9)));
    assert_ne!(next.attempt, open.attempt);
    machine.commit(draft(9, 12), UnixMillis(1));
    let next = store.run(&mut machine).expect("open");
    let manifest = &store.files[books().manifest(Offset(9)).as_str()];
    assert_eq!(
        Manifest::from_json(manifest).expect("ours").previous,
        Some(Offset(7))
    );
    assert_eq!(next.checkpoint.position, Offset(12));
}

#[test]
fn c082_the_next_owner_asks_for_two_documents_and_lists_nothing() {
    let mut store = Plain::default();
    let mut first = machine(None);
    store.run(&mut first).expect("open");
    first.commit(draft(7, 9), UnixMillis(1));
    let open = store.run(&mut first).expect("open");
    store.ops.clear();
    let mut second = machine(Some(open.checkpoint));
    let open = store.run(&mut second).expect("open");
    assert_eq!(open.checkpoint.position, Offset(9));
    assert_eq!(open.watermark, Some(UnixMillis(9)));
    let expected = [
        Op::Read(books().manifest(Offset(7))),
        Op::Read(books().manifest(Offset(9))),
    ];
    assert_eq!(store.ops[..2], expected);
    assert!(matches!(store.ops[2..], [Op::MakeFolder(_)]));
}

#[test]
fn a_checkpoint_that_no_group_ends_at_is_not_believed() {
    let mut store = Plain::default();
    let mut first = machine(None);
    store.run(&mut first).expect("open");
    first.commit(draft(7, 9), UnixMillis(1));
    store.run(&mut first).expect("open");
    for (position, last) in [(8, Some(7)), (100, Some(50)), (8, None)] {
        let checkpoint = Checkpoint {
            position: Offset(position),
            last: last.map(Offset),
        };
        let open = store.run(&mut machine(Some(checkpoint))).expect("open");
        assert_eq!(open.checkpoint.position, Offset(9), "{checkpoint:?}");
    }
}

#[test]
fn books_that_are_gone_are_not_a_new_beginning() {
    let checkpoint = Checkpoint {
        position: Offset(9),
        last: Some(Offset(7)),
    };
    let fault = Plain::default().run(&mut machine(Some(checkpoint)));
    assert!(
        matches!(fault, Err(Fault::BooksMissing { .. })),
        "{fault:?}"
    );
}

#[test]
fn c088_the_second_writer_of_a_range_loses_and_reads_again() {
    let mut store = Plain::default();
    let mut slow = machine(None);
    let ours = store.run(&mut slow).expect("open");
    let names = AttemptNames::new(&WorkerId::new("x").expect("legal"), OwnerEpoch(2), 2);
    let mut quick = Machine::take_over(source(), names, None, Offset(5), UnixMillis(0));
    store.run(&mut quick).expect("open");
    quick.commit(draft(7, 10), UnixMillis(1));
    store.run(&mut quick).expect("open");
    slow.commit(draft(7, 12), UnixMillis(1));
    let open = store.run(&mut slow).expect("open");
    assert_eq!((open.checkpoint.position, open.reread), (Offset(10), true));
    let deleted = Op::Delete(books().attempt(Offset(7), &ours.attempt));
    assert!(store.ops.contains(&deleted));
}

#[test]
fn documents_of_others_and_damaged_ones_stop_it() {
    let mut store = Plain::default();
    let mut first = machine(None);
    store.run(&mut first).expect("open");
    first.commit(draft(7, 9), UnixMillis(1));
    store.run(&mut first).expect("open");
    let path = books().manifest(Offset(7)).to_string();
    let good = store.files[&path].clone();

    store.files.insert(path.clone(), b"{}".to_vec());
    let fault = store.run(&mut machine(None));
    assert!(matches!(fault, Err(Fault::Document { .. })), "{fault:?}");

    let text = String::from_utf8(good.clone()).expect("text");
    store
        .files
        .insert(path.clone(), text.replace("dc1", "dc2").into_bytes());
    let fault = store.run(&mut machine(None));
    assert!(matches!(fault, Err(Fault::Foreign { .. })), "{fault:?}");

    store.files.insert(path, good.clone());
    store
        .files
        .insert(books().manifest(Offset(9)).to_string(), good);
    let fault = store.run(&mut machine(None));
    assert!(matches!(fault, Err(Fault::Misplaced { .. })), "{fault:?}");
}

#[test]
fn what_does_not_add_up_is_not_committed() {
    let mut store = Plain::default();
    let mut machine = machine(None);
    store.run(&mut machine).expect("open");
    machine.commit(
        Draft {
            left_out: Vec::new(),
            ..draft(7, 9)
        },
        UnixMillis(1),
    );
    let fault = store.run(&mut machine);
    assert!(matches!(fault, Err(Fault::Draft { .. })), "{fault:?}");
    assert!(
        !store
            .files
            .contains_key(books().manifest(Offset(7)).as_str())
    );
}
