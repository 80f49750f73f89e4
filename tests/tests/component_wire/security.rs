//! TLS and authentication.

use std::{fs, path::Path, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, ensure};
use kreplicator_model::spec::{self, SaslMechanism, SecretRef, Tls};
use kreplicator_tests::{
    kafka::{Certificates, KafkaCluster, KafkaOptions, TlsMode},
    skip::{Tier, skip},
};
use kreplicator_wire::{
    cluster::{
        ClusterClient, Purpose,
        offsets::{At, Isolation},
    },
    code::Class,
    error::Error,
    settings::{Sasl, Security},
};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use crate::bench::{PATIENCE, Vault, at, settings, soon};

/// How long a broker lets a client go unproven.
const PROVEN_FOR: Duration = Duration::from_secs(3);
/// An unsigned token (RFC 7519, 6) of alice, good until 2100.
const TOKEN: &str =
    "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbGljZSIsImlhdCI6MTcwMDAwMDAwMCwiZXhwIjo0MTAyNDQ0ODAwfQ.";
/// The same, good until 2020.
const EXPIRED: &str =
    "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbGljZSIsImlhdCI6MTYwMDAwMDAwMCwiZXhwIjoxNjAwMDAwMTAwfQ.";

struct Gate {
    cluster: KafkaCluster,
    vault: Arc<Vault>,
    files: tempfile::TempDir,
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secured_cluster_is_entered_by_all_ways_and_stayed_in() -> Result<()> {
    if skip(Tier::Component) {
        return Ok(());
    }
    let options = KafkaOptions {
        tls: TlsMode::Mutual,
        ..KafkaOptions::single("wire-secured").user("alice", "right")
    };
    let login = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required \
                 unsecuredLoginStringClaim_sub=\"broker\";";
    let options = options
        .property("connections.max.reauth.ms", PROVEN_FOR.as_millis())
        .property(
            "listener.name.client.sasl.enabled.mechanisms",
            "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        )
        .property("listener.name.client.oauthbearer.sasl.jaas.config", login);
    let cluster = KafkaCluster::start(options).await?;
    cluster.create_topic("orders", 1, &[]).await?;
    let mut gate = Gate {
        files: tempfile::tempdir()?,
        vault: Arc::new(Vault::default()),
        cluster,
    };
    gate.vault.put("PASSWORD", "right");
    gate.vault.put("TOKEN", TOKEN);
    gate.put_files(gate.certificates()?)?;
    // One connection for the whole test, with requests all the time.
    let kept = gate.client(password(SaslMechanism::ScramSha256), |_| ());
    let staying = tokio::spawn(stay(kept));
    every_way(&gate).await?;
    refusals(&gate).await?;
    a_file_that_cannot_be_used_is_told_and_mended(&gate).await?;
    // Ends before the broker is restarted.
    staying.await??;
    c127_renewed_files_are_used(&mut gate).await
}

fn password(mechanism: SaslMechanism) -> Sasl {
    Sasl::Password {
        mechanism,
        username: "alice".to_owned(),
        password: SecretRef::Env("PASSWORD".to_owned()),
    }
}

fn token() -> Sasl {
    Sasl::Bearer {
        token: SecretRef::Env("TOKEN".to_owned()),
    }
}

impl Gate {
    fn certificates(&self) -> Result<&Certificates> {
        self.cluster.certificates().context("TLS is on")
    }

    fn file(&self, name: &str) -> String {
        self.files.path().join(name).display().to_string()
    }

    fn put_files(&self, certificates: &Certificates) -> Result<()> {
        let put = |from: &Path, name: &str| fs::copy(from, self.files.path().join(name));
        put(&certificates.ca(), "ca.pem")?;
        put(&certificates.client_certificate(), "client.pem")?;
        put(&certificates.client_key(), "client.key")?;
        Ok(())
    }

    fn client(&self, sasl: Sasl, change: impl FnOnce(&mut Tls)) -> ClusterClient {
        let mut tls = Tls {
            ca_file: Some(self.file("ca.pem")),
            cert_file: Some(self.file("client.pem")),
            key_file: Some(self.file("client.key")),
            ..Tls::default()
        };
        change(&mut tls);
        let mut settings = settings(&self.cluster, spec::Security::default());
        settings.security = Security {
            tls: Some(tls),
            sasl: Some(sasl),
        };
        ClusterClient::new(settings, Arc::clone(&self.vault) as _, TaskTracker::new())
    }
}

async fn enter(client: &ClusterClient) -> Result<(), Error> {
    client.cluster_id(soon()).await.map(drop)
}

async fn every_way(gate: &Gate) -> Result<()> {
    for mechanism in [
        SaslMechanism::Plain,
        SaslMechanism::ScramSha256,
        SaslMechanism::ScramSha512,
    ] {
        let client = gate.client(password(mechanism), |_| ());
        enter(&client)
            .await
            .with_context(|| format!("{mechanism:?}"))?;
    }
    enter(&gate.client(token(), |_| ()))
        .await
        .context("token")?;
    // The broker's certificate names 127.0.0.1 and localhost; this address leads there too.
    let address = format!("0.0.0.0:{}", gate.cluster.client_port(0));
    for skip_hostname_check in [true, false] {
        let client = gate.client(password(SaslMechanism::Plain), |tls| {
            tls.skip_hostname_check = skip_hostname_check;
        });
        let mut settings = client.settings().clone();
        settings.bootstrap_servers = vec![address.clone()];
        let client = ClusterClient::new(settings, gate.vault.clone(), TaskTracker::new());
        match (skip_hostname_check, enter(&client).await) {
            (true, Ok(())) | (false, Err(Error::Tls { .. })) => {}
            (_, outcome) => anyhow::bail!("{skip_hostname_check}: {outcome:?}"),
        }
    }
    // A name that does not matter still needs a certificate of somebody trusted.
    let stranger = gate.client(password(SaslMechanism::Plain), |tls| {
        tls.skip_hostname_check = true;
        tls.ca_file = Some(gate.file("client.pem"));
    });
    let fault = enter(&stranger).await.expect_err("another authority");
    ensure!(matches!(fault, Error::Tls { .. }), "{fault}");
    Ok(())
}

/// Each is told at once and in words that name the setting.
async fn refusals(gate: &Gate) -> Result<()> {
    let start = Instant::now();
    for mechanism in [SaslMechanism::Plain, SaslMechanism::ScramSha512] {
        gate.vault.put("WRONG", "wrong");
        let sasl = Sasl::Password {
            mechanism,
            username: "alice".to_owned(),
            password: SecretRef::Env("WRONG".to_owned()),
        };
        let client = gate.client(sasl, |_| ());
        let fault = enter(&client).await.expect_err("a wrong password");
        ensure!(matches!(fault, Error::Authentication { .. }), "{fault}");
        ensure!(fault.class() == Class::Terminal, "{fault}");
        ensure!(!fault.to_string().contains("wrong"), "no secret: {fault}");
        // The right one is found without a new client.
        gate.vault.put("WRONG", "right");
        enter(&client).await.context("the right password")?;
    }
    gate.vault.put("TOKEN", EXPIRED);
    let fault = enter(&gate.client(token(), |_| ()))
        .await
        .expect_err("expired");
    ensure!(matches!(fault, Error::Authentication { .. }), "{fault}");
    gate.vault.put("TOKEN", TOKEN);
    let plain = password(SaslMechanism::Plain);
    let nameless = gate.client(plain.clone(), |tls| {
        (tls.cert_file, tls.key_file) = (None, None);
    });
    let fault = enter(&nameless).await.expect_err("no certificate");
    ensure!(matches!(fault, Error::Tls { .. }), "{fault}");
    let trustless = gate.client(plain, |tls| tls.ca_file = Some(gate.file("client.pem")));
    let fault = enter(&trustless).await.expect_err("another authority");
    ensure!(matches!(fault, Error::Tls { .. }), "{fault}");
    ensure!(start.elapsed() < PATIENCE, "at once: {:?}", start.elapsed());
    Ok(())
}

async fn a_file_that_cannot_be_used_is_told_and_mended(gate: &Gate) -> Result<()> {
    let client = gate.client(password(SaslMechanism::Plain), |_| ());
    let key = gate.files.path().join("client.key");
    fs::write(&key, "-----BEGIN ENCRYPTED PRIVATE KEY-----\n")?;
    let fault = enter(&client).await.expect_err("no key");
    ensure!(matches!(fault, Error::TlsFile { .. }), "{fault}");
    ensure!(fault.to_string().contains("tls.key_file"), "{fault}");
    ensure!(fault.to_string().contains("decrypt"), "{fault}");
    gate.put_files(gate.certificates()?)?;
    enter(&client).await.context("with the right key")
}

/// Everything is renewed, the authority too, while the broker is restarted: the same client gets in with
/// the new files, and nobody with the old ones.
async fn c127_renewed_files_are_used(gate: &mut Gate) -> Result<()> {
    let new_client = |gate: &Gate| gate.client(password(SaslMechanism::Plain), |_| ());
    let client = new_client(gate);
    ask(&client).await.context("with the first files")?;
    let certificates = gate.certificates()?.clone();
    gate.cluster.stop(0).await?;
    certificates.renew()?;
    gate.cluster.restart(0).await?;
    let fault = enter(&new_client(gate)).await;
    let fault = fault.expect_err("the authority before");
    ensure!(matches!(fault, Error::Tls { .. }), "{fault}");
    // The new authority is trusted, and the broker does not know the client's.
    fs::copy(certificates.ca(), gate.file("ca.pem"))?;
    let fault = enter(&new_client(gate)).await;
    let fault = fault.expect_err("the certificate before");
    ensure!(matches!(fault, Error::Tls { .. }), "{fault}");
    gate.put_files(&certificates)?;
    ask(&client).await.context("with the new files")
}

/// A question that needs a connection each time.
async fn ask(client: &ClusterClient) -> Result<()> {
    let lane = at("orders", 0);
    kreplicator_tests::wait::until("an answer", PATIENCE, async || {
        let asked = [(lane.clone(), At::Latest)].into();
        let told = client
            .list_offsets(asked, Isolation::Committed, soon())
            .await;
        told[&lane].clone()?;
        Ok(Some(()))
    })
    .await
}

/// Asks all the time, from several sides, by one connection that has to prove itself again and again.
async fn stay(client: ClusterClient) -> Result<()> {
    let lane = at("orders", 0);
    let broker = client.leader(&lane, soon()).await?.broker;
    let first = client.connection(broker, Purpose::Control, soon()).await?;
    let end = Instant::now() + PROVEN_FOR.mul_f64(3.5);
    let ask = async || {
        let mut answers = 0;
        while Instant::now() < end {
            let asked = [(lane.clone(), At::Latest)].into();
            let told = client
                .list_offsets(asked, Isolation::Committed, soon())
                .await;
            told[&lane].clone()?;
            answers += 1;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok::<_, anyhow::Error>(answers)
    };
    let answers = tokio::try_join!(ask(), ask(), ask(), ask())?;
    let last = client.connection(broker, Purpose::Control, soon()).await?;
    ensure!(!first.is_closed() && !last.is_closed(), "the same one");
    ensure!(answers.0 > 50, "{answers:?}");
    Ok(())
}
