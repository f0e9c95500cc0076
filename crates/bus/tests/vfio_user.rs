//! Our client on our server, over a real socket.

mod toy;

use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use toy::{COPIED, COPY, FAULT, SOURCE, Served, TARGET, Toy, VECTORS, WINDOW, WINDOW_BYTES, wait_until};
use unvme_bus::vfio_user::{Client, Server};
use unvme_bus::{BusError, Dma, DmaAccess, DmaPool, EventFd, Function, Region, Registers};

/// Long enough for anything that works.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn registers_and_configuration_space_are_reached_by_message() {
    let served = Served::start();
    let client = Client::connect(&served.path).unwrap();
    let mut id = [0; 4];
    client.config_read(0, &mut id).unwrap();
    assert_eq!(id, [0x36, 0x1b, 0x10, 0x00]);
    client.config_write(0x40, &[1, 2]).unwrap();
    let mut all = vec![0; 4096];
    client.config_read(0, &mut all).unwrap();
    assert_eq!(all[0x40..0x43], [1, 2, 0]);

    client.bar_write(0, 0x100, &0x1122_3344_5566_7788_u64.to_le_bytes()).unwrap();
    let registers = Registers::new(client.clone(), 0).unwrap();
    assert_eq!(registers.read64(0x100).unwrap(), 0x1122_3344_5566_7788);
    assert_eq!(registers.read32(0x104).unwrap(), 0x1122_3344);
    assert_eq!(client.vectors(), VECTORS);
}

#[test]
fn accesses_outside_a_bar_or_configuration_space_are_refused_before_they_are_sent() {
    let served = Served::start();
    let client = Client::connect(&served.path).unwrap();
    let mut four = [0; 4];
    assert!(matches!(client.bar_read(0, 0x3ffd, &mut four), Err(BusError::OutOfRange { .. })));
    assert!(matches!(client.bar_write(0, u64::MAX, &four), Err(BusError::OutOfRange { .. })));
    assert!(matches!(client.config_read(4093, &mut four), Err(BusError::OutOfRange { .. })));
    assert!(matches!(client.bar_read(1, 0, &mut four), Err(BusError::Unsupported(_))));
    assert!(matches!(client.set_vector(VECTORS, None), Err(BusError::OutOfRange { .. })));
    client.bar_read(0, 0x3ffc, &mut four).unwrap();
}

#[test]
fn a_window_is_memory_both_sides_see_and_messages_reach_it_too() {
    let served = Served::start();
    let client = Client::connect(&served.path).unwrap();
    let layout = client.bar(0).unwrap().unwrap();
    assert_eq!(layout.bytes, 0x4000);
    assert_eq!(layout.windows.len(), 1);
    assert_eq!((layout.windows[0].offset, layout.windows[0].region.len()), (WINDOW, WINDOW_BYTES));

    let registers = Registers::new(client.clone(), 0).unwrap();
    registers.doorbell(WINDOW + 8).ring(7).unwrap();
    assert_eq!(served.toy.window.load_u32(8, Ordering::Acquire), 7);
    client.bar_write(0, WINDOW + 12, &9_u32.to_le_bytes()).unwrap();
    assert_eq!(served.toy.window.load_u32(12, Ordering::Acquire), 9);

    // An access across both edges of the window is split between the function and the memory.
    let across: Vec<u8> = (0..WINDOW_BYTES + 16).map(|i| i as u8).collect();
    client.bar_write(0, WINDOW - 8, &across).unwrap();
    let mut back = vec![0; across.len()];
    client.bar_read(0, WINDOW - 8, &mut back).unwrap();
    // Beyond the window the toy has no registers.
    assert_eq!(back[..WINDOW_BYTES + 8], across[..WINDOW_BYTES + 8]);
    assert_eq!(back[WINDOW_BYTES + 8..], [0; 8]);
}

#[test]
fn the_device_copies_host_memory_and_interrupts() {
    let served = Served::start();
    let client = Client::connect(&served.path).unwrap();
    let pool = DmaPool::new(client.clone());
    let mut source = pool.alloc(8192).unwrap();
    let target = pool.alloc(8192).unwrap();
    source.write(0, &[0xa5; 8192]);
    let event = EventFd::new().unwrap();
    client.set_vector(1, Some(event.clone())).unwrap();

    let registers = Registers::new(client.clone(), 0).unwrap();
    registers.write64(SOURCE, source.iova()).unwrap();
    registers.write64(TARGET, target.iova()).unwrap();
    registers.write32(COPY, 8192).unwrap();
    assert!(event.wait(PATIENCE).unwrap(), "the interrupt arrives");
    assert_eq!(registers.read32(COPIED).unwrap(), 8192);
    assert_eq!(target.to_vec(), vec![0xa5; 8192]);

    client.set_vector(1, None).unwrap();
    assert_eq!(served.toy.assigned(), [0; 0]);
}

