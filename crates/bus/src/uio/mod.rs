//! Functions of this machine without an IOMMU: `uio_pci_generic`.
//!
//! Registers and configuration space are files in `sysfs`; the function reads and writes physical memory, any
//! of it: there is nothing between a wrong address and somebody else's data. It needs root, and huge pages,
//! which stay where they are. A machine with an IOMMU should use [`crate::vfio`].
//!
//! Interrupts: `uio_pci_generic` has the function's INTx line alone, which is one for all queues and shared
//! with other devices. It is not used: there are no vectors, and queues are polled.

mod pagemap;

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once};

use rustix::fs::FlockOperation;

use crate::function::CONFIG_SPACE_BYTES;
use crate::pci::bar::{Bar, BarSource, read_exactly, write_exactly};
use crate::pci::{DRIVER_UIO, gone};
use crate::{
    BarLayout, BusError, Dma, DmaAccess, DmaAddressing, EventFd, Function, PciAddress, PciFunction, Region,
};
use pagemap::Pagemap;

/// Base address registers of a function.
const BARS: usize = 6;
/// In the flags of a line of `resource`: memory, as opposed to I/O ports (`IORESOURCE_MEM`).
const RESOURCE_MEMORY: u64 = 0x200;

/// A function bound to `uio_pci_generic`, opened by this process.
///
/// When the device is pulled out its registers read all ones; [`Function::is_gone`] notices.
pub struct UioFunction {
    address: PciAddress,
    path: PathBuf,
    bars: [Option<Bar>; BARS],
    config: OwnedFd,
    /// Held open, and locked: when the last user closes it, also by dying, the kernel takes bus mastering
    /// from the function, which then reaches no memory any more.
    node: File,
    /// Reading the node says so when it is not this device's any more.
    node_answers: bool,
    pagemap: Pagemap,
    gone: Arc<AtomicBool>,
    released: Once,
}

crate::debug_parts!(UioFunction { address });

impl UioFunction {
    /// Takes a function over that is bound to `uio_pci_generic`. Errors: [`BusError::Setup`] with what is
    /// missing (another driver, an IOMMU in the way, no permission, somebody else uses it) and the command
    /// that helps; [`BusError::Os`].
    pub fn open(function: &PciFunction) -> Result<Arc<Self>, BusError> {
        check(function)?;
        let address = function.address;
        let path = function.path();
        let node = open_node(function)?;
        let config = open_file(function, &path.join("config"))?;
        let gone = Arc::new(AtomicBool::new(false));
        let mut bars = [const { None }; BARS];
        for (index, bar) in bars.iter_mut().enumerate() {
            let bytes = function.bar_bytes.get(index).copied().unwrap_or(0);
            *bar = open_bar(function, index, bytes, &gone)?;
        }
        let node_answers = matches!(read_node(&node), Err(e) if e.kind() == ErrorKind::WouldBlock);
        let released = Once::new();
        let pagemap = Pagemap::open()?;
        tracing::debug!(%address, "UIO function opened");
        Ok(Arc::new(Self { address, path, bars, config, node, node_answers, pagemap, gone, released }))
    }

    /// Where it is.
    pub fn address(&self) -> PciAddress {
        self.address
    }

    fn find_bar(&self, index: usize) -> Result<&Bar, BusError> {
        let bar = self.bars.get(index).and_then(Option::as_ref);
        bar.ok_or_else(|| BusError::Unsupported(format!("{} has no BAR {index}", self.address)))
    }

    /// What failed, or that the device is gone, which explains it.
    fn explain(&self, e: BusError) -> BusError {
        if self.is_gone() { BusError::Gone(self.address.to_string()) } else { e }
    }

    /// True when the function is not this process's any more: it was unbound, or does not answer.
    fn has_left(&self) -> bool {
        // EIO for a device that is no longer registered; EAGAIN as long as it is and has sent no interrupt.
        if self.node_answers && read_node(&self.node).is_err_and(|e| e.kind() != ErrorKind::WouldBlock) {
            return true;
        }
        let mut words = self.bars.iter().flatten().filter_map(Bar::first_word);
        words.next() == Some(u32::MAX) && {
            let mut class = [0; 4];
            read_exactly(&self.config, gone::CLASS_OFFSET, &mut class).is_err() || class == [0xff; 4]
        }
    }

