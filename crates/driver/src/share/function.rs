//! A client's view of a shared drive: a PCI function.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use unvme_bus::function::DmaAddressing;
use unvme_bus::mem::PAGE_BYTES;
use unvme_bus::{
    AddressSpace, BarLayout, BusError, Clock, Dma, DmaAccess, EventFd, Function, Region, Window, lock,
};
use unvme_spec::regs::{self, Crto};

use super::Lease;
use super::config_space::ConfigSpace;
use super::queues::Queues;
use super::registers::{Registers, Written};
use super::state::State;
use crate::Error;
use crate::pcie::Pace;
use crate::pcie::PcieDevice;

/// Offset of the doorbells in BAR 0.
const DOORBELLS: usize = regs::offset::DOORBELLS as usize;
/// Bytes of an entry of the MSI-X table.
const VECTOR_BYTES: usize = 16;

/// A drive as one of several processes sees it; its registers and admin queue are emulated,
/// its I/O queues are the drive's.
///
/// It works in [`Function::advance`] alone. When the drive is reset by its holder, or is gone, this function
/// is gone.
pub struct SharedController {
    device: Arc<PcieDevice>,
    /// The drive's epoch in which it has the client's queues.
    epoch: u64,
    bar: BarLayout,
    vectors: u16,
    config: Mutex<ConfigSpace>,
    memory: AddressSpace,
    state: Mutex<State>,
    /// Messages that wait for the state. Whoever lets this work stays away meanwhile: it takes the lock again
    /// so soon after giving it back that others would wait for long.
    waiting: AtomicUsize,
    gone: AtomicBool,
    /// Last, so that the window is free when everything else is.
    lease: Lease,
}

impl SharedController {
    pub(super) fn new(lease: Lease) -> Result<Self, Error> {
        let device = Arc::clone(lease.controller().pci_device()?);
        let epoch = {
            // While this is held no reset is under way: whatever the last owner of the window had given the
            // drive is forgotten.
            let life = device.lifecycle();
            life.check()?;
            device.base.epoch()
        };
        let pairs = device.base.queues_max().saturating_add(1);
        let doorbell_bytes = pairs.saturating_mul(8).next_multiple_of(PAGE_BYTES);
        let shared = Region::shared("unvme-shared-bar0", DOORBELLS.saturating_add(doorbell_bytes))?;
        let page = shared.slice(DOORBELLS, doorbell_bytes);
        let vectors = device.function.vectors();
        let table = DOORBELLS.saturating_add(doorbell_bytes);
        let table_bytes = usize::from(vectors).saturating_mul(VECTOR_BYTES).next_multiple_of(PAGE_BYTES);
        let pending = table.saturating_add(table_bytes);
        let bytes = pending.saturating_add(PAGE_BYTES).next_power_of_two();
        let window = Window { offset: DOORBELLS as u64, region: page.clone() };
        let crto = match device.cap.crms() {
            0 => 0,
            _ => device.registers.read32(regs::offset::CRTO)?,
        };
        let registers = Registers::new(
            device.cap,
            device.base.limits().version,
            Crto::from_bits(crto),
            device.is_weighted(),
        );
        let config = ConfigSpace::new(&*device.function, vectors, table as u32, pending as u32)?;
        let queues = Queues::new(Arc::clone(&device), page, vectors);
        let memory = AddressSpace::new();
        let state = State::new(registers, queues, Arc::clone(&device), &memory);
        Ok(Self {
            device,
            epoch,
            bar: BarLayout { bytes: bytes as u64, windows: vec![window] },
            vectors,
            config: Mutex::new(config),
            memory,
            state: Mutex::new(state),
            waiting: AtomicUsize::new(0),
            gone: AtomicBool::new(false),
            lease,
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Relaxed: it keeps nobody out, the lock does.
        self.waiting.fetch_add(1, Ordering::Relaxed);
        // Each step leaves the state whole before anything that could panic.
        let state = lock(&self.state);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        state
    }

    fn config(&self) -> MutexGuard<'_, ConfigSpace> {
        lock(&self.config)
    }

    /// True when the drive still has what this client gave it.
    fn is_current(&self) -> bool {
        !self.gone.load(Ordering::Acquire)
            && self.device.base.epoch() == self.epoch
            && !self.device.function.is_gone()
    }

    /// Notes that the drive has forgotten the client, if it has; true when it has.
    fn notice_loss(&self, state: &mut State) -> bool {
        if self.is_current() {
            return false;
        }
        self.gone.store(true, Ordering::Release);
        if !state.lost {
            // A reset that is under way ends before: until then the drive may write to the client's memory,
            // which is unmapped after this, and uses its queues and vectors.
            drop(self.device.lifecycle());
            state.lose();
        }
        true
    }

    /// One turn; when the drive does not answer it is reset, which ends every client.
    fn turn(&self, state: &mut State, clock: &Clock) -> usize {
        if self.notice_loss(state) {
            return 0;
        }
        match state.turn(&self.memory, clock) {
            Ok(work) => work,
            Err(e) => {
                self.reset_drive(&e.to_string());
                self.notice_loss(state);
                1
            }
        }
    }

    fn reset_drive(&self, why: &str) {
        tracing::warn!(why, "a drive is reset for the sake of a client");
        if let Err(e) = self.device.reset_since(self.epoch, why) {
            tracing::warn!(error = %e, "controller reset");
        }
        // Whatever came of it: the drive's queues are not the client's any more.
        self.gone.store(true, Ordering::Release);
    }

    /// Takes everything of the client's off the drive, if need be by resetting it.
    fn withdraw(&self) {
        let mut state = self.state();
        if self.notice_loss(&mut state) {
            return;
        }
        state.begin_reset();
        let mut pace = Pace::new(&self.device, self.device.base.options.admin_timeout);
        while !state.is_idle() {
            self.turn(&mut state, self.device.clock());
            if state.lost {
                return;
            }
            if pace.is_expired() {
                self.reset_drive("the queues of a client could not be deleted");
                self.notice_loss(&mut state);
                return;
            }
            if !state.is_idle() {
                pace.pause(None);
            }
        }
        // One more, which notices that nothing is left.
        self.turn(&mut state, self.device.clock());
        state.registers.reset(true);
    }

    fn check_bar(&self, index: usize, offset: u64, length: usize) -> Result<(), BusError> {
        let size = if index == 0 { self.bar.bytes } else { 0 };
        BusError::check_range("BAR", offset, length, size)
    }

    fn gone_error(&self) -> BusError {
        BusError::Gone("the shared drive".to_owned())
    }
}

impl Dma for SharedController {
    fn dma_map(&self, iova: u64, region: &Region, access: DmaAccess) -> Result<(), BusError> {
        let length = region.len() as u64;
        let window = &self.lease.window;
        let is_within = iova >= window.start && iova.checked_add(length).is_some_and(|end| end <= window.end);
        if !is_within {
            return Err(BusError::Dma {
                iova,
                length,
                reason: "outside the addresses a client of a shared drive was given",
            });
        }
        if !self.is_current() {
            return Err(self.gone_error());
        }
        self.memory.map(iova, region, access)?;
        self.device.function.dma_map(iova, region, access).inspect_err(|_| {
            // It was mapped just now.
            let _ = self.memory.unmap(iova, length);
        })
    }