#[test]
fn memory_that_was_taken_back_or_is_read_only_is_out_of_the_devices_reach() {
    let served = Served::start();
    let client = Client::connect(&served.path).unwrap();
    let registers = Registers::new(client.clone(), 0).unwrap();
    let memory = Region::shared("host", 8192).unwrap();
    let copy = |from: u64, to: u64| {
        registers.write64(SOURCE, from).unwrap();
        registers.write64(TARGET, to).unwrap();
        registers.write32(COPY, 16).unwrap();
        registers.read32(COPIED).unwrap()
    };
    client.dma_map(0x10000, &memory.slice(0, 4096), DmaAccess::READ_WRITE).unwrap();
    client.dma_map(0x20000, &memory.slice(4096, 4096), DmaAccess::READ_ONLY).unwrap();
    memory.write(4096, b"second page here");
    assert_eq!(copy(0x20000, 0x10000), 16);
    let mut out = [0; 16];
    memory.read(0, &mut out);
    assert_eq!(&out, b"second page here", "the offset of a slice is respected");
    assert_eq!(copy(0x10000, 0x20000), FAULT, "read-only memory");
    client.dma_unmap(0x20000, 4096).unwrap();
    assert_eq!(copy(0x20000, 0x10000), FAULT, "unmapped memory");
    assert_eq!(copy(0x10000 + 4096 - 8, 0x10000), FAULT, "across the end");
}

#[test]
fn bad_dma_ranges_are_refused_with_the_reason() {
    let served = Served::start();
    let client = Client::connect(&served.path).unwrap();
    let page = Region::shared("page", 4096).unwrap();
    let two = Region::shared("two", 8192).unwrap();
    client.dma_map(0x10000, &two, DmaAccess::READ_WRITE).unwrap();
    for (iova, region) in
        [(0x10000, &page), (0x11000, &page), (0xf000, &two), (0x10008, &page), (u64::MAX - 4095, &page)]
    {
        let refused = client.dma_map(iova, region, DmaAccess::READ_WRITE);
        assert!(matches!(refused, Err(BusError::Dma { .. })), "{iova:#x}: {refused:?}");
    }
    assert!(matches!(client.dma_unmap(0x10000, 4096), Err(BusError::Dma { .. })), "cut in two");
    assert!(matches!(client.dma_unmap(0x11000, 4096), Err(BusError::Dma { .. })), "cut in two");
    assert!(matches!(client.dma_unmap(0x80000, 4096), Err(BusError::Dma { .. })), "nothing there");
    let private = Region::anonymous(4096).unwrap();
    let refused = client.dma_map(0x40000, &private, DmaAccess::READ_WRITE);
    assert!(matches!(refused, Err(BusError::Unsupported(_))), "{refused:?}");
    client.dma_unmap(0, 0x100000).unwrap();
    assert!(served.toy.memory.view().is_empty());
    client.dma_map(0x11000, &page, DmaAccess::READ_WRITE).unwrap();
}

#[test]
fn when_a_client_goes_nothing_of_it_is_left_and_the_next_one_is_served() {
    let served = Served::start();
    for round in 1..=5 {
        let client = Client::connect(&served.path).unwrap();
        assert!(served.is_attached());
        let memory = Region::shared("host", 4096).unwrap();
        client.dma_map(0x10000, &memory, DmaAccess::READ_WRITE).unwrap();
        client.set_vector(0, Some(EventFd::new().unwrap())).unwrap();
        client.bar_write(0, 0x200, &[0xff; 4]).unwrap();
        drop(client);
        served.wait_detached();
        assert!(served.toy.memory.view().is_empty());
        assert_eq!(served.toy.assigned(), [0; 0]);
        assert_eq!(served.toy.resets.load(Ordering::SeqCst), round);
    }
}

#[test]
fn a_second_client_is_told_that_the_device_is_busy() {
    let served = Served::start();
    let first = Client::connect(&served.path).unwrap();
    let refused = Client::connect(&served.path).unwrap_err();
    let text = refused.to_string();
    let BusError::Os { source, .. } = refused else { panic!("{text}") };
    assert_eq!(source.raw_os_error(), Some(16), "EBUSY");
    first.bar_write(0, 0, &[0; 4]).unwrap();
}

#[test]
fn a_connection_that_says_nothing_does_not_reset_the_device() {
    let served = Served::start();
    for _ in 0..3 {
        drop(UnixStream::connect(&served.path).unwrap());
    }
    // The next client is only served after those.
    let client = Client::connect(&served.path).unwrap();
    assert_eq!(served.toy.resets.load(Ordering::SeqCst), 0);
    client.reset().unwrap();
    assert_eq!(served.toy.resets.load(Ordering::SeqCst), 1);
}

