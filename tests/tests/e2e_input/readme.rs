//! What README.md tells a newcomer to do, done.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use kreplicator_tests::{
    folder::RunDir,
    load::{Load, LoadOptions},
    ports,
    process::{Managed, Spec},
    settings,
    tail::Tail,
    wait,
};

use crate::{
    DEADLINE, Small,
    command_line::{code, run_at},
    scenario,
};

const README: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md");
const TOPICS: [&str; 3] = ["orders", "payments", "events.door"];

#[test]
fn the_readmes_file_runs_standalone_and_its_commands_work() {
    scenario(async |small| {
        let readme = fs::read_to_string(README)?;
        let blocks = blocks(&readme);
        let file = block(&blocks, "# links.yaml\n")?;
        let start = block(&blocks, "kreplicator standalone ")?;
        let commands = block(&blocks, "kreplicator get tasks ")?;

        let topics: Vec<String> = TOPICS.map(String::from).to_vec();
        small.plain.create_topics(&topics, 2, &[]).await?;
        small.plain.create_topic("clicks", 2, &[]).await?;
        let options = LoadOptions {
            records_per_second: 200,
            padding: 0,
        };
        let load = Load::start(&small.plain.client_config(), options)?;
        let tail = Tail::start(&small.secured.client_config())?;
        for topic in TOPICS.into_iter().chain(["clicks"]) {
            load.add(topic, 2);
            tail.follow(&format!("east.{topic}"));
        }

        let folder = RunDir::new("readme")?;
        fs::write(folder.path().join("links.yaml"), addressed(file, small)?)?;
        let port = ports::free()?;
        let endpoint = format!("127.0.0.1:{port}");
        let mut standalone = standalone(start, &endpoint, &folder)?;
        let outcome = follow(&endpoint, commands, load, &tail).await;
        let outcome = outcome.inspect_err(|_| folder.failed());
        outcome.with_context(|| standalone.log_tail())?;
        let ended = standalone.terminate(DEADLINE).await?;
        ensure!(ended.success(), "it ends with {ended}");
        Ok(())
    });
}

/// Everything flows under the names that the file asks for, and each command ends well.
async fn follow(endpoint: &str, commands: &str, load: Load, tail: &Tail) -> Result<()> {
    wait::until("declarations in force", DEADLINE, async || {
        let listed = ["get", "tasks", "--link", "east-west", "-o", "json"];
        let listed = run_at(endpoint, &listed).await?;
        code(&listed, 0)?;
        let tasks: serde_json::Value = serde_json::from_slice(&listed.stdout)?;
        let count = tasks.as_array().context("a list")?.len();
        ensure!(count == 2 * TOPICS.len(), "{count} tasks");
        Ok(Some(()))
    })
    .await?;
    let mut done = 0;
    for command in commands.lines() {
        let command = command.split('#').next().unwrap_or_default();
        let args: Vec<&str> = command.split_whitespace().collect();
        let (program, args) = args.split_first().context("an empty line")?;
        ensure!(*program == "kreplicator", "not ours: {command}");
        code(&run_at(endpoint, args).await?, 0).with_context(|| command.to_owned())?;
        done += 1;
    }
    ensure!(done >= 4, "only {done} commands in {commands}");
    let mut produced = load.finish(DEADLINE).await?;
    // It is paused now, with part of it copied or nothing.
    produced.retain(|(topic, _), _| TOPICS.contains(&topic.as_str()));
    let renamed = produced
        .into_iter()
        .map(|((topic, partition), count)| ((format!("east.{topic}"), partition), count));
    let report = tail.complete(&renamed.collect(), DEADLINE).await?;
    ensure!(report.is_exact() && report.produced > 0, "{report}");
    let listed = ["get", "subscriptions", "--link", "east-west", "-o", "json"];
    let listed = run_at(endpoint, &listed).await?;
    code(&listed, 0)?;
    let listed: serde_json::Value = serde_json::from_slice(&listed.stdout)?;
    let listed = listed.as_array().context("a list")?.iter();
    let paused: Vec<_> = listed.filter(|one| one["health"] == "paused").collect();
    ensure!(
        paused.len() == 1 && paused[0].to_string().contains("clicks"),
        "paused: {paused:?}"
    );
    Ok(())
}

/// The declarations with the addresses of clusters that are there.
fn addressed(file: &str, small: &Small) -> Result<String> {
    let east = small.plain.bootstrap().join(", ");
    let addresses = [
        ("east-1:9092, east-2:9092", east),
        ("west-1:9092", small.secured.direct()),
    ];
    let mut text = file.to_owned();
    for (example, real) in addresses {
        ensure!(text.contains(example), "no {example} in {file}");
        text = text.replace(example, &real);
    }
    Ok(text)
}

/// Runs the command as it stands there, in a folder of its own and on ports that are free.
fn standalone(command: &str, endpoint: &str, folder: &RunDir) -> Result<Managed> {
    let mut args = command.split_whitespace().map(String::from);
    ensure!(args.next().as_deref() == Some("kreplicator"), "{command}");
    let place = |name: String| {
        let is_file = name == "links.yaml";
        let path = folder.path().join(&name).display().to_string();
        if is_file { path } else { name }
    };
    let mut args: Vec<String> = args.map(place).collect();
    let data = folder.path().join("data").display().to_string();
    args.extend(["--data-dir".to_owned(), data]);
    for setting in [
        format!("controller.listen_grpc={endpoint}").as_str(),
        "controller.listen_http=127.0.0.1:0",
        "worker.listen=127.0.0.1:0",
    ] {
        args.extend(["--set".to_owned(), setting.to_owned()]);
    }
    Managed::spawn(&Spec {
        name: "standalone".to_owned(),
        program: settings::program(),
        args,
        env: Vec::new(),
        log: folder.path().join("standalone.log"),
    })
}

/// Blocks of code, without their fences.
fn blocks(text: &str) -> Vec<&str> {
    let fenced = text.split("```").skip(1).step_by(2);
    fenced
        .filter_map(|block| Some(block.split_once('\n')?.1))
        .collect()
}

fn block<'a>(blocks: &[&'a str], start: &str) -> Result<&'a str> {
    let mut found = blocks.iter().filter(|block| block.starts_with(start));
    let block = found.next();
    let block =
        block.with_context(|| format!("README.md has no block that begins with {start:?}"))?;
    ensure!(found.next().is_none(), "two blocks begin with {start:?}");
    Ok(block)
}
