//! What is fetched and made once for all clusters: jars, an empty name space, and the classes of each process as a
//! file that the Java machine maps.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;

use super::{
    SUPERUSER, VERSION,
    node::{Node, NodeSpec},
};
use crate::{http, kafka::fetch_jars, ports, settings, wait};

const PATIENCE: Duration = Duration::from_mins(5);

/// What nodes are started from.
#[derive(Debug, Clone)]
pub(super) struct Software {
    libs: PathBuf,
    /// A name space in which nothing is, and classes.
    prepared: PathBuf,
}

impl Software {
    /// Fetches and makes what is not there yet. Safe to call from many processes at once.
    pub(super) async fn get() -> Result<Self> {
        let libs = tokio::task::spawn_blocking(|| {
            let pom = Path::new(env!("CARGO_MANIFEST_DIR")).join("pom-hdfs.xml");
            let jar = format!("hadoop-client-minicluster-{VERSION}.jar");
            fetch_jars(&format!("hadoop-{VERSION}"), &pom, &jar)
        })
        .await??;
        let deps = settings::deps_dir();
        let software = Self {
            libs,
            prepared: deps.join(format!("hdfs-{VERSION}")),
        };
        if software.prepared.is_dir() {
            return Ok(software);
        }
        let lock = File::create(deps.join("hdfs.lock"))?;
        let lock = tokio::task::spawn_blocking(move || lock.lock().map(|()| lock));
        let _lock = lock.await?.context("cannot lock hdfs.lock")?;
        if !software.prepared.is_dir() {
            let partial = tempfile::tempdir_in(&deps)?;
            software.prepare(partial.path()).await?;
            fs::rename(partial.keep(), &software.prepared)?;
        }
        Ok(software)
    }

    /// Formats a name space, and runs a node of each kind for the sake of its classes.
    async fn prepare(&self, into: &Path) -> Result<()> {
        let scratch = TempDir::new_in(settings::deps_dir())?;
        let (rpc_port, http_port, data_port) = (ports::free()?, ports::free()?, ports::free()?);
        let names = scratch.path().join("names");
        let spec = NodeSpec::namenode(scratch.path(), &names, rpc_port, http_port, 1);
        let mut namenode = Node::new(spec, self)?;
        self.format(scratch.path())?;
        copy(&names.join("current"), &into.join("names/current"))?;
        let spec = NodeSpec::datanode(scratch.path(), 0, rpc_port, data_port);
        let mut datanode = Node::new(spec, self)?;
        for (node, role, heap) in [
            (&mut namenode, "namenode", 192),
            (&mut datanode, "datanode", 128),
        ] {
            let mut flags = jvm(heap);
            let archive = into.join(format!("{role}.jsa"));
            flags.push(format!("-XX:ArchiveClassesAtExit={}", archive.display()));
            node.start_with(flags)?;
        }
        let known = wait::until_true("a NameNode that knows its DataNode", PATIENCE, async || {
            let path = "/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState";
            Ok(http::get(http_port, path)
                .await?
                .body
                .contains("\"NumLiveDataNodes\" : 1"))
        });
        if let Err(fault) = known.await {
            namenode.show_log();
            datanode.show_log();
            return Err(fault);
        }
        // Nodes start without archives as well, only later.
        for node in [&mut datanode, &mut namenode] {
            node.process()?.terminate(PATIENCE).await?;
        }
        self.admin_classes(into)
    }

    fn format(&self, folder: &Path) -> Result<()> {
        let mut args = jvm(128);
        args.extend([
            "-cp".to_owned(),
            self.class_path(),
            "org.apache.hadoop.hdfs.server.namenode.NameNode".to_owned(),
            "-conf".to_owned(),
            folder.join("namenode.xml").display().to_string(),
            "-format".to_owned(),
            "-nonInteractive".to_owned(),
        ]);
        run(&args, folder)
    }

    fn admin_classes(&self, into: &Path) -> Result<()> {
        let mut args = jvm(96);
        let archive = into.join("admin.jsa");
        args.push(format!("-XX:ArchiveClassesAtExit={}", archive.display()));
        args.extend([
            "-cp".to_owned(),
            self.class_path(),
            "org.apache.hadoop.hdfs.tools.DFSAdmin".to_owned(),
            "-help".to_owned(),
            "safemode".to_owned(),
        ]);
        run(&args, into)
    }

    /// Copies the empty name space to a folder that is not there yet.
    pub(super) fn copy_blank(&self, names: &Path) -> Result<()> {
        copy(&self.prepared.join("names/current"), &names.join("current"))
    }

    pub(super) fn class_path(&self) -> String {
        format!("{}/*", self.libs.display())
    }

    /// Flags of a Java machine that starts quickly.
    pub(super) fn jvm(&self, role: &str, heap_mebibytes: u32) -> Vec<String> {
        let mut flags = jvm(heap_mebibytes);
        let archive = self.prepared.join(format!("{role}.jsa"));
        if archive.is_file() {
            flags.push(format!("-XX:SharedArchiveFile={}", archive.display()));
            // Of another Java or other jars it is left aside, and that is all right.
            flags.push("-Xlog:cds=off".to_owned());
            flags.push("-Xlog:cds+dynamic=off".to_owned());
        }
        flags
    }
}

fn jvm(heap_mebibytes: u32) -> Vec<String> {
    vec![
        format!("-Xmx{heap_mebibytes}m"),
        "-XX:+UseSerialGC".to_owned(),
        "-XX:TieredStopAtLevel=1".to_owned(),
        "-Xshare:auto".to_owned(),
        "-Djava.awt.headless=true".to_owned(),
    ]
}

fn run(args: &[String], folder: &Path) -> Result<()> {
    let output = Command::new("java")
        .args(args)
        .env("HADOOP_USER_NAME", SUPERUSER)
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .context("cannot run java")?;
    ensure!(
        output.status.success(),
        "java {args:?}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

/// Copies the files of a folder.
fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for file in fs::read_dir(from).with_context(|| from.display().to_string())? {
        let file = file?;
        fs::copy(file.path(), to.join(file.file_name()))?;
    }
    Ok(())
}
