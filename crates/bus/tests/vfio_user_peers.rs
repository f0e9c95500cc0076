//! Our server under rust-vmm's client and our client on rust-vmm's server: neither shares a line of code with
//! ours.

mod toy;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use toy::{BAR_BYTES, COPIED, COPY, SOURCE, Served, TARGET, Toy, VECTORS, WINDOW, WINDOW_BYTES};
use unvme_bus::vfio_user::Client;
use unvme_bus::{BusError, Dma, DmaAccess, EventFd, Function, Region, Registers};
use vfio_bindings::bindings::vfio::{
    VFIO_IRQ_INFO_EVENTFD, VFIO_IRQ_SET_ACTION_TRIGGER, VFIO_IRQ_SET_DATA_EVENTFD, VFIO_IRQ_SET_DATA_NONE,
    VFIO_REGION_INFO_FLAG_MMAP, VFIO_REGION_INFO_FLAG_READ, VFIO_REGION_INFO_FLAG_WRITE, vfio_region_info,
    vfio_region_sparse_mmap_area,
};
use vfio_user::{DmaMapFlags, DmaUnmapFlags, IrqInfo, ServerBackend, ServerRegion, SparseArea};

/// `VFIO_PCI_CONFIG_REGION_INDEX` and `VFIO_PCI_MSIX_IRQ_INDEX` of linux/vfio.h.
const CONFIG: u32 = 7;
const MSIX: u32 = 2;

#[test]
fn rust_vmms_client_drives_our_server() {
    let served = Served::start();
    let mut client = vfio_user::Client::new(&served.path).unwrap();

    let bar = client.region(0).unwrap();
    assert_eq!(bar.size, BAR_BYTES);
    assert_eq!(bar.sparse_areas.len(), 1);
    assert_eq!((bar.sparse_areas[0].offset, bar.sparse_areas[0].size), (WINDOW, WINDOW_BYTES as u64));
    let (file, base) = bar.file_offset.as_ref().map(|f| (f.file().try_clone().unwrap(), f.start())).unwrap();
    let window = Region::from_fd(file.into(), base + WINDOW, WINDOW_BYTES, true).unwrap();
    window.store_u32(0x40, 77, Ordering::Release);
    assert_eq!(served.toy.window.load_u32(0x40, Ordering::Acquire), 77);
    assert_eq!(client.region(1).unwrap().size, 0);
    assert_eq!(client.region(CONFIG).unwrap().size, 4096);

    let mut id = [0; 4];
    client.region_read(CONFIG, 0, &mut id).unwrap();
    assert_eq!(id, [0x36, 0x1b, 0x10, 0x00]);

    let info = client.get_irq_info(MSIX).unwrap();
    assert_eq!((info.count, info.flags), (VECTORS.into(), VFIO_IRQ_INFO_EVENTFD));
    assert_eq!(client.get_irq_info(0).unwrap().count, 0);
    let events: Vec<EventFd> = (0..VECTORS).map(|_| EventFd::new().unwrap()).collect();
    let fds: Vec<_> = events.iter().map(|e| e.as_fd().as_raw_fd()).collect();
    let to_eventfds = VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER;
    client.set_irqs(MSIX, to_eventfds, 0, VECTORS.into(), &fds).unwrap();
    assert_eq!(served.toy.assigned(), [0, 1, 2, 3]);
    // Two in the middle, without descriptors: nobody.
    client.set_irqs(MSIX, to_eventfds, 1, 2, &[]).unwrap();
    assert_eq!(served.toy.assigned(), [0, 3]);
    client.set_irqs(MSIX, to_eventfds, 1, 1, &fds[1..2]).unwrap();

    let memory = Region::shared("host", 8192).unwrap();
    memory.write(0, b"the first page");
    let (fd, offset) = memory.backing().unwrap();
    client.dma_map(offset, 0x7000_0000_0000, 8192, fd.as_raw_fd()).unwrap();
    client.region_write(0, SOURCE, &0x7000_0000_0000_u64.to_le_bytes()).unwrap();
    client.region_write(0, TARGET, &0x7000_0000_1000_u64.to_le_bytes()).unwrap();
    client.region_write(0, COPY, &14_u32.to_le_bytes()).unwrap();
    let mut copied = [0; 4];
    client.region_read(0, COPIED, &mut copied).unwrap();
    assert_eq!(copied, [14, 0, 0, 0]);
    let mut out = [0; 14];
    memory.read(4096, &mut out);
    assert_eq!(&out, b"the first page");
    assert!(events[1].drain() && !events[0].drain());

    // A client may ask for its own interrupts, and give all of them back.
    client.set_irqs(MSIX, VFIO_IRQ_SET_DATA_NONE | VFIO_IRQ_SET_ACTION_TRIGGER, 3, 1, &[]).unwrap();
    assert!(events[3].drain());
    client.set_irqs(MSIX, VFIO_IRQ_SET_DATA_NONE | VFIO_IRQ_SET_ACTION_TRIGGER, 0, 0, &[]).unwrap();
    assert_eq!(served.toy.assigned(), [0; 0]);

    client.dma_unmap(0x7000_0000_0000, 8192).unwrap();
    assert!(served.toy.memory.view().is_empty());
    client.reset().unwrap();
    assert_eq!(served.toy.resets.load(Ordering::SeqCst), 1);
    client.shutdown().unwrap();
    served.wait_detached();
    assert_eq!(served.toy.resets.load(Ordering::SeqCst), 2);
}

#[derive(Default)]
struct Seen {
    irqs: Vec<(u32, u32, u32, u32, usize)>,
    unmapped: Vec<(u64, u64)>,
    resets: usize,
}

/// The toy behind rust-vmm's server.
struct Backend {
    toy: Arc<Toy>,
    seen: Arc<Mutex<Seen>>,
}

