//! What a start is decided by.

use super::*;

/// What was read before the decision.
pub(super) struct Facts {
    pub(super) lines: TopicLines,
    pub(super) line: Option<Line>,
    pub(super) line_target: LineTarget,
    pub(super) producer_id: ProducerId,
    pub(super) checkpoint: Option<CheckpointPlace>,
    /// Epoch of the source's leader that wrote the record before the checkpoint.
    pub(super) source_epoch: Option<i32>,
    /// The count of gaps that was committed with it, or with the one before.
    pub(super) gaps: u64,
    pub(super) view: TargetView,
    pub(super) source_start: Offset,
    pub(super) source_end: Offset,
    pub(super) is_deterministic: bool,
    pub(super) first_offset: Offset,
    pub(super) target_topic_id: Option<TopicId>,
    /// When the target was asked.
    pub(super) asked: exact::Now,
}

impl Facts {
    /// Source offsets `[from, to)` that were deleted before they were copied.
    pub(super) fn gap(&self) -> Option<(Offset, Offset)> {
        let checkpoint = self.checkpoint.map(|checkpoint| checkpoint.offset);
        let base = self.line.as_ref().map(|line| line.base);
        let from = checkpoint.or(base)?;
        (from < self.source_start).then_some((from, self.source_start))
    }

    /// Epoch of the source's leader that wrote the record before `offset`; known at the checkpoint alone.
    pub(super) fn source_epoch_before(&self, offset: Offset) -> Option<i32> {
        let checkpoint = self.checkpoint.map(|checkpoint| checkpoint.offset);
        self.source_epoch.filter(|_| checkpoint == Some(offset))
    }

    /// The count of gaps that goes with a checkpoint at `offset`.
    pub(super) fn gaps_below(&self, offset: Offset) -> u64 {
        let mut gaps = Gaps::default();
        gaps.resume(Offset(0), self.gaps);
        if let Some((from, to)) = self.gap() {
            gaps.find(from, to);
        }
        gaps.at(offset)
    }

    pub(super) fn line_producer(&self) -> Producer {
        counting(self.line.as_ref(), self.checkpoint, self.producer_id)
    }

    pub(super) fn rewound(&self, resume: Resume, from: ReadFrom, count: Count) -> Option<Resume> {
        let line_from = self.line.as_ref()?.target_from;
        resume.rewound(from, count, &self.view, line_from)
    }

    pub(super) fn input(&self, config: &BatchConfig, shared: &Shared) -> TakeOverInput<'_> {
        TakeOverInput {
            line: self.line.as_ref(),
            producer_id: self.producer_id,
            checkpoint: self.checkpoint,
            target: self.view,
            target_is_another: self.lines.is_another_topic(&self.line_target),
            source_start: self.source_start,
            source_is_deterministic: self.is_deterministic,
            first_offset: self.first_offset,
            now: shared.clock.now(),
            state_lifetime: config.sender.state_lifetime,
            begun: None,
            restart: None,
        }
    }
}

/// What is known best of what was delivered: as committed, or as this task has seen it since, which is just
/// as true. What was not counted has come from elsewhere and goes before both.
pub(super) fn newest(
    committed: Option<CheckpointPlace>,
    seen: Option<Checkpoint>,
) -> Option<CheckpointPlace> {
    let seen = seen.map(|Checkpoint { producer, place }| CheckpointPlace {
        offset: place.offset,
        counted: Some((producer, place.count, place.target_end)),
    });
    let Some(committed) = committed else {
        return seen;
    };
    let progress = |place: &CheckpointPlace| place.counted.map(|(line, count, _)| (line, count));
    let is_counted = committed.counted.is_some();
    let is_newer = |seen: &CheckpointPlace| is_counted && progress(seen) > progress(&committed);
    Some(seen.filter(is_newer).unwrap_or(committed))
}

/// The line that counts: the newest one known; that of the link's producer before the first.
pub(super) fn counting(
    line: Option<&Line>,
    checkpoint: Option<CheckpointPlace>,
    producer_id: ProducerId,
) -> Producer {
    let counted = checkpoint.and_then(|checkpoint| checkpoint.counted);
    let counted = counted.map(|(producer, ..)| producer);
    counted.max(line.map(Line::producer)).unwrap_or(Producer {
        id: producer_id,
        epoch: ProducerEpoch(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(offset: i64, count: u64) -> Place {
        Place {
            offset: Offset(offset),
            count: Count(count),
            target_end: Offset(offset),
        }
    }

    fn producer(epoch: i16) -> Producer {
        Producer {
            id: ProducerId(7),
            epoch: ProducerEpoch(epoch),
        }
    }

    fn committed(epoch: i16, offset: i64, count: u64) -> CheckpointPlace {
        let place = place(offset, count);
        CheckpointPlace {
            offset: place.offset,
            counted: Some((producer(epoch), place.count, place.target_end)),
        }
    }

    /// A task that begins again does not go back to what was saved last.
    #[test]
    fn what_a_task_has_seen_itself_counts_where_it_is_newer() {
        let seen = Some(Checkpoint {
            producer: producer(2),
            place: place(40, 38),
        });
        let own = Some(committed(2, 40, 38));
        assert_eq!(newest(Some(committed(2, 10, 10)), seen), own);
        assert_eq!(newest(Some(committed(1, 90, 90)), seen), own);
        assert_eq!(newest(None, seen), own);
        for newer in [committed(2, 50, 48), committed(3, 10, 10)] {
            assert_eq!(newest(Some(newer), seen), Some(newer));
        }
        let put_back = CheckpointPlace {
            offset: Offset(0),
            counted: None,
        };
        assert_eq!(newest(Some(put_back), seen), Some(put_back));
        assert_eq!(newest(None, None), None);
    }
}
