//! Records like those that businesses write: a user as key and some 310 bytes of JSON in which names
//! repeat and ids do not, so that codecs gain what they gain in practice.
//!
//! Record `n` is the same in every run.

use std::fmt::Write as _;

const TYPES: [&str; 6] = [
    "order_created",
    "order_updated",
    "payment_settled",
    "page_viewed",
    "item_added",
    "item_removed",
];
const DEVICES: [&str; 4] = ["android", "ios", "web", "kiosk"];
const COUNTRIES: [&str; 8] = ["DE", "FR", "US", "JP", "BR", "IN", "PL", "ZA"];
const PAGES: [&str; 5] = ["/home", "/search", "/cart", "/checkout", "/account/orders"];
/// Users that keys are drawn from.
const USERS: u64 = 500_000;

/// Writes the key of record `number`.
pub(crate) fn key(number: u64, text: &mut String) {
    text.clear();
    let user = mixed(number) % USERS;
    write!(text, "user-{user:06}").expect("writing to a string cannot fail");
}

/// Writes the value of record `number`.
pub(crate) fn value(number: u64, text: &mut String) {
    text.clear();
    let first = mixed(number);
    let [second, third, fourth] = [1, 2, 3].map(|step| mixed(first.wrapping_add(step)));
    write!(
        text,
        "{{\"event_id\":\"{second:016x}{third:016x}\",\"type\":\"{}\",\"user_id\":\"user-{:06}\",\
         \"session_id\":\"{fourth:016x}\",\"sequence\":{number},\"device\":\"{}\",\"country\":\"{}\",\
         \"page\":\"{}\",\"amount_cents\":{},\"currency\":\"EUR\",\"items\":{},\"duration_ms\":{},\
         \"consent\":true,\"schema_version\":7}}",
        pick(&TYPES, second),
        first % USERS,
        pick(&DEVICES, third),
        pick(&COUNTRIES, fourth),
        pick(&PAGES, second >> 8),
        third % 100_000,
        fourth % 12,
        (third >> 20) % 30_000,
    )
    .expect("writing to a string cannot fail");
}

fn pick(words: &[&'static str], by: u64) -> &'static str {
    let count = u64::try_from(words.len()).expect("a short list");
    words[usize::try_from(by % count).expect("below the length of a list")]
}

/// Spreads numbers over 64 bits without repeating any (the finaliser of SplitMix64).
fn mixed(number: u64) -> u64 {
    let mut bits = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn records_have_the_size_that_figures_are_told_for_and_are_json() {
        let mut text = String::new();
        let mut bytes = 0;
        for number in 0..1_000 {
            value(number * 3_001, &mut text);
            bytes += text.len();
            let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
            let mut of_key = String::new();
            key(number * 3_001, &mut of_key);
            assert_eq!(json["user_id"], of_key.as_str());
        }
        assert!((295..=325).contains(&(bytes / 1_000)), "{}", bytes / 1_000);
    }

    #[test]
    fn records_differ_and_are_the_same_in_every_run() {
        let text = |number| {
            let mut text = String::new();
            value(number, &mut text);
            text
        };
        let all: BTreeSet<String> = (0..1_000).map(text).collect();
        assert_eq!(all.len(), 1_000);
        assert_eq!(text(7), text(7));
    }
}
