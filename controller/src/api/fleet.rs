//! Reports of workers.

use std::{sync::Arc, time::Duration};

use kreplicator_proto::{
    status::Refusal,
    v1::{self, fleet_server::Fleet},
};
use tokio::{
    sync::mpsc,
    time::{Instant, timeout},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};
use tracing::debug;

use super::{core::Core, leadership::moved};
use crate::reports::Verdict;

/// A worker that says nothing for this long is gone or hangs: its stream is ended, it connects again.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// Acknowledgements on their way to a worker.
const BUFFER: usize = 4;

/// The service.
#[derive(Debug, Clone)]
pub(crate) struct FleetService(pub(crate) Arc<Core>);

#[tonic::async_trait]
impl Fleet for FleetService {
    type ReportStream = ReceiverStream<Result<v1::ReportAck, Status>>;

    async fn report(
        &self,
        request: Request<Streaming<v1::WorkerReport>>,
    ) -> Result<Response<Self::ReportStream>, Status> {
        let core = Arc::clone(&self.0);
        let reports = request.into_inner();
        // One place is kept for the last word.
        let (sender, receiver) = mpsc::channel(BUFFER);
        self.0.tasks.spawn(serve(core, reports, sender));
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
}

async fn serve(
    core: Arc<Core>,
    mut reports: Streaming<v1::WorkerReport>,
    acks: mpsc::Sender<Result<v1::ReportAck, Status>>,
) {
    let Ok(last_word) = acks.clone().reserve_owned().await else {
        return;
    };
    let end = tokio::select! {
        end = take_in(&core, &mut reports, &acks) => end,
        () = core.shutdown.cancelled() => Some(Refusal::Unavailable(
            "this controller is shutting down; report to the next leader".to_owned(),
        )),
    };
    if let Some(refusal) = end {
        debug!(reason = %refusal, "report stream ends");
        last_word.send(Err(Status::from(refusal)));
    }
}

/// Takes in reports until the worker ends the stream (None) or something else does.
async fn take_in(
    core: &Core,
    reports: &mut Streaming<v1::WorkerReport>,
    acks: &mpsc::Sender<Result<v1::ReportAck, Status>>,
) -> Option<Refusal> {
    let term = match core.leadership.term() {
        Ok(term) => term,
        Err(refusal) => return Some(refusal),
    };
    let stream = core.parts.reports.open_stream();
    loop {
        let report = tokio::select! {
            () = core.leadership.over(&term) => return Some(moved()),
            report = timeout(SILENCE_MAX, reports.message()) => match report {
                Ok(Ok(report)) => report?,
                Ok(Err(status)) => {
                    debug!(cause = status.message(), "report stream broke");
                    return None;
                }
                Err(_) => return Some(Refusal::TooLate(format!(
                    "no report within {SILENCE_MAX:?}; open a new stream"
                ))),
            },
        };
        let worker = report.worker.clone();
        let fleet = Arc::clone(&core.parts.fleet.borrow());
        let verdict = core
            .parts
            .reports
            .accept(Instant::now(), stream, report, &fleet);
        let want_full = match verdict {
            Verdict::Accepted => false,
            Verdict::WantFull => true,
            Verdict::Superseded => {
                return Some(Refusal::Contended(format!(
                    "the report stream of worker {worker}"
                )));
            }
            Verdict::BadWorker => {
                return Some(Refusal::field(
                    "worker",
                    format!("{worker:?} is no worker id"),
                ));
            }
        };
        // A worker that does not read its acknowledgements is not waited for, except when there is
        // something to say.
        let ack = Ok(v1::ReportAck { want_full });
        if want_full {
            acks.send_timeout(ack, SILENCE_MAX).await.ok()?;
        } else if let Err(mpsc::error::TrySendError::Closed(_)) = acks.try_send(ack) {
            return None;
        }
    }
}
