//! What lies beside each physical page: whose data it is.

use twox_hash::XxHash3_64;
use unvme_bus::Region;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::flips;

pub(super) const RECORD_BYTES: u64 = 32;

/// Sequence numbers and counters of pages are below this, and erasures of a unit below the other: what is
/// above was never reached, and counting on from it would overflow.
pub(super) const SEQUENCE_END: u64 = 1 << 60;
pub(super) const ERASED_END: u32 = 1 << 31;

/// [`Record::flags`]: reclaim has moved the data here.
pub(super) const FLAG_MOVED: u16 = 1 << 0;
/// [`Record::flags`]: the data lies elsewhere (pairs): there is none to check.
pub(super) const FLAG_ELSEWHERE: u16 = 1 << 1;

/// A physical page's record, as it is on the media; little-endian.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Record {
    /// Number of the program: of two records of a logical page the higher one counts.
    pub(super) sequence: u64,
    /// Logical page.
    pub(super) lpn: u32,
    /// CRC-32C of the data as the host gave it; reclaim takes it along.
    pub(super) data_crc: u32,
    /// How often the unit has been erased.
    pub(super) erased: u32,
    /// Append point that programmed the page.
    pub(super) stream: u16,
    /// See the constants.
    pub(super) flags: u16,
    /// Pages that hosts had written to the device, modulo 2^32, this one included.
    pub(super) host_pages: u32,
    /// The low half of the XXH3 of what is before; the seed is the store's secret plus the physical page.
    pub(super) check: u32,
}

const _: () = assert!(size_of::<Record>() as u64 == RECORD_BYTES);
const _: () = assert!(std::mem::offset_of!(Record, check) == 28);

impl Record {
    pub(super) fn seal(mut self, secret: u64, ppn: u32) -> [u64; 4] {
        self.check = self.expected_check(secret, ppn);
        zerocopy::transmute!(self)
    }

    fn expected_check(&self, secret: u64, ppn: u32) -> u32 {
        let covered = &self.as_bytes()[..std::mem::offset_of!(Record, check)];
        XxHash3_64::oneshot_with_seed(secret.wrapping_add(ppn.into()), covered) as u32
    }

    /// The intact record that has become `words` by one or two flipped bits, and that `is_possible`: 32 bits
    /// of a check are not enough for so many attempts.
    #[cold]
    pub(super) fn corrected(
        words: [u64; 4],
        secret: u64,
        ppn: u32,
        is_possible: impl Fn(&Self) -> bool,
    ) -> Option<Self> {
        flips::undone(words, |words| {
            let record: Self = zerocopy::transmute!(words);
            (record.is_intact(secret, ppn) && is_possible(&record)).then_some(record)
        })
    }

    fn is_intact(&self, secret: u64, ppn: u32) -> bool {
        // Sequence numbers begin at 1: a page that was never programmed has zeroes.
        (1..SEQUENCE_END).contains(&self.sequence)
            && self.erased < ERASED_END
            && self.check == self.expected_check(secret, ppn)
    }

    /// The record at a byte offset, when it is an intact one of this physical page.
    pub(super) fn read(memory: &Region, at: u64, secret: u64, ppn: u32) -> Option<Self> {
        let words: [u64; 4] = memory.read_words(at as usize);
        let record: Self = zerocopy::transmute!(words);
        record.is_intact(secret, ppn).then_some(record)
    }
}

/// Checksum of a page's data.
#[inline]
pub(super) fn crc(data: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_counts_only_at_the_page_and_in_the_store_it_was_made_for() {
        let memory = Region::anonymous(4096).unwrap();
        let record = Record { sequence: 9, lpn: 7, data_crc: 0x1234, ..Record::default() };
        memory.write_words(32, record.seal(11, 1));
        assert_eq!(Record::read(&memory, 32, 11, 1).map(|r| (r.sequence, r.lpn)), Some((9, 7)));
        assert_eq!(Record::read(&memory, 32, 11, 2), None);
        assert_eq!(Record::read(&memory, 32, 12, 1), None);
        assert_eq!(Record::read(&memory, 64, 11, 2), None);
        let intact = memory.read_words::<4>(32);
        memory.fill(33, 1, 0xff);
        assert_eq!(Record::read(&memory, 32, 11, 1), None);
        let corrected = |words| Record::corrected(words, 11, 1, |r| r.lpn == 7).map(|r| (r.sequence, r.lpn));
        assert_eq!(corrected(memory.read_words(32)), None);
        for bit in 0..256 {
            let mut words = intact;
            words[bit / 64] ^= 1 << (bit % 64);
            assert_eq!(corrected(words), Some((9, 7)), "bit {bit}");
            let other = (bit + 13) % 256;
            words[other / 64] ^= 1 << (other % 64);
            assert_eq!(corrected(words), Some((9, 7)), "bits {bit} and {other}");
        }
    }
}
