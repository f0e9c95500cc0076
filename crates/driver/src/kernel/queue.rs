//! A queue beside the kernel's driver: an io_uring, and what its commands become.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use unvme_bus::{DmaBuf, EventFd};
use unvme_spec::{Cid, Nsid, Qid, Sqe, Status};

use super::nvme::NvmeNodes;
use super::steps::{FILE, Next, Work};
use super::uring::{Operation, Reaped, Uring, UringOptions};
use super::wire::CommandKind;
use super::{KernelDevice, Target, claims, errno};
use crate::Error;
use crate::command::{Completion, KvCommand, Payload, Rejected};
use crate::options::{CompletionMode, DataPointers, QueueOptions};
use crate::wait::{SLEEP_MAX, Wait, Waiter};
use crate::watch::{Overdue, Watch};

/// Between two looks at the clock: so many polls that found something, or a 1024th of it that found nothing.
const POLLS_TO_WATCH: i32 = 1 << 16;
const IDLE_POLL_COST: i32 = 1 << 10;
/// What the kernel's two limits take longer than that, as its timers go by whole seconds, and its reset of a
/// controller.
const RESET_TIME: Duration = Duration::from_secs(5);

/// What commands become.
enum Way {
    /// NVMe commands.
    Passthrough {
        /// Namespaces whose node is registered, by their number there.
        routes: Vec<Nsid>,
    },
    /// Operations of the block layer.
    Block {
        /// How far the command in each slot has come.
        works: Box<[Option<Work>]>,
    },
}

/// A command that has ended, before its owner took it.
struct Ended {
    index: u32,
    status: Status,
    result: u64,
}

/// An io_uring on the nodes of the kernel's driver, or on a block device or file.
///
/// Submitted commands may reach the kernel before they are rung.
pub struct KernelQueue {
    ring: Uring,
    way: Way,
    ended: VecDeque<Ended>,
    waiter: Waiter,
    device: Arc<KernelDevice>,
    /// Namespaces that commands of this queue may change.
    admitted: Vec<Nsid>,
    command_timeout: Duration,
    abort_grace: Duration,
    transfer_bytes_max: usize,
    event: Option<EventFd>,
}

impl KernelQueue {
    pub(crate) fn create(device: &Arc<KernelDevice>, options: &QueueOptions) -> Result<Self, Error> {
        let depth_max = device.base.limits().depth_max;
        if options.depth == 0 || options.depth > depth_max {
            return Err(Error::InvalidArgument(format!(
                "a queue depth of {}: 1 to {depth_max} commands are possible",
                options.depth
            )));
        }
        if options.data_pointers == DataPointers::Sgl {
            return Err(Error::Unsupported(
                "SGLs through the kernel's driver, which chooses between PRPs and SGLs itself".to_owned(),
            ));
        }
        let Some(id) = device.base.take_queue(Qid::ADMIN) else {
            let most = device.base.queues_max();
            return Err(Error::Exhausted(format!("all {most} I/O queues that were asked for are in use")));
        };
        Self::make(device, options, id).inspect_err(|_| device.base.return_queue(id))
    }

    fn make(device: &Arc<KernelDevice>, options: &QueueOptions, id: Qid) -> Result<Self, Error> {
        let is_polling = options.mode == CompletionMode::Poll;
        let polls_device = match &device.target {
            Target::Nvme(nodes) => is_polling && nodes.has_poll_queues(),
            // The block layer polls for reads and writes alone, and a ring that does takes nothing else.
            Target::Block(_) => false,
        };
        let uring = UringOptions { depth: options.depth, polls_device, cooperative: is_polling };
        let ring = Uring::new(&device.memory, &uring)?;
        let mut waiter = Waiter::new(id, device.base.clock(), options);
        waiter.countdown = POLLS_TO_WATCH;
        let way = match &device.target {
            Target::Nvme(_) => {
                // The limit is the kernel's to keep: it aborts the command, waits as long again and resets
                // the controller. Only when the command did not return by then, and a grace period later, is
                // it given up here.
                let limit = options.command_timeout.saturating_mul(2).saturating_add(RESET_TIME);
                waiter.watch = Watch::new(limit, options.abort_grace);
                Way::Passthrough { routes: Vec::new() }
            }
            Target::Block(file) => {
                ring.register_file(FILE, file.as_fd())?;
                Way::Block { works: (0..options.depth).map(|_| None).collect() }
            }
        };
        let event = match is_polling {
            true => None,
            false => {
                let event = EventFd::new()?;
                ring.register_event(&event)?;
                Some(event)
            }
        };
        Ok(Self {
            ring,
            way,
            ended: VecDeque::with_capacity(options.depth.into()),
            waiter,
            device: Arc::clone(device),
            admitted: Vec::new(),
            command_timeout: options.command_timeout,
            abort_grace: options.abort_grace,
            transfer_bytes_max: device.base.limits().transfer_bytes_max,
            event,
        })
    }

