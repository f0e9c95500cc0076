//! One client of a function: what its messages do, without the socket they come over.

#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::collections::BTreeMap;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::FileType;
use rustix::io::Errno;
use zerocopy::{FromBytes, IntoBytes};

use super::bars::{Bar, Bars};
use super::ranges::{Range, Ranges};
use super::request::{DmaMap, DmaUnmap, IrqAction, Request, SetIrqs, parse};
use super::version::Capabilities;
use super::wire::{self, Command, HEADER_BYTES, Header};
use crate::function::{CONFIG_SPACE_BYTES, DmaAddressing, IOVA_RANGE};
use crate::mem::Watch;
use crate::{BusError, EventFd, Function, Region};

/// What to do after a message.
#[derive(Debug, Default)]
pub struct Reply {
    /// The message to send back; empty when none is due.
    pub bytes: Vec<u8>,
    /// Shared memory whose descriptor goes with it.
    pub window: Option<Region>,
    /// The client cannot be talked to any more: close the connection after the reply.
    pub hang_up: bool,
}

impl Reply {
    /// The descriptors that go with the message.
    pub fn fds(&self) -> Option<BorrowedFd<'_>> {
        self.window.as_ref().and_then(Region::backing).map(|(fd, _)| fd)
    }

    fn hang_up() -> Self {
        Self { hang_up: true, ..Self::default() }
    }
}

/// The state of one client's connection: what was negotiated, mapped and assigned.
///
/// Dropping it resets the function and takes everything back.
pub struct Session {
    function: Arc<dyn Function>,
    bars: Arc<Bars>,
    /// Set by VERSION, which must come first.
    capabilities: Option<Capabilities>,
    ranges: Ranges,
    vectors: BTreeMap<u16, EventFd>,
    /// Told when memory of the client goes away.
    watch: Watch,
}

impl Session {
    /// A session that awaits its VERSION. Errors: [`BusError::Unsupported`] when the function has a window
    /// that cannot be shared, or an error of the function.
    pub fn new(function: Arc<dyn Function>) -> Result<Self, BusError> {
        let bars = Arc::new(Bars::of(&*function)?);
        Ok(Self::with_bars(function, bars, None))
    }

    /// `event` is signalled when [`Session::has_lost_memory`] becomes true.
    pub(crate) fn with_bars(function: Arc<dyn Function>, bars: Arc<Bars>, event: Option<EventFd>) -> Self {
        let watch = Watch { gone: Some(Arc::default()), event };
        let (ranges, vectors) = (Ranges::default(), BTreeMap::new());
        Self { function, bars, capabilities: None, ranges, vectors, watch }
    }

    /// True once memory that the client has mapped went away under the device: nothing that it sent since can
    /// be relied on, and its session is to be ended.
    pub fn has_lost_memory(&self) -> bool {
        self.watch.gone.as_ref().is_some_and(|gone| gone.load(Ordering::Relaxed))
    }

    /// True once the client has introduced itself.
    pub fn is_negotiated(&self) -> bool {
        self.capabilities.is_some()
    }

    /// Carries out one message, header included. Descriptors it does not use are closed.
    pub fn handle(&mut self, message: &[u8], fds: Vec<OwnedFd>) -> Reply {
        let Ok((header, payload)) = Header::ref_from_prefix(message) else { return Reply::hang_up() };
        if usize::try_from(header.size.get()) != Ok(message.len()) || header.kind() != wire::TYPE_COMMAND {
            // We send no commands, so no replies are due to us.
            return Reply::hang_up();
        }
        let (id, command) = (header.id.get(), header.command());
        let mut answer = Answer { bytes: vec![0; HEADER_BYTES], window: None };
        let outcome = self.execute(command, payload, fds, &mut answer);
        // Without an agreed version nothing the client says later can be understood.
        let hang_up = self.capabilities.is_none();
        let wanted = header.flags.get() & wire::FLAG_NO_REPLY == 0;
        match outcome {
            Ok(()) if wanted => {
                wire::seal(&mut answer.bytes, id, command, wire::TYPE_REPLY);
                Reply { bytes: answer.bytes, window: answer.window, hang_up }
            }
            Err(errno) => {
                tracing::debug!(%command, error = %errno, "vfio-user: refused");
                // Errno values are small and positive.
                let code = errno.raw_os_error().unsigned_abs();
                let bytes = if wanted { wire::error_reply(id, command, code) } else { Vec::new() };
                Reply { bytes, window: None, hang_up }
            }
            Ok(()) => Reply { hang_up, ..Reply::default() },
        }
    }

