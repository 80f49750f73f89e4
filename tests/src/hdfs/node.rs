//! One process of HDFS.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};

use super::{SUPERUSER, software::Software};
use crate::process::{Managed, Spec, ending, tail};

const NAMENODE: &str = "org.apache.hadoop.hdfs.server.namenode.NameNode";
const DATANODE: &str = "org.apache.hadoop.hdfs.server.datanode.DataNode";

/// Why a cluster did not start.
#[derive(Debug)]
pub(super) enum StartError {
    /// Another process listens on a port that was free a moment ago.
    PortTaken,
    /// Anything else.
    Other(anyhow::Error),
}

impl StartError {
    pub(super) fn into_fault(self) -> anyhow::Error {
        match self {
            Self::PortTaken => anyhow::anyhow!("a port was taken"),
            Self::Other(fault) => fault,
        }
    }
}

impl From<anyhow::Error> for StartError {
    fn from(fault: anyhow::Error) -> Self {
        Self::Other(fault)
    }
}

/// What makes up a node.
#[derive(Debug, Clone)]
pub(super) struct NodeSpec {
    name: String,
    class: &'static str,
    /// Of the shared classes.
    role: &'static str,
    heap_mebibytes: u32,
    config: PathBuf,
    log: PathBuf,
    data: PathBuf,
    properties: Vec<(&'static str, String)>,
}

impl NodeSpec {
    pub(super) fn namenode(
        folder: &Path,
        names: &Path,
        rpc_port: u16,
        http_port: u16,
        replication: usize,
    ) -> Self {
        let mut properties = common(folder, rpc_port);
        properties.extend([
            ("dfs.namenode.name.dir", names.display().to_string()),
            ("dfs.namenode.rpc-address", format!("127.0.0.1:{rpc_port}")),
            (
                "dfs.namenode.http-address",
                format!("127.0.0.1:{http_port}"),
            ),
            ("dfs.namenode.handler.count", "8".to_owned()),
            ("dfs.replication", replication.to_string()),
            ("dfs.namenode.safemode.extension", "0".to_owned()),
            // So that listings come in several pieces.
            ("dfs.ls.limit", "7".to_owned()),
            // A DataNode that is silent counts as dead after 2 x 2 s + 10 x 1 s.
            ("dfs.namenode.heartbeat.recheck-interval", "2000".to_owned()),
            (
                "dfs.namenode.datanode.registration.ip-hostname-check",
                "false".to_owned(),
            ),
        ]);
        Self {
            name: "namenode".to_owned(),
            class: NAMENODE,
            role: "namenode",
            heap_mebibytes: 192,
            config: folder.join("namenode.xml"),
            log: folder.join("namenode.log"),
            data: names.to_owned(),
            properties,
        }
    }

    pub(super) fn datanode(folder: &Path, index: usize, rpc_port: u16, data_port: u16) -> Self {
        let name = format!("datanode-{}", index + 1);
        let data = folder.join(&name);
        let mut properties = common(folder, rpc_port);
        properties.extend([
            ("dfs.datanode.data.dir", data.display().to_string()),
            ("dfs.datanode.address", format!("127.0.0.1:{data_port}")),
            ("dfs.datanode.http.address", "127.0.0.1:0".to_owned()),
            ("dfs.datanode.ipc.address", "127.0.0.1:0".to_owned()),
            ("dfs.datanode.hostname", "127.0.0.1".to_owned()),
            ("dfs.datanode.directoryscan.interval", "-1".to_owned()),
            ("dfs.datanode.scan.period.hours", "-1".to_owned()),
            // Else it runs `du`.
            (
                "fs.getspaceused.classname",
                "org.apache.hadoop.hdfs.server.datanode.fsdataset.impl.ReplicaCachingGetSpaceUsed"
                    .to_owned(),
            ),
        ]);
        Self {
            class: DATANODE,
            role: "datanode",
            heap_mebibytes: 128,
            config: folder.join(format!("{name}.xml")),
            log: folder.join(format!("{name}.log")),
            name,
            data,
            properties,
        }
    }
}

fn common(folder: &Path, rpc_port: u16) -> Vec<(&'static str, String)> {
    vec![
        ("fs.defaultFS", format!("hdfs://127.0.0.1:{rpc_port}")),
        ("hadoop.tmp.dir", folder.join("tmp").display().to_string()),
        ("dfs.heartbeat.interval", "1".to_owned()),
        // DataNodes find a NameNode that is started again, or is not up yet, sooner.
        ("ipc.client.connect.retry.interval", "100".to_owned()),
        ("ipc.client.connect.max.retries", "100".to_owned()),
        // Else it runs `id`.
        (
            "hadoop.user.group.static.mapping.overrides",
            format!("{SUPERUSER}=supergroup;stranger=strangers;dr.who=;"),
        ),
    ]
}

/// A node, running or not.
#[derive(Debug)]
pub(super) struct Node {
    spec: NodeSpec,
    software: Software,
    process: Option<Managed>,
    safe_mode: bool,
    /// Where its log stood when it was started.
    log_start: u64,
}

impl Node {
    pub(super) fn new(spec: NodeSpec, software: &Software) -> Result<Self> {
        let mut xml = "<configuration>\n".to_owned();
        for (name, value) in &spec.properties {
            let escaped = value.replace('&', "&amp;").replace('<', "&lt;");
            writeln!(
                xml,
                "<property><name>{name}</name><value>{escaped}</value></property>"
            )?;
        }
        xml.push_str("</configuration>\n");
        fs::write(&spec.config, xml)?;
        Ok(Self {
            spec,
            software: software.clone(),
            process: None,
            safe_mode: false,
            log_start: 0,
        })
    }

