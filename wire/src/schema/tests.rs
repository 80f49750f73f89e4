use bytes::{Bytes, BytesMut};
use kafka_protocol::{
    messages::{
        ApiVersionsRequest, ApiVersionsResponse, BrokerId, DescribeConfigsRequest,
        DescribeConfigsResponse, DescribeProducersRequest, DescribeProducersResponse,
        FetchResponse, FindCoordinatorRequest, FindCoordinatorResponse, InitProducerIdRequest,
        InitProducerIdResponse, ListOffsetsRequest, ListOffsetsResponse, MetadataRequest,
        MetadataResponse, OffsetCommitRequest, OffsetCommitResponse, OffsetFetchRequest,
        OffsetFetchResponse, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse,
        ProduceResponse, SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest,
        SaslHandshakeResponse, api_versions_response as api_versions,
        describe_configs_response as configs, describe_producers_response as producers,
        fetch_response as fetched, find_coordinator_response as coordinator,
        list_offsets_response as list_offsets, metadata_response as metadata,
        offset_commit_response as commit, offset_fetch_response as offset_fetch,
        offset_for_leader_epoch_response as leader_epoch, produce_response as produced,
    },
    protocol::{Decodable as _, Encodable, StrBytes},
};
use proptest::prelude::*;

use super::*;
use crate::{call::Call, fetch, produce};

/// Every version that we speak of an answer with something in each of its arrays is walked over to its
/// very end, and no answer cut short is.
fn fits<C: Call>(schema: &Schema, answer: impl Fn(i16) -> C::Answer)
where
    C::Answer: Encodable,
{
    for version in C::VERSIONS.min..=C::VERSIONS.max {
        let mut body = BytesMut::new();
        let encoded = answer(version).encode(&mut body, version);
        assert!(encoded.is_ok(), "{} {version}: {encoded:?}", C::NAME);
        let rest = schema.walk(&body, version);
        assert_eq!(rest, Ok(&[][..]), "{} {version}", C::NAME);
        for cut in 0..body.len() {
            let walked = schema.walk(&body[..cut], version);
            assert!(walked.is_err(), "{} {version} cut at {cut}", C::NAME);
        }
        let decoded = C::decode(body.freeze(), version);
        assert!(
            decoded.is_ok(),
            "{} {version}: {:?}",
            C::NAME,
            decoded.err()
        );
    }
}

fn text() -> StrBytes {
    StrBytes::from_static_str("text")
}

#[test]
fn shapes_of_data_answers_are_those_of_the_messages() {
    fits::<fetch::Request>(&FETCH, |version| {
        let mut partition = fetched::PartitionData::default()
            .with_records(Some(Bytes::from_static(b"records")))
            .with_aborted_transactions(Some(vec![fetched::AbortedTransaction::default()]));
        if version >= 12 {
            partition.current_leader.leader_id = BrokerId(1);
            partition.diverging_epoch.epoch = 2;
        }
        let topic = fetched::FetchableTopicResponse::default().with_partitions(vec![partition]);
        let mut answer = FetchResponse::default().with_responses(vec![topic]);
        if version >= 16 {
            let node = fetched::NodeEndpoint::default().with_host(text());
            answer.node_endpoints = vec![node];
        }
        answer.unknown_tagged_fields = unknown(version >= 12);
        answer
    });
    fits::<produce::Request>(&PRODUCE, |version| {
        let mut partition = produced::PartitionProduceResponse::default();
        if version >= 8 {
            partition.record_errors = vec![produced::BatchIndexAndErrorMessage::default()];
            partition.error_message = Some(text());
        }
        if version >= 10 {
            partition.current_leader.leader_epoch = 4;
        }
        let topic =
            produced::TopicProduceResponse::default().with_partition_responses(vec![partition]);
        let mut answer = ProduceResponse::default().with_responses(vec![topic]);
        if version >= 10 {
            answer.node_endpoints = vec![produced::NodeEndpoint::default()];
        }
        answer
    });
}

fn unknown(flexible: bool) -> std::collections::BTreeMap<i32, Bytes> {
    let tag = flexible.then(|| (99, Bytes::from_static(b"later")));
    tag.into_iter().collect()
}

