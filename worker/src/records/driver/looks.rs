//! Looking at the source's offsets now and then, and acting on what they say.

use std::time::Duration;

use kreplicator_model::{
    ids::{Offset, TopicName},
    task::{Input, State as TaskState},
};
use tokio::time::Instant;
use tracing::{info, warn};

use super::{Done, Driver, LaneNumber, entry::Entry};
use crate::fault::{Fault, Kind};
use crate::records::{
    judge::{Look, Verdict, judge},
    lane::Numbers,
    reader::{Ranges, damaged},
};
use crate::sink::Sink as _;

/// Least time between two looks, however many alarms there are.
const GAP_MIN: Duration = Duration::from_millis(500);
/// Looks in a row that fail before it is called trouble: one may meet a leader that is moving.
const FAILURES_TO_TELL: u32 = 2;
/// Time between updates of what is shown as trouble.
const TROUBLE_INTERVAL: Duration = Duration::from_secs(1);

/// When to look.
pub(super) struct Schedule {
    next_at: Instant,
    last_at: Instant,
    under_way: bool,
    failures: u32,
    /// Why the source does not answer.
    trouble: Option<String>,
    shown_at: Instant,
}

impl Schedule {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            next_at: now,
            last_at: now,
            under_way: false,
            failures: 0,
            trouble: None,
            shown_at: now,
        }
    }

    /// The next look shall be as soon as may be.
    pub(super) fn soon(&mut self) {
        self.next_at = self.next_at.min(self.last_at + GAP_MIN);
    }
}

/// What earlier looks at a partition saw.
#[derive(Debug, Default)]
pub(super) struct LookState {
    /// Where the reader was when the source was asked: an end that was measured since then may be
    /// below where the reader has got meanwhile, but never below this.
    asked_at: Option<Offset>,
    /// Where the reader has been since when, while it should have moved.
    still: Option<(Offset, Instant)>,
    past_end: u32,
    pokes: u32,
    unmeasured: u32,
}

impl LookState {
    /// The reader was closed.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    /// The reader was opened anew at its place.
    pub(super) fn reopened(&mut self) {
        self.still = None;
    }

    fn see(
        &mut self,
        numbers: &Numbers,
        position: Offset,
        log: (Offset, Offset),
        now: Instant,
    ) -> Look {
        let (log_start, log_end) = log;
        let should_move = numbers.free && position != log_end;
        self.still = match self.still {
            _ if !should_move => None,
            Some((place, since)) if place == position => Some((place, since)),
            before => {
                if before.is_some() {
                    self.pokes = 0;
                }
                Some((position, now))
            }
        };
        if !should_move {
            self.pokes = 0;
        }
        let still_for = self.still.map_or(Duration::ZERO, |(_, since)| {
            now.saturating_duration_since(since)
        });
        Look {
            log_start,
            log_end,
            position,
            asked_at: self.asked_at.unwrap_or(position).min(position),
            still_for,
            past_end_before: self.past_end,
            pokes: self.pokes,
            is_damaged: numbers.damaged_at == Some(position),
        }
    }
}

impl Entry {
    /// Whether the reader has this task's partition open.
    pub(super) fn is_reading(&self) -> bool {
        matches!(self.machine.state(), TaskState::Running { .. })
    }
}

impl Driver {
    pub(super) fn begin_look(&mut self) {
        let now = Instant::now();
        if self.looks.under_way || now < self.looks.next_at {
            return;
        }
        let Some(clients) = &self.clients else { return };
        if let Some(reason) = clients.reader.news().fatal() {
            self.rebuild_reader(&reason);
        }
        let Some(clients) = &self.clients else { return };
        let partitions: Vec<(TopicName, i32)> = self
            .entries
            .values_mut()
            .filter(|entry| !entry.machine.is_stopped())
            .map(|entry| {
                entry.look.asked_at = entry.lane.numbers().position;
                let id = &entry.lane.spec.id;
                (id.topic.clone(), id.partition.0)
            })
            .collect();
        self.looks.last_at = now;
        self.looks.next_at = now + self.config.inspection_interval;
        if partitions.is_empty() {
            return;
        }
        self.looks.under_way = true;
        let questions = clients.reader.questions();
        let deadline = self.config.call_timeout;
        self.jobs
            .spawn_blocking(move || Done::Look(questions.ranges(&partitions, deadline)));
    }

    pub(super) fn looked(&mut self, found: Result<Ranges, Fault>) {
        self.looks.under_way = false;
        let ranges = match found {
            Ok(ranges) => {
                self.looks.failures = 0;
                self.looks.trouble = None;
                ranges
            }
            Err(fault) => {
                self.looks.failures += 1;
                if self.looks.failures == FAILURES_TO_TELL {
                    warn!(link = %self.context.link.id, cause = %fault, "source does not answer");
                }
                if self.looks.failures >= FAILURES_TO_TELL {
                    self.looks.trouble = Some(fault.cause);
                }
                Ranges::new()
            }
        };
        let lanes: Vec<LaneNumber> = self.entries.keys().copied().collect();
        for lane in lanes {
            self.look_at(lane, &ranges);
        }
    }

