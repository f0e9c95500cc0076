//! What `unvme_queue` is: a queue pair of one namespace, for one thread at a time, submitted to and polled.
//!
//! [`memory`] knows which of a program's memory the device reaches without a copy, [`work`] cuts what is too
//! long for one command, [`slots`] remember what is outstanding.
// UNSAFETY: commands come with addresses of a program's memory.
#![allow(unsafe_code)]

mod memory;
mod slots;
mod work;

use std::collections::VecDeque;
use std::time::Duration;

use sdk::{
    BlockQueue, BlockRange, CompletionMode, DriverError, Error, KvNamespace, KvOptions, KvQueue, Lba, Nsid,
    QueueOptions, Rejected, Status, VendorCommands,
};
use unvme_guide::config::SsdType;

pub(crate) use slots::Finished;
pub(crate) use work::{Command, Flags, Verb};

use crate::handle::Open;
use crate::queue::memory::Memory;
use crate::queue::slots::{Data, Kind, Slots};
use crate::queue::work::Work;
use crate::result::{Code, Failure, Result};

/// How a queue is opened.
pub(crate) struct Wanted {
    /// 0: that of the handle.
    pub(crate) nsid: u32,
    pub(crate) queue: QueueOptions,
    /// Which commands pairs are moved with.
    pub(crate) vendor: VendorCommands,
}

/// The queue itself, by what its namespace has.
enum Lane {
    Blocks(BlockQueue),
    Pairs(KvQueue),
}

/// The same on a queue of either kind.
macro_rules! on_either {
    ($lane:expr, $each:ident => $what:expr) => {
        match $lane {
            Lane::Blocks($each) => $what,
            Lane::Pairs($each) => $what,
        }
    };
}

/// A queue of a program's.
pub(crate) struct Queue {
    lane: Lane,
    memory: Memory,
    slots: Slots,
    /// Commands of which not every piece has been submitted.
    backlog: VecDeque<Work>,
    /// Commands that ended without the device, and have not been polled.
    ended: VecDeque<Finished>,
    /// Commands that were taken and have not been polled.
    outstanding: usize,
    /// What the device was asked for and gave.
    mode: CompletionMode,
    /// The device works while it is polled. What has finished is taken first, and the device works when that
    /// is used up: on all that was submitted meanwhile, which costs it less than one command at a time.
    is_host_driven: bool,
}

/// What a queue leads to.
pub(crate) struct About {
    pub(crate) is_pairs: bool,
    pub(crate) mode: CompletionMode,
    pub(crate) nsid: u32,
    pub(crate) depth: usize,
    pub(crate) block_bytes: u32,
    pub(crate) bytes: u64,
    pub(crate) transfer_bytes_max: u64,
    pub(crate) value_bytes_max: u64,
    pub(crate) key_lengths: (usize, usize),
}

impl Queue {
    pub(crate) fn open(open: &Open, wanted: &Wanted) -> Result<Self> {
        let member = open.member();
        let device = member.device();
        let nsid = if wanted.nsid == 0 { member.nsid() } else { Nsid(wanted.nsid) };
        let blocks = |options: &QueueOptions| device.block(nsid)?.queue(options).map(Lane::Blocks);
        let pairs = |options: &QueueOptions| {
            let commands = KvOptions { vendor: wanted.vendor, ..KvOptions::default() };
            device.kv_with(nsid, commands)?.queue(options).map(Lane::Pairs)
        };
        // The namespace of the handle is of its kind; another one is what it is.
        let create = |options: &QueueOptions| match (member.ssd_type(), wanted.nsid) {
            (SsdType::Lba, 0) => blocks(options),
            (SsdType::Kv, 0) => pairs(options),
            (SsdType::Lba, _) => or_else(blocks(options), || pairs(options)),
            (SsdType::Kv, _) => or_else(pairs(options), || blocks(options)),
        };
        let mut options = wanted.queue.clone();
        options.depth = options.depth.min(device.controller().queue_depth_max());
        let lane = match create(&options) {
            // No interrupt is left, or the device has none: it is looked at.
            Err(Error::Driver {
                source: DriverError::Exhausted(_) | DriverError::Unsupported(_), ..
            }) if options.mode != CompletionMode::Poll => {
                options.mode = CompletionMode::Poll;
                create(&options)
            }
            lane => lane,
        }
        .map_err(|e| refused(&e))?;
        let mut lane = lane;
        let (controller, capacity) =
            on_either!(&lane, queue => (queue.controller().clone(), queue.capacity()));
        let is_host_driven = on_either!(&mut lane, queue => queue.raw()).advancer().is_some();
        Ok(Self {
            lane,
            memory: Memory::new(controller),
            slots: Slots::new(capacity),
            backlog: VecDeque::new(),
            ended: VecDeque::new(),
            outstanding: 0,
            mode: options.mode,
            is_host_driven,
        })
    }

