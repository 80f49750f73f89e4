//! Connections against a broker made of bytes.

use std::{future::Future, sync::Arc, time::Duration};

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use kafka_protocol::messages::{ApiKey, InitProducerIdRequest, SaslHandshakeRequest};
use proptest::prelude::*;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream},
    time::{Instant, sleep, timeout},
};
use tokio_util::task::TaskTracker;

use super::*;
use crate::{code::Class, versions};

/// The other end of a connection.
struct Broker {
    io: DuplexStream,
}

/// A request as the broker sees it.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    api: i16,
    version: i16,
    correlation_id: i32,
    frame_bytes: usize,
}

impl Broker {
    async fn read(&mut self) -> Seen {
        let length = self.io.read_i32().await.expect("a request");
        let mut frame = vec![0; usize::try_from(length).expect("positive")];
        self.io.read_exact(&mut frame).await.expect("a whole one");
        let mut frame = Bytes::from(frame);
        let frame_bytes = frame.len();
        Seen {
            api: frame.get_i16(),
            version: frame.get_i16(),
            correlation_id: frame.get_i32(),
            frame_bytes,
        }
    }

    async fn answer(&mut self, correlation_id: i32, body: &[u8]) {
        let mut frame = BytesMut::new();
        frame.put_i32(i32::try_from(4 + body.len()).expect("small"));
        frame.put_i32(correlation_id);
        frame.put_slice(body);
        self.io.write_all(&frame).await.expect("written");
    }

    /// Answers InitProducerId in version 0 or 1.
    async fn give_id(&mut self, correlation_id: i32, throttle_ms: i32, id: i64) {
        let mut body = BytesMut::new();
        body.put_i32(throttle_ms);
        body.put_i16(0);
        body.put_i64(id);
        body.put_i16(0);
        self.answer(correlation_id, &body).await;
    }
}

fn limits() -> Limits {
    Limits {
        frame_bytes_max: 1 << 16,
        queue_bytes_max: 1 << 10,
        in_flight_max: 8,
        ..Limits::default()
    }
}

fn start(limits: Limits) -> (Connection, Broker, TaskTracker) {
    let (ours, theirs) = tokio::io::duplex(1 << 20);
    let tracker = TaskTracker::new();
    let connection = Connection::start(ours, Arc::from("b:9092"), "us", limits, &tracker);
    connection.set_versions(versions::tests::broker(&[
        (ApiKey::InitProducerId, 0, 1),
        (ApiKey::SaslHandshake, 0, 1),
    ]));
    tracker.close();
    (connection, Broker { io: theirs }, tracker)
}

fn ask() -> InitProducerIdRequest {
    InitProducerIdRequest::default().with_transactional_id(None)
}

fn in_ms(ms: u64) -> Instant {
    Instant::now() + Duration::from_millis(ms)
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(3600), future)
        .await
        .expect("it ends")
}

