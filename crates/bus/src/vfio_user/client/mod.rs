//! A function that another process serves.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use rustix::io::Errno;
use zerocopy::{FromBytes, IntoBytes};

use self::channel::Channel;
use self::discover::Device;
use super::socket::{Socket, address, socket_path, unix_socket};
use super::wire::{self, Command};
use crate::function::{CONFIG_SPACE_BYTES, DmaAddressing};
use crate::lock;
use crate::{AddressSpace, BarLayout, BusError, Dma, DmaAccess, EventFd, Function, Region};

mod channel;
mod discover;
mod memory;

/// How long the server may take for one answer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A function behind a vfio-user socket.
///
/// Every call is one message and its answer, except stores to [windows](crate::Window), which are shared
/// memory. When the server dies, calls fail with [`BusError::Gone`] at once and for good; windows stay
/// mapped, so a store to one is harmless.
///
/// A server that was given no descriptor, or wants none, may read and write mapped memory by message. Such a
/// message is answered while any call is under way, [`Function::is_gone`] and [`Function::advance`] included;
/// no thread waits for them.
pub struct Client {
    channel: Channel,
    device: Device,
    /// Mapped ranges by first address: their length. Held across the message that changes them.
    ranges: Mutex<BTreeMap<u64, u64>>,
}

impl Client {
    /// Attaches to the server that listens on `path`, or on `cntrl` in it when it is a folder. Errors:
    /// [`BusError::Os`] when nobody listens there or the server refuses, [`BusError::Timeout`] when it does
    /// not answer within five seconds, [`BusError::Protocol`] when it is no PCI device or talks nonsense.
    pub fn connect(path: &Path) -> Result<Arc<Self>, BusError> {
        let path = socket_path(path);
        let socket = unix_socket()?;
        rustix::net::connect(&socket, &address(&path)?).map_err(|e| {
            let hint = match e {
                Errno::AGAIN => " (other clients are waiting)",
                Errno::CONNREFUSED => " (nobody serves it any more)",
                _ => "",
            };
            BusError::os(format!("connect to {}{hint}", path.display()), e)
        })?;
        Self::attach(path.display().to_string(), socket, TIMEOUT)
    }

    /// Attaches to the server at the other end of a connected stream socket, which has `timeout` for each
    /// answer. Errors: as [`Client::connect`].
    pub fn from_stream(stream: OwnedFd, timeout: Duration) -> Result<Arc<Self>, BusError> {
        Self::attach("vfio-user connection".into(), stream, timeout)
    }

    fn attach(name: String, stream: OwnedFd, timeout: Duration) -> Result<Arc<Self>, BusError> {
        let channel = Channel::open(name, Socket::new(stream)?, timeout)?;
        let device = discover::device(&channel)?;
        Ok(Arc::new(Self { channel, device, ranges: Mutex::default() }))
    }

    fn ranges(&self) -> MutexGuard<'_, BTreeMap<u64, u64>> {
        // The table is changed only after the server has agreed: a panic elsewhere leaves it whole.
        lock(&self.ranges)
    }

    fn memory(&self) -> &AddressSpace {
        self.channel.memory()
    }

    fn region_read(&self, region: u32, offset: u64, out: &mut [u8]) -> Result<(), BusError> {
        let limit = self.channel.data_bytes_max();
        let mut at = offset;
        for piece in out.chunks_mut(limit) {
            let count = piece.len() as u32;
            let access = wire::RegionAccess { offset: at.into(), region: region.into(), count: count.into() };
            let (answer, _) = self.channel.call(Command::REGION_READ, &[access.as_bytes()], &[])?;
            match wire::RegionAccess::ref_from_prefix(&answer) {
                Ok((echo, data)) if echo.count.get() == count && data.len() == piece.len() => {
                    piece.copy_from_slice(data);
                }
                _ => return Err(self.channel.nonsense("the answer to REGION_READ has another length")),
            }
            at += u64::from(count);
        }
        Ok(())
    }

    fn region_write(&self, region: u32, offset: u64, data: &[u8]) -> Result<(), BusError> {
        let limit = self.channel.data_bytes_max();
        let mut at = offset;
        for piece in data.chunks(limit) {
            let count = piece.len() as u32;
            let access = wire::RegionAccess { offset: at.into(), region: region.into(), count: count.into() };
            self.channel.call(Command::REGION_WRITE, &[access.as_bytes(), piece], &[])?;
            at += u64::from(count);
        }
        Ok(())
    }

    fn check_bar(&self, index: usize, offset: u64, bytes: usize) -> Result<u32, BusError> {
        let Some(layout) = self.device.bars.get(index).and_then(Option::as_ref) else {
            return Err(BusError::Unsupported(format!("{} has no BAR {index}", self.channel.name())));
        };
        BusError::check_range("a BAR", offset, bytes, layout.bytes)?;
        Ok(index as u32)
    }

    fn unmap_range(&self, iova: u64, length: u64) -> Result<(), BusError> {
        let unmap = wire::DmaUnmap {
            argsz: (size_of::<wire::DmaUnmap>() as u32).into(),
            flags: 0.into(),
            iova: iova.into(),
            length: length.into(),
        };
        let outcome = self.channel.call(Command::DMA_UNMAP, &[unmap.as_bytes()], &[]);
        // A server that is gone reaches nothing any more.
        if outcome.is_ok() || matches!(outcome, Err(BusError::Gone(_))) {
            self.memory().unmap(iova, length)?;
        }
        outcome.map(|_| ())
    }
}