    fn dma_unmap(&self, iova: u64, length: u64) -> Result<(), BusError> {
        self.memory.unmap(iova, length)?;
        // A turn that is under way may have an older view: it ends before the memory goes.
        let mut state = self.state();
        self.notice_loss(&mut state);
        let outcome = self.device.function.dma_unmap(iova, length);
        drop(state);
        outcome
    }

    fn dma_addressing(&self) -> DmaAddressing {
        DmaAddressing::Chosen(self.lease.window.clone())
    }
}

impl Function for SharedController {
    fn config_read(&self, offset: usize, out: &mut [u8]) -> Result<(), BusError> {
        self.config().read(offset, out)
    }

    fn config_write(&self, offset: usize, data: &[u8]) -> Result<(), BusError> {
        self.config().write(offset, data)
    }

    fn bar(&self, index: usize) -> Result<Option<BarLayout>, BusError> {
        Ok((index == 0).then(|| self.bar.clone()))
    }

    fn bar_read(&self, index: usize, offset: u64, out: &mut [u8]) -> Result<(), BusError> {
        self.check_bar(index, offset, out.len())?;
        if !self.is_current() {
            // As a drive that has been pulled out.
            out.fill(0xff);
            return Ok(());
        }
        self.state().registers.read(offset, out);
        Ok(())
    }

    fn bar_write(&self, index: usize, offset: u64, data: &[u8]) -> Result<(), BusError> {
        self.check_bar(index, offset, data.len())?;
        if !offset.is_multiple_of(4) || !data.len().is_multiple_of(4) {
            return Err(BusError::Unsupported("registers are written in words of 4 bytes".to_owned()));
        }
        let mut state = self.state();
        for (at, word) in (offset..).step_by(4).zip(data.chunks_exact(4)) {
            let Ok(word) = <[u8; 4]>::try_from(word) else { break };
            if let Written::Configuration(cc) = state.registers.write(at, u32::from_le_bytes(word)) {
                state.configure(cc, &self.memory);
            }
        }
        Ok(())
    }

    fn vectors(&self) -> u16 {
        self.vectors
    }

    fn set_vector(&self, vector: u16, event: Option<EventFd>) -> Result<(), BusError> {
        BusError::check_range("interrupt vectors", vector.into(), 1, self.vectors.into())?;
        self.state().queues.listen(vector, event)
    }

    /// The client's controller starts over; the drive itself is not reset unless it does not give the
    /// client's queues up.
    fn reset(&self) -> Result<(), BusError> {
        self.withdraw();
        Ok(())
    }

    fn is_host_driven(&self) -> bool {
        true
    }

    fn advance(&self, _lane: Option<u16>, clock: &Clock) -> usize {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            return 0;
        }
        match lock::try_lock(&self.state) {
            Some(mut state) => self.turn(&mut state, clock),
            // A message is being answered: it works for the client too.
            None => 0,
        }
    }

    fn is_gone(&self) -> bool {
        !self.is_current()
    }
}

impl Drop for SharedController {
    fn drop(&mut self) {
        self.withdraw();
        self.state().queues.forget();
        // Whether or not anything is known to be mapped: an unmapping may have failed, and the next client
        // has this window.
        let window = self.lease.window.clone();
        let length = window.end.saturating_sub(window.start);
        if let Err(e) = self.device.function.dma_unmap(window.start, length) {
            tracing::debug!(error = %e, "unmap the memory of a client");
        }
    }
}

impl std::fmt::Debug for SharedController {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedController")
            .field("window", &self.lease.window)
            .field("gone", &!self.is_current())
            .finish_non_exhaustive()
    }
}
