//! An owner of the task: it does what take-over and sender decide, and nothing else.

use std::collections::BTreeMap;

use super::{
    super::{
        Action, Answer, Batch, BatchId, DeliveryMode, Line, NewLine, NextProducer, Now, Producer,
        ProducerId, Reason, Restart, Sender, Start, Stop, TakeOver, TakeOverInput, TargetView, Why,
        take_over,
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
    pub(super) fn take_over(&mut self, world: &mut World, restart: Option<Restart>) {
        self.running = None;
        let (mut begun, mut tail_from) = (None, None);
        // A line and a tail are asked for at most once each.
        for _ in 0..4 {
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
            let known = checkpoint.and_then(|checkpoint| checkpoint.counted);
            let known = known.map(|(producer, ..)| producer);
            let known = known.max(line.as_ref().map(Line::producer));
            let target = match (tail_from.take(), known) {
                (Some(from), Some(producer)) => world.broker.view_with_tail(producer, from),
                _ => world.broker.view(),
            };
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
                begun,
                restart,
            };
            let new_line = match take_over(&input) {
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
                        NewLine { from, ..new_line }
                    } else {
                        let line = line.expect("a line is resumed");
                        let begin = resume.rewound(from, count, &target, line.target_from);
                        let begin = begin.expect("in the line");
                        self.start(world, line, Start::from(begin));
                        return;
                    }
                }
                TakeOver::NewLine(new_line) => new_line,
                TakeOver::ReadTail { from } => {
                    tail_from = Some(from);
                    continue;
                }
                TakeOver::AskAgain => return,
                TakeOver::Denied(denied) => panic!("{denied}"),
            };
            let written = begin(world, new_line);
            begun = Some(written);
        }
        panic!("nothing is decided: {self:?}");
    }

    fn start(&mut self, world: &mut World, line: Line, start: Start) {
        // A compacted source is copied once more only where another owner takes it over.
        let is_compacted = DeliveryMode::AtLeastOnce(Reason::SourceCompacted);
        world.is_at_least_once |= !start.mode.runs_without_lease() && start.mode != is_compacted;
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
                from,
                why,
                repeats_max,
            } => {
                let restart = Restart {
                    line: producer,
                    from,
                    why,
                    repeats_max,
                };
                self.take_over(world, Some(restart));
            }
            Action::Stop(Stop::TakeOver) => self.take_over(world, None),
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

/// Writes a line; nobody else comes in between.
fn begin(world: &mut World, new_line: NewLine) -> Producer {
    if !matches!(new_line.why, Why::First) && new_line.repeats_max != Some(0) {
        world.is_at_least_once = true;
    }
    let producer = match new_line.producer {
        NextProducer::Bumped(producer) => producer,
        NextProducer::Fresh => panic!("so many epochs are not used"),
    };
    world.line = Some(Line {
        producer_id: producer.id,
        producer_epoch: producer.epoch,
        base: Offset(world.after(new_line.from)),
        target_from: Offset(world.broker.high_watermark),
    });
    producer
}
