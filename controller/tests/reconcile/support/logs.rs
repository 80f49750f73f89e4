//! What is logged while a test runs.

use std::{
    io,
    sync::{Arc, Mutex},
};

use tracing::{
    Dispatch,
    subscriber::{DefaultGuard, NoSubscriber},
};

/// Collects the warnings of the test's thread until dropped; tests here have one thread each.
pub(crate) struct Warnings {
    lines: Lines,
    /// While a process has a single subscriber, whoever comes to a line of code first decides for all
    /// threads whether it is logged, subscriber or not. With a second one each thread is asked.
    _second: Dispatch,
    _guard: DefaultGuard,
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no panic").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Warnings {
    pub(crate) fn collect() -> Self {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::WARN)
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        Self {
            lines,
            _second: Dispatch::new(NoSubscriber::default()),
            _guard: tracing::subscriber::set_default(subscriber),
        }
    }

    /// The lines so far that hold a text.
    pub(crate) fn with(&self, text: &str) -> Vec<String> {
        let lines = self.lines.0.lock().expect("no panic");
        let lines = String::from_utf8_lossy(&lines);
        let with_text = lines.lines().filter(|line| line.contains(text));
        with_text.map(ToOwned::to_owned).collect()
    }
}
