//! Certificates, keys and passwords that are renewed while clients run (C127).
//!
//! The library reads them when a client is made and never again. So whoever keeps a client asks a
//! [`Renewal`] now and then whether they are still what the client was made from; where they are not, a
//! client is made from the new ones and has to reach the cluster before anybody uses them. Files that are
//! half written, do not fit together or are refused by the cluster change nothing: the clients that run
//! go on, and the fault is told.

use std::{sync::Arc, time::Duration};

use kreplicator_model::{backoff::Backoff, spec::Cluster};
use tokio::time::Instant;
use tracing::{info, warn};

use crate::{
    admin::Admin,
    blocking::blocking,
    error::Error,
    properties::{ClientProperties, client_properties},
    secrets::SecretSource,
};

/// Waits between trials of what was refused; what differs from it is tried at once.
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));

/// Looks after what the clients of one cluster are made from.
#[derive(Debug)]
pub struct Renewal {
    cluster: Cluster,
    secrets: Arc<dyn SecretSource>,
    refused: Option<Refused>,
}

/// What was found renewed, and could not be used.
#[derive(Debug)]
struct Refused {
    /// None where they could not even be read.
    properties: Option<ClientProperties>,
    fault: Error,
    trials: u32,
    retry_at: Instant,
}

impl Renewal {
    /// Nothing was looked at yet.
    #[must_use]
    pub fn new(cluster: Cluster, secrets: Arc<dyn SecretSource>) -> Self {
        Self {
            cluster,
            secrets,
            refused: None,
        }
    }

    /// Compares what is there now with what clients run with. None: the same. Otherwise a client that was
    /// let in with what is there now; its [`Admin::properties`] are for further ones. Asks the cluster only
    /// when something differs, for at most about `deadline`.
    ///
    /// # Errors
    /// What is there cannot be read or does not let a client in; the clients that run are to be kept. It
    /// is logged when it is news, and told again at each look until it is over.
    ///
    /// # Panics
    /// Outside a Tokio runtime.
    pub async fn look(
        &mut self,
        running: &ClientProperties,
        deadline: Duration,
    ) -> Result<Option<Admin>, Error> {
        let found = self.read().await;
        if found.as_ref() == Ok(running) {
            self.refused = None;
            return Ok(None);
        }
        if let Some(refused) = &self.refused
            && refused.properties.as_ref() == found.as_ref().ok()
            && refused.properties.is_some()
            && Instant::now() < refused.retry_at
        {
            return Err(refused.fault.clone());
        }
        let proven = match &found {
            Ok(properties) => self.prove(properties, deadline).await,
            Err(fault) => Err(fault.clone()),
        };
        match proven {
            Ok(admin) => {
                info!(cluster = %self.cluster.id, "certificates or passwords were renewed");
                self.refused = None;
                Ok(Some(admin))
            }
            Err(fault) => {
                self.refuse(found.ok(), &fault);
                Err(fault)
            }
        }
    }

    /// What clients would be made from now.
    async fn read(&self) -> Result<ClientProperties, Error> {
        let cluster = self.cluster.clone();
        let secrets = Arc::clone(&self.secrets);
        // Files may be on slow disks.
        blocking(move || client_properties(&cluster, secrets.as_ref())).await
    }

    /// A client that was let in.
    async fn prove(
        &self,
        properties: &ClientProperties,
        deadline: Duration,
    ) -> Result<Admin, Error> {
        let cluster = self.cluster.clone();
        let properties = properties.clone();
        let admin = blocking(move || Admin::from_properties(&cluster, &properties)).await?;
        let admin = admin.with_deadline(deadline);
        admin.metadata().await?;
        Ok(admin)
    }

    fn refuse(&mut self, properties: Option<ClientProperties>, fault: &Error) {
        let before = self.refused.take();
        if before.as_ref().map(|before| &before.fault) != Some(fault) {
            let cause = fault.full_text();
            warn!(cluster = %self.cluster.id, cause, "renewed certificates or passwords cannot be used; clients keep theirs");
        }
        let is_same = |before: &Refused| before.properties == properties;
        let trials = before.filter(is_same).map_or(0, |before| before.trials + 1);
        self.refused = Some(Refused {
            properties,
            fault: fault.clone(),
            trials,
            retry_at: Instant::now() + BACKOFF.delay(trials, 1.0),
        });
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeMap,
        fs,
        path::{Path, PathBuf},
    };

    use kreplicator_model::{
        ids::ClusterId,
        spec::{Sasl, SaslMechanism, SecretRef, Security},
    };

    use super::*;
    use crate::secrets::ProcessSecrets;

    const SHORT: Duration = Duration::from_millis(300);

    /// A cluster that nobody runs, whose password is in a file.
    fn nowhere(password: &Path) -> Cluster {
        Cluster {
            id: ClusterId::new("east").expect("legal"),
            // The discard port; nobody listens.
            bootstrap_servers: vec!["127.0.0.1:9".to_owned()],
            security: Security {
                tls: None,
                sasl: Some(Sasl {
                    mechanism: SaslMechanism::Plain,
                    username: "mirror".to_owned(),
                    password: SecretRef::File(password.display().to_string()),
                }),
            },
            client_options: BTreeMap::new(),
            expected_cluster_id: None,
        }
    }

    /// Clients run with the first password.
    struct Begun {
        _folder: tempfile::TempDir,
        password: PathBuf,
        running: ClientProperties,
        renewal: Renewal,
    }

    fn begun() -> Begun {
        let folder = tempfile::tempdir().expect("a folder");
        let password = folder.path().join("password");
        fs::write(&password, "first").expect("written");
        let cluster = nowhere(&password);
        Begun {
            running: client_properties(&cluster, &ProcessSecrets).expect("complete"),
            renewal: Renewal::new(cluster, Arc::new(ProcessSecrets)),
            password,
            _folder: folder,
        }
    }

    #[tokio::test]
    async fn c127_nobody_is_asked_while_everything_is_as_it_was() {
        let Begun {
            _folder,
            password,
            running,
            mut renewal,
        } = begun();
        // The cluster would not answer.
        let looked = renewal.look(&running, SHORT).await.expect("the same");
        assert!(looked.is_none());
        fs::write(&password, "first\n").expect("written");
        assert!(
            renewal
                .look(&running, SHORT)
                .await
                .expect("the same")
                .is_none()
        );
    }

    #[tokio::test]
    async fn c127_what_does_not_let_a_client_in_is_told_and_not_used() {
        let Begun {
            _folder,
            password,
            running,
            mut renewal,
        } = begun();
        fs::write(&password, "").expect("written");
        let fault = renewal.look(&running, SHORT).await.expect_err("empty");
        assert!(matches!(fault, Error::Secret { .. }), "{fault}");

        fs::write(&password, "second").expect("written");
        let refused = renewal
            .look(&running, SHORT)
            .await
            .expect_err("nobody there");
        assert!(!matches!(refused, Error::Secret { .. }), "{refused}");
        // The same again is not tried at once.
        let begun = Instant::now();
        let again = renewal.look(&running, 20 * SHORT).await;
        assert_eq!(again.expect_err("as before"), refused);
        assert!(begun.elapsed() < 10 * SHORT, "{:?}", begun.elapsed());

        // Back to what clients run with: nothing is wrong any more.
        fs::write(&password, "first").expect("written");
        assert!(
            renewal
                .look(&running, SHORT)
                .await
                .expect("the same")
                .is_none()
        );
        assert!(renewal.refused.is_none());
    }
}
