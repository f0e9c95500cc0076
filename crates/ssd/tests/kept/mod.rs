//! A store in memory whose saved state outlives it.

use std::io::{Error, ErrorKind};
use std::sync::{Arc, Mutex};

use unvme_bus::Region;
use unvme_ssd::{MemoryStore, SsdError, Store};

/// What a device has saved.
pub(crate) type State = Arc<Mutex<Option<Vec<u8>>>>;
/// What is the matter with the space that is to be reserved, if anything is.
pub(crate) type Problem = Arc<Mutex<Option<ErrorKind>>>;

pub(crate) struct Kept {
    memory: MemoryStore,
    state: State,
    problem: Problem,
}

impl Kept {
    pub(crate) fn new(bytes: u64, state: &State, problem: &Problem) -> Box<Self> {
        let memory = MemoryStore::new(bytes).unwrap();
        Box::new(Self { memory, state: Arc::clone(state), problem: Arc::clone(problem) })
    }
}

impl Store for Kept {
    fn bytes(&self) -> u64 {
        self.memory.bytes()
    }
    fn memory(&self) -> Option<&Region> {
        self.memory.memory()
    }
    fn holds_data(&self, chunk: u64) -> bool {
        self.memory.holds_data(chunk)
    }
    fn reserve(&self, chunk: u64) -> Result<(), SsdError> {
        match *self.problem.lock().unwrap() {
            Some(kind) => {
                Err(SsdError::File { path: "store".into(), what: "reserve space", source: Error::from(kind) })
            }
            None => self.memory.reserve(chunk),
        }
    }
    fn release(&self, chunk: u64) -> Result<(), SsdError> {
        self.memory.release(chunk)
    }
    fn sync(&self) -> Result<(), SsdError> {
        self.memory.sync()
    }
    fn load_state(&self) -> Result<Option<Vec<u8>>, SsdError> {
        Ok(self.state.lock().unwrap().clone())
    }
    fn save_state(&self, state: &[u8]) -> Result<(), SsdError> {
        *self.state.lock().unwrap() = Some(state.to_vec());
        Ok(())
    }
}
