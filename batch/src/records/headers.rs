//! The headers of a record: a list in order, with repeatable keys and nullable values, never a map.

use std::iter::FusedIterator;

use super::nullable;
use crate::varint;

/// One header of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Header<'a> {
    /// The key: any bytes; text by convention only, and possibly empty.
    pub key: &'a [u8],
    /// The value, `None` if null.
    pub value: Option<&'a [u8]>,
}

/// The headers of a record, in order.
#[derive(Debug, Clone, Copy)]
pub struct Headers<'a>(Inner<'a>);

#[derive(Debug, Clone, Copy)]
enum Inner<'a> {
    /// As in a batch; checked when the record was read.
    Encoded {
        count: usize,
        bytes: &'a [u8],
    },
    Listed(&'a [Header<'a>]),
}

impl<'a> Headers<'a> {
    /// No headers.
    pub const EMPTY: Self = Self(Inner::Listed(&[]));

    /// These headers, in this order.
    pub fn new(headers: &'a [Header<'a>]) -> Self {
        Self(Inner::Listed(headers))
    }

    /// Takes count and headers off the front of a record's last part, checking each.
    pub(super) fn take(bytes: &mut &'a [u8]) -> Result<Self, &'static str> {
        let count = varint::take_i32(bytes).ok_or("header count does not fit or is cut off")?;
        let count = usize::try_from(count).map_err(|_| "header count is negative")?;
        let all = *bytes;
        for _ in 0..count {
            take_one(bytes).ok_or("header is cut off or has a negative key size")?;
        }
        let encoded = &all[..all.len() - bytes.len()];
        Ok(Self(Inner::Encoded {
            count,
            bytes: encoded,
        }))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        match self.0 {
            Inner::Encoded { count, .. } => count,
            Inner::Listed(headers) => headers.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// From the first to the last.
    pub fn iter(&self) -> HeaderIter<'a> {
        HeaderIter(self.0)
    }

    /// Bytes that [`Headers::encode`] writes.
    pub(crate) fn encoded_bytes(&self) -> usize {
        let list_bytes = match self.0 {
            Inner::Encoded { bytes, .. } => bytes.len(),
            Inner::Listed(headers) => headers
                .iter()
                .map(|header| {
                    nullable_bytes(Some(header.key)).saturating_add(nullable_bytes(header.value))
                })
                .fold(0, usize::saturating_add),
        };
        varint::size(self.len() as i64).saturating_add(list_bytes)
    }

    /// Appends count and headers as a record holds them.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        varint::put_i64(out, self.len() as i64);
        match self.0 {
            Inner::Encoded { bytes, .. } => out.extend_from_slice(bytes),
            Inner::Listed(headers) => {
                for header in headers {
                    put_nullable(out, Some(header.key));
                    put_nullable(out, header.value);
                }
            }
        }
    }
}

impl PartialEq for Headers<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Headers<'_> {}

impl<'a> IntoIterator for Headers<'a> {
    type Item = Header<'a>;
    type IntoIter = HeaderIter<'a>;

    fn into_iter(self) -> HeaderIter<'a> {
        self.iter()
    }
}

/// Goes through headers in order.
#[derive(Debug, Clone)]
pub struct HeaderIter<'a>(Inner<'a>);

impl<'a> Iterator for HeaderIter<'a> {
    type Item = Header<'a>;

    fn next(&mut self) -> Option<Header<'a>> {
        match &mut self.0 {
            Inner::Encoded { count, bytes } => {
                *count = count.checked_sub(1)?;
                take_one(bytes)
            }
            Inner::Listed(headers) => {
                let (first, rest) = headers.split_first()?;
                *headers = rest;
                Some(*first)
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = Headers(self.0).len();
        (left, Some(left))
    }
}

impl ExactSizeIterator for HeaderIter<'_> {}
impl FusedIterator for HeaderIter<'_> {}

fn take_one<'a>(bytes: &mut &'a [u8]) -> Option<Header<'a>> {
    // Other than a value, a key is never null.
    let key = nullable(bytes)??;
    let value = nullable(bytes)?;
    Some(Header { key, value })
}

/// Bytes that [`put_nullable`] writes.
pub(crate) fn nullable_bytes(value: Option<&[u8]>) -> usize {
    value.map_or(1, |bytes| {
        varint::size(bytes.len() as i64).saturating_add(bytes.len())
    })
}

/// Appends `value` behind its length, −1 for null.
pub(crate) fn put_nullable(out: &mut Vec<u8>, value: Option<&[u8]>) {
    match value {
        None => varint::put_i32(out, -1),
        Some(bytes) => {
            varint::put_i64(out, bytes.len() as i64);
            out.extend_from_slice(bytes);
        }
    }
}
