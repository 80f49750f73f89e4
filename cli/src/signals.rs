//! SIGTERM and SIGINT: the first asks for a clean stop, the second ends the process at once.

use std::process;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// Exit code of a process ended by the second signal, as a shell shows it for SIGINT, which ends commands
/// at once.
pub(crate) const EXIT_INTERRUPTED: i32 = 130;

/// Cancels the token at the first signal and ends the process at the second.
///
/// # Errors
/// The system refuses to hand out signals.
pub(crate) fn cancel_on_signal(shutdown: CancellationToken) -> std::io::Result<()> {
    let mut signals = Signals::new()?;
    // Lives as long as the process: it ends with the runtime.
    tokio::spawn(async move {
        let name = signals.next().await;
        info!(
            signal = name,
            "stopping; a second signal ends the process at once"
        );
        shutdown.cancel();
        let name = signals.next().await;
        warn!(signal = name, "ending at once");
        process::exit(EXIT_INTERRUPTED);
    });
    Ok(())
}

/// Returns at the first SIGINT or SIGTERM; never where signals are not to be had.
pub(crate) async fn interrupted() {
    match Signals::new() {
        Ok(mut signals) => {
            signals.next().await;
        }
        Err(_) => std::future::pending().await,
    }
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
