//! The one connection in use, and the logins on it.

use std::{fmt, time::Duration};

use etcd_client::{Channel, Client, ConnectOptions};
use tokio::{sync::Mutex, time::Instant};
use tonic::{
    Code,
    transport::{Certificate, ClientTlsConfig, Endpoint, Identity},
};
use tracing::{info, warn};

use super::{EtcdConfig, EtcdTls, EtcdUser, fault::Fault};
use crate::{
    api::{Error, Result},
    backoff::Backoff,
};

/// HTTP/2 pings under open calls. etcd counts pings more often than each five seconds as abuse
/// (`--grpc-keepalive-min-time`) and hangs up.
const PING_INTERVAL: Duration = Duration::from_secs(6);
/// A ping not answered within this ends the connection; with the interval, under ten seconds.
const PING_TIMEOUT: Duration = Duration::from_secs(3);
/// Pauses after a refused password: nothing is sent meanwhile.
const REFUSED_PAUSE: Backoff = Backoff {
    min: Duration::from_secs(1),
    max: Duration::from_secs(30),
};
/// A call that was given up after less than this says nothing about the connection. Sessions give
/// their keep-alives a quarter of the time to live.
const SUSPECT_AFTER: Duration = Duration::from_millis(400);
/// Shortest time between two logins for the sake of refused calls.
const LOGIN_INTERVAL: Duration = Duration::from_secs(1);

/// A connection that calls can be made on.
#[derive(Clone)]
pub(super) struct Link {
    pub(super) client: Client,
    /// Number of the connection, to tell it from the next.
    pub(super) generation: u64,
}

/// Makes connections, one at a time.
pub(super) struct Connector {
    endpoints: Vec<(String, Endpoint)>,
    user: Option<EtcdUser>,
    state: Mutex<State>,
}

struct State {
    link: Option<Link>,
    generation: u64,
    /// Index of the endpoint in use, or to try first.
    endpoint: usize,
    refused: Option<Refused>,
    refusals: u32,
    logged_in_at: Option<Instant>,
}

/// A password that etcd did not take.
struct Refused {
    message: String,
    until: Instant,
}

impl Connector {
    pub(super) fn new(config: &EtcdConfig) -> Result<Self> {
        if config.endpoints.is_empty() {
            return Err(Error::Invalid("no etcd endpoint is given".to_owned()));
        }
        // Leaves time for the next endpoint within the deadline of the call that connects.
        let attempts = u32::try_from(config.endpoints.len()).unwrap_or(u32::MAX);
        let connect_timeout = config.call_timeout / attempts.saturating_add(1);
        let endpoints = config
            .endpoints
            .iter()
            .map(|url| {
                let endpoint = endpoint(url, config.tls.as_ref())?
                    .connect_timeout(connect_timeout)
                    .http2_keep_alive_interval(PING_INTERVAL)
                    .keep_alive_timeout(PING_TIMEOUT)
                    // etcd hangs up on pings without a call under way.
                    .keep_alive_while_idle(false);
                Ok((url.clone(), endpoint))
            })
            .collect::<Result<_>>()?;
        Ok(Self {
            endpoints,
            user: config.user.clone(),
            state: Mutex::new(State {
                link: None,
                generation: 0,
                endpoint: 0,
                refused: None,
                refusals: 0,
                logged_in_at: None,
            }),
        })
    }

    /// The connection in use, made now if there is none.
    pub(super) async fn link(&self) -> Result<Link> {
        let mut state = self.state.lock().await;
        if let Some(link) = &state.link {
            return Ok(link.clone());
        }
        if let Some(refused) = &state.refused
            && Instant::now() < refused.until
        {
            return Err(Error::Denied(refused.message.clone()));
        }
        let mut last = String::new();
        for _ in 0..self.endpoints.len() {
            let (url, endpoint) = &self.endpoints[state.endpoint];
            // Should this future be dropped here, the next one goes on with the next endpoint.
            let tried = state.endpoint;
            state.endpoint = (tried + 1) % self.endpoints.len();
            match self.open(endpoint).await {
                Ok(client) => {
                    state.endpoint = tried;
                    state.generation += 1;
                    state.refused = None;
                    state.refusals = 0;
                    info!(endpoint = %url, "connected to etcd");
                    let link = Link {
                        client,
                        generation: state.generation,
                    };
                    state.link = Some(link.clone());
                    return Ok(link);
                }
                Err(Fault::Away(message)) => last = format!("{url}: {message}"),
                Err(Fault::Login(message)) => {
                    state.endpoint = tried;
                    return Err(state.refuse(message));
                }
                Err(Fault::Refused(error)) => return Err(error),
            }
        }
        Err(Error::Unavailable(last))
    }

