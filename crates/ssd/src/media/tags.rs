//! Media that keeps tags of pages, without a translation layer. Tags are words: they are read and written
//! whole, and need no version.

use unvme_bus::Region;

use super::Media;
use super::units::UNIT_BYTES;
use crate::store::Extent;
use crate::store::tags::{TAG_BYTES, expand, place};

impl Media {
    #[cold]
    pub(super) fn read_tags(&self, extent: Extent, host: &Region, host_offset: usize) {
        let mut page = [0; UNIT_BYTES];
        let mut done = 0;
        while done < extent.bytes {
            let offset = extent.offset + done as u64;
            let bytes = (extent.bytes - done).min(UNIT_BYTES - offset as usize % UNIT_BYTES);
            self.fetch_tags(Extent { offset, bytes }, &mut page[..bytes]);
            host.write(host_offset + done, &page[..bytes]);
            done += bytes;
        }
    }

    #[cold]
    pub(super) fn write_tags(&self, extent: Extent, host: &Region, host_offset: usize) {
        let first = extent.offset.next_multiple_of(UNIT_BYTES as u64);
        for offset in (first..extent.offset + extent.bytes as u64).step_by(UNIT_BYTES) {
            let mut tag = [0; TAG_BYTES];
            host.read(host_offset + (offset - extent.offset) as usize, &mut tag);
            self.set_tag(offset, u64::from_le_bytes(tag));
        }
    }

    #[cold]
    pub(super) fn zero_tags(&self, extent: Extent) {
        let first = extent.offset.next_multiple_of(UNIT_BYTES as u64);
        for offset in (first..extent.offset + extent.bytes as u64).step_by(UNIT_BYTES) {
            self.set_tag(offset, 0);
        }
    }

    /// A part of one page; zeroes of media that does not even keep tags.
    #[cold]
    pub(super) fn fetch_tags(&self, extent: Extent, out: &mut [u8]) {
        let ordering = std::sync::atomic::Ordering::Relaxed;
        let tag = self.backing.tags().map_or(0, |tags| tags.load_u64(place(extent.offset), ordering));
        expand(tag, extent.offset as usize % UNIT_BYTES, out);
    }

    #[cold]
    pub(super) fn compare_and_write_tags(&self, extent: Extent, expected: &[u8], new: &[u8]) -> bool {
        let mut equal = self.is_null();
        // As one step: the version keeps other writers of the page out.
        self.units.write(extent, |offset, bytes| {
            let mut ours = vec![0; bytes];
            self.fetch_tags(extent, &mut ours);
            equal = equal || ours == expected;
            if let (true, 0, Some(tag)) = (equal, offset as usize % UNIT_BYTES, new.first_chunk()) {
                self.set_tag(offset, u64::from_le_bytes(*tag));
            }
        });
        equal
    }

    fn set_tag(&self, offset: u64, tag: u64) {
        if let Some(tags) = self.backing.tags() {
            tags.store_u64(place(offset), tag, std::sync::atomic::Ordering::Relaxed);
        }
    }
}
