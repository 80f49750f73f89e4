//! The program as an operator runs it, against a rig.

use std::{
    fs,
    process::{Command, Output, Stdio},
};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::{
    kafka::KafkaCluster,
    rig::{LINK, Rig, TOPICS},
    settings,
};

/// Kinds of differences that `verify` counts.
const DIFFERENCES: [&str; 5] = ["missing", "extra", "doubled", "altered", "reordered"];

impl Rig {
    /// Compares both sides of the base link by `kreplicator verify` while the load goes on: everything that
    /// was safe when it began is there, once and in order.
    ///
    /// # Errors
    /// When it finds a difference or does not end with 0; its findings are in the error.
    pub async fn verify(&self) -> Result<()> {
        let safe: u64 = self.base_counts().values().sum();
        let declared = links(&self.source, &self.target);
        let compared = verify(&declared, LINK).await?;
        ensure!(
            compared >= safe,
            "{compared} records compared, the load has written {safe}"
        );
        Ok(())
    }

    /// Runs a command that talks to the controllers.
    ///
    /// # Errors
    /// When it does not end with 0; tells what it said.
    pub async fn operate(&mut self, args: &[&str]) -> Result<String> {
        let ports = self.system.controllers().iter();
        let endpoints: Vec<String> = ports
            .filter_map(|controller| controller.grpc_port())
            .map(|port| format!("127.0.0.1:{port}"))
            .collect();
        let mut args = args.to_vec();
        for endpoint in &endpoints {
            args.extend(["--endpoint", endpoint]);
        }
        let output = run(&args).await?;
        let said = said(&output);
        ensure!(
            output.status.success(),
            "{args:?}: {}: {said}",
            output.status
        );
        Ok(said)
    }
}

/// Compares both sides of a declared link by `kreplicator verify`; gives the number of records compared.
///
/// # Errors
/// When it finds a difference or does not end with 0; its findings are in the error.
pub async fn verify(declared: &str, link: &str) -> Result<u64> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("links.yaml");
    fs::write(&file, declared)?;
    let file = file.display().to_string();
    // Opening a partition takes longer than comparing what a test writes.
    let at_once = ["--partitions-at-once", "20"];
    let args = [&["-f", &file, "--link", link][..], &at_once].concat();
    compare(&args, &DIFFERENCES).await
}

/// Compares a topic with a copy of it, whoever made that, by `kreplicator verify`; records that the copy has
/// more than once are taken for right. Gives the number of records compared.
///
/// # Errors
/// As [`verify`].
pub async fn verify_copy(
    (source, topic): (&KafkaCluster, &str),
    (target, copy): (&KafkaCluster, &str),
) -> Result<u64> {
    let servers = [source, target].map(KafkaCluster::direct);
    let clusters = [
        "--source-bootstrap",
        &servers[0],
        "--target-bootstrap",
        &servers[1],
    ];
    let topics = ["--topic", topic, "--target-topic", copy];
    let args = [&clusters[..], &topics, &["--tolerate-duplicates"]].concat();
    let differences = DIFFERENCES.into_iter().filter(|kind| *kind != "doubled");
    compare(&args, &differences.collect::<Vec<_>>()).await
}

/// Runs `verify`, which may find none of `differences`.
async fn compare(args: &[&str], differences: &[&str]) -> Result<u64> {
    let output = run(&[&["verify", "-o", "json"][..], args].concat()).await?;
    let said = said(&output);
    ensure!(output.status.success(), "{}: {said}", output.status);
    let found: Value = serde_json::from_slice(&output.stdout).context(said)?;
    let totals = &found["totals"];
    let differences = differences.iter().map(|kind| (kind, totals[kind].as_u64()));
    let differences: Vec<_> = differences.collect();
    ensure!(
        differences.iter().all(|(_, count)| *count == Some(0)),
        "verify ends with 0 and counts {differences:?}"
    );
    let compared = totals["compared"].as_u64().context("nothing compared")?;
    let seconds = &found["seconds"];
    eprintln!("verify: {compared} records in {seconds} s, no difference");
    Ok(compared)
}

/// The base link as `apply` and `verify` read it.
fn links(source: &KafkaCluster, target: &KafkaCluster) -> String {
    let [source, target] = [source, target].map(KafkaCluster::direct);
    let topics = TOPICS.join(", ");
    format!(
        "clusters:\n  a: {{bootstrap_servers: [\"{source}\"]}}\n  b: {{bootstrap_servers: [\"{target}\"]}}\n\
         links:\n  {LINK}: {{source: a, target: b, topics: [{topics}]}}\n"
    )
}

async fn run(args: &[&str]) -> Result<Output> {
    let mut command = Command::new(settings::program());
    command.args(args).stdin(Stdio::null());
    Ok(tokio::task::spawn_blocking(move || command.output()).await??)
}

fn said(output: &Output) -> String {
    let parts = [&output.stdout, &output.stderr];
    let parts = parts.map(|part| String::from_utf8_lossy(part));
    parts.join("")
}
