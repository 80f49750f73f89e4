//! Reads a stretch of a partition once, for what it says about counting.
//!
//! Many tasks may have to at the same time, such as all of a dead worker's on a target too old to say what it
//! has. So those of one end of a link take turns, and what they hold is within the byte budget (C107): an answer
//! is as large as a fetcher's part allows, and what has to be opened is opened elsewhere, with memory taken for it.
//! Who waits for a broker lets others go first, and holds nothing meanwhile.

mod counted;

use std::{sync::Arc, time::Duration};

use kreplicator_batch::{
    AbortedFilter, Batch,
    aborted::{AbortedTransaction, Verdict},
    split::{self, Entries, Entry},
};
use kreplicator_model::ids::Offset;
use kreplicator_wire::{
    cluster::{ClusterClient, Purpose, offsets::Isolation},
    code::Code,
    error::Error,
    fetch::{Fetched, Position, Session, Settings},
    topic::TopicPartition,
};
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::{Instant, sleep},
};

use super::ends;
use crate::{
    budget::{Budget, FetcherPart},
    fault::{Fault, Kind},
};

/// Connections of scans, apart from those of fetchers.
const SCANS: Purpose = Purpose::Fetch(u32::MAX);
/// Most bytes asked for at a time, but for a batch that is larger.
const BYTES_MAX: u64 = 4 << 20;
/// Most that a batch can make it.
const BYTES_ONE: usize = 100 << 20;
/// Between questions that brought nothing.
const PAUSE: Duration = Duration::from_millis(50);
/// Stretches read at a time from one end of a link.
const AT_A_TIME: usize = 4;
/// For so long a turn is kept without an answer.
const TURN_MAX: Duration = Duration::from_secs(5);

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

/// Reads stretches of one end of a link.
#[derive(Debug)]
pub(super) struct Scans {
    turns: Semaphore,
    budget: Arc<Budget>,
}

impl Scans {
    /// Within `budget`.
    pub(super) fn new(budget: Arc<Budget>) -> Self {
        Self {
            turns: Semaphore::new(AT_A_TIME),
            budget,
        }
    }

    /// A stretch to be read in its turn. What nothing has come of for `patience` is given up.
    pub(super) async fn begin<'a>(
        &'a self,
        client: &'a ClusterClient,
        stretch: &'a Stretch,
        patience: Duration,
    ) -> Scan<'a> {
        Scan {
            client,
            stretch,
            patience,
            position: stretch.from,
            bytes_needed: 0,
            turn: Some(self.turn().await),
            deadline: Instant::now() + patience,
            answer: None,
            scans: self,
        }
    }

    async fn turn(&self) -> Turn<'_> {
        Turn {
            // It is never closed.
            _permit: self.turns.acquire().await.ok(),
            part: self.budget.fetcher(),
        }
    }
}

/// Memory for an answer, and leave to use it.
struct Turn<'a> {
    _permit: Option<SemaphorePermit<'a>>,
    part: FetcherPart,
}

/// A stretch that is being read, batch by batch.
pub(super) struct Scan<'a> {
    client: &'a ClusterClient,
    stretch: &'a Stretch,
    patience: Duration,
    /// Next offset.
    position: Offset,
    /// Of the batch there, where an answer had only the beginning of it.
    bytes_needed: usize,
    deadline: Instant,
    answer: Option<Answer>,
    scans: &'a Scans,
    /// None: others go first.
    turn: Option<Turn<'a>>,
}

/// An answer as far as it was not looked at.
struct Answer {
    entries: Entries,
    filter: AbortedFilter,
    /// Where it was asked for.
    from: Offset,
}

impl Scan<'_> {
    /// The next batch; None: the stretch is over.
    ///
    /// # Errors
    /// What was not read.
    pub(super) async fn next(&mut self) -> Result<Option<(Batch, Verdict)>, Unread> {
        while self.position < self.stretch.to {
            let Some(answer) = &mut self.answer else {
                self.answer = self.ask().await?;
                if self.answer.is_none() {
                    self.give_way().await;
                }
                continue;
            };
            let from = answer.from;
            match answer.entries.next() {
                Some(Ok(Entry::Batch(batch))) => {
                    let verdict = answer.filter.judge(&batch);
                    let verdict = verdict.map_err(|error| self.unreadable(&error.to_string()))?;
                    let header = batch.header();
                    if header.base_offset >= self.stretch.to.0 {
                        return Ok(None);
                    }
                    if header.next_offset() > self.position.0 {
                        self.position = Offset(header.next_offset());
                        return Ok(Some((batch, verdict)));
                    }
                }
                Some(Ok(Entry::Partial(partial))) => {
                    if self.position == from {
                        let needed = partial.bytes_needed.unwrap_or_default();
                        self.bytes_needed = needed.min(BYTES_ONE);
                    }
                }
                Some(Ok(Entry::Message(_))) => {
                    return Err(self.unreadable("it has an old message format").into());
                }
                Some(Err(error)) => return Err(self.unreadable(&error.to_string()).into()),
                None => {
                    self.answer = None;
                    if self.position == from {
                        self.give_way().await;
                    } else {
                        self.bytes_needed = 0;
                        self.deadline = Instant::now() + self.patience;
                    }
                }
            }
        }
        Ok(None)
    }

    /// Lets others go first, for a moment at least. No answer is held.
    async fn give_way(&mut self) {
        self.turn = None;
        sleep(PAUSE).await;
        self.turn = Some(self.scans.turn().await);
    }

    /// Bytes to ask for.
    fn bytes_max(&self) -> i32 {
        let part = self.turn.as_ref().map_or(0, |turn| turn.part.bytes());
        let bytes = usize::try_from(part.min(BYTES_MAX)).unwrap_or(usize::MAX);
        i32::try_from(bytes.max(self.bytes_needed)).unwrap_or(i32::MAX)
    }

    /// None: no answer came within a turn.
    async fn ask(&self) -> Result<Option<Answer>, Unread> {
        let settings = Settings {
            bytes_max: self.bytes_max(),
            isolation: self.stretch.isolation,
            ..Settings::default()
        };
        let from = self.position;
        let until = self.deadline.min(Instant::now() + TURN_MAX);
        let fetched = match read(self.client, self.stretch, from, &settings, until).await {
            Err(Unread::Late(_)) if Instant::now() < self.deadline => return Ok(None),
            read => read?,
        };
        let aborted = fetched.aborted.iter().map(|one| AbortedTransaction {
            producer_id: one.producer_id,
            first_offset: one.first_offset.0,
        });
        Ok(Some(Answer {
            filter: AbortedFilter::new(aborted.collect()),
            entries: split::entries(fetched.records),
            from,
        }))
    }

    fn unreadable(&self, what: &str) -> Fault {
        let (at, position) = (&self.stretch.at, self.position);
        Fault::new(
            Kind::Source,
            format!("offset {position} of {at} cannot be read: {what}"),
        )
    }
}

/// Reads from the beginning of a stretch, whatever is there, and only finds out whether we may.
///
/// # Errors
/// As [`Scan::next`].
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