    fn release(&self) {
        self.released.call_once(|| {
            self.gone.store(true, Ordering::SeqCst);
            tracing::warn!(address = %self.address, "the device has gone: it is let go");
            self.bars.iter().flatten().for_each(Bar::withdraw);
        });
    }
}

/// The count of interrupts so far, if there were new ones.
fn read_node(mut node: &File) -> io::Result<()> {
    node.read_exact(&mut [0; 4])
}

fn check(function: &PciFunction) -> Result<(), BusError> {
    let address = function.address;
    match function.driver.as_deref() {
        Some(DRIVER_UIO) => {}
        driver => {
            return Err(BusError::setup(
                format!(
                    "{address} is bound to {}, and uio_pci_generic is expected",
                    driver.map_or_else(|| "no driver".to_owned(), |name| format!("the driver `{name}`"))
                ),
                format!("run `unvme setup config --driver uio_pci_generic {address}`"),
            ));
        }
    }
    if function.is_translated() {
        return Err(BusError::setup(
            format!(
                "{address} is behind an IOMMU that translates its accesses, and uio_pci_generic cannot map memory there: every access would fault"
            ),
            format!("use vfio-pci: run `unvme setup config --driver vfio-pci {address}`"),
        ));
    }
    Ok(())
}

/// Opens `/dev/uioN` of the function, and keeps others of our kind out.
fn open_node(function: &PciFunction) -> Result<File, BusError> {
    let address = function.address;
    let folder = function.path().join("uio");
    let name = fs::read_dir(&folder)
        .ok()
        .and_then(|mut entries| entries.find_map(|entry| Some(entry.ok()?.file_name())))
        .ok_or_else(|| {
            BusError::setup(
                format!(
                    "{address}: uio_pci_generic has made no device of it ({} is empty)",
                    folder.display()
                ),
                format!("run `unvme setup config --driver uio_pci_generic {address}`"),
            )
        })?;
    let path = function.bus().dev().join(name);
    let node = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(&path)
        .map_err(|e| explain_open(function, &path, e))?;
    match rustix::fs::flock(&node, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(node),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(BusError::setup(
            format!("{address} is in use: {} is locked", path.display()),
            format!("`fuser -v {}` shows by whom", path.display()),
        )),
        Err(e) => Err(BusError::os(format!("{address}: lock {}", path.display()), e)),
    }
}

fn open_file(function: &PciFunction, path: &Path) -> Result<OwnedFd, BusError> {
    let file = OpenOptions::new().read(true).write(true).open(path);
    Ok(file.map_err(|e| explain_open(function, path, e))?.into())
}

fn explain_open(function: &PciFunction, path: &Path, e: io::Error) -> BusError {
    let address = function.address;
    match e.kind() {
        ErrorKind::PermissionDenied => BusError::setup(
            format!("{address}: no permission to open {}", path.display()),
            "run as root, which uio_pci_generic needs; or use an IOMMU and vfio-pci, which does not",
        ),
        _ => BusError::os(format!("{address}: open {}", path.display()), e),
    }
}

/// Maps a BAR; `None` when the function does not have it, or has I/O ports there.
fn open_bar(
    function: &PciFunction,
    index: usize,
    bytes: u64,
    gone: &Arc<AtomicBool>,
) -> Result<Option<Bar>, BusError> {
    if bytes == 0 || !is_memory(&function.path().join("resource"), index) {
        return Ok(None);
    }
    let path = function.path().join(format!("resource{index}"));
    let source = BarSource {
        file: Arc::new(open_file(function, &path)?),
        base: 0,
        bytes,
        mappable: vec![(0, bytes)],
        // Such a file can be read and written for I/O ports alone.
        is_readable: false,
    };
    match Bar::map(source, gone) {
        Ok(bar) => Ok(Some(bar)),
        Err(BusError::Os { source, .. }) if source.kind() == ErrorKind::PermissionDenied => {
            Err(BusError::setup(
                format!("{}: the kernel lets no process map {}", function.address, path.display()),
                "use an IOMMU and vfio-pci, which works with Secure Boot and a locked-down kernel too",
            ))
        }
        Err(e) => Err(e),
    }
}

