//! Records on their way to the encoder.

use std::{mem::size_of, sync::Arc};

use arrow_array::{
    ArrayRef, BinaryArray, DictionaryArray, Int32Array, Int64Array, ListArray, RecordBatch,
    StringArray, StructArray, TimestampMillisecondArray, types::Int32Type,
};
use arrow_buffer::{Buffer, NullBufferBuilder, OffsetBuffer, ScalarBuffer};
use arrow_schema::ArrowError;
use kreplicator_model::{
    dump::{
        bucket::{Bucket, Unit},
        manifest::Source,
    },
    ids::Offset,
};

use super::schema;
use crate::record::{HEADER_BYTES, Header, RECORD_BYTES_MAX, Record};

/// Most rows, and most headers beyond those of the first row.
const ROWS_MAX: usize = 64 << 10;

/// Bytes of a header's key that is no UTF-8, of which the text column keeps what can be read.
const UNREADABLE_KEY_BYTES_MAX: usize = 256;

/// Columns of bytes: keys, values, and those of headers.
pub(super) const BYTE_COLUMNS: usize = 5;

/// Values of one column of bytes.
#[derive(Debug)]
struct Column {
    data: Vec<u8>,
    /// End of each value in `data`.
    ends: Vec<i32>,
    nulls: NullBufferBuilder,
}

impl Default for Column {
    fn default() -> Self {
        Self {
            data: Vec::new(),
            ends: Vec::new(),
            nulls: NullBufferBuilder::new(0),
        }
    }
}

impl Column {
    fn push(&mut self, value: Option<&[u8]>) {
        self.data.extend_from_slice(value.unwrap_or_default());
        let end = i32::try_from(self.data.len());
        self.ends.push(end.expect("rows are full long before"));
        self.nulls.append(value.is_some());
    }

    fn held(&self) -> usize {
        self.data.capacity() + self.ends.capacity() * size_of::<i32>() + self.nulls.allocated_size()
    }

    fn binary(mut self) -> Result<ArrayRef, ArrowError> {
        let nulls = self.nulls.finish();
        let array = BinaryArray::try_new(offsets(self.ends), Buffer::from_vec(self.data), nulls)?;
        Ok(Arc::new(array))
    }

    fn text(self) -> Result<ArrayRef, ArrowError> {
        let array = StringArray::try_new(offsets(self.ends), Buffer::from_vec(self.data), None)?;
        Ok(Arc::new(array))
    }
}

/// Arrow's offsets: the ends, and a 0 before them.
fn offsets(mut ends: Vec<i32>) -> OffsetBuffer<i32> {
    ends.insert(0, 0);
    OffsetBuffer::new(ScalarBuffer::from(ends))
}

/// Numbers that may be null.
#[derive(Debug)]
struct Numbers {
    data: Vec<i64>,
    nulls: NullBufferBuilder,
}

impl Default for Numbers {
    fn default() -> Self {
        Self {
            data: Vec::new(),
            nulls: NullBufferBuilder::new(0),
        }
    }
}

impl Numbers {
    fn push(&mut self, number: Option<i64>) {
        self.data.push(number.unwrap_or_default());
        self.nulls.append(number.is_some());
    }

    fn held(&self) -> usize {
        self.data.capacity() * size_of::<i64>() + self.nulls.allocated_size()
    }
}

/// Records, copied into columns. Its memory is known at any time: [`Rows::held`].
#[derive(Debug, Default)]
pub struct Rows {
    offsets: Vec<i64>,
    /// Those that are times of the years 1970 to 9999.
    timestamps: Numbers,
    /// The others.
    raw_timestamps: Numbers,
    timestamp_types: Vec<i32>,
    keys: Column,
    values: Column,
    /// End of each record's headers.
    header_ends: Vec<i32>,
    header_keys: Column,
    header_values: Column,
    header_key_bytes: Column,
}

impl Rows {
    /// Number of records.
    #[must_use]
    pub fn len(&self) -> usize {
        self.offsets.len()
    }

    /// First and last offset; None: there are none.
    #[must_use]
    pub fn range(&self) -> Option<(Offset, Offset)> {
        let (first, last) = (self.offsets.first()?, self.offsets.last()?);
        Some((Offset(*first), Offset(*last)))
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.offsets.is_empty()
    }

    /// Bytes of memory.
    #[must_use]
    pub fn held(&self) -> usize {
        let offsets = self.offsets.capacity() * size_of::<i64>();
        let numbers = offsets + self.timestamps.held() + self.raw_timestamps.held();
        let small = self.timestamp_types.capacity() + self.header_ends.capacity();
        let columns = [
            &self.keys,
            &self.values,
            &self.header_keys,
            &self.header_values,
            &self.header_key_bytes,
        ];
        let columns = columns.into_iter().map(Column::held);
        numbers + small * size_of::<i32>() + columns.sum::<usize>()
    }