    fn execute(
        &mut self,
        command: Command,
        payload: &[u8],
        fds: Vec<OwnedFd>,
        answer: &mut Answer,
    ) -> Result<(), Errno> {
        if (command == Command::VERSION) != self.capabilities.is_none() {
            return Err(Errno::INVAL);
        }
        match parse(command, payload)? {
            Request::Version { minor, capabilities } => self.version(minor, capabilities, answer),
            Request::DmaMap(map) => self.dma_map(map, fds)?,
            Request::DmaUnmap(unmap) => self.dma_unmap(unmap, answer)?,
            Request::DeviceInfo => answer.put(&wire::DeviceInfo {
                argsz: (size_of::<wire::DeviceInfo>() as u32).into(),
                flags: (wire::DEVICE_RESETTABLE | wire::DEVICE_PCI).into(),
                regions: wire::REGIONS.into(),
                irqs: wire::IRQS.into(),
            }),
            Request::RegionInfo { index, argsz } => self.region_info(index, argsz, answer)?,
            Request::IrqInfo { index } => self.irq_info(index, answer)?,
            Request::SetIrqs(set) => self.set_irqs(&set, fds)?,
            Request::RegionRead { region, offset, count } => {
                self.region_read(region, offset, count, answer)?
            }
            Request::RegionWrite { region, offset, data } => {
                self.region_write(region, offset, data)?;
                let count = u32::try_from(data.len()).map_err(|_| Errno::INVAL)?;
                answer.put(&wire::RegionAccess {
                    offset: offset.into(),
                    region: region.into(),
                    count: count.into(),
                });
            }
            Request::RegionWriteMulti(writes) => {
                for write in writes {
                    let bytes = usize::try_from(write.count.get()).map_err(|_| Errno::INVAL)?;
                    let data = write.data.get(..bytes).ok_or(Errno::INVAL)?;
                    self.region_write(write.region.get(), write.offset.get(), data)?;
                }
                answer.bytes.extend_from_slice(&(writes.len() as u64).to_le_bytes());
            }
            Request::Reset => self.function.reset().map_err(errno)?,
        }
        Ok(())
    }

    fn version(&mut self, minor: u16, capabilities: Capabilities, answer: &mut Answer) {
        answer.put(&wire::Version { major: wire::VERSION_MAJOR.into(), minor: minor.into() });
        // Nothing is said of what every host does anyway.
        let addresses = match self.function.dma_addressing() {
            DmaAddressing::Chosen(range) if range != IOVA_RANGE => Some(range),
            DmaAddressing::Chosen(_) | DmaAddressing::Physical => None,
        };
        answer.bytes.extend_from_slice(&capabilities.answer(addresses).text());
        self.capabilities = Some(capabilities);
    }

    fn dma_map(&mut self, map: DmaMap, mut fds: Vec<OwnedFd>) -> Result<(), Errno> {
        if fds.len() > 1 {
            return Err(Errno::INVAL);
        }
        if self.ranges.len() >= wire::DMA_RANGES_MAX {
            return Err(Errno::NOSPC);
        }
        let DmaMap { iova, length, offset, access } = map;
        if self.ranges.overlaps(iova, length) {
            return Err(Errno::EXIST);
        }
        let mapped = match fds.pop() {
            Some(fd) => {
                let bytes = usize::try_from(length).map_err(|_| Errno::INVAL)?;
                let region = Region::from_peer(fd, offset, bytes, access.write, self.watch.clone());
                let region = region.map_err(errno)?;
                self.function.dma_map(iova, &region, access).map_err(errno)?;
                true
            }
            // Memory that can be reached by message only. QEMU maps firmware and device memory like that,
            // which no device is ever pointed to, and complains when it is refused. It is remembered so that
            // it can be taken back; a device that is pointed there finds nothing mapped.
            None => {
                tracing::debug!(iova, length, "vfio-user: memory without a descriptor is not reachable");
                false
            }
        };
        self.ranges.insert(Range { iova, length, mapped });
        Ok(())
    }

    fn dma_unmap(&mut self, unmap: DmaUnmap, answer: &mut Answer) -> Result<(), Errno> {
        let ranges = match unmap.range {
            Some((iova, length)) => self.ranges.within(iova, length)?,
            None => self.ranges.all(),
        };
        for range in ranges {
            if range.mapped {
                self.function.dma_unmap(range.iova, range.length).map_err(errno)?;
            }
            self.ranges.remove(range.iova);
        }
        answer.put(&unmap.echo);
        Ok(())
    }

