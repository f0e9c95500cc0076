//! The life of a controller: enable, disable, reset, shut down (Base 3.5, 3.6, 3.7).

use std::sync::MutexGuard;
use std::sync::atomic::Ordering;
use std::time::Duration;

use unvme_bus::{BusError, lock};
use unvme_spec::admin::QueuePriority;
use unvme_spec::feature::{Arbitration, Select, fid};
use unvme_spec::identify::{IdentifyController, IoCommandSets, cns};
use unvme_spec::regs::{self, Aqa, Cc, Csts};
use unvme_spec::{Qid, Sqe, Status, admin};
use zerocopy::FromBytes;

use super::config_space;
use super::device::PcieDevice;
use super::pace::Pace;
use crate::Error;
use crate::bring_up::{
    CAP_CSS_PROFILE, IO_QUEUES_MAX, IOCQES, IOSQES, best_profile, events_request, queues_granted,
    queues_request, set_feature,
};
use crate::command::{Payload, command_name};

/// How often a device is followed that is gone again before it has been brought up.
const MOVES_MAX: u32 = 8;
/// What a controller has to say that answers nothing any more.
pub(crate) const FATAL: &str = "it reports Controller Fatal Status";
/// Time for a thread that has decided to store a doorbell to do it, also one that loses its processor in
/// between.
const DOORBELL_GRACE: Duration = Duration::from_millis(1);

/// Where a controller stands. The lock around it serialises resets.
pub(crate) struct Lifecycle {
    /// Why the controller was given up, when it was.
    failed: Option<String>,
    /// Whether the device was known not to touch memory when it last forgot its queues.
    stopped: bool,
    /// The last epoch that began otherwise than by a device moving to another process.
    reset_epoch: u64,
}

impl Lifecycle {
    pub(crate) fn new() -> Self {
        Self { failed: None, stopped: true, reset_epoch: 0 }
    }

    pub(crate) fn stopped(&self) -> bool {
        self.stopped
    }

    /// True when the device has moved to another process since `epoch`, perhaps several times, and nothing
    /// else has ended its queues.
    pub(crate) fn has_moved_since(&self, epoch: u64) -> bool {
        self.failed.is_none() && self.reset_epoch <= epoch
    }

    /// Errors: [`Error::Gone`] when the controller was given up.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match &self.failed {
            None => Ok(()),
            Some(reason) => Err(Error::Gone { reason: reason.clone() }),
        }
    }
}

/// Outcome of trying to stop a device.
struct Stop {
    /// The device does not touch memory any more.
    stopped: bool,
    /// It is another process's now.
    moved: bool,
    outcome: Result<(), Error>,
}

