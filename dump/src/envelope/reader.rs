//! From files to records.
//!
//! A file is read from its end: the footer first, which must be ours and must agree with itself, then one row group at a
//! time. What a store holds can be anything, so nothing is taken for granted.

mod batch;
mod window;

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use kreplicator_model::{dump::path::StorePath, ids::Offset};
use parquet::{
    arrow::arrow_reader::{
        ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder,
    },
    errors::ParquetError,
    file::metadata::{FooterTail, ParquetMetaData, ParquetMetaDataReader},
};

use self::window::Window;
use super::{Facts, FactsError, schema};
use crate::{
    record::{RECORD_BYTES_MAX, Record},
    store::{FileStore, StoreError},
};

/// Bytes read at first: the footers of nearly all files are shorter.
const TAIL_BYTES: u64 = 64 << 10;
/// Length of what every Parquet file ends with.
const END_BYTES: usize = 8;
/// Longest footer that is read, in bytes.
const FOOTER_BYTES_MAX: usize = 64 << 20;
/// Longest row group that is read, in bytes: one record as large as they come, and ordinary ones.
const ROW_GROUP_BYTES_MAX: u64 = 2 * RECORD_BYTES_MAX;
/// Bytes of records that are decoded at a time, when they are of like sizes.
const BATCH_BYTES: i64 = 4 << 20;
/// Most records decoded at a time.
const BATCH_ROWS_MAX: i64 = 8 << 10;

