//! Regions of a device: BARs and configuration space.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use zerocopy::FromBytes;

use super::abi;
use crate::BusError;
use crate::pci::bar::{Bar, BarSource};

/// Configuration space in the device's file.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConfigRegion {
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

/// A BAR, mapped as far as the kernel allows; `None` when the device does not have it, or has I/O ports
/// there.
pub(super) fn bar(
    device: &Arc<OwnedFd>,
    index: u32,
    gone: &Arc<AtomicBool>,
) -> Result<Option<Bar>, BusError> {
    let (info, answer) = info(device, index)?;
    let bytes = info.size.get();
    if bytes == 0 {
        return Ok(None);
    }
    let mappable = if info.flags.get() & abi::REGION_MAPPABLE == 0 {
        Vec::new()
    } else if info.flags.get() & abi::REGION_HAS_CAPS != 0 {
        // Older kernels leave the MSI-X table out this way; newer ones let it be mapped with the rest.
        let areas = abi::capability(&answer, info.cap_offset.get(), abi::CAP_SPARSE_MMAP);
        areas.map_or_else(|| vec![(0, bytes)], parse_areas)
    } else {
        vec![(0, bytes)]
    };
    let source =
        BarSource { file: Arc::clone(device), base: info.offset.get(), bytes, mappable, is_readable: true };
    Bar::map(source, gone).map(Some)
}

/// Where configuration space is.
pub(super) fn config(device: &OwnedFd) -> Result<ConfigRegion, BusError> {
    let (info, _) = info(device, abi::REGION_CONFIG)?;
    Ok(ConfigRegion { offset: info.offset.get(), bytes: info.size.get() })
}

fn info(device: &OwnedFd, index: u32) -> Result<(abi::RegionInfo, Vec<u8>), BusError> {
    let question = abi::RegionInfo {
        argsz: 0.into(),
        flags: 0.into(),
        index: index.into(),
        cap_offset: 0.into(),
        size: 0.into(),
        offset: 0.into(),
    };
    let what = || format!("{} {index}", abi::DEVICE_GET_REGION_INFO.name);
    let answer =
        abi::ask(device, abi::DEVICE_GET_REGION_INFO, &question).map_err(|e| BusError::os(what(), e))?;
    match abi::RegionInfo::read_from_prefix(&answer) {
        Ok((info, _)) => Ok((info, answer)),
        Err(_) => Err(BusError::Protocol(format!("{}: the answer is too short", what()))),
    }
}

/// Offset and length of each area of a sparse mmap capability, in ascending order.
fn parse_areas(capability: &[u8]) -> Vec<(u64, u64)> {
    let Ok((head, rest)) = abi::SparseHeader::ref_from_prefix(capability) else { return Vec::new() };
    let mut areas: Vec<_> = rest
        .chunks_exact(size_of::<abi::SparseArea>())
        .take(head.areas.get() as usize)
        .filter_map(|bytes| abi::SparseArea::read_from_bytes(bytes).ok())
        .map(|area| (area.offset.get(), area.size.get()))
        .filter(|(_, length)| *length > 0)
        .collect();
    areas.sort_unstable();
    areas
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn areas_that_can_be_mapped_are_sorted_and_empty_ones_left_out() {
        let mut bytes = vec![3, 0, 0, 0, 0, 0, 0, 0];
        for number in [0x4000u64, 0x1000, 0, 0, 0, 0x2000] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        assert_eq!(parse_areas(&bytes), [(0, 0x2000), (0x4000, 0x1000)]);
        // More announced than there is.
        bytes[0] = 9;
        assert_eq!(parse_areas(&bytes[..30]), [(0x4000, 0x1000)]);
        assert_eq!(parse_areas(&[1]), []);
    }
}
