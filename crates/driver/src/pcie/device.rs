//! What all queues and users of one controller share.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use unvme_bus::mem::PAGE_BYTES;
use unvme_bus::{Clock, DmaPool, Doorbell, EventFd, Function, Registers, lock};
use unvme_spec::command::{Changes, CommandSet};
use unvme_spec::feature::Arbitration;
use unvme_spec::identify::{IdentifyController, sgls};
use unvme_spec::regs::{self, Cap};
use unvme_spec::{Cid, Qid, Sqe, Status, admin};

use super::admin_queue::{ADMIN_DEPTH, AdminQueue, Caller};
use super::config_space;
use super::lifecycle::Lifecycle;
use super::pair::{Pair, PairConfig};
use crate::base::{Base, Limits};
use crate::bring_up::{CAP_CSS_NVM, CAP_CSS_PROFILE};
use crate::command::{Completion, Payload, command_name};
use crate::numbers::Numbers;
use crate::options::{ControllerOptions, DEPTH_MAX, DataPointers};
use crate::{Error, limits};

/// How often a command is sent again to a device that keeps moving from process to process.
const MOVES_MAX: u32 = 8;
/// Rounds of looking at a host-driven device until it may work on all its queues.
const ROUNDS_TO_ADVANCE_ALL: u32 = 64;
/// Limit for a shutdown when the controller states none (RTD3E is 0).
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(10);
/// What a controller states is believed within these bounds.
const SHUTDOWN_LIMIT_MIN: Duration = Duration::from_secs(1);
const SHUTDOWN_LIMIT_MAX: Duration = Duration::from_secs(60);

/// What the driver needs to know of the controller besides its limits, read once at bring-up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    /// SGLs may be used for I/O commands.
    pub(crate) sgl: bool,
    /// How long a normal shutdown may take.
    pub(crate) shutdown_limit: Duration,
}

pub(crate) struct PcieDevice {
    /// The epoch is odd from when the device forgets its queues until it can have new ones.
    pub(crate) base: Base,
    pub(crate) function: Arc<dyn Function>,
    pub(crate) registers: Registers,
    pub(crate) host_driven: bool,
    pub(crate) cap: Cap,
    pub(crate) admin: AdminQueue,
    facts: OnceLock<Facts>,
    pub(crate) lifecycle: Mutex<Lifecycle>,
    vectors: Numbers,
    /// The I/O command set profile that was chosen.
    profile: AtomicU32,
    /// Arbitration, as it was asked for: a reset has the controller forget it.
    arbitration: Mutex<Option<Arbitration>>,
    /// Held by whoever changes it, over what that takes.
    pub(crate) arbitrating: Mutex<()>,
    /// The controller offers weighted round robin, and is not to be enabled with it.
    is_weightless: AtomicBool,
}