    fn region_info(&self, index: u32, argsz: u32, answer: &mut Answer) -> Result<(), Errno> {
        let whole = size_of::<wire::RegionInfo>() as u32;
        let mut info = wire::RegionInfo {
            argsz: whole.into(),
            flags: 0.into(),
            index: index.into(),
            cap_offset: 0.into(),
            size: 0.into(),
            offset: 0.into(),
        };
        let access = wire::REGION_READABLE | wire::REGION_WRITABLE;
        if index == wire::REGION_CONFIG {
            info.flags = access.into();
            info.size = (CONFIG_SPACE_BYTES as u64).into();
        } else if index >= wire::REGIONS {
            return Err(Errno::INVAL);
        }
        let Some(bar) = self.bars.get(index) else {
            answer.put(&info);
            return Ok(());
        };
        info.flags = access.into();
        info.size = bar.layout.bytes.into();
        let shares = self.capabilities.as_ref().is_some_and(|c| c.fds_max() > 0);
        let capability = if shares { sparse_mmap(bar) } else { Vec::new() };
        let needed =
            u32::try_from(capability.len()).ok().and_then(|c| c.checked_add(whole)).ok_or(Errno::INVAL)?;
        info.argsz = needed.into();
        // A client that took too little is told how much it takes, asks again, and is told about windows
        // then.
        let fits = !capability.is_empty() && argsz >= needed;
        if fits {
            info.flags = (access | wire::REGION_MAPPABLE | wire::REGION_HAS_CAPS).into();
            info.cap_offset = whole.into();
            info.offset = bar.base.into();
            answer.window = bar.layout.windows.first().map(|w| w.region.clone());
        }
        answer.put(&info);
        if fits {
            answer.bytes.extend_from_slice(&capability);
        }
        Ok(())
    }

    fn irq_info(&self, index: u32, answer: &mut Answer) -> Result<(), Errno> {
        if index >= wire::IRQS {
            return Err(Errno::INVAL);
        }
        let vectors = if index == wire::IRQ_MSIX { u32::from(self.function.vectors()) } else { 0 };
        answer.put(&wire::IrqInfo {
            argsz: (size_of::<wire::IrqInfo>() as u32).into(),
            flags: if vectors > 0 { wire::IRQ_EVENTFD } else { 0 }.into(),
            index: index.into(),
            count: vectors.into(),
        });
        Ok(())
    }

    fn set_irqs(&mut self, set: &SetIrqs<'_>, fds: Vec<OwnedFd>) -> Result<(), Errno> {
        if set.index >= wire::IRQS {
            return Err(Errno::INVAL);
        }
        let available = if set.index == wire::IRQ_MSIX { u32::from(self.function.vectors()) } else { 0 };
        let end = set.start.checked_add(set.count).filter(|&end| end <= available).ok_or(Errno::INVAL)?;
        // Within the number of vectors, so both ends fit.
        let vectors = u16::try_from(set.start).map_err(|_| Errno::INVAL)?
            ..u16::try_from(end).map_err(|_| Errno::INVAL)?;
        match set.action {
            IrqAction::Trigger if set.count == 0 && set.index == wire::IRQ_MSIX => {
                for vector in self.vectors.keys().copied().collect::<Vec<_>>() {
                    self.assign(vector, None)?;
                }
            }
            IrqAction::Trigger => self.trigger(vectors, |_| true),
            IrqAction::TriggerSome(wanted) => {
                self.trigger(vectors, |nth| wanted.get(nth).is_some_and(|&byte| byte != 0));
            }
            IrqAction::Assign if fds.is_empty() => {
                for vector in vectors {
                    self.assign(vector, None)?;
                }
            }
            IrqAction::Assign if fds.len() == vectors.len() => {
                if !fds.iter().all(may_be_eventfd) {
                    return Err(Errno::INVAL);
                }
                for (vector, fd) in vectors.zip(fds) {
                    self.assign(vector, Some(EventFd::from_fd(fd)))?;
                }
            }
            IrqAction::Assign => return Err(Errno::INVAL),
            // As the kernel's vfio-pci: MSI-X vectors are masked in their table, not here.
            IrqAction::Mask => return Err(Errno::NOTSUP),
        }
        Ok(())
    }

    fn assign(&mut self, vector: u16, event: Option<EventFd>) -> Result<(), Errno> {
        self.function.set_vector(vector, event.clone()).map_err(errno)?;
        match event {
            Some(event) => self.vectors.insert(vector, event),
            None => self.vectors.remove(&vector),
        };
        Ok(())
    }

    fn trigger(&self, vectors: std::ops::Range<u16>, wanted: impl Fn(usize) -> bool) {
        for (nth, vector) in vectors.enumerate() {
            if let Some(event) = self.vectors.get(&vector).filter(|_| wanted(nth)) {
                event.signal();
            }
        }
    }

