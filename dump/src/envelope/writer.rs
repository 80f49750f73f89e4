//! From rows to the bytes of a file.

use std::{fmt, ops::RangeInclusive, sync::Arc};

use arrow_schema::ArrowError;
use bytes::Bytes;
use kreplicator_model::dump::manifest::Source;
use parquet::{
    arrow::{ArrowWriter, arrow_writer::ArrowWriterOptions},
    basic::ZstdLevel,
    errors::ParquetError,
};

use super::{
    Facts, Rows,
    contexts::{Contexts, LEVEL_MAX},
    schema,
    spool::Spool,
};

/// Memory of what the footer will say of a row group: metadata, statistics and page indexes of twelve columns. Measured
/// from above.
const ROW_GROUP_FACTS_BYTES: usize = 8 << 10;

/// How much larger than [`Settings::row_group_bytes_max`] a row group may be before it is encoded.
const PLAIN_FACTOR_MAX: usize = 4;

/// How files are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Level of zstd, from 1 to 9: higher ones hold tens of MiB for each column of a file.
    pub zstd_level: i32,
    /// Bytes of memory from which on a row group is finished. Together with what it is finished into it is what a
    /// file being written holds at most, beside one record. At least 1.
    pub row_group_bytes_max: usize,
    /// Bytes of rows that are handed to an encoder at once; a single record may be larger.
    pub rows_bytes_max: usize,
}

impl Default for Settings {
    /// Level 3, zstd's own default; rows of 1 MiB; and row groups of 32 MiB: as large as row groups can be where a worker has many files open.
    fn default() -> Self {
        Self {
            zstd_level: 3,
            row_group_bytes_max: 32 << 20,
            rows_bytes_max: 1 << 20,
        }
    }
}

/// Bytes of a row group that can be set. Its readers hold up to four times of it.
const ROW_GROUP_BYTES: RangeInclusive<usize> = 64 << 10..=512 << 20;

/// Bytes of rows that can be set.
const ROWS_BYTES: RangeInclusive<usize> = 16 << 10..=8 << 20;

impl Settings {
    /// What is wrong with them, each in words that begin with the name of a setting.
    pub(crate) fn faults(&self) -> impl Iterator<Item = &'static str> {
        let is_level = (1..=LEVEL_MAX).contains(&self.zstd_level);
        let is_size = ROW_GROUP_BYTES.contains(&self.row_group_bytes_max);
        let level = (!is_level).then_some("zstd_level is not between 1 and 9");
        let size = (!is_size).then_some("row_group_bytes_max is not between 64 KiB and 512 MiB");
        let is_piece = ROWS_BYTES.contains(&self.rows_bytes_max);
        let piece = (!is_piece).then_some("rows_bytes_max is not between 16 KiB and 8 MiB");
        level.into_iter().chain(size).chain(piece)
    }
}

/// Why a file cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum WriterError {
    /// The columns do not fit together: a defect of this software.
    #[error("records cannot be brought into columns")]
    Columns(#[from] ArrowError),
    /// A setting is not legal, or a column cannot be encoded.
    #[error("the file cannot be encoded")]
    Parquet(#[from] ParquetError),
}

/// Encodes one file. Nothing in it waits; it takes as long as encoding takes.
pub struct Writer {
    source: Arc<Source>,
    row_group_bytes_max: usize,
    /// Bytes of the rows in the row group, as they were given.
    plain_bytes: usize,
    zstd_level: i32,
    contexts: Contexts,
    parquet: ArrowWriter<Spool>,
}

impl Writer {
    /// A file with records of this source.
    ///
    /// # Errors
    /// When the level is not one of zstd's.
    pub fn new(source: Arc<Source>, settings: &Settings) -> Result<Self, WriterError> {
        let level = ZstdLevel::try_new(settings.zstd_level)?;
        let options = ArrowWriterOptions::new()
            .with_properties(schema::properties(level))
            .with_skip_arrow_metadata(true);
        let spool = Spool::default();
        let parquet = ArrowWriter::try_new_with_options(spool, schema::arrow(), options)?;
        Ok(Self {
            source,
            row_group_bytes_max: settings.row_group_bytes_max.max(1),
            plain_bytes: 0,
            zstd_level: settings.zstd_level,
            contexts: Contexts::default(),
            parquet,
        })
    }

    /// Encodes rows, and finishes the row group if it is large enough.
    ///
    /// # Errors
    /// [`WriterError`]; the file is lost.
    pub fn write(&mut self, rows: Rows) -> Result<(), WriterError> {
        self.plain_bytes += rows.bytes();
        self.contexts.add(rows.len(), rows.column_bytes());
        let batch = rows.into_batch(&self.source)?;
        self.parquet.write(&batch)?;
        // A large record would be there once more while its row group is put together.
        drop(batch);
        // What compresses well is large for its readers long before it is for us.
        let is_large = self.parquet.memory_size() >= self.row_group_bytes_max
            || self.plain_bytes / PLAIN_FACTOR_MAX >= self.row_group_bytes_max;
        if is_large {
            self.end_row_group()?;
        }
        Ok(())
    }

    /// Finishes the row group, if anything is in it.
    ///
    /// # Errors
    /// [`WriterError`]; the file is lost.
    pub fn end_row_group(&mut self) -> Result<(), WriterError> {
        self.plain_bytes = 0;
        self.contexts = Contexts::default();
        Ok(self.parquet.flush()?)
    }

    /// Finishes the file.
    ///
    /// # Errors
    /// [`WriterError`]; the file is lost.
    pub fn finish(mut self, facts: &Facts) -> Result<Vec<Bytes>, WriterError> {
        for part in facts.to_metadata() {
            self.parquet.append_key_value_metadata(part);
        }
        // Writes the footer; `finish` before it would have it there twice.
        Ok(self.parquet.into_inner()?.take())
    }

    /// Takes what is finished: the next bytes of the file.
    pub fn take(&mut self) -> Vec<Bytes> {
        self.parquet.inner_mut().take()
    }

    /// Bytes of memory.
    #[must_use]
    pub fn held(&self) -> usize {
        let footer = self.parquet.flushed_row_groups().len() * ROW_GROUP_FACTS_BYTES;
        let contexts = self.contexts.held(self.zstd_level);
        self.parquet.memory_size() + contexts + self.parquet.inner().held() + footer
    }

    /// Bytes of the file so far, as far as they can be known before the row group is finished.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        (self.parquet.bytes_written() + self.parquet.in_progress_size()) as u64
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Writer");
        debug
            .field("bytes", &self.bytes())
            .field("held", &self.held());
        debug.finish_non_exhaustive()
    }
}
