//! Which versions of each call a broker speaks, and the choice among them: the highest that both
//! sides know.

use std::{collections::BTreeMap, sync::Arc};

use kafka_protocol::{
    messages::{ApiKey, ApiVersionsRequest, ApiVersionsResponse},
    protocol::StrBytes,
};
use tokio::time::Instant;

use crate::{
    call::{Call, Versions},
    code::Code,
    connection::{Connection, Lane},
    error::Error,
};

/// What one broker speaks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BrokerVersions {
    ranges: BTreeMap<i16, Versions>,
}

impl BrokerVersions {
    fn from_answer(answer: &ApiVersionsResponse) -> Self {
        let ranges = answer.api_keys.iter().map(|api| {
            let range = Versions {
                min: api.min_version,
                max: api.max_version,
            };
            (api.api_key, range)
        });
        Self {
            ranges: ranges.collect(),
        }
    }

    /// The versions of `api` that the broker knows.
    #[must_use]
    pub fn range(&self, api: ApiKey) -> Option<Versions> {
        self.ranges.get(&(api as i16)).copied()
    }

    /// The version that `C` is spoken in; None when there is none that both know.
    #[must_use]
    pub fn pick<C: Call>(&self) -> Option<i16> {
        let theirs = self.range(C::API)?;
        let highest = theirs.max.min(C::VERSIONS.max);
        (highest >= theirs.min.max(C::VERSIONS.min)).then_some(highest)
    }

    /// The lowest version of `C` that both know.
    pub(crate) fn lowest<C: Call>(&self) -> Option<i16> {
        self.range(C::API)
            .map(|theirs| theirs.min.max(C::VERSIONS.min))
    }
}

/// Version of ApiVersions that every broker since 0.10 answers.
const OLDEST: i16 = 0;

/// Asks a broker what it speaks.
///
/// A broker that does not know our version of the question answers in version 0 with error 35
/// (KIP-511); what follows the code there is no list to rely on, so the question is put again.
///
/// # Errors
/// When the broker does not answer or refuses.
pub(crate) async fn negotiate(
    connection: &Connection,
    deadline: Instant,
) -> Result<BrokerVersions, Error> {
    let newest = ApiVersionsRequest::VERSIONS.max;
    let answer = connection
        .send_as(Question, newest, deadline, Lane::Ordinary)
        .await?;
    let answer = match answer {
        Answer::TooNew => {
            match connection
                .send_as(Question, OLDEST, deadline, Lane::Ordinary)
                .await?
            {
                Answer::Known(answer) => answer,
                Answer::TooNew => {
                    return Err(Error::Unsupported {
                        api: Question::NAME,
                        broker: Arc::clone(connection.broker()),
                    });
                }
            }
        }
        Answer::Known(answer) => answer,
    };
    Error::check(answer.error_code, || {
        format!("asking broker {} for its versions", connection.broker())
    })?;
    Ok(BrokerVersions::from_answer(&answer))
}

/// ApiVersions with the answer that brokers give to a version they do not know.
#[derive(Debug)]
struct Question;

#[derive(Debug)]
enum Answer {
    TooNew,
    Known(ApiVersionsResponse),
}

impl Call for Question {
    const API: ApiKey = ApiKey::ApiVersions;
    const NAME: &'static str = ApiVersionsRequest::NAME;
    const VERSIONS: Versions = ApiVersionsRequest::VERSIONS;
    type Answer = Answer;

    fn encode(&self, version: i16, parts: &mut crate::parts::Parts) -> Result<(), String> {
        let mut request = ApiVersionsRequest::default();
        if version >= 3 {
            request.client_software_name = StrBytes::from_static_str("kreplicator");
            request.client_software_version = StrBytes::from_static_str(env!("CARGO_PKG_VERSION"));
        }
        Call::encode(&request, version, parts)
    }

    fn decode(body: bytes::Bytes, version: i16) -> Result<Answer, String> {
        let code = body.first_chunk().map(|bytes| i16::from_be_bytes(*bytes));
        if code == Some(Code::UNSUPPORTED_VERSION.0) {
            return Ok(Answer::TooNew);
        }
        <ApiVersionsRequest as Call>::decode(body, version).map(Answer::Known)
    }

    fn throttle(_: &Answer) -> std::time::Duration {
        std::time::Duration::ZERO
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use kafka_protocol::messages::{
        DescribeProducersRequest, MetadataRequest, api_versions_response::ApiVersion,
    };

    use super::*;
    use crate::{fetch, produce};

    pub(crate) fn broker(ranges: &[(ApiKey, i16, i16)]) -> BrokerVersions {
        let api_keys = ranges.iter().map(|(api, min, max)| {
            ApiVersion::default()
                .with_api_key(*api as i16)
                .with_min_version(*min)
                .with_max_version(*max)
        });
        BrokerVersions::from_answer(
            &ApiVersionsResponse::default().with_api_keys(api_keys.collect()),
        )
    }

    #[test]
    fn the_highest_version_that_both_know_is_picked() {
        // Kafka 2.1.1.
        let old = broker(&[
            (ApiKey::Produce, 0, 7),
            (ApiKey::Fetch, 0, 10),
            (ApiKey::Metadata, 0, 7),
        ]);
        assert_eq!(old.pick::<produce::Request>(), Some(7));
        assert_eq!(old.pick::<fetch::Request>(), Some(10));
        assert_eq!(old.pick::<MetadataRequest>(), Some(7));
        assert_eq!(old.pick::<DescribeProducersRequest>(), None);
        // One of the future.
        let new = broker(&[(ApiKey::Fetch, 4, 40), (ApiKey::Metadata, 14, 20)]);
        assert_eq!(new.pick::<fetch::Request>(), Some(17));
        assert_eq!(new.pick::<MetadataRequest>(), None, "no version in common");
    }

    #[test]
    fn an_answer_to_a_question_too_new_is_read_no_further_than_its_code() {
        let body = bytes::Bytes::from_static(&[0, 35, 0xFF, 0xFF, 0xFF]);
        let answer = Question::decode(body, 3).expect("readable");
        assert!(matches!(answer, Answer::TooNew));
    }
}
