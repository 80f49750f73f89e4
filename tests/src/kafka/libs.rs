//! The jars of Apache Kafka, copied once from the Maven registry into `target/test-deps`.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};

use crate::settings;

/// The Kafka that tests run against; the same as in `pom.xml`.
pub const VERSION: &str = "4.3.1";

/// The folder of jars; fetches them when they are not there yet. Safe to call from many test
/// processes at once: one fetches, the others wait for it.
///
/// # Errors
/// When Maven fails; shows what it said.
pub(super) fn fetch() -> Result<PathBuf> {
    fetch_into(&settings::deps_dir())
}

fn fetch_into(deps: &Path) -> Result<PathBuf> {
    let libs = deps.join(format!("kafka-{VERSION}"));
    if libs.is_dir() {
        return Ok(libs);
    }
    fs::create_dir_all(deps)?;
    let lock = File::create(deps.join("kafka.lock"))?;
    lock.lock().context("cannot lock kafka.lock")?;
    if libs.is_dir() {
        return Ok(libs);
    }
    let partial = deps.join(format!("kafka-{VERSION}.partial"));
    if partial.exists() {
        fs::remove_dir_all(&partial)?;
    }
    let output = Command::new("mvn")
        .args(["-q", "-B", "-f", pom(), "dependency:copy-dependencies"])
        .arg(format!("-DoutputDirectory={}", partial.display()))
        .stdin(Stdio::null())
        .output()
        .context("cannot run mvn")?;
    ensure!(
        output.status.success(),
        "mvn cannot copy the jars of pom.xml:\n{}",
        String::from_utf8_lossy(&output.stdout)
    );
    let broker = partial.join(format!("kafka_2.13-{VERSION}.jar"));
    ensure!(
        broker.is_file(),
        "pom.xml and the harness name different versions: no {}",
        broker.display()
    );
    fs::rename(&partial, &libs)?;
    Ok(libs)
}

fn pom() -> &'static str {
    concat!(env!("CARGO_MANIFEST_DIR"), "/pom.xml")
}

/// The class path of all jars.
#[must_use]
pub(super) fn class_path(libs: &Path) -> String {
    format!("{}/*", libs.display())
}
