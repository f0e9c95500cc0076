//! Stores that live and die with the process.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use unvme_bus::{Region, lock};

use super::file::StateFile;
use super::{CHUNK_BYTES, Store, tags};
use crate::SsdError;

/// Data in private memory, which the system hands out as it is touched; or less of it than was written.
pub struct MemoryStore {
    bytes: u64,
    kept: Kept,
    state: Mutex<Option<Vec<u8>>>,
    /// What outlives the process.
    state_file: Option<StateFile>,
}

/// What is kept of the data.
enum Kept {
    All(Region),
    Tags(Region),
    Nothing,
}

impl MemoryStore {
    /// A store of `bytes`, a multiple of [`CHUNK_BYTES`]. Errors: [`SsdError::Bus`] when there is not enough
    /// address space.
    pub fn new(bytes: u64) -> Result<Self, SsdError> {
        Ok(Self::keeping(bytes, Kept::All(region(bytes)?)))
    }

    /// A store of tags: what is read of a page is its first eight bytes, over and over, and a write that does
    /// not cover them leaves no trace. It stands for `bytes` and takes a 512th of that. Errors:
    /// [`SsdError::Bus`] when there is not enough address space.
    pub fn tags(bytes: u64) -> Result<Self, SsdError> {
        Ok(Self::keeping(bytes, Kept::Tags(region(tags::bytes_for(bytes))?)))
    }

    /// A store of tags whose device counts over all its lives: its state is a file in `folder`, and the tags
    /// are not. Errors: as [`MemoryStore::tags`]; [`SsdError::State`] and [`SsdError::File`] when the state
    /// cannot be read.
    pub fn tags_in(folder: &Path, bytes: u64) -> Result<Self, SsdError> {
        Ok(Self { state_file: Some(StateFile::open(folder)?), ..Self::tags(bytes)? })
    }

    /// A store that keeps no data: commands are checked and completed, and no byte moves. For measuring
    /// everything else.
    pub fn null(bytes: u64) -> Self {
        Self::keeping(bytes, Kept::Nothing)
    }

    fn keeping(bytes: u64, kept: Kept) -> Self {
        Self { bytes, kept, state: Mutex::default(), state_file: None }
    }
}

fn region(bytes: u64) -> Result<Region, SsdError> {
    Ok(Region::anonymous(usize::try_from(bytes).unwrap_or(usize::MAX))?)
}

impl Store for MemoryStore {
    fn bytes(&self) -> u64 {
        match &self.kept {
            Kept::All(memory) => memory.len() as u64,
            Kept::Tags(_) | Kept::Nothing => self.bytes,
        }
    }

    fn memory(&self) -> Option<&Region> {
        if let Kept::All(memory) = &self.kept { Some(memory) } else { None }
    }

    fn tags(&self) -> Option<&Region> {
        if let Kept::Tags(tags) = &self.kept { Some(tags) } else { None }
    }

    fn persists(&self) -> bool {
        false
    }

    fn holds_data(&self, _chunk: u64) -> bool {
        false
    }

    fn reserve(&self, _chunk: u64) -> Result<(), SsdError> {
        Ok(())
    }

    fn release(&self, chunk: u64) -> Result<(), SsdError> {
        let (kept, bytes) = match &self.kept {
            Kept::All(memory) => (memory, CHUNK_BYTES),
            Kept::Tags(tags) => (tags, tags::bytes_for(CHUNK_BYTES)),
            Kept::Nothing => return Ok(()),
        };
        kept.discard((chunk * bytes) as usize, bytes as usize);
        Ok(())
    }

    fn sync(&self) -> Result<(), SsdError> {
        Ok(())
    }

    fn state_path(&self) -> PathBuf {
        self.state_file.as_ref().map_or_else(|| PathBuf::from("saved state"), StateFile::path)
    }

    fn load_state(&self) -> Result<Option<Vec<u8>>, SsdError> {
        match &self.state_file {
            Some(file) => file.load(),
            None => Ok(lock(&self.state).clone()),
        }
    }

    fn save_state(&self, state: &[u8]) -> Result<(), SsdError> {
        if let Some(file) = &self.state_file {
            return file.save(state);
        }
        *lock(&self.state) = Some(state.to_vec());
        Ok(())
    }
}
