//! Bytes that keep what they are given: a [`Store`], and the bookkeeping of its space.

mod backing;
mod file;
mod identity;
mod memory;
pub(crate) mod redo;
pub(crate) mod sums;
pub(crate) mod tags;

use std::io::{self, Read, Write};
use std::path::PathBuf;

use unvme_bus::Region;

use crate::SsdError;

pub(crate) use backing::Backing;
pub use file::FileStore;
pub use memory::MemoryStore;

/// Space of a store is given away, and reserved, in chunks of this size.
pub const CHUNK_BYTES: u64 = 2 << 20;

/// As the place of the next read: there is none.
pub(crate) const NOWHERE: u64 = u64::MAX;

/// A range of the media within one chunk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    pub(crate) offset: u64,
    pub(crate) bytes: usize,
}

/// Bytes that outlive a command, and perhaps the process.
pub trait Store: Send + Sync {
    /// Capacity in bytes, a multiple of [`CHUNK_BYTES`].
    fn bytes(&self) -> u64;

    /// The bytes as memory; `None` for a store that keeps no data, or only tags.
    fn memory(&self) -> Option<&Region>;

    /// The first eight bytes of each 4 KiB page, for a store that keeps no more than those: what is read is
    /// them, over and over. `None` for any other store.
    fn tags(&self) -> Option<&Region> {
        None
    }

    /// True when nothing that is written now outlives the process, and what was written before stays as it
    /// is.
    fn is_read_only(&self) -> bool {
        false
    }

    /// What stays the same for as long as nothing that was written can have been lost, synced or not: who
    /// finds the number of before when it opens the store again knows that at most the process has died.
    /// `None`, for a store that cannot tell, is the same as nothing.
    fn life(&self) -> Option<[u8; 16]> {
        None
    }

    /// False when nothing outlives the process: what only recovery needs is not written then.
    fn persists(&self) -> bool {
        true
    }

    /// Memory for a redo log that outlives the process, and holds what the last process has left in it unless
    /// that may be incomplete; asked once, when the device is made. `None` when nothing that is written
    /// outlives the process. Errors: when there is no space for it, or the file system fails.
    fn redo(&self) -> Result<Option<Region>, SsdError> {
        Ok(None)
    }

    /// Writes bytes that lie within one 4 KiB page of a reserved chunk, of which a kill of the process leaves
    /// all or nothing; for a store whose [`Store::redo`] fails. Errors: when the file system fails.
    fn write_page(&self, offset: u64, bytes: &[u8]) -> Result<(), SsdError> {
        let memory = self.memory().ok_or_else(|| SsdError::State {
            path: self.media_path(),
            reason: "the store keeps no data that could be written".into(),
        })?;
        memory.write(offset as usize, bytes);
        Ok(())
    }

    /// True when the chunk may hold data from earlier; asked once, when the device is made.
    fn holds_data(&self, chunk: u64) -> bool;

    /// Makes sure that every byte of a chunk can be written. Called before the first write to it, by one
    /// thread at a time. Errors: when there is no space, or the file system fails.
    fn reserve(&self, chunk: u64) -> Result<(), SsdError>;

    /// Gives a chunk's space back. It must read as zeroes when it is reserved again. Nobody touches the chunk
    /// meanwhile. Errors: when the file system fails.
    fn release(&self, chunk: u64) -> Result<(), SsdError>;

    /// Makes everything written before survive a power cut. Errors: when the file system fails.
    fn sync(&self) -> Result<(), SsdError>;

    /// Where the state is kept, for messages.
    fn state_path(&self) -> PathBuf {
        PathBuf::from("saved state")
    }

    /// Where the data is kept, for messages.
    fn media_path(&self) -> PathBuf {
        PathBuf::from("the media")
    }

    /// The device's state as saved last. Errors: when it is there but cannot be read.
    fn load_state(&self) -> Result<Option<Vec<u8>>, SsdError>;

    /// Replaces the device's saved state, all or nothing. Errors: when the file system fails; the old state
    /// is kept.
    fn save_state(&self, state: &[u8]) -> Result<(), SsdError>;

    /// Keeps what `write` writes, all or nothing: an index of the pairs in chunks of which `chunk` is the
    /// first, which makes opening them fast. Nothing is lost with it, and a power cut may leave half of it.
    /// Errors: when the file system fails; there is no index then.
    fn save_index(
        &self,
        chunk: u64,
        write: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), SsdError> {
        let _ = (chunk, write);
        Ok(())
    }

    /// The index that was saved for a chunk last, if it is still there.
    fn load_index(&self, chunk: u64) -> Option<Box<dyn Read>> {
        let _ = chunk;
        None
    }

    /// Forgets the index that was saved for a chunk.
    fn drop_index(&self, chunk: u64) {
        let _ = chunk;
    }

    /// The device is closed: everything that is to be saved has been, and nothing is written any more, though
    /// handles of the device may be left. What keeps others from opening the same store can be given back.
    /// Called once.
    fn close(&self) {}
}
