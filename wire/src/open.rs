//! How a connection comes to be: look the name up, connect, encrypt, ask for versions, prove who we
//! are. Everything is done anew at each connection: names, files and secrets may have changed.

use std::{sync::Arc, time::Duration};

use socket2::{SockRef, TcpKeepalive};
use tokio::{
    net::{TcpStream, lookup_host},
    time::{Instant, timeout, timeout_at},
};

use crate::{
    connection::{Connection, Stream},
    error::Error,
    sasl,
    settings::{Settings, SharedSecrets},
    tasks::Tasks,
    tls, versions,
};

/// What every connection of a cluster needs.
#[derive(Debug, Clone)]
pub(crate) struct Profile {
    pub(crate) settings: Arc<Settings>,
    pub(crate) secrets: SharedSecrets,
    pub(crate) tasks: Arc<dyn Tasks>,
}

/// Opens a connection to `address` (`host:port`), ready for requests.
///
/// # Errors
/// Why it could not be opened until `deadline` or within the time that opening may take.
pub(crate) async fn open(
    profile: &Profile,
    address: &str,
    deadline: Instant,
) -> Result<Connection, Error> {
    let limits = &profile.settings.limits;
    let broker: Arc<str> = Arc::from(address);
    let deadline = deadline.min(Instant::now() + limits.open_timeout);
    let opening = handshake(profile, &broker, deadline);
    match timeout_at(deadline, opening).await {
        Ok(outcome) => outcome,
        Err(_elapsed) => Err(Error::Connect {
            broker,
            cause: "the connection was not ready in time".to_owned(),
        }),
    }
}

async fn handshake(
    profile: &Profile,
    broker: &Arc<str>,
    deadline: Instant,
) -> Result<Connection, Error> {
    let settings = &profile.settings;
    let stream = connect(broker, settings.limits.connect_timeout).await?;
    configure(&stream, settings.limits.keepalive);
    let start = Start { profile, broker };
    let connection = match &settings.security.tls {
        Some(tls) => start.on(tls::wrap(stream, tls, broker).await?),
        None => start.on(stream),
    };
    let versions = versions::negotiate(&connection, deadline).await?;
    connection.set_versions(versions);
    if let Some(sasl) = &settings.security.sasl {
        sasl::authenticate(&connection, sasl, profile, deadline).await?;
    }
    Ok(connection)
}

/// What a connection is started with, whatever its stream.
struct Start<'a> {
    profile: &'a Profile,
    broker: &'a Arc<str>,
}

impl Start<'_> {
    fn on(&self, stream: impl Stream) -> Connection {
        Connection::start(
            stream,
            Arc::clone(self.broker),
            &self.profile.settings.client_id,
            self.profile.settings.limits,
            &*self.profile.tasks,
        )
    }
}

/// Tries the addresses of a name one after the other.
async fn connect(broker: &Arc<str>, timeout_each: Duration) -> Result<TcpStream, Error> {
    let resolve = |cause: String| Error::Resolve {
        broker: Arc::clone(broker),
        cause,
    };
    let addresses = lookup_host(&**broker)
        .await
        .map_err(|fault| resolve(fault.to_string()))?;
    let mut cause = None;
    for address in addresses {
        match timeout(timeout_each, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(fault)) => cause = Some(format!("{address}: {fault}")),
            Err(_elapsed) => cause = Some(format!("{address}: no answer")),
        }
    }
    match cause {
        Some(cause) => Err(Error::Connect {
            broker: Arc::clone(broker),
            cause,
        }),
        None => Err(resolve("the name has no address".to_owned())),
    }
}

/// Small requests are sent at once, and a dead host is noticed. A socket that refuses still works.
fn configure(stream: &TcpStream, keepalive: Duration) {
    let socket = SockRef::from(stream);
    let probes = TcpKeepalive::new()
        .with_time(keepalive)
        .with_interval(keepalive / 3);
    let outcome = stream
        .set_nodelay(true)
        .and_then(|()| socket.set_tcp_keepalive(&probes));
    if let Err(fault) = outcome {
        tracing::debug!(%fault, "socket options refused");
    }
}
