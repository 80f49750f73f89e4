//! The files that KReplicator is given.

use std::fmt::Write as _;

use super::{super::peer::Job, engine::Declared};

/// Clusters, one link and its topics. `engine` names the engine and prefixes target topics.
pub(super) fn links(job: &Job, link: &str, engine: &str, declared: Declared) -> String {
    let chosen = match declared {
        Declared::ByName => format!("    engine: {engine}\n"),
        Declared::OnlyOne => String::new(),
    };
    let mut text = format!(
        "clusters:\n\
         \x20 a: {{bootstrap_servers: [{}]}}\n\
         \x20 b:\n\
         \x20   bootstrap_servers: [{}]\n\
         \x20   client_options: {{compression.type: {}}}\n\
         links:\n\
         \x20 {link}:\n\
         \x20   source: a\n\
         \x20   target: b\n\
         {chosen}\
         \x20   naming: {{prefix: \"{engine}.\"}}\n\
         \x20   topics:\n",
        quoted(&job.source),
        quoted(&job.target),
        job.codec,
    );
    for topic in &job.topics {
        writeln!(text, "      - {topic}").expect("writing to a string cannot fail");
    }
    text
}

/// Settings of a standalone process: ports of the API, the controller's and the worker's endpoint.
pub(super) fn standalone(ports: [u16; 3], budget_mebibytes: u32) -> String {
    let [grpc, http, worker] = ports;
    format!(
        "controller: {{listen_grpc: \"127.0.0.1:{grpc}\", listen_http: \"127.0.0.1:{http}\"}}\n\
         worker: {{listen: \"127.0.0.1:{worker}\", memory_budget_bytes: {budget_mebibytes}MiB}}\n"
    )
}

/// Settings of a controller.
pub(super) fn controller(etcd: &str, grpc: u16, http: u16) -> String {
    format!(
        "{}controller: {{id: controller, listen_grpc: \"127.0.0.1:{grpc}\", listen_http: \"127.0.0.1:{http}\"}}\n",
        store(etcd)
    )
}

/// Settings of a worker.
pub(super) fn worker(etcd: &str, id: &str, port: u16, budget_mebibytes: u32) -> String {
    format!(
        "{}worker: {{id: {id}, listen: \"127.0.0.1:{port}\", memory_budget_bytes: {budget_mebibytes}MiB}}\n",
        store(etcd)
    )
}

fn store(etcd: &str) -> String {
    format!("store: {{etcd: {{endpoints: [\"{etcd}\"]}}}}\n")
}

fn quoted(servers: &[String]) -> String {
    let all: Vec<String> = servers
        .iter()
        .map(|server| format!("\"{server}\""))
        .collect();
    all.join(", ")
}

#[cfg(test)]
mod tests {
    use super::{super::super::peer::Layout, *};

    #[test]
    fn an_engine_is_named_only_to_binaries_that_have_a_choice() {
        let job = Job {
            name: "x".to_owned(),
            source: vec!["s:1".to_owned(), "s:2".to_owned()],
            target: vec!["t:1".to_owned()],
            topics: vec!["one".to_owned()],
            codec: "lz4",
            layout: Layout::Alone,
        };
        let named = links(&job, "l", "records", Declared::ByName);
        assert!(named.contains("\n    engine: records\n"), "{named}");
        assert!(named.contains("[\"s:1\", \"s:2\"]"), "{named}");
        assert!(named.contains("\n    naming: {prefix: \"records.\"}\n"));
        assert!(named.ends_with("\n    topics:\n      - one\n"), "{named}");
        let only = links(&job, "l", "records", Declared::OnlyOne);
        assert!(!only.contains("engine"), "{only}");
    }
}
