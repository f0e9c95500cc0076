//! Memory for secrets: no core dump has it, and it is cleared when it is given back.
//!
//! Keys are small and there may be many of them: they share pages, one cell each. Anything longer, the text
//! of a file for example, has pages of its own.
// UNSAFETY: mapping memory of its own, which the allocator's cannot be, and lending it as slices.
#![allow(unsafe_code)]

use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Mutex;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use zeroize::Zeroize;

use crate::lock;
use crate::mem::PAGE_BYTES;

/// Bytes of a cell: the longest key there is.
const CELL_BYTES: usize = 64;
/// Bytes that are mapped for cells at a time. They stay mapped: the next key takes them.
const CELLS_BYTES: usize = 16 * PAGE_BYTES;

/// Cells that nobody has.
static FREE: Mutex<Vec<Cell>> = Mutex::new(Vec::new());

/// The first byte of [`CELL_BYTES`] that are mapped for good and that nobody else has.
struct Cell(NonNull<u8>);

// SAFETY: plain memory, which belongs to whoever has the cell.
unsafe impl Send for Cell {}

/// Bytes that are a secret. They are in no core dump, and cleared when dropped. They can be swapped out like
/// any other memory, and whoever may read the memory of the process may read them.
pub struct SecretBytes {
    /// Valid for `bytes`, and nobody else's.
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: plain memory that belongs to this value, as a Vec's does.
unsafe impl Send for SecretBytes {}
// SAFETY: shared references only read it.
unsafe impl Sync for SecretBytes {}

impl SecretBytes {
    /// So many zeroes.
    ///
    /// # Panics
    /// When the system has no memory, as other allocations end the process.
    pub fn zeroed(bytes: usize) -> Self {
        let start = if bytes <= CELL_BYTES { take_cell() } else { map(pages(bytes)) };
        Self { start: start.unwrap_or_else(|error| panic!("memory for a secret: {error}")), bytes }
    }

    /// A copy. The original is its owner's to clear.
    pub fn copy_of(bytes: &[u8]) -> Self {
        let mut copy = Self::zeroed(bytes.len());
        copy.copy_from_slice(bytes);
        copy
    }
}

impl Deref for SecretBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: mapped readable, initialized by the kernel with zeroes, for as long as this value lives.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }
}

impl DerefMut for SecretBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, mapped writable, and the exclusive borrow of the value is one of its memory.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }
}

impl Clone for SecretBytes {
    fn clone(&self) -> Self {
        Self::copy_of(self)
    }
}

impl fmt::Debug for SecretBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretBytes({} bytes)", self.bytes)
    }
}

impl Drop for SecretBytes {
    fn drop(&mut self) {
        self.deref_mut().zeroize();
        if self.bytes <= CELL_BYTES {
            lock(&FREE).push(Cell(self.start));
            return;
        }
        // SAFETY: what mmap has returned for `pages` bytes; nobody else has it.
        if let Err(error) = unsafe { munmap(self.start.as_ptr().cast(), pages(self.bytes)) } {
            tracing::warn!(%error, "munmap");
        }
    }
}

/// Bytes that are mapped for a longer secret.
fn pages(bytes: usize) -> usize {
    bytes.next_multiple_of(PAGE_BYTES)
}

/// Memory that is zero and that core dumps leave out.
fn map(bytes: usize) -> io::Result<NonNull<u8>> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new anonymous mapping, at an address that the kernel chooses.
    let start = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, protection, MapFlags::PRIVATE)? };
    // SAFETY: the mapping just made; the advice changes no content.
    unsafe { madvise(start, bytes, Advice::LinuxDontDump)? };
    NonNull::new(start.cast()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

fn take_cell() -> io::Result<NonNull<u8>> {
    let mut free = lock(&FREE);
    if let Some(Cell(start)) = free.pop() {
        return Ok(start);
    }
    let start = map(CELLS_BYTES)?;
    for at in (CELL_BYTES..CELLS_BYTES).step_by(CELL_BYTES) {
        // SAFETY: within the mapping.
        free.push(Cell(unsafe { start.add(at) }));
    }
    Ok(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// VmFlags of the mapping that an address is in (proc(5), /proc/PID/smaps).
    fn flags(address: usize) -> String {
        let text = std::fs::read_to_string("/proc/self/smaps").expect("smaps");
        let mut is_here = false;
        for line in text.lines() {
            let range = line.split(' ').next().and_then(|word| word.split_once('-'));
            let bound = |text: &str| usize::from_str_radix(text, 16).ok();
            if let Some((Some(start), Some(end))) = range.map(|(start, end)| (bound(start), bound(end))) {
                is_here = (start..end).contains(&address);
            }
            if let Some(flags) = line.strip_prefix("VmFlags:").filter(|_| is_here) {
                return flags.to_owned();
            }
        }
        panic!("{address:#x} is not mapped")
    }

    #[test]
    fn secrets_of_all_lengths_are_left_out_of_core_dumps() {
        for bytes in [0, 1, 64, 65, 4096, 4097, 1 << 20] {
            let secret = SecretBytes::copy_of(&vec![7; bytes]);
            assert!(secret.iter().all(|byte| *byte == 7) && secret.len() == bytes);
            let flags = flags(secret.start.as_ptr() as usize);
            assert!(flags.split_whitespace().any(|flag| flag == "dd"), "{bytes} bytes: {flags}");
        }
    }

    #[test]
    fn what_a_secret_was_is_gone_when_its_memory_is_anothers() {
        let secrets: Vec<_> = (0..2000).map(|_| SecretBytes::copy_of(&[0xa5; CELL_BYTES])).collect();
        let mut starts: Vec<_> = secrets.iter().map(|secret| secret.start).collect();
        starts.sort();
        starts.dedup();
        assert_eq!(starts.len(), 2000, "each has memory of its own");
        drop(secrets);
        for _ in 0..2000 {
            assert!(SecretBytes::zeroed(CELL_BYTES).iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn a_secret_is_not_printed() {
        assert_eq!(format!("{:?}", SecretBytes::copy_of(b"hunter2").clone()), "SecretBytes(7 bytes)");
    }
}
