//! How a connection comes to be: look the name up, connect, encrypt, ask for versions, prove who we
//! are. Everything is done anew at each connection: names, files and secrets may have changed.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use tokio::{
    net::{TcpStream, lookup_host},
    time::{Instant, timeout, timeout_at},
};

use crate::{
    cluster::Purpose,
    connection::{Connection, Stream},
    error::Error,
    sasl,
    settings::{Settings, SharedSecrets},
    silence::{self, Sends},
    tasks::Tasks,
    tls, versions,
};

/// What every connection of a cluster needs.
#[derive(Debug, Clone)]
pub(crate) struct Profile {
    pub(crate) settings: Arc<Settings>,
    pub(crate) secrets: SharedSecrets,
    pub(crate) proven_tls: tls::Proven,
    pub(crate) tasks: Arc<dyn Tasks>,
}

/// Opens a connection to `address` (`host:port`), ready for requests.
///
/// # Errors
/// Why it could not be opened until `deadline` or within the time that opening may take.
pub(crate) async fn open(
    profile: &Profile,
    address: &str,
    purpose: Purpose,
    deadline: Instant,
) -> Result<Connection, Error> {
    let limits = &profile.settings.limits;
    let broker: Arc<str> = Arc::from(address);
    let deadline = deadline.min(Instant::now() + limits.open_timeout);
    let opening = handshake(profile, &broker, purpose, deadline);
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
    purpose: Purpose,
    deadline: Instant,
) -> Result<Connection, Error> {
    let settings = &profile.settings;
    let limits = settings.limits;
    let (stream, peer) = connect(broker, limits.connect_timeout).await?;
    let sends = match purpose {
        Purpose::Control | Purpose::Fetch(_) => Sends::Little,
        Purpose::Produce(_) => Sends::Much,
    };
    silence::configure(&stream, limits.silence_max, sends);
    let start = Start { profile, broker };
    let (connection, used) = match &settings.security.tls {
        Some(tls) => {
            let wrapped = tls::wrap(stream, tls, &profile.proven_tls, broker).await?;
            (start.on(wrapped.0), Some(wrapped.1))
        }
        None => (start.on(stream), None),
    };
    let versions = versions::negotiate(&connection, deadline).await?;
    connection.set_versions(versions);
    // With TLS 1.3 a broker that refuses our certificate says so only now.
    if let Some(config) = used {
        profile.proven_tls.worked(config);
    }
    if let Some(sasl) = &settings.security.sasl {
        sasl::authenticate(&connection, sasl, profile, deadline).await?;
    }
    if sends == Sends::Much {
        let watching = silence::watch(peer, limits, connection.downgrade(), connection.ended());
        let name = "the witness of a connection";
        profile.tasks.spawn(name, Box::pin(watching));
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
async fn connect(
    broker: &Arc<str>,
    timeout_each: Duration,
) -> Result<(TcpStream, SocketAddr), Error> {
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
            Ok(Ok(stream)) => return Ok((stream, address)),
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
