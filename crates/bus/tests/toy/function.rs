//! A PCI function small enough to know by heart: a few registers, a shared page, and a copy engine.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use unvme_bus::space::Direction;
use unvme_bus::{
    AddressSpace, BarLayout, BusError, Dma, DmaAccess, EventFd, Function, Region, Window,
    function::CONFIG_SPACE_BYTES,
};

/// Bytes of BAR 0.
pub const BAR_BYTES: u64 = 0x4000;
/// The page of BAR 0 that is shared memory.
pub const WINDOW: u64 = 0x1000;
/// Bytes of the shared page.
pub const WINDOW_BYTES: usize = 0x1000;
/// Interrupt vectors.
pub const VECTORS: u16 = 4;

/// 64-bit register: I/O virtual address to copy from.
pub const SOURCE: u64 = 0x10;
/// 64-bit register: I/O virtual address to copy to.
pub const TARGET: u64 = 0x18;
/// 32-bit register: bytes to copy. Writing it copies them and signals vector 1.
pub const COPY: u64 = 0x20;
/// 32-bit register: bytes of the last copy, or [`FAULT`].
pub const COPIED: u64 = 0x24;
/// A copy that met memory which is not mapped.
pub const FAULT: u32 = 0xffff_ffff;

/// Registers are this many bytes of plain memory apart from what is said above.
const REGISTER_BYTES: usize = 0x1000;

pub struct Toy {
    registers: Mutex<Vec<u8>>,
    config: Mutex<Vec<u8>>,
    pub window: Region,
    pub memory: AddressSpace,
    vectors: Mutex<[Option<EventFd>; VECTORS as usize]>,
    pub resets: AtomicUsize,
}

impl Toy {
    pub fn new() -> Arc<Self> {
        let mut config = vec![0; CONFIG_SPACE_BYTES];
        config[..4].copy_from_slice(&[0x36, 0x1b, 0x10, 0x00]);
        // The page lies as far into its descriptor as into the BAR.
        let shared = Region::shared("toy-bar0", WINDOW as usize + WINDOW_BYTES).unwrap();
        Arc::new(Self {
            registers: Mutex::new(vec![0; REGISTER_BYTES]),
            config: Mutex::new(config),
            window: shared.slice(WINDOW as usize, WINDOW_BYTES),
            memory: AddressSpace::new(),
            vectors: Mutex::default(),
            resets: AtomicUsize::new(0),
        })
    }

    pub fn assigned(&self) -> Vec<u16> {
        let vectors = self.vectors.lock().unwrap();
        (0..VECTORS).filter(|&v| vectors[v as usize].is_some()).collect()
    }

    pub fn interrupt(&self, vector: u16) {
        if let Some(event) = &self.vectors.lock().unwrap()[vector as usize] {
            event.signal();
        }
    }

    fn copy(&self, registers: &mut [u8], bytes: usize) {
        let word = |at: u64| u64::from_le_bytes(registers[at as usize..][..8].try_into().unwrap());
        let memory = self.memory.view();
        let source = memory.resolve(word(SOURCE), bytes, Direction::Read);
        let target = memory.resolve(word(TARGET), bytes, Direction::Write);
        let outcome = match (source, target) {
            (Some((from, at)), Some((to, to_at))) => {
                from.copy_to(at, to, to_at, bytes);
                bytes as u32
            }
            _ => FAULT,
        };
        registers[COPIED as usize..][..4].copy_from_slice(&outcome.to_le_bytes());
        self.interrupt(1);
    }
}

fn range(
    what: &'static str,
    offset: u64,
    length: usize,
    size: usize,
) -> Result<std::ops::Range<usize>, BusError> {
    match offset.checked_add(length as u64) {
        Some(end) if end <= size as u64 => Ok(offset as usize..end as usize),
        _ => Err(BusError::OutOfRange { what, offset, length: length as u64, size: size as u64 }),
    }
}

impl Dma for Toy {
    fn dma_map(&self, iova: u64, region: &Region, access: DmaAccess) -> Result<(), BusError> {
        self.memory.map(iova, region, access)
    }

    fn dma_unmap(&self, iova: u64, length: u64) -> Result<(), BusError> {
        self.memory.unmap(iova, length)
    }
}

impl Function for Toy {
    fn config_read(&self, offset: usize, out: &mut [u8]) -> Result<(), BusError> {
        let range = range("configuration space", offset as u64, out.len(), CONFIG_SPACE_BYTES)?;
        out.copy_from_slice(&self.config.lock().unwrap()[range]);
        Ok(())
    }

    fn config_write(&self, offset: usize, data: &[u8]) -> Result<(), BusError> {
        let range = range("configuration space", offset as u64, data.len(), CONFIG_SPACE_BYTES)?;
        self.config.lock().unwrap()[range].copy_from_slice(data);
        Ok(())
    }

    fn bar(&self, index: usize) -> Result<Option<BarLayout>, BusError> {
        let windows = vec![Window { offset: WINDOW, region: self.window.clone() }];
        Ok((index == 0).then_some(BarLayout { bytes: BAR_BYTES, windows }))
    }

    fn bar_read(&self, index: usize, offset: u64, out: &mut [u8]) -> Result<(), BusError> {
        assert_eq!(index, 0, "there is no other BAR");
        // Beyond the window there is nothing: it reads as zero.
        out.fill(0);
        if let Ok(range) = range("registers", offset, out.len(), REGISTER_BYTES) {
            out.copy_from_slice(&self.registers.lock().unwrap()[range]);
        } else {
            assert!(offset >= WINDOW + WINDOW_BYTES as u64, "the window is not the function's to read");
        }
        Ok(())
    }

    fn bar_write(&self, index: usize, offset: u64, data: &[u8]) -> Result<(), BusError> {
        assert_eq!(index, 0, "there is no other BAR");
        if let Ok(range) = range("registers", offset, data.len(), REGISTER_BYTES) {
            let mut registers = self.registers.lock().unwrap();
            registers[range].copy_from_slice(data);
            if offset == COPY && data.len() == 4 {
                let bytes = u32::from_le_bytes(data.try_into().unwrap()) as usize;
                self.copy(&mut registers, bytes);
            }
        } else {
            assert!(offset >= WINDOW + WINDOW_BYTES as u64, "the window is not the function's to write");
        }
        Ok(())
    }

    fn vectors(&self) -> u16 {
        VECTORS
    }

    fn set_vector(&self, vector: u16, event: Option<EventFd>) -> Result<(), BusError> {
        let mut vectors = self.vectors.lock().unwrap();
        let slot = vectors.get_mut(vector as usize).ok_or(BusError::OutOfRange {
            what: "vectors",
            offset: vector.into(),
            length: 1,
            size: VECTORS.into(),
        })?;
        *slot = event;
        Ok(())
    }

    fn reset(&self) -> Result<(), BusError> {
        self.registers.lock().unwrap().fill(0);
        self.resets.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}
