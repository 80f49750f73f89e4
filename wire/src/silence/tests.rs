//! On real sockets of this machine. A machine that vanishes cannot be had without rights over the network:
//! what the system makes of these options then was measured by hand (see the record of the decision).

use std::{net::SocketAddr, sync::Arc, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpSocket, TcpStream},
    time::{sleep, timeout},
};
use tokio_util::task::TaskTracker;

use super::*;
use crate::connection::Connection;

const SILENCE: Duration = Duration::from_secs(5);

async fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    (listener, address)
}

#[tokio::test]
async fn the_system_is_asked_so_that_silence_is_noticed_in_the_time_given() {
    let (_listener, address) = listener().await;
    let stream = TcpStream::connect(address).await.expect("a listener");
    for (silence, time, interval) in [(5, 2, 1), (10, 4, 2), (60, 24, 12)] {
        configure(&stream, Duration::from_secs(silence), Sends::Little);
        let socket = SockRef::from(&stream);
        let set = (
            socket.keepalive().expect("readable"),
            socket.tcp_keepalive_time().expect("readable").as_secs(),
            socket.tcp_keepalive_interval().expect("readable").as_secs(),
            socket.tcp_keepalive_retries().expect("readable"),
        );
        assert_eq!(set, (true, time, interval, 3));
        assert!(time + 3 * interval <= silence);
        assert!(stream.nodelay().expect("readable"));
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn only_small_requests_are_limited_in_how_long_they_stay_unacknowledged() {
    let (_listener, address) = listener().await;
    let stream = TcpStream::connect(address).await.expect("a listener");
    for (sends, limit) in [(Sends::Little, Some(SILENCE)), (Sends::Much, None)] {
        configure(&stream, SILENCE, sends);
        let set = SockRef::from(&stream).tcp_user_timeout();
        assert_eq!(set.expect("readable"), limit, "{sends:?}");
    }
}

/// The case that forbids `TCP_USER_TIMEOUT` where much is sent: with it this ends after a good second.
#[tokio::test]
async fn a_broker_that_takes_nothing_for_longer_is_not_taken_for_gone() {
    let (listener, address) = listener().await;
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_send_buffer_size(16 << 10).expect("allowed");
    let mut stream = socket.connect(address).await.expect("a listener");
    configure(&stream, Duration::from_secs(1), Sends::Much);
    let (mut theirs, _) = listener.accept().await.expect("a client");
    let all = vec![7; 16 << 20];
    let writing = stream.write_all(&all);
    tokio::pin!(writing);
    let early = timeout(Duration::from_secs(3), &mut writing).await;
    assert!(early.is_err(), "there is no room for all: {early:?}");
    let reading = async {
        let mut read = vec![0; all.len()];
        theirs.read_exact(&mut read).await.map(|_| ())
    };
    let (written, read) = tokio::join!(writing, reading);
    assert!(written.is_ok() && read.is_ok(), "{written:?} {read:?}");
}

fn connection() -> (Connection, tokio::io::DuplexStream) {
    let (ours, theirs) = tokio::io::duplex(1 << 10);
    let tracker = TaskTracker::new();
    let limits = Limits::default();
    let connection = Connection::start(ours, Arc::from("b:9092"), "us", limits, &tracker);
    (connection, theirs)
}

#[tokio::test]
async fn a_witness_that_is_closed_says_nothing_and_comes_again() {
    let (listener, address) = listener().await;
    let (connection, _theirs) = connection();
    let limits = Limits {
        silence_max: Duration::from_millis(20),
        ..Limits::default()
    };
    let watching = watch(address, limits, connection.downgrade(), connection.ended());
    let watching = tokio::spawn(watching);
    for _ in 0..3 {
        let coming = timeout(Duration::from_secs(20), listener.accept()).await;
        drop(coming.expect("in time").expect("a witness"));
    }
    // Nor does one that cannot come.
    drop(listener);
    sleep(Duration::from_millis(100)).await;
    assert!(!connection.is_closed());
    connection.close("enough");
    let over = timeout(Duration::from_secs(20), watching).await;
    over.expect("it ends with the connection")
        .expect("no panic");
}

#[test]
fn an_end_without_a_word_of_the_other_machine_is_silence_and_a_word_of_it_is_none() {
    use io::ErrorKind::{
        BrokenPipe, ConnectionAborted, ConnectionRefused, ConnectionReset, HostUnreachable,
        NetworkUnreachable, TimedOut,
    };
    for kind in [TimedOut, HostUnreachable, NetworkUnreachable] {
        assert!(is_silence(&kind.into()), "{kind}");
    }
    for kind in [
        BrokenPipe,
        ConnectionAborted,
        ConnectionRefused,
        ConnectionReset,
    ] {
        assert!(!is_silence(&kind.into()), "{kind}");
    }
}
