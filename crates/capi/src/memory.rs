//! What `kv_alloc` returns: memory of the first device's own, or ordinary memory while there is none.
//!
//! A device can reach memory of its own without a copy. All other memory works as well, with one: what was
//! taken before the device was brought up, from another device, or too small to be worth it.
// UNSAFETY: memory for C is allocated and freed here.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use sdk::{DmaBuf, DmaParts, Region, lock};
use unvme_guide::session::{Member, Session};

use crate::handle::{self, Open};

/// Alignment of small pieces: a cache line.
const LINE_BYTES: usize = 64;
/// Alignment from [`DMA_BYTES_MIN`] on.
const PAGE_BYTES: usize = 4096;
/// Smaller pieces are ordinary memory: a page for each would cost more than copying them.
const DMA_BYTES_MIN: usize = 2048;

/// One piece, by where it comes from.
enum Piece {
    /// The system's heap.
    Heap(Layout),
    /// A device's memory.
    Dma {
        /// All of it; `None` while an operation has it, and when its device is gone.
        buf: Option<DmaBuf>,
        /// For those who take parts of it; `None` when its device is gone.
        parts: Option<DmaParts>,
        /// Keeps the memory where it is when the device is gone.
        region: Region,
        /// The only device that can reach it. Weak, so that no other one is ever at its address.
        device: Weak<Member>,
    },
}

/// Everything that was handed out, by address.
static PIECES: Mutex<BTreeMap<usize, Piece>> = Mutex::new(BTreeMap::new());

/// How many device's pieces have been freed: who knows some by heart forgets them when this changes.
static FREED: AtomicU64 = AtomicU64::new(0);

fn pieces() -> MutexGuard<'static, BTreeMap<usize, Piece>> {
    // The map is whole after every statement.
    lock(&PIECES)
}

/// Zeroed memory, aligned to `alignment` (a power of two of at most a page) and at least to what is usual for
/// its size. `None` when there is none.
pub(crate) fn alloc(bytes: usize, alignment: usize) -> Option<NonNull<u8>> {
    if bytes == 0 || alignment > PAGE_BYTES {
        return None;
    }
    // Declared before the lock and so dropped after it: what ends with a device may wait for a callback.
    let open;
    let mut pieces = pieces();
    // Under the lock: `detach` sees every piece of a session whose handles it found.
    open = handle::first_open();
    let (address, piece) = match &open {
        Some(open) if bytes >= DMA_BYTES_MIN => dma(open, bytes).or_else(|| heap(bytes, alignment))?,
        _ => heap(bytes, alignment)?,
    };
    pieces.insert(address.as_ptr() as usize, piece);
    Some(address)
}

fn dma(open: &Open, bytes: usize) -> Option<(NonNull<u8>, Piece)> {
    let parts = DmaParts::new(open.member().device().controller().alloc(bytes).ok()?);
    let region = parts.whole().region().clone();
    let address = NonNull::new(region.as_ptr())?;
    let buf = Some(parts.part(0, bytes));
    Some((address, Piece::Dma { buf, parts: Some(parts), region, device: Arc::downgrade(open.member()) }))
}

fn heap(bytes: usize, alignment: usize) -> Option<(NonNull<u8>, Piece)> {
    let usual = if bytes < DMA_BYTES_MIN { LINE_BYTES } else { PAGE_BYTES };
    let layout = Layout::from_size_align(bytes, alignment.max(usual)).ok()?;
    // SAFETY: the size is not 0.
    let address = NonNull::new(unsafe { alloc_zeroed(layout) })?;
    Some((address, Piece::Heap(layout)))
}

/// Gives memory of [`alloc`] back; anything else is left alone. False when it was something else.
pub(crate) fn free(address: *mut u8) -> bool {
    match pieces().remove(&(address as usize)) {
        Some(Piece::Heap(layout)) => {
            // SAFETY: it was allocated with this layout, and is not in the map any more: this is the only
            // time.
            unsafe { dealloc(address, layout) };
            true
        }
        // An operation that has the buffer keeps it, and with it the memory.
        Some(Piece::Dma { .. }) => {
            // Relaxed: a stale piece that somebody knows is whole and mapped, only kept for too long.
            FREED.fetch_add(1, Ordering::Relaxed);
            true
        }
        None => false,
    }
}

