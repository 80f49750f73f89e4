//! The ZooKeeper of a cluster that is too old for KRaft.

use std::{fs, path::Path};

use anyhow::Result;

use super::{broker::jvm, libs::class_path};
use crate::{
    ports,
    process::{Managed, Spec},
};

/// A running ZooKeeper; it ends when it is dropped.
#[derive(Debug)]
pub(super) struct Zookeeper {
    port: u16,
    _process: Managed,
}

impl Zookeeper {
    /// Starts one with its data, settings and log in `folder`. Brokers wait for it by themselves, and
    /// end when it does not come up.
    ///
    /// # Errors
    /// When Java cannot be run.
    pub(super) fn start(libs: &Path, folder: &Path) -> Result<Self> {
        let port = ports::free()?;
        let config = folder.join("zookeeper.cfg");
        fs::write(&config, settings(port, folder))?;
        let mut args = jvm(96);
        args.extend([
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn".to_owned(),
            "-cp".to_owned(),
            class_path(libs),
            "org.apache.zookeeper.server.ZooKeeperServerMain".to_owned(),
            config.display().to_string(),
        ]);
        let process = Managed::spawn(&Spec {
            name: "zookeeper".to_owned(),
            program: "java".into(),
            args,
            env: Vec::new(),
            log: folder.join("zookeeper.log"),
        })?;
        Ok(Self {
            port,
            _process: process,
        })
    }

    /// Where brokers find it.
    pub(super) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}

/// Without the server for administrators, which needs further jars and a port.
fn settings(port: u16, folder: &Path) -> String {
    let data = folder.join("zookeeper");
    format!(
        "dataDir={}\nclientPortAddress=127.0.0.1\nclientPort={port}\nadmin.enableServer=false\n",
        data.display()
    )
}
