//! A host's buffers: memory mapped once for a function, handed out in pieces.
//!
//! A [`DmaPool`] hands out whole pages of any number; a [`DmaShelf`] cuts a pool's buffers into many of one
//! size.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::lock;
use crate::mem::{HUGE_PAGE_BYTES, PAGE_BYTES, Pages};
use crate::{BusError, Dma, DmaAccess, DmaAddressing, Region};

mod physical;
mod shelf;

pub use shelf::DmaShelf;
use shelf::Shelf;

/// Memory is taken from the system in pieces of at least this size.
const CHUNK_BYTES: usize = HUGE_PAGE_BYTES;
/// What the memory is called in `/proc/PID/maps`.
const REGION_NAME: &str = "unvme-dma";

/// Which pool a buffer's memory is of: different for each pool this process makes, also after a pool has
/// gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolId(u64);

impl PoolId {
    fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // Relaxed: only the numbers have to be different.
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// Memory a function can reach, handed out as [`DmaBuf`]s. Clones share the pool.
#[derive(Clone)]
pub struct DmaPool(Arc<Pool>);

struct Pool {
    id: PoolId,
    device: Arc<dyn Dma>,
    /// Asked once: a device's addresses are of one kind for as long as it lives.
    addressing: DmaAddressing,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Free pieces by size in bytes, a power of two of pages: region and I/O virtual address.
    free: BTreeMap<usize, Vec<(Region, u64)>>,
    /// Every range mapped for the function, to be taken back at the end.
    mapped: Vec<(u64, u64)>,
    /// Bytes mapped. Chosen addresses are given out in ascending order, so this is also how far into their
    /// range they are.
    used: u64,
}

impl DmaPool {
    /// An empty pool for a device.
    pub fn new(device: Arc<dyn Dma>) -> Self {
        let addressing = match device.dma_addressing() {
            // A mapping that starts on the boundary of a huge page can be translated as one.
            DmaAddressing::Chosen(range) => {
                DmaAddressing::Chosen(range.start.next_multiple_of(CHUNK_BYTES as u64)..range.end)
            }
            DmaAddressing::Physical => DmaAddressing::Physical,
        };
        Self(Arc::new(Pool { id: PoolId::next(), device, addressing, state: Mutex::default() }))
    }

    /// A zeroed buffer of at least `bytes`, page aligned, contiguous for the device. Its length is exactly
    /// `bytes`. Errors: [`BusError::Os`] when the system has no memory left, [`BusError::Dma`] when the
    /// function has no address space left, [`BusError::Setup`] when a function with physical addresses finds
    /// no huge pages, or too few in a row, or when the system allows no more locked memory.
    pub fn alloc(&self, bytes: usize) -> Result<DmaBuf, BusError> {
        self.hand_out(bytes, |size| self.0.take(size))
    }

    /// As [`DmaPool::alloc`], on the pages that were asked for; [`Region::is_huge`] of the buffer's region
    /// says what was got. Huge pages are worth asking for in multiples of [`HUGE_PAGE_BYTES`]. Errors: as
    /// [`DmaPool::alloc`].
    pub fn alloc_on(&self, bytes: usize, pages: Pages) -> Result<DmaBuf, BusError> {
        self.hand_out(bytes, |size| self.0.take_on(size, pages))
    }

    fn hand_out(
        &self,
        bytes: usize,
        take: impl FnOnce(usize) -> Result<(Region, u64), BusError>,
    ) -> Result<DmaBuf, BusError> {
        let size =
            bytes.max(PAGE_BYTES).checked_next_power_of_two().ok_or_else(|| no_addresses(0, bytes as u64))?;
        let (region, iova) = take(size)?;
        region.fill(0, size, 0);
        let home = Home::Pool(Arc::clone(&self.0));
        Ok(DmaBuf(Box::new(Piece { region, iova, bytes, pool: self.id(), home })))
    }

    /// Maps memory of another pool's buffer for this pool's function as well: two functions reach the same
    /// bytes without a copy. Mapped until the buffer is dropped; the memory itself stays for as long as
    /// somebody has it. Errors: [`BusError::Dma`] when the function has no address space left or takes
    /// physical addresses, those of [`Dma::dma_map`].
    pub fn import(&self, region: &Region) -> Result<DmaBuf, BusError> {
        let bytes = region.len();
        let DmaAddressing::Chosen(_) = &self.0.addressing else {
            let reason = "a function with physical addresses reaches memory of its own pool only";
            return Err(BusError::Dma { iova: 0, length: bytes as u64, reason });
        };
        let (region, iova) = self.0.map(&mut self.0.lock(), bytes, |_| Ok(region.clone()))?;
        let home = Home::Import(Arc::clone(&self.0));
        Ok(DmaBuf(Box::new(Piece { region, iova, bytes, pool: self.id(), home })))
    }

