//! What the content of a file comes to in one number.
//!
//! Each record is hashed with its offset to 128 bits, by whoever has its bytes, and the hashes are added up. A sum
//! does not depend on the order, so the digests of the files of a group add up to the digest of all records
//! between its two offsets: the source can be compared with a manifest without knowing which file a record went to.
//! It finds every accident; it is no defence against somebody who makes records to fit.

use std::{fmt, str::FromStr};

/// Sum of the hashes of records, modulo 2¹²⁸.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Digest(pub u128);

/// A text that is no digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a digest is 32 lower-case hexadecimal digits")]
pub struct DigestError;

impl Digest {
    /// Takes in the hash of one record.
    pub fn add(&mut self, record: u128) {
        self.0 = self.0.wrapping_add(record);
    }

    /// Of the records of both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0.wrapping_add(other.0))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, DigestError> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if text.len() != 32 || !text.bytes().all(is_digit) {
            return Err(DigestError);
        }
        let number = u128::from_str_radix(text, 16).map_err(|_| DigestError)?;
        Ok(Self(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_of_a_group_is_the_sum_of_its_files() {
        let (mut one, mut other, mut all) =
            (Digest::default(), Digest::default(), Digest::default());
        for record in [u128::MAX, 7, 1 << 127, 3] {
            all.add(record);
            if record % 2 == 0 {
                one.add(record)
            } else {
                other.add(record)
            }
        }
        assert_eq!(one.and(other), all);
    }

    #[test]
    fn what_is_written_reads_back_and_nothing_else_does() {
        let digest = Digest(0x00ff);
        assert_eq!(digest.to_string().parse(), Ok(digest));
        for bad in [
            "",
            "ff",
            "+0000000000000000000000000000000",
            "000000000000000000000000000000FF",
        ] {
            assert_eq!(bad.parse::<Digest>(), Err(DigestError), "{bad:?}");
        }
    }
}
