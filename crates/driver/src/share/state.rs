//! What a client's controller is doing: its life, and the commands it waits for.

use std::sync::Arc;

use unvme_bus::space::View;
use unvme_bus::{AddressSpace, Clock};
use unvme_spec::log_page::{AsyncEvent, event_type};
use unvme_spec::regs::{self, Cc};
use unvme_spec::{Qid, Sqe, Status};

use super::admin::{Action, Context, Effect, delete};
use super::queues::Queues;
use super::registers::Registers;
use super::rings::{AdminRings, Broken};
use crate::Error;
use crate::pcie::PcieDevice;

/// Commands of one client that the drive has at a time. The admin queue is everybody's.
const FORWARDED_MAX: usize = 4;
/// Commands taken off a client's ring in one turn.
const POPPED_MAX: usize = 8;
/// How often the drive's events are looked at, in nanoseconds.
const EVENT_INTERVAL: u64 = 10_000_000;
/// Events are all wanted until the client says which.
const EVENTS_ALL: u32 = u32::MAX;
/// Where the notices begin in Asynchronous Event Configuration (Base figure 404): the bit of notice 0.
const NOTICES_SHIFT: u32 = 8;
const NOTICES: u8 = 24;
/// The bits for critical warnings.
const WARNINGS: u32 = 0xff;

/// Where the client's controller stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// CC.EN and CSTS.RDY are 0.
    Disabled,
    /// It works.
    Ready,
    /// CC.EN has been cleared, and the drive still has queues or commands of the client's.
    Stopping,
    /// CSTS.CFS.
    Failed,
}

/// A command that the drive has.
struct Forwarded {
    token: u64,
    /// Whom to tell; nobody when the client has reset its controller since.
    cid: Option<u16>,
    effect: Effect,
}

/// A command for which the drive's admin queue had no room yet.
struct Stalled {
    sqe: Sqe,
    cid: Option<u16>,
    effect: Effect,
}

pub(super) struct State {
    pub(super) registers: Registers,
    pub(super) queues: Queues,
    device: Arc<PcieDevice>,
    view: View,
    phase: Phase,
    rings: Option<AdminRings>,
    forwarded: Vec<Forwarded>,
    stalled: Option<Stalled>,
    /// Identifiers of Asynchronous Event Requests.
    held: Vec<u16>,
    /// Asynchronous Event Configuration.
    events: u32,
    /// Events of the drive that this client has seen.
    events_seen: u64,
    events_due: u64,
    /// The drive does not have the client's queues, and never will again.
    pub(super) lost: bool,
}

impl State {
    pub(super) fn new(
        registers: Registers,
        queues: Queues,
        device: Arc<PcieDevice>,
        memory: &AddressSpace,
    ) -> Self {
        Self {
            registers,
            queues,
            device,
            view: memory.view(),
            phase: Phase::Disabled,
            rings: None,
            forwarded: Vec::new(),
            stalled: None,
            held: Vec::new(),
            events: EVENTS_ALL,
            events_seen: 0,
            events_due: 0,
            lost: false,
        }
    }

    /// The client has written CC.
    pub(super) fn configure(&mut self, new: Cc, memory: &AddressSpace) {
        memory.refresh(&mut self.view);
        let old = self.registers.cc;
        // While enabled, only EN, SHN and the entry sizes can change (Base 3.1.4.5).
        let cc = match old.en() {
            true => {
                old.with_en(new.en()).with_shn(new.shn()).with_iosqes(new.iosqes()).with_iocqes(new.iocqes())
            }
            false => new,
        };
        self.registers.cc = cc;
        if cc.shn() != regs::SHN_NONE {
            // The drive goes on working for others: there is nothing to shut down but queues, which EN does.
            self.registers.csts.set_shst(regs::SHST_COMPLETE);
        }
        match (old.en(), cc.en()) {
            (false, true) if self.phase == Phase::Disabled => self.enable(),
            // A host waits for CSTS.RDY to be 0 before it enables the controller again.
            (false, true) => self.registers.cc.set_en(false),
            (true, false) => self.disable(),
            _ => {}
        }
    }

    fn enable(&mut self) {
        let cc = self.registers.cc;
        let aqa = self.registers.aqa;
        let sq = (self.registers.asq, u32::from(aqa.asqs_z()).saturating_add(1));
        let cq = (self.registers.acq, u32::from(aqa.acqs_z()).saturating_add(1));
        self.queues.clear_admin_doorbells();
        self.rings = AdminRings::new(&self.view, sq, cq).filter(|_| cc.mps() == 0 && self.offers(cc.ams()));
        if self.rings.is_none() {
            return self.fail(Broken("CC, AQA, ASQ or ACQ is not what the controller can use"));
        }
        self.events = EVENTS_ALL;
        self.events_seen = self.device.admin.events_count();
        self.phase = Phase::Ready;
        self.registers.csts.set_rdy(true);
    }