    /// Identity of the pool, which its buffers carry.
    pub fn id(&self) -> PoolId {
        self.0.id
    }
}

impl fmt::Debug for DmaPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.0.lock();
        f.debug_struct("DmaPool").field("mapped_bytes", &state.used).finish()
    }
}

impl Pool {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Free lists and counters are whole after every statement: a panic elsewhere does not spoil them.
        lock(&self.state)
    }

    fn take(&self, size: usize) -> Result<(Region, u64), BusError> {
        let mut state = self.lock();
        if let Some(piece) = state.free.get_mut(&size).and_then(Vec::pop) {
            return Ok(piece);
        }
        self.grow(&mut state, size, |bytes| Region::shared(REGION_NAME, bytes))
    }

    fn take_on(&self, size: usize, pages: Pages) -> Result<(Region, u64), BusError> {
        if self.addressing == DmaAddressing::Physical {
            // All its memory is huge pages.
            return self.take(size);
        }
        let mut state = self.lock();
        let wants_huge = pages == Pages::Huge;
        if let Some(free) = state.free.get_mut(&size)
            && let Some(at) = free.iter().rposition(|(region, _)| region.is_huge() == wants_huge)
        {
            return Ok(free.swap_remove(at));
        }
        if wants_huge {
            let huge = Region::shared_huge(REGION_NAME, size.max(CHUNK_BYTES));
            if let Some(region) = huge {
                return self.grow(&mut state, size, |_| Ok(region));
            }
            // The pool of huge pages is used up: any piece will do, before more memory is taken.
            if let Some(piece) = state.free.get_mut(&size).and_then(Vec::pop) {
                return Ok(piece);
            }
        }
        self.grow(&mut state, size, |bytes| Region::shared_on(REGION_NAME, bytes, Pages::Ordinary))
    }

    /// A piece of `size` from new memory; the rest of it goes to the free list.
    fn grow(
        &self,
        state: &mut State,
        size: usize,
        make: impl FnOnce(usize) -> Result<Region, BusError>,
    ) -> Result<(Region, u64), BusError> {
        let (region, iova) = self.map(state, size.max(CHUNK_BYTES), make)?;
        let pieces = state.free.entry(size).or_default();
        // Pieces are popped from the end: ascending addresses first.
        for offset in (size..region.len()).step_by(size).rev() {
            pieces.push((region.slice(offset, size), iova + offset as u64));
        }
        Ok((region.slice(0, size), iova))
    }

    fn map(
        &self,
        state: &mut State,
        bytes: usize,
        make: impl FnOnce(usize) -> Result<Region, BusError>,
    ) -> Result<(Region, u64), BusError> {
        let (region, iova) = match &self.addressing {
            DmaAddressing::Physical => physical::memory(&*self.device, REGION_NAME, bytes)?,
            DmaAddressing::Chosen(range) => {
                let iova = range.start.saturating_add(state.used);
                if iova.checked_add(bytes as u64).is_none_or(|end| end > range.end) {
                    return Err(no_addresses(iova, bytes as u64));
                }
                (make(bytes)?, iova)
            }
        };
        self.device.dma_map(iova, &region, DmaAccess::READ_WRITE)?;
        state.used += bytes as u64;
        state.mapped.push((iova, bytes as u64));
        Ok((region, iova))
    }
}

impl Pool {
    /// Takes an import back.
    fn unmap(&self, iova: u64, bytes: u64) {
        self.lock().mapped.retain(|mapped| *mapped != (iova, bytes));
        if let Err(e) = self.device.dma_unmap(iova, bytes) {
            tracing::debug!(iova, bytes, error = %e, "unmap an import");
        }
    }
}

fn no_addresses(iova: u64, length: u64) -> BusError {
    BusError::Dma { iova, length, reason: "no I/O virtual addresses are left" }
}

impl Drop for Pool {
    fn drop(&mut self) {
        for (iova, length) in std::mem::take(&mut self.lock().mapped) {
            if let Err(e) = self.device.dma_unmap(iova, length) {
                tracing::debug!(iova, length, error = %e, "unmap buffers");
            }
        }
    }
}

