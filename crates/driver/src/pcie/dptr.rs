//! Data pointers: PRP entries and lists, SGL descriptors (Base 4.3). Arithmetic alone; nothing here touches
//! memory.

use unvme_bus::mem::PAGE_BYTES;
use unvme_spec::{prp, sgl};

/// CC.MPS is always 0: 4 KiB pages.
const PAGE: u64 = PAGE_BYTES as u64;
const LIST_ENTRIES: u64 = PAGE / prp::ENTRY_BYTES as u64;

/// PRP1 and PRP2 of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Prp {
    pub(crate) dptr: [u64; 2],
    /// PRP2 points to a list, which [`list`] has yet to fill.
    pub(crate) has_list: bool,
}

/// PRP entries for `bytes` (at least 1) from `iova`, with room for a list at `list_iova` (page aligned).
#[inline]
pub(crate) fn prp(iova: u64, bytes: u64, list_iova: u64) -> Prp {
    let (first_page, offset) = prp::split(iova, PAGE);
    // First, as it is what most commands are.
    if bytes <= PAGE - offset {
        return Prp { dptr: [iova, 0], has_list: false };
    }
    match prp::pages(offset, bytes, PAGE) {
        0..=2 => Prp { dptr: [iova, first_page + PAGE], has_list: false },
        _ => Prp { dptr: [iova, list_iova], has_list: true },
    }
}

/// Consecutive words of the PRP list of a transfer that [`prp()`] said has one. The last word of a page that
/// does not end the list is the address of the next page (Base 4.3.1).
pub(crate) fn list(iova: u64, bytes: u64, list_iova: u64) -> impl Iterator<Item = u64> {
    let (first_page, offset) = prp::split(iova, PAGE);
    let mut left = prp::pages(offset, bytes, PAGE) - 1;
    let mut data = first_page;
    let mut word = 0;
    std::iter::from_fn(move || {
        if left == 0 {
            return None;
        }
        let (page, slot) = (word / LIST_ENTRIES, word % LIST_ENTRIES);
        word += 1;
        if slot == LIST_ENTRIES - 1 && left > 1 {
            return Some(list_iova + (page + 1) * PAGE);
        }
        left -= 1;
        data += PAGE;
        Some(data)
    })
}

/// Pages of PRP list that the longest transfer, `bytes` from any offset in a page, can need; at least 1.
pub(crate) fn list_pages(bytes: u64) -> u64 {
    let entries = prp::pages(PAGE - 4, bytes, PAGE).saturating_sub(1);
    // All but the last page give one word to the chain.
    entries.saturating_sub(1).div_ceil(LIST_ENTRIES - 1).max(1)
}

/// One SGL data block; the entry must be marked with [`unvme_spec::Sqe::set_sgl`].
#[inline]
pub(crate) fn sgl(iova: u64, bytes: u32) -> [u64; 2] {
    sgl::Descriptor::data_block(iova, bytes).to_dptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: u64 = 0x9_0000_0000;

    fn words(iova: u64, bytes: u64) -> Vec<u64> {
        list(iova, bytes, LIST).collect()
    }

    #[test]
    fn one_page_needs_prp1_alone() {
        assert_eq!(prp(0x1_0000_0000, 512, LIST), Prp { dptr: [0x1_0000_0000, 0], has_list: false });
        assert_eq!(prp(0x1_0000_0000, 4096, LIST), Prp { dptr: [0x1_0000_0000, 0], has_list: false });
        assert_eq!(prp(0x1_0000_0e00, 512, LIST), Prp { dptr: [0x1_0000_0e00, 0], has_list: false });
    }

    #[test]
    fn two_pages_need_prp1_and_prp2() {
        let two = |a, b| Prp { dptr: [a, b], has_list: false };
        assert_eq!(prp(0x1_0000_0000, 4097, LIST), two(0x1_0000_0000, 0x1_0000_1000));
        assert_eq!(prp(0x1_0000_0000, 8192, LIST), two(0x1_0000_0000, 0x1_0000_1000));
        assert_eq!(prp(0x1_0000_0e04, 512, LIST), two(0x1_0000_0e04, 0x1_0000_1000));
    }

    #[test]
    fn three_pages_need_a_list_of_two_entries() {
        let listed = Prp { dptr: [0x1_0000_0000, LIST], has_list: true };
        assert_eq!(prp(0x1_0000_0000, 8193, LIST), listed);
        assert_eq!(prp(0x1_0000_0000, 12288, LIST), listed);
        assert_eq!(words(0x1_0000_0000, 12288), [0x1_0000_1000, 0x1_0000_2000]);
        // An offset makes three pages of two pages' worth of data; the list entries have none (Base 4.3.1).
        assert_eq!(prp(0x1_0000_0800, 8192, LIST), Prp { dptr: [0x1_0000_0800, LIST], has_list: true });
        assert_eq!(words(0x1_0000_0800, 8192), [0x1_0000_1000, 0x1_0000_2000]);
    }

    #[test]
    fn a_list_that_fills_its_page_is_not_chained() {
        // 513 pages: PRP1 and 512 entries.
        let entries = words(0x1_0000_0000, 513 * 4096);
        assert_eq!(entries.len(), 512);
        assert_eq!(entries[0], 0x1_0000_1000);
        assert_eq!(entries[511], 0x1_0020_0000);
    }

    #[test]
    fn a_longer_list_gives_the_last_word_of_its_page_to_the_next_page() {
        // 514 pages: 511 entries, the chain, 2 entries.
        let entries = words(0x1_0000_0000, 514 * 4096);
        assert_eq!(entries.len(), 514);
        assert_eq!(entries[510], 0x1_001f_f000);
        assert_eq!(entries[511], 0x9_0000_1000);
        assert_eq!(entries[512], 0x1_0020_0000);
        assert_eq!(entries[513], 0x1_0020_1000);
    }

    #[test]
    fn a_third_list_page_follows_at_the_second_boundary() {
        // 1 + 511 + 511 + 2 pages.
        let entries = words(0x1_0000_0000, 1025 * 4096);
        assert_eq!(entries[511], 0x9_0000_1000);
        assert_eq!(entries[1023], 0x9_0000_2000);
        assert_eq!(entries[1024], 0x1_003f_f000);
        assert_eq!(entries[1025], 0x1_0040_0000);
        assert_eq!(entries.len(), 1026);
    }

    #[test]
    fn list_pages_cover_the_longest_transfer() {
        assert_eq!(list_pages(4096), 1);
        assert_eq!(list_pages(2 << 20), 1);
        // 2 MiB and a page from an odd offset: 513 entries.
        assert_eq!(list_pages((2 << 20) + 4096), 2);
        assert_eq!(list_pages(8 << 20), 5);
        for bytes in [2 << 20, (2 << 20) + 4096, 4 << 20, 8 << 20] {
            let used = list(0x1_0000_0ffc, bytes, LIST).count() as u64;
            assert!(used.div_ceil(512) <= list_pages(bytes), "{bytes} bytes take {used} words");
        }
    }

    #[test]
    fn an_sgl_data_block_is_address_length_and_type_zero() {
        assert_eq!(sgl(0x1_2345_6000, 0x2_0000), [0x1_2345_6000, 0x2_0000]);
    }
}
