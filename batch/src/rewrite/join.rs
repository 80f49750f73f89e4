//! Several small batches, or messages of an old format, into one batch.

use super::{Error, Options};
use crate::batch::Batch;
use crate::build::{self, BatchBuilder, Push};
use crate::codec::Compression;
use crate::legacy::Message;
use crate::records::Record;

/// What became of the first of several batches or messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Joined {
    /// Their records; `None` if they have none.
    pub batch: Option<Batch>,
    /// How many went in whole, `≥ 1` unless none were given; go on with the next.
    pub taken: usize,
    /// Source offset below which all is accounted for once the batch is delivered; 0 if none were given.
    pub next_offset: i64,
}

/// As many of the first `batches` as fit `bytes_max` bytes, in one batch with the codec that most of them have (the
/// one with the higher code where two are as frequent).
///
/// The first is taken whatever its size: compare what comes out with the limit, and split it if need be.
///
/// # Errors
/// As [`super::keep`], about the first. A later one that cannot be read ends what is joined.
pub fn coalesce(batches: &[Batch], bytes_max: usize, options: &Options) -> Result<Joined, Error> {
    join(batches, bytes_max, options)
}

/// As [`coalesce`], for messages of format 0 and 1.
///
/// # Errors
/// When a message cannot be read, or the batch cannot be written.
pub fn upgrade(messages: &[Message], bytes_max: usize, options: &Options) -> Result<Joined, Error> {
    join(messages, bytes_max, options)
}

/// What can be joined.
trait Source {
    fn compression(&self) -> Compression;
    fn next_offset(&self) -> i64;
    /// Adds all records to `builder`; false if it is full before that.
    fn add_to(&self, builder: &mut BatchBuilder, options: &Options) -> Result<bool, Error>;
}

impl Source for Batch {
    fn compression(&self) -> Compression {
        self.header().attributes.compression()
    }

    fn next_offset(&self) -> i64 {
        self.header().next_offset()
    }

    fn add_to(&self, builder: &mut BatchBuilder, options: &Options) -> Result<bool, Error> {
        add_all(options.open(self)?.records(), builder)
    }
}

impl Source for Message {
    fn compression(&self) -> Compression {
        self.compression()
    }

    fn next_offset(&self) -> i64 {
        self.next_offset()
    }

    fn add_to(&self, builder: &mut BatchBuilder, options: &Options) -> Result<bool, Error> {
        add_all(
            self.open(options.plain_bytes_max)?.records(options.times),
            builder,
        )
    }
}

fn add_all<'a, E>(
    records: impl Iterator<Item = Result<Record<'a>, E>>,
    builder: &mut BatchBuilder,
) -> Result<bool, Error>
where
    Error: From<E>,
{
    for record in records {
        if builder.push(&record?)? == Push::Full {
            return Ok(false);
        }
    }
    Ok(true)
}

fn join<S: Source>(sources: &[S], bytes_max: usize, options: &Options) -> Result<Joined, Error> {
    let compression = most_frequent(sources);
    let mut sources_max = sources.len();
    loop {
        let joined = fill(&sources[..sources_max], compression, bytes_max, options)?;
        let fits = joined
            .batch
            .as_ref()
            .is_none_or(|batch| batch.size_bytes() <= bytes_max);
        if fits || joined.taken <= 1 {
            return Ok(joined);
        }
        // Compression made it longer, which it does by very little: one source less is enough.
        sources_max = joined.taken - 1;
    }
}

fn fill<S: Source>(
    sources: &[S],
    compression: Compression,
    bytes_max: usize,
    options: &Options,
) -> Result<Joined, Error> {
    let mut builder = options.builder(compression, bytes_max);
    let mut taken = 0_usize;
    for source in sources {
        let mark = builder.mark();
        match source.add_to(&mut builder, options) {
            Ok(true) => taken += 1,
            // One that cannot be read is told of when it comes first; what is before it can be joined.
            Err(error) if taken == 0 => return Err(error),
            Ok(false) | Err(_) => {
                builder.roll_back(mark);
                break;
            }
        }
    }
    if let (0, Some(first)) = (taken, sources.first()) {
        // Alone beyond the limit already.
        builder = options.builder(compression, usize::MAX);
        if !first.add_to(&mut builder, options)? {
            return Err(build::Error::TooLong {
                bytes: builder.plain_batch_bytes(),
            }
            .into());
        }
        taken = 1;
    }
    let last = taken.checked_sub(1).and_then(|last| sources.get(last));
    let next_offset = last.map_or(0, Source::next_offset);
    Ok(Joined {
        batch: builder.finish()?,
        taken,
        next_offset,
    })
}

/// The codec that most sources have; none if there are none.
fn most_frequent<S: Source>(sources: &[S]) -> Compression {
    let count = |codec| {
        sources
            .iter()
            .filter(|source| source.compression() == codec)
            .count()
    };
    // The last of several greatest ones is taken.
    Compression::ALL
        .into_iter()
        .max_by_key(|&codec| count(codec))
        .unwrap_or(Compression::None)
}
