//! What a server has: regions, windows and vectors.

#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::os::fd::OwnedFd;

use rustix::fs::SealFlags;
use zerocopy::{FromBytes, IntoBytes};

use super::channel::Channel;
use crate::function::CONFIG_SPACE_BYTES;
use crate::mem::PAGE_BYTES;
use crate::vfio_user::wire::{self, Command};
use crate::{BarLayout, BusError, Region, Window};

/// Room we give the answer about a region at first, and at most.
const REGION_INFO_BYTES: u32 = 4096;
const REGION_INFO_BYTES_MAX: u32 = 64 << 10;
/// Most windows a BAR may have.
const WINDOWS_MAX: u32 = 64;
/// Most entries of an MSI-X table (PCI 3.0, 6.8.2).
const VECTORS_MAX: u32 = 2048;

/// A device, as its server describes it.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) bars: [Option<BarLayout>; wire::BARS],
    /// Bytes of configuration space that can be accessed.
    pub(crate) config_bytes: u64,
    /// MSI-X vectors.
    pub(crate) vectors: u16,
    pub(crate) resettable: bool,
}

/// Asks a server for all of it.
pub(crate) fn device(channel: &Channel) -> Result<Device, BusError> {
    let question = wire::DeviceInfo {
        argsz: (size_of::<wire::DeviceInfo>() as u32).into(),
        flags: 0.into(),
        regions: 0.into(),
        irqs: 0.into(),
    };
    let (answer, _) = channel.call(Command::DEVICE_GET_INFO, &[question.as_bytes()], &[])?;
    let Ok((info, _)) = wire::DeviceInfo::ref_from_prefix(&answer) else {
        return Err(channel.nonsense("the answer to DEVICE_GET_INFO is too short"));
    };
    let (flags, regions) = (info.flags.get(), info.regions.get());
    if flags & wire::DEVICE_PCI == 0 || regions <= wire::REGION_CONFIG {
        return Err(channel.nonsense("it is not a PCI device"));
    }
    let mut bars = [const { None }; wire::BARS];
    for (index, bar) in (0..).zip(bars.iter_mut()) {
        *bar = region(channel, index)?.layout(channel)?;
    }
    let config = region(channel, wire::REGION_CONFIG)?;
    let vectors = if info.irqs.get() > wire::IRQ_MSIX { vectors(channel)? } else { 0 };
    Ok(Device {
        bars,
        config_bytes: config.info.size.get().min(CONFIG_SPACE_BYTES as u64),
        vectors,
        resettable: flags & wire::DEVICE_RESETTABLE != 0,
    })
}

fn vectors(channel: &Channel) -> Result<u16, BusError> {
    let question = wire::IrqInfo {
        argsz: (size_of::<wire::IrqInfo>() as u32).into(),
        flags: 0.into(),
        index: wire::IRQ_MSIX.into(),
        count: 0.into(),
    };
    let (answer, _) = channel.call(Command::DEVICE_GET_IRQ_INFO, &[question.as_bytes()], &[])?;
    let Ok((info, _)) = wire::IrqInfo::ref_from_prefix(&answer) else {
        return Err(channel.nonsense("the answer to DEVICE_GET_IRQ_INFO is too short"));
    };
    if info.flags.get() & wire::IRQ_EVENTFD == 0 {
        return Ok(0);
    }
    match u16::try_from(info.count.get()) {
        Ok(count) if u32::from(count) <= VECTORS_MAX => Ok(count),
        _ => Err(channel.nonsense("it has more MSI-X vectors than a table can hold")),
    }
}

/// The answer about one region.
struct Answer {
    info: wire::RegionInfo,
    /// All of it, `info` included: capabilities are found by their offset from there.
    bytes: Vec<u8>,
    fds: Vec<OwnedFd>,
}

fn region(channel: &Channel, index: u32) -> Result<Answer, BusError> {
    let mut room = REGION_INFO_BYTES;
    loop {
        let question = wire::RegionInfo {
            argsz: room.into(),
            flags: 0.into(),
            index: index.into(),
            cap_offset: 0.into(),
            size: 0.into(),
            offset: 0.into(),
        };
        let (bytes, fds) = channel.call(Command::DEVICE_GET_REGION_INFO, &[question.as_bytes()], &[])?;
        let Ok((info, _)) = wire::RegionInfo::read_from_prefix(&bytes) else {
            return Err(channel.nonsense("the answer to DEVICE_GET_REGION_INFO is too short"));
        };
        match info.argsz.get() {
            needed if needed <= room => return Ok(Answer { info, bytes, fds }),
            // Asked once more: a server that then wants still more would go on like that.
            needed if needed <= REGION_INFO_BYTES_MAX && room == REGION_INFO_BYTES => room = needed,
            _ => return Err(channel.nonsense("the information about a region is too long")),
        }
    }
}

