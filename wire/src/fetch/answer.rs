//! What a broker says to a fetch request, of one partition.

use bytes::Bytes;
use kafka_protocol::messages::fetch_response::PartitionData;
use kreplicator_model::ids::Offset;

use crate::{
    code::Code,
    topic::{BrokerId, Leader, Node, TopicPartition},
};

/// Answer to a fetch request: the partitions that have news.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Answer {
    /// In the order of the broker. Partitions that were removed or moved to another position since the
    /// request was made are left out.
    pub partitions: Vec<Fetched>,
    /// Where the leaders named in `partitions` listen, when they are others.
    pub nodes: Vec<Node>,
}

/// News of one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    /// The partition.
    pub partition: TopicPartition,
    /// The offset that was asked for.
    pub offset: Offset,
    /// [`Code::NONE`], or why there is nothing.
    pub code: Code,
    /// End of what is replicated (exclusive), when the broker tells.
    pub high_watermark: Option<Offset>,
    /// End of what no open transaction can change (exclusive), when the broker tells.
    pub last_stable_offset: Option<Offset>,
    /// First offset of the log, when the broker tells.
    pub log_start: Option<Offset>,
    /// Transactions that were aborted and have records in `records`.
    pub aborted: Vec<Aborted>,
    /// A replica nearer to us that the broker wants us to read from.
    pub preferred_replica: Option<BrokerId>,
    /// Where our log and the leader's part, when what we read last is not in the leader's log.
    pub diverging: Option<EpochEnd>,
    /// Who leads now, when it is another.
    pub leader: Option<Leader>,
    /// Record batches as they lie in the log, the first holding `offset` or a later one, the last perhaps
    /// cut short. A slice of the whole answer, which stays in memory as long as any slice of it.
    pub records: Bytes,
}

/// A transaction that was aborted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Aborted {
    /// Its producer.
    pub producer_id: i64,
    /// Its first offset.
    pub first_offset: Offset,
}

/// Where a leader's epoch ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EpochEnd {
    /// The largest epoch that both logs have.
    pub epoch: i32,
    /// Its end (exclusive) in the leader's log.
    pub end: Offset,
}

impl Fetched {
    pub(super) fn read(partition: TopicPartition, offset: Offset, data: PartitionData) -> Self {
        let known = |offset: i64| (offset >= 0).then_some(Offset(offset));
        let aborted = data.aborted_transactions.unwrap_or_default();
        let diverging = &data.diverging_epoch;
        Self {
            partition,
            offset,
            code: Code(data.error_code),
            high_watermark: known(data.high_watermark),
            last_stable_offset: known(data.last_stable_offset),
            log_start: known(data.log_start_offset),
            aborted: aborted
                .into_iter()
                .map(|transaction| Aborted {
                    producer_id: transaction.producer_id.0,
                    first_offset: Offset(transaction.first_offset),
                })
                .collect(),
            preferred_replica: (data.preferred_read_replica.0 >= 0)
                .then_some(data.preferred_read_replica),
            diverging: (diverging.end_offset >= 0).then_some(EpochEnd {
                epoch: diverging.epoch,
                end: Offset(diverging.end_offset),
            }),
            leader: Leader::from_wire(
                data.current_leader.leader_id,
                data.current_leader.leader_epoch,
            ),
            records: data.records.unwrap_or_default(),
        }
    }
}
