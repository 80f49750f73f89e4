//! A real etcd of one member, on free ports, with a folder of its own.

use std::{collections::BTreeMap, fs, net::SocketAddr, time::Duration};

use anyhow::{Context as _, Result, bail};
use etcd_client::{
    AlarmAction, AlarmOptions, AlarmType, Certificate, Client, CompactionOptions, ConnectOptions,
    GetOptions, Identity, TlsOptions,
};

use crate::{
    folder::RunDir,
    kafka::Certificates,
    ports,
    process::{Managed, Spec, ending},
    wait,
};

const START_DEADLINE: Duration = Duration::from_secs(30);
const STOP_DEADLINE: Duration = Duration::from_secs(15);
/// Deadline of each call made for a test.
const CALL_DEADLINE: Duration = Duration::from_secs(10);

/// An etcd that can be stopped, killed, frozen and started again on the same port and data.
#[derive(Debug)]
pub struct Etcd {
    // Before the folder: a process is dead before its data goes.
    process: Option<Managed>,
    spec: Spec,
    client_port: u16,
    user: Option<(String, String)>,
    certificates: Option<Certificates>,
    folder: RunDir,
}

impl Etcd {
    /// Starts an etcd and waits until it answers.
    ///
    /// # Errors
    /// When it does not start; shows the end of its log.
    pub async fn start() -> Result<Self> {
        Self::start_with(&[]).await
    }

    /// As [`Etcd::start`], with more flags.
    ///
    /// # Errors
    /// As [`Etcd::start`].
    pub async fn start_with(flags: &[&str]) -> Result<Self> {
        Self::start_as(flags, false).await
    }

    /// As [`Etcd::start`], speaking TLS with clients whose certificate it checks.
    ///
    /// # Errors
    /// As [`Etcd::start`].
    pub async fn start_tls() -> Result<Self> {
        Self::start_as(&[], true).await
    }

    async fn start_as(flags: &[&str], tls: bool) -> Result<Self> {
        // A port may be taken between drawing and binding it; then draw again.
        let mut last = None;
        for _ in 0..3 {
            let mut etcd = Self::prepare(flags, tls)?;
            match etcd.run().await {
                Ok(()) => return Ok(etcd),
                Err(fault) => {
                    etcd.folder.failed();
                    last = Some(fault);
                }
            }
        }
        Err(last.context("no attempt was made")?)
    }

    fn prepare(flags: &[&str], tls: bool) -> Result<Self> {
        let folder = RunDir::new("etcd")?;
        let (client_port, peer_port) = (ports::free()?, ports::free()?);
        let program = etcd_bin_vendored::etcd_bin_path()
            .map_err(|fault| anyhow::anyhow!("no etcd for this machine: {fault}"))?;
        let certificates = tls
            .then(|| Certificates::make(&folder.path().join("tls")))
            .transpose()?;
        let scheme = if tls { "https" } else { "http" };
        let client_url = format!("{scheme}://127.0.0.1:{client_port}");
        let peer_url = format!("http://127.0.0.1:{peer_port}");
        let data = folder.path().join("data").display().to_string();
        let cluster = format!("default={peer_url}");
        let mut args: Vec<String> = [
            ("--data-dir", data.as_str()),
            ("--listen-client-urls", &client_url),
            ("--advertise-client-urls", &client_url),
            ("--listen-peer-urls", &peer_url),
            ("--initial-advertise-peer-urls", &peer_url),
            ("--initial-cluster", &cluster),
            ("--log-level", "warn"),
        ]
        .iter()
        .flat_map(|(name, value)| [(*name).to_owned(), (*value).to_owned()])
        .collect();
        // What a killed process wrote is in the page cache: enough for tests, and much faster.
        args.push("--unsafe-no-fsync".to_owned());
        if let Some(certificates) = &certificates {
            let ca = certificates.ca();
            args.push("--client-cert-auth".to_owned());
            for (flag, file) in [
                ("--trusted-ca-file", ca.clone()),
                ("--cert-file", ca.with_file_name("server.pem")),
                ("--key-file", ca.with_file_name("server.key")),
            ] {
                args.extend([flag.to_owned(), file.display().to_string()]);
            }
        }
        args.extend(flags.iter().map(|flag| (*flag).to_owned()));
        Ok(Self {
            process: None,
            spec: Spec {
                name: "etcd".to_owned(),
                program: program.to_owned(),
                args,
                env: Vec::new(),
                log: folder.path().join("etcd.log"),
            },
            client_port,
            user: None,
            certificates,
            folder,
        })
    }

