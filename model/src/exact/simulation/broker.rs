//! The rules of a broker about one partition and one producer id, as the decision note lists them.

use std::collections::VecDeque;

use super::super::{
    Producer, ProducerEpoch, ProducerState, Sequence, StateAnswer, Tail, TailScan, TargetView,
};
use crate::ids::{Offset, UnixMillis};

/// Batches that are known again.
const KNOWN_AGAIN: usize = 5;

#[derive(Debug, Clone)]
pub(super) struct Appended {
    pub writer: Option<Producer>,
    pub first: Sequence,
    /// Source offsets of the records.
    pub contents: Vec<i64>,
    pub timestamp: i64,
    pub base: i64,
}

#[derive(Debug)]
struct State {
    epoch: ProducerEpoch,
    /// First and last sequence, and target offset of the first record.
    batches: VecDeque<(Sequence, Sequence, i64)>,
    timestamp: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Taken { base: i64, end: i64 },
    OutOfOrder,
    OldEpoch,
    UnknownProducer,
}

#[derive(Debug, Default)]
pub(super) struct Broker {
    pub log: Vec<Appended>,
    pub end: i64,
    pub high_watermark: i64,
    state: Option<State>,
    /// Before 2.5: without a state, only sequence 0 is taken. Before 2.8: the state cannot be asked.
    pub is_old: bool,
    pub tells_log_end: bool,
    /// States are never dropped for their age.
    pub keeps_states: bool,
    /// A broken rule: what the state speaks of counts as committed.
    pub takes_all_for_committed: bool,
    /// A broken rule: a batch is known again by its first sequence alone.
    pub knows_by_first: bool,
}

impl Broker {
    pub(super) fn produce(
        &mut self,
        writer: Producer,
        first: Sequence,
        contents: &[i64],
        timestamp: i64,
    ) -> Verdict {
        let records = i64::try_from(contents.len()).expect("small");
        let last = first.plus(records.unsigned_abs() - 1);
        if let Some(state) = &self.state {
            if state.epoch == writer.epoch {
                let known = state.batches.iter().find(|(known_first, known_last, _)| {
                    *known_first == first && (*known_last == last || self.knows_by_first)
                });
                if let Some((_, _, base)) = known {
                    return Verdict::Taken {
                        base: *base,
                        end: *base + records,
                    };
                }
            }
            if writer.epoch < state.epoch {
                return Verdict::OldEpoch;
            }
            let follows = if writer.epoch > state.epoch {
                first.number() == 0
            } else {
                let (_, last_known, _) = state.batches.back().expect("a state has a batch");
                last_known.plus(1) == first
            };
            if !follows {
                return Verdict::OutOfOrder;
            }
        } else if self.is_old && first.number() != 0 {
            return Verdict::UnknownProducer;
        }
        let base = self.end;
        self.append(Appended {
            writer: Some(writer),
            first,
            contents: contents.to_vec(),
            timestamp,
            base,
        });
        Verdict::Taken {
            base,
            end: base + records,
        }
    }

    /// Another application writes to the topic.
    pub(super) fn foreign(&mut self, timestamp: i64) {
        self.append(Appended {
            writer: None,
            first: Sequence::new(0).expect("not negative"),
            contents: vec![-1],
            timestamp,
            base: self.end,
        });
    }

    fn append(&mut self, batch: Appended) {
        let records = i64::try_from(batch.contents.len()).expect("small");
        self.end = batch.base + records;
        self.note(&batch);
        self.log.push(batch);
    }

    fn note(&mut self, batch: &Appended) {
        let Some(writer) = batch.writer else {
            return;
        };
        let records = u64::try_from(batch.contents.len()).expect("small");
        let last = batch.first.plus(records - 1);
        let known = match &mut self.state {
            Some(state) if state.epoch == writer.epoch => state,
            other => other.insert(State {
                epoch: writer.epoch,
                batches: VecDeque::new(),
                timestamp: batch.timestamp,
            }),
        };
        known.timestamp = batch.timestamp;
        known.batches.push_back((batch.first, last, batch.base));
        if known.batches.len() > KNOWN_AGAIN {
            known.batches.pop_front();
        }
    }

    pub(super) fn expire(&mut self, now: i64, expiration: i64) {
        if let Some(state) = &self.state
            && !self.keeps_states
            && now - state.timestamp >= expiration
        {
            self.state = None;
        }
    }

    /// A leader that has the log up to `to` only.
    pub(super) fn truncate(&mut self, to: i64, now: i64, expiration: i64) {
        while let Some(last) = self.log.last()
            && last.base + i64::try_from(last.contents.len()).expect("small") > to
        {
            self.log.pop();
        }
        let end =
            |batch: &Appended| batch.base + i64::try_from(batch.contents.len()).expect("small");
        self.end = self.log.last().map_or(0, end);
        self.high_watermark = self.end;
        self.state = None;
        for batch in self.log.clone() {
            self.note(&batch);
        }
        self.expire(now, expiration);
    }

    pub(super) fn view(&self) -> TargetView {
        let state = match &self.state {
            _ if self.is_old => StateAnswer::Unsupported,
            None => StateAnswer::Absent,
            Some(state) => StateAnswer::Known(ProducerState {
                epoch: state.epoch,
                last_sequence: state.batches.back().expect("a state has a batch").1,
                last_timestamp: UnixMillis(state.timestamp),
            }),
        };
        TargetView {
            state,
            start: Offset(0),
            log_end: self.log_end().map(Offset),
            end: Offset(self.high_watermark),
            tail: None,
        }
    }

    fn log_end(&self) -> Option<i64> {
        if self.takes_all_for_committed {
            return Some(self.high_watermark);
        }
        self.tells_log_end.then_some(self.end)
    }

    pub(super) fn view_with_tail(&self, producer: Producer, from: Offset) -> TargetView {
        let mut scan = TailScan::new(producer, from);
        for batch in &self.log {
            let records = u64::try_from(batch.contents.len()).expect("small");
            let to = batch.base.saturating_add_unsigned(records);
            if to <= from.0 || to > self.high_watermark {
                continue;
            }
            scan.batch(batch.writer, Some(batch.first), records, Offset(to));
        }
        scan.reached(Offset(self.high_watermark));
        TargetView {
            tail: Some(Tail::Read(scan)),
            ..self.view()
        }
    }

    /// Source offsets of everything that we wrote, in order.
    pub(super) fn copied(&self) -> Vec<i64> {
        let ours = self.log.iter().filter(|batch| batch.writer.is_some());
        ours.flat_map(|batch| batch.contents.iter().copied())
            .collect()
    }
}
