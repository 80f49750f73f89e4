//! A child process with a log file that never outlives its test.
//!
//! # Invariants
//! - Dropping a [`Managed`] kills its process group.
//! - When the test process dies without dropping anything (a static, an abort, `kill -9`), a guard
//!   process, which waits on a pipe that only the test process holds, kills the group.

use std::{
    fs::{self, File},
    io::Write as _,
    os::unix::process::{CommandExt as _, ExitStatusExt as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::wait;

/// Lines of a log shown when something fails.
const TAIL_LINES: usize = 40;
/// How long a process may go on after SIGSTOP.
const FREEZE_PATIENCE: Duration = Duration::from_secs(5);

/// What to run.
#[derive(Debug, Clone)]
pub struct Spec {
    /// What it is called in messages and log file names.
    pub name: String,
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// Variables on top of ours.
    pub env: Vec<(String, String)>,
    /// Where output and errors go; appended to.
    pub log: PathBuf,
}

/// A running (or ended) child.
#[derive(Debug)]
pub struct Managed {
    name: String,
    child: Child,
    guard: Guard,
    log: PathBuf,
    ended: Option<ExitStatus>,
}

impl Managed {
    /// Starts a process.
    ///
    /// # Errors
    /// When the program or its log cannot be opened.
    pub fn spawn(spec: &Spec) -> Result<Self> {
        let mut log = File::options()
            .create(true)
            .append(true)
            .open(&spec.log)
            .with_context(|| format!("cannot open log {}", spec.log.display()))?;
        writeln!(log, "--- {} {:?}", spec.program.display(), spec.args)?;
        let child = Command::new(&spec.program)
            .args(&spec.args)
            .envs(spec.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot run {}", spec.program.display()))?;
        let guard = Guard::over(child.id())?;
        Ok(Self {
            name: spec.name.clone(),
            child,
            guard,
            log: spec.log.clone(),
            ended: None,
        })
    }

    /// The process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Where its output goes.
    #[must_use]
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// The last lines of its output.
    #[must_use]
    pub fn log_tail(&self) -> String {
        tail(&self.log, TAIL_LINES)
    }

    /// How it ended; None while it runs.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait()?;
            if self.ended.is_some() {
                self.guard.release();
            }
        }
        Ok(self.ended)
    }

    /// Sends a signal to the process.
    ///
    /// # Errors
    /// When it has ended.
    pub fn signal(&mut self, signal: Signal) -> Result<()> {
        ensure!(
            self.ended()?.is_none(),
            "{} has ended already\n{}",
            self.name,
            self.log_tail()
        );
        kill_process(pid(&self.child), signal)
            .with_context(|| format!("cannot send {signal:?} to {}", self.name))
    }

    /// Kills the process (SIGKILL) and waits until it is gone.
    ///
    /// # Errors
    /// When it has ended already.
    pub async fn kill(&mut self) -> Result<()> {
        self.signal(Signal::KILL)?;
        self.wait(Duration::from_secs(10)).await?;
        Ok(())
    }

    /// Asks the process to end (SIGTERM) and waits for it.
    ///
    /// # Errors
    /// When it has ended already, or does not end within `deadline`.
    pub async fn terminate(&mut self, deadline: Duration) -> Result<ExitStatus> {
        self.signal(Signal::TERM)?;
        self.wait(deadline).await
    }

    /// Freezes the process (SIGSTOP) and returns once none of its threads runs any more: the signal alone
    /// leaves time for an answer.
    ///
    /// # Errors
    /// When it has ended, or has not stopped within [`FREEZE_PATIENCE`].
    pub async fn freeze(&mut self) -> Result<()> {
        self.signal(Signal::STOP)?;
        let id = self.id();
        wait::until_true(
            &format!("stop of {}", self.name),
            FREEZE_PATIENCE,
            async || is_stopped(id),
        )
        .await
    }

    /// Lets a frozen process go on (SIGCONT).
    ///
    /// # Errors
    /// When it has ended.
    pub fn thaw(&mut self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    /// Waits for the end of the process.
    ///
    /// # Errors
    /// When it still runs after `deadline`; shows the end of its log.
    pub async fn wait(&mut self, deadline: Duration) -> Result<ExitStatus> {
        let ended = wait::until(&format!("end of {}", self.name), deadline, async || {
            self.ended()
        })
        .await;
        match ended {
            Ok(status) => Ok(status),
            Err(fault) => bail!("{fault:#}\n{}", self.log_tail()),
        }
    }

    /// Processor time used so far.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn cpu_time(&self) -> Result<Duration> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.id()))?;
        cpu_time(&stat).with_context(|| format!("unreadable stat of {}: {stat}", self.name))
    }

    /// Resident memory in bytes.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn memory_bytes(&self) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.id()))?;
        let kibibytes = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok())
            .with_context(|| format!("no resident memory in status of {}", self.name))?;
        Ok(kibibytes * 1024)
    }
}

