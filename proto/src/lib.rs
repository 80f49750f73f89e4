//! The contract: the gRPC API, the records kept in the metadata store, and their translation to
//! and from the domain types of `kreplicator-model`.
//!
//! - [`v1`]: generated messages, clients and servers.
//! - [`FILE_DESCRIPTOR_SET`]: for gRPC reflection.
//! - [`spec_convert`]: clusters, links and subscriptions, checked, both ways.
//! - [`assignment`]: what a worker shall run and what it runs, as checked maps.
//! - [`topic_record`], [`subscription_record`]: what was noted about topics and subscriptions.
//! - [`line_record`]: how records are counted, and a link's producer id.
//! - [`stored`]: values of the metadata store as bytes.
//! - [`codec`]: how servers read requests.
//! - [`fault`]: what is wrong with a message, field by field.
//! - [`status`]: refusals as gRPC statuses.

pub mod assignment;
pub mod codec;
pub mod fault;
pub mod line_record;
pub mod spec_convert;
pub mod status;
pub mod stored;
pub mod subscription_record;
pub mod topic_record;

/// Generated from `proto/kreplicator/v1/*.proto`.
#[allow(
    missing_docs,
    unreachable_pub,
    missing_debug_implementations,
    clippy::all,
    rustdoc::all
)]
pub mod v1 {
    tonic::include_proto!("kreplicator.v1");
    include!(concat!(env!("OUT_DIR"), "/clients/kreplicator.v1.rs"));
}

/// Encoded `FileDescriptorSet` of the API, for reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/kreplicator.bin"));