    async fn open(&self, endpoint: &Endpoint) -> std::result::Result<Client, Fault> {
        let channel = endpoint
            .connect()
            .await
            .map_err(|error| Fault::Away(with_causes(&error)))?;
        // Every call and watch fails at once on a member that lost the leader.
        let options = ConnectOptions::new().with_require_leader(true);
        let Some(user) = &self.user else {
            return Ok(Client::from_channel(Channel::Tonic(channel), Some(options)).await?);
        };
        let with_login = options.clone().with_user(&user.name, &user.password);
        let opened = Client::from_channel(Channel::Tonic(channel.clone()), Some(with_login)).await;
        match opened {
            Ok(client) => Ok(client),
            Err(etcd_client::Error::GRpcStatus(status)) => match status.code() {
                Code::InvalidArgument | Code::Unauthenticated | Code::PermissionDenied => {
                    Err(Fault::Login(status.message().to_owned()))
                }
                Code::FailedPrecondition => {
                    warn!(user = %user.name, "etcd has no authentication enabled; going on without login");
                    Ok(Client::from_channel(Channel::Tonic(channel), Some(options)).await?)
                }
                _ => Err(etcd_client::Error::GRpcStatus(status).into()),
            },
            Err(error) => Err(error.into()),
        }
    }

    /// Gives a connection up and tries the next endpoint first.
    pub(super) async fn leave(&self, generation: u64) {
        self.state
            .lock()
            .await
            .leave(generation, self.endpoints.len());
    }

    /// Watches over a call on a connection: one that is dropped without an answer, by whatever
    /// deadline, makes the connection suspect.
    pub(super) fn under_way(&self, generation: u64) -> UnderWay<'_> {
        UnderWay {
            connector: self,
            generation,
            since: Instant::now(),
            answered: false,
        }
    }

    /// Makes sure that the next call logs in anew. False: that was done just now, so it would not help.
    pub(super) async fn log_in_again(&self, generation: u64) -> bool {
        let mut state = self.state.lock().await;
        if state.generation != generation || state.link.is_none() {
            return true;
        }
        let now = Instant::now();
        if state
            .logged_in_at
            .is_some_and(|at| now < at + LOGIN_INTERVAL)
        {
            return false;
        }
        state.logged_in_at = Some(now);
        state.link = None;
        true
    }
}

/// A call that has not been answered yet.
pub(super) struct UnderWay<'a> {
    connector: &'a Connector,
    generation: u64,
    since: Instant,
    answered: bool,
}

impl UnderWay<'_> {
    pub(super) fn answered(mut self) {
        self.answered = true;
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if self.answered || self.since.elapsed() < SUSPECT_AFTER {
            return;
        }
        // Whoever holds the state is connecting or leaving already.
        if let Ok(mut state) = self.connector.state.try_lock() {
            state.leave(self.generation, self.connector.endpoints.len());
        }
    }
}

impl State {
    /// Gives a connection up, if it is still in use, and turns to the next endpoint.
    fn leave(&mut self, generation: u64, endpoints: usize) {
        if self.generation == generation && self.link.take().is_some() {
            self.endpoint = (self.endpoint + 1) % endpoints;
        }
    }

    fn refuse(&mut self, message: String) -> Error {
        self.refusals = self.refusals.saturating_add(1);
        let pause = REFUSED_PAUSE.delay(self.refusals, &mut rand::rng());
        warn!(%message, pause_seconds = pause.as_secs(), "etcd refused the login");
        self.refused = Some(Refused {
            message: message.clone(),
            until: Instant::now() + pause,
        });
        Error::Denied(message)
    }
}

/// The endpoints.
impl fmt::Display for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (url, _)) in self.endpoints.iter().enumerate() {
            let comma = if place == 0 { "" } else { ", " };
            write!(f, "{comma}{url}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector")
            .field("endpoints", &self.to_string())
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

fn endpoint(url: &str, tls: Option<&EtcdTls>) -> Result<Endpoint> {
    let invalid = |what: String| Error::Invalid(format!("etcd endpoint {url}: {what}"));
    let secure = url.starts_with("https://");
    if !secure && !url.starts_with("http://") {
        return Err(invalid(
            "write http://host:port or https://host:port".to_owned(),
        ));
    }
    let endpoint =
        Endpoint::from_shared(url.to_owned()).map_err(|error| invalid(with_causes(&error)))?;
    match (secure, tls) {
        (false, None) => Ok(endpoint),
        (false, Some(_)) => Err(invalid("TLS is set; write https://".to_owned())),
        (true, None) => Err(invalid("https needs a certificate authority".to_owned())),
        (true, Some(tls)) => {
            let mut config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&tls.ca));
            if let Some(identity) = &tls.identity {
                config = config.identity(Identity::from_pem(&identity.certificate, &identity.key));
            }
            if let Some(name) = &tls.server_name {
                config = config.domain_name(name);
            }
            endpoint
                .tls_config(config)
                .map_err(|error| invalid(with_causes(&error)))
        }
    }
}

/// The transport's own text is "transport error"; what happened is behind it.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
