//! Kafka's own command line tools, run against the direct listener.

use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use super::{KafkaCluster, broker::quick_jvm, libs::class_path};
use crate::process::{Managed, Spec};

/// One line of `kafka-consumer-groups --describe`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupLine {
    /// Topic.
    pub topic: String,
    /// Partition.
    pub partition: i32,
    /// Committed offset; None: `-`.
    pub current: Option<i64>,
    /// Log end offset; None: `-`.
    pub end: Option<i64>,
    /// Lag as printed; None: `-`.
    pub lag: Option<i64>,
}

impl KafkaCluster {
    /// Runs a tool and gives what it printed.
    ///
    /// # Errors
    /// When it exits with another code than 0; shows its output.
    pub async fn tool(&self, class: &str, args: &[&str]) -> Result<String> {
        let all = self.java_args(class, args);
        let output = tokio::task::spawn_blocking(|| {
            Command::new("java").args(all).stdin(Stdio::null()).output()
        })
        .await?
        .context("cannot run java")?;
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(
            output.status.success(),
            "{class} {args:?}:\n{printed}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(printed)
    }

    /// Starts a tool that goes on by itself, to be killed; what it prints is in its log.
    ///
    /// # Errors
    /// When Java cannot be run.
    pub fn start_tool(&self, name: &str, class: &str, args: &[&str]) -> Result<Managed> {
        Managed::spawn(&Spec {
            name: name.to_owned(),
            program: "java".into(),
            args: self.java_args(class, args),
            env: Vec::new(),
            log: self.folder.path().join(format!("{name}.log")),
        })
    }

    fn java_args(&self, class: &str, args: &[&str]) -> Vec<String> {
        let mut all = quick_jvm(128, self.archive.as_deref());
        all.push("-Dorg.slf4j.simpleLogger.defaultLogLevel=error".to_owned());
        all.extend(["-cp".to_owned(), class_path(&self.libs), class.to_owned()]);
        all.extend(["--bootstrap-server".to_owned(), self.direct()]);
        all.extend(args.iter().map(|arg| (*arg).to_owned()));
        all
    }

    /// `kafka-consumer-groups --describe --group <group>`.
    ///
    /// # Errors
    /// When the tool fails or prints something else than a table.
    pub async fn describe_group(&self, group: &str) -> Result<Vec<GroupLine>> {
        let class = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand";
        let printed = self.tool(class, &["--describe", "--group", group]).await?;
        parse_group(&printed)
    }
}

/// Reads the table by the names in its head.
fn parse_group(printed: &str) -> Result<Vec<GroupLine>> {
    let mut lines = printed
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .skip_while(|fields| !fields.contains(&"CURRENT-OFFSET"));
    let head = lines
        .next()
        .with_context(|| format!("no table in:\n{printed}"))?;
    let column = |name: &str| {
        head.iter()
            .position(|field| *field == name)
            .with_context(|| format!("no column {name} in {head:?}"))
    };
    let (topic, partition) = (column("TOPIC")?, column("PARTITION")?);
    let (current, end, lag) = (
        column("CURRENT-OFFSET")?,
        column("LOG-END-OFFSET")?,
        column("LAG")?,
    );
    lines
        .filter(|fields| fields.len() > lag)
        .map(|fields| {
            Ok(GroupLine {
                topic: fields[topic].to_owned(),
                partition: fields[partition].parse()?,
                current: fields[current].parse().ok(),
                end: fields[end].parse().ok(),
                lag: fields[lag].parse().ok(),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_read_from_the_table_of_the_tool() {
        let printed = "\nConsumer group 'kreplicator.a-b' has no active members.\n\n\
            GROUP           TOPIC  PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG  CONSUMER-ID  HOST  CLIENT-ID\n\
            kreplicator.a-b orders 0          7               9               2    -            -     -\n\
            kreplicator.a-b orders 1          -               9               -    -            -     -\n";
        let lines = parse_group(printed).expect("a table");
        assert_eq!(lines.len(), 2);
        assert_eq!((lines[0].topic.as_str(), lines[0].partition), ("orders", 0));
        assert_eq!(
            (lines[0].current, lines[0].end, lines[0].lag),
            (Some(7), Some(9), Some(2))
        );
        assert_eq!((lines[1].current, lines[1].lag), (None, None));
        assert!(parse_group("Error: no such group").is_err());
    }
}
