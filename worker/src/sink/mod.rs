//! Where records go. The reader knows a [`Sink`] and nothing of what is behind it: a Kafka cluster
//! today ([`kafka`]), files on HDFS next.
//!
//! A sink opens one [`Outlet`] per task. Records are offered in order; what became of each comes back
//! through [`Receipts`], by source offset, in any order. An outlet never drops a record by itself.

pub mod kafka;
mod record;

use std::{fmt::Debug, sync::Arc, time::Duration};

use async_trait::async_trait;
use kreplicator_model::ids::{Offset, UnixMillis};

pub use self::record::{Headers, NoHeaders, Record, UnreadableHeaders};
use crate::{engine::TaskSpec, fault::Fault};

/// What became of an offer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Offer {
    /// Taken; a receipt will come.
    Accepted,
    /// Not now: offer the same record again later.
    Full,
    /// This record cannot be taken; no receipt will come.
    Refused(Fault),
}

/// Which record it is that something became of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    /// Its source offset.
    pub offset: Offset,
    /// As in the record.
    pub payload_bytes: u64,
    /// As in the record.
    pub timestamp: Option<UnixMillis>,
}

/// Hears what became of records. Called from the sink's own threads; must not block.
pub trait Receipts: Send + Sync + Debug {
    /// The target has the record safely.
    fn delivered(&self, receipt: Receipt);
    /// The target does not have it, or may not have it.
    fn failed(&self, receipt: Receipt, fault: Fault);
}

/// A place that records go to.
#[async_trait]
pub trait Sink: Send + Sync + Debug {
    /// An outlet for one task. Does not wait for the network.
    fn open(&self, spec: &TaskSpec, receipts: Arc<dyn Receipts>) -> Arc<dyn Outlet>;

    /// Makes sure that records of these tasks can be offered; called before each attempt.
    ///
    /// # Errors
    /// Why nothing can be offered, with the remedy. Trouble of one task is told when it offers.
    async fn prepare(&self, tasks: &[&TaskSpec], deadline: Duration) -> Result<(), Fault>;

    /// Whether records can go in now; if not, offers wait until [`Sink::prepare`] has succeeded.
    fn is_ready(&self) -> bool;

    /// Why nothing is acknowledged now, as far as is known.
    fn trouble(&self) -> Option<String>;
}

/// One task's way into a sink.
#[async_trait]
pub trait Outlet: Send + Sync + Debug {
    /// Offers the next record. Never blocks.
    fn offer(&self, record: &Record<'_>) -> Offer;

    /// Records accepted whose receipts have not come.
    fn outstanding(&self) -> u64;

    /// Gives up everything outstanding and makes sure that nothing more is sent: what can be taken
    /// back is, after others who share the way had `grace` to finish theirs. Afterwards every offer
    /// is refused. Gives the number of records that may or may not arrive.
    async fn forget(&self, grace: Duration) -> u64;
}
