//! What happens.

use std::time::Duration;

use super::{
    super::{Answer, CheckpointPlace},
    Broken, EXPIRATION_MS, OWNERS, Owner, Profile, Response, World,
    broker::Verdict,
};
use crate::ids::{Offset, UnixMillis};

impl World {
    pub(super) fn event(&mut self, owners: &mut [Owner]) {
        let me = self.index_below(OWNERS);
        match self.below(100) {
            0..12 => self.grow(),
            12..26 => {
                let records = self.index_below(4) + 1;
                if !owners[me].is_frozen {
                    owners[me].read(self, records);
                }
            }
            26..48 => {
                if !owners[me].is_frozen {
                    owners[me].act(me, self);
                }
            }
            48..64 => self.serve(me),
            64..76 => self.deliver(me, owners),
            76..80 => self.broker.high_watermark = self.broker.end,
            80..83 => self.take_over(me, owners),
            83..87 => self.note_checkpoint(&owners[me]),
            87..89 => self.commit(),
            89..91 => self.cut(me, owners),
            91 => owners[me].is_frozen = !owners[me].is_frozen,
            92 => owners[me].running = None,
            93..96 => self.pass(5),
            96 => {
                let long = 1 + self.below(2 * EXPIRATION_MS.unsigned_abs());
                self.pass_long(long, owners);
            }
            97 => self.change_leader(owners),
            98 => self.broker.expire(self.now.wall.0, EXPIRATION_MS),
            _ => self.age(),
        }
    }

    fn grow(&mut self) {
        for _ in 0..=self.below(3) {
            let is_copyable = self.below(4) > 0;
            let at = self.source_end();
            self.source.push(is_copyable);
            if self.profile == Profile::OldRecords && self.below(3) > 0 {
                let old = self.now.wall.0 - 2 * EXPIRATION_MS;
                self.old_timestamps.insert(at, old);
            }
        }
    }

    fn take_over(&mut self, me: usize, owners: &mut [Owner]) {
        if self.has_lease() {
            // The others' leases are over, and so is what they had on the way.
            for (index, owner) in owners.iter_mut().enumerate() {
                owner.running = None;
                owner.is_frozen = false;
                self.requests[index].clear();
                self.responses[index].clear();
                self.connections[index] += 1;
            }
            self.broker.high_watermark = self.broker.end;
            self.commits.clear();
        }
        if !owners[me].is_frozen {
            self.responses[me].clear();
            self.connections[me] += 1;
            owners[me].take_over(self, None);
        }
    }

    /// The broker handles the oldest request of a connection, or loses it.
    fn serve(&mut self, me: usize) {
        let Some(request) = self.requests[me].pop_front() else {
            return;
        };
        let is_refused = self.below(12) == 0;
        let verdict = if is_refused {
            None
        } else {
            Some(self.broker.produce(
                request.producer,
                request.held.first,
                &request.held.contents,
                request.held.timestamp,
            ))
        };
        let is_unsure = self.below(20) == 0;
        let (answer, end) = match verdict {
            None => (Answer::Refused, 0),
            Some(Verdict::Taken { .. }) if is_unsure => (Answer::Unsure, 0),
            Some(Verdict::Taken { base, end }) => (
                Answer::Acked {
                    base_offset: Offset(base),
                },
                end,
            ),
            Some(Verdict::OutOfOrder) => (Answer::OutOfOrder, 0),
            Some(Verdict::OldEpoch) => (Answer::OldEpoch, 0),
            Some(Verdict::UnknownProducer) => (Answer::UnknownProducer, 0),
        };
        // Nobody hears the answer to what came over an older connection.
        if request.connection == self.connections[request.owner] {
            self.responses[me].push_back(Response {
                id: request.id,
                attempt: request.attempt,
                answer,
                end,
            });
        }
    }

    fn deliver(&mut self, me: usize, owners: &mut [Owner]) {
        if owners[me].is_frozen {
            return;
        }
        let is_due = |response: &Response| response.end <= self.broker.high_watermark;
        if !self.responses[me].front().is_some_and(is_due) {
            return;
        }
        if let Some(response) = self.responses[me].pop_front() {
            let Response {
                id,
                attempt,
                answer,
                ..
            } = response;
            owners[me].answered(id, attempt, answer, self.now);
        }
    }

    /// A commit goes on its way; commits overtake each other, also those of older owners.
    fn note_checkpoint(&mut self, owner: &Owner) {
        let Some(running) = &owner.running else {
            return;
        };
        let checkpoint = running.sender.checkpoint();
        let mut offset = checkpoint.place.offset;
        if self.broken == Broken::CheckpointBeforeAck {
            offset = running.sender.position();
        }
        let place = checkpoint.place;
        self.commits.push(CheckpointPlace {
            offset,
            counted: Some((checkpoint.producer, place.count, place.target_end)),
        });
    }

