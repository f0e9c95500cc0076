//! The sizes buffers come in.

/// Memory is dealt to the sizes in chunks of this many bytes: one huge page.
pub(super) const CHUNK_BYTES: usize = 2 << 20;
/// Smallest size in bytes. A value of 100 bytes has its place without wasting three quarters of it.
const BYTES_MIN: usize = 128;
/// Largest size in bytes: the longest value of one command of the vendor's set.
pub(crate) const BYTES_MAX: usize = 2 << 20;
/// Number of sizes: the powers of two from the smallest to the largest.
pub(crate) const CLASSES: usize = (BYTES_MAX.ilog2() - BYTES_MIN.ilog2()) as usize + 1;

const _: () = assert!(BYTES_MAX <= CHUNK_BYTES);

/// One of the sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Class(u8);

impl Class {
    /// The smallest size that holds `bytes`; `None` when not even the largest does.
    #[inline]
    pub(crate) fn holding(bytes: usize) -> Option<Self> {
        if bytes > BYTES_MAX {
            return None;
        }
        let size = bytes.max(BYTES_MIN).next_power_of_two();
        Some(Self((size.ilog2() - BYTES_MIN.ilog2()) as u8))
    }

    pub(crate) fn bytes(self) -> usize {
        BYTES_MIN << self.0
    }

    #[inline]
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }

    pub(super) fn all() -> impl Iterator<Item = Self> {
        (0..CLASSES as u8).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_holds_what_it_is_chosen_for_and_no_smaller_one_does() {
        for (bytes, size) in [
            (0, 128),
            (1, 128),
            (128, 128),
            (129, 256),
            (255, 256),
            (4096, 4096),
            (4097, 8192),
            (32_768, 32_768),
            (2_097_151, 2_097_152),
            (2_097_152, 2_097_152),
        ] {
            assert_eq!(Class::holding(bytes).unwrap().bytes(), size, "{bytes}");
        }
        for bytes in [2_097_153, 1 << 40, usize::MAX] {
            assert_eq!(Class::holding(bytes), None, "{bytes}");
        }
        assert_eq!(Class::all().map(Class::bytes).last(), Some(BYTES_MAX));
    }
}
