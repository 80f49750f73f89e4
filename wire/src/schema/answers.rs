//! Shapes of the answers that we ask for.
//!
//! # Source
//! The message schemas of Kafka 4.1 (`clients/src/main/resources/common/message`), as
//! `kafka-protocol` 0.18 implements them; tests beside them compare the two.

use std::mem::size_of;

use kafka_protocol::messages::{
    BrokerId, api_versions_response as api_versions, describe_configs_response as configs,
    describe_producers_response as producers, fetch_response as fetch,
    find_coordinator_response as coordinator, list_offsets_response as list_offsets,
    metadata_response as metadata, offset_commit_response as commit,
    offset_fetch_response as offset_fetch, offset_for_leader_epoch_response as leader_epoch,
    produce_response as produce,
};

use super::{Field, Item, Kind, Schema};

/// In all versions.
const ALL: (i16, i16) = (0, i16::MAX);

const fn from(version: i16) -> (i16, i16) {
    (version, i16::MAX)
}

const fn field(versions: (i16, i16), kind: Kind) -> Field {
    Field {
        from: versions.0,
        to: versions.1,
        tag: None,
        kind,
    }
}

const fn tagged(tag: u32, versions: (i16, i16), kind: Kind) -> Field {
    Field {
        tag: Some(tag),
        ..field(versions, kind)
    }
}

const fn list<T>(item: &'static [Field]) -> Kind {
    Kind::Array(size_of::<T>(), Item::Struct(item))
}

const I8: Kind = Kind::Fixed(1);
const I16: Kind = Kind::Fixed(2);
const I32: Kind = Kind::Fixed(4);
const I64: Kind = Kind::Fixed(8);
const UUID: Kind = Kind::Fixed(16);
const TEXT: Kind = Kind::Text;

const API_VERSION: &[Field] = &[field(ALL, I16), field(ALL, I16), field(ALL, I16)];

const FEATURE: &[Field] = &[field(ALL, TEXT), field(ALL, I16), field(ALL, I16)];

const API_VERSIONS_FIELDS: &[Field] = &[
    field(ALL, I16),
    field(ALL, list::<api_versions::ApiVersion>(API_VERSION)),
    field(from(1), I32),
    tagged(
        0,
        from(3),
        list::<api_versions::SupportedFeatureKey>(FEATURE),
    ),
    tagged(1, from(3), I64),
    tagged(
        2,
        from(3),
        list::<api_versions::FinalizedFeatureKey>(FEATURE),
    ),
    tagged(3, from(3), I8),
];

/// Answer of ApiVersions.
pub(crate) const API_VERSIONS: Schema = Schema {
    flexible_from: 3,
    fields: API_VERSIONS_FIELDS,
};

const METADATA_BROKER: &[Field] = &[
    field(ALL, I32),
    field(ALL, TEXT),
    field(ALL, I32),
    field(from(1), TEXT),
];

const METADATA_PARTITION: &[Field] = &[
    field(ALL, I16),
    field(ALL, I32),
    field(ALL, I32),
    field(from(7), I32),
    field(ALL, IDS),
    field(ALL, IDS),
    field(from(5), IDS),
];

const IDS: Kind = Kind::Array(size_of::<BrokerId>(), Item::Fixed(4));

const METADATA_TOPIC: &[Field] = &[
    field(ALL, I16),
    field(ALL, TEXT),
    field(from(10), UUID),
    field(from(1), I8),
    field(
        ALL,
        list::<metadata::MetadataResponsePartition>(METADATA_PARTITION),
    ),
    field(from(8), I32),
];

const METADATA_FIELDS: &[Field] = &[
    field(from(3), I32),
    field(
        ALL,
        list::<metadata::MetadataResponseBroker>(METADATA_BROKER),
    ),
    field(from(2), TEXT),
    field(from(1), I32),
    field(ALL, list::<metadata::MetadataResponseTopic>(METADATA_TOPIC)),
    field((8, 10), I32),
    field(from(13), I16),
];

/// Answer of Metadata.
pub(crate) const METADATA: Schema = Schema {
    flexible_from: 9,
    fields: METADATA_FIELDS,
};

const NODE: &[Field] = &[
    field(ALL, I32),
    field(ALL, TEXT),
    field(ALL, I32),
    field(ALL, TEXT),
];

const LEADER: &[Field] = &[field(ALL, I32), field(ALL, I32)];

const EPOCH_END: &[Field] = &[field(ALL, I32), field(ALL, I64)];

const SNAPSHOT: &[Field] = &[field(ALL, I64), field(ALL, I32)];

const ABORTED: &[Field] = &[field(ALL, I64), field(ALL, I64)];

const FETCH_PARTITION: &[Field] = &[
    field(ALL, I32),
    field(ALL, I16),
    field(ALL, I64),
    field(ALL, I64),
    field(from(5), I64),
    tagged(0, from(12), Kind::Struct(EPOCH_END)),
    tagged(1, from(12), Kind::Struct(LEADER)),
    tagged(2, from(12), Kind::Struct(SNAPSHOT)),
    field(ALL, list::<fetch::AbortedTransaction>(ABORTED)),
    field(from(11), I32),
    field(ALL, Kind::Bytes),
];

