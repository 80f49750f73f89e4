//! Follows two streams side by side and finds where they part and where they join again.

use std::{collections::VecDeque, mem};

use super::{Entry, Finding, Limits, Settings, Tally, common, judge::Judge};
use crate::ids::Offset;

/// One of the two streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// What was to be copied.
    Source,
    /// What was copied.
    Target,
}

/// Compares two streams as they come; see [`compare`](super).
#[derive(Debug)]
pub struct Aligner {
    limits: Limits,
    source_end: Offset,
    target_end: Offset,
    /// Whose beginning need not be on the other side: of the source, of the target.
    leads_allowed: (bool, bool),
    source: Stream,
    target: Stream,
    judge: Judge,
    /// Records looked ahead where the streams part; the smallest while they do not.
    look_ahead: usize,
}

/// What of a stream is not compared yet.
#[derive(Debug, Default)]
struct Stream {
    entries: VecDeque<Entry>,
    /// There is no more for now.
    is_at_end: bool,
    /// There will be no more.
    is_finished: bool,
}

/// What was done about streams that part.
enum Step {
    /// They were followed up to where they join again, or a part of them was given up.
    Done,
    /// It takes more records.
    Wait,
}

impl Aligner {
    /// Nothing compared yet.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let mut limits = settings.limits;
        limits.look_ahead = limits.look_ahead.min(limits.window);
        Self {
            limits,
            source_end: settings.source_end,
            target_end: settings.target_end,
            leads_allowed: (settings.source_lead_allowed, settings.target_lead_allowed),
            source: Stream::default(),
            target: Stream::default(),
            judge: Judge::new(settings),
            look_ahead: limits.look_ahead,
        }
    }

    /// Adds the next records of a side, and compares what can be compared. The side is not at its end
    /// any more.
    pub fn push(&mut self, side: Side, entries: &[Entry]) {
        let stream = self.stream_mut(side);
        stream.entries.extend(entries);
        stream.is_at_end = false;
        self.advance();
    }

    /// The side has no more records for now.
    pub fn at_end(&mut self, side: Side) {
        self.stream_mut(side).is_at_end = true;
        self.advance();
    }

    /// The side has no more records to be waited for.
    pub fn finish_side(&mut self, side: Side) {
        self.stream_mut(side).is_finished = true;
        self.advance();
    }

    /// Whether more records of a side are of use now. Not reading others bounds the memory: a side is
    /// never asked for more than the look-ahead, and holds at most that and what one push brought.
    #[must_use]
    pub fn wants(&self, side: Side) -> bool {
        let stream = self.stream(side);
        !stream.is_finished && stream.entries.len() <= self.look_ahead
    }

    /// Whether every record below the ends that was pushed is equal to one of the other side, or
    /// judged.
    #[must_use]
    pub fn is_settled(&self, side: Side) -> bool {
        let end = match side {
            Side::Source => self.source_end,
            Side::Target => self.target_end,
        };
        let first = self.stream(side).entries.front();
        first.is_none_or(|first| first.offset >= end)
    }

    /// What was found so far; unmatched records are counted only when there is no doubt left.
    #[must_use]
    pub fn tally(&self) -> &Tally {
        self.judge.tally()
    }

    /// Ends both streams: what was found, the first findings in order of offsets, and how many
    /// differing records are in none of them.
    #[must_use]
    pub fn finish(mut self) -> (Tally, Vec<Finding>, u64) {
        self.finish_side(Side::Source);
        self.finish_side(Side::Target);
        debug_assert!(self.source.entries.is_empty() && self.target.entries.is_empty());
        self.judge.finish()
    }

    fn advance(&mut self) {
        loop {
            self.follow_equal();
            let (source, target) = (&self.source, &self.target);
            if source.entries.is_empty() && source.is_finished {
                for entry in mem::take(&mut self.target.entries) {
                    self.judge.only_target(entry);
                }
                return;
            }
            if target.entries.is_empty() && target.is_finished {
                for entry in mem::take(&mut self.source.entries) {
                    self.judge.only_source(entry);
                }
                return;
            }
            if source.entries.is_empty() || target.entries.is_empty() {
                return;
            }
            if let Step::Wait = self.look_ahead() {
                return;
            }
        }
    }

    /// Takes off what is the same on both sides.
    fn follow_equal(&mut self) {
        let pairs = self.source.entries.iter().zip(&self.target.entries);
        let same = pairs
            .take_while(|(source, target)| source.print == target.print)
            .count();
        for entry in self.source.entries.drain(..same) {
            self.judge.equal(&entry);
        }
        self.target.entries.drain(..same);
        if same > 0 {
            self.look_ahead = self.limits.look_ahead;
        }
    }

    /// The streams part here.
    fn look_ahead(&mut self) -> Step {
        let (source, target) = (&mut self.source, &mut self.target);
        if !source.exceeds(self.look_ahead) || !target.exceeds(self.look_ahead) {
            return Step::Wait;
        }
        let source_ends = source.ends_within(self.look_ahead);
        let target_ends = target.ends_within(self.look_ahead);
        let is_all = source_ends && target_ends;
        let is_finished = source.is_finished && target.is_finished;
        let target_is_behind = target_ends && !target.is_finished;
        let source_ahead = source.ahead(self.look_ahead);
        let target_ahead = target.ahead(self.look_ahead);
        let pairs = common::longest(source_ahead, target_ahead);
        if is_all && is_finished {
            let counts = (source_ahead.len(), target_ahead.len());
            self.commit(&pairs, counts);
            return Step::Done;
        }
        // A run up to the end of a side cannot be longer.
        let is_last = |&(i, j): &(usize, usize)| {
            (source_ends && i + 1 == source_ahead.len())
                || (target_ends && j + 1 == target_ahead.len())
        };
        if let Some(run) = first_run(&pairs, self.limits.resync, is_last) {
            let (i, j) = pairs[run - 1];
            self.commit(&pairs[..run], (i + 1, j + 1));
            self.look_ahead = self.limits.look_ahead;
            return Step::Done;
        }
        if self.look_ahead < self.limits.window && !is_all {
            self.look_ahead = (self.look_ahead * 4).min(self.limits.window);
            return Step::Done;
        }
        // A target that is only behind is no reason to give anything up. A source at its end is: the
        // target does not run ahead of it.
        if target_is_behind || is_all {
            return Step::Wait;
        }
        self.give_up(&pairs);
        Step::Done
    }

    /// Nothing joins the streams within the window: half of it is judged as it is, on the side that is
    /// behind in time, so that the other one can be caught up with. Where the streams begin and there are no
    /// times to tell, the side that may have more than the other is taken for the one behind; where either
    /// may, none of it can be compared.
    fn give_up(&mut self, pairs: &[(usize, usize)]) {
        let half = self.look_ahead.div_ceil(2);
        let source_half = half.min(self.source.entries.len());
        let target_half = half.min(self.target.entries.len());
        let latest = |entries: &VecDeque<Entry>, count: usize| {
            let times = entries.iter().take(count);
            times.map(|entry| entry.print.timestamp).max()
        };
        let source_latest = latest(&self.source.entries, source_half);
        let target_latest = latest(&self.target.entries, target_half);
        let mut times = (self.source.entries.iter().take(source_half))
            .chain(self.target.entries.iter().take(target_half))
            .map(|entry| entry.print.timestamp);
        let first = times.next();
        let have_times = times.any(|time| Some(time) != first);
        let mut counts = (source_half, target_half);
        match source_latest.cmp(&target_latest) {
            std::cmp::Ordering::Less => counts.1 = 0,
            std::cmp::Ordering::Greater => counts.0 = 0,
            std::cmp::Ordering::Equal if have_times || !self.judge.is_at_beginning() => {}
            std::cmp::Ordering::Equal => match self.leads_allowed {
                (true, false) => counts.1 = 0,
                (false, true) => counts.0 = 0,
                (true, true) => self.judge.doubt_lead(),
                (false, false) => {}
            },
        }
        // What is common to both sides stays so.
        let kept = pairs
            .iter()
            .take_while(|&&(i, j)| i < source_half && j < target_half);
        let kept: Vec<_> = kept.copied().collect();
        if let Some(&(i, j)) = kept.last() {
            counts = (counts.0.max(i + 1), counts.1.max(j + 1));
        }
        self.judge.window_exceeded();
        self.commit(&kept, counts);
    }

    /// Hands so many records of each side over, of which those in `pairs` are equal.
    fn commit(&mut self, pairs: &[(usize, usize)], counts: (usize, usize)) {
        let mut source = self.source.entries.drain(..counts.0).enumerate().peekable();
        let mut target = self.target.entries.drain(..counts.1).enumerate().peekable();
        for &(i, j) in pairs {
            while let Some((_, entry)) = source.next_if(|&(at, _)| at < i) {
                self.judge.only_source(entry);
            }
            while let Some((_, entry)) = target.next_if(|&(at, _)| at < j) {
                self.judge.only_target(entry);
            }
            if let (Some((_, entry)), Some(_)) = (source.next(), target.next()) {
                self.judge.equal(&entry);
            }
        }
        for (_, entry) in source {
            self.judge.only_source(entry);
        }
        for (_, entry) in target {
            self.judge.only_target(entry);
        }
    }

    fn stream(&self, side: Side) -> &Stream {
        match side {
            Side::Source => &self.source,
            Side::Target => &self.target,
        }
    }

    fn stream_mut(&mut self, side: Side) -> &mut Stream {
        match side {
            Side::Source => &mut self.source,
            Side::Target => &mut self.target,
        }
    }
}