    #[inline]
    pub(crate) fn capacity(&self) -> usize {
        self.ring.capacity()
    }

    /// As [`crate::Queue::interrupt`].
    pub(crate) fn interrupt(&self) -> Option<&EventFd> {
        self.event.as_ref()
    }

    /// As [`crate::Queue::submit`].
    #[inline]
    pub(crate) fn submit(&mut self, sqe: Sqe, payload: Option<Payload>, token: u64) -> Result<(), Rejected> {
        let base = &self.device.base;
        let payload =
            payload.map(|payload| payload.check(self.transfer_bytes_max, base.pool.id())).transpose()?;
        let (buf, bytes) = payload.map_or((None, 0), |payload| (Some(payload.buf), payload.bytes));
        if sqe.flags != 0 || sqe.mptr != 0 {
            let what = if sqe.flags != 0 { "a fused pair or an SGL" } else { "a pointer in dwords 4 and 5" };
            return Err(Rejected { error: unsupported(what), buf });
        }
        if let Some(error) = self.waiter.gone() {
            return Err(Rejected { error, buf });
        }
        if claims::may_change(sqe.opcode) && !self.admitted.contains(&Nsid(sqe.nsid)) {
            match self.device.admits_changes(Nsid(sqe.nsid)) {
                Ok(true) => self.admitted.push(Nsid(sqe.nsid)),
                Ok(false) => {
                    let index = self.take_slot(buf, token)?;
                    self.end(index, claims::CONFLICT, 0);
                    return Ok(());
                }
                Err(error) => return Err(Rejected { error, buf }),
            }
        }
        match self.way {
            Way::Passthrough { .. } => self.pass(&sqe, buf, bytes, token),
            Way::Block { .. } => self.begin(&sqe, buf, bytes, token),
        }
    }

    /// As [`crate::Queue::submit_kv`].
    pub(crate) fn submit_kv(
        &mut self,
        command: KvCommand<'_>,
        payload: Option<Payload>,
        token: u64,
    ) -> Result<(), Rejected> {
        if command.long_key.is_some() {
            return Err(Rejected {
                error: unsupported("a key of more than 16 bytes, which travels in memory"),
                buf: payload.map(|payload| payload.buf),
            });
        }
        self.submit(command.sqe, payload, token)
    }

    #[inline]
    fn take_slot(&mut self, buf: Option<DmaBuf>, token: u64) -> Result<u32, Rejected> {
        let capacity = self.ring.capacity() as u32;
        self.ring.take(buf, token).map_err(|buf| Rejected { error: Error::Full { capacity }, buf })
    }

    /// Passes a command on as it is.
    #[inline]
    fn pass(&mut self, sqe: &Sqe, buf: Option<DmaBuf>, bytes: usize, token: u64) -> Result<(), Rejected> {
        let file = match self.route(Nsid(sqe.nsid)) {
            Ok(file) => file,
            Err(error) => return Err(Rejected { error, buf }),
        };
        let index = self.take_slot(buf, token)?;
        let Some(file) = file else {
            self.end(index, Status::INVALID_NAMESPACE_OR_FORMAT.with_do_not_retry(), 0);
            return Ok(());
        };
        let timeout = self.command_timeout;
        let command = Operation::Command { file, kind: CommandKind::Io, sqe, bytes: bytes as u32, timeout };
        self.ring.start(index, &command).map_err(|error| Rejected { error, buf: self.ring.finish(index).1 })
    }

    /// The registered node of a namespace; `None` when there is no such namespace.
    #[inline]
    fn route(&mut self, nsid: Nsid) -> Result<Option<u32>, Error> {
        match &self.way {
            Way::Passthrough { routes } => match routes.iter().position(|known| *known == nsid) {
                Some(place) => Ok(Some(place as u32)),
                None => self.find_route(nsid),
            },
            Way::Block { .. } => Ok(None),
        }
    }

    #[cold]
    fn find_route(&mut self, nsid: Nsid) -> Result<Option<u32>, Error> {
        let (Way::Passthrough { routes }, Target::Nvme(nodes)) = (&mut self.way, &self.device.target) else {
            return Ok(None);
        };
        let Some(file) = NvmeNodes::namespace(nodes, nsid)? else { return Ok(None) };
        let place = routes.len() as u32;
        self.ring.register_file(place, file.as_fd())?;
        routes.push(nsid);
        Ok(Some(place))
    }

