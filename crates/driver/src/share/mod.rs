//! One drive for several processes.
//!
//! The process that holds a drive drives it as always. [`Sharing`] makes, for each other process, a
//! [`SharedController`]: a PCI function with registers and an admin queue of its own, whose I/O queues are
//! queues of the drive itself.
//!
//! ```text
//!   holder                                       client (another process)
//!   Controller -- admin queue --+                Controller
//!        |                      |                   | registers, admin queue: emulated
//!        |        SharedController <----------------+ doorbell page: relayed
//!        |                      |                   |
//!        +-- I/O queues --+     +-- I/O queues --+  | I/O queues and data: the client's memory
//!                         v                      v  v
//!                        drive  <----- DMA -------->
//! ```
//!
//! - **Memory.** What a client maps is mapped for the drive at the same address. Queues and data stay where
//!   the client has them; nothing is copied, and no data pointer is read or changed. So that the addresses of
//!   the holder and of all clients stay apart, each client has a window of them
//!   ([`unvme_bus::function::DmaAddressing::Chosen`]) and is refused others.
//! - **Admin commands** go to the drive's one admin queue as they are, but for those that create and delete
//!   queues, that would change what others rely on, or that concern what a client has of its own; [`admin`]
//!   has the list.
//! - **Queue identifiers** are the drive's. One that somebody else has is refused as Invalid Queue
//!   Identifier, upon which a host tries another.
//! - **Doorbells** are a page of shared memory; [`unvme_bus::Function::advance`], which somebody must call,
//!   carries what is written there to the drive. **Interrupts** go from the drive to the client's eventfd,
//!   with nobody in between.
//!
//! Everything a client sends is checked as far as it concerns the relay: entries, rings, doorbells,
//! identifiers. Data pointers are not: a client can name any address that is mapped for the drive, the
//! holder's among them. Whoever may attach is trusted as much as whoever holds the drive.

#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

mod admin;
mod config_space;
mod function;
mod queues;
mod registers;
mod rings;
mod state;

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

use unvme_bus::function::DmaAddressing;
use unvme_bus::lock;
use unvme_bus::mem::HUGE_PAGE_BYTES;

pub use self::function::SharedController;
use crate::controller::Host;
use crate::pcie::PcieDevice;
use crate::{Controller, Error};

/// Processes that can share a drive with its holder at a time.
pub const SHARES_MAX: usize = 16;

/// Each client's window of addresses is this part of all: half of them are the holder's.
const WINDOW_PARTS: u64 = 2 * SHARES_MAX as u64;
/// Windows are whole huge pages.
const WINDOW_MASK: u64 = !(HUGE_PAGE_BYTES as u64 - 1);

/// The holder's side: what clients have in common.
#[derive(Debug)]
pub struct Sharing {
    controller: Controller,
    /// All windows, one after the other. The holder takes its own addresses from below.
    windows: Range<u64>,
    window_bytes: u64,
    taken: Mutex<[bool; SHARES_MAX]>,
}

impl Sharing {
    /// Prepares to share a drive. Errors: [`Error::Unsupported`] for a controller that is not driven on a PCI
    /// function, or one whose function takes physical addresses: without an IOMMU nothing keeps the memory of
    /// two processes apart.
    pub fn new(controller: &Controller) -> Result<Arc<Self>, Error> {
        let addresses = match controller.pci_device()?.function.dma_addressing() {
            DmaAddressing::Chosen(addresses) => addresses,
            DmaAddressing::Physical => {
                return Err(Error::Unsupported(
                    "a drive without an IOMMU cannot be shared between processes; bind it to vfio-pci on a machine with \
                     one"
                    .to_owned(),
                ));
            }
        };
        let bytes = addresses.end.saturating_sub(addresses.start);
        // The upper half is for the clients, in windows of whole huge pages.
        let window_bytes = (bytes / WINDOW_PARTS) & WINDOW_MASK;
        if window_bytes == 0 {
            return Err(Error::Unsupported(format!(
                "the drive has {bytes} bytes of I/O virtual addresses, too few to share"
            )));
        }
        let first = addresses.end.saturating_sub(window_bytes.saturating_mul(SHARES_MAX as u64));
        Ok(Arc::new(Self {
            controller: controller.clone(),
            windows: first..addresses.end,
            window_bytes,
            taken: Mutex::default(),
        }))
    }

    /// A function for one more client. What the client had is the drive's and the holder's again when it is
    /// dropped. Errors: [`Error::Exhausted`] for more than [`SHARES_MAX`] at a time, [`Error::Gone`] when the
    /// drive is gone, [`Error::Bus`] when memory cannot be had.
    pub fn share(self: &Arc<Self>) -> Result<Arc<SharedController>, Error> {
        let lease = Lease::take(self)?;
        SharedController::new(lease).map(Arc::new)
    }

    fn lock(&self) -> MutexGuard<'_, [bool; SHARES_MAX]> {
        // Only flags are flipped under this lock.
        lock(&self.taken)
    }
}

impl Controller {
    /// The controller as it is driven on a PCI function. Errors: [`Error::Unsupported`] for one that is
    /// driven otherwise.
    fn pci_device(&self) -> Result<&Arc<PcieDevice>, Error> {
        match &self.host {
            Host::Pcie(device) => Ok(device),
            Host::Kernel(_) | Host::Tcp(_) => Err(Error::Unsupported(
                "a controller of the kernel's driver, or on the network, is not shared: others can open it as this \
                 process does"
                    .to_owned(),
            )),
        }
    }
}

/// A client's place: its window of addresses.
#[derive(Debug)]
struct Lease {
    sharing: Arc<Sharing>,
    index: usize,
    window: Range<u64>,
}

impl Lease {
    fn take(sharing: &Arc<Sharing>) -> Result<Self, Error> {
        let mut taken = sharing.lock();
        let Some((index, flag)) = taken.iter_mut().enumerate().find(|(_, taken)| !**taken) else {
            return Err(Error::Exhausted(format!("{SHARES_MAX} other processes share the drive already")));
        };
        *flag = true;
        drop(taken);
        let first = sharing.windows.start.saturating_add(sharing.window_bytes.saturating_mul(index as u64));
        let window = first..first.saturating_add(sharing.window_bytes);
        Ok(Self { sharing: Arc::clone(sharing), index, window })
    }

    fn controller(&self) -> &Controller {
        &self.sharing.controller
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(flag) = self.sharing.lock().get_mut(self.index) {
            *flag = false;
        }
    }
}
