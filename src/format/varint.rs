//! Zig-zag varints, 32 and 64 bits wide, as Kafka's records use them.
//!
//! Owns the byte rules alone: at most 5 (10) bytes, bit 7 of the last one must be clear, its bits
//! beyond the integer's width are dropped, and longer encodings than needed are accepted. `record`
//! reads with it, `builder` writes with it.

/// Why a varint could not be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum VarintError {
    #[error("the bytes end inside a varint")]
    Truncated,
    #[error("a varint is longer than its type allows")]
    TooLong,
}

pub const VARINT_LEN_MAX: usize = 5;
pub const VARLONG_LEN_MAX: usize = 10;

/// The 32-bit integer at the start of `bytes`, and how many bytes it takes.
#[inline(always)]
pub fn decode_i32(bytes: &[u8]) -> Result<(i32, usize), VarintError> {
    match bytes.first() {
        Some(&byte) if byte < 0x80 => Ok((zigzag_i32(u32::from(byte)), 1)),
        _ => {
            let (raw, len) = decode_groups::<VARINT_LEN_MAX>(bytes)?;
            // Bits 4-6 of a 5th byte lie beyond bit 31: Kafka drops them, and so does this cast.
            Ok((zigzag_i32(raw as u32), len))
        }
    }
}

/// The 64-bit integer at the start of `bytes`, and how many bytes it takes.
#[inline(always)]
pub fn decode_i64(bytes: &[u8]) -> Result<(i64, usize), VarintError> {
    match bytes.first() {
        Some(&byte) if byte < 0x80 => Ok((zigzag_i64(u64::from(byte)), 1)),
        _ => {
            let (raw, len) = decode_groups::<VARLONG_LEN_MAX>(bytes)?;
            Ok((zigzag_i64(raw), len))
        }
    }
}

/// Base-128 groups, least significant first.
#[inline]
fn decode_groups<const LEN_MAX: usize>(bytes: &[u8]) -> Result<(u64, usize), VarintError> {
    let mut raw = 0u64;
    for (i, &byte) in bytes.iter().take(LEN_MAX).enumerate() {
        raw |= u64::from(byte & 0x7f) << (7 * i);
        if byte < 0x80 {
            return Ok((raw, i + 1));
        }
    }
    if bytes.len() < LEN_MAX { Err(VarintError::Truncated) } else { Err(VarintError::TooLong) }
}

#[inline]
pub fn encode_i32(value: i32, out: &mut Vec<u8>) {
    encode_groups(u64::from(((value << 1) ^ (value >> 31)) as u32), out);
}

#[inline]
pub fn encode_i64(value: i64, out: &mut Vec<u8>) {
    encode_groups(((value << 1) ^ (value >> 63)) as u64, out);
}

#[inline]
fn encode_groups(mut raw: u64, out: &mut Vec<u8>) {
    while raw >= 0x80 {
        out.push(raw as u8 | 0x80);
        raw >>= 7;
    }
    out.push(raw as u8);
}

/// How many bytes `encode_i32` writes.
#[inline]
pub fn len_i32(value: i32) -> usize {
    len_groups(u64::from(((value << 1) ^ (value >> 31)) as u32))
}

/// How many bytes `encode_i64` writes.
#[inline]
pub fn len_i64(value: i64) -> usize {
    len_groups(((value << 1) ^ (value >> 63)) as u64)
}

#[inline]
fn len_groups(raw: u64) -> usize {
    (64 - (raw | 1).leading_zeros() as usize).div_ceil(7)
}

#[inline(always)]
fn zigzag_i32(raw: u32) -> i32 {
    (raw >> 1) as i32 ^ -((raw & 1) as i32)
}

#[inline(always)]
fn zigzag_i64(raw: u64) -> i64 {
    (raw >> 1) as i64 ^ -((raw & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written_i32(value: i32) -> Vec<u8> {
        let mut out = Vec::new();
        encode_i32(value, &mut out);
        out
    }

    fn written_i64(value: i64) -> Vec<u8> {
        let mut out = Vec::new();
        encode_i64(value, &mut out);
        out
    }

    #[test]
    fn the_samples_of_the_specification() {
        let samples: [(i32, &[u8]); 10] = [
            (0, &[0x00]),
            (-1, &[0x01]),
            (1, &[0x02]),
            (63, &[0x7e]),
            (-64, &[0x7f]),
            (64, &[0x80, 0x01]),
            (300, &[0xd8, 0x04]),
            (-300, &[0xd7, 0x04]),
            (i32::MAX, &[0xfe, 0xff, 0xff, 0xff, 0x0f]),
            (i32::MIN, &[0xff, 0xff, 0xff, 0xff, 0x0f]),
        ];
        for (value, bytes) in samples {
            assert_eq!(written_i32(value), bytes);
            assert_eq!(decode_i32(bytes), Ok((value, bytes.len())));
        }
        let ends = |last| [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, last];
        assert_eq!(written_i64(1_700_000_000_000), [0x80, 0xa0, 0xab, 0xfe, 0xf9, 0x62]);
        assert_eq!(decode_i64(&ends(0x01)), Ok((i64::MIN, 10)));
        assert_eq!(written_i64(i64::MIN), ends(0x01));
    }

    #[test]
    fn the_last_byte_may_not_go_on_and_its_spare_bits_are_dropped() {
        assert_eq!(decode_i32(&[0xff, 0xff, 0xff, 0xff, 0x7f]), Ok((i32::MIN, 5)));
        assert_eq!(decode_i32(&[0x80, 0x80, 0x80, 0x80, 0x80]), Err(VarintError::TooLong));
        assert_eq!(decode_i32(&[0x80, 0x80, 0x80, 0x80, 0x80, 0]), Err(VarintError::TooLong));
        assert_eq!(decode_i32(&[0x80, 0x80, 0x80, 0x80]), Err(VarintError::Truncated));
        assert_eq!(decode_i32(&[]), Err(VarintError::Truncated));
        assert_eq!(decode_i64(&[0x80; 10]), Err(VarintError::TooLong));
        assert_eq!(decode_i64(&[0x80; 9]), Err(VarintError::Truncated));
        // Not minimal, and accepted.
        assert_eq!(decode_i32(&[0x82, 0x80, 0x00]), Ok((1, 3)));
    }

    proptest! {
        #[test]
        fn comes_back_as_written(small in any::<i32>(), shift in 0u32..64, wide in any::<i64>()) {
            let wide = wide >> shift;
            let (bytes, longs) = (written_i32(small), written_i64(wide));
            prop_assert_eq!(decode_i32(&bytes), Ok((small, bytes.len())));
            prop_assert_eq!(len_i32(small), bytes.len());
            prop_assert_eq!(decode_i64(&longs), Ok((wide, longs.len())));
            prop_assert_eq!(len_i64(wide), longs.len());
            for cut in 0..longs.len() {
                prop_assert_eq!(decode_i64(&longs[..cut]), Err(VarintError::Truncated));
            }
        }

        #[test]
        fn any_bytes_end_within_the_bound(bytes in prop::collection::vec(any::<u8>(), 0..12)) {
            if let Ok((_, len)) = decode_i32(&bytes) {
                prop_assert!(len <= 5 && len <= bytes.len());
            }
            if let Ok((_, len)) = decode_i64(&bytes) {
                prop_assert!(len <= 10 && len <= bytes.len());
            }
        }
    }
}