const FETCH_TOPIC: &[Field] = &[
    field((0, 12), TEXT),
    field(from(13), UUID),
    field(ALL, list::<fetch::PartitionData>(FETCH_PARTITION)),
];

const FETCH_FIELDS: &[Field] = &[
    field(ALL, I32),
    field(from(7), I16),
    field(from(7), I32),
    field(ALL, list::<fetch::FetchableTopicResponse>(FETCH_TOPIC)),
    tagged(0, from(16), list::<fetch::NodeEndpoint>(NODE)),
];

/// Answer of Fetch.
pub(crate) const FETCH: Schema = Schema {
    flexible_from: 12,
    fields: FETCH_FIELDS,
};

const RECORD_ERROR: &[Field] = &[field(ALL, I32), field(ALL, TEXT)];

const PRODUCE_PARTITION: &[Field] = &[
    field(ALL, I32),
    field(ALL, I16),
    field(ALL, I64),
    field(ALL, I64),
    field(from(5), I64),
    field(
        from(8),
        list::<produce::BatchIndexAndErrorMessage>(RECORD_ERROR),
    ),
    field(from(8), TEXT),
    tagged(0, from(10), Kind::Struct(LEADER)),
];

const PRODUCE_TOPIC: &[Field] = &[
    field((0, 12), TEXT),
    field(from(13), UUID),
    field(
        ALL,
        list::<produce::PartitionProduceResponse>(PRODUCE_PARTITION),
    ),
];

const PRODUCE_FIELDS: &[Field] = &[
    field(ALL, list::<produce::TopicProduceResponse>(PRODUCE_TOPIC)),
    field(ALL, I32),
    tagged(0, from(10), list::<produce::NodeEndpoint>(NODE)),
];

/// Answer of Produce.
pub(crate) const PRODUCE: Schema = Schema {
    flexible_from: 9,
    fields: PRODUCE_FIELDS,
};

const LIST_OFFSETS_PARTITION: &[Field] = &[
    field(ALL, I32),
    field(ALL, I16),
    field(ALL, I64),
    field(ALL, I64),
    field(from(4), I32),
];

const LIST_OFFSETS_TOPIC: &[Field] = &[
    field(ALL, TEXT),
    field(
        ALL,
        list::<list_offsets::ListOffsetsPartitionResponse>(LIST_OFFSETS_PARTITION),
    ),
];

const LIST_OFFSETS_FIELDS: &[Field] = &[
    field(from(2), I32),
    field(
        ALL,
        list::<list_offsets::ListOffsetsTopicResponse>(LIST_OFFSETS_TOPIC),
    ),
];

/// Answer of ListOffsets.
pub(crate) const LIST_OFFSETS: Schema = Schema {
    flexible_from: 6,
    fields: LIST_OFFSETS_FIELDS,
};

const LEADER_EPOCH_PARTITION: &[Field] = &[
    field(ALL, I16),
    field(ALL, I32),
    field(ALL, I32),
    field(ALL, I64),
];

const LEADER_EPOCH_TOPIC: &[Field] = &[
    field(ALL, TEXT),
    field(
        ALL,
        list::<leader_epoch::EpochEndOffset>(LEADER_EPOCH_PARTITION),
    ),
];

const OFFSET_FOR_LEADER_EPOCH_FIELDS: &[Field] = &[
    field(from(2), I32),
    field(
        ALL,
        list::<leader_epoch::OffsetForLeaderTopicResult>(LEADER_EPOCH_TOPIC),
    ),
];

/// Answer of OffsetForLeaderEpoch.
pub(crate) const OFFSET_FOR_LEADER_EPOCH: Schema = Schema {
    flexible_from: 4,
    fields: OFFSET_FOR_LEADER_EPOCH_FIELDS,
};

const INIT_PRODUCER_ID_FIELDS: &[Field] = &[
    field(ALL, I32),
    field(ALL, I16),
    field(ALL, I64),
    field(ALL, I16),
];

/// Answer of InitProducerId.
pub(crate) const INIT_PRODUCER_ID: Schema = Schema {
    flexible_from: 2,
    fields: INIT_PRODUCER_ID_FIELDS,
};

const PRODUCER: &[Field] = &[
    field(ALL, I64),
    field(ALL, I32),
    field(ALL, I32),
    field(ALL, I64),
    field(ALL, I32),
    field(ALL, I64),
];

const PRODUCERS_PARTITION: &[Field] = &[
    field(ALL, I32),
    field(ALL, I16),
    field(ALL, TEXT),
    field(ALL, list::<producers::ProducerState>(PRODUCER)),
];

const PRODUCERS_TOPIC: &[Field] = &[
    field(ALL, TEXT),
    field(
        ALL,
        list::<producers::PartitionResponse>(PRODUCERS_PARTITION),
    ),
];

const DESCRIBE_PRODUCERS_FIELDS: &[Field] = &[
    field(ALL, I32),
    field(ALL, list::<producers::TopicResponse>(PRODUCERS_TOPIC)),
];

