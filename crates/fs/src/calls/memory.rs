//! The memory of a mapped file: a memfd as long as the file, that is filled range by range.
//!
//! A range is *loaded* once the memfd has its content: from then on the memfd is what reads return, and what
//! is written to the file is written there as well. All other ranges are holes of the memfd, no program has
//! them mapped, and they are read from the file. Holes of the file stay holes of the memfd.

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{FallocateFlags, MemfdFlags, Mode, SeekFrom};
use rustix::io::Errno;

use super::ranges::RangeSet;
use crate::data::{SIZE_MAX, Seek};
use crate::error::{Error, Result};
use crate::vnode::Vnode;

/// Bytes that are loaded, or compared with the file, while the lock of a mapped file is held once.
const CHUNK: usize = 256 << 10;
/// What is written back at least, and the unit of what is loaded.
pub(super) const PAGE: u64 = 4096;
/// Descriptors are moved out of the way of those of programs, which expect small numbers in a row.
pub(super) const FD_MIN: i32 = 512;

/// The memory of a file, for the caller that holds the lock of the mapped file.
pub(super) struct Memory<'a> {
    pub(super) node: &'a Vnode,
    pub(super) fd: &'a OwnedFd,
    pub(super) loaded: &'a mut RangeSet,
}

/// Makes the memory for a file: nothing of it is loaded. No process can seal it, and its mode lets no other
/// user open it for writing by way of `/proc/self/fd`: who may write gets a descriptor that does.
pub(super) fn create() -> Result<Arc<OwnedFd>> {
    let fd = rustix::fs::memfd_create("unvme-mapped", MemfdFlags::CLOEXEC)?;
    rustix::fs::fchmod(&fd, Mode::RUSR | Mode::RGRP | Mode::ROTH)?;
    Ok(Arc::new(rustix::io::fcntl_dupfd_cloexec(&fd, FD_MIN).unwrap_or(fd)))
}

fn page_start(at: u64) -> u64 {
    at / PAGE * PAGE
}

fn page_end(at: u64) -> u64 {
    at.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX)
}

/// Whole pages around a range.
pub(super) fn pages_of(range: &Range<u64>) -> Range<u64> {
    page_start(range.start)..page_end(range.end)
}

