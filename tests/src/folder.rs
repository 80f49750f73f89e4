//! The folder of one test run: data and logs, kept when a test failed.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, SystemTime},
};

use anyhow::{Context as _, Result};
use rand::Rng as _;

use crate::settings;

/// Present in a folder whose test failed.
const FAILED: &str = "FAILED";
/// How long the folder of a failed test is kept.
const KEEP_TIME: Duration = Duration::from_hours(24);

/// A folder that is deleted when dropped, unless the test failed or it is to be kept.
///
/// Folders that nobody dropped (statics live until the process ends) are deleted by a later run.
#[derive(Debug)]
pub struct RunDir {
    path: PathBuf,
    keep: AtomicBool,
}

impl RunDir {
    /// Makes a folder for `name`.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn new(name: &str) -> Result<Self> {
        let parent = settings::keep().unwrap_or_else(|| settings::deps_dir().join("runs"));
        fs::create_dir_all(&parent)?;
        sweep(&parent);
        let id = std::process::id();
        let started = process_start(id).unwrap_or(0);
        let draw: u32 = rand::rng().random();
        let path = parent.join(format!("{name}.{id}.{started}.{draw:08x}"));
        fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Self {
            path,
            keep: AtomicBool::new(settings::keep().is_some()),
        })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Marks the run as failed, so that its folder is kept for a day, and tells where.
    pub fn failed(&self) {
        if !self.keep.swap(true, Ordering::Relaxed) {
            drop(fs::write(self.path.join(FAILED), ""));
            eprintln!("logs and data are kept in {}", self.path.display());
        }
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.failed();
        }
        if !self.keep.load(Ordering::Relaxed)
            && let Err(fault) = fs::remove_dir_all(&self.path)
            && fault.kind() != io::ErrorKind::NotFound
        {
            eprintln!("cannot delete {}: {fault}", self.path.display());
        }
    }
}

/// Deletes folders of processes that are gone, those of failed tests after a day.
fn sweep(parent: &Path) {
    let Ok(folders) = fs::read_dir(parent) else {
        return;
    };
    for folder in folders.flatten() {
        let name = folder.file_name().to_string_lossy().into_owned();
        if owner(&name).is_some_and(|(id, started)| process_start(id) != Some(started))
            && !is_fresh_failure(&folder.path())
        {
            // Another test process may be sweeping too.
            drop(fs::remove_dir_all(folder.path()));
        }
    }
}

/// Process id and start of the run that owns a folder of this name.
fn owner(name: &str) -> Option<(u32, u64)> {
    let mut parts = name.rsplit('.').skip(1);
    let started = parts.next()?.parse().ok()?;
    let id = parts.next()?.parse().ok()?;
    Some((id, started))
}

fn is_fresh_failure(folder: &Path) -> bool {
    fs::metadata(folder.join(FAILED))
        .and_then(|mark| mark.modified())
        .is_ok_and(|failed| {
            SystemTime::now()
                .duration_since(failed)
                .is_ok_and(|age| age < KEEP_TIME)
        })
}

/// When a process started, in the kernel's ticks; tells processes of the same id apart.
fn process_start(id: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    let (_, after_name) = stat.rsplit_once(") ")?;
    after_name.split(' ').nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_dead_runs_go_and_fresh_failures_stay() {
        let parent = tempfile::tempdir().expect("a folder");
        let own = std::process::id();
        let started = process_start(own).expect("this process has started");
        let make = |name: &str| {
            let path = parent.path().join(name);
            fs::create_dir(&path).expect("made");
            path
        };
        let running = make(&format!("a.b.{own}.{started}.00000001"));
        let reused_id = make(&format!("a.{own}.{}.00000002", started + 1));
        let failed = make(&format!("a.{own}.{}.00000003", started + 1));
        fs::write(failed.join(FAILED), "").expect("marked");
        let foreign = make("something-else");
        sweep(parent.path());
        assert!(running.exists() && failed.exists() && foreign.exists());
        assert!(!reused_id.exists());
    }
}