#[tokio::test(start_paused = true)]
async fn requests_go_out_in_order_before_the_first_answer_comes() {
    let (connection, mut broker, _) = start(limits());
    let mut flying = Vec::new();
    for _ in 0..5 {
        let pending = soon(connection.submit(ask(), in_ms(60_000))).await;
        flying.push(pending.expect("written"));
    }
    let mut seen = Vec::new();
    for _ in 0..5 {
        seen.push(broker.read().await);
    }
    assert!(seen.iter().all(|seen| (seen.api, seen.version) == (22, 1)));
    let ids: Vec<i32> = seen.iter().map(|seen| seen.correlation_id).collect();
    assert!(ids.is_sorted());
    for (id, number) in ids.into_iter().zip(100..) {
        broker.give_id(id, 0, number).await;
    }
    for (pending, number) in flying.into_iter().zip(100..) {
        let answer = soon(pending.answer()).await.expect("an answer");
        assert_eq!(answer.producer_id.0, number);
    }
    assert!(!connection.is_closed());
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_passes_ends_the_connection_for_all_who_wait() {
    let (connection, mut broker, tracker) = start(limits());
    let patient = soon(connection.submit(ask(), in_ms(60_000))).await;
    let hasty = soon(connection.submit(ask(), in_ms(100))).await;
    let begin = Instant::now();
    let fault = soon(hasty.expect("written").answer()).await;
    assert!(
        begin.elapsed() < Duration::from_secs(1),
        "{:?}",
        begin.elapsed()
    );
    let fault = fault.expect_err("late");
    assert_eq!(fault.class(), Class::Refresh);
    assert!(matches!(
        fault,
        Error::Timeout {
            api: "InitProducerId",
            ..
        }
    ));
    let other = soon(patient.expect("written").answer()).await;
    assert_eq!(other.expect_err("the same"), fault);
    assert!(connection.is_closed());
    assert_eq!(soon(connection.closed()).await, fault);
    let later = soon(connection.send(ask(), in_ms(100))).await;
    assert_eq!(later.expect_err("closed"), fault);
    let _first = broker.read().await;
    soon(tracker.wait()).await;
}

#[tokio::test(start_paused = true)]
async fn a_late_answer_is_never_taken_for_another_ones() {
    let (connection, mut broker, _) = start(limits());
    let pending = soon(connection.submit(ask(), in_ms(60_000))).await;
    let seen = broker.read().await;
    broker.give_id(seen.correlation_id + 1, 0, 7).await;
    let fault = soon(pending.expect("written").answer()).await;
    assert!(matches!(fault, Err(Error::Malformed { .. })), "{fault:?}");
    assert!(connection.is_closed());
}

#[tokio::test(start_paused = true)]
async fn a_frame_above_the_limit_ends_the_connection_with_its_reason() {
    let (connection, mut broker, _) = start(limits());
    let pending = soon(connection.submit(ask(), in_ms(60_000))).await;
    broker.read().await;
    broker.io.write_i32(1 << 20).await.expect("written");
    let fault = soon(pending.expect("written").answer()).await;
    let fault = fault.expect_err("too long");
    let text = fault.to_string();
    assert!(
        text.contains("65536") && !text.contains("frame_bytes_max"),
        "{fault}"
    );
    assert_eq!(fault.class(), Class::Terminal);
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_goes_away_is_told_as_such_at_once() {
    let (connection, mut broker, tracker) = start(limits());
    let pending = soon(connection.submit(ask(), in_ms(60_000))).await;
    broker.read().await;
    drop(broker);
    let begin = Instant::now();
    let fault = soon(pending.expect("written").answer()).await;
    assert!(
        matches!(fault, Err(Error::Disconnected { .. })),
        "{fault:?}"
    );
    assert!(begin.elapsed() < Duration::from_millis(10));
    soon(tracker.wait()).await;
}

#[tokio::test(start_paused = true)]
async fn the_tasks_end_with_the_last_handle() {
    let (connection, broker, tracker) = start(limits());
    let other = connection.clone();
    drop(connection);
    assert!(!other.is_closed());
    let pending = soon(other.submit(ask(), in_ms(60_000))).await;
    drop(other);
    let fault = soon(pending.expect("written").answer()).await;
    assert!(fault.is_err());
    soon(tracker.wait()).await;
    drop(broker);
}

#[tokio::test(start_paused = true)]
async fn an_answer_nobody_waits_for_any_more_harms_nobody() {
    let (connection, mut broker, _) = start(limits());
    let given_up = soon(connection.submit(ask(), in_ms(60_000))).await;
    drop(given_up);
    let wanted = soon(connection.submit(ask(), in_ms(60_000))).await;
    for number in [1, 2] {
        let seen = broker.read().await;
        broker.give_id(seen.correlation_id, 0, number).await;
    }
    let answer = soon(wanted.expect("written").answer()).await;
    assert_eq!(answer.expect("an answer").producer_id.0, 2);
}

/// Has the broker ask for 5 s of silence.
async fn ask_for_silence(connection: &Connection, broker: &mut Broker) {
    let pending = soon(connection.submit(ask(), in_ms(60_000))).await;
    let seen = broker.read().await;
    broker.give_id(seen.correlation_id, 5_000, 1).await;
    let _answer = soon(pending.expect("written").answer()).await;
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_asks_for_silence_gets_it() {
    let (connection, mut broker, _) = start(limits());
    ask_for_silence(&connection, &mut broker).await;
    // What cannot wait so long is not sent and leaves the connection as it is.
    let fault = soon(connection.send(ask(), in_ms(1_000))).await;
    assert!(matches!(fault, Err(Error::Throttled { .. })), "{fault:?}");
    assert!(!connection.is_closed());
    let begin = Instant::now();
    let (_pending, seen) = tokio::join!(connection.submit(ask(), in_ms(60_000)), broker.read());
    assert!(
        begin.elapsed() >= Duration::from_millis(4_900),
        "{:?}",
        begin.elapsed()
    );
    assert_eq!(
        seen.correlation_id, 2,
        "the throttled one was never written"
    );
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_nobody_uses_is_closed() {
    let (connection, mut broker, tracker) = start(Limits {
        idle_max: Duration::from_secs(60),
        ..limits()
    });
    sleep(Duration::from_secs(40)).await;
    let pending = soon(connection.submit(ask(), in_ms(60_000))).await;
    let seen = broker.read().await;
    broker.give_id(seen.correlation_id, 0, 1).await;
    let _answer = soon(pending.expect("written").answer()).await;
    sleep(Duration::from_secs(40)).await;
    assert!(!connection.is_closed(), "it was used");
    sleep(Duration::from_secs(30)).await;
    assert!(connection.is_closed());
    soon(tracker.wait()).await;
}

#[tokio::test(start_paused = true)]
async fn held_requests_wait_for_authentication_and_none_is_lost() {
    let (connection, mut broker, _) = start(limits());
    connection.hold();
    let ordinary = tokio::spawn({
        let connection = connection.clone();
        async move { connection.send(ask(), in_ms(60_000)).await }
    });
    sleep(Duration::from_millis(10)).await;
    let proof = connection.submit_as(
        SaslHandshakeRequest::default(),
        1,
        in_ms(60_000),
        Lane::Privileged,
    );
    let (_proof, seen) = tokio::join!(proof, broker.read());
    assert_eq!(seen.api, 17, "authentication goes first");
    broker
        .answer(seen.correlation_id, &[0, 0, 0, 0, 0, 0])
        .await;
    let quiet = timeout(Duration::from_secs(1), broker.read()).await;
    assert!(quiet.is_err(), "nothing is written during the hold");
    connection.release();
    let seen = soon(broker.read()).await;
    assert_eq!(seen.api, 22);
    broker.give_id(seen.correlation_id, 0, 9).await;
    let answer = soon(ordinary).await.expect("no panic");
    assert_eq!(answer.expect("an answer").producer_id.0, 9);
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_time_is_over_during_a_hold_is_told_then_and_never_written() {
    let (connection, mut broker, _) = start(limits());
    connection.hold();
    let begin = Instant::now();
    let patient = connection.submit(ask(), in_ms(60_000));
    let hasty = connection.submit(ask(), in_ms(500));
    let released = async {
        let fault = timeout(Duration::from_secs(5), hasty).await;
        let fault = fault.expect("in time").expect_err("held");
        assert!(matches!(fault, Error::Timeout { .. }), "{fault:?}");
        assert_eq!(begin.elapsed().as_secs(), 0);
        assert!(!connection.is_closed(), "nothing of it was written");
        connection.release();
    };
    let (patient, ()) = tokio::join!(patient, released);
    let seen = broker.read().await;
    broker.give_id(seen.correlation_id, 0, 3).await;
    let answer = soon(patient.expect("written").answer()).await;
    assert_eq!(answer.expect("an answer").producer_id.0, 3);
    let quiet = timeout(Duration::from_secs(1), broker.read()).await;
    assert!(quiet.is_err(), "the other one was withdrawn");
}

#[tokio::test(start_paused = true)]
async fn a_request_behind_one_that_waits_for_silence_has_its_own_deadline() {
    let (connection, mut broker, _) = start(limits());
    ask_for_silence(&connection, &mut broker).await;
    let begin = Instant::now();
    let patient = connection.submit(ask(), in_ms(60_000));
    let hasty = async {
        let fault = connection.send(ask(), in_ms(1_000)).await;
        (fault, begin.elapsed())
    };
    let (patient, (fault, waited)) = tokio::join!(patient, hasty);
    assert!(matches!(fault, Err(Error::Throttled { .. })), "{fault:?}");
    assert!(waited < Duration::from_secs(2), "{waited:?}");
    assert!(patient.is_ok() && !connection.is_closed(), "{patient:?}");
}

#[tokio::test(start_paused = true)]
async fn authentication_finds_a_place_when_all_are_taken() {
    let (connection, mut broker, _) = start(Limits {
        in_flight_max: 1,
        ..limits()
    });
    let _first = soon(connection.submit(ask(), in_ms(60_000))).await;
    connection.hold();
    let proof = SaslHandshakeRequest::default();
    let proof = connection.submit_as(proof, 1, in_ms(1_000), Lane::Privileged);
    assert!(soon(proof).await.is_ok());
    assert_eq!((broker.read().await.api, broker.read().await.api), (22, 17));
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_reads_nothing_holds_up_its_own_requests_alone() {
    let (ours, _theirs) = tokio::io::duplex(16);
    let tracker = TaskTracker::new();
    let connection = Connection::start(ours, Arc::from("b:9092"), "us", limits(), &tracker);
    connection.set_versions(versions::tests::broker(&[(ApiKey::InitProducerId, 0, 1)]));
    let fault = soon(connection.send(ask(), in_ms(500))).await;
    assert!(matches!(fault, Err(Error::Timeout { .. })), "{fault:?}");
}

#[tokio::test(start_paused = true)]
async fn more_requests_than_allowed_wait_for_a_place() {
    let (connection, mut broker, _) = start(Limits {
        in_flight_max: 2,
        ..limits()
    });
    let first = soon(connection.submit(ask(), in_ms(60_000))).await;
    let _second = soon(connection.submit(ask(), in_ms(60_000))).await;
    let third = soon(connection.submit(ask(), in_ms(100))).await;
    assert!(matches!(third, Err(Error::Timeout { .. })), "{third:?}");
    assert!(!connection.is_closed(), "nothing of it was sent");
    let seen = broker.read().await;
    broker.give_id(seen.correlation_id, 0, 1).await;
    let _answer = soon(first.expect("written").answer()).await;
    let fourth = soon(connection.submit(ask(), in_ms(100))).await;
    assert!(fourth.is_ok(), "{fourth:?}");
}

#[tokio::test(start_paused = true)]
async fn what_a_broker_lacks_is_an_error_that_names_it() {
    let (connection, _broker, _) = start(limits());
    assert!(connection.supports::<InitProducerIdRequest>());
    type Lacking = kafka_protocol::messages::DescribeProducersRequest;
    assert!(!connection.supports::<Lacking>());
    let fault = soon(connection.send(Lacking::default(), in_ms(100))).await;
    let text = fault.expect_err("lacking").to_string();
    assert!(
        text.contains("DescribeProducers") && text.contains("b:9092"),
        "{text}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn hostile_bytes_end_the_connection_with_an_error(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let (connection, mut broker, tracker) = start(limits());
            let pending = soon(connection.submit(ask(), in_ms(1_000))).await;
            broker.io.write_all(&bytes).await.expect("written");
            let outcome = soon(pending.expect("written").answer()).await;
            // Only the one right number could make an answer of it.
            if outcome.is_ok() {
                prop_assert_eq!(&bytes[4..8], &[0, 0, 0, 1]);
            }
            drop(connection);
            soon(tracker.wait()).await;
            Ok(())
        })?;
    }
}

/// A stream whose other end breaks us.
struct Breaking;

impl tokio::io::AsyncRead for Breaking {
    fn poll_read(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
        _: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        panic!("this byte was thought impossible")
    }
}

impl tokio::io::AsyncWrite for Breaking {
    fn poll_write(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
        bytes: &[u8],
    ) -> std::task::Poll<std::io::Result<usize>> {
        std::task::Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn poll_shutdown(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::task::Poll::Ready(Ok(()))
    }
}

/// Notes the names of tasks that panic.
#[derive(Debug, Clone, Default)]
struct Noting(Arc<Mutex<Vec<&'static str>>>);

impl Tasks for Noting {
    fn spawn(&self, name: &'static str, work: futures::future::BoxFuture<'static, ()>) {
        let broken = Arc::clone(&self.0);
        drop(tokio::spawn(async move {
            if tokio::spawn(work).await.is_err() {
                broken.lock().expect("no panic").push(name);
            }
        }));
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_breaks_ends_for_all_who_wait_and_whoever_runs_it_is_told() {
    let tasks = Noting::default();
    let connection = Connection::start(Breaking, Arc::from("b:9092"), "us", limits(), &tasks);
    connection.set_versions(versions::tests::broker(&[(ApiKey::InitProducerId, 0, 1)]));
    let fault = soon(connection.send(ask(), in_ms(3_000_000))).await;
    let Err(Error::Disconnected { cause, .. }) = fault else {
        panic!("{fault:?}");
    };
    assert_eq!(cause, "a part of it broke");
    let began = Instant::now();
    while tasks.0.lock().expect("no panic").is_empty() {
        assert!(began.elapsed() < Duration::from_secs(1));
        sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(
        *tasks.0.lock().expect("no panic"),
        ["the reading of a connection"]
    );
}
