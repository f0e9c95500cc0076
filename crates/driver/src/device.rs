//! What all queues and users of one controller share.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use unvme_bus::mem::PAGE_BYTES;
use unvme_bus::{Clock, DmaPool, Doorbell, EventFd, Function, Registers, lock};
use unvme_spec::identify::{IdentifyController, sgls};
use unvme_spec::regs::{self, Cap};
use unvme_spec::{Cid, Qid, Sqe, admin};

use crate::admin_queue::{ADMIN_DEPTH, AdminQueue, Caller, command_name};
use crate::controller::ControllerOptions;
use crate::lifecycle::Lifecycle;
use crate::pair::{Pair, PairConfig};
use crate::queue::{Completion, DataPointers, Payload};
use crate::{Error, limits, pci};

/// Limit for a shutdown when the controller states none (RTD3E is 0).
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(10);
/// What a controller states is believed within these bounds.
const SHUTDOWN_LIMIT_MIN: Duration = Duration::from_secs(1);
const SHUTDOWN_LIMIT_MAX: Duration = Duration::from_secs(60);

/// What the driver needs to know of the controller, read once at bring-up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    /// Longest transfer in bytes: MDTS or the options, whichever is less.
    pub(crate) transfer_bytes_max: usize,
    /// SGLs may be used for I/O commands.
    pub(crate) sgl: bool,
    /// Firmware Update Granularity in bytes: pieces of an image are multiples of it.
    pub(crate) firmware_piece_bytes: usize,
    /// How long a normal shutdown may take.
    pub(crate) shutdown_limit: Duration,
}

/// Queue identifiers and interrupt vectors that are taken; the index is the number.
#[derive(Default)]
struct Taken {
    queues: Vec<bool>,
    vectors: Vec<bool>,
}

pub(crate) struct Device {
    pub(crate) function: Arc<dyn Function>,
    pub(crate) registers: Registers,
    pub(crate) pool: DmaPool,
    pub(crate) clock: Clock,
    pub(crate) options: ControllerOptions,
    pub(crate) host_driven: bool,
    pub(crate) cap: Cap,
    pub(crate) version: u32,
    pub(crate) admin: AdminQueue,
    pub(crate) facts: OnceLock<Facts>,
    /// Changes whenever the device forgets its queues: once before, when it becomes odd, and once after. Queues compare it
    /// with the value they were created under.
    pub(crate) epoch: AtomicU64,
    pub(crate) lifecycle: Mutex<Lifecycle>,
    taken: Mutex<Taken>,
    /// The I/O command set profile that was chosen.
    profile: AtomicU32,
}

impl Device {
    /// Finds the registers and makes the admin queue; the controller is not touched yet.
    pub(crate) fn new(function: Arc<dyn Function>, options: ControllerOptions) -> Result<Self, Error> {
        options.check()?;
        pci::check_class(&*function)?;
        pci::enable_registers(&*function)?;
        let registers = Registers::new(Arc::clone(&function), 0)?;
        let cap = Cap::from_bits(registers.read64(regs::offset::CAP)?);
        let version = registers.read32(regs::offset::VS)?;
        check_capabilities(cap)?;
        let pool = DmaPool::new(function.clone());
        let pair = Pair::new(
            &pool,
            PairConfig {
                qid: Qid::ADMIN,
                depth: ADMIN_DEPTH,
                cq_slack: 0,
                transfer_bytes_max: options.transfer_bytes_max,
                // Admin commands over PCIe use PRPs (Base 4.3).
                data_pointers: DataPointers::Prp,
                long_keys: false,
                sq_doorbell: doorbell(&registers, cap, Qid::ADMIN, Side::Submission),
                cq_doorbell: doorbell(&registers, cap, Qid::ADMIN, Side::Completion),
            },
        )?;
        let vectors = usize::from(function.vectors());
        let interrupt = if vectors == 0 { None } else { Some(EventFd::new()?) };
        let mut taken = Taken { queues: vec![true], vectors: vec![false; vectors] };
        if let Some(first) = taken.vectors.first_mut() {
            *first = true;
        }
        Ok(Self {
            host_driven: function.is_host_driven(),
            clock: options.clock.clone(),
            admin: AdminQueue::new(pair, interrupt),
            facts: OnceLock::new(),
            epoch: AtomicU64::new(0),
            lifecycle: Mutex::new(Lifecycle::new()),
            taken: Mutex::new(taken),
            profile: AtomicU32::new(0),
            function,
            registers,
            pool,
            options,
            cap,
            version,
        })
    }

    /// Lets a host-driven device work on what `qid` has submitted.
    pub(crate) fn advance(&self, qid: Qid) {
        if self.host_driven {
            self.function.advance(Some(qid.0), &self.clock);
        }
    }

