//! The binary as a user meets it: exit codes, messages, and what it prints where.

mod support;

use std::fs;

use support::{kreplicator, run};

#[test]
fn it_tells_its_version_and_its_exit_codes() {
    let version = run(kreplicator().arg("--version"));
    assert_eq!(version.code, Some(0));
    assert_eq!(
        version.stdout.trim(),
        concat!("kreplicator ", env!("CARGO_PKG_VERSION"))
    );
    let help = run(kreplicator().arg("--help"));
    assert_eq!(help.code, Some(0));
    for line in [
        "Exit codes:",
        "   5  no controller reachable",
        "  10  `apply --dry-run`",
    ] {
        assert!(help.stdout.contains(line), "{}", help.stdout);
    }
}

#[test]
fn wrong_use_ends_with_2_on_standard_error() {
    let used = run(kreplicator().args(["subscribe", "--link", "a-b"]));
    assert_eq!((used.code, used.stdout.as_str()), (Some(2), ""));
    assert!(used.stderr.contains("TOPIC"), "{}", used.stderr);
    let used = run(kreplicator().args(["get", "links", "--worker", "w"]));
    assert_eq!(used.code, Some(2));
    assert!(
        used.stderr.contains("--worker is for tasks"),
        "{}",
        used.stderr
    );
}

#[test]
fn no_controller_ends_with_5_and_names_what_was_tried() {
    let port = support::closed_port();
    let endpoint = format!("127.0.0.1:{port}");
    let used = run(kreplicator().args(["status", "--timeout", "300ms", "-e", &endpoint]));
    assert_eq!(used.code, Some(5), "{}", used.stderr);
    assert!(used.stderr.contains(&endpoint), "{}", used.stderr);
    assert!(used.stderr.contains("--endpoint"), "{}", used.stderr);
}

#[test]
fn every_fault_of_a_configuration_is_told_before_anything_starts() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("kreplicator.yaml");
    fs::write(
        &file,
        "worker:\n  lease_tll: 5s\nlog: {format: xml}\nstor: {}\n",
    )
    .expect("written");
    for service in ["controller", "worker", "standalone"] {
        let mut command = kreplicator();
        command
            .arg(service)
            .arg("--config")
            .arg(&file)
            .arg("--set")
            .arg("worker.capacity_tasks=x");
        let used = run(command.env("KREPLICATOR__CONTROLLER__LEASE_TTL", "never"));
        assert_eq!(used.code, Some(2), "{}", used.stderr);
        for fault in [
            "kreplicator.yaml:2:3: worker.lease_tll: unknown key; did you mean `lease_ttl`?",
            "kreplicator.yaml:3:15: log.format: \"xml\" is not known; known here: json, text",
            "kreplicator.yaml:4:1: stor: unknown key; did you mean `store`?",
            "environment variable KREPLICATOR__CONTROLLER__LEASE_TTL: controller.lease_ttl: ",
            "flag --set worker.capacity_tasks: worker.capacity_tasks: ",
            "5 faults",
        ] {
            assert!(
                used.stderr.contains(fault),
                "{service}: {fault}\n{}",
                used.stderr
            );
        }
    }
}

#[test]
fn a_port_that_is_taken_is_told_once_with_the_setting() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = listener.local_addr().expect("bound").to_string();
    let folder = tempfile::tempdir().expect("a folder");
    for setting in [
        "controller.listen_grpc",
        "controller.listen_http",
        "worker.listen",
    ] {
        let mut command = kreplicator();
        command
            .arg("standalone")
            .arg("--data-dir")
            .arg(folder.path());
        for other in [
            "controller.listen_grpc",
            "controller.listen_http",
            "worker.listen",
        ] {
            let address = if other == setting {
                &taken
            } else {
                "127.0.0.1:0"
            };
            command.args(["--set", &format!("{other}={address}")]);
        }
        let used = run(&mut command);
        assert_eq!(used.code, Some(1), "{}", used.stderr);
        let told = used.stderr.lines().find(|line| line.starts_with("error: "));
        let told = told.unwrap_or_else(|| panic!("no error in {}", used.stderr));
        let count = told
            .to_lowercase()
            .matches("address already in use")
            .count();
        assert_eq!(count, 1, "{told}");
        let (_, name) = setting.split_once('.').expect("in a section");
        assert!(
            told.contains(&taken) && told.contains(&format!("`{name}`")),
            "{told}"
        );
    }
}

#[test]
fn a_missing_configuration_file_is_named() {
    let used = run(kreplicator().args(["worker", "--config", "/no/such/file.yaml"]));
    assert_eq!(used.code, Some(2));
    assert!(
        used.stderr.contains("/no/such/file.yaml"),
        "{}",
        used.stderr
    );
}

#[test]
fn the_configuration_in_force_is_printed_and_reads_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("printed.yaml");
    let print = ["worker", "--print-config", "--set", "worker.id=w-7"];
    let printed = run(kreplicator()
        .args(print)
        .env("KREPLICATOR__LOG__FORMAT", "json"));
    assert_eq!(printed.code, Some(0), "{}", printed.stderr);
    assert!(printed.stdout.contains("id: w-7"), "{}", printed.stdout);
    assert!(
        printed.stdout.contains("format: json"),
        "{}",
        printed.stdout
    );
    fs::write(&file, &printed.stdout).expect("written");
    let again = run(kreplicator()
        .args(["worker", "--print-config", "-c"])
        .arg(&file));
    assert_eq!(again.stdout, printed.stdout);
}

#[test]
fn a_file_of_declarations_is_checked_without_a_controller() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("links.yaml");
    let text = "clusters:\n  a: {bootstrap_servers: [h], sasl: {mechanism: PLAIN, username: u, \
                password: hunter2}}\n";
    fs::write(&file, text).expect("written");
    let used = run(kreplicator().args(["apply", "-f"]).arg(&file));
    assert_eq!(used.code, Some(2), "{}", used.stderr);
    assert!(used.stderr.contains("has no port"), "{}", used.stderr);
    assert!(used.stderr.contains("{env: NAME}"), "{}", used.stderr);
    assert!(
        !used.stderr.contains("hunter2"),
        "a secret was shown: {}",
        used.stderr
    );
}

#[test]
fn pruning_by_a_file_that_declares_nothing_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("links.yaml");
    fs::write(&file, "# lost in a merge\n").expect("written");
    let used = run(kreplicator().args(["apply", "--prune", "-f"]).arg(&file));
    assert_eq!(used.code, Some(2), "{}", used.stderr);
    assert!(used.stderr.contains("declares nothing"), "{}", used.stderr);
}

#[test]
fn a_password_within_an_endpoint_is_refused_and_not_shown() {
    let endpoint = "store.etcd.endpoints=http://u:hunter2@etcd:2379";
    let used = run(kreplicator().args(["worker", "--print-config", "--set", endpoint]));
    assert_eq!((used.code, used.stdout.as_str()), (Some(2), ""));
    assert!(
        used.stderr.contains("store.etcd.password"),
        "{}",
        used.stderr
    );
    assert!(!used.stderr.contains("hunter2"), "{}", used.stderr);
}

#[test]
fn completions_are_made_for_shells() {
    for shell in ["bash", "zsh", "fish"] {
        let made = run(kreplicator().args(["completions", shell]));
        assert_eq!(made.code, Some(0));
        assert!(made.stdout.contains("unsubscribe"), "{shell}");
    }
}