    /// Starts the process and waits for its answer, or its end.
    async fn run(&mut self) -> Result<()> {
        let mut process = Managed::spawn(&self.spec)?;
        let started = wait::until("an answer of etcd", START_DEADLINE, async || {
            if let Some(status) = process.ended()? {
                return Ok(Some(Err(status)));
            }
            let mut client = self.client().await?;
            client.status().await?;
            Ok(Some(Ok(())))
        })
        .await;
        let log = process.log_tail();
        self.process = Some(process);
        match started {
            Ok(Ok(())) => Ok(()),
            Ok(Err(status)) => bail!("etcd ended with {}\n{log}", ending(status)),
            Err(fault) => bail!("{fault:#}\n{log}"),
        }
    }

    /// Where clients connect.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.client_port))
    }

    /// The same as a URL.
    #[must_use]
    pub fn endpoint(&self) -> String {
        let scheme = if self.certificates.is_some() {
            "https"
        } else {
            "http"
        };
        format!("{scheme}://{}", self.address())
    }

    /// What clients need to speak TLS; None where it does not.
    #[must_use]
    pub fn certificates(&self) -> Option<&Certificates> {
        self.certificates.as_ref()
    }

    /// The process; for its signals and its log.
    ///
    /// # Panics
    /// While it is stopped.
    pub fn process(&mut self) -> &mut Managed {
        self.process.as_mut().expect("etcd was stopped by the test")
    }

    /// Whether it was started and not ended by the test.
    #[must_use]
    pub fn is_started(&self) -> bool {
        self.process.is_some()
    }

    /// Kills it (SIGKILL).
    ///
    /// # Errors
    /// When it is not running.
    pub async fn kill(&mut self) -> Result<()> {
        self.process().kill().await?;
        self.process = None;
        Ok(())
    }

    /// Ends it (SIGTERM).
    ///
    /// # Errors
    /// When it is not running or does not end in time.
    pub async fn stop(&mut self) -> Result<()> {
        self.process().terminate(STOP_DEADLINE).await?;
        self.process = None;
        Ok(())
    }

    /// Freezes it (SIGSTOP): connections stay open and nothing answers.
    ///
    /// # Errors
    /// When it is not running.
    pub async fn freeze(&mut self) -> Result<()> {
        self.process().freeze().await
    }

    /// Lets it go on (SIGCONT).
    ///
    /// # Errors
    /// When it is not running.
    pub fn thaw(&mut self) -> Result<()> {
        self.process().thaw()
    }

    /// Starts it again on the same port and data, killing it first if it runs.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn restart(&mut self) -> Result<()> {
        self.process = None;
        self.run().await
    }

    /// Starts it again on the same port, with everything it held forgotten.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn restart_empty(&mut self) -> Result<()> {
        self.process = None;
        fs::remove_dir_all(self.folder.path().join("data"))?;
        self.user = None;
        self.run().await
    }

    /// A plain client, to look and to interfere.
    ///
    /// # Errors
    /// When etcd refuses the login.
    pub async fn client(&self) -> Result<Client> {
        let mut options = ConnectOptions::new().with_timeout(CALL_DEADLINE);
        if let Some((name, password)) = &self.user {
            options = options.with_user(name, password);
        }
        if let Some(certificates) = &self.certificates {
            let ca = Certificate::from_pem(fs::read(certificates.ca())?);
            let identity = Identity::from_pem(
                fs::read(certificates.client_certificate())?,
                fs::read(certificates.client_key())?,
            );
            let tls = TlsOptions::new().ca_certificate(ca).identity(identity);
            options = options.with_tls(tls);
        }
        Ok(Client::connect([self.endpoint()], Some(options)).await?)
    }

    /// The newest revision: one more for each change of the store.
    ///
    /// # Errors
    /// When etcd does not answer.
    pub async fn revision(&self) -> Result<i64> {
        let mut client = Box::pin(self.client()).await?;
        let options = GetOptions::new().with_count_only();
        let newest = client.get("revision", Some(options)).await?;
        Ok(newest.header().context("no header")?.revision())
    }

    /// How often each key with a prefix was written since it was made.
    ///
    /// # Errors
    /// When etcd does not answer.
    pub async fn writes(&self, prefix: &str) -> Result<BTreeMap<String, i64>> {
        let mut client = Box::pin(self.client()).await?;
        let options = GetOptions::new().with_prefix().with_keys_only();
        let found = client.get(prefix, Some(options)).await?;
        let keys = found.kvs().iter();
        keys.map(|entry| Ok((entry.key_str()?.to_owned(), entry.version())))
            .collect()
    }

    /// Entries whose keys begin with `prefix` below `root`; keys are told without `root`.
    ///
    /// # Errors
    /// When etcd does not answer.
    pub async fn entries(&self, root: &str, prefix: &str) -> Result<BTreeMap<String, Vec<u8>>> {
        let mut client = Box::pin(self.client()).await?;
        let options = GetOptions::new().with_prefix();
        let found = client.get(format!("{root}{prefix}"), Some(options)).await?;
        let entries = found.kvs().iter().map(|entry| {
            let key = entry.key_str()?;
            let key = key.strip_prefix(root).context("a key beyond the root")?;
            Ok((key.to_owned(), entry.value().to_vec()))
        });
        entries.collect()
    }

    /// Compacts the history up to the newest revision, and tells that revision.
    ///
    /// # Errors
    /// When etcd does not answer.
    pub async fn compact(&self) -> Result<i64> {
        let revision = self.revision().await?;
        let mut client = Box::pin(self.client()).await?;
        // Waits until the history is off the disk.
        let options = CompactionOptions::new().with_physical();
        client.compact(revision, Some(options)).await?;
        Ok(revision)
    }

    /// Revokes every lease there is, and tells how many.
    ///
    /// # Errors
    /// When etcd does not answer.
    pub async fn revoke_all_leases(&self) -> Result<usize> {
        let mut client = self.client().await?;
        let leases = client.leases().await?;
        for lease in leases.leases() {
            client.lease_revoke(lease.id()).await?;
        }
        Ok(leases.leases().len())
    }

    /// Makes room after the quota was used up: compacts, defragments and disarms the alarm.
    ///
    /// # Errors
    /// When etcd does not answer.
    pub async fn make_room(&self) -> Result<()> {
        self.compact().await?;
        let mut client = Box::pin(self.client()).await?;
        client.defragment().await?;
        let armed = client
            .alarm(AlarmAction::Get, AlarmType::Nospace, None)
            .await?;
        for alarm in armed.alarms() {
            let mut options = AlarmOptions::new();
            options.with_member(alarm.member_id());
            client
                .alarm(AlarmAction::Deactivate, alarm.alarm(), Some(options))
                .await?;
        }
        Ok(())
    }

    /// Turns authentication on, with the user `root` and this password.
    ///
    /// # Errors
    /// When etcd does not answer, or has it on already.
    pub async fn enable_auth(&mut self, password: &str) -> Result<()> {
        let mut client = self.client().await?;
        client.user_add("root", password, None).await?;
        client.role_add("root").await?;
        client.user_grant_role("root", "root").await?;
        client.auth_enable().await?;
        self.user = Some(("root".to_owned(), password.to_owned()));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_etcd_keeps_its_data_through_a_kill_and_loses_it_on_request() {
        let mut etcd = Etcd::start().await.expect("starts");
        let mut client = etcd.client().await.expect("connects");
        client.put("k", "v", None).await.expect("written");
        etcd.kill().await.expect("it ran");
        etcd.restart().await.expect("starts again");
        let mut client = etcd.client().await.expect("connects");
        assert_eq!(client.get("k", None).await.expect("read").count(), 1);
        assert!(etcd.compact().await.expect("compacts") >= 2);
        etcd.restart_empty().await.expect("starts again");
        let mut client = etcd.client().await.expect("connects");
        assert_eq!(client.get("k", None).await.expect("read").count(), 0);
    }
}
