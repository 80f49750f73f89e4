//! An owner of the task: it does what take-over and sender decide, and nothing else.

use std::collections::BTreeMap;

use super::{
    super::{
        Action, Answer, Batch, BatchId, Line, NewLine, NextProducer, Now, Producer, ProducerId,
        ReadFrom, Sender, Start, Stop, TakeOver, TakeOverInput, TargetView, Why, take_over,
    },
    Broken, Profile, World,
};
use crate::ids::Offset;

#[derive(Debug, Clone)]
pub(super) struct Held {
    pub first: super::super::Sequence,
    pub contents: Vec<i64>,
    pub timestamp: i64,
}

#[derive(Debug)]
pub(super) struct Running {
    pub line: Line,
    pub sender: Sender,
    pub held: BTreeMap<BatchId, Held>,
    /// Copyable records still to be passed over.
    pub skip: u64,
    /// An answer of the target on its way.
    pub view: Option<TargetView>,
}

#[derive(Debug, Default)]
pub(super) struct Owner {
    pub running: Option<Running>,
    pub is_frozen: bool,
}

impl Owner {
    pub(super) fn take_over(&mut self, world: &mut World) {
        self.running = None;
        let line = match world.broken {
            Broken::BaseNotAgreed => world.line.clone().map(|line| Line {
                base: world.checkpoint.map_or(line.base, |known| known.offset),
                ..line
            }),
            _ => world.line.clone(),
        };
        let checkpoint = match world.broken {
            Broken::BaseNotAgreed => None,
            _ => world.checkpoint,
        };
        let mut target = world.broker.view();
        // A tail is asked for at most once.
        for _ in 0..2 {
            let input = TakeOverInput {
                line: line.as_ref(),
                producer_id: ProducerId(1),
                checkpoint,
                target,
                target_is_another: false,
                source_start: Offset(world.source_start),
                source_is_deterministic: world.profile != Profile::Compacted,
                first_offset: Offset(0),
                now: world.now.wall,
                state_lifetime: super::LIFETIME,
            };
            match take_over(&input) {
                TakeOver::Resume(resume) => {
                    let line = line.expect("a line is resumed");
                    self.start(world, line, Start::from(resume));
                    return;
                }
                TakeOver::Rewind {
                    rewind,
                    resume,
                    new_line,
                } => {
                    let count = rewind.count();
                    let Some(from) = world.rewind(rewind) else {
                        return;
                    };
                    if let Some(new_line) = new_line {
                        self.begin(world, NewLine { from, ..new_line });
                        return;
                    }
                    let line = line.expect("a line is resumed");
                    let begin = resume.rewound(from, count, line.target_from);
                    let begin = begin.expect("in the line");
                    self.start(world, line, Start::from(begin));
                    return;
                }
                TakeOver::NewLine(new_line) => {
                    self.begin(world, new_line);
                    return;
                }
                TakeOver::ReadTail { from } => {
                    let known = checkpoint.and_then(|checkpoint| checkpoint.counted);
                    let of_line = line.as_ref().map(Line::producer);
                    let producer = known.map(|(producer, ..)| producer).max(of_line);
                    let producer = producer.expect("there is a line");
                    target = world.broker.view_with_tail(producer, from);
                }
                TakeOver::AskAgain => return,
                TakeOver::Denied(denied) => panic!("{denied}"),
            }
        }
        panic!("the tail does not decide: {target:?} {line:?} {checkpoint:?}");
    }

    fn begin(&mut self, world: &mut World, new_line: NewLine) {
        if !matches!(new_line.why, Why::First) && new_line.repeats_max != Some(0) {
            world.is_at_least_once = true;
        }
        let producer = match new_line.producer {
            NextProducer::Bumped(producer) => producer,
            NextProducer::Fresh => panic!("so many epochs are not used"),
        };
        let read = world.line.clone();
        self.put_line(world, read, producer, new_line.from);
    }

    fn put_line(
        &mut self,
        world: &mut World,
        read: Option<Line>,
        producer: Producer,
        from: ReadFrom,
    ) {
        let base = Offset(world.after(from));
        let line = Line {
            producer_id: producer.id,
            producer_epoch: producer.epoch,
            base,
            target_from: Offset(world.broker.high_watermark),
        };
        if world.line != read {
            return;
        }
        world.line = Some(line.clone());
        let start = Start {
            producer,
            place: super::super::Place {
                offset: base,
                count: super::super::Count(0),
                target_end: line.target_from,
            },
            skip_records: 0,
            skip_end: None,
            first_alone: true,
            mode: super::super::DeliveryMode::ExactlyOnce,
        };
        self.start(world, line, start);
    }

