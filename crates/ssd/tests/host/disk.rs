//! Media that remembers what a power cut would leave of it. The crate's own tests include this file, too:
//! what it is a store for comes from the module above.

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
    /// Called at each sync.
    on_sync: Box<dyn Fn() + Send + Sync>,
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
            on_sync: Box::new(on_sync),
        })
    }

    pub(super) fn image(&self) -> Vec<u8> {
        let mut image = vec![0; self.memory.len()];
        self.memory.read(0, &mut image);
        image
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

    /// What a power cut leaves: what was synced, and any of the pages written since. `below` returns a random
    /// number below its argument.
    pub(super) fn cut_power(&self, mut below: impl FnMut(u64) -> u64) -> Vec<u8> {
        let mut image = self.durable.lock().unwrap().clone();
        let odds = below(5);
        for (old, new) in image.chunks_mut(4096).zip(self.image().chunks(4096)) {
            if old != new && below(4) < odds {
                old.copy_from_slice(new);
            }
        }
        image
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
    fn holds_data(&self, _chunk: u64) -> bool {
        true
    }
    fn reserve(&self, _chunk: u64) -> Result<(), SsdError> {
        Ok(())
    }
    fn release(&self, chunk: u64) -> Result<(), SsdError> {
        self.0.memory.fill((chunk * CHUNK_BYTES) as usize, CHUNK_BYTES as usize, 0);
        Ok(())
    }
    fn sync(&self) -> Result<(), SsdError> {
        self.0.memory.read(0, &mut self.0.durable.lock().unwrap());
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
}