    fn look_at(&mut self, lane: LaneNumber, ranges: &Ranges) {
        let now = Instant::now();
        let Some(entry) = self.entries.get_mut(&lane) else {
            return;
        };
        let id = &entry.lane.spec.id;
        let range = ranges.get(&(id.topic.clone(), id.partition.0));
        let numbers = entry.lane.numbers();
        let log = range.and_then(|range| range.as_ref().ok()).copied();
        entry
            .lane
            .board
            .measured(log, &numbers.shown(), self.shared.clock.now());
        match range {
            // Nobody answered for it: nothing is known.
            None => {}
            Some(Err(fault)) => {
                entry.look.unmeasured += 1;
                if entry.look.unmeasured >= FAILURES_TO_TELL && entry.is_reading() {
                    let fault = fault.clone();
                    self.fault(lane, fault);
                }
            }
            Some(Ok(log)) => {
                entry.look.unmeasured = 0;
                let (Some(position), true) = (numbers.position, entry.is_reading()) else {
                    return;
                };
                let look = entry.look.see(&numbers, position, *log, now);
                let verdict = judge(look, self.context.link.on_gap, self.config.stall_after);
                self.act(lane, look, verdict);
                self.note_progress(lane, &numbers, *log);
            }
        }
    }

    fn act(&mut self, lane: LaneNumber, look: Look, verdict: Verdict) {
        let Some(entry) = self.entries.get_mut(&lane) else {
            return;
        };
        entry.look.past_end = if look.asked_at > look.log_end {
            look.past_end_before + 1
        } else {
            0
        };
        match verdict {
            Verdict::Fine => {}
            Verdict::PastEnd => self.looks.soon(),
            Verdict::Fault(fault) => self.fault(lane, fault),
            Verdict::Damaged => {
                let fault = damaged(&entry.lane.spec.id, look.position);
                self.fault(lane, fault);
            }
            Verdict::Skip => {
                let gap_records = entry.lane.skip_gap(look.log_start);
                warn!(
                    task = %entry.lane.spec.id,
                    from = %look.position,
                    to = %look.log_start,
                    gap_records,
                    "source offsets were deleted before they were copied"
                );
                self.reopen(lane);
            }
            Verdict::Poke => {
                info!(task = %entry.lane.spec.id, position = %look.position, "reader stands still; reopened");
                entry.look.pokes += 1;
                self.shared.metrics.pokes.increment(1);
                self.reopen(lane);
            }
            Verdict::Rebuild => self.stalled(lane, look),
        }
    }

    /// Reopening did not help.
    fn stalled(&mut self, lane: LaneNumber, look: Look) {
        let error = self
            .clients
            .as_ref()
            .and_then(|clients| clients.reader.news().take_last_error());
        let cause = match &error {
            Some(error) => format!("; the client's last error: {error}"),
            None => String::new(),
        };
        // With an error of its own the partition is at fault, not the reader.
        if error.is_none() && self.rebuild_reader("a partition stands still") {
            return;
        }
        let Some(entry) = self.entries.get(&lane) else {
            return;
        };
        let id = &entry.lane.spec.id;
        let fault = Fault::new(
            Kind::Stalled,
            format!(
                "source topic {} partition {} is not read on from offset {} of {}{cause}",
                id.topic, id.partition, look.position, look.log_end
            ),
        );
        self.fault(lane, fault);
    }

    /// A task that gets on forgets its earlier faults.
    fn note_progress(
        &mut self,
        lane: LaneNumber,
        numbers: &Numbers,
        (_, log_end): (Offset, Offset),
    ) {
        let Some(entry) = self.entries.get_mut(&lane) else {
            return;
        };
        let has_moved =
            entry.look.still.is_none() || numbers.checkpoint.is_some_and(|at| at >= log_end);
        if !entry.is_reading() || !has_moved {
            return;
        }
        if numbers.checkpoint.is_some_and(|at| at >= log_end) {
            self.proven(lane);
        }
        self.step(lane, Input::Progress);
        if let Some(entry) = self.entries.get_mut(&lane)
            && matches!(
                entry.machine.state(),
                TaskState::Running { attempts: 0, .. }
            )
        {
            entry.complained_about = None;
        }
    }

    /// Shows trouble that stops no task by itself: the clients go on trying.
    pub(super) fn show_troubles(&mut self) {
        let now = Instant::now();
        if now.saturating_duration_since(self.looks.shown_at) < TROUBLE_INTERVAL {
            return;
        }
        self.looks.shown_at = now;
        let sink_trouble = self.sink.trouble();
        let no_way = self.sink_fault.as_ref().filter(|_| !self.sink.is_ready());
        let no_way = no_way.map(|fault| fault.cause.clone());
        let wall_now = self.shared.clock.now();
        for entry in self.entries.values() {
            let numbers = entry.lane.numbers();
            let unanswered = numbers.unanswered_for >= self.config.trouble_after;
            let trouble = if unanswered {
                Some(sink_trouble.clone().unwrap_or_else(|| {
                    format!(
                        "cluster {} does not acknowledge what was sent to topic {} partition {}",
                        self.context.target.id,
                        entry.lane.spec.target_topic,
                        entry.lane.spec.id.partition
                    )
                }))
            } else {
                no_way
                    .clone()
                    .or_else(|| self.looks.trouble.clone())
                    .or_else(|| self.saves.trouble())
            };
            // Old ones that still work are no trouble; once they do not, this is why.
            let trouble = trouble.map(|cause| match self.renewals.trouble() {
                Some(fault) => format!("{cause}; renewed certificates or passwords: {fault}"),
                None => cause,
            });
            entry.lane.board.trouble(trouble.as_deref(), wall_now);
        }
    }
}
