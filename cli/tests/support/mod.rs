//! Runs the binary.

#![allow(dead_code, reason = "each test binary uses its part")]

use std::{
    io::{BufRead as _, BufReader, Read},
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

/// What a run left behind.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// The binary, in an environment without settings.
pub(crate) fn kreplicator() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kreplicator"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("KREPLICATOR") {
            command.env_remove(name);
        }
    }
    command.stdin(Stdio::null());
    command
}

/// Runs a command to its end.
pub(crate) fn run(command: &mut Command) -> Ran {
    let output = command.output().expect("the binary runs");
    Ran {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).expect("text"),
        stderr: String::from_utf8(output.stderr).expect("text"),
    }
}

/// A port that nobody listens on.
pub(crate) fn closed_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

/// A running service; killed when dropped.
#[derive(Debug)]
pub(crate) struct Service {
    child: Child,
    lines: mpsc::Receiver<String>,
    /// Lines read so far.
    pub(crate) seen: Vec<String>,
}

impl Service {
    /// Starts a command; its lines of both outputs are kept.
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let stdout: Box<dyn Read + Send> = Box::new(child.stdout.take().expect("was piped"));
        let stderr: Box<dyn Read + Send> = Box::new(child.stderr.take().expect("was piped"));
        let (sender, lines) = mpsc::channel();
        for output in [stdout, stderr] {
            let sender = sender.clone();
            thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    if sender.send(line).is_err() {
                        return;
                    }
                }
            });
        }
        Self {
            child,
            lines,
            seen: Vec::new(),
        }
    }

    /// The first line that holds `text`.
    pub(crate) fn line_with(&mut self, text: &str, timeout: Duration) -> String {
        if let Some(line) = self.seen.iter().find(|line| line.contains(text)) {
            return line.clone();
        }
        let deadline = tokio::time::Instant::now() + timeout;
        loop {
            let left = deadline.saturating_duration_since(tokio::time::Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => {
                    self.seen.push(line.clone());
                    if line.contains(text) {
                        return line;
                    }
                }
                Err(error) => panic!("no {text:?} ({error}) in\n{}", self.seen.join("\n")),
            }
        }
    }

    /// Every line until the outputs end.
    pub(crate) fn all_lines(&mut self) -> &[String] {
        while let Ok(line) = self.lines.recv() {
            self.seen.push(line);
        }
        &self.seen
    }

    /// Sends a signal by name and gives the exit code.
    pub(crate) fn end(&mut self, signal: &str) -> Option<i32> {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", signal, &pid]).status();
        assert!(sent.expect("kill runs").success());
        self.child.wait().expect("was started").code()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // Ended already where the test went well.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
