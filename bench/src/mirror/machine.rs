//! The machine: what bounds every result.

use std::{fs, time::Duration};

use anyhow::{Context as _, Result};

use super::procfs::kibibytes;

/// What does not change during a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Machine {
    /// Cores that this process may use.
    pub(crate) cores: usize,
    /// Main memory.
    pub(crate) memory_bytes: u64,
}

impl Machine {
    /// Looks at the machine.
    pub(crate) fn look() -> Result<Self> {
        let text = fs::read_to_string("/proc/meminfo").context("cannot read /proc/meminfo")?;
        Ok(Self {
            cores: std::thread::available_parallelism()?.get(),
            memory_bytes: kibibytes(&text, "MemTotal:").context("no MemTotal in /proc/meminfo")?,
        })
    }
}

/// Processor time that everything on the machine has used since it was started.
pub(crate) fn busy() -> Result<Duration> {
    let text = fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
    parse_busy(&text).context("no line cpu in /proc/stat")
}

/// Reads the first line of `/proc/stat`: all but idle time and waiting for disks, in ticks of 10 ms.
///
/// # Source
/// proc(5): user, nice, system, idle, iowait, irq, softirq, steal; guest time is in user time.
fn parse_busy(text: &str) -> Option<Duration> {
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks = line
        .split_whitespace()
        .take(8)
        .map(|field| field.parse::<u64>().ok())
        .collect::<Option<Vec<u64>>>()?;
    let [user, nice, system, _idle, _wait, irq, softirq, steal] = ticks.try_into().ok()?;
    let busy = user + nice + system + irq + softirq + steal;
    Some(Duration::from_millis(busy * 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_and_waiting_are_not_busy() {
        let text = "cpu  10 20 30 4000 5000 1 2 37 99 99\ncpu0 1 1 1 1 1 1 1 1 1 1\n";
        assert_eq!(parse_busy(text), Some(Duration::from_secs(1)));
        assert_eq!(parse_busy("cpu0 1 2 3 4 5 6 7 8"), None);
        assert_eq!(parse_busy("cpu  1 2 3"), None);
    }

    #[test]
    fn this_machine_has_cores_and_memory() {
        let machine = Machine::look().expect("Linux");
        assert!(machine.cores >= 1 && machine.memory_bytes > 1 << 20);
        assert!(busy().expect("Linux") > Duration::ZERO);
    }
}