    /// Facts from Identify Controller.
    ///
    /// # Errors
    /// [`Error::Gone`] before bring-up has come that far.
    pub(crate) fn facts(&self) -> Result<Facts, Error> {
        let unknown = || Error::Gone { reason: "the controller has not been brought up".to_owned() };
        self.facts.get().copied().ok_or_else(unknown)
    }

    pub(crate) fn learn(&self, identify: &IdentifyController) {
        let mdts = limits::transfer_bytes_max(identify, PAGE_BYTES << self.cap.mpsmin());
        let facts = Facts {
            transfer_bytes_max: mdts.min(self.options.transfer_bytes_max),
            sgl: identify.sgls & sgls::SUPPORT_MASK != 0,
            firmware_piece_bytes: limits::firmware_piece_bytes(identify),
            shutdown_limit: match identify.rtd3e {
                0 => SHUTDOWN_LIMIT,
                microseconds => {
                    Duration::from_micros(microseconds.into()).clamp(SHUTDOWN_LIMIT_MIN, SHUTDOWN_LIMIT_MAX)
                }
            },
        };
        self.admin.limit_transfers(facts.transfer_bytes_max);
        // Set once: queues and their PRP lists are made for these limits.
        let _ = self.facts.set(facts);
    }

    /// Sends an admin command and waits for its completion, whatever its status. A controller that does not answer is
    /// reset.
    pub(crate) fn admin(&self, sqe: Sqe, payload: Option<Payload>) -> Result<Completion, Error> {
        self.admin_within(self.options.admin_timeout, sqe, payload)
    }

    fn admin_within(&self, limit: Duration, sqe: Sqe, payload: Option<Payload>) -> Result<Completion, Error> {
        let epoch = self.epoch.load(Ordering::Acquire);
        let outcome = self.admin.execute(self, Caller::User, sqe, payload, limit);
        if let Err(e @ (Error::Timeout { .. } | Error::Reset { .. } | Error::Protocol(_))) = &outcome {
            tracing::warn!(error = %e, "admin queue");
            self.reset_since(epoch, &e.to_string())?;
        }
        outcome
    }

    /// Sends an admin command for whoever holds the lifecycle lock; success is the only good status.
    pub(crate) fn bring_up_command(&self, sqe: Sqe, payload: Option<Payload>) -> Result<Completion, Error> {
        let limit = self.options.admin_timeout;
        let completion = self.admin.execute(self, Caller::BringUp, sqe, payload, limit)?;
        Error::check(|| command_name(&sqe), completion.status)?;
        Ok(completion)
    }

    /// Asks the controller to end a command; whether it did shows in the command's own completion. A controller that
    /// does not answer within `grace` would be reset then anyway, for the command.
    pub(crate) fn abort(&self, sqid: Qid, cid: Cid, grace: Duration) -> Result<(), Error> {
        let limit = grace.min(self.options.admin_timeout);
        let completion = self.admin_within(limit, admin::Command::Abort { sqid, cid }.encode(), None)?;
        Error::check(|| format!("Abort of command {:#06x} on queue {sqid}", cid.0), completion.status)
    }

    pub(crate) fn gone_error(&self) -> Error {
        match self.status() {
            Err(gone @ Error::Gone { .. }) => gone,
            _ => Error::Gone { reason: "the other side has closed the connection".to_owned() },
        }
    }

    pub(crate) fn sq_doorbell(&self, qid: Qid) -> Doorbell {
        doorbell(&self.registers, self.cap, qid, Side::Submission)
    }

    pub(crate) fn cq_doorbell(&self, qid: Qid) -> Doorbell {
        doorbell(&self.registers, self.cap, qid, Side::Completion)
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        // Only flags are flipped under this lock.
        lock(&self.taken)
    }

    /// Sets the number of I/O queue pairs the controller granted.
    pub(crate) fn grant_queues(&self, count: u16) {
        let mut taken = self.taken();
        let wanted = usize::from(count) + 1;
        if taken.queues.len() < wanted {
            taken.queues.resize(wanted, false);
        }
    }

    /// I/O queue pairs the controller granted.
    pub(crate) fn queues_max(&self) -> usize {
        self.taken().queues.len() - 1
    }

