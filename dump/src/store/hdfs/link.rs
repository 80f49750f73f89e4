//! Calls of the NameNode, each under a deadline, over connections that can be given up.

use std::{
    panic::AssertUnwindSafe,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use futures::FutureExt as _;
use hdfs_native::{Client, ClientBuilder, HdfsError};
use tokio::time::timeout;

use super::{
    super::Kind,
    fault::{Cause, Effect, Fault},
    settings::{HdfsSettings, Place},
};

/// Limits of the library's own attempts, which else wait for minutes: after these some 4 s, less than any deadline.
/// Who calls us tries again anyway. A name service of five NameNodes is tried once round.
const RETRIES: [(&str, &str); 3] = [
    ("dfs.client.failover.max.attempts", "4"),
    ("dfs.client.failover.sleep.base.millis", "250"),
    ("dfs.client.failover.sleep.max.millis", "1000"),
];

/// The way to the NameNode.
#[derive(Debug)]
pub(super) struct Link {
    settings: HdfsSettings,
    place: Place,
    current: Mutex<Current>,
}

#[derive(Debug)]
struct Current {
    client: Client,
    /// How many there were before it.
    number: u64,
}

impl Link {
    pub(super) fn new(settings: &HdfsSettings, place: &Place) -> Result<Self, Fault> {
        let client = connect(settings, place, 0)?;
        Ok(Self {
            settings: settings.clone(),
            place: place.clone(),
            current: Mutex::new(Current { client, number: 0 }),
        })
    }

    /// The client for the next call.
    pub(super) fn client(&self) -> Client {
        self.lock().client.clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One call of the NameNode. When it is not answered in time, later calls go over new connections: a machine that
    /// is gone answers nothing for a quarter of an hour, nor does the kernel say so earlier.
    pub(super) async fn call<T, F>(
        &self,
        effect: Effect,
        call: impl FnOnce(Client) -> F,
    ) -> Result<T, Fault>
    where
        F: Future<Output = hdfs_native::Result<T>>,
    {
        let (client, number) = {
            let current = self.lock();
            (current.client.clone(), current.number)
        };
        let done = guarded(self.settings.deadline, effect, call(client)).await;
        if done.as_ref().is_err_and(|fault| fault.cause == Cause::Late) {
            self.renew(number);
        }
        done
    }

    /// Puts a new client in the place of that one, unless another call has done so.
    fn renew(&self, number: u64) {
        let mut current = self.lock();
        if current.number == number {
            match connect(&self.settings, &self.place, number + 1) {
                Ok(client) => {
                    *current = Current {
                        client,
                        number: number + 1,
                    };
                }
                // Its configuration could be read before; the old one may answer yet.
                Err(fault) => tracing::warn!(text = fault.text, "no new client for HDFS"),
            }
        }
    }
}

fn connect(settings: &HdfsSettings, place: &Place, number: u64) -> Result<Client, Fault> {
    let mut properties: Vec<(String, String)> = RETRIES
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect();
    if number > 0 {
        // A new client begins with the first NameNode of the list, and waits for it if its machine is gone.
        let key = format!("dfs.client.failover.random.order.{}", place.host);
        properties.push((key, "true".to_owned()));
    }
    if settings.kerberos.is_some() {
        let key = "hadoop.security.authentication".to_owned();
        properties.push((key, "kerberos".to_owned()));
    }
    properties.extend(settings.properties.clone());
    let mut builder = ClientBuilder::new()
        .with_url(format!("hdfs://{}", place.authority))
        .with_config(properties);
    if let Some(folder) = &settings.config_dir {
        builder = builder.with_config_dir(folder.display().to_string());
    }
    if let Some(user) = &settings.user {
        builder = builder.with_user(user);
    }
    if let Some(kerberos) = &settings.kerberos {
        builder = builder.with_kerberos_principal(&kerberos.principal);
        if let Some(keytab) = &kerberos.keytab {
            builder = builder.with_kerberos_keytab(keytab.display().to_string());
        }
    }
    // It also looks up the user's name, and host names where it is configured to: a panic of that is an error too.
    match std::panic::catch_unwind(AssertUnwindSafe(|| builder.build())) {
        Ok(Ok(client)) => Ok(client),
        Ok(Err(HdfsError::InvalidArgument(text))) if text.contains("No NameNode hosts") => {
            Err(Fault {
                kind: Kind::Setting,
                cause: Cause::Other,
                text: format!(
                    "nothing says where {host} is: give host:port, or a configuration with dfs.ha.namenodes.{host}",
                    host = place.authority
                ),
            })
        }
        Ok(Err(error)) => Err(Fault {
            kind: Kind::Setting,
            ..Fault::sort(error, Effect::Question)
        }),
        Err(panic) => Err(Fault::of_panic(&*panic)),
    }
}

/// What a future of the library comes to, within that time and without its panics.
pub(super) async fn guarded<T>(
    deadline: Duration,
    effect: Effect,
    call: impl Future<Output = hdfs_native::Result<T>>,
) -> Result<T, Fault> {
    match timeout(deadline, AssertUnwindSafe(call).catch_unwind()).await {
        Ok(Ok(Ok(done))) => Ok(done),
        Ok(Ok(Err(error))) => Err(Fault::sort(error, effect)),
        Ok(Err(panic)) => Err(Fault::of_panic(&*panic)),
        Err(_) => Err(Fault::late(deadline, effect)),
    }
}
