//! Interrupt vectors and who listens to them.

use std::sync::RwLock;
use std::sync::atomic::{AtomicU32, Ordering};

use unvme_bus::{BusError, EventFd, lock};

pub(crate) struct Interrupts {
    listeners: RwLock<Vec<Option<EventFd>>>,
    /// INTMS and INTMC: they mask vectors 0 to 31 of pin-based and MSI interrupts, and MSI-X ignores them.
    mask: AtomicU32,
}

impl Interrupts {
    pub(crate) fn new(vectors: u16) -> Self {
        Self { listeners: RwLock::new(vec![None; usize::from(vectors)]), mask: AtomicU32::new(0) }
    }

    pub(crate) fn vectors(&self) -> u16 {
        lock::read(&self.listeners).len() as u16
    }

    pub(crate) fn listen(&self, vector: u16, event: Option<EventFd>) -> Result<(), BusError> {
        let mut listeners = lock::write(&self.listeners);
        let size = listeners.len() as u64;
        match listeners.get_mut(usize::from(vector)) {
            Some(listener) => {
                *listener = event;
                Ok(())
            }
            None => Err(BusError::OutOfRange {
                what: "interrupt vectors",
                offset: vector.into(),
                length: 1,
                size,
            }),
        }
    }

    pub(crate) fn signal(&self, vector: u16) {
        let listeners = lock::read(&self.listeners);
        if let Some(Some(event)) = listeners.get(usize::from(vector)) {
            event.signal();
        }
    }

    pub(crate) fn mask(&self) -> u32 {
        self.mask.load(Ordering::Relaxed)
    }

    pub(crate) fn set_mask(&self, bits: u32) {
        self.mask.fetch_or(bits, Ordering::Relaxed);
    }

    pub(crate) fn clear_mask(&self, bits: u32) {
        self.mask.fetch_and(!bits, Ordering::Relaxed);
    }
}