fn other(error: BusError) -> io::Error {
    io::Error::other(error.to_string())
}

impl ServerBackend for Backend {
    fn region_read(&mut self, region: u32, offset: u64, data: &mut [u8]) -> io::Result<()> {
        match region {
            CONFIG => self.toy.config_read(offset as usize, data),
            bar => self.toy.bar_read(bar as usize, offset, data),
        }
        .map_err(other)
    }

    fn region_write(&mut self, region: u32, offset: u64, data: &[u8]) -> io::Result<()> {
        match region {
            CONFIG => self.toy.config_write(offset as usize, data),
            bar => self.toy.bar_write(bar as usize, offset, data),
        }
        .map_err(other)
    }

    fn dma_map(
        &mut self,
        flags: DmaMapFlags,
        offset: u64,
        iova: u64,
        size: u64,
        fd: Option<File>,
    ) -> io::Result<()> {
        assert_eq!(flags, DmaMapFlags::READ_WRITE);
        let fd = fd.expect("our client shares all memory").into();
        let region = Region::from_fd(fd, offset, size as usize, true).map_err(other)?;
        self.toy.dma_map(iova, &region, DmaAccess::READ_WRITE).map_err(other)
    }

    fn dma_unmap(&mut self, flags: DmaUnmapFlags, iova: u64, size: u64) -> io::Result<()> {
        assert!(flags.is_empty());
        self.seen.lock().unwrap().unmapped.push((iova, size));
        self.toy.dma_unmap(iova, size).map_err(other)
    }

    fn reset(&mut self) -> io::Result<()> {
        self.seen.lock().unwrap().resets += 1;
        self.toy.reset().map_err(other)
    }

    fn set_irqs(&mut self, index: u32, flags: u32, start: u32, count: u32, fds: Vec<File>) -> io::Result<()> {
        self.seen.lock().unwrap().irqs.push((index, flags, start, count, fds.len()));
        for (vector, fd) in (start as u16..).zip(fds) {
            self.toy.set_vector(vector, Some(EventFd::from_fd(fd.into()))).map_err(other)?;
        }
        Ok(())
    }
}

fn rust_vmms_regions(toy: &Toy) -> Vec<ServerRegion> {
    let read_write = VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE;
    let region = |index: u32| {
        let (size, flags) = match index {
            0 => (BAR_BYTES, read_write | VFIO_REGION_INFO_FLAG_MMAP),
            CONFIG => (4096, read_write),
            _ => (0, 0),
        };
        // The window is one page into its descriptor, and one page into the BAR.
        let info = vfio_region_info { argsz: 32, index, size, flags, ..Default::default() };
        let area = vfio_region_sparse_mmap_area { offset: WINDOW, size: WINDOW_BYTES as u64 };
        let shared = index == 0;
        ServerRegion {
            region_info: info,
            sparse_areas: if shared { vec![SparseArea { area }] } else { Vec::new() },
            mmap_fd: shared.then(|| toy.window.backing().unwrap().0.as_raw_fd()),
        }
    };
    (0..9).map(region).collect()
}

#[test]
fn our_client_drives_rust_vmms_server() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let toy = Toy::new();
    let seen = Arc::new(Mutex::new(Seen::default()));
    let irqs = (0..5)
        .map(|index| IrqInfo {
            index,
            flags: VFIO_IRQ_INFO_EVENTFD,
            count: if index == MSIX { 4 } else { 0 },
        })
        .collect();
    let server = vfio_user::Server::new(&path, true, irqs, rust_vmms_regions(&toy)).unwrap();
    let thread = {
        let mut backend = Backend { toy: toy.clone(), seen: seen.clone() };
        std::thread::spawn(move || server.run(&mut backend).unwrap())
    };

    let client = Client::connect(&path).unwrap();
    assert_eq!(client.vectors(), 4);
    let layout = client.bar(0).unwrap().unwrap();
    assert_eq!((layout.bytes, layout.windows.len()), (BAR_BYTES, 1));
    assert!(client.bar(2).unwrap().is_none());
    let registers = Registers::new(client.clone(), 0).unwrap();
    registers.doorbell(WINDOW + 4).ring(5).unwrap();
    assert_eq!(toy.window.load_u32(4, Ordering::Acquire), 5);

    let mut id = [0; 4];
    client.config_read(0, &mut id).unwrap();
    assert_eq!(id, [0x36, 0x1b, 0x10, 0x00]);

    let memory = Region::shared("host", 8192).unwrap();
    memory.write(0, &[0x77; 64]);
    client.dma_map(0x10_0000, &memory, DmaAccess::READ_WRITE).unwrap();
    let event = EventFd::new().unwrap();
    client.set_vector(1, Some(event.clone())).unwrap();
    registers.write64(SOURCE, 0x10_0000).unwrap();
    registers.write64(TARGET, 0x10_1000).unwrap();
    registers.write32(COPY, 64).unwrap();
    assert_eq!(registers.read32(COPIED).unwrap(), 64);
    assert!(event.drain());
    let mut out = [0; 64];
    memory.read(4096, &mut out);
    assert_eq!(out, [0x77; 64]);

    client.set_vector(1, None).unwrap();
    client.dma_unmap(0, 1 << 32).unwrap();
    client.reset().unwrap();
    assert!(!client.is_gone());
    drop(registers);
    drop(client);
    thread.join().unwrap();
    let seen = seen.lock().unwrap();
    let to_eventfds = VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER;
    assert_eq!(seen.irqs, [(MSIX, to_eventfds, 1, 1, 1), (MSIX, to_eventfds, 1, 1, 0)]);
    assert_eq!(seen.unmapped, [(0x10_0000, 8192)]);
    assert_eq!(seen.resets, 1);
}
