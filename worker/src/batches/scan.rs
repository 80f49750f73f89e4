//! Reads a stretch of a partition once, for what it says about counting.

use std::time::Duration;

use kreplicator_batch::{
    AbortedFilter, Batch,
    aborted::{AbortedTransaction, Verdict},
    records::Unpacked,
    split::{self, Entry},
};
use kreplicator_model::ids::Offset;
use kreplicator_wire::{
    cluster::{ClusterClient, Purpose, offsets::Isolation},
    code::Code,
    error::Error,
    fetch::{Fetched, Position, Session, Settings},
    topic::TopicPartition,
};
use tokio::time::{Instant, sleep};

use super::{ends, intake::PLAIN_BYTES_MAX};
use crate::fault::{Fault, Kind};

/// Connections of scans, apart from those of fetchers.
const SCANS: Purpose = Purpose::Fetch(u32::MAX);
/// Bytes asked for at a time, to begin with.
const BYTES: i32 = 4 << 20;
/// Between questions that brought nothing.
const PAUSE: Duration = Duration::from_millis(50);

/// Why a stretch was not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Unread {
    /// We may not.
    Denied(Fault),
    /// Nothing has come for so long; it may come later.
    Late(Fault),
    /// Anything else.
    Failed(Fault),
}

impl From<Unread> for Fault {
    fn from(unread: Unread) -> Self {
        match unread {
            Unread::Denied(fault) | Unread::Late(fault) | Unread::Failed(fault) => fault,
        }
    }
}

impl From<Fault> for Unread {
    fn from(fault: Fault) -> Self {
        Self::Failed(fault)
    }
}

/// A stretch of a partition.
#[derive(Debug, Clone)]
pub(super) struct Stretch {
    pub(super) at: TopicPartition,
    /// First offset.
    pub(super) from: Offset,
    /// End, exclusive.
    pub(super) to: Offset,
    /// Up to the last stable offset, or also what open transactions hold up.
    pub(super) isolation: Isolation,
}

/// Reads a stretch, batch by batch; `look` says whether to go on.
///
/// # Errors
/// What was not read, once nothing more has come for `patience`.
pub(super) async fn scan(
    client: &ClusterClient,
    stretch: &Stretch,
    patience: Duration,
    mut look: impl FnMut(&Batch, Verdict) -> bool,
) -> Result<(), Unread> {
    let mut position = stretch.from;
    let mut bytes_max = BYTES;
    let mut deadline = Instant::now() + patience;
    while position < stretch.to {
        let settings = Settings {
            bytes_max,
            isolation: stretch.isolation,
            ..Settings::default()
        };
        let fetched = read(client, stretch, position, &settings, deadline).await?;
        let aborted = fetched.aborted.iter().map(|one| AbortedTransaction {
            producer_id: one.producer_id,
            first_offset: one.first_offset.0,
        });
        let mut filter = AbortedFilter::new(aborted.collect());
        let before = position;
        for entry in split::entries(fetched.records) {
            let batch = match entry {
                Ok(Entry::Batch(batch)) => batch,
                Ok(Entry::Partial(partial)) => {
                    if position == before
                        && let Some(needed) = partial.bytes_needed
                    {
                        bytes_max = i32::try_from(needed).unwrap_or(i32::MAX);
                    }
                    break;
                }
                Ok(Entry::Message(_)) => {
                    let what = "it has an old message format";
                    return Err(unreadable(stretch, position, what).into());
                }
                Err(error) => return Err(unreadable(stretch, position, &error.to_string()).into()),
            };
            let verdict = filter
                .judge(&batch)
                .map_err(|error| unreadable(stretch, position, &error.to_string()))?;
            let header = batch.header();
            if header.base_offset >= stretch.to.0 {
                return Ok(());
            }
            if header.next_offset() > position.0 {
                position = Offset(header.next_offset());
                if !look(&batch, verdict) {
                    return Ok(());
                }
            }
        }
        if position == before {
            sleep(PAUSE).await;
        } else {
            deadline = Instant::now() + patience;
        }
    }
    Ok(())
}

