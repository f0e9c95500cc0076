//! The file of the redo log beside a device's data, `media.redo`: what it is of, and whether what it holds
//! still counts. What its records mean belongs to `media::atomic`.
//!
//! The log is for the death of the process alone: it lies in the page cache, as the data does, and is never
//! synced. After a start of the machine nothing of it counts, because pages of both files may have been lost
//! in any order.
#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FallocateFlags, fallocate};
use unvme_bus::Region;
use unvme_bus::file_size::without_signal;
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::identity::Identity;
use crate::SsdError;

/// Name of the file in a device's folder.
const REDO_FILE: &str = "media.redo";
/// Records of the log: threads that write at once without waiting for one another.
pub(crate) const RECORDS: usize = 63;
/// Bytes of a record's data.
pub(crate) const RECORD_BYTES: usize = 4096;
/// Bytes of the file: a page for the header and a line for each record, and the data of the records.
const FILE_BYTES: usize = RECORD_BYTES * (RECORDS + 1);
/// Bytes of the header and of each record's line in the first page.
const LINE_BYTES: usize = 64;
const MAGIC: [u8; 8] = *b"UNVMERDO";
const VERSION: u32 = 1;
/// Only the owner of the device may read its data.
const FILE_MODE: u32 = 0o600;

/// The first bytes of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Header {
    magic: [u8; 8],
    version: U32,
    records: U32,
    /// Which device the log is of.
    identity: Identity,
    /// [`Store::life`](super::Store::life) of when it was written.
    life: [u8; 16],
    reserved: [u8; 16],
}

const _: () = assert!(size_of::<Header>() == LINE_BYTES);

/// Where the word of a record is, whose number is below [`RECORDS`].
#[inline]
pub(crate) const fn word_at(record: usize) -> usize {
    LINE_BYTES * (record + 1)
}

/// Where the data of a record is, whose number is below [`RECORDS`].
#[inline]
pub(crate) const fn data_at(record: usize) -> usize {
    RECORD_BYTES * (record + 1)
}

/// Which device a log has to be of, and since when.
#[derive(Clone, Copy)]
pub(super) struct Owner {
    pub(super) identity: Identity,
    /// `None`, where the system does not say: nothing that was written before counts.
    pub(super) life: Option<[u8; 16]>,
}

impl Owner {
    fn header(self) -> Header {
        Header {
            magic: MAGIC,
            version: VERSION.into(),
            records: (RECORDS as u32).into(),
            identity: self.identity,
            life: self.life.unwrap_or_default(),
            reserved: [0; 16],
        }
    }
}

/// The log in `folder`, which has no records that do not count. Errors: [`SsdError::Newer`],
/// [`SsdError::File`] when the file cannot be used, or there is no space for it.
pub(super) fn open(folder: &Path, owner: Owner) -> Result<Region, SsdError> {
    let path = folder.join(REDO_FILE);
    let fail = |what| {
        let path = path.clone();
        move |source| SsdError::File { path, what, source }
    };
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(FILE_MODE);
    let file = options.open(&path).map_err(fail("open"))?;
    let is_current = is_current(&file, &path, owner)?;
    if !is_current {
        reset(&file, owner).map_err(fail("write"))?;
    }
    Ok(Region::file(&file, FILE_BYTES)?)
}

/// A private copy of the log in `folder`, for a store that is opened for reading only; `None` when nothing of
/// it counts. Errors: as [`open`].
pub(super) fn open_copy(folder: &Path, owner: Owner) -> Result<Option<Region>, SsdError> {
    let path = folder.join(REDO_FILE);
    match File::open(&path) {
        Ok(file) if is_current(&file, &path, owner)? => Ok(Some(Region::copy_of_file(&file, FILE_BYTES)?)),
        Ok(_) => Ok(None),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(SsdError::File { path, what: "open", source }),
    }
}

/// True when what a file holds counts.
fn is_current(file: &File, path: &Path, owner: Owner) -> Result<bool, SsdError> {
    let fail = |what| move |source| SsdError::File { path: path.to_path_buf(), what, source };
    let size = file.metadata().map_err(fail("inspect"))?.len();
    if size < LINE_BYTES as u64 {
        return Ok(false);
    }
    let mut header = Header::new_zeroed();
    file.read_exact_at(header.as_mut_bytes(), 0).map_err(fail("read"))?;
    if header.magic == MAGIC && header.version.get() > VERSION {
        let found = header.version.get();
        return Err(SsdError::Newer {
            path: path.to_path_buf(),
            what: "its redo log",
            found,
            known: VERSION,
        });
    }
    Ok(owner.life.is_some() && size == FILE_BYTES as u64 && header == owner.header())
}

/// Makes the file a log without records. The header comes last: until it has been written nothing counts.
fn reset(file: &File, owner: Owner) -> io::Result<()> {
    let bytes = FILE_BYTES as u64;
    without_signal(|| {
        file.set_len(bytes)?;
        match rustix::io::retry_on_intr(|| fallocate(file, FallocateFlags::KEEP_SIZE, 0, bytes)) {
            Err(rustix::io::Errno::OPNOTSUPP) => file.write_all_at(&vec![0; FILE_BYTES], 0)?,
            done => done?,
        }
        file.write_all_at(&[0; RECORD_BYTES], 0)?;
        file.write_all_at(owner.header().as_bytes(), 0)
    })
}
