//! A TCP proxy in this process that does what networks do: cut, refuse, delay, swallow, and be narrow.
//!
//! Put it in front of any address. A black hole is silent: new connections are accepted and
//! established ones stay open, but nothing passes, as if every packet were dropped. When it is
//! lifted what waited goes on, as TCP does after an outage.

use std::{
    io,
    net::SocketAddr,
    num::NonZeroU64,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, Result};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{mpsc, watch},
    time::{Instant, sleep_until},
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::ports;

const CHUNK_BYTES: usize = 64 << 10;
/// Chunks under way in one direction of one connection: enough that a delay of 100 ms leaves room for
/// 100 MB/s even of half-filled chunks.
const CHUNKS_MAX: usize = 512;
const BIND_DEADLINE: Duration = Duration::from_secs(10);

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From those who connect to the target.
    ToTarget,
    /// Back from the target.
    FromTarget,
}

const BOTH: [Direction; 2] = [Direction::ToTarget, Direction::FromTarget];

/// How the network behaves, by direction where it differs.
#[derive(Debug, Clone, Copy, Default)]
struct Weather {
    refuse: bool,
    swallow: [bool; 2],
    delay: [Duration; 2],
    bytes_per_second: [Option<NonZeroU64>; 2],
}

/// A running proxy. Dropping it closes its port and every connection.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    listening: watch::Receiver<bool>,
    _accept: AbortOnDropHandle<()>,
}

#[derive(Debug)]
struct Shared {
    weather: watch::Sender<Weather>,
    target: Mutex<String>,
    /// Cancelled and replaced by every cut.
    cut: Mutex<CancellationToken>,
    accepted: AtomicU64,
    open: AtomicU64,
    bytes: [AtomicU64; 2],
    /// When what is under way each way has been sent, where that takes time.
    busy_until: [Mutex<Option<Instant>>; 2],
}

impl Proxy {
    /// Starts on a free port in front of `target` (`host:port`).
    ///
    /// # Errors
    /// When no port can be bound.
    pub async fn start(target: impl ToString) -> Result<Self> {
        let mut last = None;
        for _ in 0..10 {
            match Self::start_on(ports::free()?, target.to_string()).await {
                Ok(proxy) => return Ok(proxy),
                Err(error) => last = Some(error),
            }
        }
        Err(last.context("no attempt was made")?)
    }

