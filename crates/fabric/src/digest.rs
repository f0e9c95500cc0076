//! Header and data digests: CRC32C (NVMe/TCP Transport 3.3.1.1).

use crc_fast::CrcAlgorithm;
use unvme_bus::Region;

/// Shared memory is read in parts of this size, into the first-level cache: what is digested and what another
/// party writes meanwhile never share a reference.
const PART_BYTES: usize = 4096;

/// A digest that is being computed. On the wire it is 4 bytes, little-endian.
#[derive(Clone, Debug)]
pub struct Digest(crc_fast::Digest);

impl Digest {
    /// The digest of no bytes.
    #[inline]
    pub fn new() -> Self {
        Self(crc_fast::Digest::new(CrcAlgorithm::Crc32Iscsi))
    }

    /// The digest of `bytes`.
    #[inline]
    pub fn of(bytes: &[u8]) -> u32 {
        crc_fast::crc32_iscsi(bytes)
    }

    /// Adds bytes.
    #[inline]
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Adds a range of shared memory. Panics: when it is not within the region.
    pub fn update_memory(&mut self, region: &Region, offset: usize, bytes: usize) {
        let mut part = [0; PART_BYTES];
        let mut done = 0;
        while done < bytes {
            let count = PART_BYTES.min(bytes - done);
            region.read(offset + done, &mut part[..count]);
            self.0.update(&part[..count]);
            done += count;
        }
    }

    /// The digest of all bytes so far.
    #[inline]
    pub fn finish(&self) -> u32 {
        self.0.finalize() as u32
    }
}

impl Default for Digest {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 3720, B.4: "CRC Examples"; the digests in the order of the wire.
    fn examples() -> [(Vec<u8>, [u8; 4]); 5] {
        let mut read_10 = vec![0; 48];
        read_10[..24].copy_from_slice(&[
            0x01, 0xc0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x14, 0, 0, 0, 0, 0, 0x04, 0,
        ]);
        read_10[24..33].copy_from_slice(&[0, 0, 0, 0x14, 0, 0, 0, 0x18, 0x28]);
        read_10[40] = 0x02;
        [
            (vec![0; 32], [0xaa, 0x36, 0x91, 0x8a]),
            (vec![0xff; 32], [0x43, 0xab, 0xa8, 0x62]),
            ((0..32).collect(), [0x4e, 0x79, 0xdd, 0x46]),
            ((0..32).rev().collect(), [0x5c, 0xdb, 0x3f, 0x11]),
            (read_10, [0x56, 0x3a, 0x96, 0xd9]),
        ]
    }

    #[test]
    fn the_examples_of_rfc_3720_come_out_in_the_order_of_the_wire() {
        for (bytes, digest) in examples() {
            assert_eq!(Digest::of(&bytes).to_le_bytes(), digest);
        }
    }

    #[test]
    fn parts_and_shared_memory_give_the_digest_of_the_whole() {
        let region = Region::anonymous(3 * PART_BYTES).expect("memory");
        let bytes: Vec<u8> = (0..2 * PART_BYTES + 100).map(|i| (i * 7 % 251) as u8).collect();
        region.write(17, &bytes);
        let mut digest = Digest::new();
        digest.update(&bytes[..5]);
        digest.update_memory(&region, 22, bytes.len() - 10);
        digest.update(&bytes[bytes.len() - 5..]);
        assert_eq!(digest.finish(), Digest::of(&bytes));
    }
}
