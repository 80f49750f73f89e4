//! Settings of a topic, as far as they decide what may be written to it.

use std::collections::BTreeMap;

use kafka_protocol::{
    messages::{DescribeConfigsRequest, describe_configs_request::DescribeConfigsResource},
    protocol::StrBytes,
};
use kreplicator_model::ids::TopicName;
use tokio::time::Instant;

use super::ClusterClient;
use crate::error::Error;

/// Kafka's number for topics among the things that have settings.
const TOPIC: i8 = 2;

impl ClusterClient {
    /// The settings of a topic that `keys` names, with defaults filled in by the broker. Those that
    /// the broker does not know are left out.
    ///
    /// # Errors
    /// [`Error::Refused`] when the user may not see them or the topic does not exist; else why no broker
    /// answered until `deadline`.
    pub async fn topic_configs(
        &self,
        topic: &TopicName,
        keys: &[&'static str],
        deadline: Instant,
    ) -> Result<BTreeMap<String, String>, Error> {
        let keys = keys.iter().map(|key| StrBytes::from_static_str(key));
        let resource = DescribeConfigsResource::default()
            .with_resource_type(TOPIC)
            .with_resource_name(StrBytes::from_string(topic.as_str().to_owned()))
            .with_configuration_keys(Some(keys.collect()));
        let request = DescribeConfigsRequest::default().with_resources(vec![resource]);
        let mut retry = self.retry(deadline);
        loop {
            let answer = self.call_any(request.clone(), deadline).await?;
            let mut configs = BTreeMap::new();
            let mut outcome = Ok(());
            for result in answer.results {
                outcome = Error::check(result.error_code, || format!("settings of topic {topic}"));
                let known = result.configs.into_iter().filter_map(|config| {
                    Some((config.name.to_string(), config.value?.to_string()))
                });
                configs.extend(known);
            }
            match outcome {
                Ok(()) => return Ok(configs),
                Err(fault) => retry.pause(fault).await?,
            }
        }
    }
}
