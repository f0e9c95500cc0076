//! A container: one I/O address space, behind an IOMMU of type 1.

use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use zerocopy::{FromBytes, IntoBytes};

use super::abi;
use crate::function::IOVA_RANGE;
use crate::mem::{HUGE_PAGE_BYTES, PAGE_BYTES};
use crate::{BusError, DmaAccess, Region};

/// Addresses below this are not given out where the usual range cannot be used: address 0 stays unmapped, so
/// that a zeroed pointer is a fault.
const IOVA_LOWEST: u64 = HUGE_PAGE_BYTES as u64;
/// The usual range is used when this much of it can be.
const IOVA_BYTES_ENOUGH: u64 = 1 << 30;

/// The descriptor of a container that has a group and an IOMMU.
#[derive(Debug)]
pub(super) struct Container {
    pub(super) fd: OwnedFd,
}

impl Container {
    /// Where addresses can be chosen: the IOMMU translates them, and nothing is reserved there. A kernel
    /// before 5.3 does not say.
    pub(super) fn addresses(&self) -> Result<Range<u64>, BusError> {
        let info = self.info()?;
        let Some(ranges) = capability(&info, abi::IOMMU_CAP_IOVA_RANGE) else { return Ok(IOVA_RANGE) };
        Ok(choose(&parse_ranges(ranges)))
    }

    /// How many more ranges can be mapped, if the kernel says.
    fn ranges_left(&self) -> Option<u32> {
        let info = self.info().ok()?;
        let bytes = capability(&info, abi::IOMMU_CAP_DMA_AVAIL)?.first_chunk()?;
        Some(u32::from_le_bytes(*bytes))
    }

    fn info(&self) -> Result<Vec<u8>, BusError> {
        abi::ask(&self.fd, abi::IOMMU_GET_INFO, &abi::IommuInfo::default())
            .map_err(|e| BusError::os(abi::IOMMU_GET_INFO.name, e))
    }

    /// Pins `region` and lets the devices of the container reach it at `iova`.
    pub(super) fn map(&self, iova: u64, region: &Region, access: DmaAccess) -> Result<(), BusError> {
        let length = region.len() as u64;
        let refuse = |reason| BusError::Dma { iova, length, reason };
        let page = PAGE_BYTES as u64;
        if !iova.is_multiple_of(page) || !length.is_multiple_of(page) {
            return Err(refuse("it is not whole pages"));
        }
        if iova.checked_add(length).is_none() {
            return Err(refuse("it wraps around"));
        }
        let flags = if access.read { abi::DMA_READABLE } else { 0 }
            | if access.write { abi::DMA_WRITABLE } else { 0 };
        let mut question = abi::DmaMap {
            argsz: 0.into(),
            flags: flags.into(),
            // Where the range is in this process: that is the field's meaning outside vfio-user.
            offset: (region.as_ptr().expose_provenance() as u64).into(),
            iova: iova.into(),
            length: length.into(),
        };
        match abi::exchange(&self.fd, abi::IOMMU_MAP_DMA, question.as_mut_bytes()) {
            Ok(_) => Ok(()),
            Err(e) => Err(match Errno::from_io_error(&e) {
                Some(Errno::EXIST) => refuse("it overlaps another one"),
                Some(Errno::INVAL) => refuse("the IOMMU does not translate it"),
                Some(Errno::NOMEM) => no_memory(length, e),
                Some(Errno::NOSPC) => self.no_ranges(),
                _ => BusError::os(format!("map {length} bytes for DMA at {iova:#x}"), e),
            }),
        }
    }

    /// Takes ranges back; none may be cut in two.
    pub(super) fn unmap(&self, iova: u64, length: u64) -> Result<(), BusError> {
        let refuse = |reason| BusError::Dma { iova, length, reason };
        let mut question =
            abi::DmaUnmap { argsz: 0.into(), flags: 0.into(), iova: iova.into(), length: length.into() };
        match abi::exchange(&self.fd, abi::IOMMU_UNMAP_DMA, question.as_mut_bytes()) {
            // The kernel leaves how much it took back in the structure.
            Ok(_) if question.length.get() == 0 => Err(refuse("nothing is mapped there")),
            Ok(_) => Ok(()),
            Err(e) if Errno::from_io_error(&e) == Some(Errno::INVAL) => {
                Err(refuse("it is not whole pages, or cuts a mapping in two"))
            }
            Err(e) => Err(BusError::os(format!("unmap {length} bytes of DMA at {iova:#x}"), e)),
        }
    }

    fn no_ranges(&self) -> BusError {
        let left = self.ranges_left().unwrap_or(0);
        BusError::setup(
            format!("the kernel maps no more ranges for DMA ({left} are left)"),
            "raise the limit: as root `echo 1000000 > /sys/module/vfio_iommu_type1/parameters/dma_entry_limit`, and open again",
        )
    }
}

