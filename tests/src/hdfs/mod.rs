//! A real HDFS: a NameNode and DataNodes as plain processes on the loopback, with folders of their own.
//!
//! Users are believed by their word. [`SUPERUSER`] may do everything; any other name may do what permissions say.

mod admin;
mod node;
mod software;

use std::{collections::BTreeSet, path::PathBuf, time::Duration};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use self::{
    node::{Node, NodeSpec, StartError},
    software::Software,
};
use crate::{folder::RunDir, http, ports, wait};

/// The Hadoop that is started; the same as in `pom-hdfs.xml`.
pub const VERSION: &str = "3.4.2";
/// The user that the processes run as for HDFS.
pub const SUPERUSER: &str = "tests";

/// How long all nodes may take until they answer. They need some 5 s on an idle machine.
const READY_DEADLINE: Duration = Duration::from_mins(3);
/// Times that ports are drawn again because another process took one.
const PORT_ATTEMPTS: usize = 5;

/// What to start.
#[derive(Debug, Clone)]
pub struct HdfsOptions {
    /// Of folders and logs.
    pub name: String,
    /// How many.
    pub datanodes: usize,
    /// Copies of each block when nothing is said.
    pub replication: usize,
}

impl HdfsOptions {
    /// As many DataNodes, and two copies of each block, or one.
    #[must_use]
    pub fn new(name: impl Into<String>, datanodes: usize) -> Self {
        Self {
            name: name.into(),
            datanodes,
            replication: datanodes.clamp(1, 2),
        }
    }
}

/// A running cluster; its processes end when it is dropped.
#[derive(Debug)]
pub struct Hdfs {
    // Before `folder`: processes end before their data is deleted.
    namenode: Node,
    datanodes: Vec<Node>,
    rpc_port: u16,
    http_port: u16,
    software: Software,
    folder: RunDir,
}

impl Hdfs {
    /// Starts a cluster and waits until all DataNodes are known and files can be made.
    ///
    /// # Errors
    /// When the jars cannot be fetched or a node does not come up; shows the end of its log.
    pub async fn start(options: HdfsOptions) -> Result<Self> {
        let software = Software::get().await?;
        for _ in 0..PORT_ATTEMPTS {
            match Self::attempt(&options, &software).await {
                Ok(hdfs) => return Ok(hdfs),
                Err(StartError::PortTaken) => {}
                Err(StartError::Other(fault)) => return Err(fault),
            }
        }
        bail!(
            "{}: no free ports in {PORT_ATTEMPTS} attempts",
            options.name
        )
    }

    async fn attempt(options: &HdfsOptions, software: &Software) -> Result<Self, StartError> {
        let folder = RunDir::new(&options.name)?;
        let (rpc_port, http_port) = (ports::free()?, ports::free()?);
        let names = folder.path().join("names");
        software.copy_blank(&names)?;
        let spec = NodeSpec::namenode(
            folder.path(),
            &names,
            rpc_port,
            http_port,
            options.replication,
        );
        let namenode = Node::new(spec, software)?;
        let datanodes = (0..options.datanodes)
            .map(|index| {
                let spec = NodeSpec::datanode(folder.path(), index, rpc_port, ports::free()?);
                Node::new(spec, software)
            })
            .collect::<Result<Vec<_>>>()?;
        let mut hdfs = Self {
            namenode,
            datanodes,
            rpc_port,
            http_port,
            software: software.clone(),
            folder,
        };
        hdfs.namenode.start()?;
        for datanode in &mut hdfs.datanodes {
            datanode.start()?;
        }
        hdfs.ready().await?;
        Ok(hdfs)
    }

