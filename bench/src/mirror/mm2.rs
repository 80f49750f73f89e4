//! MirrorMaker 2 in dedicated mode, tuned for throughput.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use anyhow::Result;
use async_trait::async_trait;
use kreplicator_tests::{
    folder::RunDir,
    kafka::{VERSION, fetch_jars},
    ports,
    process::{Managed, Spec},
};

use super::{
    options::PeerName,
    peer::{Job, Layout, Peer, Running},
};

/// MirrorMaker 2.
#[derive(Debug)]
pub(crate) struct MirrorMaker {
    libs: PathBuf,
    heap_mebibytes: u32,
}

impl MirrorMaker {
    /// Fetches its jars when they are not there yet.
    ///
    /// # Errors
    /// When Maven fails.
    pub(crate) async fn fetch(heap_mebibytes: u32) -> Result<Self> {
        let libs = tokio::task::spawn_blocking(|| {
            let pom = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/pom.xml"));
            let jar = format!("connect-mirror-{VERSION}.jar");
            fetch_jars(&format!("mirror-maker-{VERSION}"), pom, &jar)
        })
        .await??;
        Ok(Self {
            libs,
            heap_mebibytes,
        })
    }

    fn spec(&self, name: &str, folder: &Path, properties: &Path) -> Spec {
        let heap = self.heap_mebibytes;
        let args = [
            format!("-Xmx{heap}m"),
            format!("-Xms{heap}m"),
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn".to_owned(),
            "-cp".to_owned(),
            format!("{}/*", self.libs.display()),
            "org.apache.kafka.connect.mirror.MirrorMaker".to_owned(),
            properties.display().to_string(),
        ];
        Spec {
            name: name.to_owned(),
            program: "java".into(),
            args: args.into(),
            env: Vec::new(),
            log: folder.join(format!("{name}.log")),
        }
    }
}

#[async_trait(?Send)]
impl Peer for MirrorMaker {
    fn name(&self) -> PeerName {
        PeerName::Mm2
    }

    fn target_topic(&self, source_topic: &str) -> String {
        format!("a.{source_topic}")
    }

    async fn start(&self, job: &Job) -> Result<Running> {
        let folder = RunDir::new(&format!("mm2-{}", job.name))?;
        let nodes = match job.layout {
            Layout::Alone => 1,
            Layout::Fleet(nodes) => nodes,
        };
        let mut workers = Vec::new();
        for node in 1..=nodes {
            let name = format!("mm2-{node}");
            let rest_port = match job.layout {
                Layout::Alone => None,
                Layout::Fleet(_) => Some(ports::free()?),
            };
            let file = folder.path().join(format!("{name}.properties"));
            fs::write(&file, properties(job, rest_port))?;
            workers.push(Managed::spawn(&self.spec(&name, folder.path(), &file))?);
        }
        Ok(Running {
            workers,
            others: Vec::new(),
            _store: None,
            folder,
        })
    }
}

/// The settings of a node. Those of consumer and producer are what its tuning guides advise; `b` to `a`
/// is off altogether, or MirrorMaker 2 would run a second set of connectors for it.
fn properties(job: &Job, rest_port: Option<u16>) -> String {
    let mut text = format!(
        "clusters=a,b\n\
         a.bootstrap.servers={}\n\
         b.bootstrap.servers={}\n\
         a->b.enabled=true\n\
         a->b.topics={}\n\
         b->a.enabled=false\n\
         b->a.emit.heartbeats.enabled=false\n\
         tasks.max=2\n\
         a.consumer.auto.offset.reset=earliest\n\
         a.consumer.max.poll.records=5000\n\
         b.producer.compression.type={}\n\
         b.producer.linger.ms=20\n\
         b.producer.batch.size=131072\n\
         refresh.topics.interval.seconds=5\n",
        job.source.join(","),
        job.target.join(","),
        job.topics.join(","),
        job.codec,
    );
    for topic in [
        "",
        "checkpoints.topic.",
        "heartbeats.topic.",
        "offset-syncs.topic.",
        "offset.storage.",
        "status.storage.",
        "config.storage.",
    ] {
        writeln!(text, "{topic}replication.factor=1").expect("writing to a string cannot fail");
    }
    if let Some(port) = rest_port {
        writeln!(
            text,
            "dedicated.mode.enable.internal.rest=true\nlisteners=http://127.0.0.1:{port}"
        )
        .expect("writing to a string cannot fail");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(layout: Layout) -> Job {
        Job {
            name: "x".to_owned(),
            source: vec!["s:1".to_owned()],
            target: vec!["t:1".to_owned(), "t:2".to_owned()],
            topics: vec!["one".to_owned(), "two".to_owned()],
            codec: "zstd",
            layout,
        }
    }

    #[test]
    fn the_job_is_in_the_settings() {
        let text = properties(&job(Layout::Alone), None);
        for line in [
            "a.bootstrap.servers=s:1",
            "b.bootstrap.servers=t:1,t:2",
            "a->b.topics=one,two",
            "b.producer.compression.type=zstd",
            "replication.factor=1",
            "offset-syncs.topic.replication.factor=1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        assert!(!text.contains("listeners"), "{text}");
    }

    #[test]
    fn nodes_of_a_fleet_speak_with_each_other() {
        let text = properties(&job(Layout::Fleet(2)), Some(4711));
        assert!(
            text.contains("\nlisteners=http://127.0.0.1:4711\n"),
            "{text}"
        );
    }
}