/// Reads from the beginning of a stretch, whatever is there, and only finds out whether we may.
///
/// # Errors
/// As [`scan`].
pub(super) async fn probe(
    client: &ClusterClient,
    stretch: &Stretch,
    deadline: Instant,
) -> Result<(), Unread> {
    let settings = Settings {
        wait_max: Duration::ZERO,
        bytes_max: 1,
        ..Settings::default()
    };
    read(client, stretch, stretch.from, &settings, deadline)
        .await
        .map(drop)
}

/// One answer from a position; asks until there is one.
async fn read(
    client: &ClusterClient,
    stretch: &Stretch,
    position: Offset,
    settings: &Settings,
    deadline: Instant,
) -> Result<Fetched, Unread> {
    let mut last: Option<Error> = None;
    while Instant::now() < deadline {
        match fetch(client, &stretch.at, position, settings, deadline).await {
            Ok(fetched) => return Ok(fetched),
            Err(fault) if fault.is_retryable() => {
                client.mark_stale(&stretch.at.topic);
                last = Some(fault);
                sleep(PAUSE).await;
            }
            Err(error) => {
                let fault = ends::fault(Kind::Source, client, &error);
                return Err(if error.is_denied() {
                    Unread::Denied(fault)
                } else {
                    Unread::Failed(fault)
                });
            }
        }
    }
    Err(Unread::Late(late(stretch, position, last.as_ref())))
}

async fn fetch(
    client: &ClusterClient,
    at: &TopicPartition,
    offset: Offset,
    settings: &Settings,
    deadline: Instant,
) -> Result<Fetched, Error> {
    let leader = client.leader(at, deadline).await?;
    let topic = client.topic(&at.topic, deadline).await?;
    let connection = client.connection(leader.broker, SCANS, deadline).await?;
    // One that was opened would stay at the broker.
    let mut session = Session::sessionless(settings.clone());
    let position = Position {
        offset,
        leader_epoch: leader.epoch,
        last_fetched_epoch: None,
        bytes_max: settings.bytes_max,
    };
    session.update(at.clone(), topic.id, position);
    let version = connection.version::<kreplicator_wire::fetch::Request>()?;
    let request = session.next_request(version);
    let answer = session.apply(connection.send(request, deadline).await?)?;
    let fetched = answer.partitions.into_iter().next();
    let fetched = fetched.ok_or_else(|| Error::Refused {
        what: format!("reading {at}"),
        code: Code::REQUEST_TIMED_OUT,
    })?;
    if fetched.code == Code::NONE {
        return Ok(fetched);
    }
    Err(Error::Refused {
        what: format!("reading {at} from offset {offset}"),
        code: fetched.code,
    })
}

/// Copyable records in a stretch.
///
/// # Errors
/// As [`scan`].
pub(super) async fn count(
    client: &ClusterClient,
    stretch: &Stretch,
    patience: Duration,
) -> Result<u64, Fault> {
    let mut counted = 0;
    let mut fault = None;
    scan(client, stretch, patience, |batch, verdict| {
        if verdict == Verdict::Keep {
            match records_within(batch, stretch.from, stretch.to) {
                Ok(offsets) => counted += offsets.count(),
                Err(text) => fault = Some(unreadable(stretch, stretch.from, &text)),
            }
        }
        fault.is_none()
    })
    .await?;
    fault.map_or(Ok(counted), Err)
}

