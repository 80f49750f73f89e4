//! What a keeper remembers of one topic.

use std::time::Duration;

use kreplicator_model::ids::LinkTopic;
use tokio::time::Instant;
use tracing::warn;

use super::super::{TargetProblem, TargetState, Want};

/// A change that does not show after this time is asked for again.
const ASKED_AGAIN_AFTER: Duration = Duration::from_secs(5);

/// One topic.
#[derive(Debug, Default)]
pub(super) struct Entry {
    pub(super) state: TargetState,
    pub(super) failures: u32,
    /// Not acted on before.
    pub(super) retry_at: Option<Instant>,
    /// Only news of its cluster tells what is to be done: no time does.
    pub(super) waits_for_news: bool,
    /// When it was made or grown, until that shows.
    pub(super) unseen_since: Option<Instant>,
    /// Settings are looked at again then; None: at once.
    pub(super) check_at: Option<Instant>,
    /// The target has more partitions than its source: what was told of it.
    pub(super) surplus: Option<String>,
    /// Partitions of source and target at the last look.
    pub(super) checked_with: Option<(i32, i32)>,
}

impl Entry {
    /// When something is to be done about it without any news.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        if self.waits_for_news {
            return None;
        }
        self.retry_at.or(self.check_at)
    }

    /// Partitions that were asked for and do not show yet; 0 once they do, or once it is time to ask
    /// again.
    pub(super) fn unseen_partitions(
        &mut self,
        want: Option<&Want>,
        found: impl Fn(&Want) -> Option<i32>,
        now: Instant,
    ) -> i32 {
        let Some((since, want)) = self.unseen_since.zip(want) else {
            return 0;
        };
        let missing = want.partitions - found(want).unwrap_or_default();
        if missing <= 0 || now.saturating_duration_since(since) >= ASKED_AGAIN_AFTER {
            self.unseen_since = None;
            return 0;
        }
        missing
    }

    /// Tells once that the target has more partitions than its source, and again when that changes.
    pub(super) fn tell_surplus(&mut self, topic: &LinkTopic, want: &Want, note: Option<&str>) {
        if let Some(note) = note.filter(|note| self.surplus.as_deref() != Some(*note)) {
            warn!(%topic, target_topic = %want.target_topic, note,
                "target topic has more partitions than its source");
        }
        self.surplus = note.map(ToOwned::to_owned);
    }

    pub(super) fn hold(
        &mut self,
        topic: &LinkTopic,
        partitions: i32,
        message: String,
        stops: bool,
    ) {
        let problem = TargetProblem { message, stops };
        if self.state.problem.as_ref() != Some(&problem) {
            warn!(%topic, cause = problem.message, "target topic needs somebody to act");
        }
        self.state.partitions = Some(partitions);
        self.state.problem = Some(problem);
        self.state.note = None;
        self.failures = 0;
        self.retry_at = None;
        // Whatever is there when it goes on is looked at anew.
        self.check_at = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_topic_that_waits_for_news_wakes_nobody() {
        let past = Instant::now();
        tokio::time::advance(Duration::from_secs(1)).await;
        let mut entry = Entry {
            failures: 1,
            retry_at: Some(past),
            check_at: Some(past),
            waits_for_news: true,
            ..Entry::default()
        };
        assert_eq!(entry.wake_at(), None);
        entry.waits_for_news = false;
        assert_eq!(entry.wake_at(), Some(past));
    }
}
