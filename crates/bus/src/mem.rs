//! Memory that another party may write at any time.
//!
//! A [`Region`] is a mapping (anonymous, memfd or file) behind bounds-checked accessors. There is never a
//! reference into it: small accesses are atomics, bulk transfers are [`Region::copy_to`] and its slice
//! variants. Offsets are checked with assertions, as slice indexing is: whoever takes an offset from the
//! other side checks it first ([`crate::Mappings::resolve`]).
// UNSAFETY: mapping memory and reading and writing it through raw pointers is what this module is for; every
// other module of the project builds on its safe accessors.
#![allow(unsafe_code)]

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

use crate::BusError;

mod copy;
mod device;
mod gather;
mod guard;
mod sealed;

use guard::Cover;
pub(crate) use guard::Watch;
pub use guard::any_lost;

/// Smallest unit that can be mapped.
pub const PAGE_BYTES: usize = 4096;
/// Size and alignment of a transparent or explicit huge page.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;

/// What statfs(2) says of memory on huge pages.
const HUGETLBFS: rustix::fs::FsWord = 0x9584_58f6;

struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
    /// Set when another process can map the same memory; the offset of `start` within it.
    backing: Option<(Arc<OwnedFd>, u64)>,
    /// Pages of the system's pool of huge pages.
    is_huge: bool,
    /// Of memory that can go away.
    guard: Option<guard::Guard>,
}

/// Which pages shared memory is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pages {
    /// The system's pool of huge pages when it has enough free ones, ordinary pages otherwise.
    #[default]
    Huge,
    /// Ordinary pages: the pool is left to others.
    Ordinary,
}

// SAFETY: the mapping is plain memory, owned by this value and accessed only through raw pointers and
// atomics.
unsafe impl Send for Mapping {}
// SAFETY: as above; no accessor hands out a reference to the memory.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // First the guard: what is mapped here next is not its concern.
        self.guard = None;
        // SAFETY: `start` and `bytes` are what mmap returned, and no Region is left that could reach the
        // memory.
        if let Err(e) = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) } {
            tracing::warn!(bytes = self.bytes, error = %e, "munmap");
        }
    }
}

/// A range of mapped memory, shared by all its clones and slices.
#[derive(Clone)]
pub struct Region {
    mapping: Arc<Mapping>,
    /// First byte of this slice; within `mapping`.
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: `start` points into `mapping`, which is Send and Sync itself and lives as long as this value.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl std::fmt::Debug for Region {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Region")
            .field("bytes", &self.bytes)
            .field("shared", &self.mapping.backing.is_some())
            .finish()
    }
}

