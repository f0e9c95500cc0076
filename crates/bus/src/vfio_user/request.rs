//! From the bytes of a command to a typed [`Request`]: every length, count and flag is checked here, once.

#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use rustix::io::Errno;
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::version::Capabilities;
use super::wire::{self, Command};
use crate::DmaAccess;
use crate::mem::PAGE_BYTES;

/// A command of a client, checked as far as that is possible without knowing the device.
#[derive(Debug)]
pub(crate) enum Request<'a> {
    Version { minor: u16, capabilities: Capabilities },
    DmaMap(DmaMap),
    DmaUnmap(DmaUnmap),
    DeviceInfo,
    RegionInfo { index: u32, argsz: u32 },
    IrqInfo { index: u32 },
    SetIrqs(SetIrqs<'a>),
    RegionRead { region: u32, offset: u64, count: u32 },
    RegionWrite { region: u32, offset: u64, data: &'a [u8] },
    RegionWriteMulti(&'a [wire::MultiWrite]),
    Reset,
}

/// A range of host memory to be mapped; page aligned, not empty, not wrapping around.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DmaMap {
    pub(crate) iova: u64,
    pub(crate) length: u64,
    /// Offset in the object behind the descriptor.
    pub(crate) offset: u64,
    pub(crate) access: DmaAccess,
}

/// A range to be taken back; `None` for everything.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DmaUnmap {
    pub(crate) range: Option<(u64, u64)>,
    /// As it came, for the reply.
    pub(crate) echo: wire::DmaUnmap,
}

/// A change to the vectors `start..start + count` of an interrupt index.
#[derive(Debug)]
pub(crate) struct SetIrqs<'a> {
    pub(crate) index: u32,
    pub(crate) start: u32,
    pub(crate) count: u32,
    pub(crate) action: IrqAction<'a>,
}

/// What happens to the vectors.
#[derive(Debug)]
pub(crate) enum IrqAction<'a> {
    /// Deliver to the descriptors that came along, or to nobody when none did.
    Assign,
    /// Deliver once, as the device would; with no vectors named, take back all that are assigned.
    Trigger,
    /// Deliver once the vectors whose byte is not zero.
    TriggerSome(&'a [u8]),
    /// Mask or unmask.
    Mask,
}

/// Reads a command.
///
/// The errno of an `Err` is for the reply: EINVAL for what is malformed, ENOTSUP for what the protocol has
/// and we do not, ENOSYS for what the protocol does not have.
pub(crate) fn parse(command: Command, payload: &[u8]) -> Result<Request<'_>, Errno> {
    match command {
        Command::VERSION => version(payload),
        Command::DMA_MAP => dma_map(payload),
        Command::DMA_UNMAP => dma_unmap(payload),
        Command::DEVICE_GET_INFO => {
            prefix::<wire::DeviceInfo>(payload, |p| p.argsz.get())?;
            Ok(Request::DeviceInfo)
        }
        Command::DEVICE_GET_REGION_INFO => {
            // SPDK sends as many bytes as it would take in the reply; those after the structure mean nothing.
            let (info, _) = prefix::<wire::RegionInfo>(payload, |p| p.argsz.get())?;
            Ok(Request::RegionInfo { index: info.index.get(), argsz: info.argsz.get() })
        }
        Command::DEVICE_GET_IRQ_INFO => {
            let (info, _) = prefix::<wire::IrqInfo>(payload, |p| p.argsz.get())?;
            Ok(Request::IrqInfo { index: info.index.get() })
        }
        Command::DEVICE_SET_IRQS => set_irqs(payload),
        Command::REGION_READ => {
            let (access, _) = region_access(payload)?;
            let (region, offset, count) = (access.region.get(), access.offset.get(), access.count.get());
            Ok(Request::RegionRead { region, offset, count })
        }
        Command::REGION_WRITE => {
            let (access, data) = region_access(payload)?;
            if u64::from(access.count.get()) != data.len() as u64 {
                return Err(Errno::INVAL);
            }
            Ok(Request::RegionWrite { region: access.region.get(), offset: access.offset.get(), data })
        }
        Command::REGION_WRITE_MULTI => region_write_multi(payload),
        Command::DEVICE_RESET if payload.is_empty() => Ok(Request::Reset),
        Command::DEVICE_RESET => Err(Errno::INVAL),
        Command::DEVICE_GET_REGION_IO_FDS | Command::DIRTY_PAGES => Err(Errno::NOTSUP),
        _ => Err(Errno::NOSYS),
    }
}

/// The structure at the start of a payload, and what follows. Its `argsz` must cover it.
fn prefix<T: FromBytes + KnownLayout + Immutable + Unaligned>(
    payload: &[u8],
    argsz: impl Fn(&T) -> u32,
) -> Result<(&T, &[u8]), Errno> {
    let (value, rest) = T::ref_from_prefix(payload).map_err(|_| Errno::INVAL)?;
    let covered = u64::from(argsz(value)) >= size_of::<T>() as u64;
    covered.then_some((value, rest)).ok_or(Errno::INVAL)
}

