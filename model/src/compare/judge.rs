//! What unmatched records are: moved, altered, lost or too many.
//!
//! Records between two equal neighbours are a gap. Gaps stay pending, so that a record that turns up
//! elsewhere is found to be moved; the oldest are settled when there are too many, and all in the end.

use std::{
    collections::{BTreeMap, VecDeque},
    mem,
};

use super::{
    Entry, Finding, Fingerprint, Kind, Settings, Tally, findings::Findings, history::History,
    pairs::pairs,
};

/// Judges records in the order of the streams.
#[derive(Debug)]
pub(super) struct Judge {
    settings: Settings,
    tally: Tally,
    findings: Findings,
    history: History,
    /// The gap after the last equal record.
    open: Gap,
    /// Closed gaps, oldest first, that may still find partners for their records.
    pending: VecDeque<Gap>,
    /// Number of the first of `pending`; numbers rise by one.
    pending_first: u64,
    pending_records: usize,
    /// Pending source records that no target record equals.
    sources: Places,
    /// Pending target records that no source record equals.
    targets: Places,
    /// Equal records so far, those beyond the end included.
    matches: u64,
    /// Nobody can tell which side has more than the other before the first match.
    is_lead_doubtful: bool,
    /// A source record beyond the end was seen.
    is_past_end: bool,
    /// Missing records that were settled last, and the number of matches before them.
    last_missing: (u64, u64),
}

/// Unmatched records between two equal ones, or a part of them.
#[derive(Debug, Default)]
struct Gap {
    source: Vec<Unmatched>,
    target: Vec<Unmatched>,
    /// Equal records before it.
    matches: u64,
    /// No source record below the end follows.
    is_past_end: bool,
}

#[derive(Debug)]
struct Unmatched {
    entry: Entry,
    /// Found to be moved.
    is_taken: bool,
    /// Like a source record that arrived.
    is_known: bool,
}

/// Where pending records with a fingerprint are, oldest first.
type Places = BTreeMap<Fingerprint, VecDeque<Place>>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    gap: u64,
    index: usize,
}