    /// Whether a client may choose this arbitration mechanism.
    fn offers(&self, ams: u8) -> bool {
        ams == regs::AMS_ROUND_ROBIN || ams == regs::AMS_WEIGHTED && self.device.is_weighted()
    }

    fn disable(&mut self) {
        self.rings = None;
        self.held.clear();
        self.stalled = self.stalled.take().filter(|stalled| {
            // The drive has never heard of it.
            self.queues_undo(stalled.effect);
            false
        });
        for forwarded in &mut self.forwarded {
            forwarded.cid = None;
        }
        self.phase = Phase::Stopping;
    }

    /// Takes back what was noted for a command that never reached the drive.
    fn queues_undo(&mut self, effect: Effect) {
        match effect {
            Effect::None => {}
            Effect::Created { qid, is_completion } => self.queues.created(qid, is_completion, false),
            Effect::Deleted { qid, is_completion } => self.queues.deleted(qid, is_completion, false),
        }
    }

    fn fail(&mut self, why: Broken) {
        tracing::warn!(why = why.0, "a client's controller has failed");
        self.rings = None;
        self.phase = Phase::Failed;
        self.registers.csts.set_cfs(true);
    }

    /// Starts over, as a reset of the function does. The drive's queues go in the turns that follow, until
    /// [`State::is_idle`].
    pub(super) fn begin_reset(&mut self) {
        self.disable();
    }

    /// True when the drive has nothing of the client's.
    pub(super) fn is_idle(&self) -> bool {
        self.queues.is_empty() && self.forwarded.is_empty() && self.stalled.is_none()
    }

    /// One turn: how much was done. Errors: what keeps the drive from answering: whoever calls decides about
    /// a reset.
    pub(super) fn turn(&mut self, memory: &AddressSpace, clock: &Clock) -> Result<usize, Error> {
        memory.refresh(&mut self.view);
        let mut work = self.collect()?;
        match self.phase {
            Phase::Disabled | Phase::Failed => {}
            Phase::Stopping => work = work.saturating_add(self.stop()?),
            Phase::Ready => {
                let done = self.serve(clock)?;
                work = work.saturating_add(done);
            }
        }
        Ok(work)
    }

    fn serve(&mut self, clock: &Clock) -> Result<usize, Error> {
        let rung = match self.queues.relay(clock) {
            Ok(rung) => rung,
            Err(why) => {
                self.fail(why);
                return Ok(1);
            }
        };
        let taken = match self.take_commands()? {
            Ok(taken) => taken,
            Err(why) => {
                self.fail(why);
                return Ok(1);
            }
        };
        let now = clock.now();
        if !self.held.is_empty() && now >= self.events_due {
            self.events_due = now.saturating_add(EVENT_INTERVAL);
            self.report_events()?;
        }
        Ok(rung.saturating_add(taken))
    }

    /// Takes commands off the client's ring.
    fn take_commands(&mut self) -> Result<Result<usize, Broken>, Error> {
        let mut taken = 0usize;
        self.retry_stalled()?;
        while taken < POPPED_MAX && self.stalled.is_none() && self.forwarded.len() < FORWARDED_MAX {
            let (tail, cq_head) = (self.queues.doorbell(0, false), self.queues.doorbell(0, true));
            let owed = self.forwarded.len().saturating_add(self.held.len());
            let Some(rings) = &mut self.rings else { break };
            let popped = match rings.pop(&self.view, tail, cq_head, owed) {
                Ok(Some(popped)) => popped,
                Ok(None) => break,
                Err(why) => return Ok(Err(why)),
            };
            taken = taken.saturating_add(1);
            let mut context = Context {
                device: &self.device,
                view: &self.view,
                queues: &mut self.queues,
                held: self.held.len(),
                events: &mut self.events,
                is_weighted: self.registers.cc.ams() == regs::AMS_WEIGHTED,
            };
            match context.decide(popped.sqe) {
                Action::Answer(status, result) => {
                    if let Err(why) = self.post(popped.sqe.cid, status, result) {
                        return Ok(Err(why));
                    }
                }
                Action::Hold => self.held.push(popped.sqe.cid),
                Action::Forward(sqe, effect) => {
                    self.stalled = Some(Stalled { sqe, cid: Some(popped.sqe.cid), effect });
                    self.retry_stalled()?;
                }
            }
        }
        Ok(Ok(taken))
    }