impl Region {
    /// Private zeroed memory of this process, on transparent huge pages where the kernel has any. `bytes` is
    /// rounded up to whole pages. Errors: [`BusError::Os`] when there is not enough address space.
    pub fn anonymous(bytes: usize) -> Result<Self, BusError> {
        let bytes = round_up(bytes)?;
        // One huge page more than asked for, so that the part handed out can start on a huge page boundary.
        // It fits: see `round_up`.
        let reserve = if bytes >= HUGE_PAGE_BYTES { bytes + HUGE_PAGE_BYTES } else { bytes };
        // SAFETY: a new anonymous mapping at an address of the kernel's choice disturbs nothing.
        let start = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                reserve,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }
        .map_err(|e| BusError::os(format!("map {bytes} bytes of memory"), e))?;
        let region = Self::from_mapping(start.cast(), reserve, None, false);
        if reserve == bytes {
            return Ok(region);
        }
        let skip = start.addr().next_multiple_of(HUGE_PAGE_BYTES) - start.addr();
        let aligned = region.slice(skip, bytes);
        // A kernel without transparent huge pages refuses; small pages work too, only slower.
        let _ = aligned.advise(Advice::LinuxHugepage);
        Ok(aligned)
    }

    /// Zeroed memory that another process can map through its descriptor, on huge pages of the pool when it
    /// has enough free ones. `bytes` is rounded up to whole pages. Errors: [`BusError::Os`] when there is not
    /// enough memory.
    pub fn shared(name: &str, bytes: usize) -> Result<Self, BusError> {
        Self::shared_on(name, bytes, Pages::Huge)
    }

    /// As [`Region::shared`], on the pages that were asked for. What was got says [`Region::is_huge`].
    /// Errors: as [`Region::shared`].
    pub fn shared_on(name: &str, bytes: usize, pages: Pages) -> Result<Self, BusError> {
        if pages == Pages::Huge
            && let Some(region) = Self::shared_huge(name, bytes)
        {
            return Ok(region);
        }
        Self::memfd(name, round_up(bytes)?, false, SealFlags::empty())
    }

    /// As [`Region::shared_on`], of ordinary pages, for others to read: nobody else can write it, as it is
    /// sealed against that. Errors: as [`Region::shared`].
    pub fn published(name: &str, bytes: usize) -> Result<Self, BusError> {
        let region = Self::memfd(name, round_up(bytes)?, false, SealFlags::FUTURE_WRITE)?;
        // A kernel without transparent huge pages for shared memory refuses; small pages work too.
        let _ = region.advise(Advice::LinuxHugepage);
        Ok(region)
    }

    /// Shared memory of whole huge pages from the system's pool; `None` when the pool does not have them.
    pub(crate) fn shared_huge(name: &str, bytes: usize) -> Option<Self> {
        let bytes = round_up(bytes).ok()?;
        if !bytes.is_multiple_of(HUGE_PAGE_BYTES) {
            return None;
        }
        // Reserving at mmap time makes a pool that is too small fail here, not with a signal at first touch.
        Self::memfd(name, bytes, true, SealFlags::empty()).ok()
    }

    fn memfd(name: &str, bytes: usize, is_huge: bool, further: SealFlags) -> Result<Self, BusError> {
        // The size is named: a machine whose default is 1 GiB would round every mapping up to that.
        let flags = if is_huge { MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB } else { MemfdFlags::empty() };
        let fd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | flags)
            .map_err(|e| BusError::os(format!("create shared memory {name:?}"), e))?;
        rustix::fs::ftruncate(&fd, bytes as u64)
            .map_err(|e| BusError::os(format!("size shared memory {name:?} to {bytes} bytes"), e))?;
        // Nobody who receives the descriptor can shrink the memory under our accesses, nor seal it against
        // the next one who is to write it.
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        let region = Self::map_fd(fd, 0, bytes, true, is_huge)?;
        // Behind the mapping, which is to be written.
        let (fd, _) = region.backing().expect("it has just been mapped");
        rustix::fs::fcntl_add_seals(fd, seals | further)
            .map_err(|e| BusError::os(format!("seal shared memory {name:?}"), e))?;
        Ok(region)
    }

    /// Maps `bytes` of an open file from its start. When the file is cut, or its file system has no room for
    /// a page that is touched, the region [is lost](Region::is_lost). Errors: [`BusError::Os`] when the file
    /// cannot be mapped.
    pub fn file(file: &File, bytes: usize) -> Result<Self, BusError> {
        let fd = file.as_fd().try_clone_to_owned().map_err(|e| BusError::os("duplicate a descriptor", e))?;
        Self::map_fd(fd, 0, bytes, true, false)?.guarded(Cover::Zeroes, Watch::default())
    }

    /// A copy of the first `bytes` of an open file, made page by page when it is written: the file stays as
    /// it is. When the file is cut, the region [is lost](Region::is_lost). Errors: [`BusError::Os`] when the
    /// file cannot be mapped.
    pub fn copy_of_file(file: &File, bytes: usize) -> Result<Self, BusError> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice disturbs nothing.
        let start =
            unsafe { mmap(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, flags, file, 0) }
                .map_err(|e| BusError::os(format!("map {bytes} bytes of a file"), e))?;
        Self::from_mapping(start.cast(), bytes, None, false).guarded(Cover::Zeroes, Watch::default())
    }

    /// Maps memory that another process shared: `bytes` of the object behind `fd` from `offset` (page
    /// aligned). When the other process takes it away, the region [is lost](Region::is_lost). Errors:
    /// [`BusError::OutOfRange`] when the object is smaller than that, [`BusError::Os`] when it cannot be
    /// mapped.
    pub fn from_fd(fd: OwnedFd, offset: u64, bytes: usize, writable: bool) -> Result<Self, BusError> {
        Self::from_peer(fd, offset, bytes, writable, Watch::default())
    }

    /// As [`Region::from_fd`]; `watch` is told when the memory is lost.
    pub(crate) fn from_peer(
        fd: OwnedFd,
        offset: u64,
        bytes: usize,
        writable: bool,
        watch: Watch,
    ) -> Result<Self, BusError> {
        let size =
            rustix::fs::fstat(&fd).map_err(|e| BusError::os("inspect shared memory", e))?.st_size as u64;
        // Device memory has no size to check; a regular object must hold the whole range.
        let fits = offset.checked_add(bytes as u64).is_some_and(|end| end <= size);
        if !fits {
            return Err(BusError::OutOfRange { what: "shared memory", offset, length: bytes as u64, size });
        }
        // Of huge pages only whole ones are mapped, and covered when they go away.
        let system = rustix::fs::fstatfs(&fd).map_err(|e| BusError::os("inspect shared memory", e))?;
        let page = if system.f_type == HUGETLBFS { system.f_bsize as u64 } else { PAGE_BYTES as u64 };
        if !offset.is_multiple_of(page) || !(bytes as u64).is_multiple_of(page) {
            return Err(BusError::Protocol(format!(
                "a mapping of {bytes} bytes at offset {offset:#x}: whole pages of {page} bytes are expected"
            )));
        }
        Self::map_fd(fd, offset, bytes, writable, false)?.guarded(Cover::Zeroes, watch)
    }

    /// The same region, of a mapping that nobody else has yet, guarded against going away.
    fn guarded(mut self, cover: Cover, watch: Watch) -> Result<Self, BusError> {
        // The kernel maps whole pages, whatever it was asked for.
        let bytes = self.bytes.next_multiple_of(PAGE_BYTES);
        let guard = guard::Guard::new(self.as_ptr(), bytes, cover, watch)?;
        let mapping = Arc::get_mut(&mut self.mapping).expect("it has just been made");
        mapping.guard = Some(guard);
        Ok(self)
    }

    /// Whether the memory went away: what is read is zeroes since then, and what is written is lost. Such a
    /// region does not come back.
    #[inline]
    pub fn is_lost(&self) -> bool {
        self.mapping.guard.as_ref().is_some_and(guard::Guard::is_lost)
    }

    fn map_fd(
        fd: OwnedFd,
        offset: u64,
        bytes: usize,
        writable: bool,
        is_huge: bool,
    ) -> Result<Self, BusError> {
        if bytes == 0 || !offset.is_multiple_of(PAGE_BYTES as u64) {
            return Err(BusError::Protocol(format!(
                "a mapping of {bytes} bytes at offset {offset:#x}: whole pages are expected"
            )));
        }
        let protection = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: a new shared mapping at an address of the kernel's choice disturbs nothing.
        let start = unsafe { mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, &fd, offset) }
            .map_err(|e| BusError::os(format!("map {bytes} bytes of shared memory"), e))?;
        Ok(Self::from_mapping(start.cast(), bytes, Some((Arc::new(fd), offset)), is_huge))
    }

    fn from_mapping(
        start: *mut u8,
        bytes: usize,
        backing: Option<(Arc<OwnedFd>, u64)>,
        is_huge: bool,
    ) -> Self {
        let start = NonNull::new(start).expect("mmap never returns address 0");
        Self { mapping: Arc::new(Mapping { start, bytes, backing, is_huge, guard: None }), start, bytes }
    }

    /// Length in bytes.
    #[inline]
    #[allow(clippy::len_without_is_empty)] // A region is never empty.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// The part `offset..offset + bytes`. Panics: when that is not within the region.
    pub fn slice(&self, offset: usize, bytes: usize) -> Self {
        let start = self.at(offset, bytes);
        Self { mapping: self.mapping.clone(), start, bytes }
    }

    /// True for memory this process took from the system's pool of huge pages. Transparent huge pages, which
    /// come and go, do not count.
    pub fn is_huge(&self) -> bool {
        self.mapping.is_huge
    }

    /// Descriptor and offset through which another process can map this region; `None` for private memory.
    pub fn backing(&self) -> Option<(BorrowedFd<'_>, u64)> {
        let (fd, offset) = self.mapping.backing.as_ref()?;
        let skip = self.start.addr().get() - self.mapping.start.addr().get();
        Some((fd.as_fd(), offset + skip as u64))
    }

    /// Address of the first byte in this process, for interfaces that take one.
    pub fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    fn advise(&self, advice: Advice) -> rustix::io::Result<()> {
        // SAFETY: the range is this region's own, and nothing refers to its contents, which advice may clear.
        unsafe { madvise(self.start.as_ptr().cast(), self.bytes, advice) }
    }

    /// Takes the memory of the first `bytes` bytes, or of all there are, from the system now instead of when
    /// they are touched; what they hold stays. Errors: [`BusError::Os`] when there is not enough, or the
    /// kernel cannot do it (before Linux 5.14).
    pub fn populate(&self, bytes: usize) -> Result<(), BusError> {
        let bytes = bytes.min(self.bytes);
        let whole = self.slice(0, bytes);
        whole
            .advise(Advice::LinuxPopulateWrite)
            .map_err(|e| BusError::os(format!("take {bytes} bytes of memory"), e))
    }

    /// Clears `offset..offset + bytes` of an anonymous region, and gives the memory of whole pages in it back
    /// to the system where that is possible. Panics: when the range is not within the region, or the region
    /// has a descriptor.
    pub fn discard(&self, offset: usize, bytes: usize) {
        assert!(self.mapping.backing.is_none(), "only private memory can be discarded");
        let range = self.slice(offset, bytes);
        let skip = range.start.addr().get().next_multiple_of(PAGE_BYTES) - range.start.addr().get();
        let head = skip.min(bytes);
        let pages = (bytes - head) / PAGE_BYTES * PAGE_BYTES;
        range.fill(0, head, 0);
        if pages > 0 {
            let whole = range.slice(head, pages);
            // Memory that is locked (mlock, mlockall) is not given back.
            if whole.advise(Advice::LinuxDontNeed).is_err() {
                whole.fill(0, pages, 0);
            }
        }
        range.fill(head + pages, bytes - head - pages, 0);
    }

    /// Pointer to `offset`, after checking that `bytes` from there are within the region.
    #[inline]
    fn at(&self, offset: usize, bytes: usize) -> NonNull<u8> {
        if bytes > self.bytes || offset > self.bytes - bytes {
            out_of_bounds(offset, bytes, self.bytes);
        }
        // SAFETY: the check keeps the result within, or one past the end of, this region's mapping.
        unsafe { self.start.add(offset) }
    }

    /// A 32-bit word as an atomic. Panics: when it is out of bounds or not 4-byte aligned.
    #[inline]
    pub fn atomic_u32(&self, offset: usize) -> &AtomicU32 {
        let pointer = self.at(offset, 4);
        if !pointer.addr().get().is_multiple_of(4) {
            misaligned(offset, 4);
        }
        // SAFETY: in bounds, aligned, mapped for as long as `self` lives, and only ever accessed atomically
        // or by raw copies; another process may write it, which atomics allow.
        unsafe { AtomicU32::from_ptr(pointer.as_ptr().cast()) }
    }

    /// `N` consecutive 64-bit words as atomics, for accesses whose order matters among themselves; bounds and
    /// alignment are checked once. Panics: when it is out of bounds or not 8-byte aligned.
    #[inline]
    pub fn words<const N: usize>(&self, offset: usize) -> &[AtomicU64; N] {
        let pointer = self.at(offset, N * 8);
        if !pointer.addr().get().is_multiple_of(8) {
            misaligned(offset, 8);
        }
        // SAFETY: as in `atomic_u32`; AtomicU64 has the layout of u64, so N of them take N * 8 bytes.
        unsafe { pointer.cast().as_ref() }
    }

    /// Loads a 32-bit word at a 4-byte aligned `offset`. Panics: when it is out of bounds or misaligned.
    #[inline]
    pub fn load_u32(&self, offset: usize, order: Ordering) -> u32 {
        self.atomic_u32(offset).load(order)
    }

    /// Stores a 32-bit word at a 4-byte aligned `offset`. Panics: when it is out of bounds or misaligned.
    #[inline]
    pub fn store_u32(&self, offset: usize, value: u32, order: Ordering) {
        self.atomic_u32(offset).store(value, order);
    }

    /// Loads a 64-bit word at an 8-byte aligned `offset`. Panics: when it is out of bounds or misaligned.
    #[inline]
    pub fn load_u64(&self, offset: usize, order: Ordering) -> u64 {
        self.words::<1>(offset)[0].load(order)
    }

    /// Stores a 64-bit word at an 8-byte aligned `offset`. Panics: when it is out of bounds or misaligned.
    #[inline]
    pub fn store_u64(&self, offset: usize, value: u64, order: Ordering) {
        self.words::<1>(offset)[0].store(value, order);
    }

    /// Reads `N` consecutive 64-bit words, each exactly once: an entry the other side rewrites meanwhile may
    /// be mixed, but what was checked is what is used. Panics: when it is out of bounds or not 8-byte
    /// aligned.
    #[inline]
    pub fn read_words<const N: usize>(&self, offset: usize) -> [u64; N] {
        let words = self.words::<N>(offset);
        std::array::from_fn(|i| words[i].load(Ordering::Relaxed))
    }

    /// Writes `N` consecutive 64-bit words. Panics: when it is out of bounds or not 8-byte aligned.
    #[inline]
    pub fn write_words<const N: usize>(&self, offset: usize, values: [u64; N]) {
        let words = self.words::<N>(offset);
        for (word, value) in words.iter().zip(values) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Copies `bytes` from `offset` of this region to `target_offset` of `target`. Panics: when either range
    /// is out of bounds.
    #[inline]
    pub fn copy_to(&self, offset: usize, target: &Self, target_offset: usize, bytes: usize) {
        let (source, target) = (self.at(offset, bytes), target.at(target_offset, bytes));
        // SAFETY: both ranges are in bounds of live mappings; `copy` allows them to overlap. Bytes that
        // another party writes meanwhile may arrive in either state, as with any device's DMA; they are never
        // interpreted here.
        unsafe { std::ptr::copy(source.as_ptr(), target.as_ptr(), bytes) }
    }

    /// Copies like [`Region::copy_to`] and meanwhile brings the `bytes` from `ahead` on close, which are to
    /// be copied next: two transfers' worth of memory latency pass at a time. `ahead` is a hint and may be
    /// any number. Panics: when a range to copy is out of bounds.
    #[inline]
    pub fn copy_to_ahead(
        &self,
        offset: usize,
        target: &Self,
        target_offset: usize,
        bytes: usize,
        ahead: usize,
    ) {
        let (source, target) = (self.at(offset, bytes), target.at(target_offset, bytes));
        if ahead >= self.bytes || !bytes.is_multiple_of(copy::LINE_BYTES) || overlap(source, target, bytes) {
            // SAFETY: as in `copy_to`.
            return unsafe { std::ptr::copy(source.as_ptr(), target.as_ptr(), bytes) };
        }
        let ahead = self.start.as_ptr().wrapping_add(ahead);
        // SAFETY: both ranges are in bounds of live mappings, apart, and whole lines; `ahead` is only
        // prefetched.
        unsafe { copy::with_prefetch(source.as_ptr(), target.as_ptr(), bytes, ahead) }
    }

    /// Copies like [`Region::copy_to`], past the caches of this processor: for memory that is larger than
    /// they are and will not be read soon. Saves fetching lines only to overwrite them. Panics: when either
    /// range is out of bounds.
    #[inline]
    pub fn copy_to_uncached(&self, offset: usize, target: &Self, target_offset: usize, bytes: usize) {
        let (source, target) = (self.at(offset, bytes), target.at(target_offset, bytes));
        let lines =
            bytes.is_multiple_of(copy::LINE_BYTES) && target.addr().get().is_multiple_of(copy::LINE_BYTES);
        if !lines || overlap(source, target, bytes) {
            // SAFETY: as in `copy_to`.
            return unsafe { std::ptr::copy(source.as_ptr(), target.as_ptr(), bytes) };
        }
        // SAFETY: both ranges are in bounds of live mappings, apart, whole lines, and the target is aligned
        // to a line.
        unsafe { copy::streaming(source.as_ptr(), target.as_ptr(), bytes) }
    }

    /// Copies bytes out, from `offset` on, to fill `out`. Panics: when the range is out of bounds.
    #[inline]
    pub fn read(&self, offset: usize, out: &mut [u8]) {
        let source = self.at(offset, out.len());
        // SAFETY: in bounds of a live mapping; `out` is exclusive and cannot overlap memory that is never
        // referenced.
        unsafe { std::ptr::copy_nonoverlapping(source.as_ptr(), out.as_mut_ptr(), out.len()) }
    }

    /// Copies bytes out like [`Region::read`] and meanwhile brings as many from `ahead` on close, which are
    /// to be read next. `ahead` is a hint and may be any number. Panics: when the range to copy is out of
    /// bounds.
    #[inline]
    pub fn read_ahead(&self, offset: usize, out: &mut [u8], ahead: usize) {
        let bytes = out.len();
        if ahead >= self.bytes || !bytes.is_multiple_of(copy::LINE_BYTES) {
            return self.read(offset, out);
        }
        let source = self.at(offset, bytes);
        let ahead = self.start.as_ptr().wrapping_add(ahead);
        // SAFETY: in bounds of a live mapping; `out` is exclusive, has whole lines, and cannot overlap memory
        // that is never referenced. `ahead` is only prefetched.
        unsafe { copy::with_prefetch(source.as_ptr(), out.as_mut_ptr(), bytes, ahead) }
    }

    /// Copies like [`Region::copy_to_uncached`], as many bytes as `kept` has, and leaves in `kept` the bytes
    /// that were copied, whatever else becomes of the source: a checksum of `kept` is one of the target.
    /// Other threads may see later writes before these until [`order_uncached`] has been called. Panics: when
    /// either range is out of bounds.
    #[inline]
    pub fn copy_to_uncached_kept(&self, offset: usize, target: &Self, target_offset: usize, kept: &mut [u8]) {
        let bytes = kept.len();
        let (source, to) = (self.at(offset, bytes), target.at(target_offset, bytes));
        let lines =
            bytes.is_multiple_of(copy::LINE_BYTES) && to.addr().get().is_multiple_of(copy::LINE_BYTES);
        if !lines || overlap(source, to, bytes) {
            self.read(offset, kept);
            return target.write(target_offset, kept);
        }
        // SAFETY: both ranges are in bounds of live mappings, apart, whole lines, and the target is aligned
        // to a line; `kept` is exclusive and cannot overlap memory that is never referenced.
        unsafe { copy::streaming_kept(source.as_ptr(), to.as_ptr(), bytes, kept.as_mut_ptr()) }
    }

    /// Copies `data` in at `offset`, past the caches of this processor like [`Region::copy_to_uncached`].
    /// Panics: when the range is out of bounds.
    #[inline]
    pub fn write_uncached(&self, offset: usize, data: &[u8]) {
        let target = self.at(offset, data.len());
        let lines = data.len().is_multiple_of(copy::LINE_BYTES)
            && target.addr().get().is_multiple_of(copy::LINE_BYTES);
        if !lines {
            return self.write(offset, data);
        }
        // SAFETY: in bounds of a live mapping, whole lines, aligned to a line; `data` is a reference, so it
        // is not part of any region.
        unsafe { copy::streaming(data.as_ptr(), target.as_ptr(), data.len()) }
    }

    /// Copies `data` in at `offset`. Panics: when the range is out of bounds.
    #[inline]
    pub fn write(&self, offset: usize, data: &[u8]) {
        let target = self.at(offset, data.len());
        // SAFETY: in bounds of a live mapping; `data` is a reference, so it is not part of any region.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), target.as_ptr(), data.len()) }
    }

    /// Sets `bytes` from `offset` on to `value`. Panics: when the range is out of bounds.
    pub fn fill(&self, offset: usize, bytes: usize, value: u8) {
        let target = self.at(offset, bytes);
        // SAFETY: in bounds of a live mapping.
        unsafe { std::ptr::write_bytes(target.as_ptr(), value, bytes) }
    }

    /// Asks the processor to bring the first `lines` cache lines from `offset` close. Never fails: an offset
    /// outside the region is a hint about nothing.
    #[inline]
    pub fn prefetch(&self, offset: usize, lines: usize) {
        if offset >= self.bytes {
            return;
        }
        for line in 0..lines {
            // Wrapping: the address is only a hint and is not dereferenced.
            copy::prefetch_line(self.start.as_ptr().wrapping_add(offset + line * copy::LINE_BYTES));
        }
    }
}

