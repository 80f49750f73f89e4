//! What an administrator does: safe mode, quotas, folders of other users.

use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use tokio::process::Command;

use super::{Hdfs, SUPERUSER};

impl Hdfs {
    /// Turns safe mode on or off.
    ///
    /// # Errors
    /// As [`Hdfs::admin`].
    pub async fn set_safe_mode(&mut self, on: bool) -> Result<()> {
        self.namenode.set_safe_mode(on);
        self.admin(&["-safemode", if on { "enter" } else { "leave" }])
            .await?;
        Ok(())
    }

    /// Paths of files below a folder that somebody writes. Asks the NameNode itself: what it publishes of their number is
    /// up to 10 s old.
    ///
    /// # Errors
    /// As [`Hdfs::admin`].
    pub async fn open_files(&self, folder: &str) -> Result<Vec<String>> {
        let said = self.admin(&["-listOpenFiles", "-path", folder]).await?;
        let paths = said
            .lines()
            .filter_map(|line| line.split_whitespace().last());
        let below = paths.filter(|path| path.starts_with('/'));
        Ok(below.map(str::to_owned).collect())
    }

    /// Runs `hdfs dfsadmin` with these arguments, and gives what it prints.
    ///
    /// # Errors
    /// When it fails; shows what it said.
    pub async fn admin(&self, arguments: &[&str]) -> Result<String> {
        let mut args = self.software.jvm("admin", 96);
        args.push("-cp".to_owned());
        args.push(self.software.class_path());
        args.push("org.apache.hadoop.hdfs.tools.DFSAdmin".to_owned());
        args.push("-fs".to_owned());
        args.push(format!("hdfs://{}", self.address()));
        args.extend(arguments.iter().map(|&argument| argument.to_owned()));
        let output = Command::new("java")
            .args(args)
            .env("HADOOP_USER_NAME", SUPERUSER)
            .current_dir(self.logs())
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .context("cannot run java")?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(
            output.status.success(),
            "dfsadmin {arguments:?}: {said}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(said)
    }
}