    /// Starts on the given port of 127.0.0.1 in front of `target` (`host:port`).
    ///
    /// # Errors
    /// When the port cannot be bound.
    pub async fn start_on(port: u16, target: impl ToString) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", port))
            .await
            .with_context(|| format!("cannot bind proxy port {port}"))?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            weather: watch::Sender::new(Weather::default()),
            target: Mutex::new(target.to_string()),
            cut: Mutex::new(CancellationToken::new()),
            accepted: AtomicU64::new(0),
            open: AtomicU64::new(0),
            bytes: [AtomicU64::new(0), AtomicU64::new(0)],
            busy_until: [Mutex::new(None), Mutex::new(None)],
        });
        let (listening_sender, listening) = watch::channel(true);
        let accept = tokio::spawn(accept(Arc::clone(&shared), listener, listening_sender));
        Ok(Self {
            address,
            shared,
            listening,
            _accept: AbortOnDropHandle::new(accept),
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The same as a URL, as etcd's clients want it.
    #[must_use]
    pub fn http_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Lets everything through again, at full speed. Connections that stalled go on.
    pub async fn pass(&self) {
        self.shared.weather.send_replace(Weather::default());
        self.wait_listening(true).await;
    }

    /// Closes every connection there is; new ones pass.
    pub fn cut(&self) {
        let mut cut = self
            .shared
            .cut
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        cut.cancel();
        *cut = CancellationToken::new();
    }

    /// Closes every connection and refuses new ones, as a machine without the server does.
    pub async fn refuse(&self) {
        self.shared
            .weather
            .send_modify(|weather| weather.refuse = true);
        self.wait_listening(false).await;
        self.cut();
    }

    /// Swallows everything in both directions.
    pub fn black_hole(&self) {
        for direction in BOTH {
            self.swallow(direction);
        }
    }

    /// Swallows everything in one direction.
    pub fn swallow(&self, direction: Direction) {
        self.shared
            .weather
            .send_modify(|weather| weather.swallow[direction as usize] = true);
    }

    /// Delays each byte in one direction; order is kept.
    pub fn delay(&self, direction: Direction, delay: Duration) {
        self.shared
            .weather
            .send_modify(|weather| weather.delay[direction as usize] = delay);
    }

    /// Passes so many bytes a second and no more in one direction, for all connections together; None: as
    /// many as come. What waits for its turn waits at its sender.
    pub fn limit(&self, direction: Direction, bytes_per_second: Option<NonZeroU64>) {
        self.shared
            .weather
            .send_modify(|weather| weather.bytes_per_second[direction as usize] = bytes_per_second);
    }

    /// Sends new connections to another target; those there are stay.
    pub fn retarget(&self, target: impl ToString) {
        let mut current = self
            .shared
            .target
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *current = target.to_string();
    }

    /// Connections accepted since the start.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.shared.accepted.load(Ordering::Relaxed)
    }

    /// Connections open now.
    #[must_use]
    pub fn open(&self) -> u64 {
        self.shared.open.load(Ordering::Relaxed)
    }

    /// Bytes passed in one direction since the start.
    #[must_use]
    pub fn bytes(&self, direction: Direction) -> u64 {
        self.shared.bytes[direction as usize].load(Ordering::Relaxed)
    }

    async fn wait_listening(&self, wanted: bool) {
        let mut listening = self.listening.clone();
        listening
            .wait_for(|listening| *listening == wanted)
            .await
            .map(drop)
            .expect("the accepting task lives as long as the proxy");
    }
}