/// Takes the buffer of a piece that begins at `address` for an operation of `bytes` bytes on this device, if
/// it is the device's own and no other operation has it.
#[inline]
pub(crate) fn lend(open: &Open, address: *const u8, bytes: usize) -> Option<DmaBuf> {
    // Ordinary memory hardly ever looks like a buffer, and then nobody is asked.
    if !open.takes_lent() || bytes == 0 || !(address as usize).is_multiple_of(PAGE_BYTES) {
        return None;
    }
    lend_piece(open, address, bytes)
}

/// Whether a piece is of this device.
fn is_of(device: &Weak<Member>, member: &Arc<Member>) -> bool {
    std::ptr::eq(device.as_ptr(), Arc::as_ptr(member))
}

fn lend_piece(open: &Open, address: *const u8, bytes: usize) -> Option<DmaBuf> {
    match pieces().get_mut(&(address as usize))? {
        Piece::Dma { buf, device, .. } if is_of(device, open.member()) => {
            buf.take_if(|buf| buf.len() >= bytes)
        }
        _ => None,
    }
}

/// Puts back what [`lend`] took. A piece that was freed meanwhile goes to its device.
pub(crate) fn give_back(buf: DmaBuf) {
    let address = buf.region().as_ptr() as usize;
    if let Some(Piece::Dma { buf: home, region, .. }) = pieces().get_mut(&address)
        && region.as_ptr() as usize == address
    {
        *home = Some(buf);
    }
}

/// A number that changes when a piece of a device's is freed.
#[inline]
pub(crate) fn freed() -> u64 {
    FREED.load(Ordering::Relaxed)
}

/// The device's memory that `address` is in: its parts, and the whole as anybody else can map it. `None` for
/// all other memory, the system's heap among it.
pub(crate) fn around(address: usize) -> Option<(Option<DmaParts>, Region)> {
    match pieces().range(..=address).next_back()? {
        (start, Piece::Dma { parts, region, .. }) if address - start < region.len() => {
            Some((parts.clone(), region.clone()))
        }
        _ => None,
    }
}

/// Lets go of a closed session's device; the memory stays where it is until it is freed.
pub(crate) fn detach(session: &Arc<Session>) {
    for piece in pieces().values_mut() {
        if let Piece::Dma { buf, parts, device, .. } = piece
            && session.members().iter().any(|member| is_of(device, member))
        {
            (*buf, *parts) = (None, None);
            *device = Weak::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use unvme_guide::config::{DeviceConfig, SdkConfig};

    use super::*;
    use crate::session::{self, Manner};

    #[test]
    fn memory_before_a_device_is_zeroed_aligned_and_freed_once() {
        for (bytes, alignment, expected) in [(16, 0, 64), (2048, 0, 4096), (100, 4096, 4096)] {
            let address = alloc(bytes, alignment).expect("there is memory").as_ptr();
            assert!((address as usize).is_multiple_of(expected), "{bytes} bytes at {address:?}");
            // SAFETY: so many bytes were allocated.
            assert!(unsafe { std::slice::from_raw_parts(address, bytes) }.iter().all(|byte| *byte == 0));
            assert!(free(address));
            assert!(!free(address), "freed a second time");
        }
        assert!(alloc(0, 0).is_none());
        assert!(alloc(usize::MAX, 0).is_none());
        assert!(alloc(16, 8192).is_none());
    }

    #[test]
    fn a_piece_of_the_device_is_lent_to_one_operation_at_a_time_and_outlives_the_device() {
        let config = SdkConfig { devices: vec![DeviceConfig::new("mem:kv:16M")], ..SdkConfig::default() };
        let number = session::open_one(config, &Manner::default()).expect("a device");
        let open = handle::get(number).expect("its handle");
        let piece = alloc(8192, 0).expect("there is memory").as_ptr();

        assert!(lend(&open, piece.wrapping_add(4096), 4096).is_none(), "only from its beginning");
        assert!(lend(&open, piece, 8193).is_none(), "no more than it has");
        let buf = lend(&open, piece, 8192).expect("it is the device's own");
        assert_eq!(buf.region().as_ptr(), piece);
        assert!(lend(&open, piece, 8192).is_none(), "somebody has it");
        give_back(buf);
        let buf = lend(&open, piece, 1).expect("it is back");
        assert!(free(piece), "freed while an operation has it");
        give_back(buf);

        let kept = alloc(4096, 0).expect("there is memory").as_ptr();
        drop(open);
        session::close_one(number).expect("nothing is outstanding");
        // SAFETY: so many bytes were allocated, and not freed.
        unsafe { kept.write_bytes(7, 4096) };
        assert!(free(kept));
    }
}
