//! Commands beyond what a device takes: those longer than its transfer size go as several, and those that its
//! queue has no room for wait here.
//!
//! One that was split counts once: from when its first part could have been sent until the last one is done.

use std::collections::VecDeque;

use anyhow::{Context, Result};
use unvme::{BlockQueue, BlockRange, Completion, Controller, DmaBuf, Lba, Op, Status};

use super::lane::Unit;

/// Parts of one command that are on their way, and the buffers of those that are not. The buffer of the first
/// is where that of a whole command is while none is on its way.
#[derive(Debug)]
pub(super) struct Parts {
    /// Parts that are not done.
    left: u32,
    /// Success, or what the first one to fail has failed by.
    status: Status,
    first: Option<DmaBuf>,
    rest: Vec<Option<DmaBuf>>,
}

impl Parts {
    pub(super) fn new(rest: Vec<DmaBuf>) -> Self {
        let rest = rest.into_iter().map(Some).collect();
        Self { left: 0, status: Status::SUCCESS, first: None, rest }
    }

    /// Of so many parts those behind the first, to be sent.
    pub(super) fn begin(&mut self, parts: u32) -> impl Iterator<Item = (u32, DmaBuf)> {
        (self.left, self.status) = (parts, Status::SUCCESS);
        let behind = self.rest.iter_mut().take(parts.saturating_sub(1) as usize);
        (1..).zip(behind.filter_map(Option::take))
    }

    /// A part is done. When it was the last one: what became of the whole, and the buffer of the first part.
    pub(super) fn done(&mut self, part: u32, status: Status, buf: DmaBuf) -> Option<(Status, DmaBuf)> {
        if !status.is_success() && self.status.is_success() {
            self.status = status;
        }
        match part.checked_sub(1) {
            None => self.first = Some(buf),
            Some(behind) => *self.rest.get_mut(behind as usize)? = Some(buf),
        }
        self.left = self.left.saturating_sub(1);
        if self.left > 0 { None } else { self.first.take().map(|first| (self.status, first)) }
    }

    /// The buffers of all parts, in order; `first` is that of the first one. None is on its way.
    pub(super) fn buffers<'a>(&'a mut self, first: &'a mut DmaBuf) -> impl Iterator<Item = &'a mut DmaBuf> {
        std::iter::once(first).chain(self.rest.iter_mut().flatten())
    }
}

/// The part of `op`, a command on a unit or on its first blocks, that has this number.
pub(super) fn part_of(op: Op<'static>, unit: Unit, part: u32) -> Op<'static> {
    let part_of = |whole: BlockRange| {
        let before = part * unit.part_blocks;
        let blocks = (whole.blocks - before).min(unit.part_blocks);
        BlockRange::new(Lba(whole.start.0 + u64::from(before)), blocks)
    };
    match op {
        Op::Read(range, flags) => Op::Read(part_of(range), flags),
        Op::Write(range, options) => Op::Write(part_of(range), options),
        other => unreachable!("{other:?} is not measured"),
    }
}

/// Blocks that a command reads or writes.
pub(super) fn blocks_of(op: &Op<'_>) -> u32 {
    match op {
        Op::Read(range, _) | Op::Write(range, _) => range.blocks,
        _ => 0,
    }
}

/// Token of a part of the command with this index; that of the first, and of a whole one, is the index.
pub(super) fn token(index: u32, part: u32) -> u64 {
    u64::from(index) | u64::from(part) << 32
}

/// A command as it is kept until there is room for it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Command {
    Op(Op<'static>),
    /// Dataset Management of one range; the list goes to the first bytes of the buffer.
    Deallocate(BlockRange),
}

impl Command {
    /// Gives it to a queue. Errors: the queue refuses it.
    pub(super) fn submit(self, queue: &mut BlockQueue, buf: DmaBuf, token: u64) -> Result<()> {
        match self {
            Self::Op(op) => queue.submit(op, Some(buf), token),
            Self::Deallocate(range) => queue.submit(Op::Deallocate(&[range]), Some(buf), token),
        }
        .context("submit")
    }
}

/// A queue that has less room than there are commands.
#[derive(Debug)]
pub(super) struct Narrow {
    queue: BlockQueue,
    /// Commands that the queue may be given.
    room: usize,
    waiting: VecDeque<(Command, DmaBuf, u64)>,
    /// What has been taken from the queue.
    taken: Vec<Completion>,
}

impl Narrow {
    /// `depth` is what the queue was made for.
    pub(super) fn new(queue: BlockQueue, depth: u16) -> Self {
        Self { queue, room: depth.into(), waiting: VecDeque::new(), taken: Vec::new() }
    }

    pub(super) fn queue(&mut self) -> &mut BlockQueue {
        &mut self.queue
    }

    pub(super) fn controller(&self) -> &Controller {
        self.queue.controller()
    }

    /// Submits a command, or keeps it for later.
    pub(super) fn send(&mut self, command: Command, buf: DmaBuf, token: u64) -> Result<()> {
        if self.room == 0 {
            self.waiting.push_back((command, buf, token));
            return Ok(());
        }
        self.room -= 1;
        command.submit(&mut self.queue, buf, token)
    }

    pub(super) fn ring(&mut self) -> Result<()> {
        self.queue.ring().context("ring")
    }

    /// Takes what has finished, and gives its room to what waits.
    pub(super) fn poll(&mut self) -> Result<std::vec::Drain<'_, Completion>> {
        self.taken.extend(self.queue.poll(usize::MAX));
        self.room += self.taken.len();
        let before = self.waiting.len();
        while self.room > 0 {
            let Some((command, buf, token)) = self.waiting.pop_front() else { break };
            self.send(command, buf, token)?;
        }
        if self.waiting.len() < before {
            self.ring()?;
        }
        Ok(self.taken.drain(..))
    }
}