/// A file that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The store failed.
    #[error("the store does not give it")]
    Store(#[from] StoreError),
    /// Nothing is there.
    #[error("it is not there")]
    Missing,
    /// No Parquet, cut off, or its bytes make no sense.
    #[error("it is no whole Parquet file")]
    Damaged(#[from] ParquetError),
    /// Its footer is not one of ours.
    #[error(transparent)]
    Facts(#[from] FactsError),
    /// Its columns are not those of the format.
    #[error("its columns are not those of this format")]
    Columns,
    /// It contradicts itself.
    #[error("it contradicts itself: {0}")]
    Wrong(&'static str),
}

/// The end of a file: what it holds and where.
#[derive(Debug, Clone)]
pub struct Footer {
    facts: Facts,
    bytes: u64,
    metadata: ArrowReaderMetadata,
}

impl Footer {
    /// Reads it.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn read(store: &dyn FileStore, path: &StorePath) -> Result<Self, ReadError> {
        let bytes = store.length(path).await?.ok_or(ReadError::Missing)?;
        let wanted = bytes.min(TAIL_BYTES);
        let tail = exactly(store, path, bytes - wanted..bytes).await?;
        let (_, end) = tail
            .split_last_chunk::<END_BYTES>()
            .ok_or(ReadError::Wrong("it is shorter than any Parquet file"))?;
        let end = FooterTail::try_new(end)?;
        if end.is_encrypted_footer() || end.metadata_length() > FOOTER_BYTES_MAX {
            return Err(ReadError::Wrong("its footer is encrypted or too long"));
        }
        let length = end.metadata_length() as u64 + END_BYTES as u64;
        let at = bytes
            .checked_sub(length)
            .ok_or(ReadError::Wrong("its footer is longer than itself"))?;
        let footer = if length <= wanted {
            tail.slice(tail.len() - end.metadata_length() - END_BYTES..tail.len() - END_BYTES)
        } else {
            exactly(store, path, at..bytes - END_BYTES as u64).await?
        };
        Self::parse(&footer, bytes, at)
    }

    /// `at`: where the footer begins.
    fn parse(footer: &Bytes, bytes: u64, at: u64) -> Result<Self, ReadError> {
        let metadata = ParquetMetaDataReader::decode_metadata(footer)?;
        let file = metadata.file_metadata();
        let pairs = file.key_value_metadata().map_or(&[][..], Vec::as_slice);
        let facts = Facts::from_metadata(pairs)?;
        if file.schema_descr() != &schema::parquet()? {
            return Err(ReadError::Columns);
        }
        let groups = metadata.row_groups().iter();
        let rows = groups.fold(0_i64, |rows, group| rows.saturating_add(group.num_rows()));
        let records = i64::try_from(facts.records).unwrap_or(i64::MAX);
        if rows != records || file.num_rows() != records {
            return Err(ReadError::Wrong("its counts of records differ"));
        }
        for index in 0..metadata.num_row_groups() {
            let range = range(&metadata, index)?;
            if range.end > at {
                return Err(ReadError::Wrong("a row group lies beyond its end"));
            }
        }
        let options = ArrowReaderOptions::new()
            .with_skip_arrow_metadata(true)
            .with_schema(batch::schema());
        Ok(Self {
            facts,
            bytes,
            metadata: ArrowReaderMetadata::try_new(Arc::new(metadata), options)?,
        })
    }

    /// What the file says it holds.
    #[must_use]
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Length of the file.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Number of row groups.
    #[must_use]
    pub fn row_groups(&self) -> usize {
        self.metadata.metadata().num_row_groups()
    }

    /// Reads a row group, from 0.
    ///
    /// # Errors
    /// [`ReadError`].
    ///
    /// # Panics
    /// When there is none of this index.
    pub async fn row_group(
        &self,
        store: &dyn FileStore,
        path: &StorePath,
        index: usize,
    ) -> Result<RowGroup<'_>, ReadError> {
        let range = range(self.metadata.metadata(), index)?;
        let at = range.start;
        Ok(RowGroup {
            footer: self,
            index,
            window: Window::new(at, exactly(store, path, range).await?, self.bytes),
        })
    }

    /// Reads the whole file, shows its records in order, and compares them with what the footer says. Decodes on the
    /// calling thread; holds one row group and some megabytes of records.
    ///
    /// # Errors
    /// [`ReadError`]; some records may have been shown by then.
    pub async fn read_all(
        &self,
        store: &dyn FileStore,
        path: &StorePath,
        mut show: impl FnMut(&Record<'_>),
    ) -> Result<(), ReadError> {
        let mut seen: Option<Facts> = None;
        for index in 0..self.row_groups() {
            let group = self.row_group(store, path, index).await?;
            group.records(|record| {
                match &mut seen {
                    Some(seen) if record.offset <= seen.last => {
                        return Err(ReadError::Wrong("its offsets do not ascend"));
                    }
                    Some(seen) => seen.add(record),
                    None => seen = Some(Facts::of(self.facts.source.clone(), record)),
                }
                show(record);
                Ok(())
            })?;
        }
        if seen.as_ref() == Some(&self.facts) {
            Ok(())
        } else {
            Err(ReadError::Wrong(
                "its records are not those that its footer tells of",
            ))
        }
    }
}

/// One row group in memory, as it is stored.
#[derive(Debug)]
pub struct RowGroup<'a> {
    footer: &'a Footer,
    index: usize,
    window: Window,
}

impl RowGroup<'_> {
    /// Decodes it and shows its records, in order.
    ///
    /// # Errors
    /// [`ReadError`], or what `show` says.
    pub fn records(
        &self,
        mut show: impl FnMut(&Record<'_>) -> Result<(), ReadError>,
    ) -> Result<(), ReadError> {
        let footer = self.footer;
        let group = footer.metadata.metadata().row_group(self.index);
        let row_bytes = group.total_byte_size() / group.num_rows().max(1);
        let rows = (BATCH_BYTES / row_bytes.max(1)).clamp(1, BATCH_ROWS_MAX);
        let metadata = footer.metadata.clone();
        let batches =
            ParquetRecordBatchReaderBuilder::new_with_metadata(self.window.clone(), metadata)
                .with_row_groups(vec![self.index])
                .with_batch_size(usize::try_from(rows).expect("clamped"))
                .build()?;
        for batch in batches {
            let batch = batch.map_err(|fault| ParquetError::ArrowError(fault.to_string()))?;
            batch::records(&batch, &footer.facts, &mut show)?;
        }
        Ok(())
    }
}

/// Where a row group lies.
fn range(metadata: &ParquetMetaData, index: usize) -> Result<Range<u64>, ReadError> {
    let wrong = ReadError::Wrong("a row group lies nowhere");
    let mut whole: Option<Range<u64>> = None;
    for column in metadata.row_group(index).columns() {
        let starts = [
            Some(column.data_page_offset()),
            column.dictionary_page_offset(),
        ];
        let start = starts.into_iter().flatten().min().unwrap_or(-1);
        let (Ok(start), Ok(length)) = (
            u64::try_from(start),
            u64::try_from(column.compressed_size()),
        ) else {
            return Err(wrong);
        };
        let end = start.saturating_add(length);
        let known = whole.get_or_insert(start..end);
        *known = known.start.min(start)..known.end.max(end);
    }
    match whole {
        Some(range) if range.end - range.start <= ROW_GROUP_BYTES_MAX => Ok(range),
        Some(_) => Err(ReadError::Wrong("a row group is too large")),
        None => Err(wrong),
    }
}

/// Reads a range whole.
async fn exactly(
    store: &dyn FileStore,
    path: &StorePath,
    range: Range<u64>,
) -> Result<Bytes, ReadError> {
    let length = usize::try_from(range.end - range.start)
        .map_err(|_| ReadError::Wrong("it is larger than this machine can hold"))?;
    let read = store.read(path, range.start, length).await?;
    let read = read.ok_or(ReadError::Missing)?;
    if read.len() == length {
        Ok(read)
    } else {
        Err(ReadError::Wrong("it is shorter than its length"))
    }
}

/// So that a file cannot claim offsets that are none.
fn offset(number: i64) -> Result<Offset, ReadError> {
    if number < 0 {
        return Err(ReadError::Wrong("an offset is negative"));
    }
    Ok(Offset(number))
}