    /// Begins a command of the block layer.
    fn begin(&mut self, sqe: &Sqe, buf: Option<DmaBuf>, bytes: usize, token: u64) -> Result<(), Rejected> {
        let Target::Block(file) = &self.device.target else {
            return Err(Rejected { error: unsupported("a block command"), buf });
        };
        let parsed = Work::parse(file, sqe, buf.as_ref().map(|buf| (buf, bytes)));
        let index = self.take_slot(buf, token)?;
        match parsed {
            Err(status) => {
                self.end(index, status, 0);
                Ok(())
            }
            Ok(work) => {
                if let Way::Block { works } = &mut self.way {
                    works[index as usize] = Some(work);
                }
                self.go_on(index).map_err(|error| Rejected { error, buf: self.ring.finish(index).1 })
            }
        }
    }

    /// Starts the next operation of a command, or ends it.
    fn go_on(&mut self, index: u32) -> Result<(), Error> {
        let Way::Block { works } = &mut self.way else { return Ok(()) };
        let Some(work) = works[index as usize].as_mut() else { return Ok(()) };
        match work.next(&self.device.base.pool) {
            Next::Start(operation) => self.ring.start(index, &operation),
            Next::Lend(scratch, operation) => {
                self.ring.lend(index, scratch);
                self.ring.start(index, &operation)
            }
            Next::Done(status) => {
                self.end(index, status, 0);
                Ok(())
            }
        }
    }

    /// Remembers the end of a command that no completion of the kernel's tells of.
    fn end(&mut self, index: u32, status: Status, result: u64) {
        self.ended.push_back(Ended { index, status, result });
        if let Some(event) = &self.event {
            event.signal();
        }
    }

    /// What precedes taking completions.
    #[inline]
    pub(crate) fn prepare(&mut self) {
        if self.waiter.countdown < 0 {
            self.attend();
        }
        if let Err(e) = self.ring.look() {
            self.waiter.trouble.get_or_insert(e);
        }
    }

    /// What follows taking completions.
    #[inline]
    pub(crate) fn end_poll(&mut self, found: bool) {
        self.waiter.countdown -= if found { 1 } else { IDLE_POLL_COST };
    }

    /// Takes what the kernel has completed until a command has ended: true when one has.
    fn gather(&mut self) -> bool {
        while self.ended.is_empty() {
            let Some(reaped) = self.ring.reap() else { return false };
            if let Some((status, result)) = self.settle(reaped) {
                self.ended.push_back(Ended { index: reaped.index, status, result });
            }
        }
        true
    }

    /// What an operation's end means for its command: its status and result, or that it goes on.
    #[inline]
    fn settle(&mut self, reaped: Reaped) -> Option<(Status, u64)> {
        match &self.way {
            Way::Passthrough { .. } if reaped.res >= 0 => {
                Some((Status::from_raw(reaped.res as u16), reaped.result))
            }
            Way::Passthrough { .. } => Some((self.failed(-reaped.res), 0)),
            Way::Block { .. } => self.step(reaped).map(|status| (status, 0)),
        }
    }

    /// A command that the kernel did not pass on, or whose device is gone.
    #[cold]
    fn failed(&mut self, code: i32) -> Status {
        let Target::Nvme(nodes) = &self.device.target else { return errno::passthrough_status(code) };
        let error = errno::explain("a command through", &nodes.shown, code);
        if errno::is_gone(code) {
            self.waiter.dead = Some(error.reason());
        } else if matches!(code, libc::EPERM | libc::EACCES) {
            self.waiter.trouble.get_or_insert(error);
        } else {
            tracing::debug!(error = %error, "refused");
        }
        errno::passthrough_status(code)
    }

    fn step(&mut self, reaped: Reaped) -> Option<Status> {
        let Way::Block { works } = &mut self.way else { return None };
        if errno::is_gone(-reaped.res) {
            self.waiter.dead = Some(std::io::Error::from_raw_os_error(-reaped.res).to_string());
        }
        let work = works[reaped.index as usize].as_mut()?;
        if let Some(status) = work.note(reaped.res, self.ring.buffers(reaped.index)) {
            works[reaped.index as usize] = None;
            return Some(status);
        }
        if let Err(e) = self.go_on(reaped.index) {
            self.waiter.trouble.get_or_insert(e);
            return Some(Status::INTERNAL_ERROR);
        }
        if let Err(e) = self.ring.send() {
            self.waiter.trouble.get_or_insert(e);
        }
        None
    }

