//! Media that keeps a tag of each page instead of its data: what a page begins with.
//!
//! Hosts that write recognizable pages (a number and its copies, say) can still tell whether they get back
//! what they wrote, and a device of a terabyte fits into a few gigabytes of memory.

/// Bytes of a tag.
pub(crate) const TAG_BYTES: usize = 8;
/// Bytes of the page that a tag stands for.
const PAGE_BYTES: usize = unvme_flash::PAGE_BYTES as usize;

/// Bytes of the tags of `bytes` of pages.
pub(super) fn bytes_for(bytes: u64) -> u64 {
    bytes / PAGE_BYTES as u64 * TAG_BYTES as u64
}

/// Where the tag of the page at a byte offset is.
#[inline]
pub(crate) fn place(offset: u64) -> usize {
    (offset / PAGE_BYTES as u64) as usize * TAG_BYTES
}

/// Bytes `within..` of a page that its tag stands for.
pub(crate) fn expand(tag: u64, within: usize, out: &mut [u8]) {
    let tag = tag.to_le_bytes();
    for (at, byte) in out.iter_mut().enumerate() {
        *byte = tag[(within + at) % TAG_BYTES];
    }
}