impl PcieDevice {
    pub(crate) fn lifecycle(&self) -> MutexGuard<'_, Lifecycle> {
        // A panic while resetting leaves `failed` and `stopped` as they were: a device in doubt is not
        // trusted more.
        lock(&self.lifecycle)
    }

    /// First bring-up.
    pub(crate) fn open(&self) -> Result<(), Error> {
        let mut life = self.lifecycle();
        self.restart(&mut life, "opened")
    }

    /// Controller level reset, unless there has been one since `epoch` was read.
    pub(crate) fn reset_since(&self, epoch: u64, why: &str) -> Result<(), Error> {
        let mut life = self.lifecycle();
        if self.base.epoch() != epoch {
            return life.check();
        }
        tracing::warn!(why, "controller reset");
        self.renew(&mut life, why)
    }

    /// Gives the controller up when the other side is gone.
    pub(crate) fn notice_gone(&self, epoch: u64) {
        let mut life = self.lifecycle();
        if self.base.epoch() == epoch && life.failed.is_none() && self.function.is_gone() {
            self.hold_queues();
            self.admin.suspend();
            self.base.note_end(self.gone_error().reason());
            // `failed` keeps the outcome for whoever asks.
            let _ = self.conclude(&mut life, self.follow());
        }
    }

    /// Follows a device that is gone to where it is now.
    fn follow(&self) -> Stop {
        let gone = self.gone_error();
        let (moved, outcome) = match self.function.is_movable().then(|| self.function.follow()) {
            None => (false, Err(gone)),
            Some(Ok(())) => {
                let (sq, cq) = (self.sq_doorbell(Qid::ADMIN), self.cq_doorbell(Qid::ADMIN));
                self.admin.set_doorbells(sq, cq);
                (true, Ok(()))
            }
            Some(Err(e)) => {
                let why = match e {
                    BusError::Gone(why) => why,
                    e => e.to_string(),
                };
                (false, Err(Error::Gone { reason: format!("{}; {why}", gone.reason()) }))
            }
        };
        Stop { stopped: true, moved, outcome }
    }

    /// Keeps the owners of queues away from their doorbells, which mean nothing to a controller without
    /// queues: whoever sees the epoch change waits for the lifecycle lock, which the caller holds. One who
    /// had looked just before has time to store its doorbell.
    fn hold_queues(&self) {
        // Release: as in `conclude`. Odd while queues are held.
        if self.base.epoch().is_multiple_of(2) {
            let epoch = self.base.epoch.fetch_add(1, Ordering::Release);
            if epoch > 0 && !self.host_driven {
                std::thread::sleep(DOORBELL_GRACE);
            }
        }
    }

    /// Starts the device again, which ends all that is outstanding.
    fn renew(&self, life: &mut Lifecycle, why: &str) -> Result<(), Error> {
        let mut reason = why.to_owned();
        if why != FATAL && self.status().is_ok_and(|csts| csts.cfs()) {
            reason = format!("{reason}; {FATAL}");
        }
        // After the reset nobody knows any more.
        self.base.note_end(self.explained(reason));
        self.restart(life, why)
    }

    /// A reason, and what the device itself has to say.
    pub(crate) fn explained(&self, reason: String) -> String {
        match self.function.stopped_by() {
            Some(own) => format!("{reason}; {own}"),
            None => reason,
        }
    }

    /// Stops the device, forgets all queues and starts it again.
    fn restart(&self, life: &mut Lifecycle, why: &str) -> Result<(), Error> {
        self.hold_queues();
        self.admin.suspend();
        let mut stop = self.stop();
        if stop.outcome.is_err() && self.function.is_movable() && self.function.is_gone() {
            stop = self.follow();
        }
        if let Err(e) = &stop.outcome {
            tracing::warn!(why, stopped = stop.stopped, error = %e, "stop the controller");
        }
        self.conclude(life, stop)
    }

    fn conclude(&self, life: &mut Lifecycle, stop: Stop) -> Result<(), Error> {
        life.stopped = stop.stopped;
        self.admin.flush(stop.stopped);
        let mut outcome = stop.outcome.and_then(|()| self.start());
        for _ in 0..MOVES_MAX {
            if outcome.is_ok() || !self.function.is_movable() || !self.function.is_gone() {
                break;
            }
            // Who had it by now has gone as well.
            if let Err(e) = self.follow().outcome {
                outcome = Err(e);
                break;
            }
            self.admin.flush(true);
            outcome = self.start();
        }
        match &outcome {
            Ok(()) => {
                life.failed = None;
                self.admin.resume();
            }
            Err(e) => {
                let reason = e.reason();
                self.admin.close(&reason);
                life.failed = Some(reason);
            }
        }
        if !stop.moved || outcome.is_err() {
            life.reset_epoch = self.base.epoch().saturating_add(1);
        }
        // Release: pairs with the load in `submit`, `ring` and `poll`, which then take the lifecycle lock.
        self.base.epoch.fetch_add(1, Ordering::Release);
        outcome
    }

    /// Disables the controller, by a function level reset if nothing else helps.
    fn stop(&self) -> Stop {
        let first = match self.disable() {
            Ok(()) => return Stop { stopped: true, moved: false, outcome: Ok(()) },
            Err(e) => e,
        };
        if self.function.is_gone() {
            return Stop { stopped: true, moved: false, outcome: Err(first) };
        }
        let again = self.function.reset().map_err(Error::from).and_then(|()| self.disable());
        let stopped = again.is_ok() || self.function.is_gone();
        Stop { stopped, moved: false, outcome: again.map_err(|_| first) }
    }

    fn disable(&self) -> Result<(), Error> {
        let limit = self.ready_timeout()?;
        let cc = Cc::from_bits(self.registers.read32(regs::offset::CC)?);
        let csts = self.status()?;
        if cc.en() && !csts.rdy() && !csts.cfs() {
            // EN must not be cleared before RDY has followed it (Base 3.1.4.5); a controller that never gets
            // there is disabled all the same.
            let _ = self.wait_ready(true, limit);
        }
        if cc.en() {
            let cc = cc.with_en(false).with_shn(regs::SHN_NONE);
            self.registers.write32(regs::offset::CC, cc.into_bits())?;
        }
        self.wait_ready(false, limit)
    }

    /// Enables the controller and brings it to where queues can be created.
    fn start(&self) -> Result<(), Error> {
        // Only now that it is disabled; and again after a function level reset.
        config_space::enable(&*self.function)?;
        if let Some(event) = &self.admin.interrupt {
            self.function.set_vector(0, Some(event.clone()))?;
        }
        match self.enable() {
            Err(e @ Error::Gone { .. }) if self.is_weighted() && !self.function.is_gone() => {
                // A fatal status: it may not be able to do what it offers.
                tracing::warn!(error = %e, "enable the controller with weighted round robin; without it now");
                self.give_up_weights();
                self.disable()?;
                self.enable()?;
            }
            enabled => enabled?,
        }
        let identify = self.read_identify_controller()?;
        self.learn(&identify);
        if self.cap.css() & CAP_CSS_PROFILE != 0 {
            self.choose_profile();
        }
        self.request_queues()?;
        if let Some(arbitration) = self.arbitration() {
            self.restore_arbitration(arbitration);
        }
        self.claim_again();
        self.configure_events(&identify);
        self.admin.arm_events(u32::from(identify.aerl_z) + 1)
    }

    fn enable(&self) -> Result<(), Error> {
        let ((sq, cq), (sq_entries, cq_entries)) = self.admin.layout();
        let aqa = Aqa::new().with_asqs_z((sq_entries - 1) as u16).with_acqs_z((cq_entries - 1) as u16);
        self.registers.write32(regs::offset::AQA, aqa.into_bits())?;
        self.registers.write64(regs::offset::ASQ, sq)?;
        self.registers.write64(regs::offset::ACQ, cq)?;
        let several = self.cap.css() & CAP_CSS_PROFILE != 0;
        let cc = Cc::new()
            .with_css(if several { regs::CSS_ALL } else { regs::CSS_NVM })
            .with_mps(0)
            .with_ams(if self.is_weighted() { regs::AMS_WEIGHTED } else { regs::AMS_ROUND_ROBIN })
            .with_iosqes(IOSQES)
            .with_iocqes(IOCQES);
        // Once without EN: some controllers latch the sizes from the write before the one that enables them.
        self.registers.write32(regs::offset::CC, cc.into_bits())?;
        self.registers.write32(regs::offset::CC, cc.with_en(true).into_bits())?;
        self.wait_ready(true, self.ready_timeout()?)
    }

    fn read_identify_controller(&self) -> Result<IdentifyController, Error> {
        let command = admin::Identify { cns: cns::CONTROLLER, ..admin::Identify::default() };
        let bytes = self.bring_up_read(admin::Command::Identify(command).encode())?;
        IdentifyController::read_from_bytes(&bytes)
            .map_err(|_| Error::Protocol("Identify Controller is not 4096 bytes".to_owned()))
    }

    /// A 4096 byte structure the controller returns.
    fn bring_up_read(&self, sqe: Sqe) -> Result<Vec<u8>, Error> {
        let buf = self.base.pool.alloc(unvme_spec::identify::IDENTIFY_BYTES)?;
        let completion = self.bring_up_command(sqe, Some(Payload::whole(buf)))?;
        Ok(completion.buf.map(|buf| buf.to_vec()).unwrap_or_default())
    }

    /// Selects the I/O command set combination with the most command sets (Base 5.1.13.3.16, feature 19h). A
    /// controller that refuses keeps the combination it has.
    fn choose_profile(&self) {
        let command = admin::Identify { cns: cns::IO_COMMAND_SETS, cntid: u16::MAX, ..Default::default() };
        let sets = self
            .bring_up_read(admin::Command::Identify(command).encode())
            .map(|bytes| IoCommandSets::read_from_bytes(&bytes).unwrap_or_default());
        let best = match sets {
            Ok(sets) => best_profile(&sets),
            Err(e) => return tracing::warn!(error = %e, "I/O command set combinations"),
        };
        // 0 is the default; many controllers with one combination do not have the feature.
        let Some(index) = best.filter(|index| *index > 0) else { return };
        match self.bring_up_command(set_feature(fid::IO_COMMAND_SET_PROFILE, index), None) {
            Ok(_) => self.set_profile(index),
            Err(e) => tracing::warn!(error = %e, index, "I/O command set profile"),
        }
    }

    /// Sets Arbitration as it was before a reset. What is no default somebody else has set, on a drive that
    /// several share: this reset was then of one of them alone.
    fn restore_arbitration(&self, wanted: Arbitration) {
        let value = |select| {
            let get = admin::GetFeatures { fid: fid::ARBITRATION, select, ..admin::GetFeatures::default() };
            let answer = self.bring_up_command(admin::Command::GetFeatures(get).encode(), None);
            answer.map(|completion| completion.result as u32).ok()
        };
        let current = value(Select::Current);
        if current.is_some()
            && ![Select::Default, Select::Saved].into_iter().any(|select| value(select) == current)
        {
            return;
        }
        if let Err(e) = self.bring_up_command(set_feature(fid::ARBITRATION, wanted.into_bits()), None) {
            tracing::warn!(error = %e, "arbitration");
        }
    }

    /// Claims what was claimed before a reset. What another host has claimed since then is not this one's any
    /// more, and the device refuses commands that would change it.
    fn claim_again(&self) {
        for (sqe, words) in self.base.claimed.commands() {
            let payload = self.base.pool.alloc(words.len()).map(|mut buf| {
                buf.write(0, &words);
                Payload { bytes: words.len(), buf }
            });
            let claimed = payload.map_err(Error::from);
            if let Err(e) = claimed.and_then(|payload| self.bring_up_command(sqe, Some(payload))) {
                tracing::error!(error = %e, nsid = sqe.nsid, "a namespace could not be claimed again");
            }
        }
    }

    fn request_queues(&self) -> Result<(), Error> {
        // After a reset the same number is asked for as was granted before: queues re-create themselves under
        // their old identifiers.
        let wanted = match self.base.queues_max() {
            0 => self.base.options.io_queues.clamp(1, IO_QUEUES_MAX),
            granted => granted as u16,
        };
        let completion = self.bring_up_command(queues_request(wanted), None)?;
        self.base.queues.grow(usize::from(queues_granted(wanted, completion.result)) + 1);
        Ok(())
    }

    /// Asks for health warnings, and for the notices among those offered that say what to read again. A
    /// controller that refuses keeps its own choice.
    fn configure_events(&self, identify: &IdentifyController) {
        if let Err(e) = self.bring_up_command(events_request(identify), None) {
            tracing::warn!(error = %e, "asynchronous event configuration");
        }
    }

    pub(crate) fn status(&self) -> Result<Csts, Error> {
        let raw = self.registers.read32(regs::offset::CSTS)?;
        if raw == u32::MAX {
            return Err(Error::Gone { reason: self.explained("its registers read as all ones".to_owned()) });
        }
        Ok(Csts::from_bits(raw))
    }

    /// True when the controller reports Controller Fatal Status: nothing will be answered any more.
    pub(crate) fn has_failed(&self) -> bool {
        self.is_near() && self.status().is_ok_and(|csts| csts.cfs())
    }

    /// False for registers that take a message to another process.
    fn is_near(&self) -> bool {
        self.host_driven || self.registers.is_mapped(regs::offset::CSTS)
    }

    /// True when the controller is not enabled any more although nobody here has disabled it: a function
    /// level reset from outside (`/sys/bus/pci/devices/.../reset`). It has forgotten all queues. The caller
    /// knows that no reset is under way here. Registers that take a message to another process are not looked
    /// at: that process says when it goes.
    pub(crate) fn has_lost_enable(&self) -> bool {
        // All ones: it is still being reset, or it is gone, which `Function::is_gone` tells.
        self.is_near() && self.status().is_ok_and(|csts| !csts.rdy())
    }

    fn wait_ready(&self, ready: bool, limit: Duration) -> Result<(), Error> {
        let mut pace = Pace::new(self, limit);
        loop {
            let csts = self.status()?;
            if ready && csts.cfs() {
                return Err(Error::Gone { reason: self.explained(FATAL.to_owned()) });
            }
            if csts.rdy() == ready {
                return Ok(());
            }
            if pace.is_expired() {
                return Err(pace.timeout(if ready {
                    "enable the controller"
                } else {
                    "disable the controller"
                }));
            }
            self.advance_all();
            pace.pause(None);
        }
    }

    /// Normal shutdown, then disable. When the device cannot be shown to have stopped, its memory is leaked.
    pub(crate) fn shut_down(&mut self) {
        let (failed, stopped) = {
            let life = self.lifecycle();
            (life.failed.is_some(), life.stopped)
        };
        let stopped = if failed && !stopped {
            false
        } else {
            if failed {
                // It had stopped, and bringing it up again failed: it may have been enabled by then, with the
                // admin queue's addresses and commands that were never answered.
                tracing::debug!("the controller was started halfway: it is stopped again");
            } else if let Err(e) = self.notify_shutdown() {
                tracing::debug!(error = %e, "shut the controller down");
            }
            self.stop().stopped
        };
        if !stopped {
            tracing::warn!("the controller did not stop: its queues stay allocated");
            self.admin.quarantine();
        }
        if self.admin.interrupt.is_some() {
            // The function may be gone already.
            let _ = self.function.set_vector(0, None);
        }
    }

    fn notify_shutdown(&self) -> Result<(), Error> {
        let cc = Cc::from_bits(self.registers.read32(regs::offset::CC)?);
        let (true, Some(facts)) = (cc.en(), self.facts().ok()) else { return Ok(()) };
        self.registers.write32(regs::offset::CC, cc.with_shn(regs::SHN_NORMAL).into_bits())?;
        let mut pace = Pace::new(self, facts.shutdown_limit);
        while self.status()?.shst() != regs::SHST_COMPLETE {
            if pace.is_expired() {
                return Err(pace.timeout("shut the controller down"));
            }
            self.advance_all();
            pace.pause(None);
        }
        Ok(())
    }

    /// NVM Subsystem Reset, then a bring-up of the controller.
    pub(crate) fn subsystem_reset(&self) -> Result<(), Error> {
        if !self.cap.nssrs() {
            return Err(Error::Unsupported(
                "the controller has no NVM Subsystem Reset (CAP.NSSRS)".to_owned(),
            ));
        }
        let mut life = self.lifecycle();
        self.hold_queues();
        self.admin.suspend();
        let asked = self.registers.write32(regs::offset::NSSR, regs::NSSR_MAGIC);
        self.advance_all();
        self.renew(&mut life, "an NVM subsystem reset was asked for")?;
        asked?;
        // NSSRO is written with 1 to clear.
        Ok(self.registers.write32(regs::offset::CSTS, Csts::new().with_nssro(true).into_bits())?)
    }

    /// True when the device is known to have stopped since `epoch`: what it was given then is the host's
    /// again.
    pub(crate) fn has_stopped_since(&self, epoch: u64) -> bool {
        let life = self.lifecycle();
        self.base.epoch() != epoch && life.stopped
    }

    /// Creates a completion and a submission queue on the device through `send`.
    pub(crate) fn create_pair(
        &self,
        request: &PairRequest,
        send: impl Fn(Sqe) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let PairRequest { qid, addresses: (sq, cq), entries: (sq_entries, cq_entries), vector, priority } =
            *request;
        let mut sqe = admin::Command::CreateIoCq(admin::CreateIoCq {
            qid,
            size: cq_entries,
            contiguous: true,
            interrupt: vector,
        })
        .encode();
        sqe.dptr = [cq, 0];
        send(sqe)?;
        let mut sqe = admin::Command::CreateIoSq(admin::CreateIoSq {
            qid,
            size: sq_entries,
            cqid: qid,
            contiguous: true,
            priority,
        })
        .encode();
        sqe.dptr = [sq, 0];
        send(sqe).inspect_err(|_| {
            if let Err(e) = send(admin::Command::DeleteIoCq { qid }.encode()) {
                tracing::warn!(error = %e, "delete the completion queue of a queue pair that could not be created");
            }
        })
    }

    /// Deletes a submission queue and its completion queue on the device; then it does not touch their
    /// memory, nor that of their commands, any more. Queues that are not there are as good as deleted.
    pub(crate) fn delete_pair(&self, qid: Qid) -> Result<(), Error> {
        for command in [admin::Command::DeleteIoSq { qid }, admin::Command::DeleteIoCq { qid }] {
            let sqe = command.encode();
            let completion = self.leave(sqe)?;
            if completion.status.kind() != Status::INVALID_QUEUE_IDENTIFIER {
                Error::check(|| format!("{} {qid}", command_name(&sqe)), completion.status)?;
            }
        }
        Ok(())
    }
}

/// A queue pair to create.
pub(crate) struct PairRequest {
    pub(crate) qid: Qid,
    /// Submission and completion queue.
    pub(crate) addresses: (u64, u64),
    /// Entries of each of them.
    pub(crate) entries: (u32, u32),
    /// Interrupt vector, when there shall be interrupts.
    pub(crate) vector: Option<u16>,
    pub(crate) priority: QueuePriority,
}
