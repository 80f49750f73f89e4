//! One record as bytes.

use super::Record;
use super::headers::{nullable_bytes, put_nullable};
use crate::varint;

/// Bytes of a record behind its length.
pub(crate) fn body_bytes(record: &Record<'_>, timestamp_delta: i64, offset_delta: i32) -> usize {
    let attributes = 1;
    [
        varint::size(timestamp_delta),
        varint::size(i64::from(offset_delta)),
        nullable_bytes(record.key),
        nullable_bytes(record.value),
        record.headers.encoded_bytes(),
    ]
    .into_iter()
    .fold(attributes, usize::saturating_add)
}

/// Appends a record behind its length, which is `body_bytes` as [`body_bytes`] says.
pub(crate) fn put_record(
    out: &mut Vec<u8>,
    record: &Record<'_>,
    timestamp_delta: i64,
    offset_delta: i32,
    body_bytes: usize,
) {
    varint::put_i64(out, body_bytes as i64);
    let from = out.len();
    out.push(0);
    varint::put_i64(out, timestamp_delta);
    varint::put_i32(out, offset_delta);
    put_nullable(out, record.key);
    put_nullable(out, record.value);
    record.headers.encode(out);
    debug_assert_eq!(out.len() - from, body_bytes);
}