    pub(super) fn start(&mut self) -> Result<()> {
        self.start_with(self.software.jvm(self.spec.role, self.spec.heap_mebibytes))
    }

    /// Starts it with these flags of the Java machine.
    pub(super) fn start_with(&mut self, mut args: Vec<String>) -> Result<()> {
        if self.process.is_some() {
            bail!("{} runs already", self.spec.name);
        }
        args.extend([
            "-Dorg.slf4j.simpleLogger.showDateTime=true".to_owned(),
            "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSSXXX".to_owned(),
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn".to_owned(),
            format!("-Dorg.slf4j.simpleLogger.log.{DATANODE}=info"),
            "-cp".to_owned(),
            self.software.class_path(),
            self.spec.class.to_owned(),
            // Not on the class path: no classes are shared where a folder is on that.
            "-conf".to_owned(),
            self.spec.config.display().to_string(),
        ]);
        self.log_start = fs::metadata(&self.spec.log).map_or(0, |log| log.len());
        self.process = Some(Managed::spawn(&Spec {
            name: self.spec.name.clone(),
            program: "java".into(),
            args,
            env: vec![("HADOOP_USER_NAME".to_owned(), SUPERUSER.to_owned())],
            log: self.spec.log.clone(),
        })?);
        Ok(())
    }

    pub(super) async fn kill(&mut self) -> Result<()> {
        self.process()?.kill().await?;
        self.process = None;
        // It does not outlast the process.
        self.safe_mode = false;
        Ok(())
    }

    pub(super) fn is_running(&self) -> bool {
        self.process.is_some()
    }

    pub(super) fn process(&mut self) -> Result<&mut Managed> {
        self.process
            .as_mut()
            .with_context(|| format!("{} does not run", self.spec.name))
    }

    pub(super) fn set_safe_mode(&mut self, on: bool) {
        self.safe_mode = on;
    }

    pub(super) fn was_in_safe_mode(&self) -> bool {
        self.safe_mode
    }

    /// Whether a DataNode that was started has told the NameNode what it has: before that it takes no blocks.
    pub(super) fn has_reported(&self) -> Result<bool> {
        let log = fs::read(&self.spec.log)?;
        let since =
            usize::try_from(self.log_start).map_or(&[][..], |start| &log[start.min(log.len())..]);
        Ok(String::from_utf8_lossy(since).contains("Successfully sent block report"))
    }

    /// Names of the blocks that it is writing: they lie in a folder of their own.
    pub(super) fn open_blocks(&self) -> Result<Vec<String>> {
        let current = self.spec.data.join("current");
        let mut blocks = Vec::new();
        for pool in fs::read_dir(&current).with_context(|| current.display().to_string())? {
            let open = pool?.path().join("current/rbw");
            if !open.is_dir() {
                continue;
            }
            for file in fs::read_dir(open)? {
                let name = file?.file_name().to_string_lossy().into_owned();
                if !name.contains(".meta") {
                    blocks.push(name);
                }
            }
        }
        Ok(blocks)
    }

    /// Whether the process ended though nobody asked it to, and why.
    pub(super) fn unexpected_end(&mut self) -> Result<Option<StartError>> {
        let Some(process) = self.process.as_mut() else {
            return Ok(None);
        };
        let Some(status) = process.ended()? else {
            return Ok(None);
        };
        let log = tail(&self.spec.log, 200);
        self.process = None;
        Ok(Some(if log.contains("Address already in use") {
            StartError::PortTaken
        } else {
            StartError::Other(anyhow::anyhow!(
                "{} ended with {}\n{log}",
                self.spec.name,
                ending(status)
            ))
        }))
    }

    pub(super) fn show_log(&self) {
        eprintln!(
            "--- end of the log of {} ({})\n{}",
            self.spec.name,
            self.spec.log.display(),
            tail(&self.spec.log, 30)
        );
    }
}
