//! Waiting for a condition with a deadline, and never for luck.

use std::time::Duration;

use anyhow::{Result, bail};
use tokio::time::{Instant, sleep_until};

const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Asks until `probe` gives `Ok(Some(value))` and tells the value. `Ok(None)` and errors mean
/// "not yet"; the last error is part of the failure.
///
/// # Errors
/// When `deadline` has passed; names `what` and the last error.
pub async fn until<T>(
    what: &str,
    deadline: Duration,
    mut probe: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    let start = Instant::now();
    let end = start + deadline;
    loop {
        let fault = match tokio::time::timeout_at(end, probe()).await {
            Ok(Ok(Some(value))) => return Ok(value),
            Ok(Ok(None)) => None,
            Ok(Err(fault)) => Some(fault),
            Err(_) => bail!("{what}: not within {deadline:?} (the last probe did not answer)"),
        };
        let next = Instant::now() + POLL_INTERVAL;
        if next >= end {
            match fault {
                Some(fault) => {
                    return Err(fault.context(format!("{what}: not within {deadline:?}")));
                }
                None => bail!("{what}: not within {deadline:?}"),
            }
        }
        sleep_until(next).await;
    }
}

/// Asks until `probe` says true.
///
/// # Errors
/// As [`until`].
pub async fn until_true(
    what: &str,
    deadline: Duration,
    mut probe: impl AsyncFnMut() -> Result<bool>,
) -> Result<()> {
    until(what, deadline, async || Ok(probe().await?.then_some(()))).await
}

/// Checks that `probe` holds again and again for the whole of `time`.
///
/// # Errors
/// As soon as it does not hold; names `what`.
pub async fn holds_for(
    what: &str,
    time: Duration,
    mut probe: impl AsyncFnMut() -> Result<bool>,
) -> Result<()> {
    let end = Instant::now() + time;
    while Instant::now() < end {
        if !probe().await? {
            bail!("{what}: did not hold for {time:?}");
        }
        sleep_until(end.min(Instant::now() + POLL_INTERVAL)).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_condition_that_never_holds_fails_at_its_deadline_and_says_why() {
        let start = Instant::now();
        let fault = until::<()>("the moon", Duration::from_secs(3), async || {
            bail!("still down")
        })
        .await
        .expect_err("the condition never holds");
        assert_eq!(fault.to_string(), "the moon: not within 3s");
        assert_eq!(fault.root_cause().to_string(), "still down");
        assert!(start.elapsed() <= Duration::from_secs(3));
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_that_hangs_is_cut_off() {
        let fault = until::<()>("an answer", Duration::from_secs(2), async || {
            std::future::pending().await
        })
        .await
        .expect_err("the probe never answers");
        assert!(fault.to_string().contains("did not answer"), "{fault}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_condition_that_breaks_is_noticed() {
        let start = Instant::now();
        let broken = holds_for("calm", Duration::from_secs(5), async || {
            Ok(start.elapsed() < Duration::from_secs(2))
        })
        .await;
        assert!(broken.is_err());
        holds_for("calm", Duration::from_secs(1), async || Ok(true))
            .await
            .expect("it holds");
    }
}
