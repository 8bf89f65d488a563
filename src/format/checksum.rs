//! CRC-32C: the one door to the crate that computes it, so that another can be measured in its
//! place.
//!
//! Owns nothing else; which bytes are covered is the business of `batch` and `snapshot`.

/// CRC-32C (Castagnoli) of one slice.
#[inline]
pub fn crc32c(bytes: &[u8]) -> u32 {
    ::crc32c::crc32c(bytes)
}

/// CRC-32C of several slices, as if they were one.
#[derive(Clone, Copy, Default, Debug)]
pub struct Crc32c(u32);

impl Crc32c {
    pub fn new() -> Crc32c {
        Crc32c(0)
    }

    #[inline]
    pub fn update(&mut self, bytes: &[u8]) {
        self.0 = ::crc32c::crc32c_append(self.0, bytes);
    }

    /// The checksum of everything passed to `update` so far.
    #[inline]
    pub fn value(self) -> u32 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::{Crc32c, crc32c};
    use proptest::prelude::*;

    /// The definition, a bit at a time.
    fn bitwise(bytes: &[u8]) -> u32 {
        let mut crc = u32::MAX;
        for &byte in bytes {
            crc ^= u32::from(byte);
            for _ in 0..8 {
                let low = crc & 1;
                crc >>= 1;
                if low == 1 {
                    crc ^= 0x82f6_3b78;
                }
            }
        }
        !crc
    }

    #[test]
    fn the_check_value_of_castagnoli() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(bitwise(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(b""), 0);
    }

    proptest! {
        #[test]
        fn equals_its_bitwise_twin_however_cut(
            bytes in prop::collection::vec(any::<u8>(), 0..600), cut in any::<prop::sample::Index>()
        ) {
            let want = bitwise(&bytes);
            prop_assert_eq!(crc32c(&bytes), want);
            let (left, right) = bytes.split_at(cut.index(bytes.len() + 1));
            let mut crc = Crc32c::new();
            crc.update(left);
            crc.update(right);
            prop_assert_eq!(crc.value(), want);
        }
    }
}
