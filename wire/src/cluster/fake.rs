//! A broker for tests: real sockets, answers from a function.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use kafka_protocol::{
    messages::{ApiKey, ApiVersionsResponse, RequestHeader, api_versions_response::ApiVersion},
    protocol::{Decodable as _, Encodable},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

/// What a broker says to a request: None: nothing at all.
type Answers = dyn Fn(ApiKey, i16, Bytes) -> Option<Bytes> + Send + Sync;

/// A running broker; it ends when dropped.
pub(crate) struct FakeBroker {
    address: SocketAddr,
    requests: Arc<AtomicUsize>,
    _serving: JoinSet<()>,
}

/// The body of an answer.
pub(crate) fn body(answer: &impl Encodable, version: i16) -> Bytes {
    let mut body = BytesMut::new();
    answer.encode(&mut body, version).expect("legal");
    body.freeze()
}

impl FakeBroker {
    /// Speaks the APIs given, up to these versions, like brokers before ApiVersions 3.
    pub(crate) async fn start(
        speaks: &'static [(ApiKey, i16)],
        answers: impl Fn(ApiKey, i16, Bytes) -> Option<Bytes> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let requests = Arc::new(AtomicUsize::new(0));
        let answers: Arc<Answers> = Arc::new(answers);
        let mut serving = JoinSet::new();
        let seen = Arc::clone(&requests);
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.expect("a client");
                let (answers, seen) = (Arc::clone(&answers), Arc::clone(&seen));
                connections.spawn(async move {
                    // Clients leave when they like.
                    let _end = serve(stream, speaks, &*answers, &seen).await;
                });
            }
        });
        Self {
            address,
            requests,
            _serving: serving,
        }
    }

    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    pub(crate) fn port(&self) -> i32 {
        i32::from(self.address.port())
    }

    /// Requests seen so far, ApiVersions aside.
    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }
}

async fn serve(
    mut stream: TcpStream,
    speaks: &'static [(ApiKey, i16)],
    answers: &Answers,
    requests: &AtomicUsize,
) -> std::io::Result<()> {
    loop {
        let length = stream.read_i32().await?;
        let mut frame = vec![0; usize::try_from(length).expect("positive")];
        stream.read_exact(&mut frame).await?;
        let mut frame = Bytes::from(frame);
        let (mut api, mut version) = (&frame[..2], &frame[2..4]);
        let (api, version) = (api.get_i16(), version.get_i16());
        let api = ApiKey::try_from(api).expect("known");
        let header = RequestHeader::decode(&mut frame, api.request_header_version(version))
            .expect("a header");
        let answer = if api == ApiKey::ApiVersions {
            Some(versions(speaks, version))
        } else {
            requests.fetch_add(1, Ordering::Relaxed);
            answers(api, version, frame)
        };
        let Some(answer) = answer else {
            continue;
        };
        let mut reply = BytesMut::new();
        reply.put_i32(header.correlation_id);
        if api.response_header_version(version) > 0 {
            reply.put_u8(0);
        }
        reply.put_slice(&answer);
        stream
            .write_i32(i32::try_from(reply.len()).expect("small"))
            .await?;
        stream.write_all(&reply).await?;
    }
}

fn versions(speaks: &[(ApiKey, i16)], version: i16) -> Bytes {
    if version > 2 {
        // What follows the code is no list.
        return Bytes::from_static(&[0, 35, 0, 0, 0, 9, 1]);
    }
    let apis = speaks.iter().map(|(api, max)| {
        ApiVersion::default()
            .with_api_key(*api as i16)
            .with_max_version(*max)
    });
    let answer = ApiVersionsResponse::default().with_api_keys(apis.collect());
    body(&answer, version)
}