async fn accept(shared: Arc<Shared>, listener: TcpListener, listening: watch::Sender<bool>) {
    let address = listener
        .local_addr()
        .expect("a bound listener has an address");
    let mut listener = Some(listener);
    let mut weather = shared.weather.subscribe();
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let refuse = weather.borrow_and_update().refuse;
        if refuse {
            listener = None;
        } else if listener.is_none() {
            listener = Some(bind(address).await.expect("the port was ours a moment ago"));
        }
        listening.send_replace(listener.is_some());
        let accepting = async {
            match &listener {
                Some(listener) => listener.accept().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = weather.changed() => changed.expect("the sender is in `shared`"),
            accepted = accepting => if let Ok((client, _)) = accepted {
                shared.accepted.fetch_add(1, Ordering::Relaxed);
                connections.spawn(serve(Arc::clone(&shared), client));
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Binds an address again; its port may still be held for a moment.
async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let deadline = Instant::now() + BIND_DEADLINE;
    loop {
        match TcpListener::bind(address).await {
            Err(_) if Instant::now() < deadline => {
                sleep_until(Instant::now() + Duration::from_millis(20)).await;
            }
            done => return done,
        }
    }
}

async fn serve(shared: Arc<Shared>, client: TcpStream) {
    let cut = {
        let cut = shared.cut.lock().unwrap_or_else(PoisonError::into_inner);
        cut.clone()
    };
    shared.open.fetch_add(1, Ordering::Relaxed);
    cut.run_until_cancelled(join(&shared, client)).await;
    shared.open.fetch_sub(1, Ordering::Relaxed);
}

/// Joins a connection to the target until both sides ended.
async fn join(shared: &Shared, client: TcpStream) {
    shared.clear(Direction::ToTarget).await;
    let target = {
        let target = shared.target.lock().unwrap_or_else(PoisonError::into_inner);
        target.clone()
    };
    // A target that is down ends the connection, as the target itself would.
    let Ok(target) = TcpStream::connect(target).await else {
        return;
    };
    for stream in [&client, &target] {
        // Only costs time if it fails.
        stream.set_nodelay(true).unwrap_or_default();
    }
    let (from_client, to_client) = client.into_split();
    let (from_target, to_target) = target.into_split();
    tokio::join!(
        shared.pump(Direction::ToTarget, from_client, to_target),
        shared.pump(Direction::FromTarget, from_target, to_client),
    );
}

impl Shared {
    /// Waits until nothing is swallowed in this direction.
    async fn clear(&self, direction: Direction) {
        let mut weather = self.weather.subscribe();
        weather
            .wait_for(|weather| !weather.swallow[direction as usize])
            .await
            .map(drop)
            .expect("the sender is in `self`");
    }

    /// Waits until the link is free and tells when it has sent so many bytes more.
    async fn turn(&self, direction: Direction, length: usize) -> Instant {
        let now = Instant::now();
        let Some(rate) = self.weather.borrow().bytes_per_second[direction as usize] else {
            return now;
        };
        let time = Duration::from_secs_f64(length as f64 / rate.get() as f64);
        let begins = {
            let busy_until = self.busy_until[direction as usize].lock();
            let mut busy_until = busy_until.unwrap_or_else(PoisonError::into_inner);
            let begins = busy_until.map_or(now, |busy_until| busy_until.max(now));
            *busy_until = Some(begins + time);
            begins
        };
        sleep_until(begins).await;
        begins + time
    }

    /// Passes bytes one way until the reading side ends; then that end.
    async fn pump(&self, direction: Direction, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
        let (chunks, mut waiting) = mpsc::channel::<(Instant, Vec<u8>)>(CHUNKS_MAX);
        let read = async move {
            loop {
                let mut chunk = vec![0; CHUNK_BYTES];
                // A reset is passed on as an end.
                let length = from.read(&mut chunk).await.unwrap_or(0);
                chunk.truncate(length);
                let delay = self.weather.borrow().delay[direction as usize];
                let sent_at = self.turn(direction, length).await;
                let sent = chunks.send((sent_at + delay, chunk)).await;
                if length == 0 || sent.is_err() {
                    return;
                }
            }
        };
        let write = async move {
            while let Some((due, chunk)) = waiting.recv().await {
                sleep_until(due).await;
                self.clear(direction).await;
                if chunk.is_empty() || to.write_all(&chunk).await.is_err() {
                    break;
                }
                let length = u64::try_from(chunk.len()).expect("a chunk is small");
                self.bytes[direction as usize].fetch_add(length, Ordering::Relaxed);
            }
            // The other side may be gone already.
            to.shutdown().await.unwrap_or_default();
        };
        tokio::join!(read, write);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    /// Answers every byte with itself.
    async fn echo() -> (SocketAddr, AbortOnDropHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                connections.spawn(async move {
                    let (mut read, mut write) = stream.split();
                    tokio::io::copy(&mut read, &mut write)
                        .await
                        .unwrap_or_default();
                });
            }
        });
        (address, AbortOnDropHandle::new(task))
    }

    async fn ask(stream: &mut TcpStream) -> Option<io::Result<()>> {
        let answer = async {
            stream.write_all(b"ping").await?;
            let mut buffer = [0; 4];
            stream.read_exact(&mut buffer).await.map(drop)
        };
        timeout(Duration::from_millis(400), answer).await.ok()
    }

    #[tokio::test]
    async fn a_black_hole_stalls_without_closing_and_goes_on_when_lifted() {
        let (target, _echo) = echo().await;
        let proxy = Proxy::start(target).await.expect("starts");
        let mut old = TcpStream::connect(proxy.address()).await.expect("accepts");
        assert!(matches!(ask(&mut old).await, Some(Ok(()))));
        proxy.black_hole();
        assert!(ask(&mut old).await.is_none(), "established ones stall");
        let mut new = TcpStream::connect(proxy.address()).await.expect("accepts");
        assert!(ask(&mut new).await.is_none(), "new ones too");
        proxy.pass().await;
        let mut buffer = [0; 4];
        for stream in [&mut old, &mut new] {
            let read = timeout(Duration::from_secs(5), stream.read_exact(&mut buffer)).await;
            read.expect("in time")
                .expect("the swallowed ping is answered");
        }
        assert_eq!((proxy.accepted(), proxy.open()), (2, 2));
    }

    #[tokio::test]
    async fn a_cut_closes_connections_and_lets_new_ones_pass() {
        let (target, _echo) = echo().await;
        let proxy = Proxy::start(target).await.expect("starts");
        let mut old = TcpStream::connect(proxy.address()).await.expect("accepts");
        assert!(matches!(ask(&mut old).await, Some(Ok(()))));
        proxy.cut();
        assert!(matches!(ask(&mut old).await, Some(Err(_))));
        let mut new = TcpStream::connect(proxy.address()).await.expect("accepts");
        assert!(matches!(ask(&mut new).await, Some(Ok(()))));
    }

    #[tokio::test]
    async fn a_refusing_proxy_refuses_until_it_passes_again_on_the_same_port() {
        let (target, _echo) = echo().await;
        let proxy = Proxy::start(target).await.expect("starts");
        proxy.refuse().await;
        let refused = TcpStream::connect(proxy.address()).await;
        assert_eq!(
            refused.expect_err("nobody listens").kind(),
            io::ErrorKind::ConnectionRefused
        );
        proxy.pass().await;
        let mut new = TcpStream::connect(proxy.address()).await.expect("accepts");
        assert!(matches!(ask(&mut new).await, Some(Ok(()))));
    }

    #[tokio::test]
    async fn a_delay_holds_one_direction_back_and_a_new_target_gets_new_connections() {
        let (target, _echo) = echo().await;
        let nobody = ports::free().expect("a port");
        let proxy = Proxy::start(format!("127.0.0.1:{nobody}"))
            .await
            .expect("starts");
        let mut lost = TcpStream::connect(proxy.address()).await.expect("accepts");
        assert!(matches!(ask(&mut lost).await, Some(Err(_))), "no target");
        proxy.retarget(target);
        proxy.delay(Direction::FromTarget, Duration::from_millis(200));
        let mut stream = TcpStream::connect(proxy.address()).await.expect("accepts");
        let began = Instant::now();
        assert!(matches!(ask(&mut stream).await, Some(Ok(()))));
        assert!(began.elapsed() >= Duration::from_millis(200));
        assert_eq!(proxy.bytes(Direction::ToTarget), 4);
    }

    #[tokio::test]
    async fn a_limit_is_shared_by_all_connections_of_its_direction() {
        let (target, _echo) = echo().await;
        let proxy = Proxy::start(target).await.expect("starts");
        let rate = NonZeroU64::new(1_000_000).expect("not 0");
        proxy.limit(Direction::FromTarget, Some(rate));
        let began = Instant::now();
        let ask = async |bytes: usize| {
            let mut stream = TcpStream::connect(proxy.address()).await.expect("accepts");
            let (mut read, mut write) = stream.split();
            let (sent, mut back) = (vec![7; bytes], vec![0; bytes]);
            let (written, got) = tokio::join!(write.write_all(&sent), read.read_exact(&mut back));
            written.and(got).expect("everything comes back");
            began.elapsed()
        };
        let (first, second) = tokio::join!(ask(200_000), ask(200_000));
        let both = first.max(second);
        let least = Duration::from_millis(399);
        assert!(both >= least, "{both:?} for 400 kB at 1 MB/s");
        assert_eq!(proxy.bytes(Direction::FromTarget), 400_000);
        proxy.limit(Direction::FromTarget, None);
        let alone = Instant::now();
        ask(400_000).await;
        assert!(alone.elapsed() < least, "nothing is left of the limit");
    }
}
