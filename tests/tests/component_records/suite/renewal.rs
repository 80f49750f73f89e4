//! Certificates and keys that are renewed while a link is copied (C127).

use std::{fs, path::Path, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, ensure};
use kreplicator_controller::cluster_admin::{AdminConnector as _, ClusterAdmin, KafkaConnector};
use kreplicator_kafka::secrets::ProcessSecrets;
use kreplicator_model::spec::Tls;
use kreplicator_tests::{
    kafka::{Certificates, KafkaCluster},
    wait,
};
use kreplicator_worker::engine::{LinkContext, RunningTask};

use crate::bench::{GROUP, PATIENCE, Rec, caught_up, fill, read, values};

/// How long a client may take to be refused.
const REFUSED_WITHIN: Duration = Duration::from_secs(5);

/// Puts what clients need where an operator would renew it.
pub(crate) fn put_files(certificates: &Certificates, folder: &Path) -> Result<()> {
    fs::copy(certificates.ca(), folder.join("ca.pem"))?;
    fs::copy(certificates.client_certificate(), folder.join("client.pem"))?;
    fs::copy(certificates.client_key(), folder.join("client.key"))?;
    Ok(())
}

/// TLS by those files.
pub(crate) fn tls(folder: &Path) -> Tls {
    let file = |name: &str| Some(folder.join(name).display().to_string());
    Tls {
        ca_file: file("ca.pem"),
        cert_file: file("client.pem"),
        key_file: file("client.key"),
        ..Tls::default()
    }
}

/// With two records of `orders` copied: a file that is half written stops nothing, and when everything
/// is renewed, the authority too, the same task goes on and the controller's client is made anew.
pub(crate) async fn c127_nothing_is_lost(
    cluster: &mut KafkaCluster,
    context: &LinkContext,
    task: &dyn RunningTask,
    folder: &Path,
) -> Result<()> {
    let admin = KafkaConnector::new(Arc::new(ProcessSecrets)).connect(&context.source)?;
    admin.metadata(PATIENCE).await?;
    let key = fs::read(folder.join("client.key"))?;
    fs::write(folder.join("client.key"), &key[..key.len() / 2])?;
    let refused = admin.renewed(REFUSED_WITHIN).await;
    ensure!(refused.is_err(), "half a key: {refused:?}");
    fill(cluster, "orders", 0, &[Rec::new("2")])?;
    caught_up(task, 3)
        .await
        .context("with half a key on disk")?;

    let certificates = cluster.certificates().context("TLS is on")?.clone();
    cluster.stop(0).await?;
    certificates.renew()?;
    put_files(&certificates, folder)?;
    cluster.restart(0).await?;
    fill(cluster, "orders", 0, &[Rec::new("3"), Rec::new("4")])?;
    caught_up(task, 5)
        .await
        .context("with everything renewed")?;
    let copied = values(&read(cluster, "copy.orders", 0).await?);
    ensure!(copied == ["0", "1", "2", "3", "4"], "{copied:?}");
    wait::until_true("the saved checkpoint", PATIENCE, async || {
        let asked = [("orders".to_owned(), 0)];
        let committed = cluster.committed(GROUP, &asked).await?;
        Ok(committed.values().any(|(offset, _)| *offset == 5))
    })
    .await?;
    the_controllers_client_is_made_anew(admin.as_ref()).await
}

async fn the_controllers_client_is_made_anew(before: &dyn ClusterAdmin) -> Result<()> {
    let shut_out = before.metadata(REFUSED_WITHIN).await;
    ensure!(shut_out.is_err(), "by what was valid before: {shut_out:?}");
    let after = wait::until("a client with the new files", PATIENCE, async || {
        Ok(before.renewed(PATIENCE).await?)
    })
    .await?;
    ensure!(after.metadata(PATIENCE).await?.brokers == 1);
    let again = after.renewed(PATIENCE).await?;
    ensure!(again.is_none(), "nothing was renewed since: {again:?}");
    Ok(())
}