    fn commit(&mut self) {
        if self.commits.is_empty() {
            return;
        }
        let index = self.index_below(self.commits.len());
        // It may arrive once more, later.
        self.checkpoint = Some(self.commits[index]);
    }

    /// A connection breaks. What was sent over it may still arrive.
    fn cut(&mut self, me: usize, owners: &mut [Owner]) {
        if self.below(2) == 0 {
            self.requests[me].clear();
        }
        self.responses[me].clear();
        self.connections[me] += 1;
        owners[me].connection_lost();
    }

    fn pass(&mut self, ms: u64) {
        self.now.mono += Duration::from_millis(ms);
        self.now.wall = UnixMillis(self.now.wall.0.saturating_add_unsigned(ms));
    }

    /// So long that brokers have closed connections on which nothing came.
    fn pass_long(&mut self, ms: u64, owners: &mut [Owner]) {
        self.pass(ms);
        for (me, owner) in owners.iter_mut().enumerate() {
            self.requests[me].clear();
            self.responses[me].clear();
            self.connections[me] += 1;
            owner.connection_lost();
        }
        self.broker.high_watermark = self.broker.end;
        self.broker.expire(self.now.wall.0, EXPIRATION_MS);
    }

    fn change_leader(&mut self, owners: &mut [Owner]) {
        let committed = self.broker.high_watermark;
        let lacking = match self.profile {
            Profile::Unclean => 1 + self.below(6),
            Profile::Wiped => 1 + self.below(60),
            _ => 0,
        };
        let mut to = committed.saturating_sub_unsigned(lacking).max(0);
        if self.profile == Profile::Unclean {
            // Something of the newest line stays that is young enough for a state.
            let young = self.now.wall.0 - EXPIRATION_MS / 2;
            let first = self.broker.log.iter().find_map(|batch| {
                let is_newest = batch.writer == self.line.as_ref().map(super::Line::producer);
                let records = i64::try_from(batch.contents.len()).expect("small");
                (is_newest && batch.timestamp > young).then_some(batch.base + records)
            });
            to = to.max(first.unwrap_or(committed).min(committed));
        }
        if self.profile == Profile::Wiped {
            let begin = self.line.as_ref().map_or(0, |line| line.target_from.0);
            to = to.max(begin.min(committed));
        }
        self.is_shortened |= to < committed;
        self.broker.truncate(to, self.now.wall.0, EXPIRATION_MS);
        for (me, owner) in owners.iter_mut().enumerate() {
            if to < committed {
                // Another broker: what was sent to the old leader never reaches it.
                self.requests[me].clear();
            }
            self.responses[me].clear();
            self.connections[me] += 1;
            owner.connection_lost();
            if self.profile == Profile::Wiped {
                // What is sent before anybody has noticed is beyond help.
                owner.running = None;
                self.requests[me].clear();
            }
        }
    }

    /// What happens to topics: others write to the target, the source cleans up.
    fn age(&mut self) {
        let end = self.source_end();
        match self.profile {
            Profile::Compacted if end > 3 => {
                let at = self.index_below(self.source.len() - 1);
                self.source[at] = false;
            }
            Profile::Deleted if end > 3 => {
                let by = i64::try_from(self.below(6)).expect("small");
                self.source_start = (self.source_start + by).min(end - 1);
            }
            // Others' records would hide what is missing.
            Profile::Wiped => {}
            _ => self.broker.foreign(self.now.wall.0),
        }
    }

    /// Everything calms down, and two more owners go on to the end, one after the other.
    pub(super) fn quiesce(&mut self, owners: &mut [Owner]) {
        for (me, owner) in owners.iter_mut().enumerate() {
            *owner = Owner::default();
            while !self.requests[me].is_empty() {
                self.serve(me);
            }
            self.responses[me].clear();
            self.connections[me] += 1;
        }
        self.broker.high_watermark = self.broker.end;
        // What the target lost is noticed by the next record.
        self.source.push(true);
        self.run_to_end(owners);
        // The next one begins where the old checkpoint says, and finds everything there.
        self.run_to_end(owners);
    }

    /// One more owner takes over and goes on to the end.
    fn run_to_end(&mut self, owners: &mut [Owner]) {
        self.take_over(0, owners);
        let end = self.source_end();
        for _ in 0..5_000 {
            if owners[0].running.is_none() {
                self.take_over(0, owners);
            }
            owners[0].read(self, 3);
            owners[0].act(0, self);
            self.serve(0);
            self.broker.high_watermark = self.broker.end;
            self.deliver(0, owners);
            self.pass(1);
            let running = owners[0].running.as_ref();
            let at = running.map(|running| running.sender.checkpoint().place.offset.0);
            if at == Some(end) {
                return;
            }
        }
        panic!("it does not come to its end: {:?}", owners[0].running);
    }
}
