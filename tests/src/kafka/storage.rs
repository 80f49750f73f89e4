//! The data folders of brokers that agree by a quorum, as `kafka-storage format` makes them.
//!
//! That tool is a Java process of two CPU seconds. What it writes without users is the same for every
//! broker of a release but for three ids (`meta.properties`), so it runs once for each release and the
//! rest is copied.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};
use rand::{Rng as _, distr::Alphanumeric, seq::IndexedRandom as _};

use super::{broker::jvm, libs::class_path, version::KafkaVersion};
use crate::settings;

/// The features that a new cluster starts with, as a snapshot of its metadata log.
const BOOTSTRAP: &str = "bootstrap.checkpoint";

/// One broker to be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Blank<'a> {
    pub(super) version: KafkaVersion,
    pub(super) libs: &'a Path,
    /// Its properties file.
    pub(super) config: &'a Path,
    /// `log.dirs` in that file.
    pub(super) data: &'a Path,
    /// `node.id` in that file.
    pub(super) node: usize,
    pub(super) cluster_id: &'a str,
}

/// Writes the first files of a data folder. Waits for a Java process at times.
///
/// # Errors
/// When that fails; shows what it said.
pub(super) fn format(blank: &Blank<'_>, users: &BTreeMap<String, String>) -> Result<()> {
    if !users.is_empty() {
        return by_tool(blank.libs, blank.config, blank.cluster_id, users);
    }
    let template = template(blank.version, blank.libs)?;
    fs::create_dir_all(blank.data)?;
    fs::copy(template.join(BOOTSTRAP), blank.data.join(BOOTSTRAP))?;
    let properties = format!(
        "version=1\ncluster.id={}\nnode.id={}\ndirectory.id={}\n",
        blank.cluster_id,
        blank.node,
        new_id()
    );
    fs::write(blank.data.join("meta.properties"), properties)?;
    Ok(())
}

/// A folder that the tool of this release has formatted for no cluster in particular. Safe to call from many
/// processes at once.
fn template(version: KafkaVersion, libs: &Path) -> Result<PathBuf> {
    let deps = settings::deps_dir();
    let template = deps.join(format!("formatted-{version}"));
    if template.is_dir() {
        return Ok(template);
    }
    let lock = File::create(deps.join("formatted.lock"))?;
    lock.lock().context("cannot lock formatted.lock")?;
    if template.is_dir() {
        return Ok(template);
    }
    let partial = deps.join(format!("formatted-{version}.partial"));
    if partial.exists() {
        fs::remove_dir_all(&partial)?;
    }
    fs::create_dir_all(&partial)?;
    let config = partial.join("server.properties");
    // Nobody listens there.
    fs::write(&config, lone_node(7, 9, &partial))?;
    by_tool(libs, &config, &new_id(), &BTreeMap::new())?;
    let written = partial.join(BOOTSTRAP);
    ensure!(written.is_file(), "no {} was written", written.display());
    fs::rename(&partial, &template)?;
    Ok(template)
}

/// The properties of a cluster of one node, and no more than it needs to start.
pub(super) fn lone_node(client_port: u16, quorum_port: u16, data: &Path) -> String {
    [
        "process.roles=broker,controller",
        "node.id=1",
        "controller.listener.names=QUORUM",
        &format!("controller.quorum.voters=1@127.0.0.1:{quorum_port}"),
        &format!("listeners=CLIENT://127.0.0.1:{client_port},QUORUM://127.0.0.1:{quorum_port}"),
        "listener.security.protocol.map=CLIENT:PLAINTEXT,QUORUM:PLAINTEXT",
        "inter.broker.listener.name=CLIENT",
        &format!("log.dirs={}", data.display()),
    ]
    .join("\n")
}

fn by_tool(
    libs: &Path,
    config: &Path,
    cluster_id: &str,
    users: &BTreeMap<String, String>,
) -> Result<()> {
    let mut args = jvm(64);
    args.extend(["-cp".to_owned(), class_path(libs)]);
    args.extend(["kafka.tools.StorageTool", "format", "-t", cluster_id, "-c"].map(String::from));
    args.push(config.display().to_string());
    for (user, password) in users {
        for mechanism in ["SCRAM-SHA-256", "SCRAM-SHA-512"] {
            args.push("--add-scram".to_owned());
            args.push(format!("{mechanism}=[name={user},password={password}]"));
        }
    }
    let output = Command::new("java")
        .args(args)
        .stdin(Stdio::null())
        .output()
        .context("cannot run java")?;
    ensure!(
        output.status.success(),
        "cannot format by {}:\n{}{}",
        config.display(),
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

/// 128 random bits as Kafka writes ids: base64 without padding, and so with four zero bits at the end.
/// (`org.apache.kafka.common.Uuid`)
pub(super) fn new_id() -> String {
    let mut rng = rand::rng();
    let mut id: String = (0..21)
        .map(|_| char::from(rng.sample(Alphanumeric)))
        .collect();
    id.push(*['A', 'Q', 'g', 'w'].choose(&mut rng).unwrap_or(&'A'));
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_as_long_as_those_of_kafka_and_end_in_four_zero_bits() {
        for _ in 0..100 {
            let id = new_id();
            assert_eq!(id.len(), 22);
            assert!(id.ends_with(['A', 'Q', 'g', 'w']), "{id}");
        }
    }
}
