//! One file of a group, from its first record to its verified end.
//!
//! ```text
//!  record ─► rows ─► encoder thread ─► finished blocks ─► the store
//!            ≤ 1 MiB  ≤ a row group     handed on as soon as they are there
//! ```
//! The file is made in the store when its first bytes are finished, so that a file of few records is made, written and
//! closed in one go, and nothing is open in the store meanwhile.
//!
//! Whatever fails, or is dropped halfway, loses the file: every later step says so.

use std::sync::Arc;

use bytes::Bytes;
use kreplicator_model::{
    dump::{bucket::Bucket, manifest::Source, path::StorePath},
    ids::Offset,
};

use crate::{
    commit::Ground,
    encoders::{Encoders, Pending},
    envelope::{self, Facts, Footer, ReadError, Rows, Writer, WriterError},
    held::{Held, Share},
    record::Record,
    store::FileWriter,
    trouble::{Trouble, Troubles, Until, WaitsFor},
};

/// How often the footer of a closed file is asked for when the store is away.
const VERIFICATIONS_MAX: u32 = 5;

/// Bytes of rows from which on they are one large record: what is added for its page, its compression, and the finished block
/// is no longer small beside a row group.
const LARGE_BYTES: usize = 8 << 20;
/// How often its bytes are there at most while it is encoded: the rows, the column, the page, the compressed page.
const LARGE_FACTOR: usize = 4;

/// What files are made with.
#[derive(Debug)]
pub(super) struct Workshop {
    pub(super) ground: Ground,
    pub(super) encoders: Encoders,
    pub(super) settings: envelope::Settings,
    pub(super) source: Arc<Source>,
    pub(super) held: Held,
    pub(super) troubles: Troubles,
}

#[derive(Debug)]
enum Encoder {
    /// Nothing was encoded yet.
    New,
    Idle(Box<Writer>),
    Busy(Pending<Result<Piece, WriterError>>),
    /// All of it is encoded.
    Finished,
    /// Something failed, or was dropped halfway.
    Lost,
}

/// What comes back from an encoder.
#[derive(Debug)]
struct Piece {
    /// None: the file is finished.
    writer: Option<Box<Writer>>,
    /// The next bytes of the file.
    blocks: Vec<Bytes>,
}

/// How far to encode.
#[derive(Debug)]
enum Step {
    Rows,
    RowGroup,
    File(Box<Facts>),
}

#[derive(Debug)]
pub(super) struct OpenFile {
    pub(super) bucket: Bucket,
    path: StorePath,
    facts: Facts,
    rows: Rows,
    encoder: Encoder,
    /// Whether it was asked for in the store.
    is_made: bool,
    /// First and last offset of what was last handed to the encoder.
    piece: Option<(Offset, Offset)>,
    output: Option<Box<dyn FileWriter>>,
    written: u64,
    rows_held: Share,
    /// Of the encoder and of what it has finished; set by whoever has it.
    encoder_held: Arc<Share>,
    /// Length of the file, but for the rows, as the encoder measured it.
    encoded: u64,
}

/// A file in the store, as it should be.
#[derive(Debug)]
pub(super) struct ClosedFile {
    pub(super) bucket: Bucket,
    pub(super) facts: Facts,
    pub(super) bytes: u64,
}

impl OpenFile {
    /// A file with its first record.
    pub(super) fn new(
        bucket: Bucket,
        path: StorePath,
        shop: &Workshop,
        record: &Record<'_>,
    ) -> Self {
        let mut rows = Rows::default();
        rows.push(record);
        let rows_held = shop.held.share();
        rows_held.set(rows.held());
        Self {
            bucket,
            path,
            facts: Facts::of((*shop.source).clone(), record),
            rows,
            rows_held,
            encoder_held: Arc::new(shop.held.share()),
            encoder: Encoder::New,
            is_made: false,
            piece: None,
            output: None,
            written: 0,
            encoded: 0,
        }
    }

