//! How far a comparison is: a bar, on a terminal only.

use std::{io::IsTerminal as _, sync::Arc, time::Duration};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use kreplicator_verify::run::{Progress, Snapshot};

use crate::render::units::grouped;

/// How often the bar is drawn.
const INTERVAL: Duration = Duration::from_millis(200);

/// The bar; it vanishes when this is dropped.
#[derive(Debug)]
pub(super) struct Bar {
    progress: Arc<Progress>,
    /// None: standard error is no terminal.
    bar: Option<ProgressBar>,
}

impl Bar {
    pub(super) fn new(progress: &Arc<Progress>) -> anyhow::Result<Self> {
        let bar = match std::io::stderr().is_terminal() {
            true => {
                let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
                let style = "{bar:30} {percent:>3} %  {msg}  {elapsed}";
                bar.set_style(ProgressStyle::with_template(style)?);
                Some(bar)
            }
            false => None,
        };
        Ok(Self {
            progress: Arc::clone(progress),
            bar,
        })
    }

    /// Draws the bar for ever.
    pub(super) async fn run(&self) {
        let Some(bar) = &self.bar else {
            return std::future::pending().await;
        };
        loop {
            let now = self.progress.snapshot();
            bar.set_length(now.partitions * 1000);
            bar.set_position(now.thousandths);
            bar.set_message(message(&now));
            tokio::time::sleep(INTERVAL).await;
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn message(now: &Snapshot) -> String {
    let differences = match now.differences {
        0 => "no difference yet".to_owned(),
        differences => format!("{} differences", grouped(differences)),
    };
    format!(
        "{} of {} partitions  {differences}",
        grouped(now.partitions_done),
        grouped(now.partitions)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_reads_well() {
        let mut now = Snapshot {
            partitions: 12,
            partitions_done: 3,
            thousandths: 3_500,
            records: 0,
            differences: 0,
        };
        assert_eq!(message(&now), "3 of 12 partitions  no difference yet");
        now.differences = 1_200;
        assert_eq!(message(&now), "3 of 12 partitions  1,200 differences");
    }
}
