//! Whichever controller is asked answers.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context as _, Result, ensure};
use kreplicator_tests::{
    api::{self, Api},
    rig::{self, LINK},
    wait,
};
use tonic::transport::Channel;
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};
use tonic_reflection::pb::v1::{
    ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
    server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
};

const DEADLINE: Duration = Duration::from_secs(20);
const SERVICES: [&str; 7] = [
    "grpc.health.v1.Health",
    "kreplicator.v1.Clusters",
    "kreplicator.v1.Desired",
    "kreplicator.v1.Links",
    "kreplicator.v1.Status",
    "kreplicator.v1.Subscriptions",
    "kreplicator.v1.Workers",
];

/// C112: a change is asked of one that does not lead, and seen by asking the leader alone.
#[test]
fn m_c112_a_controller_that_does_not_lead_answers_as_the_leader_does() {
    rig::scenario(async |rig| {
        let leads = rig.system.leader().await?;
        let ports: Vec<u16> = rig
            .system
            .controllers()
            .iter()
            .filter_map(|one| one.grpc_port())
            .collect();
        let leader = Api::new([ports[leads]])?;
        let others = ports
            .iter()
            .enumerate()
            .filter(|(index, _)| *index != leads);
        let other = Api::new(others.map(|(_, port)| *port))?;

        rig.source.create_topic("refunds", 2, &[]).await?;
        let results = other.subscribe(vec![api::topic(LINK, "refunds")]).await?;
        ensure!(results[0].changed && results[0].topics == 1, "{results:?}");
        let told = leader.subscription(LINK, "refunds").await?;
        ensure!(told.id == "refunds", "{told:?}");
        wait::until_true("the tasks, asked of the other", DEADLINE, async || {
            let tasks = other.tasks(LINK).await?.into_iter();
            Ok(tasks.filter(|task| task.topic == "refunds").count() == 2)
        })
        .await?;
        ensure!(other.workers().await?.len() == rig.system.workers().len());
        let status = [leader.status().await?, other.status().await?];
        ensure!(status[0].leader == status[1].leader, "{status:?}");
        other
            .unsubscribe(vec![api::reference(LINK, "refunds")])
            .await?;
        let gone = leader.subscription(LINK, "refunds").await;
        let gone = gone.err().context("still there")?;
        ensure!(gone.code() == tonic::Code::NotFound, "{gone:?}");
        rig::wait_gone(&leader, LINK, "refunds").await?;
        ensure!(rig.system.leader().await? == leads, "another one leads");
        Ok(())
    });
}

#[test]
fn m_every_controller_tells_its_health_and_describes_its_api() {
    rig::scenario(async |rig| {
        for index in 0..rig.system.controllers().len() {
            let channel = rig.api.channel(index);
            for service in ["", "kreplicator.v1.Subscriptions"] {
                serves(channel.clone(), service).await?;
            }
            let services = services(channel).await?;
            let absent: Vec<_> = SERVICES
                .iter()
                .filter(|name| !services.contains(**name))
                .collect();
            ensure!(absent.is_empty(), "{absent:?} are not in {services:?}");
        }
        Ok(())
    });
}

/// A controller knows who leads soon after it has started, and serves from then on.
async fn serves(channel: Channel, service: &str) -> Result<()> {
    wait::until_true("a controller that serves", DEADLINE, async || {
        let request = HealthCheckRequest {
            service: service.to_owned(),
        };
        let answer = HealthClient::new(channel.clone()).check(request).await?;
        Ok(answer.into_inner().status() == ServingStatus::Serving)
    })
    .await
}

/// Services that a controller says it has.
async fn services(channel: Channel) -> Result<BTreeSet<String>> {
    let request = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let mut answers = ServerReflectionClient::new(channel)
        .server_reflection_info(tokio_stream::once(request))
        .await?
        .into_inner();
    let answer = answers.message().await?.context("no answer")?;
    let Some(MessageResponse::ListServicesResponse(list)) = answer.message_response else {
        anyhow::bail!("no list: {answer:?}");
    };
    Ok(list.service.into_iter().map(|one| one.name).collect())
}