/// A buffer the device can reach, owned by whoever holds it. Goes back to its pool or shelf when dropped.
///
/// One word: it travels with every command from the caller into a queue's slot and back.
pub struct DmaBuf(Box<Piece>);

struct Piece {
    region: Region,
    iova: u64,
    bytes: usize,
    pool: PoolId,
    home: Home,
}

/// Where a piece goes when its owner drops it.
enum Home {
    Pool(Arc<Pool>),
    Shelf(Arc<Shelf>),
    /// It is a part, and this is the whole.
    Whole {
        _whole: Arc<DmaBuf>,
    },
    /// Memory of another pool, mapped for the function of this one.
    Import(Arc<Pool>),
}

/// A buffer that is lent in parts, each a [`DmaBuf`] of its own. Parts may overlap: whoever submits two that
/// do gets in the memory what the device, and nothing else, decides. The whole lives as long as any of them.
#[derive(Clone, Debug)]
pub struct DmaParts(Arc<DmaBuf>);

impl DmaParts {
    /// Makes a buffer one that is lent in parts.
    pub fn new(whole: DmaBuf) -> Self {
        Self(Arc::new(whole))
    }

    /// The whole.
    pub fn whole(&self) -> &DmaBuf {
        &self.0
    }

    /// `bytes` bytes from `offset` on. Panics: when they are not within the whole.
    pub fn part(&self, offset: usize, bytes: usize) -> DmaBuf {
        self.0.check(offset, bytes);
        let whole = &self.0.0;
        let home = Home::Whole { _whole: Arc::clone(&self.0) };
        let (region, iova) = (whole.region.slice(offset, bytes), whole.iova + offset as u64);
        DmaBuf(Box::new(Piece { region, iova, bytes, pool: whole.pool, home }))
    }
}

impl DmaBuf {
    /// Address the device knows this buffer by: page aligned, or aligned to the size of its shelf's pieces
    /// where that is a smaller power of two; of a part, as far into the whole as it begins.
    #[inline]
    pub fn iova(&self) -> u64 {
        self.0.iova
    }

    /// Length in bytes.
    #[inline]
    #[allow(clippy::len_without_is_empty)] // An empty buffer is not a case anyone asks about.
    pub fn len(&self) -> usize {
        self.0.bytes
    }

    /// The pool the memory is of, directly or by way of a shelf: its function is the one that can reach the
    /// buffer. Other functions know other memory by the same address.
    #[inline]
    pub fn pool(&self) -> PoolId {
        self.0.pool
    }

    /// The memory: at least as long as the buffer, in whole pages or as long as its shelf's pieces.
    #[inline]
    pub fn region(&self) -> &Region {
        &self.0.region
    }

    /// Copies bytes out, from `offset` on, to fill `out`. Panics: when the range is not within the buffer.
    pub fn read(&self, offset: usize, out: &mut [u8]) {
        self.check(offset, out.len());
        self.0.region.read(offset, out);
    }

    /// Copies `data` in at `offset`. Panics: when the range is not within the buffer.
    pub fn write(&mut self, offset: usize, data: &[u8]) {
        self.check(offset, data.len());
        self.0.region.write(offset, data);
    }

    /// Sets every byte.
    pub fn fill(&mut self, value: u8) {
        self.0.region.fill(0, self.0.bytes, value);
    }

    /// The contents, copied.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut out = vec![0; self.0.bytes];
        self.read(0, &mut out);
        out
    }

    fn check(&self, offset: usize, bytes: usize) {
        assert!(
            bytes <= self.0.bytes && offset <= self.0.bytes - bytes,
            "{bytes} bytes at {offset} of a buffer of {} bytes",
            self.0.bytes
        );
    }
}

impl fmt::Debug for DmaBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DmaBuf")
            .field("iova", &format_args!("{:#x}", self.0.iova))
            .field("bytes", &self.0.bytes)
            .finish()
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        let piece = (self.region.clone(), self.iova);
        match &self.home {
            Home::Pool(pool) => pool.lock().free.entry(piece.0.len()).or_default().push(piece),
            Home::Shelf(shelf) => shelf.put(piece),
            Home::Whole { .. } => (),
            Home::Import(pool) => pool.unmap(piece.1, self.bytes as u64),
        }
    }
}