    pub(crate) fn about(&self) -> About {
        let nothing = About {
            is_pairs: false,
            mode: self.mode,
            nsid: 0,
            depth: self.slots.depth(),
            block_bytes: 0,
            bytes: 0,
            transfer_bytes_max: 0,
            value_bytes_max: 0,
            key_lengths: (0, 0),
        };
        match &self.lane {
            Lane::Blocks(queue) => {
                let namespace = queue.namespace();
                About {
                    nsid: namespace.nsid().0,
                    block_bytes: namespace.block_bytes(),
                    bytes: namespace.blocks().saturating_mul(namespace.block_bytes().into()),
                    transfer_bytes_max: u64::from(namespace.transfer_blocks_max())
                        * u64::from(namespace.block_bytes()),
                    ..nothing
                }
            }
            Lane::Pairs(queue) => {
                let namespace = queue.namespace();
                let most = namespace.standard_value_bytes_max().max(namespace.vendor_value_bytes_max());
                About {
                    is_pairs: true,
                    nsid: namespace.nsid().0,
                    bytes: namespace.bytes(),
                    transfer_bytes_max: most as u64,
                    value_bytes_max: most as u64,
                    key_lengths: (namespace.key_bytes_min(), namespace.key_bytes_max()),
                    ..nothing
                }
            }
        }
    }

    /// Commands that were taken and not polled.
    pub(crate) fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// A read, or a write if not, as most commands are: of blocks, one command of the device, without
    /// options, from or to memory that it reaches. `None` for all others, which [`Queue::submit`] takes, or
    /// refuses.
    ///
    /// Always inlined, with what it calls: all between the program's command and the device's entry is then
    /// in registers.
    #[inline(always)]
    pub(crate) fn submit_usual(
        &mut self,
        is_read: bool,
        lba: u64,
        length: u64,
        data: *mut u8,
        token: u64,
    ) -> Option<Result<()>> {
        let Lane::Blocks(queue) = &mut self.lane else { return None };
        let namespace = queue.namespace();
        let blocks = length >> namespace.block_bytes().trailing_zeros();
        let is_usual = blocks.wrapping_sub(1) < namespace.transfer_blocks_max().into()
            && length & u64::from(namespace.block_bytes() - 1) == 0
            && blocks <= namespace.blocks()
            && lba <= namespace.blocks() - blocks
            && self.backlog.is_empty()
            && self.outstanding < self.slots.depth();
        if !is_usual {
            return None;
        }
        let buf = self.memory.part(data as usize, length as usize)?;
        let slot = self.slots.take(token, Data { is_lent: true, ..Data::NONE }, Kind::Plain);
        let range = BlockRange::new(Lba(lba), blocks as u32);
        let taken = if is_read { queue.read(range, buf, slot) } else { queue.write(range, buf, slot) };
        if let Err(rejected) = taken {
            return Some(Err(take_back(&mut self.memory, &mut self.slots, slot, rejected)));
        }
        self.outstanding += 1;
        Some(Ok(()))
    }

    /// Takes a command. The device learns of it with [`Queue::ring`].
    ///
    /// # Safety
    /// The command's data is `length` bytes of memory that, until the command has been polled, nobody else
    /// writes, and for those that read, nobody else reads; the queue may be dropped before.
    #[inline(never)]
    pub(crate) unsafe fn submit(&mut self, command: &Command<'_>) -> Result<()> {
        if self.outstanding == self.slots.depth() {
            return Err(full(self.slots.depth()));
        }
        let taken = match &self.lane {
            Lane::Blocks(queue) => {
                let namespace = *queue.namespace();
                let blocks = command.check_blocks(&namespace)?;
                if self.backlog.is_empty() && command.is_one(&namespace, blocks) {
                    self.access(command, blocks as u32)
                } else {
                    self.queue_work(command, blocks);
                    self.pump();
                    Ok(())
                }
            }
            Lane::Pairs(_) => self.pair(command),
        };
        taken?;
        self.outstanding += 1;
        Ok(())
    }

    /// A transfer of one piece.
    fn access(&mut self, command: &Command<'_>, blocks: u32) -> Result<()> {
        let Lane::Blocks(queue) = &mut self.lane else { unreachable!("it is one of blocks") };
        let (buf, data) = self.memory.lend(command.data, command.length, command.verb)?;
        let slot = self.slots.take(command.token, data, Kind::Plain);
        let taken = queue.submit(command.transfer(blocks), Some(buf), slot);
        taken.map_err(|rejected| take_back(&mut self.memory, &mut self.slots, slot, rejected))
    }

    /// A command of pairs, each of which is one of the device.
    fn pair(&mut self, command: &Command<'_>) -> Result<()> {
        let Lane::Pairs(queue) = &mut self.lane else { unreachable!("it is one of pairs") };
        let op = command.of_pairs()?;
        let (buf, data) = match command.verb {
            Verb::Store | Verb::Append | Verb::Retrieve if command.length > 0 => {
                let most = queue.namespace().standard_value_bytes_max();
                if command.length > most.max(queue.namespace().vendor_value_bytes_max()) {
                    return Err(Failure::new(
                        Code::INVALID_VALUE_SIZE,
                        format!("a value of {} bytes: at most {most} in one command", command.length),
                    ));
                }
                let (buf, data) = self.memory.lend_dwords(command.data, command.length, command.verb)?;
                (Some(buf), data)
            }
            _ => (None, Data::NONE),
        };
        let slot = self.slots.take(command.token, data, command.kind());
        let taken = queue.submit(op, buf, slot);
        taken.map_err(|rejected| take_back(&mut self.memory, &mut self.slots, slot, rejected))
    }

