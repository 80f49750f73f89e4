//! The operator's commands against running controllers.

use std::{
    fs,
    path::Path,
    process::{Command, Output, Stdio},
};

use anyhow::{Context as _, Result, ensure};
use kreplicator_tests::{
    api,
    load::{Load, LoadOptions},
    process::{Managed, Spec},
    rig, settings,
    tail::Tail,
    wait,
};
use rustix::process::Signal;
use serde_json::Value;
use tokio::time::Instant;

use tonic::Code;

use crate::{DEADLINE, Small, scenario};

/// Runs a command; it talks to the system's controller.
async fn run(small: &mut Small, args: &[&str]) -> Result<Output> {
    run_at(&endpoint(small)?, args).await
}

/// Runs a command that talks to the controller at `endpoint`.
pub(crate) async fn run_at(endpoint: &str, args: &[&str]) -> Result<Output> {
    let mut command = Command::new(settings::program());
    command
        .args(args)
        .args(["--endpoint", endpoint])
        .stdin(Stdio::null());
    Ok(tokio::task::spawn_blocking(move || command.output()).await??)
}

fn endpoint(small: &mut Small) -> Result<String> {
    let port = small.system.controllers()[0].grpc_port();
    let port = port.context("a controller has one")?;
    Ok(format!("127.0.0.1:{port}"))
}

fn text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// Checks how a command has ended.
pub(crate) fn code(output: &Output, wanted: i32) -> Result<()> {
    ensure!(
        output.status.code() == Some(wanted),
        "{:?}, expected {wanted}\n{}",
        output.status,
        text(output)
    );
    Ok(())
}

/// A file that is refused for one of its topics leaves neither its clusters nor its links behind.
async fn nothing_declared(small: &Small) -> Result<()> {
    let cluster = small.api.cluster("copy").await;
    let link = small.api.link("plain-copy").await;
    ensure!(cluster.is_err_and(|status| status.code() == Code::NotFound));
    ensure!(link.is_err_and(|status| status.code() == Code::NotFound));
    let subscription = small.api.subscription("plain-copy", "receipts").await;
    ensure!(subscription.is_err_and(|status| status.code() == Code::NotFound));
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
        let told = text(&refusal);
        let remedy = "create it, correct the name, or allow missing topics";
        ensure!(told.contains("receipts") && told.contains(remedy), "{told}");
        nothing_declared(small).await?;

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
        let json: Value = serde_json::from_slice(&listed.stdout)?;
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

#[test]
fn a_topic_is_subscribed_listed_watched_and_unsubscribed_by_commands() {
    scenario(async |small| {
        let servers = small
            .secured
            .direct()
            .split(',')
            .map(String::from)
            .collect();
        small.api.put_cluster(api::cluster("hand", servers)).await?;
        small
            .api
            .put_link(api::link("by-hand", "plain", "hand", "hand."))
            .await?;
        let log = small.password_file().with_file_name("watch.log");
        let mut watch = watch(small, "by-hand", &log)?;
        said(&watch, "that is all there is now").await?;

        small.plain.create_topic("parcels", 2, &[]).await?;
        let options = LoadOptions {
            records_per_second: 100,
            padding: 0,
        };
        let load = Load::start(&small.plain.client_config(), options)?;
        load.add("parcels", 2);
        let tail = Tail::start(&small.secured.client_config())?;
        tail.follow("hand.parcels");
        let asked = Instant::now();
        let subscribed = run(small, &["subscribe", "--link", "by-hand", "parcels"]).await?;
        code(&subscribed, 0)?;
        let printed = text(&subscribed);
        ensure!(
            printed.trim() == "subscribed: by-hand/parcels (1 topic)",
            "{printed}"
        );
        for lane in rig::lanes("hand.parcels", 0..2) {
            tail.first_arrival(&lane, asked, DEADLINE).await?;
        }
        said(&watch, "by-hand  parcels  ok  topics 1  running 2/2").await?;
        let again = run(small, &["subscribe", "--link", "by-hand", "parcels"]).await?;
        code(&again, 0)?;
        ensure!(text(&again).starts_with("unchanged"), "{}", text(&again));

        let listed = ["get", "tasks", "--link", "by-hand", "-o", "yaml"];
        let listed = run(small, &listed).await?;
        code(&listed, 0)?;
        let tasks: Value = serde_saphyr::from_str(std::str::from_utf8(&listed.stdout)?)?;
        let tasks = tasks
            .as_array()
            .with_context(|| format!("no list: {tasks}"))?;
        ensure!(tasks.len() == 2, "{tasks:#?}");
        for (task, partition) in tasks.iter().zip(0..) {
            ensure!(
                task["link"] == "by-hand"
                    && task["topic"] == "parcels"
                    && task["partition"] == partition
                    && task["target_topic"] == "hand.parcels"
                    && task["state"] == "running"
                    && task["worker"] == "worker-1"
                    && task["lag_records"].is_u64(),
                "{task:#}"
            );
        }

        let produced = load.finish(DEADLINE).await?.into_iter();
        let renamed = produced
            .map(|((topic, partition), count)| ((format!("hand.{topic}"), partition), count));
        let report = tail.complete(&renamed.collect(), DEADLINE).await?;
        ensure!(report.is_exact(), "{report}");
        let unsubscribed = run(small, &["unsubscribe", "--link", "by-hand", "parcels"]).await?;
        code(&unsubscribed, 0)?;
        said(&watch, "by-hand  parcels  deleted").await?;
        rig::wait_gone(&small.api, "by-hand", "parcels").await?;
        let listed = ["get", "tasks", "--link", "by-hand", "-o", "yaml"];
        let listed = run(small, &listed).await?;
        code(&listed, 0)?;
        ensure!(text(&listed).trim() == "[]", "{}", text(&listed));

        watch.signal(Signal::INT)?;
        let ended = watch.wait(DEADLINE).await?;
        ensure!(ended.success(), "watch ends with {ended}");
        small.api.delete_link("by-hand").await?;
        Ok(())
    });
}

/// Starts to follow the subscriptions of a link.
fn watch(small: &mut Small, link: &str, log: &Path) -> Result<Managed> {
    let endpoint = endpoint(small)?;
    let args = ["watch", "--link", link, "--endpoint", &endpoint];
    Managed::spawn(&Spec {
        name: "watch".to_owned(),
        program: settings::program(),
        args: args.map(String::from).to_vec(),
        env: Vec::new(),
        log: log.to_owned(),
    })
}

/// Waits until a program has said something.
async fn said(program: &Managed, words: &str) -> Result<()> {
    let what = format!("the line {words:?}");
    wait::until(&what, DEADLINE, async || {
        let said = fs::read_to_string(program.log())?;
        ensure!(said.contains(words), "it has said: {said}");
        Ok(Some(()))
    })
    .await
}
