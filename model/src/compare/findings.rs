//! Single differences, for people to look at; neighbours of one kind are one finding.

use super::{Entry, Parts};
use crate::ids::Offset;

/// What a difference is; see the definitions of [`compare`](super).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// On the source alone.
    Missing,
    /// On the target alone.
    Extra,
    /// On the target once more than on the source.
    Doubled,
    /// In the same place with other content.
    Altered,
    /// The same, in another place.
    Reordered,
}

impl Kind {
    /// The word for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Extra => "extra",
            Self::Doubled => "doubled",
            Self::Altered => "altered",
            Self::Reordered => "reordered",
        }
    }
}

/// A difference, or several of one kind in a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What it is.
    pub kind: Kind,
    /// Offset of the first source record concerned; None where only the target has them.
    pub source: Option<Offset>,
    /// Offset of the first target record concerned; None where only the source has them.
    pub target: Option<Offset>,
    /// How many records in a row, at least 1.
    pub records: u64,
    /// What differs, of altered records.
    pub parts: Parts,
}

/// The first findings.
#[derive(Debug)]
pub(super) struct Findings {
    kept: Vec<Finding>,
    left_out: u64,
    limit: usize,
    /// The last record told of, where the next one may be its neighbour.
    last: Option<(Kind, Option<usize>, Option<usize>, Parts)>,
    /// Whether the last record is part of what is kept.
    last_is_kept: bool,
}

impl Findings {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            kept: Vec::new(),
            left_out: 0,
            limit,
            last: None,
            last_is_kept: false,
        }
    }

    /// The next record is no neighbour of the last one, whatever its index.
    pub(super) fn part(&mut self) {
        self.last = None;
    }

    /// Adds a record. Indexes tell neighbours within a gap.
    pub(super) fn add(
        &mut self,
        kind: Kind,
        source: Option<(usize, &Entry)>,
        target: Option<(usize, &Entry)>,
    ) {
        let parts = match (source, target) {
            (Some((_, source)), Some((_, target))) => source.print.differing(&target.print),
            _ => Parts::default(),
        };
        let (source_index, target_index) = (source.map(|(at, _)| at), target.map(|(at, _)| at));
        let is_neighbour = self.last.is_some_and(|(last, at, to, differing)| {
            last == kind
                && differing == parts
                && at.map(|at| at + 1) == source_index
                && to.map(|to| to + 1) == target_index
        });
        self.last = Some((kind, source_index, target_index, parts));
        if is_neighbour {
            match self.kept.last_mut().filter(|_| self.last_is_kept) {
                Some(finding) => finding.records += 1,
                None => self.left_out += 1,
            }
            return;
        }
        self.last_is_kept = self.kept.len() < self.limit;
        if !self.last_is_kept {
            self.left_out += 1;
            return;
        }
        self.kept.push(Finding {
            kind,
            source: source.map(|(_, entry)| entry.offset),
            target: target.map(|(_, entry)| entry.offset),
            records: 1,
            parts,
        });
    }

    /// What was kept, in order of offsets, and how many records are in no finding.
    pub(super) fn into_parts(mut self) -> (Vec<Finding>, u64) {
        self.kept.sort_by_key(|finding| {
            (
                finding.source.or(finding.target),
                finding.target,
                finding.kind,
            )
        });
        (self.kept, self.left_out)
    }
}