    #[cold]
    fn queue_work(&mut self, command: &Command<'_>, blocks: u64) {
        let slot = self.slots.take(command.token, Data::NONE, Kind::Plain);
        self.backlog.push_back(Work::new(slot, command, blocks));
    }

    /// Submits pieces of what is cut while there is room for them.
    #[cold]
    fn pump(&mut self) {
        let Lane::Blocks(queue) = &mut self.lane else { return };
        while queue.outstanding() < queue.capacity()
            && let Some(work) = self.backlog.front_mut()
        {
            let submitted = work.submit_piece(queue, &mut self.memory, &mut self.slots);
            if let Err(failure) = &submitted {
                self.slots.fail(work.slot(), failure.code);
            }
            if submitted.is_err() || work.is_done() {
                self.ended.extend(self.slots.all_submitted(work.slot()));
                self.backlog.pop_front();
            }
        }
    }

    /// Tells the device about what was submitted.
    #[inline]
    pub(crate) fn ring(&mut self) -> Result<()> {
        on_either!(&mut self.lane, queue => queue.ring()).map_err(|e| broken(&e))
    }

    /// Up to `max` commands that have finished, to `take` with their number from 0; how many they were.
    #[inline(always)]
    pub(crate) fn poll(&mut self, max: usize, mut take: impl FnMut(usize, Finished)) -> usize {
        let mut count = 0;
        while count < max
            && let Some(finished) = self.ended.pop_front()
        {
            take(count, finished);
            count += 1;
        }
        let left = max - count;
        // A piece of a command ends at most one command.
        let (slots, memory) = (&mut self.slots, &mut self.memory);
        let mut done = |finished: Option<Finished>| {
            if let Some(finished) = finished {
                take(count, finished);
                count += 1;
            }
        };
        let queue = on_either!(&mut self.lane, queue => queue.raw());
        let mut finished = false;
        if self.is_host_driven {
            for it in queue.take(left) {
                finished = true;
                done(slots.finish(it.token, it.status, KvNamespace::value_bytes(it.result), it.buf, memory));
            }
        }
        if !finished {
            for it in queue.poll(left) {
                done(slots.finish(it.token, it.status, KvNamespace::value_bytes(it.result), it.buf, memory));
            }
        }
        self.outstanding -= count;
        if !self.backlog.is_empty() {
            self.pump();
            // A connection that fails is heard of in the completions.
            let _ = self.ring();
        }
        count
    }

    /// Waits until there is something to poll, or the time is over.
    pub(crate) fn wait(&mut self, timeout: Duration) -> Result<()> {
        if !self.ended.is_empty() {
            return Ok(());
        }
        on_either!(&mut self.lane, queue => queue.wait(timeout)).map(drop).map_err(|e| broken(&e))
    }
}

/// The other kind of queue, on a namespace that has no such commands; the first error, where it has neither.
fn or_else(first: sdk::Result<Lane>, other: impl FnOnce() -> sdk::Result<Lane>) -> sdk::Result<Lane> {
    match first {
        Err(error @ (Error::Unsupported { .. } | Error::Argument(_))) => other().map_err(|_| error),
        first => first,
    }
}

/// The buffer and the slot of a command that was not taken go back; why, in C's numbers.
#[cold]
fn take_back(memory: &mut Memory, slots: &mut Slots, slot: u64, rejected: Rejected) -> Failure {
    slots.give_up(slot, rejected.buf, memory);
    broken(&rejected.error)
}

#[cold]
fn full(depth: usize) -> Failure {
    Failure::new(
        Code::DD_NO_AVAILABLE_RESOURCE,
        format!("the queue is full: all {depth} commands are outstanding; poll, then submit again"),
    )
}

/// What the driver says of a queue or a command.
#[cold]
fn broken(error: &DriverError) -> Failure {
    let code = match error {
        DriverError::Full { .. } | DriverError::Exhausted(_) => Code::DD_NO_AVAILABLE_RESOURCE,
        DriverError::InvalidArgument(_) => Code::DD_INVALID_PARAM,
        DriverError::Unsupported(_) => Code::DD_UNSUPPORTED_CMD,
        _ => Code::IO,
    };
    Failure::new(code, error.to_string())
}

/// Why a queue could not be opened.
#[cold]
fn refused(error: &Error) -> Failure {
    let code = match error {
        Error::Argument(_) => Code::DD_INVALID_PARAM,
        Error::Unsupported { .. } => Code::DD_UNSUPPORTED_CMD,
        Error::Driver { source, .. } => broken(source).code,
        _ => Code::IO,
    };
    let status = error.status().unwrap_or(Status::SUCCESS);
    Failure { status, ..Failure::new(code, error.to_string()) }
}
