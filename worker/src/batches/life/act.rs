//! What a lane asks of its task's life, done.

use std::{future::Future, sync::Arc, time::Duration};

use kreplicator_model::{
    backoff::Backoff,
    exact::{Stop as SenderStop, TargetView},
    ids::Offset,
};
use kreplicator_wire::{cluster::ClusterClient, error::Error, topic::Leader};
use tokio::time::{Instant, sleep};
use tracing::warn;

use super::{AGAIN_AFTER, End};
use crate::{
    batches::{
        ends,
        lane::{Event, Lane, Side},
        link::Tools,
        scan::Unread,
        start::Starter,
    },
    fault::{Fault, Kind},
};

/// Longest question for the leader of the target partition.
const LEADER_TIME: Duration = Duration::from_secs(10);
/// The most between questions to a target for what it has.
const VIEW_AGAIN_AFTER_MAX: Duration = Duration::from_secs(5);

/// Does what the lane asked for; Some: the flow is over.
pub(super) async fn act(lane: &Arc<Lane>, tools: &Tools, event: Event) -> Option<End> {
    let Tools {
        starter,
        source,
        outlets,
        ..
    } = tools;
    match event {
        Event::AskTarget => note_view(lane, starter, None).await,
        Event::ReadTail(from) => note_view(lane, starter, Some(from)).await,
        Event::Read(_) => {
            source.read(lane);
            None
        }
        Event::FindTarget => {
            let found = find_target(lane, &starter.target.client).await;
            match found {
                Ok(Some(leader)) => {
                    lane.set_outlet(outlets.to(leader.broker));
                    None
                }
                Ok(None) => {
                    warn!(task = %lane.spec.id, epoch = %lane.spec.epoch,
                        "the target topic was made anew; what it has to say is asked for from the beginning");
                    Some(End::Again)
                }
                Err(fault) => Some(End::Fault(fault)),
            }
        }
        Event::NewLine(restart) => {
            warn!(task = %lane.spec.id, reason = %restart.why, from = %restart.from.offset,
                repeats_max = restart.repeats_max, "counting in this line has come to an end");
            Some(End::Restart(restart))
        }
        Event::Isolate => Some(End::Isolate),
        Event::Cut => Some(End::Again),
        Event::Overtaken => {
            warn!(task = %lane.spec.id, epoch = %lane.spec.epoch,
                "another worker copies this task while this one is not registered; it is left to the other");
            Some(End::Again)
        }
        Event::Stopped(SenderStop::NewerLine | SenderStop::TakeOver) => Some(End::Again),
        // Refusals are told by the outlet, with their reason.
        Event::Stopped(SenderStop::Terminal(_)) => None,
        Event::Failed(fault) => Some(End::Fault(fault)),
        Event::OutOfRange => out_of_range(lane, starter).await,
        Event::Settled | Event::Unsettled => None,
    }
}

/// Tells the lane what the target says; asked until it answers, or asking again cannot help.
async fn note_view(lane: &Arc<Lane>, starter: &Starter, tail_from: Option<Offset>) -> Option<End> {
    let producer = lane.checkpoint()?.producer;
    let asked = || async move {
        let mut view = starter.view(lane, producer).await?;
        if let Some(from) = tail_from {
            // The target may have deleted what lies before.
            let from = from.max(view.start);
            let tail = starter.read_tail(lane, producer, from, view.end).await?;
            view.tail = Some(tail);
        }
        Ok::<_, Unread>(view)
    };
    match until_heard(lane, asked).await {
        Ok(view) => {
            lane.target_seen(&view);
            None
        }
        Err(fault) => Some(End::Fault(fault)),
    }
}

/// Asks the target until it answers, less and less often.
///
/// # Errors
/// What asking again cannot help.
async fn until_heard<F>(lane: &Lane, mut ask: impl FnMut() -> F) -> Result<TargetView, Fault>
where
    F: Future<Output = Result<TargetView, Unread>>,
{
    let backoff = Backoff::new(AGAIN_AFTER, VIEW_AGAIN_AFTER_MAX);
    let mut attempt = 0;
    loop {
        match ask().await {
            Ok(view) => return Ok(view),
            Err(Unread::Late(fault)) => lane.trouble(Side::Target, Some(&fault.cause)),
            Err(fault) => return Err(fault.into()),
        }
        sleep(backoff.delay(attempt, rand::random())).await;
        attempt += 1;
    }
}

/// The leader of the target partition; None: the topic is not the one that the flow was opened for.
async fn find_target(lane: &Lane, client: &ClusterClient) -> Result<Option<Leader>, Fault> {
    loop {
        let deadline = Instant::now() + LEADER_TIME;
        let at = &lane.target;
        let found = match client.leader(at, deadline).await {
            Ok(leader) => client
                .topic(&at.topic, deadline)
                .await
                .map(|topic| (leader, topic.id)),
            Err(fault) => Err(fault),
        };
        match found {
            Ok((leader, id)) => return Ok(lane.writes_topic(id).then_some(leader)),
            Err(fault) if fault.is_retryable() => {
                lane.trouble(Side::Target, Some(&fault.to_string()));
                sleep(AGAIN_AFTER).await;
            }
            Err(fault) => return Err(ends::fault(Kind::Target, client, &fault)),
        }
    }
}

/// The source has nothing at the position: a gap, or a truncation, which the start tells apart; or the log was cut
/// and has grown again, or made anew, and knows nothing of the leader that wrote what comes before.
async fn out_of_range(lane: &Arc<Lane>, starter: &Starter) -> Option<End> {
    let Some(position) = lane.position() else {
        return Some(End::Again);
    };
    let at_source =
        |fault: Error| End::Fault(ends::fault(Kind::Source, &starter.source.client, &fault));
    match starter.source.committed_range(&lane.source).await {
        Ok((start, end)) => {
            lane.measured(start, end);
            if position > end {
                return Some(End::Fault(Fault::truncated(position, end)));
            }
            if position < start {
                lane.source_lost(start);
                return None;
            }
            let Some(epoch) = lane.leader_epoch() else {
                return Some(End::Again);
            };
            match starter.source.epoch_end(&lane.source, epoch).await {
                Ok(None) => {
                    lane.cut_off(None);
                    None
                }
                Ok(Some(_)) => Some(End::Again),
                Err(fault) => Some(at_source(fault)),
            }
        }
        Err(fault) => Some(at_source(fault)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batches::testkit::{Rig, RigMade};

    fn fault() -> Fault {
        Fault::new(Kind::Target, "the user lacks the permission DESCRIBE")
    }

    #[tokio::test(start_paused = true)]
    async fn a_target_that_is_silent_is_asked_less_and_less_often() {
        let rig = Rig::running(RigMade::default());
        let mut asked = 0_u32;
        let heard = until_heard(&rig.lane, || {
            asked += 1;
            async { Err(Unread::Late(fault())) }
        });
        let silence = tokio::time::timeout(Duration::from_secs(60), heard).await;
        assert!(silence.is_err(), "it never ends by itself");
        assert!((12..=30).contains(&asked), "{asked} questions in a minute");
        assert_eq!(rig.lane.status().cause, fault().cause);
    }

    #[tokio::test(start_paused = true)]
    async fn what_asking_again_cannot_help_ends_it() {
        let rig = Rig::running(RigMade::default());
        let heard = until_heard(&rig.lane, || async { Err(Unread::Failed(fault())) });
        assert_eq!(heard.await, Err(fault()));
    }
}
