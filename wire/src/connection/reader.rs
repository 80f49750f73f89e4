//! The reading half: gives each answer to the request it belongs to, and ends the connection when
//! a deadline passes, when nobody has used it for long, or when the broker breaks the protocol.

use std::sync::Arc;

use bytes::Bytes;
use kafka_protocol::{messages::ResponseHeader, protocol::Decodable as _};
use tokio::{
    io::AsyncRead,
    time::{Instant, sleep_until},
};

use super::{Shared, waiting::Waiter};
use crate::{
    error::Error,
    frame::{FrameReader, ReadError},
    silence, tls,
};

/// What the reader waits for beside answers.
#[derive(Debug, Clone, Copy)]
enum Alarm {
    /// The answer of this call.
    Answer(&'static str),
    /// Anybody to use the connection.
    Use,
}

/// Reads answers until the connection ends.
pub(super) async fn run<R>(mut io: R, shared: Arc<Shared>)
where
    R: AsyncRead + Send + Unpin,
{
    let mut frames = FrameReader::new(shared.limits.frame_bytes_max);
    loop {
        let (at, alarm) = next_alarm(&shared);
        tokio::select! {
            biased;
            () = shared.ended.cancelled() => return,
            frame = frames.next(&mut io) => {
                if let Err(fault) = frame
                    .map_err(|fault| read_fault(&shared, &fault))
                    .and_then(|frame| deliver(&shared, frame))
                {
                    shared.end(|_| fault);
                    return;
                }
            }
            () = shared.waiting.changed() => {}
            () = sleep_until(at) => {
                ring(&shared, alarm);
            }
        }
    }
}

fn next_alarm(shared: &Shared) -> (Instant, Alarm) {
    if let Some((deadline, name)) = shared.waiting.earliest() {
        return (deadline, Alarm::Answer(name));
    }
    let since = shared.waiting.idle_since().unwrap_or_else(Instant::now);
    (since + shared.limits.idle_max, Alarm::Use)
}

/// Ends the connection when what was waited for did not come.
fn ring(shared: &Shared, alarm: Alarm) {
    match alarm {
        Alarm::Answer(api) => {
            let passed = shared.waiting.earliest();
            if passed.is_some_and(|(deadline, _)| deadline <= Instant::now()) {
                shared.end(|broker| Error::Timeout { broker, api });
            }
        }
        Alarm::Use => {
            if shared.waiting.earliest().is_none() {
                shared.end(|broker| Error::Disconnected {
                    broker,
                    cause: "not used for long".to_owned(),
                });
            }
        }
    }
}

fn read_fault(shared: &Shared, fault: &ReadError) -> Error {
    let broker = Arc::clone(&shared.broker);
    match fault {
        ReadError::Oversize { announced } => Error::Oversize {
            broker,
            bytes: *announced,
            limit: shared.limits.frame_bytes_max as u64,
        },
        // With TLS 1.3 a broker refuses our certificate only now.
        ReadError::Io(cause) if tls::is_tls(cause) => Error::Tls {
            broker,
            cause: cause.to_string(),
        },
        ReadError::Io(cause) if silence::is_silence(cause) => Error::Silent { broker },
        ReadError::Closed | ReadError::Io(_) => Error::Disconnected {
            broker,
            cause: fault.to_string(),
        },
    }
}

/// Gives a frame to the request that is next.
fn deliver(shared: &Shared, mut frame: Bytes) -> Result<(), Error> {
    let malformed = |api, cause: String| Error::Malformed {
        broker: Arc::clone(&shared.broker),
        api,
        cause,
    };
    let Some((expected, waiter)) = shared.waiting.pop() else {
        return Err(malformed("nothing", "nobody asked".to_owned()));
    };
    match header(&mut frame, &waiter) {
        Ok(correlation_id) if correlation_id == expected => {
            waiter.answer(Ok(frame));
            Ok(())
        }
        Ok(found) => {
            let cause = format!("it is the answer to request {found}, not {expected}");
            let fault = malformed(waiter.name, cause);
            waiter.answer(Err(fault.clone()));
            Err(fault)
        }
        Err(cause) => {
            let fault = malformed(waiter.name, cause);
            waiter.answer(Err(fault.clone()));
            Err(fault)
        }
    }
}

/// Cuts the header off and returns the correlation id in it.
fn header(frame: &mut Bytes, waiter: &Waiter) -> Result<i32, String> {
    let header = ResponseHeader::decode(frame, waiter.header_version())
        .map_err(|fault| format!("its header is malformed: {fault}"))?;
    Ok(header.correlation_id)
}
