//! What lies in a folder, in the order of names.

use std::{collections::BinaryHeap, path::Path, time::SystemTime};

use kreplicator_model::dump::path::StorePath;
use rustix::fs::FileType;

use super::{
    super::Entry,
    fault::Fault,
    folder::{Folder, Found},
};

/// At most `limit` entries after the name `after`. Keeps no more names than that at a time, however many there are.
pub(super) fn list(
    root: &Path,
    path: Option<&StorePath>,
    mut after: Option<String>,
    limit: usize,
) -> Result<Vec<Entry>, Fault> {
    let Some(folder) = Folder::find(root, path)? else {
        return Ok(Vec::new());
    };
    let now = SystemTime::now();
    let mut entries = Vec::new();
    while entries.len() < limit {
        let wanted = limit - entries.len();
        let names = first_names(&folder, path, after.as_deref(), wanted)?;
        for name in &names {
            let (length, changed) = match folder.look(name)? {
                Some(Found::File { length, changed }) => (Some(length), changed),
                Some(Found::Folder { changed }) => (None, changed),
                // Deleted since, or nothing of ours.
                Some(Found::Other) | None => continue,
            };
            entries.push(Entry {
                path: below(path, name).expect("it was one a moment ago"),
                length,
                age: now.duration_since(changed).unwrap_or_default(),
            });
        }
        match names.into_iter().next_back() {
            Some(last) => after = Some(last),
            None => break,
        }
    }
    Ok(entries)
}

/// The first names after `after` that can be part of a path, in order.
fn first_names(
    folder: &Folder,
    path: Option<&StorePath>,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<String>, Fault> {
    let mut names = BinaryHeap::new();
    folder.each(|name, kind| {
        let is_ours = matches!(
            kind,
            FileType::RegularFile | FileType::Directory | FileType::Unknown
        );
        let Some(name) = name.to_str().ok().filter(|_| is_ours) else {
            return Ok(());
        };
        let is_first = names.len() < limit
            || names
                .peek()
                .is_some_and(|last: &String| name < last.as_str());
        if after.is_none_or(|after| name > after) && is_first && below(path, name).is_some() {
            names.push(name.to_owned());
            if names.len() > limit {
                names.pop();
            }
        }
        Ok(())
    })?;
    Ok(names.into_sorted_vec())
}

fn below(folder: Option<&StorePath>, name: &str) -> Option<StorePath> {
    match folder {
        Some(folder) => folder.join(name),
        None => StorePath::new(name),
    }
    .ok()
}
