//! Which engines a binary knows, told by what it says of a file that asks for one.

use std::{path::Path, time::Duration};

use anyhow::{Context as _, Result, bail, ensure};
use kreplicator_tests::folder::RunDir;
use tokio::{process::Command, time::timeout};

use super::{
    super::{
        options::PeerName,
        peer::{Job, Layout},
    },
    files,
};

/// Exit code: the file has faults.
const FAULTY: i32 = 2;
/// Exit code: the file is sound, and no controller answered.
const UNREACHABLE: i32 = 5;
/// Where no controller is.
const NOWHERE: &str = "127.0.0.1:1";
/// Longest run of a command.
const COMMAND: Duration = Duration::from_secs(30);

/// How an engine is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Declared {
    /// By `engine: <name>` on the link.
    ByName,
    /// Not at all: the binary has one engine.
    OnlyOne,
}

/// How `program` is asked for an engine; None: it does not know it.
pub(super) async fn probe(program: &Path, engine: PeerName) -> Result<Option<Declared>> {
    let folder = RunDir::new("probe")?;
    let file = folder.path().join("links.yaml");
    let mut answers = Vec::new();
    for declared in [Declared::ByName, Declared::OnlyOne] {
        std::fs::write(
            &file,
            files::links(&job(), "probe", engine.name(), declared),
        )?;
        let answer = run(program, &file, NOWHERE, &["--dry-run", "--timeout", "1s"]).await?;
        let known = match answer.code {
            Some(UNREACHABLE) => true,
            Some(FAULTY) => false,
            _ => bail!(
                "{} gives neither faults nor \"unreachable\" for a file:\n{}",
                program.display(),
                answer.text
            ),
        };
        answers.push((declared, known));
        // Before engines could be chosen there was `records` alone.
        if known || engine != PeerName::Records {
            break;
        }
    }
    let known = answers.into_iter().find(|(_, known)| *known);
    if known.is_none() && engine == PeerName::Records {
        bail!(
            "{} refuses the bench's own file; build it anew by `make build`",
            program.display()
        );
    }
    Ok(known.map(|(declared, _)| declared))
}

/// Applies a file by a controller.
pub(super) async fn apply(program: &Path, file: &Path, endpoint: &str) -> Result<()> {
    let answer = run(program, file, endpoint, &[]).await?;
    ensure!(answer.code == Some(0), "apply: {}", answer.text);
    Ok(())
}

struct Answer {
    code: Option<i32>,
    text: String,
}

async fn run(program: &Path, file: &Path, endpoint: &str, args: &[&str]) -> Result<Answer> {
    let mut command = Command::new(program);
    command
        .args(["apply", "--endpoint", endpoint, "-f"])
        .arg(file)
        .args(args)
        .kill_on_drop(true);
    let output = timeout(COMMAND, command.output())
        .await
        .with_context(|| format!("{} apply: not within {COMMAND:?}", program.display()))?
        .with_context(|| format!("cannot run {}", program.display()))?;
    Ok(Answer {
        code: output.status.code(),
        text: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

fn job() -> Job {
    Job {
        name: "probe".to_owned(),
        source: vec![NOWHERE.to_owned()],
        target: vec![NOWHERE.to_owned()],
        topics: vec!["probe".to_owned()],
        codec: "lz4",
        layout: Layout::Alone,
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _, path::PathBuf};

    use super::*;

    /// A program that knows the engines of a version of ours, by what `grep` finds in the file.
    fn program(folder: &RunDir, refuses: &str) -> PathBuf {
        let path = folder.path().join("program");
        let script = format!("#!/bin/sh\nif grep -q '{refuses}' \"$5\"; then exit 2; fi\nexit 5\n");
        fs::write(&path, script).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("set");
        path
    }

    #[tokio::test]
    async fn a_binary_from_before_there_was_a_choice_has_records_alone() {
        let folder = RunDir::new("engine").expect("a folder");
        let program = program(&folder, "engine:");
        let records = probe(&program, PeerName::Records).await.expect("answers");
        assert_eq!(records, Some(Declared::OnlyOne));
        let batches = probe(&program, PeerName::Batches).await.expect("answers");
        assert_eq!(batches, None);
    }

    #[tokio::test]
    async fn engines_of_a_binary_with_a_choice_are_asked_for_by_name() {
        let folder = RunDir::new("engine").expect("a folder");
        let program = program(&folder, "no such thing");
        for engine in [PeerName::Records, PeerName::Batches] {
            let known = probe(&program, engine).await.expect("answers");
            assert_eq!(known, Some(Declared::ByName));
        }
    }

    #[tokio::test]
    async fn a_binary_that_fails_is_an_error_and_not_an_unknown_engine() {
        let folder = RunDir::new("engine").expect("a folder");
        let refuses_all = program(&folder, "links:");
        probe(&refuses_all, PeerName::Records)
            .await
            .expect_err("even the plain file is refused");
        let missing = folder.path().join("nothing");
        probe(&missing, PeerName::Batches)
            .await
            .expect_err("no such program");
    }
}
