//! A target that can neither say what it remembers nor be read.

use std::{sync::Arc, time::Duration};

use anyhow::{Result, ensure};
use kreplicator_model::{
    exact::Reason,
    ids::OwnerEpoch,
    spec::{Sasl, SaslMechanism, SecretRef, Security},
};
use kreplicator_tests::kafka::{KafkaCluster, KafkaOptions, KafkaVersion};
use kreplicator_worker::engine::{Delivery, LinkContext, Stopped, TaskSpec, Weakness};
use tokio::time::{sleep, timeout};

use crate::{
    batches::{engine_with, lines},
    bench::{PATIENCE, Rec, Times, caught_up, quick, read, spec},
    clusters::{link, skipped, topic_pair},
    load::{CODECS, fill, record},
};

const RECORDS: usize = 1_000;

/// The user of the link may write to the copy and not read it. A task says from its beginning that records may
/// come twice, and why; a second owner then sends again what it cannot know of, and loses nothing.
#[tokio::test(flavor = "multi_thread")]
async fn an_old_target_that_may_not_be_read_is_said_to_be_at_least_once() -> Result<()> {
    if skipped(&[KafkaVersion::V2_1]).await? {
        return Ok(());
    }
    let options = KafkaOptions::single("guarded")
        .version(KafkaVersion::V2_1)
        .user("mirror", "s3cret")
        .property(
            "authorizer.class.name",
            "kafka.security.auth.SimpleAclAuthorizer",
        )
        // The harness and the broker itself.
        .property("super.users", "User:ANONYMOUS");
    let cluster = KafkaCluster::start(options).await?;
    topic_pair(&cluster, &cluster, "orders", 1, &[]).await?;
    let may_write = [
        "--add",
        "--allow-principal",
        "User:mirror",
        "--producer",
        "--idempotent",
        "--topic",
        "copy.orders",
    ];
    cluster.tool("kafka.admin.AclCommand", &may_write).await?;
    let folder = tempfile::tempdir()?;
    let password = folder.path().join("password");
    std::fs::write(&password, "s3cret")?;
    let context = writing_only(&cluster, SecretRef::File(password.display().to_string()));

    let sent: Vec<Rec> = (0..RECORDS).map(record).collect();
    tokio::task::block_in_place(|| fill(&cluster, "orders", 0, &CODECS, &sent))?;
    let lines = lines();
    // The first owner saves nothing, so the second has everything to ask.
    let forgetful = Times {
        checkpoint_interval: Duration::from_secs(600),
        ..quick()
    };
    let (first, kill) = engine_with("worker-1", forgetful, Arc::clone(&lines));
    let task = first.start(owned(7), Arc::clone(&context));
    let begun = async {
        while task.status().records_total == 0 {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(PATIENCE, begun).await?;
    ensure!(
        task.status().delivery == Some(too_old()),
        "{:#?}",
        task.status()
    );
    kill.cancel();

    let (second, _kill) = engine_with("worker-2", quick(), lines);
    let task = second.start(owned(8), context);
    let status = caught_up(task.as_ref(), i64::try_from(RECORDS)?).await?;
    ensure!(status.delivery == Some(too_old()), "{status:#?}");
    let stopped = task.stop(Duration::from_secs(10)).await;
    ensure!(stopped == Stopped::Clean, "{stopped:?}");
    second.close(PATIENCE).await;

    let copied = read(&cluster, "copy.orders", 0).await?;
    let again = copied.len().saturating_sub(RECORDS);
    ensure!(
        again > 0,
        "{} records: nothing was sent twice",
        copied.len()
    );
    ensure!(copied[again..] == sent, "the second owner's are others");
    ensure!(
        copied[..again] == sent[..again],
        "the first owner's are others"
    );
    Ok(())
}

fn too_old() -> Delivery {
    Delivery::AtLeastOnce(Weakness::Counting(Reason::TargetTooOld))
}

fn owned(epoch: u64) -> TaskSpec {
    TaskSpec {
        epoch: OwnerEpoch(epoch),
        ..spec("orders", 0)
    }
}

/// A link within a cluster that writes as `mirror`.
fn writing_only(cluster: &KafkaCluster, password: SecretRef) -> Arc<LinkContext> {
    let mut context = LinkContext::clone(&link(cluster, cluster));
    context.target.bootstrap_servers = cluster.bootstrap();
    context.target.security = Security {
        tls: None,
        sasl: Some(Sasl {
            mechanism: SaslMechanism::Plain,
            username: "mirror".to_owned(),
            password,
        }),
    };
    Arc::new(context)
}
