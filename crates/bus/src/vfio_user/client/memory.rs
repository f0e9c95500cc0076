//! Memory accesses a server makes by message.

#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use rustix::io::Errno;
use zerocopy::{FromBytes, IntoBytes};

use crate::AddressSpace;
use crate::space::Direction;
use crate::vfio_user::wire::{self, Command, HEADER_BYTES};

/// Carries out a DMA_READ or DMA_WRITE: the reply, its header still to be filled in.
///
/// The errno of an `Err` is for the reply: EINVAL for a malformed message, EFAULT for memory that is not
/// mapped for that direction, ENOSYS for any other command. A write that fails midway has written what came
/// before.
pub(crate) fn serve(memory: &AddressSpace, command: Command, payload: &[u8]) -> Result<Vec<u8>, Errno> {
    let (access, data) = wire::DmaAccess::ref_from_prefix(payload).map_err(|_| match command {
        Command::DMA_READ | Command::DMA_WRITE => Errno::INVAL,
        _ => Errno::NOSYS,
    })?;
    let (iova, count) = (access.iova.get(), usize::try_from(access.count.get()).map_err(|_| Errno::INVAL)?);
    if count > wire::DATA_BYTES_MAX {
        return Err(Errno::INVAL);
    }
    let mut reply = vec![0; HEADER_BYTES];
    reply.extend_from_slice(access.as_bytes());
    match command {
        Command::DMA_READ if data.is_empty() => {
            let start = reply.len();
            reply.resize(start.saturating_add(count), 0);
            read(memory, iova, reply.get_mut(start..).unwrap_or_default())?;
        }
        Command::DMA_WRITE if data.len() == count => write(memory, iova, data)?,
        Command::DMA_READ | Command::DMA_WRITE => return Err(Errno::INVAL),
        _ => return Err(Errno::NOSYS),
    }
    Ok(reply)
}

fn read(memory: &AddressSpace, iova: u64, out: &mut [u8]) -> Result<(), Errno> {
    let mappings = memory.view();
    let (mut iova, mut out) = (iova, out);
    while !out.is_empty() {
        let place = mappings.find(iova, out.len(), Direction::Read).ok_or(Errno::FAULT)?;
        let (now, later) = out.split_at_mut_checked(place.bytes).ok_or(Errno::FAULT)?;
        mappings.region(place).read(place.offset, now);
        iova = iova.checked_add(place.bytes as u64).ok_or(Errno::FAULT)?;
        out = later;
    }
    Ok(())
}

fn write(memory: &AddressSpace, iova: u64, data: &[u8]) -> Result<(), Errno> {
    let mappings = memory.view();
    let (mut iova, mut data) = (iova, data);
    while !data.is_empty() {
        let place = mappings.find(iova, data.len(), Direction::Write).ok_or(Errno::FAULT)?;
        let (now, later) = data.split_at_checked(place.bytes).ok_or(Errno::FAULT)?;
        mappings.region(place).write(place.offset, now);
        iova = iova.checked_add(place.bytes as u64).ok_or(Errno::FAULT)?;
        data = later;
    }
    Ok(())
}
