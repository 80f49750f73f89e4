//! A longest common subsequence of two stretches of records.
//!
//! # Source
//! Hunt and Szymanski, "A fast algorithm for computing longest common subsequences", 1977: the pairs of
//! equal records, taken in order of one side and backwards on the other, reduce it to a longest rising
//! subsequence. With `r` pairs it takes `O((n + r) log n)`, and records seldom repeat, so `r` is about `n`.

use std::collections::BTreeMap;

use super::{Entry, Fingerprint};

/// Records like one record that are looked at on the other side. More make the result still a common
/// subsequence, perhaps not a longest one; without a limit, records that are all alike would take
/// quadratic memory.
pub const REPEATS_MAX: usize = 16;

/// One step of a chain of pairs.
struct Link {
    pair: (usize, usize),
    /// Index of the step before.
    before: Option<usize>,
}

/// Indexes of records that are equal and in the same order, rising on both sides.
pub(super) fn longest(source: &[Entry], target: &[Entry]) -> Vec<(usize, usize)> {
    let mut places: BTreeMap<Fingerprint, Vec<usize>> = BTreeMap::new();
    for (index, entry) in target.iter().enumerate() {
        places.entry(entry.print).or_default().push(index);
    }
    let mut links: Vec<Link> = Vec::new();
    // For each length the chain that ends soonest: its end in the target, and its last link. Ends rise.
    let mut ends: Vec<(usize, usize)> = Vec::new();
    for (index, entry) in source.iter().enumerate() {
        let Some(places) = places.get(&entry.print) else {
            continue;
        };
        // Backwards, so that one source record is not chained to itself.
        for &place in near(places, index).iter().rev() {
            let length = ends.partition_point(|&(end, _)| end < place);
            if ends.get(length).is_some_and(|&(end, _)| end == place) {
                continue;
            }
            let before = length.checked_sub(1).map(|shorter| ends[shorter].1);
            let link = links.len();
            links.push(Link {
                pair: (index, place),
                before,
            });
            if length == ends.len() {
                ends.push((place, link));
            } else {
                ends[length] = (place, link);
            }
        }
    }
    let mut pairs = Vec::with_capacity(ends.len());
    let mut next = ends.last().map(|&(_, link)| link);
    while let Some(link) = next {
        pairs.push(links[link].pair);
        next = links[link].before;
    }
    pairs.reverse();
    pairs
}

/// At most [`REPEATS_MAX`] of the places, around `index`.
fn near(places: &[usize], index: usize) -> &[usize] {
    if places.len() <= REPEATS_MAX {
        return places;
    }
    let middle = places.partition_point(|&place| place < index);
    let start = middle
        .saturating_sub(REPEATS_MAX / 2)
        .min(places.len() - REPEATS_MAX);
    &places[start..start + REPEATS_MAX]
}
