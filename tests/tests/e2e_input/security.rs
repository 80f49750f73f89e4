//! Clusters with TLS and passwords.

use anyhow::{Context as _, ensure};
use kreplicator_proto::v1::{SaslMechanism, secret_ref::From};
use kreplicator_tests::{
    api,
    load::{Load, LoadOptions},
    tail::Tail,
    wait,
};

use crate::{DEADLINE, RIGHT, WRONG, scenario};

#[test]
fn records_pass_to_a_secured_cluster_by_every_mechanism_and_secrets_are_never_shown() {
    scenario(async |small| {
        let ways = [
            ("scram-256", SaslMechanism::ScramSha256, true),
            ("scram-512", SaslMechanism::ScramSha512, false),
            ("plain-text", SaslMechanism::Plain, true),
        ];
        small.plain.create_topic("ledger", 2, &[]).await?;
        let tail = Tail::start(&small.secured.client_config())?;
        let options = LoadOptions {
            records_per_second: 100,
            padding: 0,
        };
        let load = Load::start(&small.plain.client_config(), options)?;
        load.add("ledger", 2);
        for (name, mechanism, by_file) in ways {
            let password = if by_file {
                From::File(small.password_file().display().to_string())
            } else {
                From::Env("RIGHT_PASSWORD".to_owned())
            };
            let cluster = small.secured(name, mechanism, password);
            small.api.put_cluster(cluster).await?;
            let prefix = format!("{name}.");
            small
                .api
                .put_link(api::link(name, "plain", name, &prefix))
                .await?;
            tail.follow(&format!("{prefix}ledger"));
            small
                .api
                .subscribe(vec![api::topic(name, "ledger")])
                .await?;
        }
        let produced = load.finish(DEADLINE).await?;
        for (name, ..) in ways {
            let renamed = produced.iter().map(|((topic, partition), count)| {
                ((format!("{name}.{topic}"), *partition), *count)
            });
            let report = tail.complete(&renamed.collect(), DEADLINE).await?;
            ensure!(report.is_exact(), "{name}: {report}");
            let cluster = small.api.cluster(name).await?;
            ensure!(!format!("{cluster:?}").contains(RIGHT), "shown by the API");
        }
        for (name, ..) in ways {
            small.api.delete_link(name).await?;
        }
        small.system.check_unsaid(&[RIGHT, WRONG])
    });
}

#[test]
fn a_wrong_password_is_told_as_such_and_the_right_one_works_without_a_restart() {
    scenario(async |small| {
        let wrong = From::Env("WRONG_PASSWORD".to_owned());
        let cluster = small.secured("gate", SaslMechanism::ScramSha256, wrong);
        small.api.put_cluster(cluster).await?;
        small
            .api
            .put_link(api::link("plain-gate", "plain", "gate", "gate."))
            .await?;
        small.plain.create_topic("tolls", 1, &[]).await?;
        small
            .api
            .subscribe(vec![api::topic("plain-gate", "tolls")])
            .await?;
        wait::until("a cause that tells of the password", DEADLINE, async || {
            let status = small.api.cluster("gate").await?.status.unwrap_or_default();
            let told = status.cause.to_lowercase().contains("authentication");
            ensure!(!status.reachable && told, "the cause is {:?}", status.cause);
            Ok(Some(()))
        })
        .await?;
        let right = From::Env("RIGHT_PASSWORD".to_owned());
        let cluster = small.secured("gate", SaslMechanism::ScramSha256, right);
        ensure!(small.api.put_cluster(cluster).await?, "it changed");
        wait::until_true("a link that is well", DEADLINE, async || {
            let link = small.api.link("plain-gate").await?;
            let status = link.status.context("no status")?;
            Ok(status.tasks.is_some_and(|tasks| tasks.running == 1))
        })
        .await?;
        small.api.delete_link("plain-gate").await?;
        small.system.check_unsaid(&[RIGHT, WRONG])
    });
}
