//! The operator's commands against running controllers.

use std::{
    fs,
    process::{Command, Output, Stdio},
};

use anyhow::{Context as _, Result, ensure};
use kreplicator_tests::{
    load::{Load, LoadOptions},
    settings,
    tail::Tail,
};

use crate::{DEADLINE, Small, scenario};

/// Runs a command; it talks to the system's controller.
async fn run(small: &mut Small, args: &[&str]) -> Result<Output> {
    let port = small.system.controllers()[0]
        .grpc_port()
        .context("a controller has one")?;
    let mut command = Command::new(settings::program());
    command
        .args(args)
        .args(["--endpoint", &format!("127.0.0.1:{port}")])
        .stdin(Stdio::null());
    Ok(tokio::task::spawn_blocking(move || command.output()).await??)
}

fn text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

fn code(output: &Output, wanted: i32) -> Result<()> {
    ensure!(
        output.status.code() == Some(wanted),
        "{:?}, expected {wanted}\n{}",
        output.status,
        text(output)
    );
    Ok(())
}

#[test]
fn a_file_is_applied_once_and_its_topics_flow() {
    scenario(async |small| {
        let file = small.password_file().with_file_name("links.yaml");
        let servers = small.secured.direct();
        fs::write(
            &file,
            format!(
                "clusters:\n  copy: {{bootstrap_servers: [\"{servers}\"]}}\nlinks:\n  plain-copy:\n    \
                 source: plain\n    target: copy\n    naming: {{prefix: \"copy.\"}}\n    topics: [receipts]\n"
            ),
        )?;
        let path = file.display().to_string();
        let apply = ["apply", "-f", &path];
        let dry = ["apply", "-f", &path, "--dry-run"];

        let refusal = run(small, &apply).await?;
        code(&refusal, 4)?;
        ensure!(text(&refusal).contains("receipts"), "{}", text(&refusal));

        small.plain.create_topic("receipts", 2, &[]).await?;
        let options = LoadOptions {
            records_per_second: 100,
            padding: 0,
        };
        let load = Load::start(&small.plain.client_config(), options)?;
        load.add("receipts", 2);
        let tail = Tail::start(&small.secured.client_config())?;
        tail.follow("copy.receipts");
        code(&run(small, &dry).await?, 10)?;
        let applied = run(small, &apply).await?;
        code(&applied, 0)?;
        ensure!(text(&applied).contains("plain-copy"), "{}", text(&applied));
        code(&run(small, &dry).await?, 0)?;
        code(&run(small, &apply).await?, 0)?;

        let produced = load.finish(DEADLINE).await?.into_iter();
        let renamed = produced
            .map(|((topic, partition), count)| ((format!("copy.{topic}"), partition), count));
        let report = tail.complete(&renamed.collect(), DEADLINE).await?;
        ensure!(report.is_exact(), "{report}");

        let listed = run(small, &["get", "subscriptions", "-o", "json"]).await?;
        code(&listed, 0)?;
        let json: serde_json::Value = serde_json::from_slice(&listed.stdout)?;
        ensure!(json.to_string().contains("receipts"), "{json}");
        for what in ["clusters", "links", "tasks", "workers"] {
            let listed = run(small, &["get", what]).await?;
            code(&listed, 0)?;
            ensure!(!listed.stdout.is_empty(), "get {what} prints nothing");
        }
        let absent = ["unsubscribe", "--link", "plain-copy", "nothing-here"];
        let absent = run(small, &absent).await?;
        code(&absent, 3)?;
        ensure!(text(&absent).contains("nothing-here"), "{}", text(&absent));
        code(
            &run(small, &["unsubscribe", "--link", "plain-copy", "receipts"]).await?,
            0,
        )?;
        code(&run(small, &["delete", "link", "plain-copy"]).await?, 0)
    });
}
