//! Trying again until a deadline, with growing, jittered pauses.

use tokio::time::{Instant, sleep_until};

use super::ClusterClient;
use crate::error::Error;

/// Attempts of one call.
#[derive(Debug)]
pub(super) struct Retry<'a> {
    client: &'a ClusterClient,
    deadline: Instant,
    attempt: u32,
}

impl ClusterClient {
    pub(super) fn retry(&self, deadline: Instant) -> Retry<'_> {
        Retry {
            client: self,
            deadline,
            attempt: 0,
        }
    }
}

impl Retry<'_> {
    /// Waits before the next attempt.
    ///
    /// # Errors
    /// `fault` when it will not pass by itself, or when there is no time left.
    pub(super) async fn pause(&mut self, fault: Error) -> Result<(), Error> {
        if fault.is_retryable() && self.wait().await {
            return Ok(());
        }
        Err(fault)
    }

    /// Waits before the next attempt; false at once when that would be after the deadline.
    pub(super) async fn wait(&mut self) -> bool {
        let backoff = self.client.inner.settings.backoff;
        let until = Instant::now() + backoff.delay(self.attempt, rand::random());
        self.attempt = self.attempt.saturating_add(1);
        if until >= self.deadline {
            return false;
        }
        sleep_until(until).await;
        true
    }
}
