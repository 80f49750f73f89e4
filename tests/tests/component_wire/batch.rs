//! Record batches made by hand, so that the client is tested by nobody's encoder but this one.

use bytes::{BufMut as _, Bytes, BytesMut};

/// Who sends a batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Producer {
    pub(crate) id: i64,
    pub(crate) epoch: i16,
    pub(crate) sequence: i32,
}

/// Nobody in particular.
pub(crate) const NOBODY: Producer = Producer {
    id: -1,
    epoch: -1,
    sequence: -1,
};

fn varint(out: &mut BytesMut, value: i64) {
    let mut value = ((value << 1) ^ (value >> 63)).cast_unsigned();
    while value >= 0x80 {
        out.put_u8((value & 0x7F) as u8 | 0x80);
        value >>= 7;
    }
    out.put_u8(value as u8);
}

/// An uncompressed batch of format v2 with one record for each value, in two parts.
pub(crate) fn batch(producer: Producer, timestamp: i64, values: &[&str]) -> Vec<Bytes> {
    let mut records = BytesMut::new();
    for (delta, value) in (0..).zip(values) {
        let mut record = BytesMut::new();
        record.put_i8(0);
        varint(&mut record, 0);
        varint(&mut record, delta);
        varint(&mut record, -1);
        varint(&mut record, i64::try_from(value.len()).expect("short"));
        record.put_slice(value.as_bytes());
        varint(&mut record, 0);
        varint(&mut records, i64::try_from(record.len()).expect("short"));
        records.put_slice(&record);
    }
    let count = i32::try_from(values.len()).expect("few");
    let mut checked = BytesMut::new();
    checked.put_i16(0);
    checked.put_i32(count - 1);
    checked.put_i64(timestamp);
    checked.put_i64(timestamp);
    checked.put_i64(producer.id);
    checked.put_i16(producer.epoch);
    checked.put_i32(producer.sequence);
    checked.put_i32(count);
    let checksum = crc32c::crc32c_append(crc32c::crc32c(&checked), &records);
    let mut head = BytesMut::new();
    head.put_i64(0);
    let length = 4 + 1 + 4 + checked.len() + records.len();
    head.put_i32(i32::try_from(length).expect("short"));
    head.put_i32(-1);
    head.put_i8(2);
    head.put_u32(checksum);
    head.put_slice(&checked);
    vec![head.freeze(), records.freeze()]
}

/// Base offset and number of records of each whole batch.
pub(crate) fn batches(mut records: &[u8]) -> Vec<(i64, i32)> {
    let mut found = Vec::new();
    while let (Some(base), Some(length)) = (
        records.get(..8).and_then(|bytes| bytes.try_into().ok()),
        records.get(8..12).and_then(|bytes| bytes.try_into().ok()),
    ) {
        let end = 12 + usize::try_from(i32::from_be_bytes(length)).expect("positive");
        let Some(batch) = records.get(..end) else {
            break;
        };
        let count = batch[57..61].try_into().expect("four bytes");
        found.push((i64::from_be_bytes(base), i32::from_be_bytes(count)));
        records = &records[end..];
    }
    found
}