    /// Bytes of the data of each column of bytes.
    pub(super) fn column_bytes(&self) -> [usize; BYTE_COLUMNS] {
        let columns = [
            &self.keys,
            &self.values,
            &self.header_keys,
            &self.header_values,
            &self.header_key_bytes,
        ];
        columns.map(|column| column.data.len())
    }

    /// Bytes of the data in it.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let data: usize = self.column_bytes().iter().sum();
        data + self.offsets.len() * 4 * size_of::<i64>()
            + self.header_keys.ends.len() * HEADER_BYTES
    }

    /// Whether they should be encoded before this record is added: it would make them larger than `bytes_max`, at most 1 GiB. A
    /// single record may be larger.
    #[must_use]
    pub fn is_full_for(&self, record: &Record<'_>, bytes_max: usize) -> bool {
        if self.is_empty() {
            return false;
        }
        let is_large = self.bytes() as u64 + record.weight() > bytes_max as u64;
        let headers = self.header_keys.ends.len() + record.headers.len();
        is_large || self.len() >= ROWS_MAX || headers > ROWS_MAX
    }

    /// Adds a record.
    ///
    /// # Panics
    /// When it is larger than [`RECORD_BYTES_MAX`], or they were full.
    pub fn push(&mut self, record: &Record<'_>) {
        assert!(
            record.weight() <= RECORD_BYTES_MAX,
            "a record of {} bytes",
            record.weight()
        );
        self.offsets.push(record.offset.0);
        // Readers multiply it to microseconds and fail where that is too large (DuckDB 2.0, Spark).
        let is_time = Unit::Hour.bucket(record.timestamp) != Bucket::Undated;
        self.timestamps.push(is_time.then_some(record.timestamp.0));
        self.raw_timestamps
            .push((!is_time).then_some(record.timestamp.0));
        self.timestamp_types.push(record.timestamp_type.number());
        self.keys.push(record.key);
        self.values.push(record.value);
        for header in record.headers {
            self.push_header(header);
        }
        let end = i32::try_from(self.header_keys.ends.len());
        let end = end.expect("a header has its key, so there are fewer than bytes");
        self.header_ends.push(end);
    }

    fn push_header(&mut self, header: &Header<'_>) {
        self.header_values.push(header.value);
        if std::str::from_utf8(header.key).is_ok() {
            self.header_keys.push(Some(header.key));
            self.header_key_bytes.push(None);
            return;
        }
        let (readable, _) = header
            .key
            .split_at(header.key.len().min(UNREADABLE_KEY_BYTES_MAX));
        let readable = String::from_utf8_lossy(readable);
        // Replacements are longer than what they replace. The text may be no longer than what the header weighs, or
        // a legal record would be more than a column can hold.
        let most = readable.len().min(header.key.len() + HEADER_BYTES);
        let (readable, _) = readable.split_at(readable.floor_char_boundary(most));
        self.header_keys.push(Some(readable.as_bytes()));
        self.header_key_bytes.push(Some(header.key));
    }

    /// As the encoder takes it.
    pub(super) fn into_batch(mut self, source: &Source) -> Result<RecordBatch, ArrowError> {
        let rows = self.len();
        let topic = StringArray::from(vec![source.topic.as_str()]);
        let topics = DictionaryArray::<Int32Type>::try_new(
            Int32Array::from(vec![0; rows]),
            Arc::new(topic),
        )?;
        let headers = StructArray::try_new(
            schema::header_fields(),
            vec![
                self.header_keys.text()?,
                self.header_values.binary()?,
                self.header_key_bytes.binary()?,
            ],
            None,
        )?;
        let headers = ListArray::try_new(
            schema::header_field(),
            offsets(self.header_ends),
            Arc::new(headers),
            None,
        )?;
        let nulls = self.timestamps.nulls.finish();
        let timestamps = TimestampMillisecondArray::try_new(self.timestamps.data.into(), nulls)?;
        let nulls = self.raw_timestamps.nulls.finish();
        let raw_timestamps = Int64Array::try_new(self.raw_timestamps.data.into(), nulls)?;
        RecordBatch::try_new(
            schema::arrow(),
            vec![
                Arc::new(topics),
                Arc::new(Int32Array::from(vec![source.partition.0; rows])),
                Arc::new(Int64Array::from(self.offsets)),
                Arc::new(timestamps.with_timezone("UTC")),
                Arc::new(raw_timestamps),
                Arc::new(Int32Array::from(self.timestamp_types)),
                self.keys.binary()?,
                self.values.binary()?,
                Arc::new(headers),
            ],
        )
    }
}
