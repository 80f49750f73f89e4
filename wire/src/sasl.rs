//! Proving who we are (SASL), at the start of a connection and again before the broker's patience
//! ends (KIP-368). Secrets are read anew each time.

mod scram;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use kafka_protocol::{
    messages::{SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest},
    protocol::StrBytes,
};
use kreplicator_model::spec::{SaslMechanism, SecretRef};
use tokio::time::{Instant, sleep, timeout_at};

use self::scram::{Hash, Scram};
use crate::{
    code::Code,
    connection::{Connection, Lane, WeakConnection},
    error::Error,
    open::Profile,
    settings::{Sasl, Secret, SharedSecrets},
};

/// Brokers take a second authentication within this time for an ordinary request and refuse it
/// (`KafkaChannel.MIN_REAUTH_INTERVAL_ONE_SECOND_NANOS`).
const REPEAT_MIN: Duration = Duration::from_millis(1_100);

impl Sasl {
    fn mechanism(&self) -> &'static str {
        match self {
            Self::Password { mechanism, .. } => match mechanism {
                SaslMechanism::Plain => "PLAIN",
                SaslMechanism::ScramSha256 => "SCRAM-SHA-256",
                SaslMechanism::ScramSha512 => "SCRAM-SHA-512",
            },
            Self::Bearer { .. } => "OAUTHBEARER",
        }
    }

    fn secret(&self) -> &SecretRef {
        match self {
            Self::Password { password, .. } => password,
            Self::Bearer { token } => token,
        }
    }
}

/// Authenticates a new connection, and sees to it that it stays authenticated.
///
/// # Errors
/// [`Error::Authentication`] when the broker refuses us, or cannot prove that it knows our password.
pub(crate) async fn authenticate(
    connection: &Connection,
    sasl: &Sasl,
    profile: &Profile,
    deadline: Instant,
) -> Result<(), Error> {
    let secret = read_secret(&profile.secrets, sasl.secret(), deadline).await?;
    let lifetime = exchange(connection, sasl, secret, deadline).await?;
    if let Some(lifetime) = lifetime {
        let keeping = keep(
            connection.downgrade(),
            lifetime,
            sasl.clone(),
            profile.clone(),
        );
        let ended = connection.ended();
        let until_ended = async move {
            tokio::select! {
                () = ended.cancelled() => {}
                () = keeping => {}
            }
        };
        let name = "the authentication of a connection";
        profile.tasks.spawn(name, Box::pin(until_ended));
    }
    Ok(())
}

/// Authenticates again and again, each time before the session is over. Ordinary requests wait
/// while the broker is asked; those on the way are answered. A connection that cannot be authenticated
/// again in time ends.
async fn keep(connection: WeakConnection, mut lifetime: Duration, sasl: Sasl, profile: Profile) {
    loop {
        // As Kafka's own clients: somewhere from 85 to 95 % of the time, so that not all come at
        // once.
        let share = 0.85 + 0.1 * rand::random::<f64>();
        sleep(lifetime.mul_f64(share).max(REPEAT_MIN)).await;
        let Some(connection) = connection.upgrade() else {
            return;
        };
        match repeat(&connection, &sasl, &profile).await {
            Ok(next) => {
                tracing::debug!(broker = %connection.broker(), "authenticated again");
                match next {
                    Some(next) => lifetime = next,
                    None => return,
                }
            }
            Err(fault) => {
                tracing::warn!(broker = %connection.broker(), %fault, "not authenticated again");
                connection.fail(fault);
                return;
            }
        }
    }
}

/// Authenticates once more. The connection is held only while the broker is asked: where secrets are
/// kept may be slow.
async fn repeat(
    connection: &Connection,
    sasl: &Sasl,
    profile: &Profile,
) -> Result<Option<Duration>, Error> {
    let patience = profile.settings.limits.open_timeout;
    let deadline = Instant::now() + patience;
    let secret = read_secret(&profile.secrets, sasl.secret(), deadline).await?;
    let deadline = Instant::now() + patience;
    connection.hold();
    let exchange = exchange(connection, sasl, secret, deadline);
    let outcome = timeout_at(deadline, exchange)
        .await
        .unwrap_or_else(|_elapsed| {
            Err(Error::Timeout {
                broker: Arc::clone(connection.broker()),
                api: "SaslAuthenticate",
            })
        });
    // After a fault nothing may be sent any more: the connection is about to end.
    if outcome.is_ok() {
        connection.release();
    }
    outcome
}

