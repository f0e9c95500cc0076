//! Interrupts of a device, as eventfds.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use zerocopy::{FromBytes, IntoBytes};

use super::abi;
use crate::{BusError, EventFd};

/// Most vectors that are switched on. An MSI-X table has up to 2048, and each takes memory and a number in
/// the kernel; a host wants one for each queue it sleeps on.
const VECTORS_MAX: u32 = 512;

/// Switches MSI-X on with every vector going nowhere, and returns how many there are: as many as the device
/// has, or as the system gives. All at once, because kernels before 6.5 cannot add any later.
pub(super) fn enable(device: &OwnedFd) -> Result<u16, BusError> {
    let mut count = count(device, abi::IRQ_MSIX)?.min(VECTORS_MAX);
    while count > 0 {
        match set(device, abi::IRQ_MSIX, 0, &vec![-1; count as usize]) {
            Ok(0) => break,
            // So many could be had, and none were taken.
            Ok(fewer) => count = u32::try_from(fewer).unwrap_or(0).min(count - 1),
            Err(e) => return Err(BusError::os(format!("switch {count} MSI-X vectors on"), e)),
        }
    }
    Ok(count as u16)
}

/// Delivers a vector to `event`, or to nobody.
pub(super) fn deliver(device: &OwnedFd, vector: u16, event: Option<&EventFd>) -> Result<(), BusError> {
    let fd = event.map_or(-1, |event| event.as_fd().as_raw_fd());
    match set(device, abi::IRQ_MSIX, vector.into(), &[fd]) {
        Ok(0) => Ok(()),
        Ok(_) => Err(BusError::Unsupported(format!("the system has no interrupt left for vector {vector}"))),
        Err(e) => Err(BusError::os(format!("deliver interrupt vector {vector}"), e)),
    }
}

/// An event for the kernel's wish to have the device back; `None` when this kernel has no such wish.
pub(super) fn request_event(device: &OwnedFd) -> Option<EventFd> {
    if count(device, abi::IRQ_REQUEST).ok()? == 0 {
        return None;
    }
    let event = EventFd::new().ok()?;
    matches!(set(device, abi::IRQ_REQUEST, 0, &[event.as_fd().as_raw_fd()]), Ok(0)).then_some(event)
}

/// Vectors of an index that can go to eventfds.
fn count(device: &OwnedFd, index: u32) -> Result<u32, BusError> {
    let question = abi::IrqInfo { argsz: 0.into(), flags: 0.into(), index: index.into(), count: 0.into() };
    let bytes = abi::ask(device, abi::DEVICE_GET_IRQ_INFO, &question)
        .map_err(|e| BusError::os(format!("{} {index}", abi::DEVICE_GET_IRQ_INFO.name), e))?;
    let Ok((info, _)) = abi::IrqInfo::ref_from_prefix(&bytes) else { return Ok(0) };
    Ok(if info.flags.get() & abi::IRQ_EVENTFD == 0 { 0 } else { info.count.get() })
}

/// Sets the eventfds from `start` on; -1 is none. A positive number means that so many vectors could have
/// been had.
fn set(device: &OwnedFd, index: u32, start: u32, fds: &[i32]) -> io::Result<i32> {
    let head = abi::SetIrqs {
        argsz: 0.into(),
        flags: (abi::IRQ_DATA_EVENTFD | abi::IRQ_ACTION_TRIGGER).into(),
        index: index.into(),
        start: start.into(),
        count: (fds.len() as u32).into(),
    };
    let mut bytes = head.as_bytes().to_vec();
    bytes.extend_from_slice(fds.as_bytes());
    abi::exchange(device, abi::DEVICE_SET_IRQS, &mut bytes)
}
