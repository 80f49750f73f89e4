//! From columns to records.

use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, Int32Array, Int64Array, LargeBinaryArray, LargeStringArray, ListArray,
    RecordBatch, StructArray, TimestampMillisecondArray,
};
use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit};
use kreplicator_model::ids::UnixMillis;

use super::{super::Facts, ReadError, offset};
use crate::record::{Header, Record, TimestampType};

/// As files are decoded: lengths of 64 bits, since some records are large and compress well.
pub(super) fn schema() -> SchemaRef {
    let header = DataType::Struct(Fields::from(vec![
        Field::new("key", DataType::LargeUtf8, false),
        Field::new("value", DataType::LargeBinary, true),
        Field::new("key_bytes", DataType::LargeBinary, true),
    ]));
    let header = Arc::new(Field::new("element", header, false));
    let time = DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into()));
    Arc::new(Schema::new(vec![
        Field::new("topic", DataType::LargeUtf8, false),
        Field::new("partition", DataType::Int32, false),
        Field::new("offset", DataType::Int64, false),
        Field::new("timestamp", time, true),
        Field::new("timestamp_raw", DataType::Int64, true),
        Field::new("timestamp_type", DataType::Int32, false),
        Field::new("key", DataType::LargeBinary, true),
        Field::new("value", DataType::LargeBinary, true),
        Field::new("headers", DataType::List(header), false),
    ]))
}

fn typed<T: Array + 'static>(array: Option<&ArrayRef>) -> Result<&T, ReadError> {
    let array = array.and_then(|array| array.as_any().downcast_ref());
    array.ok_or(ReadError::Columns)
}

fn nullable(array: &LargeBinaryArray, row: usize) -> Option<&[u8]> {
    array.is_valid(row).then(|| array.value(row))
}

/// Shows the records of a batch.
pub(super) fn records(
    batch: &RecordBatch,
    facts: &Facts,
    show: &mut impl FnMut(&Record<'_>) -> Result<(), ReadError>,
) -> Result<(), ReadError> {
    let column = |name| batch.column_by_name(name);
    let topics: &LargeStringArray = typed(column("topic"))?;
    let partitions: &Int32Array = typed(column("partition"))?;
    let offsets: &Int64Array = typed(column("offset"))?;
    let timestamps: &TimestampMillisecondArray = typed(column("timestamp"))?;
    let raw_timestamps: &Int64Array = typed(column("timestamp_raw"))?;
    let kinds: &Int32Array = typed(column("timestamp_type"))?;
    let keys: &LargeBinaryArray = typed(column("key"))?;
    let values: &LargeBinaryArray = typed(column("value"))?;
    let headers: &ListArray = typed(column("headers"))?;
    let header: &StructArray = typed(Some(headers.values()))?;
    let field = |name| header.column_by_name(name);
    let header_keys: &LargeStringArray = typed(field("key"))?;
    let header_values: &LargeBinaryArray = typed(field("value"))?;
    let header_key_bytes: &LargeBinaryArray = typed(field("key_bytes"))?;

    let header_at = |index| Header {
        key: nullable(header_key_bytes, index)
            .unwrap_or_else(|| header_keys.value(index).as_bytes()),
        value: nullable(header_values, index),
    };
    let at = |end: i32| usize::try_from(end).map_err(|_| ReadError::Columns);
    for row in 0..batch.num_rows() {
        let is_of_source = topics.value(row) == facts.source.topic.as_str()
            && partitions.value(row) == facts.source.partition.0;
        if !is_of_source {
            return Err(ReadError::Wrong("a record is of another partition"));
        }
        let timestamp = match (timestamps.is_valid(row), raw_timestamps.is_valid(row)) {
            (true, false) => timestamps.value(row),
            (false, true) => raw_timestamps.value(row),
            _ => return Err(ReadError::Wrong("a record has no timestamp, or two")),
        };
        let kind = TimestampType::of_number(kinds.value(row));
        let ends = headers.value_offsets();
        let headers: Vec<Header<'_>> = (at(ends[row])?..at(ends[row + 1])?)
            .map(header_at)
            .collect();
        show(&Record {
            offset: offset(offsets.value(row))?,
            timestamp: UnixMillis(timestamp),
            timestamp_type: kind.ok_or(ReadError::Wrong("a type of timestamp is not known"))?,
            key: nullable(keys, row),
            value: nullable(values, row),
            headers: &headers,
        })?;
    }
    Ok(())
}
