//! What processes cost, read from `/proc`: processor time and memory of process groups.

use std::{collections::BTreeMap, fs, io, time::Duration};

use anyhow::{Context as _, Result};
use tokio::time::Instant;

/// How often new members of a group are looked for.
const RESCAN: Duration = Duration::from_secs(1);

/// What a group has used and uses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Processor time of all processes there ever were, user and system.
    pub(crate) cpu: Duration,
    /// Resident bytes now.
    pub(crate) resident_bytes: u64,
    /// Sum of each process's largest resident size so far. For one process: its peak.
    pub(crate) peak_bytes: u64,
}

/// Processes whose leaders the harness started, and all that these start.
#[derive(Debug)]
pub(crate) struct Group {
    leaders: Vec<u32>,
    members: BTreeMap<u32, Usage>,
    scanned: Option<Instant>,
}

impl Group {
    /// The groups of these leaders.
    pub(crate) fn of(leaders: impl IntoIterator<Item = u32>) -> Self {
        Self {
            leaders: leaders.into_iter().collect(),
            members: BTreeMap::new(),
            scanned: None,
        }
    }

    /// What they have used so far. Processes that ended count with what was last seen of them.
    ///
    /// # Errors
    /// When `/proc` cannot be read.
    pub(crate) fn sample(&mut self) -> Result<Usage> {
        if self.scanned.is_none_or(|last| last.elapsed() >= RESCAN) {
            self.scan()?;
            self.scanned = Some(Instant::now());
        }
        let mut total = Usage::default();
        for (id, usage) in &mut self.members {
            match usage_of(*id)? {
                Some(now) => *usage = now,
                None => usage.resident_bytes = 0,
            }
            total.cpu += usage.cpu;
            total.resident_bytes += usage.resident_bytes;
            total.peak_bytes += usage.peak_bytes;
        }
        Ok(total)
    }

    fn scan(&mut self) -> Result<()> {
        for entry in fs::read_dir("/proc").context("cannot read /proc; the bench needs Linux")? {
            let name = entry?.file_name();
            let Some(id) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
                continue;
            };
            let stat = present(fs::read_to_string(format!("/proc/{id}/stat")))?;
            let stat = stat.as_deref().and_then(parse_stat);
            if stat.is_some_and(|stat| self.leaders.contains(&stat.group)) {
                self.members.entry(id).or_default();
            }
        }
        Ok(())
    }
}

/// None: the process has ended.
fn usage_of(id: u32) -> Result<Option<Usage>> {
    let stat = present(fs::read_to_string(format!("/proc/{id}/stat")))?;
    let status = present(fs::read_to_string(format!("/proc/{id}/status")))?;
    let (Some(stat), Some(status)) = (stat, status) else {
        return Ok(None);
    };
    let stat = parse_stat(&stat).with_context(|| format!("unreadable stat of {id}: {stat}"))?;
    // A process that has ended and was not waited for has no memory.
    let memory = parse_memory(&status);
    Ok(memory.map(|(resident_bytes, peak_bytes)| Usage {
        cpu: stat.cpu,
        resident_bytes,
        peak_bytes,
    }))
}

/// None: the process ended before or while its file was read.
fn present(read: io::Result<String>) -> Result<Option<String>> {
    /// "No such process", while reading.
    const ESRCH: i32 = 3;
    match read {
        Ok(text) => Ok(Some(text)),
        Err(fault)
            if fault.kind() == io::ErrorKind::NotFound || fault.raw_os_error() == Some(ESRCH) =>
        {
            Ok(None)
        }
        Err(fault) => Err(fault.into()),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stat {
    group: u32,
    cpu: Duration,
}

/// Reads `/proc/<id>/stat`: process group, and user and system time in ticks of 10 ms.
///
/// # Source
/// proc(5): fields 5, 14 and 15; the name before them may hold anything.
fn parse_stat(stat: &str) -> Option<Stat> {
    let (_, after_name) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let ticks = |index: usize| fields.get(index)?.parse::<u64>().ok();
    Some(Stat {
        group: fields.get(2)?.parse().ok()?,
        cpu: Duration::from_millis((ticks(11)? + ticks(12)?) * 10),
    })
}

/// Resident and peak bytes of `/proc/<id>/status`.
fn parse_memory(status: &str) -> Option<(u64, u64)> {
    Some((kibibytes(status, "VmRSS:")?, kibibytes(status, "VmHWM:")?))
}

/// A line `name   123 kB` of a file of `/proc`, in bytes.
pub(crate) fn kibibytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let number: u64 = line.split_whitespace().next()?.parse().ok()?;
    number.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use std::{os::unix::process::CommandExt as _, process::Command};

    use super::*;

    #[test]
    fn group_and_time_are_read_past_names_with_brackets_and_spaces() {
        let stat = "7 (a) b) S 1 42 7 0 -1 4194560 1 0 0 0 150 50 9 9 20 0 1 0 1 1 1";
        let read = Stat {
            group: 42,
            cpu: Duration::from_secs(2),
        };
        assert_eq!(parse_stat(stat), Some(read));
        assert_eq!(parse_stat("7 (a) S 1"), None);
        assert_eq!(parse_stat(""), None);
    }

    #[test]
    fn memory_is_told_in_bytes_and_is_absent_of_processes_that_ended() {
        let status = "Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\nThreads:\t1\n";
        assert_eq!(parse_memory(status), Some((1 << 20, 2 << 20)));
        assert_eq!(parse_memory("Name:\tx\nState:\tZ (zombie)\n"), None);
        assert_eq!(kibibytes("VmRSS: many kB", "VmRSS:"), None);
    }

    #[test]
    fn children_are_counted_with_their_leader() {
        let mut leader = Command::new("sh")
            .args(["-c", "sleep 60 & sleep 60"])
            .process_group(0)
            .spawn()
            .expect("sh runs");
        let mut group = Group::of([leader.id()]);
        let deadline = Instant::now() + Duration::from_secs(30);
        while group.members.len() < 3 && Instant::now() < deadline {
            group.scanned = None;
            group.sample().expect("/proc");
        }
        let members: Vec<u32> = group.members.keys().copied().collect();
        for id in &members {
            Command::new("kill")
                .args(["-9", &id.to_string()])
                .status()
                .expect("kill runs");
        }
        leader.wait().expect("it was killed");
        assert_eq!(members.len(), 3, "a shell and two children");
        // The kernel takes its time to end those that are not ours to wait for.
        let mut after = group.sample().expect("ended processes are no error");
        while after.resident_bytes > 0 && Instant::now() < deadline {
            after = group.sample().expect("ended processes are no error");
        }
        assert_eq!(after.resident_bytes, 0);
        assert!(after.peak_bytes > 0, "what was seen stays counted");
    }
}
