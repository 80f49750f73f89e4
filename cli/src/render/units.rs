//! Numbers, bytes and times as people read them.

use std::time::{Duration, UNIX_EPOCH};

/// RFC 3339 in UTC to the second; None for "never".
pub(crate) fn time(unix_millis: i64) -> Option<String> {
    let millis = u64::try_from(unix_millis)
        .ok()
        .filter(|&millis| millis > 0)?;
    let time = UNIX_EPOCH + Duration::from_millis(millis);
    Some(humantime::format_rfc3339_seconds(time).to_string())
}

/// The same for a table.
pub(crate) fn time_cell(time: Option<&String>) -> String {
    time.cloned().unwrap_or_default()
}

/// `1.2 MiB`
pub(crate) fn bytes(bytes: u64) -> String {
    bytesize::ByteSize::b(bytes).display().iec().to_string()
}

/// A rate of records, a second: `0`, `3.4`, `1,250`.
pub(crate) fn rate(a_second: f64) -> String {
    if a_second > 0.0 && a_second < 10.0 {
        return format!("{a_second:.1}");
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "saturates, and rates are neither negative nor that large"
    )]
    grouped(a_second.round() as u64)
}

/// `12,345`
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// A lag for a table; unknown is not zero.
pub(crate) fn lag(records: Option<i64>) -> String {
    records.map_or_else(
        || "unknown".to_owned(),
        |records| grouped(records.unsigned_abs()),
    )
}

/// A word with its reason, as `at_least_once (old_records)`; empty without the word.
pub(crate) fn because(word: Option<&String>, reason: Option<&String>) -> String {
    match (word, reason) {
        (None, _) => String::new(),
        (Some(word), None) => word.clone(),
        (Some(word), Some(reason)) => format!("{word} ({reason})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(rate(0.0), "0");
        assert_eq!(rate(3.44), "3.4");
        assert_eq!(rate(1_250.4), "1,250");
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(512 << 20), "512.0 MiB");
    }

    #[test]
    fn c115_unknown_is_not_zero() {
        assert_eq!(lag(None), "unknown");
        assert_eq!(lag(Some(0)), "0");
        assert_eq!(time(0), None);
        assert_eq!(time(1_000).as_deref(), Some("1970-01-01T00:00:01Z"));
    }
}
