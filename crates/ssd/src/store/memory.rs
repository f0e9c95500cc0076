//! Stores that live and die with the process.

use std::sync::Mutex;

use unvme_bus::{Region, lock};

use super::{CHUNK_BYTES, Store};
use crate::SsdError;

/// Data in private memory, which the system hands out as it is touched.
pub struct MemoryStore {
    memory: Region,
    state: Mutex<Option<Vec<u8>>>,
}

impl MemoryStore {
    /// A store of `bytes`, a multiple of [`CHUNK_BYTES`].
    ///
    /// # Errors
    /// [`SsdError::Bus`] when there is not enough address space.
    pub fn new(bytes: u64) -> Result<Self, SsdError> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        Ok(Self { memory: Region::anonymous(bytes)?, state: Mutex::default() })
    }
}

impl Store for MemoryStore {
    fn bytes(&self) -> u64 {
        self.memory.len() as u64
    }

    fn memory(&self) -> Option<&Region> {
        Some(&self.memory)
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
        self.memory.discard((chunk * CHUNK_BYTES) as usize, CHUNK_BYTES as usize);
        Ok(())
    }

    fn sync(&self) -> Result<(), SsdError> {
        Ok(())
    }

    fn load_state(&self) -> Result<Option<Vec<u8>>, SsdError> {
        Ok(lock(&self.state).clone())
    }

    fn save_state(&self, state: &[u8]) -> Result<(), SsdError> {
        *lock(&self.state) = Some(state.to_vec());
        Ok(())
    }
}

/// A store that keeps no data: commands are checked and completed, and no byte moves. For measuring
/// everything else.
pub struct NullStore {
    bytes: u64,
    state: Mutex<Option<Vec<u8>>>,
}

impl NullStore {
    /// A store that pretends to have `bytes`, a multiple of [`CHUNK_BYTES`].
    pub fn new(bytes: u64) -> Self {
        Self { bytes, state: Mutex::default() }
    }
}

impl Store for NullStore {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn memory(&self) -> Option<&Region> {
        None
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

    fn release(&self, _chunk: u64) -> Result<(), SsdError> {
        Ok(())
    }

    fn sync(&self) -> Result<(), SsdError> {
        Ok(())
    }

    fn load_state(&self) -> Result<Option<Vec<u8>>, SsdError> {
        Ok(lock(&self.state).clone())
    }

    fn save_state(&self, state: &[u8]) -> Result<(), SsdError> {
        *lock(&self.state) = Some(state.to_vec());
        Ok(())
    }
}