    /// Hands the drive what it has had no room for.
    fn retry_stalled(&mut self) -> Result<(), Error> {
        let Some(stalled) = self.stalled.take() else { return Ok(()) };
        match self.device.admin.forward(&self.device, stalled.sqe)? {
            Some(token) => {
                self.forwarded.push(Forwarded { token, cid: stalled.cid, effect: stalled.effect });
            }
            None => self.stalled = Some(stalled),
        }
        Ok(())
    }

    /// Takes what the drive has completed.
    fn collect(&mut self) -> Result<usize, Error> {
        let mut collected = 0usize;
        let mut at = 0usize;
        while let Some(token) = self.forwarded.get(at).map(|forwarded| forwarded.token) {
            let Some(completion) = self.device.admin.collect(&self.device, token)? else {
                at = at.saturating_add(1);
                continue;
            };
            collected = collected.saturating_add(1);
            let Forwarded { cid, effect, .. } = self.forwarded.swap_remove(at);
            let status = completion.status;
            self.conclude(effect, status, cid.is_some());
            if cid.is_none() && matches!(effect, Effect::Deleted { .. }) && !is_deleted(status) {
                return Err(Error::Status { what: "delete a queue of a client".to_owned(), status });
            }
            if let Some(cid) = cid
                && let Err(why) = self.post(cid, completion.status, completion.result)
            {
                self.fail(why);
            }
        }
        Ok(collected)
    }

    fn conclude(&mut self, effect: Effect, status: Status, asked_for: bool) {
        match effect {
            Effect::None => {}
            Effect::Created { qid, is_completion } => {
                self.queues.created(qid, is_completion, status.is_success());
            }
            Effect::Deleted { qid, is_completion } => {
                let done = is_deleted(status);
                self.queues.deleted(qid, is_completion, done);
                if done && asked_for {
                    self.queues.released(qid);
                }
            }
        }
    }

    fn post(&mut self, cid: u16, status: Status, result: u64) -> Result<(), Broken> {
        if let Some(rings) = &mut self.rings {
            rings.post(&self.view, cid, status, result)?;
            self.queues.signal_admin();
        }
        Ok(())
    }

    /// Deletes the queues that are left, one command at a time, and is disabled when there is none.
    fn stop(&mut self) -> Result<usize, Error> {
        self.retry_stalled()?;
        if self.is_idle() {
            self.registers.reset(false);
            self.phase = Phase::Disabled;
            return Ok(1);
        }
        if self.stalled.is_some() || self.forwarded.len() >= FORWARDED_MAX {
            return Ok(0);
        }
        let Some((qid, is_completion)) = self.queues.next_to_delete() else { return Ok(0) };
        if self.queues.remove(Qid(qid), is_completion).is_err() {
            return Ok(0);
        }
        let effect = Effect::Deleted { qid, is_completion };
        self.stalled = Some(Stalled { sqe: delete(qid, is_completion), cid: None, effect });
        self.retry_stalled()?;
        Ok(1)
    }

    /// Completes held requests with what the drive has reported.
    fn report_events(&mut self) -> Result<(), Error> {
        let reported = self.device.admin.events_since(&self.device, self.events_seen)?;
        for (number, result) in reported {
            if is_wanted(self.events, result) {
                // Without a request to complete it is reported when there is the next one.
                let Some(cid) = self.held.pop() else { break };
                if let Err(why) = self.post(cid, Status::SUCCESS, result) {
                    self.fail(why);
                    break;
                }
            }
            self.events_seen = number.saturating_add(1);
        }
        Ok(())
    }

    /// The drive has forgotten everything: so does this.
    pub(super) fn lose(&mut self) {
        self.lost = true;
        self.rings = None;
        self.held.clear();
        self.stalled = None;
        for forwarded in self.forwarded.drain(..) {
            self.device.admin.abandon(forwarded.token);
        }
        self.queues.forget();
    }
}

/// A queue that is not there is as good as deleted.
fn is_deleted(status: Status) -> bool {
    status.is_success() || status.kind() == Status::INVALID_QUEUE_IDENTIFIER
}

/// Whether a client has asked for an event of this kind.
fn is_wanted(configuration: u32, result: u64) -> bool {
    let event = AsyncEvent::from_bits(result as u32);
    match event.event_type() {
        event_type::SMART => configuration & WARNINGS != 0,
        event_type::NOTICE if event.info() < NOTICES => {
            let bit = NOTICES_SHIFT.saturating_add(u32::from(event.info()));
            configuration.checked_shr(bit).unwrap_or(0) & 1 != 0
        }
        _ => true,
    }
}