    /// Where the NameNode answers.
    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.rpc_port)
    }

    /// The URL of a folder (`/a/b`).
    #[must_use]
    pub fn url(&self, folder: &str) -> String {
        format!("hdfs://{}{folder}", self.address())
    }

    /// Waits until every node that runs is known to the NameNode, and changes are taken.
    async fn ready(&mut self) -> Result<(), StartError> {
        let end = tokio::time::Instant::now() + READY_DEADLINE;
        loop {
            for node in std::iter::once(&mut self.namenode).chain(&mut self.datanodes) {
                if let Some(end) = node.unexpected_end()? {
                    self.folder.failed();
                    return Err(end);
                }
            }
            let mut running = 0_usize;
            let mut have_reported = true;
            for node in self.datanodes.iter().filter(|node| node.is_running()) {
                running += 1;
                have_reported &= node.has_reported()?;
            }
            let state = self.state().await;
            let is_ready = have_reported
                && state.as_ref().is_ok_and(|state| {
                    state["NumLiveDataNodes"] == running && state["FSState"] == "Operational"
                });
            if is_ready {
                return Ok(());
            }
            if tokio::time::Instant::now() > end {
                self.failed();
                let state =
                    state.map_or_else(|fault| format!("{fault:#}"), |state| state.to_string());
                return Err(
                    anyhow::anyhow!("HDFS is not ready after {READY_DEADLINE:?}: {state}").into(),
                );
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// The NameNode's word about itself: `FSState`, `NumLiveDataNodes`, `BlocksTotal`, …
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn state(&self) -> Result<Value> {
        let path = "/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState";
        let answer = http::get(self.http_port, path).await?;
        ensure!(answer.status == 200, "{answer:?}");
        let body: Value = serde_json::from_str(&answer.body)?;
        body["beans"][0]
            .is_object()
            .then(|| body["beans"][0].clone())
            .context("it tells nothing yet")
    }

    /// Kills the NameNode (SIGKILL).
    ///
    /// # Errors
    /// When it does not run.
    pub async fn kill_namenode(&mut self) -> Result<()> {
        self.namenode.kill().await
    }

    /// Freezes the NameNode: it keeps its connections and answers nothing.
    ///
    /// # Errors
    /// When it does not run.
    pub async fn freeze_namenode(&mut self) -> Result<()> {
        self.namenode.process()?.freeze().await
    }

    /// Lets a frozen NameNode go on.
    ///
    /// # Errors
    /// When it does not run.
    pub fn thaw_namenode(&mut self) -> Result<()> {
        self.namenode.process()?.thaw()
    }

    /// Starts a killed NameNode on the same port and data.
    ///
    /// # Errors
    /// When it runs already, or cannot be started.
    pub fn start_namenode(&mut self) -> Result<()> {
        self.namenode.start()
    }

    /// Kills a DataNode, counted from 0.
    ///
    /// # Errors
    /// When it does not run.
    pub async fn kill_datanode(&mut self, index: usize) -> Result<()> {
        self.datanodes[index].kill().await
    }

    /// Freezes a DataNode.
    ///
    /// # Errors
    /// When it does not run.
    pub async fn freeze_datanode(&mut self, index: usize) -> Result<()> {
        self.datanodes[index].process()?.freeze().await
    }

    /// Lets a frozen DataNode go on.
    ///
    /// # Errors
    /// When it does not run.
    pub fn thaw_datanode(&mut self, index: usize) -> Result<()> {
        self.datanodes[index].process()?.thaw()
    }

    /// Starts a killed DataNode on the same port and data.
    ///
    /// # Errors
    /// When it runs already, or cannot be started.
    pub fn start_datanode(&mut self, index: usize) -> Result<()> {
        self.datanodes[index].start()
    }

    /// Number of DataNodes, running or not.
    #[must_use]
    pub fn datanodes(&self) -> usize {
        self.datanodes.len()
    }

    /// Blocks that DataNodes are writing, each with the number of the DataNode.
    ///
    /// # Errors
    /// When their folders cannot be read.
    pub fn open_blocks(&self) -> Result<BTreeSet<(usize, String)>> {
        let mut open = BTreeSet::new();
        for (index, node) in self.datanodes.iter().enumerate() {
            open.extend(node.open_blocks()?.into_iter().map(|block| (index, block)));
        }
        Ok(open)
    }

    /// Brings everything back that a test has frozen or killed, and waits until it is ready.
    ///
    /// # Errors
    /// When it does not come back.
    pub async fn restore(&mut self) -> Result<()> {
        for node in std::iter::once(&mut self.namenode).chain(&mut self.datanodes) {
            if node.is_running() {
                node.process()?.thaw()?;
            } else {
                node.start()?;
            }
        }
        // Safe mode that was asked for has no end by itself; nor has the NameNode's answer while it starts.
        wait::until_true("an answer of the NameNode", READY_DEADLINE, async || {
            Ok(self.state().await.is_ok())
        })
        .await?;
        if self.namenode.was_in_safe_mode() {
            self.set_safe_mode(false).await?;
        }
        self.ready().await.map_err(StartError::into_fault)
    }

    /// Keeps logs and data for a look.
    pub fn failed(&self) {
        self.namenode.show_log();
        for node in &self.datanodes {
            node.show_log();
        }
        self.folder.failed();
    }

    fn logs(&self) -> PathBuf {
        self.folder.path().to_owned()
    }
}
