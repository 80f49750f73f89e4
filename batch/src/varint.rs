//! Zigzag numbers of variable length, as the records of a batch hold them.
//!
//! # Source
//! Kafka's `ByteUtils.writeVarint` and `writeVarlong`: the Protocol Buffers encoding of `sint32` and `sint64`.

/// Most bytes a [`i32`] takes.
pub(crate) const I32_BYTES_MAX: usize = 5;
const I64_BYTES_MAX: usize = 10;

/// Takes one number off the front of `bytes`; `None` if it is cut off or does not fit 64 bits.
pub(crate) fn take_i64(bytes: &mut &[u8]) -> Option<i64> {
    let raw = take(bytes, I64_BYTES_MAX)?;
    Some(((raw >> 1) as i64) ^ -((raw & 1) as i64))
}

/// Takes one number off the front of `bytes`; `None` if it is cut off or does not fit 32 bits.
pub(crate) fn take_i32(bytes: &mut &[u8]) -> Option<i32> {
    let raw = u32::try_from(take(bytes, I32_BYTES_MAX)?).ok()?;
    Some(((raw >> 1) as i32) ^ -((raw & 1) as i32))
}

fn take(bytes: &mut &[u8], bytes_max: usize) -> Option<u64> {
    let mut value = 0_u64;
    for (index, &byte) in bytes.iter().take(bytes_max).enumerate() {
        let part = u64::from(byte & 0x7f);
        let shift = 7 * index;
        // The tenth byte has room for one bit.
        if shift == 63 && part > 1 {
            return None;
        }
        value |= part << shift;
        if byte & 0x80 == 0 {
            *bytes = bytes.get(index + 1..)?;
            return Some(value);
        }
    }
    None
}

pub(crate) fn put_i32(out: &mut Vec<u8>, value: i32) {
    put_i64(out, i64::from(value));
}

pub(crate) fn put_i64(out: &mut Vec<u8>, value: i64) {
    let mut rest = zigzag(value);
    while rest >= 0x80 {
        out.push((rest as u8 & 0x7f) | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Bytes that [`put_i64`] writes for `value`: 1 to 10.
pub(crate) fn size(value: i64) -> usize {
    let bits = 64 - (zigzag(value) | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn small_numbers_are_written_as_kafka_writes_them() {
        for (value, expected) in [
            (0, &[0x00][..]),
            (-1, &[0x01]),
            (1, &[0x02]),
            (63, &[0x7e]),
            (64, &[0x80, 0x01]),
            (-65, &[0x81, 0x01]),
            (i64::from(i32::MAX), &[0xfe, 0xff, 0xff, 0xff, 0x0f]),
        ] {
            let mut out = Vec::new();
            put_i64(&mut out, value);
            assert_eq!(out, expected, "{value}");
        }
    }

    #[test]
    fn what_does_not_fit_or_is_cut_off_is_refused() {
        assert_eq!(take_i32(&mut &[0xff, 0xff, 0xff, 0xff, 0x1f][..]), None);
        assert_eq!(
            take_i32(&mut &[0x80, 0x80, 0x80, 0x80, 0x80, 0x00][..]),
            None
        );
        assert_eq!(take_i32(&mut &[0x80][..]), None);
        assert_eq!(take_i32(&mut &[][..]), None);
        assert_eq!(take_i64(&mut &[0xff; 10][..]), None);
        let mut two = [0xff; 10];
        two[9] = 0x02;
        assert_eq!(take_i64(&mut &two[..]), None);
    }

    proptest! {
        #[test]
        fn a_number_comes_back_and_has_the_size_said(value in any::<i64>(), shift in 0_u32..64) {
            let value = value >> shift;
            let mut out = Vec::new();
            put_i64(&mut out, value);
            prop_assert_eq!(out.len(), size(value));
            let mut rest = &out[..];
            prop_assert_eq!(take_i64(&mut rest), Some(value));
            prop_assert!(rest.is_empty());
            let narrow = i32::try_from(value).ok();
            prop_assert_eq!(take_i32(&mut &out[..]), narrow);
        }

        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..16)) {
            let mut rest = &bytes[..];
            while take_i64(&mut rest).is_some() {}
            let mut rest = &bytes[..];
            while take_i32(&mut rest).is_some() {}
        }
    }
}
