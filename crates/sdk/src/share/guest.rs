//! A slot's device as those reach it who do not hold it: when its holder ends, they go on without it.
//!
//! Whoever finds that the holder is gone tries to be the next: takes the lock, brings the device back from
//! its files, and listens for the others, and for itself, so that a guest is a guest for as long as it lives.
//! Those who come later find the lock taken and attach. The driver then brings its controller up again and
//! submits again what may be executed twice ([`Function::follow`]).

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex};

use unvme_bus::function::DmaAddressing;
use unvme_bus::{BarLayout, BusError, Clock, Dma, DmaAccess, EventFd, Function, Region, lock};

use super::Held;
use super::attach::{Holder, Retries, attach_again};
use crate::local::{self, Opened};
use crate::registry::Slot;
use crate::{Error, Result};

/// The device, wherever it is.
pub(crate) struct Guest {
    slot: Slot,
    /// Which folder the slot was: another one at the same address is another device.
    folder: Option<(u64, u64)>,
    vectors: u16,
    state: Mutex<State>,
}

struct State {
    /// The controller in the process that has the device.
    inner: Arc<dyn Function>,
    /// What the driver has mapped, by address.
    mapped: BTreeMap<u64, (Region, DmaAccess)>,
    /// The device, when it is here by now. Its clients are sent away before it is closed.
    here: Option<(Held, Arc<unvme_ssd::Ssd>)>,
}

impl Guest {
    /// A guest that has attached to the slot's holder.
    pub(crate) fn new(slot: &Slot, inner: Arc<dyn Function>) -> Arc<Self> {
        let state = State { mapped: BTreeMap::new(), here: None, inner };
        let vectors = state.inner.vectors();
        Arc::new(Self { slot: slot.clone(), folder: identity(slot), vectors, state: Mutex::new(state) })
    }

    fn inner(&self) -> Arc<dyn Function> {
        Arc::clone(&lock(&self.state).inner)
    }

    /// Finds the device again, here or in another process.
    fn find(&self) -> Result<Arc<dyn Function>> {
        let name = self.slot.address.to_string();
        let (lock_path, socket) = (self.slot.lock_path(), self.slot.socket_path());
        let retries = Retries::new();
        loop {
            if identity(&self.slot) != self.folder {
                let available = "it was removed".to_owned();
                return Err(Error::NotFound { name, available });
            }
            let pid = match local::slot(&self.slot)? {
                Opened::Here(ssd) => {
                    tracing::info!(device = name, "its holder has ended: this process holds it now");
                    let held = Held::slot(&name, &ssd, &self.slot);
                    lock(&self.state).here = Some((held, ssd));
                    Some(std::process::id())
                }
                Opened::Busy(pid) => pid,
            };
            let holder = Holder { name: &name, pid, lock: &lock_path, socket: &socket };
            if let Some(function) = attach_again(&holder, &retries)? {
                return Ok(function);
            }
        }
    }
}

/// Which folder a slot is.
fn identity(slot: &Slot) -> Option<(u64, u64)> {
    fs::metadata(slot.folder()).ok().map(|folder| (folder.dev(), folder.ino()))
}

impl Dma for Guest {
    fn dma_map(&self, iova: u64, region: &Region, access: DmaAccess) -> std::result::Result<(), BusError> {
        let mut state = lock(&self.state);
        match state.inner.dma_map(iova, region, access) {
            // Wherever the device is next has it mapped.
            Ok(()) | Err(BusError::Gone(_)) => {
                state.mapped.insert(iova, (region.clone(), access));
                Ok(())
            }
            Err(e) => Err(e),
        }
    }

    fn dma_unmap(&self, iova: u64, length: u64) -> std::result::Result<(), BusError> {
        let mut state = lock(&self.state);
        let outcome = state.inner.dma_unmap(iova, length);
        if outcome.is_ok() || matches!(outcome, Err(BusError::Gone(_))) {
            state.mapped.retain(|&at, _| at < iova || at - iova >= length);
        }
        outcome
    }

    fn dma_addressing(&self) -> DmaAddressing {
        self.inner().dma_addressing()
    }
}

impl Function for Guest {
    fn config_read(&self, offset: usize, out: &mut [u8]) -> std::result::Result<(), BusError> {
        self.inner().config_read(offset, out)
    }

    fn config_write(&self, offset: usize, data: &[u8]) -> std::result::Result<(), BusError> {
        self.inner().config_write(offset, data)
    }

    fn bar(&self, index: usize) -> std::result::Result<Option<BarLayout>, BusError> {
        self.inner().bar(index)
    }

    fn bar_read(&self, index: usize, offset: u64, out: &mut [u8]) -> std::result::Result<(), BusError> {
        self.inner().bar_read(index, offset, out)
    }

    fn bar_write(&self, index: usize, offset: u64, data: &[u8]) -> std::result::Result<(), BusError> {
        self.inner().bar_write(index, offset, data)
    }

    fn vectors(&self) -> u16 {
        self.vectors
    }

    fn set_vector(&self, vector: u16, event: Option<EventFd>) -> std::result::Result<(), BusError> {
        self.inner().set_vector(vector, event)
    }

    fn reset(&self) -> std::result::Result<(), BusError> {
        self.inner().reset()
    }

    fn advance(&self, lane: Option<u16>, clock: &Clock) -> usize {
        self.inner().advance(lane, clock)
    }

    fn is_gone(&self) -> bool {
        self.inner().is_gone()
    }

    fn is_movable(&self) -> bool {
        true
    }

    fn follow(&self) -> std::result::Result<(), BusError> {
        if !self.is_gone() {
            return Ok(());
        }
        // What this process may have had of it is of no use any more: the lock with it is for the next.
        let past = lock(&self.state).here.take();
        drop(past);
        let inner = self.find().map_err(|e| BusError::Gone(e.to_string()))?;
        let mut state = lock(&self.state);
        if inner.vectors() != self.vectors || inner.dma_addressing() != state.inner.dma_addressing() {
            return Err(BusError::Gone("another device is there now".to_owned()));
        }
        for (&iova, (region, access)) in &state.mapped {
            inner.dma_map(iova, region, *access)?;
        }
        state.inner = inner;
        Ok(())
    }
}

impl Drop for Guest {
    /// First the mappings and the controller, then whom else it serves, then the device.
    fn drop(&mut self) {
        let here = lock(&self.state).here.take();
        drop(here);
    }
}
