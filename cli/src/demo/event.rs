//! The demo's records: `partition,seq,` and a sample event that follows from both, so that whoever
//! reads one can tell whether it is what was written.

/// Kinds of events, for variety.
const KINDS: [&str; 4] = ["created", "paid", "packed", "sent"];

/// The value of a record.
pub(super) fn value(topic: &str, partition: i32, seq: u64) -> String {
    // Any spread will do; it must only follow from partition and number.
    let mixed =
        (seq ^ (u64::from(partition.unsigned_abs()) << 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let kind = KINDS[usize::try_from(seq % 4).expect("below four")];
    format!(
        r#"{partition},{seq},{{"topic":"{topic}","event":"{kind}","order":"{:012x}","cents":{}}}"#,
        mixed >> 16,
        mixed % 50_000
    )
}

/// The key of a record.
pub(super) fn key(seq: u64) -> String {
    format!("customer-{}", seq % 1_000)
}

/// What arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Read {
    /// This number, as written.
    Intact(u64),
    /// Not what was written.
    Altered,
}

/// Compares what arrived with what was written.
pub(super) fn read(topic: &str, partition: i32, key: Option<&[u8]>, value: Option<&[u8]>) -> Read {
    let text = value.and_then(|value| std::str::from_utf8(value).ok());
    let seq = text
        .and_then(|text| text.split(',').nth(1))
        .and_then(|seq| seq.parse::<u64>().ok());
    match (text, seq) {
        (Some(text), Some(seq))
            if text == self::value(topic, partition, seq)
                && key == Some(self::key(seq).as_bytes()) =>
        {
            Read::Intact(seq)
        }
        _ => Read::Altered,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_proves_itself_and_nothing_else() {
        let (key, value) = (key(7), value("orders", 3, 7));
        assert!(value.starts_with("3,7,{"), "{value}");
        let read = |partition, key: &str, value: &str| {
            read(
                "orders",
                partition,
                Some(key.as_bytes()),
                Some(value.as_bytes()),
            )
        };
        assert_eq!(read(3, &key, &value), Read::Intact(7));
        assert_eq!(read(2, &key, &value), Read::Altered);
        assert_eq!(read(3, "customer-8", &value), Read::Altered);
        assert_eq!(
            read(3, &key, &value.replace("cents", "Cents")),
            Read::Altered
        );
        assert_eq!(super::read("orders", 3, None, None), Read::Altered);
    }
}