impl PcieDevice {
    /// Finds the registers and makes the admin queue; the controller is not touched yet.
    pub(crate) fn new(function: Arc<dyn Function>, options: ControllerOptions) -> Result<Self, Error> {
        options.check()?;
        config_space::check_class(&*function)?;
        config_space::enable_registers(&*function)?;
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
                // What becomes of admin commands is decided one by one.
                is_movable: false,
                sq_doorbell: doorbell(&registers, cap, Qid::ADMIN, Side::Submission),
                cq_doorbell: doorbell(&registers, cap, Qid::ADMIN, Side::Completion),
            },
        )?;
        let interrupt = if function.vectors() == 0 { None } else { Some(EventFd::new()?) };
        let vectors = Numbers::new(function.vectors().into());
        // The admin queue's.
        vectors.claim(0);
        // Until the controller has said more.
        let limits = Limits {
            cap,
            version,
            depth_max: cap.mqes_z().min(DEPTH_MAX),
            transfer_bytes_max: options.transfer_bytes_max,
            firmware_piece_bytes: PAGE_BYTES,
        };
        Ok(Self {
            host_driven: function.is_host_driven(),
            admin: AdminQueue::new(pair, interrupt),
            facts: OnceLock::new(),
            lifecycle: Mutex::new(Lifecycle::new()),
            vectors,
            profile: AtomicU32::new(0),
            arbitration: Mutex::default(),
            arbitrating: Mutex::default(),
            is_weightless: AtomicBool::new(!options.weighted_round_robin),
            base: Base::new(pool, options, 0, 0, limits),
            function,
            registers,
            cap,
        })
    }

    pub(crate) fn clock(&self) -> &Clock {
        self.base.clock()
    }

    /// Lets a host-driven device work on everything.
    pub(crate) fn advance_all(&self) {
        if self.host_driven {
            self.function.advance(None, self.clock());
        }
    }

    /// What the `rounds`th look at a host-driven device is followed by: its clock moves, as time does for
    /// whoever waits, and every so often it may work on all its queues, not just on the one waited for.
    pub(crate) fn work(&self, rounds: u32) {
        self.clock().advance(Duration::from_micros(1 << (rounds / 1024).min(10)));
        if rounds.is_multiple_of(ROUNDS_TO_ADVANCE_ALL) {
            self.advance_all();
            std::thread::yield_now();
        }
    }

    /// Lets a host-driven device work on what `qid` has submitted.
    pub(crate) fn advance(&self, qid: Qid) {
        if self.host_driven {
            self.function.advance(Some(qid.0), self.clock());
        }
    }

    /// What Identify Controller said. Errors: [`Error::Gone`] before bring-up has come that far.
    pub(crate) fn facts(&self) -> Result<Facts, Error> {
        let unknown = || Error::Gone { reason: "the controller has not been brought up".to_owned() };
        self.facts.get().copied().ok_or_else(unknown)
    }

    pub(crate) fn learn(&self, identify: &IdentifyController) {
        let facts = Facts {
            sgl: identify.sgls & sgls::SUPPORT_MASK != 0,
            shutdown_limit: match identify.rtd3e {
                0 => SHUTDOWN_LIMIT,
                microseconds => {
                    Duration::from_micros(microseconds.into()).clamp(SHUTDOWN_LIMIT_MIN, SHUTDOWN_LIMIT_MAX)
                }
            },
        };
        let mdts = limits::transfer_bytes_max(identify, PAGE_BYTES << self.cap.mpsmin());
        self.admin.limit_transfers(mdts.min(self.base.options.transfer_bytes_max));
        // Set once: queues and their PRP lists are made for these limits.
        if self.facts.set(facts).is_ok() {
            let limits = self.base.limits();
            self.base.set_limits(Limits {
                transfer_bytes_max: mdts.min(limits.transfer_bytes_max),
                firmware_piece_bytes: limits::firmware_piece_bytes(identify),
                ..limits
            });
        }
    }

    /// Sends an admin command and waits for its completion, whatever its status. A controller that does not
    /// answer is reset.
    pub(crate) fn admin(&self, sqe: Sqe, payload: Option<Payload>) -> Result<Completion, Error> {
        self.admin_within(self.base.options.admin_timeout, sqe, payload)
    }

    /// The same within `limit`. A device that has moved to another process is followed there, and asked again
    /// what changes nothing; whether it has executed anything else nobody knows.
    fn admin_within(&self, limit: Duration, sqe: Sqe, payload: Option<Payload>) -> Result<Completion, Error> {
        let mut payload = payload;
        for _ in 0..MOVES_MAX {
            if self.function.is_movable() && self.function.is_gone() {
                // Before anything is sent that could be in doubt then.
                self.notice_gone(self.base.epoch());
            }
            let epoch = self.base.epoch();
            let bytes = payload.as_ref().map_or(0, |payload| payload.bytes);
            let completion = self.attempt(Caller::User, limit, sqe, payload)?;
            let is_ended = completion.status == Status::ABORTED_BY_HOST && self.base.epoch() != epoch;
            if !is_ended || !changes_nothing(&sqe) || !self.lifecycle().has_moved_since(epoch) {
                return Ok(completion);
            }
            payload = completion.buf.map(|buf| Payload { buf, bytes });
        }
        Err(Error::Gone { reason: "it moves from process to process".to_owned() })
    }

    /// Sends an admin command to let go of something.
    pub(crate) fn leave(&self, sqe: Sqe) -> Result<Completion, Error> {
        self.attempt(Caller::Leaving, self.base.options.admin_timeout, sqe, None)
    }

    fn attempt(
        &self,
        caller: Caller,
        limit: Duration,
        sqe: Sqe,
        payload: Option<Payload>,
    ) -> Result<Completion, Error> {
        let epoch = self.base.epoch();
        let outcome = self.admin.execute(self, caller, sqe, payload, limit);
        if let Err(e @ (Error::Timeout { .. } | Error::Reset { .. } | Error::Protocol(_))) = &outcome {
            tracing::warn!(error = %e, "admin queue");
            self.reset_since(epoch, &e.to_string())?;
        }
        outcome
    }

    /// Sends an admin command for whoever holds the lifecycle lock; success is the only good status.
    pub(crate) fn bring_up_command(&self, sqe: Sqe, payload: Option<Payload>) -> Result<Completion, Error> {
        let limit = self.base.options.admin_timeout;
        let completion = self.admin.execute(self, Caller::BringUp, sqe, payload, limit)?;
        Error::check(|| command_name(&sqe), completion.status)?;
        Ok(completion)
    }

    /// Asks the controller to end a command; whether it did shows in the command's own completion. A
    /// controller that does not answer within `grace` would be reset then anyway, for the command.
    pub(crate) fn abort(&self, sqid: Qid, cid: Cid, grace: Duration) -> Result<(), Error> {
        let limit = grace.min(self.base.options.admin_timeout);
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
        doorbell(&self.registers(), self.cap, qid, Side::Submission)
    }

    pub(crate) fn cq_doorbell(&self, qid: Qid) -> Doorbell {
        doorbell(&self.registers(), self.cap, qid, Side::Completion)
    }

    /// The registers with the windows they have now: those of a device that has moved are others.
    fn registers(&self) -> Registers {
        match self.function.is_movable() {
            true => Registers::new(Arc::clone(&self.function), 0).unwrap_or_else(|_| self.registers.clone()),
            false => self.registers.clone(),
        }
    }

    /// Takes the first free queue identifier from `first` on and, when asked, an interrupt vector of its own:
    /// a vector that two queues share could be drained by one while the other is about to sleep on it.
    pub(crate) fn take_queue(&self, first: Qid, with_vector: bool) -> Result<(Qid, Option<u16>), Error> {
        let Some(qid) = self.base.take_queue(first) else {
            let most = self.base.queues_max();
            return Err(Error::Exhausted(format!("all {most} I/O queue pairs of the controller are in use")));
        };
        if !with_vector {
            return Ok((qid, None));
        }
        if let Some(vector) = self.claim_vector() {
            return Ok((qid, Some(vector)));
        }
        self.base.return_queue(qid);
        Err(match self.vectors.count() {
            0 => Error::Unsupported(
                "the function has no interrupt vectors (uio_pci_generic has none): use a queue in poll mode, or vfio-pci"
                    .to_owned(),
            ),
            most => Error::Exhausted(format!(
                "all {most} interrupt vectors of the function are in use; a queue in poll mode needs none"
            )),
        })
    }

    /// Gives back what [`PcieDevice::take_queue`] took.
    pub(crate) fn return_queue(&self, qid: Qid, vector: Option<u16>) {
        self.base.return_queue(qid);
        if let Some(vector) = vector {
            self.return_vector(vector);
        }
    }

    /// Takes an interrupt vector that nobody uses; `None` when there is none left.
    pub(crate) fn claim_vector(&self) -> Option<u16> {
        self.vectors.take(0).map(|vector| vector as u16)
    }

    /// Gives back what [`PcieDevice::claim_vector`] took.
    pub(crate) fn return_vector(&self, vector: u16) {
        self.vectors.give_back(vector.into());
    }

    /// The controller arbitrates by weighted round robin, when it is enabled.
    pub(crate) fn is_weighted(&self) -> bool {
        // Relaxed: changed only while the controller is brought up.
        !self.is_weightless.load(Ordering::Relaxed) && self.cap.ams() & regs::CAP_AMS_WEIGHTED != 0
    }

    /// It does not come up with weighted round robin.
    pub(crate) fn give_up_weights(&self) {
        self.is_weightless.store(true, Ordering::Relaxed);
    }

    /// What Arbitration is to be after each reset.
    pub(crate) fn arbitration(&self) -> Option<Arbitration> {
        *lock(&self.arbitration)
    }

    pub(crate) fn keep_arbitration(&self, arbitration: Arbitration) {
        *lock(&self.arbitration) = Some(arbitration);
    }

    /// The I/O command set profile in use: an index into the combinations the controller offers.
    pub(crate) fn profile(&self) -> u32 {
        // Relaxed: changed only while the controller is brought up.
        self.profile.load(Ordering::Relaxed)
    }

    pub(crate) fn set_profile(&self, index: u32) {
        self.profile.store(index, Ordering::Relaxed);
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

impl Drop for PcieDevice {
    fn drop(&mut self) {
        self.shut_down();
    }
}

/// True for an admin command that only reads.
fn changes_nothing(sqe: &Sqe) -> bool {
    CommandSet::Admin.facts(sqe.opcode).is_some_and(|facts| facts.changes == Changes::Nothing)
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