    /// Whether its rows are to be encoded before this record.
    pub(super) fn is_full_for(&self, shop: &Workshop, record: &Record<'_>) -> bool {
        self.rows.is_full_for(record, shop.settings.rows_bytes_max)
    }

    pub(super) fn push(&mut self, record: &Record<'_>) {
        self.rows.push(record);
        self.rows_held.set(self.rows.held());
        self.facts.add(record);
    }

    /// Bytes of memory.
    pub(super) fn held(&self) -> usize {
        self.rows_held.bytes() + self.encoder_held.bytes()
    }

    /// Bytes that the store has.
    #[cfg(test)]
    pub(super) fn written(&self) -> u64 {
        self.written
    }

    /// Whether an encoder has it.
    #[cfg(test)]
    pub(super) fn is_busy(&self) -> bool {
        matches!(self.encoder, Encoder::Busy(_))
    }

    /// Length of the file so far, about.
    pub(super) fn bytes(&self) -> u64 {
        self.encoded + self.rows.bytes() as u64
    }

    /// Hands its rows to an encoder, once that is done with those before, whose bytes are written first.
    pub(super) async fn encode(&mut self, shop: &Workshop) -> Result<(), Trouble> {
        self.settle(shop).await?;
        self.submit(shop, Step::Rows).await
    }

    /// Has everything so far encoded to the end of a row group; [`OpenFile::settle`] writes it.
    pub(super) async fn end_row_group(&mut self, shop: &Workshop) -> Result<(), Trouble> {
        self.settle(shop).await?;
        self.submit(shop, Step::RowGroup).await
    }

    /// Finishes, writes, closes and verifies it.
    pub(super) async fn close(mut self, shop: &Workshop) -> Result<ClosedFile, Trouble> {
        self.settle(shop).await?;
        let file = Step::File(Box::new(self.facts.clone()));
        self.submit(shop, file).await?;
        self.settle(shop).await?;
        let lost = self.lost();
        let output = self.output.take().ok_or(lost)?;
        let length = output.close().await.map_err(Trouble::Store)?;
        let (path, written) = (self.path, self.written);
        if length != written {
            let text = format!("{written} bytes were written, and it has {length}");
            return Err(Trouble::Verification { path, text });
        }
        verify(shop, &path, &self.facts, written).await?;
        Ok(ClosedFile {
            bucket: self.bucket,
            facts: self.facts,
            bytes: length,
        })
    }

    fn lost(&self) -> Trouble {
        Trouble::Encoder {
            path: self.path.clone(),
            text: "a former step has failed or was dropped".to_owned(),
        }
    }

    fn unencoded(&self, text: &str) -> Trouble {
        let path = self.path.clone();
        let text = match self.piece {
            Some((first, last)) => format!("offsets {first} to {last}: {text}"),
            None => text.to_owned(),
        };
        Trouble::Encoder { path, text }
    }

    async fn submit(&mut self, shop: &Workshop, step: Step) -> Result<(), Trouble> {
        let is_large = self.rows.held() > LARGE_BYTES;
        let leave = if is_large {
            Some(shop.encoders.large().await)
        } else {
            None
        };
        let writer = match std::mem::replace(&mut self.encoder, Encoder::Lost) {
            Encoder::New => None,
            Encoder::Idle(writer) => Some(writer),
            Encoder::Busy(_) | Encoder::Finished | Encoder::Lost => return Err(self.lost()),
        };
        let rows = std::mem::take(&mut self.rows);
        self.piece = rows.range();
        self.encoded += rows.bytes() as u64;
        let (source, settings) = (Arc::clone(&shop.source), shop.settings.clone());
        let held = Arc::clone(&self.encoder_held);
        // The rows, and what they become.
        let factor = if is_large { LARGE_FACTOR } else { 2 };
        let held_meanwhile =
            factor * rows.held() + writer.as_ref().map_or(0, |writer| writer.held());
        held.set(held_meanwhile);
        self.rows_held.set(0);
        let work = move || {
            let writer = match writer {
                Some(writer) => writer,
                None => Box::new(Writer::new(source, &settings)?),
            };
            let piece = encode(writer, rows, step)?;
            held.set(piece.held());
            drop(leave);
            Ok(piece)
        };
        self.encoder = Encoder::Busy(shop.encoders.submit(work));
        Ok(())
    }