fn capability(info: &[u8], id: u16) -> Option<&[u8]> {
    let (head, _) = abi::IommuInfo::ref_from_prefix(info).ok()?;
    match head.flags.get() & abi::IOMMU_HAS_CAPS {
        0 => None,
        _ => abi::capability(info, head.cap_offset.get(), id),
    }
}

/// The ranges of a capability: their number, 4 bytes of padding, and each.
fn parse_ranges(capability: &[u8]) -> Vec<Range<u64>> {
    let Some((count, rest)) = capability.split_first_chunk() else { return Vec::new() };
    let count = u32::from_le_bytes(*count) as usize;
    let rest = rest.get(4..).unwrap_or_default();
    rest.chunks_exact(size_of::<abi::IovaRange>())
        .take(count)
        .filter_map(|bytes| abi::IovaRange::read_from_bytes(bytes).ok())
        // The last address of all is left out rather than overflow.
        .map(|range| range.first.get()..range.last.get().saturating_add(1))
        .filter(|range| range.start < range.end)
        .collect()
}

/// The part of one of `ranges` to choose addresses from: the longest within the usual range, or, with an
/// IOMMU that is too narrow for that, the longest of all.
fn choose(ranges: &[Range<u64>]) -> Range<u64> {
    let longest = |low: u64, high: u64| {
        let parts = ranges.iter().map(|range| range.start.max(low)..range.end.min(high));
        parts.max_by_key(|part| part.end.saturating_sub(part.start))
    };
    match longest(IOVA_RANGE.start, IOVA_RANGE.end) {
        Some(part) if part.end.saturating_sub(part.start) >= IOVA_BYTES_ENOUGH => part,
        _ => longest(IOVA_LOWEST, IOVA_RANGE.end).unwrap_or(IOVA_LOWEST..IOVA_LOWEST),
    }
}

/// ENOMEM of a mapping: nearly always the limit of locked memory.
fn no_memory(length: u64, source: io::Error) -> BusError {
    let Some(limit) = getrlimit(Resource::Memlock).current else {
        return BusError::os(format!("lock {} KiB of memory for DMA", length / 1024), source);
    };
    BusError::setup(
        format!(
            "{} KiB of memory for DMA cannot be locked: this process may lock {} KiB (`ulimit -l`)",
            length / 1024,
            limit / 1024
        ),
        "raise the limit: as root run `unvme setup config --limits USER`, or put the line `USER - memlock unlimited` into \
         /etc/security/limits.d/unvme.conf, and log in again; in a shell of root, `ulimit -l unlimited`",
    )
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)] // A list of ranges may have one.
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn addresses_avoid_what_is_reserved_and_what_the_iommu_does_not_translate() {
        let end = IOVA_RANGE.end;
        // A usual x86: the window of message interrupts is left out, and 48 bits are translated.
        assert_eq!(choose(&[0..0xfee0_0000, 0xfef0_0000..1 << 48]), 4 * GIB..end);
        // 39 bits with a hole: the longer side of it.
        assert_eq!(choose(&[0..0xfee0_0000, 0xfef0_0000..0x40_0000_0000]), 4 * GIB..0x40_0000_0000);
        assert_eq!(choose(&[5 * GIB..8 * GIB, 16 * GIB..1 << 39]), 16 * GIB..end);
        // Not one address of more than 32 bits.
        assert_eq!(choose(&[0..0xfee0_0000]), 2 << 20..0xfee0_0000);
        // Too little above 4 GiB.
        assert_eq!(choose(&[0..0xfee0_0000, 4 * GIB..4 * GIB + 4096]), 2 << 20..0xfee0_0000);
        assert!(choose(&[]).is_empty());
        assert!(choose(&[0..4096]).is_empty());
    }

    #[test]
    fn ranges_of_the_kernel_are_understood_and_nonsense_is_left_out() {
        let mut bytes = vec![3, 0, 0, 0, 0, 0, 0, 0];
        for number in [0, 0xfedf_ffff, 0xfef0_0000, u64::MAX, 9, 3] {
            bytes.extend_from_slice(&u64::to_le_bytes(number));
        }
        assert_eq!(parse_ranges(&bytes), [0..0xfee0_0000, 0xfef0_0000..u64::MAX]);
        bytes[0] = 1;
        assert_eq!(parse_ranges(&bytes), [0..0xfee0_0000]);
        // More announced than there is.
        bytes[0] = 200;
        assert_eq!(parse_ranges(&bytes[..30]), [0..0xfee0_0000]);
        assert_eq!(parse_ranges(&bytes[..3]), []);
    }

    #[test]
    fn a_limit_of_locked_memory_names_itself_and_what_raises_it() {
        let text = no_memory(2 << 20, Errno::NOMEM.into()).to_string();
        match getrlimit(Resource::Memlock).current {
            Some(limit) => {
                let said = format!(
                    "2048 KiB of memory for DMA cannot be locked: this process may lock {} KiB",
                    limit / 1024
                );
                assert!(text.starts_with(&said) && text.contains("ulimit -l unlimited"), "{text}");
            }
            None => assert!(text.starts_with("lock 2048 KiB of memory for DMA: "), "{text}"),
        }
    }
}