impl Stream {
    /// Whether more than so many records are there, or all there are for now: so it is known whether
    /// others follow, however the records came in.
    fn exceeds(&self, records: usize) -> bool {
        self.entries.len() > records || self.is_at_end || self.is_finished
    }

    /// Whether there is nothing, for now, after so many records.
    fn ends_within(&self, records: usize) -> bool {
        (self.is_at_end || self.is_finished) && self.entries.len() <= records
    }

    /// At most so many of the next records.
    fn ahead(&mut self, records: usize) -> &[Entry] {
        let entries = self.entries.make_contiguous();
        &entries[..records.min(entries.len())]
    }
}

/// Number of pairs up to the end of the first run of `resync` neighbours, or of a run that ends with
/// the last pair there can be.
fn first_run(
    pairs: &[(usize, usize)],
    resync: usize,
    is_last: impl Fn(&(usize, usize)) -> bool,
) -> Option<usize> {
    let mut run = 0;
    for (index, pair) in pairs.iter().enumerate() {
        let follows = index
            .checked_sub(1)
            .is_some_and(|before| pairs[before].0 + 1 == pair.0 && pairs[before].1 + 1 == pair.1);
        run = if follows { run + 1 } else { 1 };
        if run >= resync || is_last(pair) {
            return Some(index + 1);
        }
    }
    None
}