#[test]
fn a_live_socket_is_not_taken_over_a_stale_one_is_and_it_is_removed_at_the_end() {
    let mut served = Served::start();
    let refused = Server::bind(&served.path, Toy::new()).map(|_| ()).unwrap_err();
    assert!(refused.to_string().contains("served by another process"), "{refused}");
    served.stop();
    let path = served.path.clone();
    assert!(path.exists());

    let folder = tempfile::tempdir().unwrap();
    let stale = folder.path().join("socket");
    drop(UnixListener::bind(&stale).unwrap());
    assert!(stale.exists(), "a socket file outlives its listener");
    let server = Server::bind(&stale, Toy::new()).unwrap();
    drop(server);
    assert!(!stale.exists());

    let file = folder.path().join("file");
    std::fs::write(&file, b"precious").unwrap();
    let refused = Server::bind(&file, Toy::new()).map(|_| ()).unwrap_err();
    assert!(refused.to_string().contains("not a socket"), "{refused}");
    assert_eq!(std::fs::read(&file).unwrap(), b"precious");

    let long = folder.path().join("x".repeat(120));
    assert!(Server::bind(&long, Toy::new()).is_err());
}

#[test]
fn a_folder_stands_for_the_socket_named_cntrl_in_it() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::bind(folder.path(), Toy::new()).unwrap();
    assert_eq!(server.path(), folder.path().join("cntrl"));
    let stop = EventFd::new().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| server.run(&stop).unwrap());
        let client = Client::connect(folder.path()).unwrap();
        assert_eq!(client.vectors(), VECTORS);
        stop.signal();
    });
}

#[test]
fn after_the_server_has_died_calls_fail_at_once_and_windows_stay_mapped() {
    let mut served = Served::start();
    let client = Client::connect(&served.path).unwrap();
    let registers = Registers::new(client.clone(), 0).unwrap();
    let doorbell = registers.doorbell(WINDOW);
    assert!(!client.is_gone());
    served.stop();
    drop(served);
    wait_until("the client notices", || client.is_gone());
    assert!(matches!(registers.read32(0), Err(BusError::Gone(_))));
    assert!(matches!(client.reset(), Err(BusError::Gone(_))));
    let page = Region::shared("page", 4096).unwrap();
    assert!(matches!(client.dma_map(0x10000, &page, DmaAccess::READ_WRITE), Err(BusError::Gone(_))));
    doorbell.ring(1).unwrap();
}

#[test]
fn a_window_that_cannot_be_shared_is_refused_when_the_server_starts() {
    struct Private(Arc<Toy>, Region);
    impl Dma for Private {
        fn dma_map(&self, iova: u64, region: &Region, access: DmaAccess) -> Result<(), BusError> {
            self.0.dma_map(iova, region, access)
        }

        fn dma_unmap(&self, iova: u64, length: u64) -> Result<(), BusError> {
            self.0.dma_unmap(iova, length)
        }
    }

    impl Function for Private {
        fn config_read(&self, offset: usize, out: &mut [u8]) -> Result<(), BusError> {
            self.0.config_read(offset, out)
        }

        fn config_write(&self, offset: usize, data: &[u8]) -> Result<(), BusError> {
            self.0.config_write(offset, data)
        }

        fn bar(&self, index: usize) -> Result<Option<unvme_bus::BarLayout>, BusError> {
            let mut layout = self.0.bar(index)?;
            if let Some(layout) = &mut layout {
                layout.windows[0].region = self.1.clone();
            }
            Ok(layout)
        }

        fn bar_read(&self, index: usize, offset: u64, out: &mut [u8]) -> Result<(), BusError> {
            self.0.bar_read(index, offset, out)
        }

        fn bar_write(&self, index: usize, offset: u64, data: &[u8]) -> Result<(), BusError> {
            self.0.bar_write(index, offset, data)
        }

        fn vectors(&self) -> u16 {
            self.0.vectors()
        }

        fn set_vector(&self, vector: u16, event: Option<EventFd>) -> Result<(), BusError> {
            self.0.set_vector(vector, event)
        }

        fn reset(&self) -> Result<(), BusError> {
            self.0.reset()
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let private = Region::anonymous(4096).unwrap();
    let misplaced = Region::shared("at-zero", 4096).unwrap();
    for (region, reason) in [(private, "private"), (misplaced, "as far into its descriptor")] {
        let function = Arc::new(Private(Toy::new(), region));
        let refused = Server::bind(&folder.path().join("socket"), function).map(|_| ()).unwrap_err();
        assert!(refused.to_string().contains(reason), "{refused}");
    }
}
