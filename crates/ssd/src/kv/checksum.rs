//! Hashes and checksums.
//!
//! Values have a CRC-32C per block: it finds every flipped byte, and with the carry-less multiply of today's
//! processors 4 KiB take some 60 ns. Everything that decides what a record is has 64 bits of XXH3, seeded
//! with the store's secret: a host that writes bytes which look like a record cannot make them pass for one,
//! because it does not know the seed.

use twox_hash::XxHash3_64;

/// Checksum of a block of a value.
#[inline]
pub(super) fn of_block(data: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(data)
}

/// Checksum of what describes data.
#[inline]
pub(super) fn of_metadata(seed: u64, data: &[u8]) -> u64 {
    XxHash3_64::oneshot_with_seed(seed, data)
}

/// Where a key is in the index. The secret keeps a host from choosing keys that meet there.
#[inline]
pub(super) fn of_key(secret: u64, keyspace: u8, key: &[u8]) -> u64 {
    XxHash3_64::oneshot_with_seed(secret.rotate_left(u32::from(keyspace) + 1), key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksums_are_the_published_ones() {
        assert_eq!(of_block(b"123456789"), 0xe306_9283);
        assert_eq!(of_metadata(0, b""), 0x2d06_8005_38d3_94c2);
    }

    #[test]
    fn the_same_key_hashes_differently_in_each_keyspace() {
        assert_ne!(of_key(7, 0, b"key"), of_key(7, 1, b"key"));
    }
}