    fn start(&mut self, world: &mut World, line: Line, start: Start) {
        world.is_at_least_once |= !start.mode.runs_without_lease();
        let skip = match world.broken {
            Broken::SkipOffByOne if start.skip_records > 0 => start.skip_records - 1,
            _ => start.skip_records,
        };
        let start = Start {
            first_alone: start.first_alone && world.broken != Broken::FirstNotAlone,
            ..start
        };
        self.running = Some(Running {
            line,
            sender: Sender::new(world.settings(), start, world.now),
            held: BTreeMap::new(),
            skip,
            view: None,
        });
    }

    /// Reads up to `records` copyable records and pushes them.
    pub(super) fn read(&mut self, world: &World, records: usize) {
        let Some(running) = &mut self.running else {
            return;
        };
        if !running.sender.has_room() {
            return;
        }
        let from = running.sender.position();
        if from.0 < world.source_start {
            running.sender.source_lost(Offset(world.source_start));
            return;
        }
        let mut at = from.0;
        let mut contents = Vec::new();
        let (end, mut skip) = (world.source_end(), running.skip);
        while at < end && contents.len() < records {
            if world.is_copyable(at) {
                if skip > 0 {
                    skip -= 1;
                } else {
                    contents.push(at);
                }
            }
            at += 1;
        }
        if contents.is_empty() {
            running.sender.passed(Offset(at), skip);
            if running.sender.position() == Offset(at) {
                running.skip = skip;
            }
            return;
        }
        let timestamp = world.timestamp(&contents);
        let batch = Batch {
            from,
            to: Offset(at),
            records: u32::try_from(contents.len()).expect("small"),
            timestamp_max: crate::ids::UnixMillis(timestamp),
        };
        let Ok(assigned) = running.sender.push(batch, world.now) else {
            return;
        };
        running.skip = 0;
        let held = Held {
            first: assigned.sequence,
            contents,
            timestamp,
        };
        running.held.insert(assigned.id, held);
    }

    /// Carries out one action; false when there is none.
    pub(super) fn act(&mut self, me: usize, world: &mut World) -> bool {
        let Some(running) = &mut self.running else {
            return false;
        };
        if let Some(view) = running.view.take() {
            running.sender.target_seen(&view, world.now);
        }
        let Some(action) = running.sender.poll(world.now) else {
            return false;
        };
        let producer = running.line.producer();
        match action {
            Action::Send { id, attempt } => {
                if !running.sender.mode().runs_without_lease() {
                    if !world.has_lease() {
                        // It may not run on without a lease, and here nobody has one.
                        self.running = None;
                        return true;
                    }
                    world.is_at_least_once = true;
                }
                let held = running.held[&id].clone();
                world.send(me, producer, id, attempt, held);
            }
            Action::AskTarget => running.view = Some(world.broker.view()),
            Action::ReadTail { from } => {
                running.view = Some(world.broker.view_with_tail(producer, from));
            }
            Action::Reread { from } => {
                assert_eq!(from.offset, running.sender.position());
                running.skip = match world.broken {
                    Broken::SkipOffByOne if from.skip_records > 0 => from.skip_records - 1,
                    _ => from.skip_records,
                };
            }
            Action::NewLine {
                from, repeats_max, ..
            } => {
                world.is_at_least_once |= repeats_max != Some(0);
                let line = running.line.clone();
                let NextProducer::Bumped(next) = line.producer().next(None) else {
                    panic!("so many epochs are not used");
                };
                self.running = None;
                self.put_line(world, Some(line), next, from);
            }
            Action::Stop(Stop::TakeOver) => self.take_over(world),
            Action::Stop(Stop::NewerLine) => self.running = None,
            Action::Stop(Stop::Terminal(id)) => panic!("{id:?} is not refused for good"),
        }
        true
    }

    pub(super) fn answered(&mut self, id: BatchId, attempt: u32, answer: Answer, now: Now) {
        if let Some(running) = &mut self.running {
            running.sender.answered(id, attempt, answer, now);
        }
    }

    pub(super) fn connection_lost(&mut self) {
        if let Some(running) = &mut self.running {
            running.view = None;
            running.sender.connection_lost();
        }
    }
}
