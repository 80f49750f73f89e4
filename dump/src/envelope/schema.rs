//! The schema, and how each column is written.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit};
use parquet::{
    arrow::ArrowSchemaConverter,
    basic::{Compression, Encoding, ZstdLevel},
    errors::Result,
    file::properties::{EnabledStatistics, WriterProperties},
    schema::types::{ColumnPath, SchemaDescriptor},
};

use super::contexts::PAGE_ROWS_MAX;

/// Bytes of a key that its statistics keep.
const STATISTICS_BYTES_MAX: usize = 64;
/// Bytes of a page, before compression, from which on it is ended; a larger value has a page of its own.
pub(super) const PAGE_BYTES_MAX: usize = 1 << 20;
/// Bytes of a column's dictionary; what does not fit is written plain.
pub(super) const DICTIONARY_BYTES_MAX: usize = 256 << 10;

/// The fields of a header.
pub(super) fn header_fields() -> Fields {
    Fields::from(vec![
        Field::new("key", DataType::Utf8, false),
        Field::new("value", DataType::Binary, true),
        Field::new("key_bytes", DataType::Binary, true),
    ])
}

/// One header.
pub(super) fn header_field() -> Arc<Field> {
    let header = DataType::Struct(header_fields());
    Arc::new(Field::new("element", header, false))
}

/// As it is handed to the encoder, where the topic is a dictionary of one word.
pub(super) fn arrow() -> SchemaRef {
    let word = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
    let time = DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into()));
    Arc::new(Schema::new(vec![
        Field::new("topic", word, false),
        Field::new("partition", DataType::Int32, false),
        Field::new("offset", DataType::Int64, false),
        Field::new("timestamp", time, true),
        Field::new("timestamp_raw", DataType::Int64, true),
        Field::new("timestamp_type", DataType::Int32, false),
        Field::new("key", DataType::Binary, true),
        Field::new("value", DataType::Binary, true),
        Field::new("headers", DataType::List(header_field()), false),
    ]))
}

/// As it is in a file.
///
/// # Errors
/// Never, as long as [`arrow`] is what it is.
pub(super) fn parquet() -> Result<SchemaDescriptor> {
    ArrowSchemaConverter::new().convert(&arrow())
}

fn column(name: &str) -> ColumnPath {
    ColumnPath::new(name.split('.').map(str::to_owned).collect())
}

/// How files are written. Pages of version 1, which all readers know.
pub(super) fn properties(zstd_level: ZstdLevel) -> WriterProperties {
    let mut properties = WriterProperties::builder()
        .set_created_by(concat!("kreplicator version ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_compression(Compression::ZSTD(zstd_level))
        .set_dictionary_enabled(false)
        .set_dictionary_page_size_limit(DICTIONARY_BYTES_MAX)
        .set_data_page_size_limit(PAGE_BYTES_MAX)
        .set_data_page_row_count_limit(PAGE_ROWS_MAX)
        .set_statistics_enabled(EnabledStatistics::None)
        .set_statistics_truncate_length(Some(STATISTICS_BYTES_MAX))
        .set_column_index_truncate_length(Some(STATISTICS_BYTES_MAX));
    for name in [
        "topic",
        "partition",
        "timestamp_type",
        "key",
        "headers.list.element.key",
    ] {
        properties = properties.set_column_dictionary_enabled(column(name), true);
    }
    for name in ["offset", "timestamp"] {
        properties = properties.set_column_encoding(column(name), Encoding::DELTA_BINARY_PACKED);
    }
    for name in ["partition", "offset", "timestamp", "timestamp_type"] {
        properties =
            properties.set_column_statistics_enabled(column(name), EnabledStatistics::Page);
    }
    for name in ["topic", "key"] {
        properties =
            properties.set_column_statistics_enabled(column(name), EnabledStatistics::Chunk);
    }
    properties.build()
}
