//! From whom a lane is read, and what becomes of it when a broker gives nothing.

use std::time::Duration;

use kreplicator_model::{backoff::Backoff, ids::Offset};
use kreplicator_wire::topic::{BrokerId, TopicId};
use tokio::time::Instant;
use tracing::warn;

use super::{Event, Flow, Lane, Next, Opening, Side, State};
use crate::{
    batches::{fetcher::FetcherHandle, nearest::Way},
    fault::Fault,
};

/// Pauses of a lane that is turned away again and again. The first time there is none: leaders move.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(10));
/// Times in a row from which on it is shown.
const TIMES_TO_TELL: u32 = 2;

impl Lane {
    /// What is to be read for the lane.
    pub(in crate::batches) fn reading_at(&self) -> Next {
        let state = self.lock();
        state.flow.as_ref().map_or(Next::Gone, Flow::next)
    }

    /// The fetcher that reads for the lane; told to go on when there is room. False: nothing is to be read
    /// any more.
    pub(in crate::batches) fn set_fetcher(&self, fetcher: FetcherHandle) -> bool {
        let mut state = self.lock();
        let Some(flow) = state.flow.as_mut().filter(|flow| !flow.is_over()) else {
            return false;
        };
        if let Some(before) = flow.fetcher.replace(fetcher.clone())
            && !before.is_same(&fetcher)
        {
            before.stop(&self.source);
        }
        true
    }

    /// Whom to read from; None: nothing is to be read any more.
    pub(in crate::batches) fn way(
        &self,
        leader: BrokerId,
        is_listed: impl FnOnce(BrokerId) -> bool,
        now: Instant,
    ) -> Option<Way> {
        let mut state = self.lock();
        let flow = state.flow.as_mut().filter(|flow| !flow.is_over())?;
        Some(flow.nearest.way(leader, is_listed, now))
    }

    /// Whether it is time to ask the leader anew whether some replica is nearer.
    pub(in crate::batches) fn asks_anew(&self, now: Instant) -> bool {
        let state = self.lock();
        let flow = state.flow.as_ref().filter(|flow| !flow.is_over());
        flow.is_some_and(|flow| flow.nearest.is_due(now))
    }

    /// The leader names a replica that is nearer to us, and gives nothing.
    pub(in crate::batches) fn nearer(&self, replica: BrokerId, now: Instant) {
        if let Some(flow) = self.lock().flow.as_mut() {
            flow.nearest.told(replica, now);
            flow.turned_away = flow.turned_away.saturating_add(1);
        }
    }

    /// A broker gives nothing just now. Shown unless it is the first time in a row.
    pub(in crate::batches) fn turned_away(&self, cause: &str, now: Instant) {
        let mut state = self.lock();
        let Some(flow) = state.flow.as_mut() else {
            return;
        };
        flow.nearest.failed(now);
        flow.turned_away = flow.turned_away.saturating_add(1);
        if flow.turned_away >= TIMES_TO_TELL {
            self.trouble_locked(&mut state, Side::Source, Some(cause));
        }
    }

    /// The broker that it is read from answers, though perhaps not about this partition: trouble is over
    /// unless the partition itself was refused.
    pub(in crate::batches) fn source_answers(&self) {
        let mut state = self.lock();
        if state.flow.as_ref().is_none_or(|flow| flow.turned_away == 0) {
            self.trouble_locked(&mut state, Side::Source, None);
        }
    }

    /// How long to wait before a broker is asked again. `random` from 0 to 1 spreads it.
    pub(in crate::batches) fn pause(&self, random: f64) -> Duration {
        let state = self.lock();
        let times = state.flow.as_ref().map_or(0, |flow| flow.turned_away);
        match times.checked_sub(TIMES_TO_TELL) {
            Some(attempt) => BACKOFF.delay(attempt, random),
            None => Duration::ZERO,
        }
    }

    /// Whether a topic of this id is the one that is read. One that was made anew has other records at the
    /// same offsets: the task fails.
    pub(in crate::batches) fn reads_topic(&self, told: Option<TopicId>) -> bool {
        let mut state = self.lock();
        let Some(told) = told else {
            // The broker is too old to tell.
            return true;
        };
        let known = *state.source_topic.get_or_insert(told);
        if known == told {
            return true;
        }
        let position = state.copied_to();
        let fault = Fault::made_anew(&self.spec, position, known, told);
        self.fail_locked(&mut state, fault);
        false
    }

    /// The leader's log and what was read part at `end`: another leader has taken over that lacked records
    /// which the one before gave away. None: the log knows nothing of the leader that wrote what was read last, so it
    /// may be another log altogether.
    pub(in crate::batches) fn cut_off(&self, end: Option<Offset>) {
        let mut state = self.lock();
        let copied_to = state.copied_to();
        warn!(task = %self.spec.id, end = end.map(|end| end.0), %copied_to,
            "the source log was cut below what was read, as by an unclean election");
        if let Some(end) = end
            && copied_to > end
        {
            state.cut = Some(end);
            let fault = Fault::replaced(copied_to, Some(end));
            return self.fail_locked(&mut state, fault);
        }
        let position = state.flow.as_ref().map(|flow| flow.intake.position());
        if position.is_some_and(|position| position <= copied_to) {
            // Nothing is read ahead: the last record that was copied is another there.
            state.cut = Some(Offset(copied_to.0 - 1));
            return self.fail_locked(&mut state, Fault::replaced(copied_to, None));
        }
        let cause = format!(
            "source partition {} was cut at {}; nothing from there on was copied, it is read again",
            self.source,
            end.unwrap_or(copied_to)
        );
        self.trouble_locked(&mut state, Side::Source, Some(&cause));
        if let Some(flow) = state.flow.as_mut()
            && !flow.failed
        {
            flow.failed = true;
            self.tell(Event::Cut);
        }
    }
}

impl State {
    /// End of what is at the target or on its way there.
    fn copied_to(&self) -> Offset {
        let held = self.flow.as_ref().and_then(|flow| flow.held.back());
        let checkpoint = self.checkpoint.map(|checkpoint| checkpoint.place.offset);
        held.map(|held| held.to)
            .max(checkpoint)
            .unwrap_or(Offset(0))
    }

    /// Why a flow cannot begin here: the source log was cut below it. Who has reset the checkpoint knows.
    pub(super) fn cut_before(&mut self, opening: &Opening) -> Option<Fault> {
        if opening.is_reset {
            self.source_topic = None;
            self.cut = None;
        }
        let cut = self.cut?;
        let is_below = opening.read_from <= cut && opening.skip_records == 0;
        if is_below {
            self.cut = None;
            return None;
        }
        Some(Fault::replaced(opening.read_from.max(cut), Some(cut)))
    }
}
