//! What all queues and users of one controller over TCP share: an association, and what is done when it is
//! lost.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use unvme_bus::{AddressSpace, DmaPool, lock};
use unvme_spec::command::CommandSet;
use unvme_spec::fabrics::{Command, DISCOVERY_NQN, Property};
use unvme_spec::regs::{self, Csts};
use unvme_spec::{Cid, Qid, Sqe, admin};

use super::admin::{AdminLimits, TcpAdmin};
use super::associate::{Association, Facts, associate, is_conflict};
use crate::base::Base;
use crate::claim::Claimed;
use crate::command::{Completion, Payload, command_name};
use crate::options::ControllerOptions;
use crate::tcp::{Broken, TcpTarget};
use crate::watch::nanoseconds;
use crate::{Error, Event, NOTICES};

/// Time for the last commands to a controller that is let go of, or disabled.
const LAST_COMMANDS_LIMIT: Duration = Duration::from_secs(2);

/// Time between two looks whether a controller has shut down.
const SHUTDOWN_INTERVAL: Duration = Duration::from_millis(1);

/// Where the association stands.
#[derive(Debug)]
pub(super) enum Life {
    /// There is one, since `born`. Of what came before it and did not last: the time without any, and how
    /// long to wait should this one not last either.
    Up { born: u64, missed: u64, delay: Duration },
    /// It was lost; it is tried again at `next`. Times are of the controller's clock.
    Down { since: u64, next: u64, delay: Duration, why: String },
    /// It was given up.
    Gone(String),
}

impl Life {
    /// Errors: [`Error::Gone`] when the target was given up.
    pub(super) fn check(&self) -> Result<(), Error> {
        match self {
            Self::Gone(reason) => Err(Error::Gone { reason: reason.clone() }),
            _ => Ok(()),
        }
    }
}

pub(crate) struct TcpDevice {
    /// The epoch is even while there is an association, or the target was given up; odd while a lost one is
    /// tried again.
    pub(crate) base: Base,
    pub(super) target: TcpTarget,
    pub(super) admin: TcpAdmin,
    life: Mutex<Life>,
    /// The last epoch that ended with everything that was outstanding, rather than with a lost connection.
    reset_epoch: AtomicU64,
    facts: Mutex<Facts>,
}

impl TcpDevice {
    pub(crate) fn open(target: TcpTarget, options: ControllerOptions) -> Result<Self, Error> {
        options.check()?;
        target.check()?;
        if target.nqn == DISCOVERY_NQN {
            let reason = "a discovery service has no namespaces: ask it with `discover`";
            return Err(Error::InvalidArgument(reason.to_owned()));
        }
        let pool = DmaPool::new(Arc::new(AddressSpace::new()));
        let new = associate(&target, &options, &pool, options.io_queues, &Claimed::default())?;
        let now = options.clock.now();
        let admin = TcpAdmin::new(pool.id(), new.limits.transfer_bytes_max)?;
        let this = Self {
            admin,
            life: Mutex::new(Life::Up { born: now, missed: 0, delay: Duration::ZERO }),
            reset_epoch: AtomicU64::new(0),
            facts: Mutex::new(new.facts),
            base: Base::new(pool, options, 2, new.facts.queues.into(), new.limits),
            target,
        };
        this.install(new)?;
        Ok(this)
    }

    fn install(&self, new: Association) -> Result<(), Error> {
        *lock(&self.facts) = new.facts;
        self.base.set_limits(new.limits);
        let limits = AdminLimits {
            transfer_bytes_max: new.limits.transfer_bytes_max,
            events: new.facts.events,
            now: self.base.clock().now(),
        };
        self.admin.attach(new.stream, new.agreed, limits)
    }

    pub(super) fn facts(&self) -> Facts {
        *lock(&self.facts)
    }

