//! Jars, copied once from the Maven registry into `target/test-deps`: those of Apache Kafka, and
//! those of other programs that benchmarks start.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};

use crate::settings;

/// The Kafka that tests run against unless they ask for another; the same as in `pom.xml`.
pub const VERSION: &str = "4.3.1";

/// The folder `target/test-deps/<name>` with the jars that `pom` names; fetches them when they are
/// not there yet. Safe to call from many processes at once: one fetches, the others wait for it.
/// `jar` is one of them, by which a wrong version in `pom` is noticed.
///
/// # Errors
/// When Maven fails; shows what it said.
pub fn fetch_jars(name: &str, pom: &Path, jar: &str) -> Result<PathBuf> {
    fetch_into(&settings::deps_dir(), name, pom, jar)
}

fn fetch_into(deps: &Path, name: &str, pom: &Path, jar: &str) -> Result<PathBuf> {
    let libs = deps.join(name);
    if libs.is_dir() {
        return Ok(libs);
    }
    fs::create_dir_all(deps)?;
    let lock = File::create(deps.join("kafka.lock"))?;
    lock.lock().context("cannot lock kafka.lock")?;
    if libs.is_dir() {
        return Ok(libs);
    }
    let partial = deps.join(format!("{name}.partial"));
    if partial.exists() {
        fs::remove_dir_all(&partial)?;
    }
    let output = Command::new("mvn")
        .args(["-q", "-B", "-f"])
        .arg(pom)
        .arg("dependency:copy-dependencies")
        .arg(format!("-DoutputDirectory={}", partial.display()))
        .stdin(Stdio::null())
        .output()
        .context("cannot run mvn; install maven")?;
    ensure!(
        output.status.success(),
        "mvn cannot copy the jars of {}:\n{}",
        pom.display(),
        String::from_utf8_lossy(&output.stdout)
    );
    let expected = partial.join(jar);
    ensure!(
        expected.is_file(),
        "{} and the code name different versions: no {}",
        pom.display(),
        expected.display()
    );
    fs::rename(&partial, &libs)?;
    Ok(libs)
}

/// The class path of all jars.
#[must_use]
pub(super) fn class_path(libs: &Path) -> String {
    format!("{}/*", libs.display())
}