    /// Takes all that the kernel has completed: what only its owner forgot to poll is not late.
    fn take_all(&mut self) {
        while let Some(reaped) = self.ring.reap() {
            if let Some((status, result)) = self.settle(reaped) {
                self.ended.push_back(Ended { index: reaped.index, status, result });
            }
        }
    }

    /// Takes the next completion.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Completion> {
        let ended = loop {
            if let Some(ended) = self.ended.pop_front() {
                break ended;
            }
            let reaped = self.ring.reap()?;
            if let Some((status, result)) = self.settle(reaped) {
                break Ended { index: reaped.index, status, result };
            }
        };
        let (token, buf) = self.ring.finish(ended.index);
        Some(Completion { token, status: ended.status, result: ended.result, buf })
    }
}

impl Wait for KernelQueue {
    fn waiter(&self) -> &Waiter {
        &self.waiter
    }

    fn waiter_mut(&mut self) -> &mut Waiter {
        &mut self.waiter
    }

    #[inline]
    fn outstanding(&self) -> usize {
        self.ring.taken()
    }

    #[inline]
    fn ring(&mut self) -> Result<(), Error> {
        self.ring.send()
    }

    fn look(&mut self) -> Result<bool, Error> {
        if self.gather() {
            return Ok(true);
        }
        self.ring.look()?;
        Ok(self.gather())
    }

    fn is_ready(&self) -> bool {
        !self.ended.is_empty()
    }

    /// The kernel ends what it still has of a device that is gone.
    fn is_over(&self) -> bool {
        false
    }

    #[cold]
    #[inline(never)]
    fn attend(&mut self) {
        self.waiter.countdown = POLLS_TO_WATCH;
        self.take_all();
        self.check_time();
    }

    fn pause(&mut self, rounds: u32, _left: Duration) {
        if rounds.is_multiple_of(64) {
            // A virtual clock moves, as time does for whoever waits.
            self.waiter.clock.advance(Duration::from_micros(64));
        }
        if rounds.is_multiple_of(256) {
            std::thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
    }

    fn arm(&mut self) {
        if let Some(event) = &self.event {
            // Somebody else may sleep on it later, for what completes from now on.
            event.drain();
        }
    }

    fn sleep(&mut self, limit: Duration) -> Result<(), Error> {
        self.ring.sleep(limit)?;
        self.waiter.clock.advance(limit);
        Ok(())
    }

    fn overdue(&mut self, now: u64) -> Option<Overdue> {
        let overdue = self.waiter.watch.next(now, self.ring.deadlines())?;
        // All that is late is seen to at once: none of it ends the others.
        self.waiter.watch.look_again();
        Some(overdue)
    }

    /// Reads and writes of the block layer are cancelled; an NVMe command is the kernel's to abort.
    fn abort(&mut self, cid: Cid) -> Result<(), Error> {
        match self.way {
            Way::Block { .. } => self.ring.cancel(cid.0.into()),
            Way::Passthrough { .. } => Ok(()),
        }
    }

    fn give_up(&mut self, cid: Cid, _why: &Error) {
        let index = u32::from(cid.0);
        self.ring.give_up(index);
        if let Way::Block { works } = &mut self.way {
            works[index as usize] = None;
        }
        self.end(index, Status::ABORTED_BY_HOST, 0);
    }
}

impl Drop for KernelQueue {
    fn drop(&mut self) {
        // What the kernel still has, it may still write: the buffers go back when it is done, and are leaked
        // otherwise.
        let clock = &self.waiter.clock;
        let started = clock.now();
        let elapsed = || Duration::from_nanos(clock.now().saturating_sub(started));
        let mut sent = self.ring.send();
        while self.ring.in_flight() > 0 && sent.is_ok() && elapsed() < self.abort_grace {
            while self.ring.reap().is_some() {}
            if self.ring.in_flight() > 0 {
                sent = self.ring.sleep(SLEEP_MAX);
                clock.advance(SLEEP_MAX);
            }
        }
        if self.ring.in_flight() > 0 {
            let commands = self.ring.in_flight();
            tracing::warn!(queue = %self.waiter.id, commands, "commands did not end: their memory stays allocated");
        }
        self.device.base.return_queue(self.waiter.id);
    }
}

#[cold]
fn unsupported(what: &str) -> Error {
    Error::Unsupported(format!(
        "{what} cannot be passed through the kernel's driver; a drive taken over with `unvme setup config` can do it"
    ))
}
