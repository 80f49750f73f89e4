use kreplicator_proto::v1;

use super::*;

fn client(timeout: Duration) -> Client {
    let target: Target = "127.0.0.1:1".parse().expect("an endpoint");
    Client::new(&[target.clone(), target], timeout)
}

#[tokio::test(start_paused = true)]
async fn c112_unavailable_is_repeated_until_it_is_done() {
    let tries = AtomicUsize::new(0);
    let answer = client(Duration::from_secs(10))
        .call(|_| async {
            match tries.fetch_add(1, Ordering::Relaxed) {
                0..5 => Err(Status::unavailable("not yet")),
                _ => Ok(Response::new(7)),
            }
        })
        .await;
    assert_eq!(answer.expect("done"), 7);
    assert_eq!(tries.load(Ordering::Relaxed), 6);
}

#[tokio::test(start_paused = true)]
async fn refusals_are_not_repeated() {
    let tries = AtomicUsize::new(0);
    let answer = client(Duration::from_secs(10))
        .call(|_| async {
            tries.fetch_add(1, Ordering::Relaxed);
            Err::<Response<()>, _>(Status::not_found("link \"x\" does not exist"))
        })
        .await;
    let failure = answer.expect_err("refused");
    assert_eq!(failure.to_string(), "link \"x\" does not exist");
    assert_eq!(tries.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn c110_a_call_without_answer_ends_at_the_deadline() {
    let started = Instant::now();
    let answer = client(Duration::from_secs(3))
        .call(|_| std::future::pending::<Result<Response<()>, Status>>())
        .await;
    let failure = answer.expect_err("no answer");
    assert!(matches!(failure, Failure::Unreachable(_)), "{failure:?}");
    assert!(failure.to_string().contains("--endpoint"), "{failure}");
    assert_eq!(started.elapsed(), Duration::from_secs(3));
}

async fn status_of(address: std::net::SocketAddr, timeout: Duration) -> String {
    let target: Target = address.to_string().parse().expect("an endpoint");
    let client = Client::new(&[target], timeout);
    let answer = client.call(|attempt| async move {
        let mut grpc =
            kreplicator_proto::v1::status_client::StatusClient::new(attempt.channel.clone());
        let request = attempt.request(kreplicator_proto::v1::GetStatusRequest {});
        grpc.get_status(request).await
    });
    let failure = answer.await.expect_err("no controller is there");
    assert!(matches!(failure, Failure::Unreachable(_)), "{failure:?}");
    failure.to_string()
}

/// Answers each connection with these bytes.
fn stranger_that_says(bytes: &'static [u8]) -> (std::net::SocketAddr, impl Drop) {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.set_nonblocking(true).expect("a listener");
    let address = listener.local_addr().expect("an address");
    let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
    let serve = tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let mut request = [0; 1024];
            if socket.read(&mut request).await.is_ok() && socket.write_all(bytes).await.is_ok() {
                // What follows is read, so that nothing is reset before the answer was.
                while socket.read(&mut request).await.is_ok_and(|read| read > 0) {}
            }
        }
    });
    (address, tokio_util::task::AbortOnDropHandle::new(serve))
}

#[tokio::test]
async fn a_port_that_is_no_controllers_is_named_with_the_remedy() {
    for says in [
        b"HTTP/1.1 400 Bad Request\r\n\r\n".as_slice(),
        b"\x00\x00\x00\x10 something else entirely",
    ] {
        let (address, _serving) = stranger_that_says(says);
        let shown = status_of(address, Duration::from_secs(5)).await;
        assert!(shown.contains(&address.to_string()), "{shown}");
        assert!(shown.contains("--endpoint"), "{shown}");
    }
}

#[tokio::test]
async fn c110_a_port_that_stays_silent_is_told_apart_from_a_wrong_one() {
    let (address, _serving) = stranger_that_says(b"");
    let shown = status_of(address, Duration::from_millis(300)).await;
    assert!(
        shown.contains("no controller answered within 300ms"),
        "{shown}"
    );
    assert!(shown.contains("no answer in time"), "{shown}");
}

/// A controller that answers `GetStatus`, after a while.
#[derive(Debug)]
struct Answering(Duration);

#[tonic::async_trait]
impl v1::status_server::Status for Answering {
    async fn get_status(
        &self,
        _request: Request<v1::GetStatusRequest>,
    ) -> Result<Response<v1::StatusResponse>, Status> {
        tokio::time::sleep(self.0).await;
        Ok(Response::new(v1::StatusResponse::default()))
    }

    async fn list_tasks(
        &self,
        _request: Request<v1::ListTasksRequest>,
    ) -> Result<Response<v1::ListTasksResponse>, Status> {
        Err(Status::unimplemented("not asked for"))
    }
}