impl Memory<'_> {
    /// Sets the size of the memory to that of the file.
    pub(super) fn set_size(&self) -> Result<()> {
        Ok(rustix::fs::ftruncate(self.fd, self.node.attributes().size)?)
    }

    /// Loads the first part of a range of whole pages that is not loaded: at most [`CHUNK`] bytes of data.
    /// Returns where to go on; `None` when all of it is loaded.
    pub(super) fn load_some(&mut self, range: Range<u64>) -> Result<Option<u64>> {
        let Some((_, gap)) = self.loaded.pieces(range).find(|(is_loaded, _)| !is_loaded) else {
            return Ok(None);
        };
        let end = page_end(self.node.attributes().size).clamp(gap.start, gap.end);
        let (data, stop) = match end - gap.start {
            // Asking for data writes back what the cache has of the file: not worth it for so little.
            bytes if bytes <= CHUNK as u64 => (gap.start..end, gap.end),
            _ => self.find_data(&gap)?,
        };
        self.copy_in(data, true)?;
        self.loaded.insert(gap.start..stop);
        Ok(Some(stop))
    }

    /// The first data of the file in a range, at most [`CHUNK`] bytes in whole pages, and up to where there
    /// is no other data.
    fn find_data(&self, gap: &Range<u64>) -> Result<(Range<u64>, u64)> {
        let next = |what, at| match self.node.seek(at, what) {
            Ok(found) => Ok(Some(found)),
            Err(Error::Posix(Errno::NXIO)) => Ok(None),
            Err(e) => Err(e),
        };
        let data = next(Seek::Data, gap.start)?.filter(|&data| data < gap.end);
        let Some(start) = data.map(|data| page_start(data).max(gap.start)) else {
            return Ok((gap.end..gap.end, gap.end));
        };
        // Without a hole, the file was cut in between: there is nothing to copy.
        let end = next(Seek::Hole, start)?.map_or(start + PAGE, page_end);
        let end = end.min(gap.end).min(start + CHUNK as u64);
        Ok((start..end, end))
    }

    /// Copies from the file. Pages of zeros stay holes where the memory `is_new`.
    fn copy_in(&self, range: Range<u64>, is_new: bool) -> Result<()> {
        static ZEROS: [u8; CHUNK] = [0; CHUNK];
        let mut buffer = vec![0; CHUNK.min((range.end - range.start) as usize)];
        let mut at = range.start;
        while at < range.end {
            let bytes = buffer.len().min((range.end - at) as usize);
            let read = self.node.read_at(at, &mut buffer[..bytes])?;
            if read == 0 {
                break;
            }
            let read = &buffer[..read];
            let all = || std::iter::once(0..read.len()).collect();
            for part in if is_new { differing(read, &ZEROS[..read.len()]) } else { all() } {
                self.write_all(at + part.start as u64, &read[part])?;
            }
            at += read.len() as u64;
        }
        Ok(())
    }

    /// The loaded parts of a range.
    fn loaded_of(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        self.loaded.pieces(range).filter_map(|(is_loaded, part)| is_loaded.then_some(part))
    }

    /// Reads what programs see in the file.
    pub(super) fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<usize> {
        let left = self.node.attributes().size.saturating_sub(offset);
        let bytes = out.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let mut done = 0;
        for (is_loaded, part) in self.loaded.pieces(offset..offset.saturating_add(bytes as u64)) {
            let out = &mut out[done..done + (part.end - part.start) as usize];
            let read = if is_loaded {
                self.read_memory(part.start, out)?
            } else {
                self.node.read_at(part.start, out)?
            };
            done += read;
            if read < out.len() {
                break;
            }
        }
        Ok(done)
    }

    fn read_memory(&self, offset: u64, out: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        while done < out.len() {
            match rustix::io::pread(self.fd, &mut out[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(done)
    }

    fn write_all(&self, offset: u64, data: &[u8]) -> Result<()> {
        let mut done = 0;
        while done < data.len() {
            match rustix::io::pwrite(self.fd, &data[done..], offset + done as u64) {
                Ok(written) => done += written,
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    /// Repeats in memory what has been written to the file.
    pub(super) fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        for part in self.loaded_of(offset..offset.saturating_add(data.len() as u64)) {
            let data = &data[(part.start - offset) as usize..(part.end - offset) as usize];
            self.write_all(part.start, data)?;
        }
        Ok(())
    }

    /// Repeats in memory what has been copied to the file, from its pages.
    pub(super) fn refresh(&self, range: Range<u64>) -> Result<()> {
        let parts: Vec<_> = self.loaded_of(range).collect();
        parts.into_iter().try_for_each(|part| self.copy_in(part, false))
    }

    /// Clears a range, in whole pages or parts of them. It has no memory afterwards.
    pub(super) fn clear(&self, range: Range<u64>) -> Result<()> {
        let end = range.end.min(SIZE_MAX);
        if range.start < end {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(self.fd, flags, range.start, end - range.start)?;
        }
        Ok(())
    }

    /// The first data in loaded memory from an offset on: at most [`CHUNK`] bytes, in whole pages but for the
    /// end of the file.
    fn next_data(&self, from: u64) -> Result<Option<Range<u64>>> {
        let size = self.node.attributes().size;
        for part in self.loaded_of(from..size) {
            let data = match rustix::fs::seek(self.fd, SeekFrom::Data(part.start)) {
                Ok(found) => page_start(found).max(part.start),
                Err(Errno::NXIO) => return Ok(None),
                Err(e) => return Err(e.into()),
            };
            if data < part.end {
                // A program that may write can cut the memory in between: then nothing is left to be written.
                let hole = match rustix::fs::seek(self.fd, SeekFrom::Hole(data)) {
                    Err(Errno::NXIO) => return Ok(None),
                    found => found?,
                };
                return Ok(Some(data..page_end(hole).min(part.end).min(data + CHUNK as u64)));
            }
        }
        Ok(None)
    }

    /// Writes to the file what differs from it in the first loaded data from an offset on, at most [`CHUNK`]
    /// bytes, and moves the offset to their end. False at the end of the file. Memory that no program has
    /// touched is a hole, and costs nothing; memory that was only read is equal to the file, and not written.
    pub(super) fn write_back_some(&self, at: &mut u64, buffers: &mut Buffers) -> Result<bool> {
        let Some(range) = self.next_data(*at)? else {
            // Bytes beyond the end in the last page are no content: the kernel clears them here, too.
            let size = self.node.attributes().size;
            self.clear(size..page_end(size))?;
            return Ok(false);
        };
        *at = range.end;
        let bytes = (range.end - range.start) as usize;
        let [ours, theirs] = buffers.0.each_mut().map(|buffer| &mut buffer[..bytes]);
        let read = self.read_memory(range.start, ours)?;
        let read = self.node.read_at(range.start, &mut theirs[..read])?;
        for mut part in differing(&ours[..read], &theirs[..read]) {
            // A device that fails, or is full, returns the error for what is left.
            while !part.is_empty() {
                part.start += self.node.write_at(range.start + part.start as u64, &ours[part.clone()])?;
            }
        }
        Ok(true)
    }
}

/// Buffers for comparing memory with its file.
pub(super) struct Buffers([Vec<u8>; 2]);

impl Buffers {
    pub(super) fn new() -> Self {
        Self([vec![0; CHUNK], vec![0; CHUNK]])
    }
}

/// Pages that are not the same, neighbors as one range.
fn differing(ours: &[u8], theirs: &[u8]) -> Vec<Range<usize>> {
    const PAGE: usize = self::PAGE as usize;
    let mut found: Vec<Range<usize>> = Vec::new();
    for (page, (a, b)) in ours.chunks(PAGE).zip(theirs.chunks(PAGE)).enumerate() {
        let range = page * PAGE..page * PAGE + a.len();
        match found.last_mut() {
            _ if a == b => {}
            Some(last) if last.end == range.start => last.end = range.end,
            _ => found.push(range),
        }
    }
    found
}