    pub(super) fn life(&self) -> MutexGuard<'_, Life> {
        // A panic amid a reconnection leaves it lost, and it is tried again.
        lock(&self.life)
    }

    /// As [`crate::Controller::is_connected`].
    pub(crate) fn is_connected(&self) -> bool {
        self.base.epoch().is_multiple_of(2)
    }

    /// Whether commands that were sent under `epoch` may be sent again.
    pub(super) fn resends_since(&self, epoch: u64) -> bool {
        self.reset_epoch.load(Ordering::Acquire) <= epoch
    }

    /// Says that a connection of the association of `epoch` is broken: all of it is made anew, since a target
    /// ends an association whole. Whoever comes later with the same news is not heard.
    pub(super) fn lose(&self, epoch: u64, broken: &Broken) {
        // Nobody waits for a reconnection to hear old news.
        if self.base.epoch() != epoch {
            return;
        }
        let mut life = self.life();
        let Life::Up { born, missed, delay } = *life else { return };
        if self.base.epoch() != epoch {
            return;
        }
        let (why, resends) = match broken {
            Broken::Lost(why) => (why, true),
            Broken::Protocol(why) => (why, false),
        };
        let policy = &self.target.reconnect;
        let now = self.base.options.clock.now();
        // One that has not lasted is one more attempt that has failed.
        let (missed, wait) = match now.saturating_sub(born) < nanoseconds(policy.delay_max) {
            true => (missed, delay),
            false => (0, Duration::ZERO),
        };
        self.disconnect(why, resends);
        if missed >= nanoseconds(policy.give_up_after) {
            self.give_up(&mut life, why.clone());
            self.base.epoch.fetch_add(2, Ordering::Release);
            return;
        }
        tracing::warn!(target: NOTICES, "reconnecting to {}: {why}", self.target.shown());
        let (since, next) = (now.saturating_sub(missed), now.saturating_add(nanoseconds(wait)));
        *life = Life::Down { since, next, delay: policy.after(wait), why: why.clone() };
        self.base.epoch.fetch_add(1, Ordering::Release);
    }

    /// Lets go of an association. The epoch is the caller's to change.
    fn disconnect(&self, why: &str, resends: bool) {
        tracing::warn!(target = %self.target.shown(), why, "the association has ended");
        self.base.note_end(why.to_owned());
        if !resends {
            self.reset_epoch.store(self.base.epoch() + 1, Ordering::Release);
        }
        self.admin.detach(resends);
    }

    fn give_up(&self, life: &mut Life, reason: String) {
        tracing::warn!(target = %self.target.shown(), reason, "given up");
        self.base.note_end(reason.clone());
        self.admin.shut(&reason);
        *life = Life::Gone(reason);
    }

    /// Tries to reconnect, if that is due and nobody else is at it.
    pub(super) fn attend(&self) {
        if self.base.epoch().is_multiple_of(2) {
            return;
        }
        let Some(mut life) = lock::try_lock(&self.life) else { return };
        // What became of it is in `life`.
        let _ = self.reconnect(&mut life);
    }

    /// Makes a lost association anew, if that is due; nothing when there is one. Errors: what kept it from
    /// being made.
    pub(super) fn reconnect(&self, life: &mut Life) -> Result<(), Error> {
        let Life::Down { since, next, delay, why } = life else { return life.check() };
        if self.base.options.clock.now() < *next {
            return Err(Error::Unreachable(why.clone()));
        }
        let Base { options, pool, .. } = &self.base;
        let wanted = self.base.queues_max().max(1) as u16;
        let made = associate(&self.target, options, pool, wanted, &self.base.claimed)
            .and_then(|new| self.recognize(new));
        let now = self.base.options.clock.now();
        let missed = now.saturating_sub(*since);
        let policy = &self.target.reconnect;
        match made {
            Ok(()) => {
                tracing::info!(target = %self.target.shown(), "connected again");
                *life = Life::Up { born: now, missed, delay: *delay };
                self.base.epoch.fetch_add(1, Ordering::Release);
                Ok(())
            }
            Err(e) if missed >= self.patience(&e) || matches!(e, Error::Gone { .. }) => {
                let reason = format!("{}; {}", why, e.reason());
                self.give_up(life, reason);
                self.base.epoch.fetch_add(1, Ordering::Release);
                Err(e)
            }
            Err(e) => {
                tracing::debug!(target = %self.target.shown(), error = %e, "reconnect");
                *next = now.saturating_add(nanoseconds(*delay));
                *delay = policy.after(*delay);
                Err(e)
            }
        }
    }

    /// For how many nanoseconds a lost association is tried again after `error`. The claims of the old one
    /// end when the target has heard nothing of it for the time of the keep-alive.
    fn patience(&self, error: &Error) -> u64 {
        let policy = &self.target.reconnect;
        match is_conflict(error) {
            true => nanoseconds(policy.give_up_after.max(self.target.keep_alive.saturating_mul(2))),
            false => nanoseconds(policy.give_up_after),
        }
    }

    /// Goes on with an association, if it is with the device there was before.
    fn recognize(&self, new: Association) -> Result<(), Error> {
        if new.facts.identity != self.facts().identity {
            let reason = format!("another device answers at {}", self.target.shown());
            return Err(Error::Gone { reason });
        }
        self.install(new)
    }

    /// Sends an admin command and waits for its completion, whatever its status. A controller that does not
    /// answer is reset.
    pub(crate) fn admin(&self, sqe: Sqe, payload: Option<Payload>) -> Result<Completion, Error> {
        self.admin_within(self.base.options.admin_timeout, sqe, payload)
    }

    fn admin_within(&self, limit: Duration, sqe: Sqe, payload: Option<Payload>) -> Result<Completion, Error> {
        if CommandSet::Admin.facts(sqe.opcode).is_some_and(|facts| facts.makes_queue) {
            return Err(Error::Unsupported(format!(
                "{}: queues over the network are connections, which the driver makes",
                command_name(&sqe)
            )));
        }
        let epoch = self.base.epoch();
        let outcome = self.admin.execute(self, sqe, payload, limit);
        if let Err(e @ Error::Timeout { .. }) = &outcome {
            tracing::warn!(error = %e, "admin queue");
            self.reset_since(epoch, &e.to_string())?;
        }
        outcome
    }

    /// Asks the controller to end a command; whether it did shows in the command's own completion.
    pub(super) fn abort(&self, sqid: Qid, cid: Cid, grace: Duration) -> Result<(), Error> {
        let limit = grace.min(self.base.options.admin_timeout);
        let completion = self.admin_within(limit, admin::Command::Abort { sqid, cid }.encode(), None)?;
        Error::check(|| format!("Abort of command {:#06x} on queue {sqid}", cid.0), completion.status)
    }

    /// Controller level reset: CC.EN is cleared, and a new association is made. Everything outstanding has
    /// ended. Errors: what kept the new one from being made. It is tried again later, as after a connection
    /// that was lost.
    pub(crate) fn reset_since(&self, epoch: u64, why: &str) -> Result<(), Error> {
        self.set_property(
            epoch,
            regs::offset::CC,
            self.facts().cc.with_en(false).into_bits(),
            self.last_commands_deadline(),
        );
        self.renew(epoch, why)
    }

    /// NVM Subsystem Reset, then as a reset of the controller.
    pub(crate) fn subsystem_reset(&self) -> Result<(), Error> {
        if !self.base.limits().cap.nssrs() {
            return Err(Error::Unsupported(
                "the controller has no NVM Subsystem Reset (CAP.NSSRS)".to_owned(),
            ));
        }
        let epoch = self.base.epoch();
        self.set_property(epoch, regs::offset::NSSR, regs::NSSR_MAGIC, self.last_commands_deadline());
        self.renew(epoch, "an NVM subsystem reset was asked for")
    }

    fn renew(&self, epoch: u64, why: &str) -> Result<(), Error> {
        let mut life = self.life();
        if self.base.epoch() != epoch {
            // Somebody else was first; but a target that does not answer is asked once more.
            return match &*life {
                Life::Up { .. } => Ok(()),
                _ => self.reconnect(&mut life),
            };
        }
        if let Life::Down { next, .. } = &mut *life {
            *next = 0;
        } else {
            // Whoever asks for a new one has it tried at once, also when the target was given up.
            if matches!(*life, Life::Up { .. }) {
                self.disconnect(why, false);
            }
            let now = self.base.options.clock.now();
            let delay = self.target.reconnect.first_delay;
            *life = Life::Down { since: now, next: now, delay, why: why.to_owned() };
            self.base.epoch.fetch_add(1, Ordering::Release);
        }
        self.reconnect(&mut life)
    }

    /// Until when the last commands to a controller may take.
    fn last_commands_deadline(&self) -> u64 {
        self.base.options.clock.now().saturating_add(nanoseconds(LAST_COMMANDS_LIMIT))
    }

    /// Sets a property of the controller of an association, if that is still there; its answer does not
    /// matter. Whether there was one.
    fn set_property(&self, epoch: u64, offset: u64, value: u32, deadline: u64) -> bool {
        let property = Property { offset: offset as u32, is_wide: Some(false), value: value.into() };
        let sqe = Command::PropertySet(property).encode();
        self.admin.execute_under(self, epoch, sqe, deadline).is_some()
    }

    /// Waits until the controller has shut down.
    fn await_shutdown(&self, epoch: u64, deadline: u64) {
        let property = Property { offset: regs::offset::CSTS as u32, is_wide: Some(false), value: 0 };
        let sqe = Command::PropertyGet(property).encode();
        while let Some(answer) = self.admin.execute_under(self, epoch, sqe, deadline) {
            let csts = Csts::from_bits(answer.result as u32);
            if !answer.status.is_success() || csts.shst() == regs::SHST_COMPLETE {
                return;
            }
            std::thread::sleep(SHUTDOWN_INTERVAL);
            self.base.options.clock.advance(SHUTDOWN_INTERVAL);
        }
    }

    /// Keeps the association alive, and tries to get a lost one back. How long that may wait the next time.
    /// Errors: [`Error::Gone`] when the target was given up.
    pub(crate) fn keep_alive(&self) -> Result<Duration, Error> {
        self.send_keep_alive();
        self.attend();
        if self.base.epoch().is_multiple_of(2)
            && let Some(life) = lock::try_lock(&self.life)
        {
            life.check()?;
        }
        Ok(match self.base.epoch().is_multiple_of(2) {
            false => self.target.reconnect.first_delay,
            true if self.target.keep_alive.is_zero() => Duration::MAX,
            true => self.target.keep_alive / 8,
        })
    }

    /// Sends a Keep Alive when it is time for one.
    pub(super) fn send_keep_alive(&self) {
        let interval = self.target.keep_alive;
        let epoch = self.base.epoch();
        if interval.is_zero() || !epoch.is_multiple_of(2) {
            return;
        }
        if let Err(broken) = self.admin.keep_alive(interval, self.base.options.clock.now()) {
            self.lose(epoch, &broken);
        }
    }

    pub(crate) fn poll_events(&self) -> Result<Vec<Event>, Error> {
        self.attend();
        self.admin.take_events(self)
    }
}

impl Drop for TcpDevice {
    fn drop(&mut self) {
        let (epoch, deadline) = (self.base.epoch(), self.last_commands_deadline());
        let is_up = matches!(*self.life(), Life::Up { .. });
        let cc = self.facts().cc.with_shn(regs::SHN_NORMAL);
        if is_up && self.set_property(epoch, regs::offset::CC, cc.into_bits(), deadline) {
            self.await_shutdown(epoch, deadline);
        }
        self.admin.detach(false);
    }
}
