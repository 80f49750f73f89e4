//! The HTTP port under callers that send nothing, too little, or too many at once.

use std::{net::SocketAddr, time::Duration};

use axum::{Router, routing::get};
use kreplicator_service::http::{Limits, serve};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

/// Longer than anything here may take.
const LIMIT: Duration = Duration::from_secs(20);

struct Port {
    address: SocketAddr,
    shutdown: CancellationToken,
    task: JoinHandle<std::io::Result<()>>,
}

impl Port {
    async fn open(limits: Limits) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let shutdown = CancellationToken::new();
        let router = Router::new()
            .route("/", get(|| async { "fine" }))
            .route("/never", get(std::future::pending::<&str>));
        let task = tokio::spawn(serve(listener, router, limits, shutdown.clone()));
        Self {
            address,
            shutdown,
            task,
        }
    }

    /// A connection on which this much was sent.
    async fn send(&self, text: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.expect("it listens");
        stream.write_all(text.as_bytes()).await.expect("open");
        stream
    }

    async fn get(&self) -> String {
        let request = "GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
        let mut stream = self.send(request).await;
        let mut answer = String::new();
        timeout(LIMIT, stream.read_to_string(&mut answer))
            .await
            .expect("answered in time")
            .expect("text");
        answer
    }

    async fn half_open(&self, count: usize) -> Vec<TcpStream> {
        let mut streams = Vec::with_capacity(count);
        for _ in 0..count {
            streams.push(self.send("GET / HTTP/1.1\r\nhost:").await);
        }
        streams
    }
}

/// Waits until the other side closes the connection.
async fn closed(stream: &mut TcpStream) {
    let mut rest = Vec::new();
    let end = timeout(LIMIT, stream.read_to_end(&mut rest)).await;
    // Closed or reset, with or without a word: it is gone.
    drop(end.expect("dropped in time"));
}

#[tokio::test]
async fn half_open_requests_are_dropped_in_time_while_a_good_one_is_answered() {
    let port = Port::open(Limits {
        connections: 1_000,
        head_timeout: Duration::from_secs(2),
        ..Limits::default()
    })
    .await;
    let mut hanging = port.half_open(300).await;
    assert!(port.get().await.ends_with("fine"));
    for stream in &mut hanging {
        closed(stream).await;
    }
    assert!(port.get().await.ends_with("fine"));
}

#[tokio::test]
async fn at_the_limit_the_oldest_connection_makes_way() {
    let port = Port::open(Limits {
        connections: 32,
        head_timeout: 10 * LIMIT,
        ..Limits::default()
    })
    .await;
    let mut hanging = port.half_open(300).await;
    assert!(port.get().await.ends_with("fine"));
    for stream in &mut hanging[..300 - 32] {
        closed(stream).await;
    }
    // One was dropped for the good request; the newest are kept.
    let newest = hanging.last_mut().expect("300");
    newest.write_all(b" x\r\n\r\n").await.expect("open");
    let mut head = [0; 12];
    let read = timeout(LIMIT, newest.read_exact(&mut head)).await;
    read.expect("answered in time").expect("an answer");
    assert_eq!(&head, b"HTTP/1.1 200");
}

#[tokio::test]
async fn a_shutdown_waits_for_nobody_for_long() {
    let port = Port::open(Limits {
        head_timeout: 10 * LIMIT,
        drain_grace: Duration::from_millis(200),
        ..Limits::default()
    })
    .await;
    let hanging = port.half_open(3).await;
    let unanswered = port.send("GET /never HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert!(port.get().await.ends_with("fine"));
    port.shutdown.cancel();
    let ended = timeout(LIMIT, port.task).await.expect("in time");
    ended.expect("no panic").expect("no fault");
    drop((hanging, unanswered));
}