impl Drop for Managed {
    fn drop(&mut self) {
        if matches!(self.ended(), Ok(None)) {
            // It may end between the question and the signal; then there is nothing left to kill.
            kill_process_group(pid(&self.child), Signal::KILL).unwrap_or_default();
            drop(self.child.wait());
        }
        self.guard.release();
        if std::thread::panicking() {
            eprintln!(
                "--- end of the log of {} ({})\n{}",
                self.name,
                self.log.display(),
                self.log_tail()
            );
        }
    }
}

/// Whether every thread of a process is stopped.
fn is_stopped(id: u32) -> Result<bool> {
    for thread in fs::read_dir(format!("/proc/{id}/task"))? {
        // One that ends in the meantime cannot be read any more.
        let Ok(stat) = fs::read_to_string(thread?.path().join("stat")) else {
            continue;
        };
        // The state follows the name, which is in parentheses and may hold any character.
        let state = stat.rsplit_once(") ").map(|(_, rest)| rest);
        if !state.is_some_and(|state| state.starts_with(['T', 'Z', 'X'])) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// How a process was ended, in words.
#[must_use]
pub fn ending(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "unknown end".to_owned(),
    }
}

/// The last `lines` lines of a file; an unreadable one gives the reason.
#[must_use]
pub fn tail(file: &Path, lines: usize) -> String {
    match fs::read(file) {
        Ok(bytes) => {
            let text = String::from_utf8_lossy(&bytes);
            let all: Vec<&str> = text.lines().collect();
            all[all.len().saturating_sub(lines)..].join("\n")
        }
        Err(fault) => format!("cannot read {}: {fault}", file.display()),
    }
}

/// Reads user and system time of `/proc/<pid>/stat`, in ticks of 10 ms.
fn cpu_time(stat: &str) -> Option<Duration> {
    let (_, after_name) = stat.rsplit_once(") ")?;
    let mut fields = after_name.split(' ').skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(Duration::from_millis((user + system) * 10))
}

fn pid(child: &Child) -> Pid {
    let id = i32::try_from(child.id()).expect("process ids fit 31 bits");
    Pid::from_raw(id).expect("no process has the id 0")
}

/// A shell that kills a process group when its standard input ends without a word.
#[derive(Debug)]
struct Guard {
    shell: Child,
    word: Option<ChildStdin>,
}

impl Guard {
    fn over(group: u32) -> Result<Self> {
        let mut shell = Command::new("sh")
            .args(["-c", "read word || kill -9 \"-$0\"", &group.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .context("cannot run sh")?;
        let word = shell.stdin.take();
        Ok(Self { shell, word })
    }

    /// Sends the guard home; the group is left alone.
    fn release(&mut self) {
        if let Some(mut word) = self.word.take() {
            // A guard that was killed from outside cannot hear it, and need not.
            drop(word.write_all(b"home\n"));
            drop(word);
            drop(self.shell.wait());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeper(folder: &Path) -> Spec {
        Spec {
            name: "sleeper".to_owned(),
            program: "sh".into(),
            args: vec!["-c".to_owned(), "echo up; exec sleep 60".to_owned()],
            env: Vec::new(),
            log: folder.join("sleeper.log"),
        }
    }

    fn is_alive(id: u32) -> bool {
        // A zombie has no memory map any more.
        fs::read_to_string(format!("/proc/{id}/status")).is_ok_and(|text| text.contains("VmRSS"))
    }

    #[tokio::test]
    async fn a_dropped_process_is_dead() {
        let folder = tempfile::tempdir().expect("a folder");
        let process = Managed::spawn(&sleeper(folder.path())).expect("sh runs");
        let id = process.id();
        wait::until_true("start", Duration::from_secs(5), async || Ok(is_alive(id)))
            .await
            .expect("it starts");
        drop(process);
        assert!(!is_alive(id));
    }

    #[tokio::test]
    async fn the_guard_kills_the_group_when_nobody_holds_its_pipe_any_more() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut process = Managed::spawn(&sleeper(folder.path())).expect("sh runs");
        // What the kernel does to our end of the pipe when the test process is killed.
        drop(process.guard.word.take());
        let status = process.wait(Duration::from_secs(5)).await.expect("killed");
        assert_eq!(status.signal(), Some(9), "{}", ending(status));
    }

    #[tokio::test]
    async fn a_process_is_frozen_thawed_and_asked_to_end() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut process = Managed::spawn(&sleeper(folder.path())).expect("sh runs");
        wait::until_true("output", Duration::from_secs(5), async || {
            Ok(process.log_tail().ends_with("up"))
        })
        .await
        .expect("it starts");
        let state = |id: u32| fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        process.freeze().await.expect("it runs");
        assert!(state(process.id()).contains(") T "), "it stops at once");
        process.thaw().expect("it still exists");
        let status = process
            .terminate(Duration::from_secs(5))
            .await
            .expect("it ends");
        assert_eq!(ending(status), "signal 15");
        assert!(process.signal(Signal::TERM).is_err(), "it is gone");
    }

    #[test]
    fn processor_time_is_read_past_names_with_brackets_and_spaces() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 1 0 0 0 150 50 0 0 20 0 1 0 1 1 1";
        assert_eq!(cpu_time(stat), Some(Duration::from_secs(2)));
        assert_eq!(cpu_time("7 (a) S 1"), None);
    }
}