async fn controller_that_takes(time: Duration) -> (std::net::SocketAddr, impl Drop) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let address = listener.local_addr().expect("an address");
    let service = v1::status_server::StatusServer::new(Answering(time));
    let incoming = tonic::transport::server::TcpIncoming::from(listener);
    let server = tonic::transport::Server::builder()
        .add_service(service)
        .serve_with_incoming(incoming);
    (
        address,
        tokio_util::task::AbortOnDropHandle::new(tokio::spawn(server)),
    )
}

/// Ends each connection at once.
async fn port_that_takes_nobody() -> (std::net::SocketAddr, impl Drop) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let address = listener.local_addr().expect("an address");
    let serve = tokio::spawn(async move { while listener.accept().await.is_ok() {} });
    (address, tokio_util::task::AbortOnDropHandle::new(serve))
}

fn client_of(addresses: &[std::net::SocketAddr], timeout: Duration) -> Client {
    let targets = addresses.iter().map(|address| address.to_string().parse());
    let targets: Vec<Target> = targets.collect::<Result<_, _>>().expect("endpoints");
    Client::new(&targets, timeout)
}

async fn get_status(client: &Client) -> Result<v1::StatusResponse, Failure> {
    let call = client.call(|attempt| async move {
        let mut grpc = v1::status_client::StatusClient::new(attempt.channel.clone());
        grpc.get_status(attempt.request(v1::GetStatusRequest {}))
            .await
    });
    call.await
}

#[tokio::test]
async fn a_silent_controller_is_passed_over_for_one_that_answers() {
    let (silent, _silent) = stranger_that_says(b"");
    let (answering, _answering) = controller_that_takes(Duration::ZERO).await;
    let timeout = Duration::from_secs(9);
    let client = client_of(&[silent, answering], timeout);
    get_status(&client).await.expect("the second one answers");
    let begun = Instant::now();
    get_status(&client.clone())
        .await
        .expect("it is asked first");
    assert!(
        begun.elapsed() < patience(timeout, 2),
        "{:?}",
        begun.elapsed()
    );
}

#[tokio::test]
async fn a_slow_controller_is_waited_for() {
    let timeout = Duration::from_secs(6);
    let time = patience(timeout, 2) + Duration::from_secs(1);
    let (slow, _slow) = controller_that_takes(time).await;
    let (silent, _silent) = stranger_that_says(b"");
    let client = client_of(&[slow, silent], timeout);
    get_status(&client).await.expect("answered in the end");
    assert_eq!(client.answered.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn strangers_and_full_ports_are_passed_over_too() {
    let (stranger, _stranger) = stranger_that_says(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    let (full, _full) = port_that_takes_nobody().await;
    let (answering, _answering) = controller_that_takes(Duration::ZERO).await;
    let client = client_of(&[stranger, full, answering], Duration::from_secs(30));
    get_status(&client).await.expect("the third one answers");
}

#[tokio::test]
async fn the_end_names_each_address_and_what_it_did() {
    let (silent, _silent) = stranger_that_says(b"");
    let (stranger, _stranger) = stranger_that_says(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    let (full, _full) = port_that_takes_nobody().await;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let closed = listener.local_addr().expect("an address");
    drop(listener);
    let client = client_of(&[silent, stranger, full, closed], Duration::from_secs(4));
    let shown = get_status(&client).await.expect_err("nobody").to_string();
    assert!(
        shown.starts_with("no controller answered within 4s: "),
        "{shown}"
    );
    assert!(
        shown.ends_with("; start one, or name it with --endpoint"),
        "{shown}"
    );
    for did in [
        format!("{silent}: no answer in time; "),
        format!("{stranger} does not answer as a controller does ("),
        format!("{full}: "),
        format!("{closed}: Connection refused"),
    ] {
        assert!(shown.contains(&did), "{did:?} in {shown}");
    }
}

#[tokio::test]
async fn a_closed_port_is_named_with_its_cause() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    drop(listener);
    let target: Target = address.to_string().parse().expect("an endpoint");
    let client = Client::new(&[target], Duration::from_millis(300));
    let answer = client
        .call(|attempt| async move {
            let mut grpc =
                kreplicator_proto::v1::status_client::StatusClient::new(attempt.channel.clone());
            let request = attempt.request(kreplicator_proto::v1::GetStatusRequest {});
            grpc.get_status(request).await
        })
        .await;
    let shown = answer.expect_err("closed").to_string();
    assert!(shown.contains(&address.to_string()), "{shown}");
    assert!(shown.contains("refused"), "{shown}");
}
