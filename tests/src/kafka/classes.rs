//! The classes of a broker as a file that the Java machine maps (class-data sharing, JEP 350).
//!
//! Half of what a small broker uses until it runs goes into loading classes from jars, and a run of all
//! tests starts some seventy. So one broker is started and stopped for the file's sake.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};

use super::{
    broker::jvm,
    libs::class_path,
    storage::{self, Blank},
    version::KafkaVersion,
};
use crate::{
    ports,
    process::{Managed, Spec, tail},
    settings, wait,
};

const PATIENCE: Duration = Duration::from_secs(90);

/// The file for brokers of this release; made when it is not there yet, which takes some seconds. Waits for
/// others that make it. None where this Java cannot make it: brokers start without.
pub(super) async fn archive(version: KafkaVersion, libs: &Path) -> Option<PathBuf> {
    let archive = settings::deps_dir().join(format!("classes-{version}.jsa"));
    match make(version, libs, &archive).await {
        Ok(()) => Some(archive),
        Err(fault) => {
            eprintln!("brokers start without shared classes: {fault:#}");
            None
        }
    }
}

async fn make(version: KafkaVersion, libs: &Path, archive: &Path) -> Result<()> {
    if archive.is_file() {
        return Ok(());
    }
    let deps = settings::deps_dir();
    let lock = File::create(deps.join("classes.lock"))?;
    let lock = tokio::task::spawn_blocking(move || lock.lock().map(|()| lock));
    let _lock = lock.await?.context("cannot lock classes.lock")?;
    if archive.is_file() {
        return Ok(());
    }
    let folder = tempfile::tempdir_in(&deps)?;
    let partial = folder.path().join("classes.jsa");
    let (log, config) = (folder.path().join("log"), folder.path().join("properties"));
    let data = folder.path().join("data");
    let (client, quorum) = (ports::free()?, ports::free()?);
    fs::write(&config, storage::lone_node(client, quorum, &data))?;
    let blank = Blank {
        version,
        libs,
        config: &config,
        data: &data,
        node: 1,
        cluster_id: &storage::new_id(),
    };
    storage::format(&blank, &std::collections::BTreeMap::new())?;
    let mut args = jvm(256);
    args.push(format!("-XX:ArchiveClassesAtExit={}", partial.display()));
    args.extend(["-cp".to_owned(), class_path(libs), "kafka.Kafka".to_owned()]);
    args.push(config.display().to_string());
    let mut broker = Managed::spawn(&Spec {
        name: "the broker whose classes are kept".to_owned(),
        program: "java".into(),
        args,
        env: Vec::new(),
        log: log.clone(),
    })?;
    wait::until_true("its start", PATIENCE, async || {
        Ok(fs::read_to_string(&log)?.contains("Kafka Server started") || broker.ended()?.is_some())
    })
    .await?;
    broker.terminate(PATIENCE).await?;
    ensure!(
        partial.is_file(),
        "java has written no archive: {}",
        tail(&log, 40)
    );
    fs::rename(&partial, archive)?;
    Ok(())
}