impl Judge {
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            tally: Tally::default(),
            findings: Findings::new(settings.limits.findings),
            history: History::new(settings.limits.window),
            open: Gap::default(),
            pending: VecDeque::new(),
            pending_first: 0,
            pending_records: 0,
            sources: Places::new(),
            targets: Places::new(),
            matches: 0,
            is_lead_doubtful: false,
            is_past_end: false,
            last_missing: (0, 0),
            settings,
        }
    }

    pub(super) fn tally(&self) -> &Tally {
        &self.tally
    }

    /// The next record of both sides is the same.
    pub(super) fn equal(&mut self, source: &Entry) {
        self.history.add(source.print);
        let is_beyond = source.offset >= self.settings.source_end;
        self.is_past_end |= is_beyond;
        if !self.open.is_empty() {
            self.close(is_beyond);
        }
        self.matches += 1;
        if !is_beyond {
            self.tally.equal += 1;
        }
    }

    /// The next record of the source has no equal in its place.
    pub(super) fn only_source(&mut self, entry: Entry) {
        if entry.offset >= self.settings.source_end {
            self.is_past_end = true;
            return;
        }
        self.open.source.push(Unmatched::new(entry));
        self.split();
    }

    /// The next record of the target has no equal in its place.
    pub(super) fn only_target(&mut self, entry: Entry) {
        self.open.target.push(Unmatched::new(entry));
        self.split();
    }

    /// Records were given up that might have been matched further on.
    pub(super) fn window_exceeded(&mut self) {
        // Looking for the beginning, in streams that need not begin alike, takes as long as it takes.
        let is_lead = self.settings.source_lead_allowed || self.settings.target_lead_allowed;
        self.tally.window_exceeded |= self.matches > 0 || !is_lead;
    }

    /// Whether nothing was found equal yet.
    pub(super) fn is_at_beginning(&self) -> bool {
        self.matches == 0
    }

    /// Either side may lead and nothing tells which one does: nothing before the first match can be
    /// compared.
    pub(super) fn doubt_lead(&mut self) {
        self.is_lead_doubtful = true;
        self.tally.window_exceeded = true;
    }

    /// Nothing follows.
    pub(super) fn finish(mut self) -> (Tally, Vec<Finding>, u64) {
        self.close(true);
        while !self.pending.is_empty() {
            self.settle_oldest();
        }
        let (missing, matches) = self.last_missing;
        if matches == self.matches {
            self.tally.missing_at_end = missing;
        }
        let (findings, left_out) = self.findings.into_parts();
        (self.tally, findings, left_out)
    }

    /// A gap larger than the window is judged in parts.
    fn split(&mut self) {
        if self.open.len() >= self.settings.limits.window {
            self.close(self.is_past_end);
        }
    }

    fn close(&mut self, is_past_end: bool) {
        let mut gap = mem::take(&mut self.open);
        gap.is_past_end = is_past_end;
        gap.matches = self.matches;
        if self.matches == 0 {
            self.cut_lead(&mut gap);
        }
        if gap.is_empty() {
            return;
        }
        self.pending_records += gap.len();
        let number = self.pending_first + self.pending.len() as u64;
        self.pending.push_back(gap);
        self.take_moved(number);
        while self.pending_records > self.settings.limits.window {
            self.tally.window_exceeded = true;
            self.settle_oldest();
        }
    }

    /// Before the first match, what one side has more than the other may be allowed.
    fn cut_lead(&mut self, gap: &mut Gap) {
        let common = match self.is_lead_doubtful {
            true => 0,
            false => gap.source.len().min(gap.target.len()),
        };
        if self.settings.source_lead_allowed {
            let lead = gap.source.len() - common;
            gap.source.drain(..lead);
            self.tally.lead_of_source += lead as u64;
        }
        if self.settings.target_lead_allowed {
            let lead = gap.target.len() - common;
            gap.target.drain(..lead);
            self.tally.lead_of_target += lead as u64;
        }
    }

    /// Finds records of the newest gap that are pending on the other side.
    fn take_moved(&mut self, number: u64) {
        let newest = self.pending.len() - 1;
        for index in 0..self.pending[newest].source.len() {
            let print = self.pending[newest].source[index].entry.print;
            let here = Place { gap: number, index };
            match pop(&mut self.targets, &print) {
                Some(there) => self.moved(here, there),
                None => self.sources.entry(print).or_default().push_back(here),
            }
        }
        for index in 0..self.pending[newest].target.len() {
            let print = self.pending[newest].target[index].entry.print;
            let here = Place { gap: number, index };
            match pop(&mut self.sources, &print) {
                Some(there) => self.moved(there, here),
                None => {
                    self.targets.entry(print).or_default().push_back(here);
                    self.pending[newest].target[index].is_known = self.history.holds(&print);
                }
            }
        }
    }

    fn moved(&mut self, source: Place, target: Place) {
        let source_gap = (source.gap - self.pending_first) as usize;
        let target_gap = (target.gap - self.pending_first) as usize;
        let from = &mut self.pending[source_gap].source[source.index];
        from.is_taken = true;
        let from = from.entry;
        let to = &mut self.pending[target_gap].target[target.index];
        to.is_taken = true;
        let to = to.entry;
        self.history.add(from.print);
        self.tally.reordered += 1;
        self.findings.add(
            Kind::Reordered,
            Some((source.index, &from)),
            Some((target.index, &to)),
        );
    }

    fn settle_oldest(&mut self) {
        let Some(gap) = self.pending.pop_front() else {
            return;
        };
        let number = self.pending_first;
        self.pending_first += 1;
        self.pending_records -= gap.len();
        let source = rest(&gap.source);
        let target = rest(&gap.target);
        for (index, entry) in &source {
            let index = *index;
            remove(
                &mut self.sources,
                &entry.print,
                Place { gap: number, index },
            );
        }
        for (index, entry) in &target {
            let index = *index;
            remove(
                &mut self.targets,
                &entry.print,
                Place { gap: number, index },
            );
        }
        self.findings.part();
        let (source, target) = self.settle_altered(source, target);
        self.settle_source(&source, gap.matches);
        self.findings.part();
        self.settle_target(&target, &gap);
        self.findings.part();
    }

    /// Counts altered records and gives what is left.
    fn settle_altered(&mut self, source: Rest, target: Rest) -> (Rest, Rest) {
        let only = |rest: &Rest| rest.iter().map(|(_, entry)| *entry).collect::<Vec<_>>();
        let mut pairs = pairs(&only(&source), &only(&target));
        if self.settings.source_compacted || self.settings.target_compacted {
            // Neighbours that survived compaction need have nothing to do with each other.
            pairs.retain(|&(i, j)| source[i].1.print.key == target[j].1.print.key);
        }
        let mut is_paired = (vec![false; source.len()], vec![false; target.len()]);
        for (i, j) in pairs {
            is_paired.0[i] = true;
            is_paired.1[j] = true;
            self.tally.altered += 1;
            let ((from_index, from), (to_index, to)) = (&source[i], &target[j]);
            self.findings.add(
                Kind::Altered,
                Some((*from_index, from)),
                Some((*to_index, to)),
            );
        }
        let left = |rest: Rest, is_paired: Vec<bool>| {
            let unpaired = rest.into_iter().zip(is_paired);
            unpaired
                .filter(|(_, is_paired)| !is_paired)
                .map(|(record, _)| record)
                .collect()
        };
        (left(source, is_paired.0), left(target, is_paired.1))
    }

    fn settle_source(&mut self, source: &Rest, matches: u64) {
        for (index, entry) in source {
            if self.settings.target_compacted && entry.print.has_key() {
                self.tally.compacted_on_target += 1;
                continue;
            }
            self.tally.missing += 1;
            if self.last_missing.1 != matches {
                self.last_missing = (0, matches);
            }
            self.last_missing.0 += 1;
            self.findings
                .add(Kind::Missing, Some((*index, entry)), None);
        }
    }

    fn settle_target(&mut self, target: &Rest, gap: &Gap) {
        for (index, entry) in target {
            if gap.is_past_end && entry.offset >= self.settings.target_end {
                continue;
            }
            let kind = if gap.target[*index].is_known || self.history.holds(&entry.print) {
                self.tally.doubled += 1;
                Kind::Doubled
            } else if self.settings.source_compacted && entry.print.has_key() {
                self.tally.compacted_on_source += 1;
                continue;
            } else {
                self.tally.extra += 1;
                Kind::Extra
            };
            self.findings.add(kind, None, Some((*index, entry)));
        }
    }
}

impl Gap {
    fn len(&self) -> usize {
        self.source.len() + self.target.len()
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Unmatched {
    fn new(entry: Entry) -> Self {
        Self {
            entry,
            is_taken: false,
            is_known: false,
        }
    }
}

/// Records that were not found elsewhere, with their index in the gap.
type Rest = Vec<(usize, Entry)>;

fn rest(records: &[Unmatched]) -> Rest {
    let records = records.iter().enumerate();
    records
        .filter(|(_, record)| !record.is_taken)
        .map(|(index, record)| (index, record.entry))
        .collect()
}

fn pop(places: &mut Places, print: &Fingerprint) -> Option<Place> {
    let found = places.get_mut(print)?;
    let place = found.pop_front();
    if found.is_empty() {
        places.remove(print);
    }
    place
}

fn remove(places: &mut Places, print: &Fingerprint, place: Place) {
    if let Some(found) = places.get_mut(print) {
        // The oldest gap's places come first.
        if let Some(at) = found.iter().position(|other| *other == place) {
            found.remove(at);
        }
        if found.is_empty() {
            places.remove(print);
        }
    }
}
