//! Releases of Apache Kafka that tests start.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use anyhow::Result;

use super::libs::{VERSION, fetch_jars};

/// A release of Apache Kafka. Ordered by age, the oldest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum KafkaVersion {
    /// 2.1.1, the oldest that is supported. It needs a ZooKeeper, which the cluster brings along. It
    /// knows no PEM files, so it starts without TLS; of users it knows those of PLAIN.
    V2_1,
    /// 3.9.1, the last before 4.0.
    V3_9,
    /// [`VERSION`].
    #[default]
    Current,
}

impl KafkaVersion {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::V2_1, Self::V3_9, Self::Current];

    /// As Apache writes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V2_1 => "2.1.1",
            Self::V3_9 => "3.9.1",
            Self::Current => VERSION,
        }
    }

    /// The folder of its jars; fetches them when they are not there yet.
    ///
    /// # Errors
    /// When Maven fails; shows what it said.
    pub fn fetch(self) -> Result<PathBuf> {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
        let (pom, scala) = match self {
            Self::V2_1 => ("pom-2.1.xml", "2.12"),
            Self::V3_9 => ("pom-3.9.xml", "2.13"),
            Self::Current => ("pom.xml", "2.13"),
        };
        let jar = format!("kafka_{scala}-{self}.jar");
        fetch_jars(&format!("kafka-{self}"), &manifest.join(pom), &jar)
    }

    /// Whether its brokers agree by ZooKeeper, not by a quorum of their own.
    pub(super) fn needs_zookeeper(self) -> bool {
        self == Self::V2_1
    }

    /// Whether it creates topics with its default replication when asked for none in particular
    /// (KIP-464, Kafka 2.4).
    pub(super) fn has_default_replication(self) -> bool {
        self > Self::V2_1
    }
}

impl fmt::Display for KafkaVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
