//! Ids of requests that change something.

use rand::Rng;

/// A new id: 128 random bits in hexadecimal, after `cli-`.
pub(crate) fn request_id() -> String {
    format!("cli-{:032x}", rand::rng().random::<u128>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_differ_and_have_one_length() {
        let (a, b) = (request_id(), request_id());
        assert_ne!(a, b);
        assert_eq!((a.len(), b.len()), (36, 36));
    }
}