/// The offset after the first `records` copyable records of a stretch; None: it has fewer.
///
/// # Errors
/// As [`scan`].
pub(super) async fn after(
    client: &ClusterClient,
    stretch: &Stretch,
    records: u64,
    patience: Duration,
) -> Result<Option<Offset>, Fault> {
    if records == 0 {
        return Ok(Some(stretch.from));
    }
    let mut left = records;
    let mut found = None;
    let mut fault = None;
    scan(client, stretch, patience, |batch, verdict| {
        if verdict == Verdict::Keep {
            match records_within(batch, stretch.from, stretch.to) {
                Ok(offsets) if offsets.count() >= left => {
                    found = offsets.get(left - 1).map(|offset| Offset(offset + 1));
                }
                Ok(offsets) => left -= offsets.count(),
                Err(text) => fault = Some(unreadable(stretch, stretch.from, &text)),
            }
        }
        found.is_none() && fault.is_none()
    })
    .await?;
    fault.map_or(Ok(found), Err)
}

/// Offsets of records in order.
#[derive(Debug, PartialEq, Eq)]
enum Offsets {
    /// All of `[from, to)`, as a header says: it may claim more than there is, so they are never listed.
    Dense(i64, i64),
    /// These, as they were read.
    Listed(Vec<i64>),
}

impl Offsets {
    fn count(&self) -> u64 {
        match self {
            Self::Dense(from, to) => to.abs_diff(*from),
            Self::Listed(offsets) => offsets.len() as u64,
        }
    }

    /// That of the record at an index from 0.
    fn get(&self, index: u64) -> Option<i64> {
        match self {
            Self::Dense(from, to) => {
                let offset = from.checked_add_unsigned(index)?;
                (offset < *to).then_some(offset)
            }
            Self::Listed(offsets) => offsets.get(usize::try_from(index).ok()?).copied(),
        }
    }
}

/// Offsets of a batch's records in `[from, to)`.
fn records_within(batch: &Batch, from: Offset, to: Offset) -> Result<Offsets, String> {
    let header = batch.header();
    let is_within = header.base_offset >= from.0 && header.next_offset() <= to.0;
    if is_within && batch.shape().is_dense() {
        return Ok(Offsets::Dense(header.base_offset, header.next_offset()));
    }
    let unpacked = Unpacked::open(batch, PLAIN_BYTES_MAX).map_err(|error| error.to_string())?;
    let mut offsets = Vec::new();
    for record in unpacked.records() {
        let offset = record.map_err(|error| error.to_string())?.offset;
        if offset >= from.0 && offset < to.0 {
            offsets.push(offset);
        }
    }
    Ok(Offsets::Listed(offsets))
}

fn late(stretch: &Stretch, position: Offset, last: Option<&Error>) -> Fault {
    let Stretch { at, from, to, .. } = stretch;
    let cause = last.map_or(String::new(), |last| format!(" ({last})"));
    Fault::new(
        Kind::Source,
        format!(
            "offsets [{from}, {to}) of {at} were not read in time, only up to {position}{cause}"
        ),
    )
}

fn unreadable(stretch: &Stretch, position: Offset, what: &str) -> Fault {
    let at = &stretch.at;
    Fault::new(
        Kind::Source,
        format!("offset {position} of {at} cannot be read: {what}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batches::testkit::Made;

    #[test]
    fn what_a_header_claims_is_counted_and_never_listed() {
        let batch = Made::boasting(10, i32::MAX);
        let end = Offset(10 + i64::from(i32::MAX));
        let offsets = records_within(&batch, Offset(0), end).expect("not opened");
        assert_eq!(offsets, Offsets::Dense(10, end.0));
        assert_eq!(offsets.count(), u64::from(i32::MAX.unsigned_abs()));
        assert_eq!(offsets.get(0), Some(10));
        assert_eq!(offsets.get(offsets.count() - 1), Some(end.0 - 1));
        assert_eq!(offsets.get(offsets.count()), None);
    }

    #[test]
    fn a_batch_that_reaches_over_the_stretch_is_read_for_what_lies_within() {
        let batch = Made::dense(10, 5).batch();
        let offsets = records_within(&batch, Offset(12), Offset(14)).expect("sound");
        assert_eq!(offsets, Offsets::Listed(vec![12, 13]));
        assert_eq!((offsets.count(), offsets.get(1)), (2, Some(13)));
        assert_eq!(offsets.get(2), None);
    }
}