fn version(payload: &[u8]) -> Result<Request<'_>, Errno> {
    let (version, text) = wire::Version::ref_from_prefix(payload).map_err(|_| Errno::INVAL)?;
    if version.major.get() != wire::VERSION_MAJOR {
        return Err(Errno::NOTSUP);
    }
    let capabilities = Capabilities::parse(text).ok_or(Errno::INVAL)?;
    Ok(Request::Version { minor: version.minor.get().min(wire::VERSION_MINOR), capabilities })
}

fn dma_map(payload: &[u8]) -> Result<Request<'_>, Errno> {
    let (map, _) = prefix::<wire::DmaMap>(payload, |p| p.argsz.get())?;
    let (iova, length, offset) = (map.iova.get(), map.length.get(), map.offset.get());
    let flags = map.flags.get();
    let access = DmaAccess { read: flags & wire::DMA_READABLE != 0, write: flags & wire::DMA_WRITABLE != 0 };
    let known = wire::DMA_READABLE | wire::DMA_WRITABLE | wire::DMA_MAPPABLE;
    if flags & !known != 0 || !(access.read || access.write) {
        return Err(Errno::INVAL);
    }
    let aligned = [iova, length, offset].iter().all(|v| v.is_multiple_of(PAGE_BYTES as u64));
    if !aligned || length == 0 || iova.checked_add(length).is_none() || offset.checked_add(length).is_none() {
        return Err(Errno::INVAL);
    }
    Ok(Request::DmaMap(DmaMap { iova, length, offset, access }))
}

fn dma_unmap(payload: &[u8]) -> Result<Request<'_>, Errno> {
    let (unmap, _) = prefix::<wire::DmaUnmap>(payload, |p| p.argsz.get())?;
    let (iova, length) = (unmap.iova.get(), unmap.length.get());
    let range = match unmap.flags.get() {
        0 if length > 0 && iova.checked_add(length).is_some() => Some((iova, length)),
        wire::UNMAP_ALL if iova == 0 && length == 0 => None,
        0 | wire::UNMAP_ALL => return Err(Errno::INVAL),
        // Dirty page bitmaps, and taking back addresses while keeping the mapping.
        _ => return Err(Errno::NOTSUP),
    };
    Ok(Request::DmaUnmap(DmaUnmap { range, echo: *unmap }))
}

fn set_irqs(payload: &[u8]) -> Result<Request<'_>, Errno> {
    let (set, data) = prefix::<wire::SetIrqs>(payload, |p| p.argsz.get())?;
    let (start, count) = (set.start.get(), set.count.get());
    let flags = set.flags.get();
    let data_flags = flags & (wire::IRQ_DATA_NONE | wire::IRQ_DATA_BOOL | wire::IRQ_DATA_EVENTFD);
    let action_flags = flags & (wire::IRQ_ACTION_MASK | wire::IRQ_ACTION_UNMASK | wire::IRQ_ACTION_TRIGGER);
    if flags != data_flags | action_flags {
        return Err(Errno::INVAL);
    }
    let action = match (action_flags, data_flags) {
        (wire::IRQ_ACTION_TRIGGER, wire::IRQ_DATA_NONE) => IrqAction::Trigger,
        (wire::IRQ_ACTION_TRIGGER, wire::IRQ_DATA_EVENTFD) => IrqAction::Assign,
        (wire::IRQ_ACTION_TRIGGER, wire::IRQ_DATA_BOOL) => {
            let wanted = usize::try_from(count).map_err(|_| Errno::INVAL)?;
            IrqAction::TriggerSome(data.get(..wanted).ok_or(Errno::INVAL)?)
        }
        (
            wire::IRQ_ACTION_MASK | wire::IRQ_ACTION_UNMASK,
            wire::IRQ_DATA_NONE | wire::IRQ_DATA_BOOL | wire::IRQ_DATA_EVENTFD,
        ) => IrqAction::Mask,
        // Two actions, two kinds of data, or none.
        _ => return Err(Errno::INVAL),
    };
    // Only "take back everything" names no vectors.
    if count == 0 && !(start == 0 && matches!(action, IrqAction::Trigger)) {
        return Err(Errno::INVAL);
    }
    Ok(Request::SetIrqs(SetIrqs { index: set.index.get(), start, count, action }))
}

fn region_access(payload: &[u8]) -> Result<(&wire::RegionAccess, &[u8]), Errno> {
    let (access, data) = wire::RegionAccess::ref_from_prefix(payload).map_err(|_| Errno::INVAL)?;
    if access.count.get() == 0 {
        return Err(Errno::INVAL);
    }
    Ok((access, data))
}

fn region_write_multi(payload: &[u8]) -> Result<Request<'_>, Errno> {
    let (count, rest) = payload.split_first_chunk::<8>().ok_or(Errno::INVAL)?;
    let writes = <[wire::MultiWrite]>::ref_from_bytes(rest).map_err(|_| Errno::INVAL)?;
    let whole = u64::from_le_bytes(*count) == writes.len() as u64
        && writes.iter().all(|w| (1..=8).contains(&w.count.get()));
    whole.then_some(Request::RegionWriteMulti(writes)).ok_or(Errno::INVAL)
}
