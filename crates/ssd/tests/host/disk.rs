//! Media that remembers what a power cut would leave of it. The crate's own tests include this file, too:
//! what it is a store for comes from the module above.

use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex};

use unvme_bus::{Region, random};

use super::{CHUNK_BYTES, SsdError, Store};

/// A store's memory, and what of it a power cut would leave for certain.
pub(super) struct Disk {
    pub(super) memory: Region,
    durable: Mutex<Vec<u8>>,
    /// What nothing has been lost since; another disk is another machine, or one that was started anew.
    life: [u8; 16],
    /// The device's state, saved at once and whole.
    pub(super) state: Mutex<Option<Vec<u8>>>,
    /// All indexes that were saved, the last one of which is there.
    pub(super) indexes: Mutex<Vec<Vec<u8>>>,
    /// Called at each sync.
    on_sync: Box<dyn Fn() + Send + Sync>,
    /// Chunks whose space was given back since the last sync.
    released: Mutex<Vec<u64>>,
    /// Called before a chunk's space is given back; false when that fails.
    pub(super) on_release: Mutex<Box<dyn Fn() -> bool + Send>>,
}

/// A [`Disk`] as a store.
pub(super) struct DiskStore(pub(super) Arc<Disk>);

impl Disk {
    pub(super) fn new(image: &[u8], on_sync: impl Fn() + Send + Sync + 'static) -> Arc<Self> {
        Self::of_life(random::number().into(), image, on_sync)
    }

    /// A disk whose user was killed, and that holds `image` now: the machine has gone on.
    #[allow(dead_code, reason = "not all who include this file need it")]
    pub(super) fn killed(&self, image: &[u8]) -> Arc<Self> {
        Self::of_life(u128::from_le_bytes(self.life), image, || {})
    }

    fn of_life(life: u128, image: &[u8], on_sync: impl Fn() + Send + Sync + 'static) -> Arc<Self> {
        let memory = Region::anonymous(image.len()).expect("memory for the media");
        memory.write(0, image);
        Arc::new(Self {
            memory,
            durable: Mutex::new(image.to_vec()),
            life: life.to_le_bytes(),
            state: Mutex::default(),
            indexes: Mutex::default(),
            on_sync: Box::new(on_sync),
            released: Mutex::default(),
            on_release: Mutex::new(Box::new(|| true)),
        })
    }

    pub(super) fn image(&self) -> Vec<u8> {
        let mut image = vec![0; self.memory.len()];
        self.memory.read(0, &mut image);
        image
    }

    /// What was synced: the least that a power cut leaves.
    #[allow(dead_code, reason = "not all who include this file need it")]
    pub(super) fn synced(&self) -> Vec<u8> {
        self.durable.lock().unwrap().clone()
    }

    /// The system writes some pages back, as they are now, before anybody asks it to.
    #[allow(dead_code, reason = "not all who include this file need it")]
    pub(super) fn write_back(&self, mut below: impl FnMut(u64) -> u64) {
        let mut durable = self.durable.lock().unwrap();
        let pages = durable.len() as u64 / 4096;
        for _ in 0..below(1 + pages / 8) {
            let at = below(pages) as usize * 4096;
            self.memory.read(at, &mut durable[at..at + 4096]);
        }
    }

    /// What a power cut leaves: what was synced, any of the holes made since, and any of the pages written
    /// since. `below` returns a random number below its argument.
    pub(super) fn cut_power(&self, mut below: impl FnMut(u64) -> u64) -> Vec<u8> {
        let mut image = self.durable.lock().unwrap().clone();
        for &chunk in &*self.released.lock().unwrap() {
            if below(2) == 0 {
                image[(chunk * CHUNK_BYTES) as usize..][..CHUNK_BYTES as usize].fill(0);
            }
        }
        let odds = below(5);
        for (old, new) in image.chunks_mut(4096).zip(self.image().chunks(4096)) {
            if old != new && below(4) < odds {
                old.copy_from_slice(new);
            }
        }
        image
    }
}

impl Disk {
    /// What a power cut leaves of the indexes: any of those that were saved, a half of one, or none.
    #[allow(dead_code, reason = "not all who include this file need it")]
    pub(super) fn cut_index(&self, mut below: impl FnMut(u64) -> u64) -> Vec<Vec<u8>> {
        let mut indexes = self.indexes.lock().unwrap().clone();
        let Some(last) = indexes.last_mut() else { return indexes };
        match below(6) {
            0 => last.truncate(below(last.len() as u64 + 1) as usize),
            1 => last.clear(),
            2 => {
                let other = below(indexes.len() as u64) as usize;
                indexes.swap_remove(other);
            }
            _ => {}
        }
        indexes
    }
}

impl Store for DiskStore {
    fn bytes(&self) -> u64 {
        self.0.memory.len() as u64
    }
    fn memory(&self) -> Option<&Region> {
        Some(&self.0.memory)
    }
    fn life(&self) -> Option<[u8; 16]> {
        Some(self.0.life)
    }
    /// As a file system tells it: what was never written is a hole, with space or without.
    fn holds_data(&self, chunk: u64) -> bool {
        let mut bytes = vec![0; CHUNK_BYTES as usize];
        self.0.memory.read((chunk * CHUNK_BYTES) as usize, &mut bytes);
        bytes.iter().any(|&byte| byte != 0)
    }
    fn reserve(&self, _chunk: u64) -> Result<(), SsdError> {
        Ok(())
    }
    fn release(&self, chunk: u64) -> Result<(), SsdError> {
        if !(self.0.on_release.lock().unwrap())() {
            let source = io::Error::from(io::ErrorKind::Other);
            return Err(SsdError::File { path: "media".into(), what: "release space", source });
        }
        self.0.released.lock().unwrap().push(chunk);
        self.0.memory.fill((chunk * CHUNK_BYTES) as usize, CHUNK_BYTES as usize, 0);
        Ok(())
    }
    fn sync(&self) -> Result<(), SsdError> {
        self.0.memory.read(0, &mut self.0.durable.lock().unwrap());
        self.0.released.lock().unwrap().clear();
        (self.0.on_sync)();
        Ok(())
    }
    fn load_state(&self) -> Result<Option<Vec<u8>>, SsdError> {
        Ok(self.0.state.lock().unwrap().clone())
    }
    fn save_state(&self, state: &[u8]) -> Result<(), SsdError> {
        *self.0.state.lock().unwrap() = Some(state.to_vec());
        Ok(())
    }
    fn save_index(
        &self,
        _chunk: u64,
        write: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), SsdError> {
        let mut index = Vec::new();
        write(&mut index).expect("memory takes it");
        self.0.indexes.lock().unwrap().push(index);
        Ok(())
    }
    fn load_index(&self, _chunk: u64) -> Option<Box<dyn Read>> {
        let index = self.0.indexes.lock().unwrap().last()?.clone();
        Some(Box::new(io::Cursor::new(index)))
    }
}
