//! The bytes of a request as a list of parts, so that record batches are sent from where they lie
//! and are not copied into the request.

use bytes::{Bytes, BytesMut};

/// Shared bytes shorter than this are copied: a part of its own costs more.
const SHARE_MIN: usize = 512;

/// A growing list of parts.
#[derive(Debug, Default)]
pub struct Parts {
    done: Vec<Bytes>,
    done_bytes: usize,
    tail: BytesMut,
}

impl Parts {
    /// The buffer that plain fields are appended to.
    pub fn tail(&mut self) -> &mut BytesMut {
        &mut self.tail
    }

    /// Appends bytes that others hold too; long ones are not copied.
    pub fn share(&mut self, bytes: &Bytes) {
        if bytes.len() < SHARE_MIN {
            self.tail.extend_from_slice(bytes);
            return;
        }
        self.seal();
        self.done_bytes += bytes.len();
        self.done.push(bytes.clone());
    }

    /// Length of all parts in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.done_bytes + self.tail.len()
    }

    /// Whether there is nothing in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The parts in order; none is empty.
    #[must_use]
    pub fn finish(mut self) -> Vec<Bytes> {
        self.seal();
        self.done
    }

    fn seal(&mut self) {
        if !self.tail.is_empty() {
            let part = self.tail.split().freeze();
            self.done_bytes += part.len();
            self.done.push(part);
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::BufMut as _;

    use super::*;

    #[test]
    fn long_bytes_are_shared_and_short_ones_joined_in_order() {
        let long = Bytes::from(vec![7_u8; 4096]);
        let mut parts = Parts::default();
        parts.tail().put_u8(1);
        parts.share(&Bytes::from_static(b"short"));
        parts.share(&long);
        parts.tail().put_u8(2);
        assert_eq!(parts.len(), 1 + 5 + 4096 + 1);
        let parts = parts.finish();
        assert_eq!(parts.len(), 3);
        assert_eq!(&parts[0][..], b"\x01short");
        assert_eq!(parts[1].as_ptr(), long.as_ptr());
        assert_eq!(&parts[2][..], b"\x02");
    }
}