/// What was copied past the caches so far is seen by other threads before anything this thread writes from
/// now on.
#[inline]
pub fn order_uncached() {
    copy::order_streaming();
}

// The two panics take their numbers by value: an assertion that formats them in place has their addresses
// taken, and every access would write them to the stack first.

#[cold]
#[inline(never)]
fn out_of_bounds(offset: usize, bytes: usize, size: usize) -> ! {
    panic!("{bytes} bytes at {offset} of a region of {size} bytes")
}

#[cold]
#[inline(never)]
fn misaligned(offset: usize, alignment: usize) -> ! {
    panic!("offset {offset} of a region is not {alignment}-byte aligned")
}

/// True when the ranges of `bytes` from two addresses have a byte in common.
#[inline]
fn overlap(source: NonNull<u8>, target: NonNull<u8>, bytes: usize) -> bool {
    source.addr().get().abs_diff(target.addr().get()) < bytes
}

/// Whole pages, and never so many that arithmetic on addresses could overflow: no kernel maps half the
/// address space.
fn round_up(bytes: usize) -> Result<usize, BusError> {
    if bytes > isize::MAX as usize / 2 {
        return Err(BusError::os(format!("map {bytes} bytes of memory"), rustix::io::Errno::NOMEM));
    }
    Ok(bytes.max(1).next_multiple_of(PAGE_BYTES))
}
