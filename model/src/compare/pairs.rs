//! Which of the unmatched records of a gap are one record, altered.
//!
//! As many as possible are paired, in order; of all ways to do so one with the most parts in common is
//! taken, so that a lost record beside an altered one does not shift the blame.

use super::Entry;

/// Most cells of the table; larger gaps are paired from their beginning. Two altered stretches that
/// long with a lost record among them are told less well, and counted all the same.
const CELLS_MAX: usize = 1 << 14;
/// Parts of a record.
const PARTS: usize = 4;

/// Indexes of records to be paired: as many as the shorter side has, rising on both sides.
pub(super) fn pairs(source: &[Entry], target: &[Entry]) -> Vec<(usize, usize)> {
    let count = source.len().min(target.len());
    let cells = (source.len() + 1).saturating_mul(target.len() + 1);
    if count == 0 || source.len() == target.len() || cells > CELLS_MAX {
        return (0..count).map(|index| (index, index)).collect();
    }
    best(source, target)
}

/// `best[i][j]`: the highest score of pairing all of the shorter of `source[i..]` and `target[j..]`.
fn best(source: &[Entry], target: &[Entry]) -> Vec<(usize, usize)> {
    let (rows, columns) = (source.len(), target.len());
    // A pair always counts more than what it has in common could.
    let worth = PARTS * (rows.min(columns) + 1);
    let score =
        |i: usize, j: usize| worth + PARTS - source[i].print.differing(&target[j].print).count();
    let mut best = vec![vec![0_usize; columns + 1]; rows + 1];
    for i in (0..rows).rev() {
        for j in (0..columns).rev() {
            best[i][j] = (score(i, j) + best[i + 1][j + 1])
                .max(best[i + 1][j])
                .max(best[i][j + 1]);
        }
    }
    let (mut i, mut j) = (0, 0);
    let mut pairs = Vec::with_capacity(rows.min(columns));
    while i < rows && j < columns {
        if best[i][j] == score(i, j) + best[i + 1][j + 1] {
            pairs.push((i, j));
            (i, j) = (i + 1, j + 1);
        } else if best[i][j] == best[i + 1][j] {
            i += 1;
        } else {
            j += 1;
        }
    }
    pairs
}