    fn region_read(&self, region: u32, offset: u64, count: u32, answer: &mut Answer) -> Result<(), Errno> {
        let bytes = usize::try_from(count).map_err(|_| Errno::INVAL)?;
        let limit = self.capabilities.as_ref().map_or(0, Capabilities::data_bytes_max);
        // The limit comes before the allocation.
        if bytes > limit {
            return Err(Errno::INVAL);
        }
        answer.put(&wire::RegionAccess { offset: offset.into(), region: region.into(), count: count.into() });
        let start = answer.bytes.len();
        answer.bytes.resize(start.saturating_add(bytes), 0);
        let out = answer.bytes.get_mut(start..).unwrap_or_default();
        if region == wire::REGION_CONFIG {
            return self.function.config_read(config_offset(offset, bytes)?, out).map_err(errno);
        }
        let bar = self.bars.get(region).ok_or(Errno::INVAL)?;
        let index = usize::try_from(region).map_err(|_| Errno::INVAL)?;
        bar.read(&*self.function, index, offset, out).map_err(errno)
    }

    fn region_write(&self, region: u32, offset: u64, data: &[u8]) -> Result<(), Errno> {
        if data.len() > wire::DATA_BYTES_MAX {
            return Err(Errno::INVAL);
        }
        if region == wire::REGION_CONFIG {
            return self.function.config_write(config_offset(offset, data.len())?, data).map_err(errno);
        }
        let bar = self.bars.get(region).ok_or(Errno::INVAL)?;
        let index = usize::try_from(region).map_err(|_| Errno::INVAL)?;
        bar.write(&*self.function, index, offset, data).map_err(errno)
    }

    /// Leaves the function as the next client expects it. A connection that never introduced itself, such as
    /// a check whether anyone listens, leaves no trace.
    fn end(&mut self) {
        if self.capabilities.take().is_none() {
            return;
        }
        let mut failed = Vec::new();
        // The reset comes first: a function that still runs would find its queues unmapped.
        failed.extend(self.function.reset().err());
        for vector in std::mem::take(&mut self.vectors).into_keys() {
            failed.extend(self.function.set_vector(vector, None).err());
        }
        // In one call: with one for each range, a client that mapped tens of thousands would keep the next
        // one waiting.
        if let Some((iova, length)) = std::mem::take(&mut self.ranges).mapped_span() {
            failed.extend(self.function.dma_unmap(iova, length).err());
        }
        for error in failed {
            tracing::warn!(%error, "vfio-user: clean up after a client");
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.end();
    }
}

/// A reply in the making: room for the header, then the payload.
struct Answer {
    bytes: Vec<u8>,
    window: Option<Region>,
}

impl Answer {
    fn put<T: IntoBytes + zerocopy::Immutable>(&mut self, value: &T) {
        self.bytes.extend_from_slice(value.as_bytes());
    }
}

/// The capability that lists a BAR's windows; empty when there are none.
fn sparse_mmap(bar: &Bar) -> Vec<u8> {
    let mut out = Vec::new();
    let Ok(areas) = u32::try_from(bar.layout.windows.len()) else { return out };
    if areas == 0 {
        return out;
    }
    let header = wire::CapHeader { id: wire::CAP_SPARSE_MMAP.into(), version: 1.into(), next: 0.into() };
    out.extend_from_slice(header.as_bytes());
    out.extend_from_slice(wire::SparseHeader { areas: areas.into(), reserved: 0.into() }.as_bytes());
    for window in &bar.layout.windows {
        let size = window.region.len() as u64;
        out.extend_from_slice(
            wire::SparseArea { offset: window.offset.into(), size: size.into() }.as_bytes(),
        );
    }
    out
}

/// False for files, pipes and sockets: a device that signals an interrupt must not write into those, or hang
/// in them.
fn may_be_eventfd(fd: &OwnedFd) -> bool {
    // An eventfd is an anonymous inode, the only kind of object without a file type.
    rustix::fs::fstat(fd).is_ok_and(|s| FileType::from_raw_mode(s.st_mode) == FileType::Unknown)
}

/// An access to configuration space that lies within it.
fn config_offset(offset: u64, bytes: usize) -> Result<usize, Errno> {
    let offset = usize::try_from(offset).map_err(|_| Errno::INVAL)?;
    match offset.checked_add(bytes) {
        Some(end) if end <= CONFIG_SPACE_BYTES => Ok(offset),
        _ => Err(Errno::INVAL),
    }
}

/// The errno that says it to a client.
fn errno(error: BusError) -> Errno {
    tracing::debug!(%error, "vfio-user");
    match error {
        BusError::Os { source, .. } => source.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error),
        BusError::OutOfRange { .. } | BusError::Dma { .. } | BusError::Protocol(_) => Errno::INVAL,
        BusError::Unsupported(_) => Errno::NOTSUP,
        BusError::Timeout { .. } => Errno::TIMEDOUT,
        BusError::Gone(_) | BusError::Setup { .. } => Errno::IO,
    }
}