/// One exchange; how long it holds, when the broker sets a limit.
async fn exchange(
    connection: &Connection,
    sasl: &Sasl,
    secret: Secret,
    deadline: Instant,
) -> Result<Option<Duration>, Error> {
    let talk = Talk {
        connection,
        mechanism: sasl.mechanism(),
        deadline,
    };
    talk.choose().await?;
    let last = match sasl {
        Sasl::Password {
            mechanism,
            username,
            ..
        } => match mechanism {
            SaslMechanism::Plain => {
                let message = format!("\0{username}\0{}", secret.expose());
                talk.say(message.into_bytes()).await?
            }
            SaslMechanism::ScramSha256 => talk.scram(Hash::Sha256, username, secret).await?,
            SaslMechanism::ScramSha512 => talk.scram(Hash::Sha512, username, secret).await?,
        },
        Sasl::Bearer { .. } => talk.bearer(&secret).await?,
    };
    let lifetime = u64::try_from(last.session_lifetime_ms).unwrap_or(0);
    Ok((lifetime > 0).then(|| Duration::from_millis(lifetime)))
}

async fn read_secret(
    secrets: &SharedSecrets,
    reference: &SecretRef,
    deadline: Instant,
) -> Result<Secret, Error> {
    let (secrets, reference) = (Arc::clone(secrets), reference.clone());
    let read = tokio::task::spawn_blocking(move || secrets.read(&reference));
    let secret = match timeout_at(deadline, read).await {
        Ok(Ok(secret)) => secret,
        Ok(Err(panic)) => Err(panic.to_string()),
        Err(_elapsed) => Err("it was not there in time; check where it is kept".to_owned()),
    };
    secret.map_err(|cause| Error::Secret { cause })
}

/// A conversation with one broker by one mechanism.
struct Talk<'a> {
    connection: &'a Connection,
    mechanism: &'static str,
    deadline: Instant,
}

impl Talk<'_> {
    fn refused(&self, cause: impl Into<String>) -> Error {
        Error::Authentication {
            broker: Arc::clone(self.connection.broker()),
            mechanism: self.mechanism,
            cause: cause.into(),
        }
    }

    /// Tells the broker the mechanism.
    async fn choose(&self) -> Result<(), Error> {
        let version = self.connection.version::<SaslHandshakeRequest>()?;
        let request = SaslHandshakeRequest::default()
            .with_mechanism(StrBytes::from_static_str(self.mechanism));
        let answer = self
            .connection
            .send_as(request, version, self.deadline, Lane::Privileged)
            .await?;
        match Code(answer.error_code) {
            Code::NONE => Ok(()),
            Code::UNSUPPORTED_SASL_MECHANISM => {
                let offered: Vec<&str> = answer.mechanisms.iter().map(|name| &**name).collect();
                let offered = offered.join(", ");
                Err(self.refused(format!("the broker offers only {offered}")))
            }
            code => Err(self.refused(code.to_string())),
        }
    }

    async fn say(&self, message: Vec<u8>) -> Result<SaslAuthenticateResponse, Error> {
        let version = self.connection.version::<SaslAuthenticateRequest>()?;
        let request = SaslAuthenticateRequest::default().with_auth_bytes(Bytes::from(message));
        let answer = self
            .connection
            .send_as(request, version, self.deadline, Lane::Privileged)
            .await?;
        match Code(answer.error_code).fault() {
            None => Ok(answer),
            Some(code) => {
                let text = answer.error_message.as_deref();
                Err(self.refused(text.unwrap_or(code.text())))
            }
        }
    }

    async fn scram(
        &self,
        hash: Hash,
        username: &str,
        secret: Secret,
    ) -> Result<SaslAuthenticateResponse, Error> {
        let scram = Scram::new(hash, username, &scram::nonce());
        let challenge = self.say(scram.first()).await?.auth_bytes;
        // Thousands of hashes: not beside others' IO.
        let deriving = move || scram.answer(&challenge, secret.expose());
        let derived = tokio::task::spawn_blocking(deriving).await;
        let (message, proof) = match derived {
            Ok(outcome) => outcome.map_err(|cause| self.refused(cause))?,
            Err(panic) => return Err(self.refused(panic.to_string())),
        };
        let last = self.say(message).await?;
        proof
            .check(&last.auth_bytes)
            .map_err(|cause| self.refused(cause))?;
        Ok(last)
    }

    async fn bearer(&self, token: &Secret) -> Result<SaslAuthenticateResponse, Error> {
        let message = format!("n,,\x01auth=Bearer {}\x01\x01", token.expose());
        let answer = self.say(message.into_bytes()).await?;
        if answer.auth_bytes.is_empty() {
            return Ok(answer);
        }
        // The reason comes as a challenge, to be confirmed before the broker ends it (RFC 7628, 3.2.3).
        let reason = String::from_utf8_lossy(&answer.auth_bytes).into_owned();
        match self.say(vec![1]).await {
            Err(fault @ Error::Disconnected { .. }) => {
                tracing::debug!(%fault, "closed after refusing a token");
                Err(self.refused(reason))
            }
            Ok(_) | Err(Error::Authentication { .. }) => Err(self.refused(reason)),
            Err(fault) => Err(fault),
        }
    }
}

#[cfg(test)]
mod tests;
