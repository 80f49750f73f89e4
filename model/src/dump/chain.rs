//! Manifests joined: gaps, overlaps, complete up to where.
//!
//! The manifests of a partition form a chain: each begins where the one before ends. Committing keeps it so; this
//! looks at what is really there, for people and for checks, and takes nothing for granted.

use std::ops::Range;

use super::{
    digest::Digest,
    ledger::Reason,
    manifest::{Begin, Manifest},
};
use crate::ids::Offset;

/// What the manifests of one partition come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Joined {
    /// Where the dump begins.
    pub from: Offset,
    /// End of the unbroken chain from there on, exclusive: everything below is accounted for.
    pub complete_to: Offset,
    /// End of all manifests, exclusive; above `complete_to` only where something is wrong.
    pub end: Offset,
    /// Records in files.
    pub records: u64,
    /// Number of files.
    pub files: u64,
    /// Bytes of files.
    pub bytes: u64,
    /// Of all records in files.
    pub digest: Digest,
    /// Offsets in no file, by reason; reasons that do not occur are not there.
    pub left_out: Vec<(Reason, u64)>,
    /// What breaks the chain, in the order of offsets.
    pub breaks: Vec<Break>,
}

/// Where a chain is broken. Ranges are half-open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Break {
    /// No manifest accounts for these offsets.
    Gap(Range<Offset>),
    /// More than one manifest accounts for these offsets.
    Overlap(Range<Offset>),
    /// The manifest at this offset names another group as the one before it.
    OtherPrevious(Offset),
    /// The manifest at this offset is of another dump, in this way.
    Foreign(Offset, &'static str),
}

/// Joins manifests, in any order.
#[must_use]
pub fn join<'a>(begin: &Begin, manifests: impl IntoIterator<Item = &'a Manifest>) -> Joined {
    let mut manifests: Vec<&Manifest> = manifests.into_iter().collect();
    manifests.sort_by_key(|manifest| (manifest.from, manifest.to));
    let mut joined = Joined {
        from: begin.at,
        complete_to: begin.at,
        end: begin.at,
        records: 0,
        files: 0,
        bytes: 0,
        digest: Digest::default(),
        left_out: Vec::new(),
        breaks: Vec::new(),
    };
    let mut counts = [0_u64; Reason::ALL.len()];
    let mut previous = None;
    let mut is_whole = true;
    for manifest in manifests {
        if let Some(difference) = begin.source.difference(&manifest.source) {
            let foreign = Break::Foreign(manifest.from, difference);
            joined.breaks.push(foreign);
            continue;
        }
        if joined.end < manifest.from {
            joined.breaks.push(Break::Gap(joined.end..manifest.from));
            is_whole = false;
        } else if manifest.from < joined.end {
            let overlap = manifest.from..joined.end.min(manifest.to);
            joined.breaks.push(Break::Overlap(overlap));
            is_whole = false;
        } else if manifest.previous != previous {
            joined.breaks.push(Break::OtherPrevious(manifest.from));
        }
        previous = Some(manifest.from);
        joined.end = joined.end.max(manifest.to);
        if is_whole {
            joined.complete_to = joined.end;
        }
        joined.records = joined.records.saturating_add(manifest.records());
        joined.bytes = joined.bytes.saturating_add(manifest.bytes());
        joined.files += manifest.files.len() as u64;
        joined.digest = joined.digest.and(manifest.digest());
        for entry in &manifest.left_out {
            let at = Reason::ALL.iter().position(|reason| *reason == entry.why);
            let count = &mut counts[at.expect("all reasons are listed")];
            *count = count.saturating_add(entry.count);
        }
    }
    let counted = Reason::ALL.into_iter().zip(counts);
    joined.left_out = counted.filter(|(_, count)| *count > 0).collect();
    joined
}

#[cfg(test)]
mod tests {
    use super::{
        super::{ledger::LeftOut, manifest::Source, names::AttemptName},
        *,
    };
    use crate::ids::{ClusterId, LinkId, Partition, TopicName, UnixMillis};

    fn begin() -> Begin {
        Begin {
            source: Source {
                link: LinkId::new("lake").expect("legal"),
                cluster: ClusterId::new("dc1").expect("legal"),
                topic: TopicName::new("orders").expect("legal"),
                topic_id: None,
                partition: Partition(0),
            },
            attempt: AttemptName::parse("w+1+1+1").expect("legal"),
            at: Offset(10),
            written_at: UnixMillis(0),
        }
    }

    /// A group in which everything was left out.
    fn group(previous: i64, from: i64, to: i64) -> Manifest {
        let (from, to) = (Offset(from), Offset(to));
        let manifest = Manifest {
            source: begin().source,
            attempt: begin().attempt,
            from,
            to,
            previous: (previous >= 0).then_some(Offset(previous)),
            watermark: None,
            written_at: UnixMillis(0),
            files: Vec::new(),
            left_out: vec![LeftOut::control(from, to)],
        };
        manifest.check().expect("it adds up");
        manifest
    }

    #[test]
    fn c082_ranges_of_successive_groups_join_without_gap_or_overlap() {
        let groups = [group(20, 25, 40), group(-1, 10, 20), group(10, 20, 25)];
        let joined = join(&begin(), &groups);
        assert_eq!(joined.breaks, []);
        assert_eq!((joined.complete_to, joined.end), (Offset(40), Offset(40)));
        assert_eq!(joined.left_out, [(Reason::Control, 30)]);
    }

    #[test]
    fn nothing_yet_is_complete_up_to_its_beginning() {
        let joined = join(&begin(), []);
        assert_eq!((joined.complete_to, joined.end), (Offset(10), Offset(10)));
    }

    #[test]
    fn every_kind_of_break_is_found() {
        let mut other = group(20, 30, 40);
        other.source.cluster = ClusterId::new("dc2").expect("legal");
        let groups = [
            group(-1, 12, 20),
            group(12, 15, 18),
            group(3, 20, 30),
            other,
        ];
        let joined = join(&begin(), &groups);
        let expected = [
            Break::Gap(Offset(10)..Offset(12)),
            Break::Overlap(Offset(15)..Offset(18)),
            Break::OtherPrevious(Offset(20)),
            Break::Foreign(Offset(30), "another source cluster"),
        ];
        assert_eq!(joined.breaks, expected);
        assert_eq!((joined.complete_to, joined.end), (Offset(10), Offset(30)));
    }
}