/// Whether line `index` of `resource` is memory.
fn is_memory(path: &Path, index: usize) -> bool {
    let text = fs::read_to_string(path).unwrap_or_default();
    let flags = text.lines().nth(index).and_then(|line| line.split_whitespace().nth(2));
    let flags = flags.and_then(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok());
    flags.is_some_and(|flags| flags & RESOURCE_MEMORY != 0)
}

fn check_config(offset: usize, bytes: usize) -> Result<u64, BusError> {
    BusError::check_range("configuration space", offset as u64, bytes, CONFIG_SPACE_BYTES as u64)?;
    Ok(offset as u64)
}

impl Dma for UioFunction {
    fn dma_addressing(&self) -> DmaAddressing {
        DmaAddressing::Physical
    }

    fn dma_address(&self, region: &Region) -> Result<u64, BusError> {
        self.pagemap.address(region)
    }

    /// Nothing is mapped: the function reaches all memory. The address has to be the region's own.
    fn dma_map(&self, iova: u64, region: &Region, access: DmaAccess) -> Result<(), BusError> {
        let _ = access;
        if self.pagemap.address(region)? == iova {
            return Ok(());
        }
        let reason = "the function knows memory by its physical address, which is another";
        Err(BusError::Dma { iova, length: region.len() as u64, reason })
    }

    fn dma_unmap(&self, _iova: u64, _length: u64) -> Result<(), BusError> {
        Ok(())
    }
}

impl Function for UioFunction {
    fn config_read(&self, offset: usize, out: &mut [u8]) -> Result<(), BusError> {
        let at = check_config(offset, out.len())?;
        read_exactly(&self.config, at, out).map_err(|e| self.explain(e))
    }

    fn config_write(&self, offset: usize, data: &[u8]) -> Result<(), BusError> {
        let at = check_config(offset, data.len())?;
        write_exactly(&self.config, at, data).map_err(|e| self.explain(e))
    }

    fn bar(&self, index: usize) -> Result<Option<BarLayout>, BusError> {
        Ok(self.bars.get(index).and_then(Option::as_ref).map(|bar| bar.layout.clone()))
    }

    fn bar_read(&self, index: usize, offset: u64, out: &mut [u8]) -> Result<(), BusError> {
        let outcome = self.find_bar(index)?.read(offset, out);
        outcome.map_err(|e| self.explain(e))
    }

    fn bar_write(&self, index: usize, offset: u64, data: &[u8]) -> Result<(), BusError> {
        let outcome = self.find_bar(index)?.write(offset, data);
        outcome.map_err(|e| self.explain(e))
    }

    fn vectors(&self) -> u16 {
        0
    }

    fn set_vector(&self, vector: u16, _event: Option<EventFd>) -> Result<(), BusError> {
        BusError::check_range("interrupt vectors", vector.into(), 1, 0)
    }

    /// The kernel waits for transactions that are under way, resets the function by the best means it has,
    /// waits as long as the specification gives it, and puts configuration space back, bus mastering
    /// included.
    fn reset(&self) -> Result<(), BusError> {
        let path = self.path.join("reset");
        match fs::write(&path, "1") {
            Ok(()) => Ok(()),
            Err(e) if e.kind() == ErrorKind::NotFound && !self.is_gone() => {
                Err(BusError::Unsupported(format!("{}: the function has no reset", self.address)))
            }
            Err(e) => Err(self.explain(BusError::os(format!("write {}", path.display()), e))),
        }
    }

    fn is_gone(&self) -> bool {
        if !self.released.is_completed() && (self.gone.load(Ordering::SeqCst) || self.has_left()) {
            self.release();
        }
        self.released.is_completed()
    }
}