#[test]
fn shapes_of_cluster_answers_are_those_of_the_messages() {
    fits::<ApiVersionsRequest>(&API_VERSIONS, |version| {
        let mut answer = ApiVersionsResponse::default().with_api_keys(vec![
            api_versions::ApiVersion::default().with_max_version(3),
        ]);
        if version >= 3 {
            answer.supported_features = vec![api_versions::SupportedFeatureKey::default()];
            answer.finalized_features_epoch = 3;
            answer.finalized_features = vec![api_versions::FinalizedFeatureKey::default()];
            answer.zk_migration_ready = true;
        }
        answer
    });
    fits::<MetadataRequest>(&METADATA, |_| {
        let ids = vec![BrokerId(1), BrokerId(2)];
        let partition = metadata::MetadataResponsePartition::default()
            .with_replica_nodes(ids.clone())
            .with_isr_nodes(ids);
        let name = kafka_protocol::messages::TopicName(text());
        let topic = metadata::MetadataResponseTopic::default()
            .with_name(Some(name))
            .with_partitions(vec![partition]);
        MetadataResponse::default()
            .with_brokers(vec![metadata::MetadataResponseBroker::default()])
            .with_cluster_id(Some(text()))
            .with_topics(vec![topic])
    });
    fits::<ListOffsetsRequest>(&LIST_OFFSETS, |_| {
        let partition = list_offsets::ListOffsetsPartitionResponse::default();
        let topic = list_offsets::ListOffsetsTopicResponse::default();
        ListOffsetsResponse::default().with_topics(vec![topic.with_partitions(vec![partition])])
    });
    fits::<OffsetForLeaderEpochRequest>(&OFFSET_FOR_LEADER_EPOCH, |_| {
        let partition = leader_epoch::EpochEndOffset::default();
        let topic = leader_epoch::OffsetForLeaderTopicResult::default();
        let topics = vec![topic.with_partitions(vec![partition])];
        OffsetForLeaderEpochResponse::default().with_topics(topics)
    });
    fits::<InitProducerIdRequest>(&INIT_PRODUCER_ID, |_| InitProducerIdResponse::default());
    fits::<DescribeProducersRequest>(&DESCRIBE_PRODUCERS, |_| {
        let partition = producers::PartitionResponse::default()
            .with_active_producers(vec![producers::ProducerState::default()]);
        let topic = producers::TopicResponse::default().with_partitions(vec![partition]);
        DescribeProducersResponse::default().with_topics(vec![topic])
    });
    fits::<DescribeConfigsRequest>(&DESCRIBE_CONFIGS, |_| {
        let config = configs::DescribeConfigsResourceResult::default()
            .with_value(Some(text()))
            .with_synonyms(vec![configs::DescribeConfigsSynonym::default()]);
        let result = configs::DescribeConfigsResult::default().with_configs(vec![config]);
        DescribeConfigsResponse::default().with_results(vec![result])
    });
}

#[test]
fn shapes_of_group_and_sasl_answers_are_those_of_the_messages() {
    fits::<FindCoordinatorRequest>(&FIND_COORDINATOR, |version| {
        let answer = FindCoordinatorResponse::default();
        if version >= 4 {
            answer.with_coordinators(vec![coordinator::Coordinator::default().with_key(text())])
        } else {
            answer.with_host(text())
        }
    });
    fits::<OffsetCommitRequest>(&OFFSET_COMMIT, |_| {
        let partition = commit::OffsetCommitResponsePartition::default();
        let topic = commit::OffsetCommitResponseTopic::default();
        OffsetCommitResponse::default().with_topics(vec![topic.with_partitions(vec![partition])])
    });
    fits::<OffsetFetchRequest>(&OFFSET_FETCH, |version| {
        let answer = OffsetFetchResponse::default();
        if version >= 8 {
            let partition = offset_fetch::OffsetFetchResponsePartitions::default();
            let topic = offset_fetch::OffsetFetchResponseTopics::default();
            let topics = vec![topic.with_partitions(vec![partition])];
            let group = offset_fetch::OffsetFetchResponseGroup::default().with_topics(topics);
            answer.with_groups(vec![group])
        } else {
            let partition = offset_fetch::OffsetFetchResponsePartition::default();
            let topic = offset_fetch::OffsetFetchResponseTopic::default();
            answer.with_topics(vec![topic.with_partitions(vec![partition])])
        }
    });
    fits::<SaslHandshakeRequest>(&SASL_HANDSHAKE, |_| {
        SaslHandshakeResponse::default().with_mechanisms(vec![text(), text()])
    });
    fits::<SaslAuthenticateRequest>(&SASL_AUTHENTICATE, |_| {
        SaslAuthenticateResponse::default().with_auth_bytes(Bytes::from_static(b"proof"))
    });
}

#[test]
fn an_array_that_announces_more_than_it_holds_is_refused_before_allocation() {
    // Metadata 7: throttle, then two thousand million brokers.
    let mut body = vec![0, 0, 0, 0];
    body.extend_from_slice(&i32::MAX.to_be_bytes());
    let fault = METADATA.check(&body, 7).expect_err("a lie");
    assert!(fault.contains("memory"), "{fault}");
    // The same with a compact count.
    let body = [0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0x0F];
    assert!(METADATA.check(&body, 12).is_err());
}

#[test]
fn many_empty_structures_are_refused_when_they_grow_too_much() {
    // Fetch 12: every topic is three bytes here and many more decoded.
    let count = 1_000_000_u32;
    let mut body = vec![0; 10];
    let mut value = count + 1;
    while value >= 0x80 {
        body.push((value & 0x7F | 0x80) as u8);
        value >>= 7;
    }
    body.push(value as u8);
    for _ in 0..count {
        body.extend_from_slice(&[1, 1, 0]);
    }
    body.push(0);
    assert!(FETCH.check(&body, 12).is_err());
}

proptest! {
    /// What passes the walk is decoded without panic; what is decoded has passed.
    #[test]
    fn random_bytes_never_panic(body in prop::collection::vec(any::<u8>(), 0..400), version in 4_i16..=13) {
        if METADATA.check(&body, version).is_ok() {
            let mut bytes = Bytes::from(body.clone());
            let _decoded = MetadataResponse::decode(&mut bytes, version);
        }
        if FETCH.check(&body, version + 5).is_ok() {
            let mut bytes = Bytes::from(body);
            let _decoded = FetchResponse::decode(&mut bytes, version + 5);
        }
    }
}
