//! The lossless format: records as they were, in Parquet.
//!
//! Problem: whoever reads the files must find ordinary tables, and a topic must be restored from them byte for byte:
//! null and empty stay apart, headers keep their order and their repeats, hostile timestamps and names survive. The schema is
//! always the same, whatever the data (C100).
//!
//! | column | Parquet | null | |
//! |---|---|---|---|
//! | `topic` | STRING | never | the source topic; one word a file, for tables over several topics |
//! | `partition` | INT32 | never | |
//! | `offset` | INT64 | never | ascending within a file |
//! | `timestamp` | TIMESTAMP(MILLIS, UTC) | null where it is no time of the years 1970 to 9999 | as the record has it |
//! | `timestamp_raw` | INT64 | as a rule | the number, only where `timestamp` is null; −1 where the record has none |
//! | `timestamp_type` | INT32 | never | Kafka's number: −1 none, 0 create, 1 append |
//! | `key` | BYTE_ARRAY | null is null | |
//! | `value` | BYTE_ARRAY | null is null | |
//! | `headers` | LIST of STRUCT | never; empty: none | in order, keys may repeat |
//! | `headers.key` | STRING | never | where it is no UTF-8, what can be read of it |
//! | `headers.value` | BYTE_ARRAY | null is null | |
//! | `headers.key_bytes` | BYTE_ARRAY | as a rule | the key's bytes, only where they are no UTF-8 |
//!
//! A producer that takes nanoseconds for milliseconds would make a `timestamp` that DuckDB and Spark cannot read, nor anything else
//! in its file: hence `timestamp_raw`. A record has it if and only if its bucket is the undated one.
//!
//! A MAP would lose repeated headers in most readers. A key in bytes only would be unreadable in all of them, and a key
//! that is no UTF-8 in a STRING column makes the whole file unreadable in some: hence `key_bytes`.
//!
//! # The footer
//! [`Facts`] as key-value metadata, so a file says on its own what it is. Page indexes and statistics are written for
//! numbers, and for keys cut to 64 bytes; none for values and headers, which would only make the footer large.
//!
//! # Memory
//! A row group is held until it is finished, encoded: [`Settings::row_group_bytes_max`], and what one [`Rows`] adds
//! to it. What is finished leaves in blocks, [`Writer::take`].
//!
//! - [`rows`]: records on their way to the encoder.
//! - [`writer`]: from rows to bytes of a file.
//! - [`facts`]: what a file says of itself.
//! - [`reader`]: from files to records.

mod contexts;
mod facts;
mod reader;
mod rows;
mod schema;
mod spool;
#[cfg(test)]
mod tests;
mod writer;

pub use facts::{Facts, FactsError};
pub use reader::{Footer, ReadError, RowGroup};
pub use rows::Rows;
pub use writer::{Settings, Writer, WriterError};
