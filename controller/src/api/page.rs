//! Lists in pages. A token names the last key given, so a page begins after it whatever was added or
//! deleted meanwhile: nothing is given twice and nothing that stays is left out.

use kreplicator_proto::status::Refusal;
use prost::Message;

/// Page size when none is asked for.
pub(crate) const SIZE_DEFAULT: usize = 100;
/// Largest page.
pub(crate) const SIZE_MAX: usize = 1_000;
/// Most bytes of a page, as long as it holds anything: fits into the 4 MiB that gRPC clients take
/// unless told otherwise (C110).
const BYTES_MAX: usize = 3 << 20;
/// Version of the tokens' form.
const TOKEN_VERSION: &str = "1";

/// One page to be filled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Page {
    size: usize,
    after: Option<String>,
}

impl Page {
    /// Checks what was asked for.
    pub(crate) fn new(size: i32, token: &str) -> Result<Self, Refusal> {
        let size = match usize::try_from(size) {
            Ok(0) => SIZE_DEFAULT,
            Ok(size) if size <= SIZE_MAX => size,
            Ok(_) | Err(_) => {
                return Err(Refusal::field(
                    "page_size",
                    format!("{size} is out of range; use 1 to {SIZE_MAX}, or 0 for {SIZE_DEFAULT}"),
                ));
            }
        };
        let after = match token {
            "" => None,
            token => Some(read_token(token).ok_or_else(|| {
                Refusal::field(
                    "page_token",
                    "was not given by this call; begin again without a token",
                )
            })?),
        };
        Ok(Self { size, after })
    }

    /// The key after which the page begins.
    pub(crate) fn after(&self) -> Option<&str> {
        self.after.as_deref()
    }

    /// The first items, and the token of the next page; empty when there is none. `items` begins
    /// after [`Page::after`].
    pub(crate) fn fill<T>(
        &self,
        items: impl Iterator<Item = T>,
        key: impl Fn(&T) -> String,
    ) -> (Vec<T>, String) {
        let mut items = items;
        let page: Vec<T> = items.by_ref().take(self.size).collect();
        let token = match (page.last(), items.next()) {
            (Some(last), Some(_)) => write_token(&key(last)),
            (Some(_) | None, None) | (None, Some(_)) => String::new(),
        };
        (page, token)
    }
}

/// Cuts a page that is too large to be sent in one answer; the token then leads to the rest.
pub(crate) fn cut<T: Message>(
    mut items: Vec<T>,
    token: String,
    key: impl Fn(&T) -> String,
) -> (Vec<T>, String) {
    let mut bytes = 0;
    let fit = items
        .iter()
        .take_while(|item| {
            bytes += item.encoded_len();
            bytes <= BYTES_MAX
        })
        .count();
    if fit == items.len() {
        return (items, token);
    }
    items.truncate(fit.max(1));
    let token = items.last().map_or(token, |last| write_token(&key(last)));
    (items, token)
}

fn write_token(key: &str) -> String {
    let mut token = TOKEN_VERSION.to_owned();
    for byte in key.bytes() {
        token.push_str(&format!("{byte:02x}"));
    }
    token
}

fn read_token(token: &str) -> Option<String> {
    let digits = token.strip_prefix(TOKEN_VERSION)?.as_bytes();
    let (pairs, []) = digits.as_chunks::<2>() else {
        return None;
    };
    let bytes: Option<Vec<u8>> = pairs
        .iter()
        .map(|pair| {
            let text = std::str::from_utf8(pair).ok()?;
            u8::from_str_radix(text, 16).ok()
        })
        .collect();
    String::from_utf8(bytes?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Walks `keys` in pages of `size`, calling `between` after each page.
    fn walk(keys: &mut Vec<String>, size: i32, between: impl Fn(&mut Vec<String>)) -> Vec<String> {
        let mut seen = Vec::new();
        let mut token = String::new();
        loop {
            let page = Page::new(size, &token).expect("legal");
            let rest = keys
                .iter()
                .filter(|key| page.after().is_none_or(|after| key.as_str() > after));
            let (items, next) = page.fill(rest, |key| (*key).clone());
            seen.extend(items.into_iter().cloned());
            if next.is_empty() {
                return seen;
            }
            token = next;
            between(keys);
        }
    }

    #[test]
    fn pages_join_without_gaps_or_repeats() {
        let mut keys: Vec<String> = (0..10).map(|n| format!("link/ä-{n}")).collect();
        for size in [1, 3, 5, 10, 11] {
            let seen = walk(&mut keys.clone(), size, |_| {});
            assert_eq!(seen, keys, "pages of {size}");
        }
        let all = keys.clone();
        let seen = walk(&mut keys, 4, |keys| {
            keys.remove(0);
        });
        assert_eq!(seen, all, "deleting what was seen skips nothing");
        assert!(walk(&mut Vec::new(), 4, |_| {}).is_empty());
    }

    #[test]
    fn sizes_and_tokens_are_checked() {
        let after = |page: &Page| page.after().map(str::to_owned);
        assert_eq!(Page::new(0, "").map(|page| page.size), Ok(SIZE_DEFAULT));
        assert_eq!(Page::new(1_000, "").map(|page| page.size), Ok(SIZE_MAX));
        for size in [-1, 1_001] {
            let refusal = Page::new(size, "").expect_err("out of range");
            assert!(refusal.to_string().contains(&size.to_string()), "{refusal}");
        }
        let token = write_token("a/b");
        assert_eq!(
            Page::new(1, &token).map(|page| after(&page)),
            Ok(Some("a/b".to_owned()))
        );
        for bad in ["2612f62", "161f", "1zz", "1é", "1ff"] {
            assert!(Page::new(1, bad).is_err(), "{bad}");
        }
    }
}
