//! Physical Region Page entries (Base 4.3.1): arithmetic on one entry; walking and building lists belongs to
//! the two sides.

/// Bytes of one PRP entry in a list.
pub const ENTRY_BYTES: usize = 8;

/// Splits an address into its page and the offset within it. `page_bytes` is a power of two.
#[inline]
pub const fn split(address: u64, page_bytes: u64) -> (u64, u64) {
    (address & !(page_bytes - 1), address & (page_bytes - 1))
}

/// Pages touched by `length` bytes that start `offset` bytes into a page.
#[inline]
pub const fn pages(offset: u64, length: u64, page_bytes: u64) -> u64 {
    (offset + length).div_ceil(page_bytes)
}

/// A PRP entry's offset must be dword aligned (Base 4.3.1): bits 1:0 are zero.
#[inline]
pub const fn is_dword_aligned(address: u64) -> bool {
    address & 3 == 0
}