impl Answer {
    fn layout(self, channel: &Channel) -> Result<Option<BarLayout>, BusError> {
        let bytes = self.info.size.get();
        if bytes == 0 {
            return Ok(None);
        }
        let mappable = wire::REGION_MAPPABLE | wire::REGION_READABLE | wire::REGION_WRITABLE;
        let mut windows = Vec::new();
        // Windows that can only be read or only be written are left to messages.
        if self.info.flags.get() & mappable == mappable && !self.fds.is_empty() {
            let Some(areas) = self.areas() else {
                return Err(channel.nonsense("the windows of a BAR are not within it"));
            };
            for (nth, (offset, length)) in areas.into_iter().enumerate() {
                // One descriptor for the BAR, or one for each window.
                let fd = if self.fds.len() == 1 { self.fds.first() } else { self.fds.get(nth) };
                windows.extend(fd.and_then(|fd| self.map(fd, offset, length)));
            }
        }
        Ok(Some(BarLayout { bytes, windows }))
    }

    /// Offset and length of each window, in ascending order; `None` when they make no sense.
    fn areas(&self) -> Option<Vec<(u64, u64)>> {
        let size = self.info.size.get();
        let mut areas = Vec::new();
        match self.sparse_mmap()? {
            // Without the capability all of the BAR can be mapped.
            None => areas.push((0, size)),
            Some(list) => {
                let areas_of = |a: &wire::SparseArea| (a.offset.get(), a.size.get());
                areas.extend(list.iter().map(areas_of).filter(|&(_, length)| length > 0));
            }
        }
        areas.sort_unstable();
        let mut end = 0;
        for &(offset, length) in &areas {
            let aligned = [offset, length].iter().all(|v| v.is_multiple_of(PAGE_BYTES as u64));
            if !aligned || offset < end {
                return None;
            }
            end = offset.checked_add(length).filter(|&end| end <= size)?;
        }
        Some(areas)
    }

    /// The areas of the sparse mmap capability if there is one; `None` when the list of capabilities is
    /// broken.
    fn sparse_mmap(&self) -> Option<Option<&[wire::SparseArea]>> {
        if self.info.flags.get() & wire::REGION_HAS_CAPS == 0 {
            return Some(None);
        }
        let mut at = usize::try_from(self.info.cap_offset.get()).ok()?;
        // Each step goes forward, so that there is an end.
        while at >= size_of::<wire::RegionInfo>() {
            let (header, rest) = wire::CapHeader::ref_from_prefix(self.bytes.get(at..)?).ok()?;
            if header.id.get() == wire::CAP_SPARSE_MMAP {
                let (sparse, rest) = wire::SparseHeader::ref_from_prefix(rest).ok()?;
                let count = usize::try_from(sparse.areas.get().min(WINDOWS_MAX.saturating_add(1))).ok()?;
                if count > usize::try_from(WINDOWS_MAX).ok()? {
                    return None;
                }
                let (areas, _) = <[wire::SparseArea]>::ref_from_prefix_with_elems(rest, count).ok()?;
                return Some(Some(areas));
            }
            let next = usize::try_from(header.next.get()).ok()?;
            if next != 0 && next <= at {
                return None;
            }
            at = next;
        }
        (at == 0).then_some(None)
    }

    /// Maps a window. One that cannot be mapped is reached by message, as the protocol has it.
    fn map(&self, fd: &OwnedFd, offset: u64, length: u64) -> Option<Window> {
        let at = self.info.offset.get().checked_add(offset)?;
        let bytes = usize::try_from(length).ok()?;
        let sealed = rustix::fs::fcntl_get_seals(fd).is_ok_and(|seals| seals.contains(SealFlags::SHRINK));
        let region = fd
            .try_clone()
            .map_err(|e| BusError::os("duplicate a descriptor", e))
            .and_then(|fd| Region::from_fd(fd, at, bytes, true));
        match region {
            Ok(region) => {
                tracing::debug!(offset, length, sealed, "vfio-user: window mapped");
                Some(Window { offset, region })
            }
            Err(error) => {
                tracing::warn!(offset, length, %error, "vfio-user: a window is reached by message");
                None
            }
        }
    }
}