    /// Takes the first free queue identifier from `first` on and, when asked, an interrupt vector of its own: a vector that
    /// two queues share could be drained by one while the other is about to sleep on it.
    pub(crate) fn take_queue(&self, first: Qid, with_vector: bool) -> Result<(Qid, Option<u16>), Error> {
        let mut taken = self.taken();
        let from_first = taken.queues.iter().skip(usize::from(first.0)).position(|taken| !taken);
        let Some(qid) = from_first.map(|at| at + usize::from(first.0)) else {
            let most = taken.queues.len() - 1;
            return Err(Error::Exhausted(format!("all {most} I/O queue pairs of the controller are in use")));
        };
        let vector = if with_vector {
            let Some(vector) = taken.vectors.iter().position(|taken| !taken) else {
                let most = taken.vectors.len();
                if most == 0 {
                    return Err(Error::Unsupported(
                        "the function has no interrupt vectors (uio_pci_generic has none): use a queue in poll mode, or \
                         vfio-pci"
                            .to_owned(),
                    ));
                }
                return Err(Error::Exhausted(format!(
                    "all {most} interrupt vectors of the function are in use; a queue in poll mode needs none"
                )));
            };
            taken.vectors[vector] = true;
            Some(vector as u16)
        } else {
            None
        };
        taken.queues[qid] = true;
        Ok((Qid(qid as u16), vector))
    }

    /// Takes a queue identifier of the caller's choice; false when it is in use or the controller does not have it.
    pub(crate) fn claim_queue(&self, qid: Qid) -> bool {
        let mut taken = self.taken();
        let free = taken.queues.get_mut(usize::from(qid.0)).filter(|taken| !**taken);
        free.map(|taken| *taken = true).is_some()
    }

    /// Takes an interrupt vector that nobody uses; `None` when there is none left.
    pub(crate) fn claim_vector(&self) -> Option<u16> {
        let mut taken = self.taken();
        let vector = taken.vectors.iter().position(|taken| !taken)?;
        taken.vectors[vector] = true;
        Some(vector as u16)
    }

    /// Gives back what [`Device::claim_vector`] took.
    pub(crate) fn return_vector(&self, vector: u16) {
        self.taken().vectors[usize::from(vector)] = false;
    }

    /// The I/O command set profile in use: an index into the combinations the controller offers.
    pub(crate) fn profile(&self) -> u32 {
        // Relaxed: changed only while the controller is brought up.
        self.profile.load(Ordering::Relaxed)
    }

    pub(crate) fn set_profile(&self, index: u32) {
        self.profile.store(index, Ordering::Relaxed);
    }

    /// Gives back what [`Device::take_queue`] took.
    pub(crate) fn return_queue(&self, qid: Qid, vector: Option<u16>) {
        let mut taken = self.taken();
        taken.queues[usize::from(qid.0)] = false;
        if let Some(vector) = vector {
            taken.vectors[usize::from(vector)] = false;
        }
    }

    /// Longest queue in commands: one less than the entries of CAP.MQES, as a queue of n entries holds n - 1.
    pub(crate) fn depth_max(&self) -> u16 {
        self.cap.mqes_z().min(crate::queue::DEPTH_MAX)
    }

    /// The limit for CSTS.RDY to follow CC.EN: CAP.TO, or CRTO where there is one (Base 3.1.4.1, 3.1.4.24).
    pub(crate) fn ready_timeout(&self) -> Result<Duration, Error> {
        const UNIT: Duration = Duration::from_millis(500);
        let mut units = u32::from(self.cap.to()).max(1);
        if self.cap.crms() & 1 != 0 {
            let crto = regs::Crto::from_bits(self.registers.read32(regs::offset::CRTO)?);
            units = units.max(u32::from(crto.crwmt()));
        }
        Ok(UNIT * units)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.shut_down();
    }
}

#[derive(Clone, Copy)]
enum Side {
    Submission,
    Completion,
}

fn doorbell(registers: &Registers, cap: Cap, qid: Qid, side: Side) -> Doorbell {
    let number = u64::from(qid.0) * 2 + matches!(side, Side::Completion) as u64;
    registers.doorbell(regs::offset::DOORBELLS + number * (4 << cap.dstrd()))
}

fn check_capabilities(cap: Cap) -> Result<(), Error> {
    if cap.into_bits() == u64::MAX {
        return Err(Error::Gone { reason: "its registers read as all ones".to_owned() });
    }
    if cap.mpsmin() > 0 {
        return Err(Error::Unsupported(format!(
            "the controller's smallest memory page is {} KiB; 4 KiB is supported",
            4u64 << cap.mpsmin()
        )));
    }
    if cap.mqes_z() < ADMIN_DEPTH {
        return Err(Error::Unsupported(format!(
            "the controller's queues have at most {} entries; the driver needs {}",
            u32::from(cap.mqes_z()) + 1,
            ADMIN_DEPTH + 1
        )));
    }
    if cap.css() & (CAP_CSS_NVM | CAP_CSS_PROFILE) == 0 {
        return Err(Error::Unsupported(format!(
            "the controller has no I/O command set (CAP.CSS {:#04x})",
            cap.css()
        )));
    }
    Ok(())
}

/// CAP.CSS: the NVM Command Set.
pub(crate) const CAP_CSS_NVM: u8 = 1 << 0;
/// CAP.CSS: several I/O command sets, chosen by a profile.
pub(crate) const CAP_CSS_PROFILE: u8 = 1 << 6;