impl Dma for Client {
    fn dma_map(&self, iova: u64, region: &Region, access: DmaAccess) -> Result<(), BusError> {
        let Some((fd, offset)) = region.backing() else {
            return Err(BusError::Unsupported(
                "memory that is private to this process cannot be mapped for a device in another one".into(),
            ));
        };
        let length = region.len() as u64;
        let readable = if access.read { wire::DMA_READABLE } else { 0 };
        let writable = if access.write { wire::DMA_WRITABLE } else { 0 };
        let map = wire::DmaMap {
            argsz: (size_of::<wire::DmaMap>() as u32).into(),
            flags: (readable | writable).into(),
            offset: offset.into(),
            iova: iova.into(),
            length: length.into(),
        };
        let mut ranges = self.ranges();
        // First here, where a bad range is an error of its own, and where the server may reach by message at
        // once.
        self.memory().map(iova, region, access)?;
        match self.channel.call(Command::DMA_MAP, &[map.as_bytes()], &[fd.as_fd()]) {
            Ok(_) => {
                ranges.insert(iova, length);
                Ok(())
            }
            Err(e) => {
                self.memory().unmap(iova, length)?;
                Err(e)
            }
        }
    }

    fn dma_unmap(&self, iova: u64, length: u64) -> Result<(), BusError> {
        let refuse = |reason| Err(BusError::Dma { iova, length, reason });
        let Some(end) = iova.checked_add(length) else { return refuse("wraps around the address space") };
        let mut ranges = self.ranges();
        let cut =
            |(&start, &bytes): (&u64, &u64)| start < iova && start + bytes > iova || start + bytes > end;
        if ranges.range(..end).next_back().is_some_and(cut)
            || ranges.range(..iova).next_back().is_some_and(cut)
        {
            return refuse("cuts a mapped range in two");
        }
        let within: Vec<(u64, u64)> =
            ranges.range(iova..end).map(|(&start, &bytes)| (start, bytes)).collect();
        if within.is_empty() {
            return refuse("nothing is mapped there");
        }
        // One message per range: some servers take back exactly what was mapped and nothing else.
        for (start, bytes) in within {
            let outcome = self.unmap_range(start, bytes);
            if outcome.is_ok() || matches!(outcome, Err(BusError::Gone(_))) {
                ranges.remove(&start);
            }
            outcome?;
        }
        Ok(())
    }

    fn dma_addressing(&self) -> DmaAddressing {
        DmaAddressing::Chosen(self.channel.addresses())
    }
}

impl Function for Client {
    fn config_read(&self, offset: usize, out: &mut [u8]) -> Result<(), BusError> {
        BusError::check_range("configuration space", offset as u64, out.len(), self.device.config_bytes)?;
        self.region_read(wire::REGION_CONFIG, offset as u64, out)
    }

    fn config_write(&self, offset: usize, data: &[u8]) -> Result<(), BusError> {
        BusError::check_range("configuration space", offset as u64, data.len(), self.device.config_bytes)?;
        self.region_write(wire::REGION_CONFIG, offset as u64, data)
    }

    fn bar(&self, index: usize) -> Result<Option<BarLayout>, BusError> {
        Ok(self.device.bars.get(index).cloned().flatten())
    }

    fn bar_read(&self, index: usize, offset: u64, out: &mut [u8]) -> Result<(), BusError> {
        let region = self.check_bar(index, offset, out.len())?;
        self.region_read(region, offset, out)
    }

    fn bar_write(&self, index: usize, offset: u64, data: &[u8]) -> Result<(), BusError> {
        let region = self.check_bar(index, offset, data.len())?;
        self.region_write(region, offset, data)
    }

    fn vectors(&self) -> u16 {
        self.device.vectors
    }

    fn set_vector(&self, vector: u16, event: Option<EventFd>) -> Result<(), BusError> {
        BusError::check_range("the interrupt vectors", vector.into(), 1, self.device.vectors.into())?;
        let set = wire::SetIrqs {
            argsz: (size_of::<wire::SetIrqs>() as u32).into(),
            flags: (wire::IRQ_DATA_EVENTFD | wire::IRQ_ACTION_TRIGGER).into(),
            index: wire::IRQ_MSIX.into(),
            start: u32::from(vector).into(),
            count: 1.into(),
        };
        // No descriptor means nobody.
        let fd = event.as_ref().map(AsFd::as_fd);
        self.channel.call(Command::DEVICE_SET_IRQS, &[set.as_bytes()], fd.as_slice()).map(|_| ())
    }

    fn reset(&self) -> Result<(), BusError> {
        if !self.device.resettable {
            return Err(BusError::Unsupported(format!("{} cannot be reset", self.channel.name())));
        }
        self.channel.call(Command::DEVICE_RESET, &[], &[]).map(|_| ())
    }

    fn advance(&self, _lane: Option<u16>, _clock: &crate::Clock) -> usize {
        self.channel.answer_server()
    }

    fn is_gone(&self) -> bool {
        self.channel.answer_server();
        self.channel.is_gone()
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("server", &self.channel.name()).field("device", &self.device).finish()
    }
}

// Configuration space never reaches beyond what the trait promises.
const _: () = assert!(CONFIG_SPACE_BYTES == 4096);