    /// Whether an encoder has finished what the store does not have yet.
    pub(super) fn is_ready(&self) -> bool {
        matches!(&self.encoder, Encoder::Busy(pending) if pending.is_done())
    }

    /// Waits for the encoder, and writes what it has finished.
    pub(super) async fn settle(&mut self, shop: &Workshop) -> Result<(), Trouble> {
        let pending = match std::mem::replace(&mut self.encoder, Encoder::Lost) {
            Encoder::Busy(pending) => pending,
            Encoder::Lost => return Err(self.lost()),
            settled => {
                self.encoder = settled;
                return Ok(());
            }
        };
        let piece = match pending.wait().await {
            Ok(Ok(piece)) => piece,
            Ok(Err(fault)) => return Err(self.unencoded(&text_of(&fault))),
            Err(broken) => return Err(self.unencoded(&broken.to_string())),
        };
        for block in piece.blocks {
            let length = block.len();
            let output = self.output(shop).await?;
            output.write(block).await.map_err(Trouble::Store)?;
            self.written += length as u64;
            let left = self.encoder_held.bytes().saturating_sub(length);
            self.encoder_held.set(left);
        }
        self.encoder = match piece.writer {
            Some(writer) => {
                self.encoded = writer.bytes();
                Encoder::Idle(writer)
            }
            None => Encoder::Finished,
        };
        Ok(())
    }

    async fn output(&mut self, shop: &Workshop) -> Result<&mut Box<dyn FileWriter>, Trouble> {
        if !std::mem::replace(&mut self.is_made, true) {
            let made = shop.ground.store.create(&self.path).await;
            self.output = Some(made.map_err(Trouble::Store)?);
        }
        let lost = self.lost();
        self.output.as_mut().ok_or(lost)
    }
}

/// Whether what the store has at a path is what was written.
async fn verify(
    shop: &Workshop,
    path: &StorePath,
    facts: &Facts,
    written: u64,
) -> Result<(), Trouble> {
    let unverified = |text| {
        let path = path.clone();
        Err(Trouble::Verification { path, text })
    };
    let mut again = 0;
    let footer = loop {
        match Footer::read(&*shop.ground.store, path).await {
            Ok(footer) => break footer,
            Err(ReadError::Store(error)) => {
                let trouble = Trouble::Store(error);
                again += 1;
                if trouble.waits_for() == WaitsFor::Person || again == VERIFICATIONS_MAX {
                    return Err(trouble);
                }
                shop.troubles.note(trouble, Until::Committed);
                shop.ground.wait(again).await;
            }
            Err(fault) => return unverified(text_of(&fault)),
        }
    };
    if footer.bytes() != written || footer.facts() != facts {
        return unverified("its footer tells of other records".to_owned());
    }
    Ok(())
}

impl Piece {
    fn held(&self) -> usize {
        let blocks = self.blocks.iter().map(Bytes::len);
        blocks.sum::<usize>() + self.writer.as_ref().map_or(0, |writer| writer.held())
    }
}

fn encode(mut writer: Box<Writer>, rows: Rows, step: Step) -> Result<Piece, WriterError> {
    if !rows.is_empty() {
        writer.write(rows)?;
    }
    let (writer, blocks) = match step {
        Step::File(facts) => (None, writer.finish(&facts)?),
        Step::RowGroup => {
            writer.end_row_group()?;
            let blocks = writer.take();
            (Some(writer), blocks)
        }
        Step::Rows => {
            let blocks = writer.take();
            (Some(writer), blocks)
        }
    };
    Ok(Piece { writer, blocks })
}

/// An error and what is behind it, in one line.
fn text_of(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(behind) = source {
        text = format!("{text}: {behind}");
        source = behind.source();
    }
    text
}
