//! The calls that we make: which versions we speak, how a request is written and how an answer is
//! read, checked against its [`crate::schema`] first.

use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::{
    messages::{
        ApiKey, ApiVersionsRequest, ApiVersionsResponse, DescribeConfigsRequest,
        DescribeConfigsResponse, DescribeProducersRequest, DescribeProducersResponse,
        FetchResponse, FindCoordinatorRequest, FindCoordinatorResponse, InitProducerIdRequest,
        InitProducerIdResponse, ListOffsetsRequest, ListOffsetsResponse, MetadataRequest,
        MetadataResponse, OffsetCommitRequest, OffsetCommitResponse, OffsetFetchRequest,
        OffsetFetchResponse, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse,
        ProduceResponse, SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest,
        SaslHandshakeResponse,
    },
    protocol::{Decodable as _, Encodable},
};

use crate::{fetch, parts::Parts, produce, schema};

/// A range of versions, both ends inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Versions {
    /// Lowest.
    pub min: i16,
    /// Highest.
    pub max: i16,
}

/// A request and the reading of its answer.
pub trait Call: Send {
    /// Kafka's number of it.
    const API: ApiKey;
    /// Its name in messages.
    const NAME: &'static str;
    /// The versions that we speak.
    const VERSIONS: Versions;
    /// What the broker answers.
    type Answer: Send;

    /// The highest version that can express this very request.
    fn version_max(&self) -> i16 {
        i16::MAX
    }

    /// Appends the body in `version`.
    ///
    /// # Errors
    /// When `version` cannot express it; text for people.
    fn encode(&self, version: i16, parts: &mut Parts) -> Result<(), String>;

    /// Reads the body of an answer, without header.
    ///
    /// # Errors
    /// When it is malformed or would take far more memory than its size; text for people.
    fn decode(body: Bytes, version: i16) -> Result<Self::Answer, String>;

    /// How long the broker asks this connection to be silent (KIP-219).
    fn throttle(answer: &Self::Answer) -> Duration;
}

/// A throttle time as the broker tells it; negative counts as none.
fn pause(throttle_time_ms: i32) -> Duration {
    Duration::from_millis(u64::try_from(throttle_time_ms).unwrap_or(0))
}

macro_rules! calls {
    ($($request:ident -> $response:ident, $api:ident, $min:literal..=$max:literal, $schema:ident, $throttle:expr;)*) => {
        $(
            impl Call for $request {
                const API: ApiKey = ApiKey::$api;
                const NAME: &'static str = stringify!($api);
                const VERSIONS: Versions = Versions { min: $min, max: $max };
                type Answer = $response;

                fn encode(&self, version: i16, parts: &mut Parts) -> Result<(), String> {
                    Encodable::encode(self, parts.tail(), version)
                        .map_err(|fault| fault.to_string())
                }

                fn decode(mut body: Bytes, version: i16) -> Result<$response, String> {
                    schema::$schema.check(&body, version)?;
                    $response::decode(&mut body, version).map_err(|fault| fault.to_string())
                }

                fn throttle(answer: &$response) -> Duration {
                    let throttle: fn(&$response) -> i32 = $throttle;
                    pause(throttle(answer))
                }
            }
        )*
    };
}

// The lower ends are what Kafka 2.1 speaks or older, and what we need of each call.
calls! {
    ApiVersionsRequest -> ApiVersionsResponse, ApiVersions, 0..=3, API_VERSIONS, |a| a.throttle_time_ms;
    MetadataRequest -> MetadataResponse, Metadata, 4..=13, METADATA, |a| a.throttle_time_ms;
    ListOffsetsRequest -> ListOffsetsResponse, ListOffsets, 2..=10, LIST_OFFSETS, |a| a.throttle_time_ms;
    OffsetForLeaderEpochRequest -> OffsetForLeaderEpochResponse, OffsetForLeaderEpoch, 2..=4, OFFSET_FOR_LEADER_EPOCH, |a| a.throttle_time_ms;
    InitProducerIdRequest -> InitProducerIdResponse, InitProducerId, 0..=5, INIT_PRODUCER_ID, |a| a.throttle_time_ms;
    DescribeProducersRequest -> DescribeProducersResponse, DescribeProducers, 0..=0, DESCRIBE_PRODUCERS, |a| a.throttle_time_ms;
    FindCoordinatorRequest -> FindCoordinatorResponse, FindCoordinator, 1..=6, FIND_COORDINATOR, |a| a.throttle_time_ms;
    OffsetCommitRequest -> OffsetCommitResponse, OffsetCommit, 3..=9, OFFSET_COMMIT, |a| a.throttle_time_ms;
    OffsetFetchRequest -> OffsetFetchResponse, OffsetFetch, 3..=9, OFFSET_FETCH, |a| a.throttle_time_ms;
    DescribeConfigsRequest -> DescribeConfigsResponse, DescribeConfigs, 1..=4, DESCRIBE_CONFIGS, |a| a.throttle_time_ms;
    SaslHandshakeRequest -> SaslHandshakeResponse, SaslHandshake, 1..=1, SASL_HANDSHAKE, |_| 0;
    SaslAuthenticateRequest -> SaslAuthenticateResponse, SaslAuthenticate, 0..=2, SASL_AUTHENTICATE, |_| 0;
}

impl Call for produce::Request {
    const API: ApiKey = ApiKey::Produce;
    const NAME: &'static str = "Produce";
    const VERSIONS: Versions = Versions { min: 7, max: 13 };
    type Answer = ProduceResponse;

    fn version_max(&self) -> i16 {
        self.highest_version()
    }

    fn encode(&self, version: i16, parts: &mut Parts) -> Result<(), String> {
        self.write(version, parts);
        Ok(())
    }

    fn decode(mut body: Bytes, version: i16) -> Result<ProduceResponse, String> {
        schema::PRODUCE.check(&body, version)?;
        ProduceResponse::decode(&mut body, version).map_err(|fault| fault.to_string())
    }

    fn throttle(answer: &ProduceResponse) -> Duration {
        pause(answer.throttle_time_ms)
    }
}

impl Call for fetch::Request {
    const API: ApiKey = ApiKey::Fetch;
    const NAME: &'static str = "Fetch";
    const VERSIONS: Versions = Versions { min: 7, max: 17 };
    type Answer = FetchResponse;

    fn version_max(&self) -> i16 {
        self.highest_version()
    }

    fn encode(&self, version: i16, parts: &mut Parts) -> Result<(), String> {
        Encodable::encode(self.message(), parts.tail(), version).map_err(|fault| fault.to_string())
    }

    fn decode(mut body: Bytes, version: i16) -> Result<FetchResponse, String> {
        schema::FETCH.check(&body, version)?;
        FetchResponse::decode(&mut body, version).map_err(|fault| fault.to_string())
    }

    fn throttle(answer: &FetchResponse) -> Duration {
        pause(answer.throttle_time_ms)
    }
}
