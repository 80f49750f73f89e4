//! Guards memory against hostile answers. The decoder of messages trusts the lengths of arrays and
//! allocates by them; so every answer is walked over first, without allocating, along the
//! description of its shape: an array that announces more items than its bytes can hold is found
//! here, and so is one whose decoded form would be far larger than the answer itself.

mod answers;

pub(crate) use self::answers::*;

/// How many bytes of decoded form an answer may take for each of its own bytes. Honest answers take
/// up to five.
const GROWTH_MAX: usize = 8;
/// Decoded bytes that are free, for answers of a few fields.
const GROWTH_FREE: usize = 64 << 10;
/// Most tagged fields of one structure; Kafka has at most three.
const TAGS_MAX: u32 = 64;

/// Type of a field.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    /// So many bytes.
    Fixed(usize),
    /// Length and text, or null.
    Text,
    /// Length and bytes, or null.
    Bytes,
    /// Count and items, or null; the item's size in memory comes first.
    Array(usize, Item),
    /// A structure in place.
    Struct(&'static [Field]),
}

/// What an array holds.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Item {
    /// Values of so many bytes.
    Fixed(usize),
    /// Texts.
    Text,
    /// Structures.
    Struct(&'static [Field]),
}

/// A field, in the versions that have it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Field {
    /// First version, inclusive.
    from: i16,
    /// Last version, inclusive.
    to: i16,
    /// Its tag, when it is a tagged field.
    tag: Option<u32>,
    /// Its type.
    kind: Kind,
}

/// Shape of an answer's body.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Schema {
    /// First version with compact lengths and tagged fields.
    flexible_from: i16,
    /// The fields in order.
    fields: &'static [Field],
}

/// What is wrong with an answer, written to follow a colon.
type Fault = &'static str;

impl Schema {
    /// Walks over `body` as version `version`.
    ///
    /// # Errors
    /// When it is cut short, or would take far more memory than its size.
    pub(crate) fn check(&self, body: &[u8], version: i16) -> Result<(), Fault> {
        self.walk(body, version).map(drop)
    }

    /// What follows the structure.
    fn walk<'a>(&self, body: &'a [u8], version: i16) -> Result<&'a [u8], Fault> {
        let mut walk = Walk {
            rest: body,
            version,
            flexible: version >= self.flexible_from,
            allowance: body.len().saturating_mul(GROWTH_MAX) + GROWTH_FREE,
        };
        walk.structure(self.fields)?;
        Ok(walk.rest)
    }
}

/// A walk over an answer.
struct Walk<'a> {
    rest: &'a [u8],
    version: i16,
    flexible: bool,
    /// Bytes of decoded form that are left to use.
    allowance: usize,
}

const SHORT: Fault = "it is cut short";

impl Walk<'_> {
    fn skip(&mut self, bytes: usize) -> Result<(), Fault> {
        self.rest = self.rest.get(bytes..).ok_or(SHORT)?;
        Ok(())
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or(SHORT)?;
        self.rest = rest;
        Ok(*head)
    }

    fn varint(&mut self) -> Result<u32, Fault> {
        let mut value = 0_u32;
        for shift in [0, 7, 14, 21, 28] {
            let [byte] = self.array()?;
            value |= u32::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err("a length has no end")
    }

    /// A length or count; None for null.
    fn length(&mut self, short: bool) -> Result<Option<usize>, Fault> {
        let signed = if self.flexible {
            i64::from(self.varint()?) - 1
        } else if short {
            i64::from(i16::from_be_bytes(self.array()?))
        } else {
            i64::from(i32::from_be_bytes(self.array()?))
        };
        match signed {
            -1 => Ok(None),
            length => usize::try_from(length)
                .map(Some)
                .map_err(|_| "a length is negative"),
        }
    }

    fn spend(&mut self, bytes: usize) -> Result<(), Fault> {
        self.allowance = self
            .allowance
            .checked_sub(bytes)
            .ok_or("it would take far more memory than its size")?;
        Ok(())
    }

    fn value(&mut self, kind: &Kind) -> Result<(), Fault> {
        match kind {
            Kind::Fixed(bytes) => self.skip(*bytes),
            Kind::Text => match self.length(true)? {
                Some(length) => self.skip(length),
                None => Ok(()),
            },
            Kind::Bytes => match self.length(false)? {
                Some(length) => self.skip(length),
                None => Ok(()),
            },
            Kind::Struct(fields) => self.structure(fields),
            Kind::Array(size, item) => {
                let Some(count) = self.length(false)? else {
                    return Ok(());
                };
                self.spend(count.saturating_mul(*size))?;
                if let Item::Fixed(bytes) = item {
                    return self.skip(count.saturating_mul(*bytes));
                }
                for _ in 0..count {
                    match item {
                        Item::Text => self.value(&Kind::Text)?,
                        Item::Struct(fields) => self.structure(fields)?,
                        Item::Fixed(bytes) => self.skip(*bytes)?,
                    }
                }
                Ok(())
            }
        }
    }

    fn structure(&mut self, fields: &'static [Field]) -> Result<(), Fault> {
        let version = self.version;
        let present = |field: &&Field| (field.from..=field.to).contains(&version);
        for field in fields.iter().filter(present) {
            if field.tag.is_none() {
                self.value(&field.kind)?;
            }
        }
        if !self.flexible {
            return Ok(());
        }
        let tags = self.varint()?;
        if tags > TAGS_MAX {
            return Err("it has too many tagged fields");
        }
        for _ in 0..tags {
            let tag = self.varint()?;
            let size = self.varint()? as usize;
            let mut known = fields.iter().filter(present);
            let Some(field) = known.find(|field| field.tag == Some(tag)) else {
                // The decoder keeps it in a map.
                self.spend(64)?;
                self.skip(size)?;
                continue;
            };
            let before = self.rest.len();
            self.value(&field.kind)?;
            if before - self.rest.len() != size {
                return Err("a tagged field has another size than it says");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
