//! The log of a partition as it lies on a broker's disk.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};

use super::KafkaCluster;

impl KafkaCluster {
    /// The segment files of a partition on a broker, in the order of their offsets. What the broker has
    /// appended can be read at once, committed or not; it replaces files while it cleans them.
    ///
    /// # Errors
    /// When the broker has no such partition.
    pub fn segments(&self, index: usize, topic: &str, partition: i32) -> Result<Vec<PathBuf>> {
        let folder = self.brokers[index]
            .data()
            .join(format!("{topic}-{partition}"));
        let mut segments = Vec::new();
        for file in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let path = file?.path();
            if path.extension().is_some_and(|name| name == "log") {
                segments.push(path);
            }
        }
        // Named after their first offsets, with leading zeros.
        segments.sort();
        Ok(segments)
    }
}

/// Turns over all bits of one byte of a file, as a damaged disk may.
///
/// # Errors
/// When the file has no such byte or cannot be written.
pub fn flip_byte(file: &Path, position: u64) -> io::Result<()> {
    let file = File::options().read(true).write(true).open(file)?;
    let mut byte = [0];
    file.read_exact_at(&mut byte, position)?;
    byte[0] = !byte[0];
    file.write_all_at(&byte, position)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_byte_is_turned_over_and_no_other() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("00000000000000000000.log");
        fs::write(&file, [1, 2, 3]).expect("written");
        flip_byte(&file, 1).expect("flipped");
        assert_eq!(fs::read(&file).expect("read"), [1, !2, 3]);
        assert!(flip_byte(&file, 3).is_err(), "there is no such byte");
    }
}