/// Answer of DescribeProducers.
pub(crate) const DESCRIBE_PRODUCERS: Schema = Schema {
    flexible_from: 0,
    fields: DESCRIBE_PRODUCERS_FIELDS,
};

const COORDINATOR: &[Field] = &[
    field(ALL, TEXT),
    field(ALL, I32),
    field(ALL, TEXT),
    field(ALL, I32),
    field(ALL, I16),
    field(ALL, TEXT),
];

const FIND_COORDINATOR_FIELDS: &[Field] = &[
    field(from(1), I32),
    field((0, 3), I16),
    field((1, 3), TEXT),
    field((0, 3), I32),
    field((0, 3), TEXT),
    field((0, 3), I32),
    field(from(4), list::<coordinator::Coordinator>(COORDINATOR)),
];

/// Answer of FindCoordinator.
pub(crate) const FIND_COORDINATOR: Schema = Schema {
    flexible_from: 3,
    fields: FIND_COORDINATOR_FIELDS,
};

const COMMIT_PARTITION: &[Field] = &[field(ALL, I32), field(ALL, I16)];

const COMMIT_TOPIC: &[Field] = &[
    field(ALL, TEXT),
    field(
        ALL,
        list::<commit::OffsetCommitResponsePartition>(COMMIT_PARTITION),
    ),
];

const OFFSET_COMMIT_FIELDS: &[Field] = &[
    field(from(3), I32),
    field(ALL, list::<commit::OffsetCommitResponseTopic>(COMMIT_TOPIC)),
];

/// Answer of OffsetCommit, up to version 9.
pub(crate) const OFFSET_COMMIT: Schema = Schema {
    flexible_from: 8,
    fields: OFFSET_COMMIT_FIELDS,
};

const COMMITTED_PARTITION: &[Field] = &[
    field(ALL, I32),
    field(ALL, I64),
    field(from(5), I32),
    field(ALL, TEXT),
    field(ALL, I16),
];

const COMMITTED_TOPIC: &[Field] = &[
    field(ALL, TEXT),
    field(
        ALL,
        list::<offset_fetch::OffsetFetchResponsePartition>(COMMITTED_PARTITION),
    ),
];

const COMMITTED_GROUP: &[Field] = &[
    field(ALL, TEXT),
    field(
        ALL,
        list::<offset_fetch::OffsetFetchResponseTopics>(COMMITTED_TOPIC),
    ),
    field(ALL, I16),
];

const OFFSET_FETCH_FIELDS: &[Field] = &[
    field(from(3), I32),
    field(
        (0, 7),
        list::<offset_fetch::OffsetFetchResponseTopic>(COMMITTED_TOPIC),
    ),
    field((2, 7), I16),
    field(
        from(8),
        list::<offset_fetch::OffsetFetchResponseGroup>(COMMITTED_GROUP),
    ),
];

/// Answer of OffsetFetch, up to version 9.
pub(crate) const OFFSET_FETCH: Schema = Schema {
    flexible_from: 6,
    fields: OFFSET_FETCH_FIELDS,
};

const SYNONYM: &[Field] = &[field(ALL, TEXT), field(ALL, TEXT), field(ALL, I8)];

const CONFIG: &[Field] = &[
    field(ALL, TEXT),
    field(ALL, TEXT),
    field(ALL, I8),
    field(ALL, I8),
    field(ALL, I8),
    field(ALL, list::<configs::DescribeConfigsSynonym>(SYNONYM)),
    field(from(3), I8),
    field(from(3), TEXT),
];

const CONFIG_RESOURCE: &[Field] = &[
    field(ALL, I16),
    field(ALL, TEXT),
    field(ALL, I8),
    field(ALL, TEXT),
    field(ALL, list::<configs::DescribeConfigsResourceResult>(CONFIG)),
];

const DESCRIBE_CONFIGS_FIELDS: &[Field] = &[
    field(ALL, I32),
    field(ALL, list::<configs::DescribeConfigsResult>(CONFIG_RESOURCE)),
];

/// Answer of DescribeConfigs.
pub(crate) const DESCRIBE_CONFIGS: Schema = Schema {
    flexible_from: 4,
    fields: DESCRIBE_CONFIGS_FIELDS,
};

const SASL_HANDSHAKE_FIELDS: &[Field] = &[
    field(ALL, I16),
    field(
        ALL,
        Kind::Array(size_of::<kafka_protocol::protocol::StrBytes>(), Item::Text),
    ),
];

/// Answer of SaslHandshake.
pub(crate) const SASL_HANDSHAKE: Schema = Schema {
    flexible_from: i16::MAX,
    fields: SASL_HANDSHAKE_FIELDS,
};

const SASL_AUTHENTICATE_FIELDS: &[Field] = &[
    field(ALL, I16),
    field(ALL, TEXT),
    field(ALL, Kind::Bytes),
    field(from(1), I64),
];

/// Answer of SaslAuthenticate.
pub(crate) const SASL_AUTHENTICATE: Schema = Schema {
    flexible_from: 2,
    fields: SASL_AUTHENTICATE_FIELDS,
};
