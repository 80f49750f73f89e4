//! Headers as librdkafka holds them.

use std::{
    any::Any,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
};

use rdkafka::message::{BorrowedHeaders, Headers as _};

use crate::sink::{Headers, UnreadableHeaders};

/// Borrowed from a message.
pub(super) struct KafkaHeaders<'a>(pub(super) &'a BorrowedHeaders);

impl Headers for KafkaHeaders<'_> {
    fn count(&self) -> usize {
        self.0.count()
    }

    fn visit(&self, show: &mut dyn FnMut(&str, Option<&[u8]>)) -> Result<(), UnreadableHeaders> {
        // The library panics on a name that is not UTF-8 and has no way to ask first (C012).
        let visited = catch_unwind(AssertUnwindSafe(|| {
            for index in 0..self.0.count() {
                if let Some(header) = self.0.try_get(index) {
                    show(header.key, header.value);
                }
            }
        }));
        visited.map_err(|_| UnreadableHeaders)
    }

    fn native(&self) -> Option<&dyn Any> {
        Some(self.0)
    }
}

impl fmt::Debug for KafkaHeaders<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaHeaders")
            .field("count", &self.0.count())
            .finish()
    }
}

/// What a header counts where its size cannot be told.
const UNREADABLE_HEADER_BYTES: u64 = 256;

/// Tells sizes of headers. Each name that is not text costs a panic, so it remembers that one was met.
#[derive(Debug, Default)]
pub(super) struct Scale {
    /// Some name was not text: from then on only the number of headers is asked for.
    estimates: bool,
}

impl Scale {
    /// Bytes of names and values; an estimate once a name was not text.
    pub(super) fn bytes(&mut self, headers: &dyn Headers) -> u64 {
        let mut bytes = 0;
        let mut add = |name: &str, value: Option<&[u8]>| {
            bytes += name.len() + value.map_or(0, <[u8]>::len);
        };
        if !self.estimates {
            match headers.visit(&mut add) {
                Ok(()) => return bytes as u64,
                Err(UnreadableHeaders) => self.estimates = true,
            }
        }
        headers.count() as u64 * UNREADABLE_HEADER_BYTES
    }
}

#[cfg(test)]
mod tests {
    use rdkafka::message::{Header, OwnedHeaders};

    use super::*;

    #[test]
    fn headers_are_shown_in_order_with_repeats_and_nulls() {
        let owned = OwnedHeaders::new()
            .insert(Header {
                key: "a",
                value: Some("1"),
            })
            .insert(Header {
                key: "b",
                value: None::<&str>,
            })
            .insert(Header {
                key: "a",
                value: Some(""),
            });
        let mut seen = Vec::new();
        KafkaHeaders(owned.as_borrowed())
            .visit(&mut |name, value| seen.push((name.to_owned(), value.map(<[u8]>::to_vec))))
            .expect("all text");
        let expected: Vec<(String, Option<Vec<u8>>)> = vec![
            ("a".into(), Some(b"1".to_vec())),
            ("b".into(), None),
            ("a".into(), Some(Vec::new())),
        ];
        assert_eq!(seen, expected);
        let bytes = Scale::default().bytes(&KafkaHeaders(owned.as_borrowed()));
        assert_eq!(bytes, 4);
    }

    /// Two headers that cannot be read, and how often somebody tried.
    #[derive(Debug, Default)]
    struct Odd(std::cell::Cell<u32>);

    impl Headers for Odd {
        fn count(&self) -> usize {
            2
        }

        fn visit(&self, _: &mut dyn FnMut(&str, Option<&[u8]>)) -> Result<(), UnreadableHeaders> {
            self.0.set(self.0.get() + 1);
            Err(UnreadableHeaders)
        }

        fn native(&self) -> Option<&dyn Any> {
            None
        }
    }

    #[test]
    fn c012_names_that_are_not_text_are_asked_for_once() {
        let (odd, mut scale) = (Odd::default(), Scale::default());
        let bytes = [(); 3].map(|()| scale.bytes(&odd));
        assert_eq!(bytes, [2 * UNREADABLE_HEADER_BYTES; 3]);
        assert_eq!(odd.0.get(), 1, "each time costs a panic");
    }
}
