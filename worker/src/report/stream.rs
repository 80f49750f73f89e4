//! One stream of reports to one controller.

use std::time::Duration;

use kreplicator_proto::v1::{WorkerReport, fleet_client::FleetClient};
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval, timeout},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{
    Status,
    transport::{Channel, Endpoint},
};

use super::build::{Builder, Pulse};
use crate::{fault::chain, metrics};

/// Longest wait for a connection, and for the controller to take the stream.
const CONNECT_DEADLINE: Duration = Duration::from_secs(5);
/// A connection that is silent for this long is asked whether it is still there, and has as long to
/// answer.
const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// Reports under way that the controller has not taken.
const REPORTS_QUEUED_MAX: usize = 4;
/// Longest wait for room in that queue.
const SEND_DEADLINE: Duration = Duration::from_secs(10);

/// Why a stream ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum Ended {
    #[error("{0:?} is no address: {1}")]
    BadAddress(String, String),
    #[error("cannot connect to {0}: {1}")]
    NotConnected(String, String),
    #[error("the controller ended the stream: {0}")]
    Refused(Box<Status>),
    #[error("the controller closed the stream")]
    Closed,
    #[error("the controller has not taken a report for {0:?}")]
    TooSlow(Duration),
}

/// Reports until the stream ends.
pub(super) async fn run(address: &str, builder: &mut Builder, every: Duration) -> Ended {
    match stream(address, builder, every).await {
        Ok(never) => match never {},
        Err(ended) => ended,
    }
}

async fn stream(
    address: &str,
    builder: &mut Builder,
    every: Duration,
) -> Result<std::convert::Infallible, Ended> {
    let channel = connect(address).await?;
    let (sender, receiver) = mpsc::channel(REPORTS_QUEUED_MAX);
    let mut client = FleetClient::new(channel);
    // The first report is under way while the stream opens: the controller may wait for it.
    builder.want_full();
    let open = async {
        let opened = client.report(ReceiverStream::new(receiver));
        timeout(CONNECT_DEADLINE, opened)
            .await
            .map_err(|_| Ended::TooSlow(CONNECT_DEADLINE))?
            .map_err(refused)
    };
    let (acks, ()) = tokio::try_join!(open, send(&sender, builder))?;
    let mut acks = acks.into_inner();
    let mut tick = interval(every);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    tick.reset();
    let mut looks = interval(builder.pulse().heartbeat());
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // A task of its own: whoever makes reports waits for every task that is busy.
    let mut beats = JoinSet::new();
    beats.spawn(beat(sender.clone(), builder.pulse()));
    loop {
        tokio::select! {
            ack = acks.message() => {
                let ack = ack.map_err(refused)?.ok_or(Ended::Closed)?;
                metrics::reported("acknowledged");
                if ack.want_full {
                    builder.want_full();
                }
            }
            _ = tick.tick() => send(&sender, builder).await?,
            _ = looks.tick() => if builder.has_news() {
                send(&sender, builder).await?;
            },
            Some(_) = beats.join_next() => return Err(Ended::Closed),
        }
    }
}

/// Says that the worker lives until the stream has ended.
async fn beat(sender: mpsc::Sender<WorkerReport>, pulse: Pulse) {
    let mut beats = interval(pulse.heartbeat());
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        beats.tick().await;
        match sender.try_send(pulse.beat()) {
            // What waits there will be heard as well.
            Ok(()) | Err(mpsc::error::TrySendError::Full(_)) => {}
            Err(mpsc::error::TrySendError::Closed(_)) => return,
        }
    }
}

async fn connect(address: &str) -> Result<Channel, Ended> {
    let endpoint = Endpoint::from_shared(format!("http://{address}"))
        .map_err(|error| Ended::BadAddress(address.to_owned(), error.to_string()))?
        .connect_timeout(CONNECT_DEADLINE)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE)
        .keep_alive_while_idle(true);
    let not_connected = |cause: String| Ended::NotConnected(address.to_owned(), cause);
    match timeout(CONNECT_DEADLINE, endpoint.connect()).await {
        Ok(Ok(channel)) => Ok(channel),
        Ok(Err(error)) => Err(not_connected(chain(&error))),
        Err(_) => Err(not_connected(format!(
            "no answer within {CONNECT_DEADLINE:?}"
        ))),
    }
}

async fn send(sender: &mpsc::Sender<WorkerReport>, builder: &mut Builder) -> Result<(), Ended> {
    for report in builder.reports(Instant::now()) {
        match timeout(SEND_DEADLINE, sender.send(report)).await {
            Ok(Ok(())) => metrics::reported("sent"),
            Ok(Err(_)) => return Err(Ended::Closed),
            Err(_) => return Err(Ended::TooSlow(SEND_DEADLINE)),
        }
    }
    Ok(())
}

fn refused(status: Status) -> Ended {
    Ended::Refused(Box::new(status))
}
