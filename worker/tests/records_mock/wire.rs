//! Just enough of Kafka's protocol to write and read what the client library refuses to: a batch made
//! by hand goes in, raw bytes come out.

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// A batch (format 2) of one record for partition 0.
///
/// # Source
/// <https://kafka.apache.org/documentation/#recordbatch>
pub(crate) fn batch(timestamp: i64, header: Option<(&[u8], &[u8])>, value: &[u8]) -> Vec<u8> {
    batch_of(0, timestamp, None, header, value)
}

/// What ends a committed transaction in a partition's log: a record that no consumer is shown.
///
/// # Source
/// <https://kafka.apache.org/documentation/#controlbatch>
pub(crate) fn commit_marker(timestamp: i64) -> Vec<u8> {
    /// `isTransactional` and `isControlBatch`.
    const ATTRIBUTES: i16 = 0x30;
    // Version 0 and type 1, commit; version 0 and the coordinator's epoch.
    let (key, value) = ([0, 0, 0, 1], [0; 6]);
    batch_of(ATTRIBUTES, timestamp, Some(&key), None, &value)
}

fn batch_of(
    attributes: i16,
    timestamp: i64,
    key: Option<&[u8]>,
    header: Option<(&[u8], &[u8])>,
    value: &[u8],
) -> Vec<u8> {
    let mut record = vec![0];
    varint(&mut record, 0);
    varint(&mut record, 0);
    varint(&mut record, key.map_or(-1, length));
    record.extend_from_slice(key.unwrap_or_default());
    varint(&mut record, length(value));
    record.extend_from_slice(value);
    varint(&mut record, i64::from(header.is_some()));
    if let Some((name, value)) = header {
        varint(&mut record, length(name));
        record.extend_from_slice(name);
        varint(&mut record, length(value));
        record.extend_from_slice(value);
    }
    let mut checked = Vec::new();
    checked.extend_from_slice(&attributes.to_be_bytes());
    checked.extend_from_slice(&0_i32.to_be_bytes());
    checked.extend_from_slice(&timestamp.to_be_bytes());
    checked.extend_from_slice(&timestamp.to_be_bytes());
    checked.extend_from_slice(&(-1_i64).to_be_bytes());
    checked.extend_from_slice(&(-1_i16).to_be_bytes());
    checked.extend_from_slice(&(-1_i32).to_be_bytes());
    checked.extend_from_slice(&1_i32.to_be_bytes());
    varint(&mut checked, length(&record));
    checked.extend_from_slice(&record);
    let mut batch = Vec::new();
    batch.extend_from_slice(&0_i64.to_be_bytes());
    let rest = i32::try_from(4 + 1 + 4 + checked.len()).expect("small");
    batch.extend_from_slice(&rest.to_be_bytes());
    batch.extend_from_slice(&0_i32.to_be_bytes());
    batch.push(2);
    batch.extend_from_slice(&crc32c(&checked).to_be_bytes());
    batch.extend_from_slice(&checked);
    batch
}

/// Produce v3 to partition 0.
pub(crate) async fn produce(bootstrap: &str, topic: &str, batch: &[u8]) {
    let mut body = Vec::new();
    body.extend_from_slice(&(-1_i16).to_be_bytes());
    body.extend_from_slice(&(-1_i16).to_be_bytes());
    body.extend_from_slice(&10_000_i32.to_be_bytes());
    body.extend_from_slice(&1_i32.to_be_bytes());
    string(&mut body, topic);
    body.extend_from_slice(&1_i32.to_be_bytes());
    body.extend_from_slice(&0_i32.to_be_bytes());
    body.extend_from_slice(&i32::try_from(batch.len()).expect("small").to_be_bytes());
    body.extend_from_slice(batch);
    let answer = call(bootstrap, 0, 3, &body).await;
    // Topics, its name, partitions, the partition's number, its error.
    let error_at = 4 + 2 + topic.len() + 4 + 4;
    assert_eq!(
        answer[error_at..error_at + 2],
        [0, 0],
        "produce failed: {answer:?}"
    );
}

/// Fetch v4 of partition 0 from its start; the answer as it came.
pub(crate) async fn fetch(bootstrap: &str, topic: &str) -> Vec<u8> {
    let mut body = Vec::new();
    body.extend_from_slice(&(-1_i32).to_be_bytes());
    body.extend_from_slice(&500_i32.to_be_bytes());
    body.extend_from_slice(&1_i32.to_be_bytes());
    body.extend_from_slice(&1_000_000_i32.to_be_bytes());
    body.push(0);
    body.extend_from_slice(&1_i32.to_be_bytes());
    string(&mut body, topic);
    body.extend_from_slice(&1_i32.to_be_bytes());
    body.extend_from_slice(&0_i32.to_be_bytes());
    body.extend_from_slice(&0_i64.to_be_bytes());
    body.extend_from_slice(&1_000_000_i32.to_be_bytes());
    call(bootstrap, 1, 4, &body).await
}

async fn call(bootstrap: &str, api: i16, version: i16, body: &[u8]) -> Vec<u8> {
    let mut request = Vec::new();
    request.extend_from_slice(&api.to_be_bytes());
    request.extend_from_slice(&version.to_be_bytes());
    request.extend_from_slice(&1_i32.to_be_bytes());
    string(&mut request, "wire");
    request.extend_from_slice(body);
    let mut stream = TcpStream::connect(bootstrap).await.expect("connected");
    let size = i32::try_from(request.len()).expect("small");
    stream.write_all(&size.to_be_bytes()).await.expect("sent");
    stream.write_all(&request).await.expect("sent");
    let size = stream.read_i32().await.expect("an answer");
    let mut answer = vec![0; usize::try_from(size).expect("a size")];
    stream.read_exact(&mut answer).await.expect("an answer");
    answer.split_off(4)
}

fn length(bytes: &[u8]) -> i64 {
    i64::try_from(bytes.len()).expect("small")
}

fn string(into: &mut Vec<u8>, text: &str) {
    into.extend_from_slice(&i16::try_from(text.len()).expect("short").to_be_bytes());
    into.extend_from_slice(text.as_bytes());
}

/// Zigzag, seven bits a byte.
fn varint(into: &mut Vec<u8>, value: i64) {
    let mut left = ((value << 1) ^ (value >> 63)).cast_unsigned();
    while left >= 0x80 {
        into.push(u8::try_from(left & 0x7f).expect("seven bits") | 0x80);
        left >>= 7;
    }
    into.push(u8::try_from(left).expect("seven bits"));
}

fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            let bit = crc & 1;
            crc >>= 1;
            if bit == 1 {
                crc ^= 0x82f6_3b78;
            }
        }
    }
    !crc
}
