//! Whether a manifest adds up.

use std::collections::BTreeSet;

use super::{DataFile, FILES_MAX, Fault, Manifest, Wrong};
use crate::{
    dump::{
        bucket::Bucket,
        ledger::{ENTRIES_MAX, LeftOut},
        names::DataName,
    },
    ids::Offset,
};

pub(super) fn check(manifest: &Manifest) -> Result<(), Fault> {
    accounts(manifest).map_err(Fault::Wrong)
}

fn accounts(manifest: &Manifest) -> Result<(), Wrong> {
    let (from, to) = (manifest.from, manifest.to);
    if from.0 < 0 || to <= from {
        return Err(Wrong::Range(from, to));
    }
    if let Some(previous) = manifest.previous
        && (previous.0 < 0 || previous >= from)
    {
        return Err(Wrong::Previous(previous));
    }
    if manifest.files.len() > FILES_MAX {
        return Err(Wrong::TooMany("files", manifest.files.len()));
    }
    if manifest.left_out.len() > ENTRIES_MAX {
        return Err(Wrong::TooMany("left-out ranges", manifest.left_out.len()));
    }
    // First and last offsets of files: no offset is in two files.
    let mut ends = BTreeSet::new();
    let mut paths = BTreeSet::new();
    for (index, file) in manifest.files.iter().enumerate() {
        let wrong = |what| Wrong::File(index, what);
        of_file(manifest, file).map_err(wrong)?;
        if !paths.insert(&file.path) {
            return Err(wrong("two files have its path"));
        }
        let is_new = ends.insert(file.first) && (file.last == file.first || ends.insert(file.last));
        if !is_new {
            return Err(wrong("one of its offsets is in another file too"));
        }
    }
    of_left_out(manifest, &ends)?;
    let records = manifest.files.iter().map(|file| file.records);
    let counts = manifest.left_out.iter().map(|entry| entry.count);
    let accounted = records.chain(counts).fold(0, u64::saturating_add);
    let offsets = (to.0 - from.0).unsigned_abs();
    if accounted == offsets {
        Ok(())
    } else {
        Err(Wrong::Count { accounted, offsets })
    }
}

fn of_file(manifest: &Manifest, file: &DataFile) -> Result<(), &'static str> {
    if file.first < manifest.from || file.last >= manifest.to || file.last < file.first {
        return Err("its offsets are not within the group");
    }
    let width = (file.last.0 - file.first.0).unsigned_abs() + 1;
    let least = if file.first == file.last { 1 } else { 2 };
    if !(least..=width).contains(&file.records) {
        return Err("its records do not fit its offsets");
    }
    if file.bytes == 0 {
        return Err("it is empty");
    }
    if file.timestamps.0 > file.timestamps.1 {
        return Err("its lowest timestamp is above its highest");
    }
    if let Bucket::Dated { start } = file.bucket
        && (start.0 < 0 || file.timestamps.0 < start)
    {
        return Err("its records are older than its bucket");
    }
    if file.path.is_hidden() {
        return Err("its path is hidden from readers");
    }
    if file.path.name().parse::<DataName>() != Ok(manifest.name_of(file)) {
        return Err("its name does not say topic, partition and offsets");
    }
    Ok(())
}

fn of_left_out(manifest: &Manifest, ends: &BTreeSet<Offset>) -> Result<(), Wrong> {
    let mut solid: Vec<(usize, &LeftOut)> = Vec::new();
    for (index, entry) in manifest.left_out.iter().enumerate() {
        let is_within = manifest.from <= entry.from && entry.to <= manifest.to;
        if !is_within || entry.to <= entry.from {
            return Err(Wrong::LeftOut(index, "it is not within the group"));
        }
        if !(1..=entry.width()).contains(&entry.count) {
            return Err(Wrong::LeftOut(index, "its count does not fit its offsets"));
        }
        if entry.is_solid() {
            if ends.range(entry.from..entry.to).next().is_some() {
                return Err(Wrong::LeftOut(index, "an offset of it is in a file"));
            }
            solid.push((index, entry));
        }
    }
    solid.sort_by_key(|(_, entry)| entry.from);
    for pair in solid.windows(2) {
        if pair[1].1.from < pair[0].1.to {
            return Err(Wrong::LeftOut(pair[1].0, "another range holds part of it"));
        }
    }
    Ok(())
}
