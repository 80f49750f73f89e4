//! How long a call may take: what the caller says in `grpc-timeout`, within our own limit (C110).
//!
//! # Source
//! gRPC over HTTP/2, `Timeout → "grpc-timeout" TimeoutValue TimeoutUnit`.

use std::time::Duration;

use http::HeaderMap;

/// Longest time until a call's answer begins. Streams go on for as long as they like.
const CALL_MAX: Duration = Duration::from_secs(30);
/// The transport keeps the caller's deadline as well and answers CANCELLED, and so does the caller's
/// own. Ours comes first, with a status that says what happened, and time for it to travel.
const EARLIER_MAX: Duration = Duration::from_millis(250);

/// The time a call with these headers may take.
pub(super) fn of(headers: &HeaderMap) -> Duration {
    let asked = headers
        .get("grpc-timeout")
        .and_then(|value| value.to_str().ok())
        .and_then(parse);
    match asked {
        Some(asked) => (asked - EARLIER_MAX.min(asked / 10)).min(CALL_MAX),
        None => CALL_MAX,
    }
}

fn parse(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.len() > 8 || !digits.chars().all(|c| c.is_ascii_digit()) {
        return None;
    }
    let value: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(value * 3_600),
        "M" => Duration::from_secs(value * 60),
        "S" => Duration::from_secs(value),
        "m" => Duration::from_millis(value),
        "u" => Duration::from_micros(value),
        "n" => Duration::from_nanos(value),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c110_the_callers_deadline_counts_within_ours() {
        let limit = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("grpc-timeout", text.parse().expect("legal"));
            of(&headers)
        };
        assert_eq!(of(&HeaderMap::new()), CALL_MAX);
        assert_eq!(limit("5S"), Duration::from_millis(4_750));
        assert_eq!(limit("100m"), Duration::from_millis(90));
        assert_eq!(limit("99999999H"), CALL_MAX);
        assert_eq!(limit("900000u"), Duration::from_millis(810));
        for bad in ["", "S", "5", "-5S", "123456789S", "5x", "5é"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
