//! The measuring loop: one queue of one namespace, kept full.

use crate::count::count;
use anyhow::{Context, Result, anyhow};
use unvme::{
    Block, BlockQueue, BlockRange, Completion, Controller, DmaBuf, Kv, KvQueue, Lba, Nsid, Op, Queue,
    QueueOptions, Status, WriteOptions,
};

use super::addresses::Addresses;
use super::blend::{Blend, Kind, Sent};
use super::breaks::Breaks;
use super::counters::Counters;
use super::data;
use super::ledger::{Ledger, after};
use super::pace::Pace;
use super::pairs::Pairs;
use super::placement::Placements;
use super::replay::Replay;
use super::rest::Completion as Manner;
use super::split::{Command, Narrow, Parts, blocks_of, part_of, token};
use super::watch::Watch;

/// Where commands go. There is one per thread and namespace, used all the time: its size is of no concern.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)]
enum Sink {
    Device(BlockQueue),
    /// The same, where there can be more commands than its queue takes.
    Narrow(Narrow),
    /// A namespace of pairs.
    Pairs(KvQueue),
    /// Nowhere: they complete at once. This is how the loop itself is measured.
    Nothing(Vec<Completion>),
}

/// Size of a unit on a namespace.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unit {
    /// Bytes of a logical block.
    pub(super) block_bytes: u32,
    /// Logical blocks of a command.
    pub(super) blocks: u32,
    /// Logical blocks that the device takes at a time: as many, or the command is split.
    pub(super) part_blocks: u32,
}

impl Unit {
    fn range(self, unit: u64) -> BlockRange {
        BlockRange::new(Lba(unit * u64::from(self.blocks)), self.blocks)
    }

    /// Bytes of a command.
    pub(super) fn bytes(self) -> usize {
        self.block_bytes as usize * self.blocks as usize
    }

    /// Bytes that are made at a time.
    fn chunk_bytes(self) -> usize {
        if self.block_bytes > 1 { self.block_bytes as usize } else { self.bytes() }
    }

    /// Commands of the device that a command on a whole unit is.
    pub(super) fn parts(self) -> u32 {
        self.parts_of(self.blocks)
    }

    /// Commands of the device that one of so many blocks is.
    fn parts_of(self, blocks: u32) -> u32 {
        blocks.div_ceil(self.part_blocks)
    }

    /// Bytes of one of them.
    fn part_bytes(self, part: u32) -> usize {
        let blocks = (self.blocks - part * self.part_blocks).min(self.part_blocks);
        self.block_bytes as usize * blocks as usize
    }
}

/// When a command began.
#[derive(Clone, Copy, Debug, Default)]
struct Start {
    /// When it was to be submitted: what a user waits from. Without a rate, when it was.
    due_ns: u64,
    submitted_ns: u64,
}

/// A command on its way. Its index is its token.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    start: Start,
    unit: u64,
    read: bool,
    /// What the unit holds once the command is done, for the ledger.
    generation: u8,
}

/// Everything about a lane but the queue.
#[derive(Debug)]
struct Generator<'a> {
    /// For errors.
    device: &'a str,
    unit: Unit,
    addresses: Addresses,
    /// Where writes go, when that was said.
    placements: Option<Placements>,
    /// Present when data is verified.
    ledger: Option<&'a Ledger>,
    slots: Vec<Slot>,
    /// Slots that are free, each with its buffer: that of its first part where commands are split.
    free: Vec<(u32, DmaBuf)>,
    /// For each slot; empty where commands are not split.
    split: Vec<Parts>,
    /// How commands differ; `None` where they are reads and writes of whole units.
    blend: Option<Blend>,
    /// When nothing goes, where that is so at times.
    breaks: Option<Breaks>,
    /// What goes, where that was recorded.
    replay: Option<Replay>,
    /// What is done to which keys, where pairs are measured.
    pairs: Option<Pairs>,
    /// A command that is done needs no more than to be counted: there are no parts, no blend, no breaks.
    is_plain: bool,
    /// A unit's data, to be made or looked at.
    scratch: Vec<u8>,
    /// The connection was lost, and what was on its way with it.
    is_cut: bool,
    /// For why commands were ended; `None` without a device.
    controller: Option<Controller>,
    counters: Counters,
}

/// How a lane is to be.
#[derive(Debug)]
pub(super) struct Plan<'a> {
    /// Name of the device, for errors.
    pub(super) device: &'a str,
    pub(super) depth: u16,
    /// Commands that a queue of the device takes.
    pub(super) queue_depth_max: u16,
    /// How completions are waited for.
    pub(super) completion: Manner,
    pub(super) unit: Unit,
    pub(super) addresses: Addresses,
    pub(super) placements: Option<Placements>,
    /// How commands differ, when they do.
    pub(super) blend: Option<Blend>,
    /// When nothing goes, where that is so at times.
    pub(super) breaks: Option<Breaks>,
    /// What goes, where that was recorded.
    pub(super) replay: Option<Replay>,
    /// What is done to which keys, where pairs are measured.
    pub(super) pairs: Option<Pairs>,
    pub(super) ledger: Option<&'a Ledger>,
    pub(super) counters: Counters,
    /// When commands are due, when there is a rate.
    pub(super) pace: Option<Pace>,
    /// How many commands there are, when that is limited.
    pub(super) limit: Option<u64>,
}

/// One queue, and what it is kept busy with.
#[derive(Debug)]
pub(super) struct Lane<'a> {
    sink: Sink,
    generator: Generator<'a>,
    pace: Option<Pace>,
    /// Commands left to submit.
    left: Option<u64>,
    /// Not every free slot is to be filled at once.
    is_gated: bool,
    /// Slots rest between two commands, or go on with a second one: there may be something to submit though
    /// none is free.
    is_restless: bool,
}

impl<'a> Lane<'a> {
    /// A lane on a queue of its own.
    pub(super) fn on_device(block: &Block, plan: Plan<'a>) -> Result<Self> {
        let wanted = u64::from(plan.depth) * u64::from(plan.unit.parts());
        let depth = u16::try_from(wanted).unwrap_or(u16::MAX).min(plan.queue_depth_max);
        let queue =
            block.queue(&QueueOptions { depth, mode: plan.completion.mode(), ..QueueOptions::default() })?;
        let buffers = buffers(|bytes| queue.alloc(bytes), &plan)?;
        let sink = match u64::from(depth) < wanted {
            true => Sink::Narrow(Narrow::new(queue, depth)),
            false => Sink::Device(queue),
        };
        Ok(Self::new(sink, buffers, plan))
    }

    /// A lane of pairs, on a queue of its own. Their commands have units of bytes.
    pub(super) fn on_pairs(kv: &Kv, plan: Plan<'a>) -> Result<Self> {
        let depth = plan.depth.min(plan.queue_depth_max);
        let mode = plan.completion.mode();
        let queue = kv.queue(&QueueOptions { depth, mode, ..QueueOptions::default() })?;
        let plan = Plan { depth, ..plan };
        let buffers = buffers(|bytes| queue.alloc(bytes), &plan)?;
        Ok(Self::new(Sink::Pairs(queue), buffers, plan))
    }

    /// A lane without a device; `queue` only lends it buffers.
    pub(super) fn on_nothing(queue: &BlockQueue, plan: Plan<'a>) -> Result<Self> {
        let buffers = buffers(|bytes| queue.alloc(bytes), &plan)?;
        let completions = Vec::with_capacity(buffers.len() * plan.unit.parts() as usize);
        Ok(Self::new(Sink::Nothing(completions), buffers, plan))
    }

    fn new(sink: Sink, buffers: Vec<Vec<DmaBuf>>, mut plan: Plan<'a>) -> Self {
        let (mut free, mut split) = (Vec::new(), Vec::new());
        for (index, buffers) in (0..).zip(buffers) {
            let mut buffers = buffers.into_iter();
            free.extend(buffers.next().map(|first| (index, first)));
            if plan.unit.parts() > 1 {
                split.push(Parts::new(buffers.collect()));
            }
        }
        if let Some(blend) = &mut plan.blend {
            blend.reserve(free.len());
        }
        if let Some(pairs) = &mut plan.pairs {
            pairs.reserve(free.len());
        }
        let differs = plan.blend.is_some() || plan.breaks.is_some() || plan.pairs.is_some();
        let is_gated = plan.pace.is_some() || plan.limit.is_some() || plan.replay.is_some() || differs;
        let thinks = plan.breaks.as_ref().is_some_and(Breaks::thinks);
        let is_restless = thinks || plan.pairs.as_ref().is_some_and(Pairs::goes_on);
        let generator = Generator {
            device: plan.device,
            unit: plan.unit,
            addresses: plan.addresses,
            placements: plan.placements,
            ledger: plan.ledger,
            slots: vec![Slot::default(); free.len()],
            free,
            is_plain: split.is_empty() && !differs,
            split,
            blend: plan.blend,
            breaks: plan.breaks,
            replay: plan.replay,
            pairs: plan.pairs,
            scratch: vec![0; if plan.ledger.is_some() { plan.unit.bytes() } else { 0 }],
            is_cut: false,
            controller: match &sink {
                Sink::Device(queue) => Some(queue.controller().clone()),
                Sink::Narrow(narrow) => Some(narrow.controller().clone()),
                Sink::Pairs(queue) => Some(queue.controller().clone()),
                Sink::Nothing(_) => None,
            },
            counters: plan.counters,
        };
        Self { sink, generator, pace: plan.pace, left: plan.limit, is_gated, is_restless }
    }

    /// Submits as much as may be, and takes what has finished. Returns the time when it looked at the watch.
    #[inline]
    pub(super) fn turn(&mut self, watch: Watch<'_>) -> Result<Option<u64>> {
        let mut now = None;
        if !self.generator.free.is_empty() || self.is_restless {
            let start_ns = watch.ns();
            now = Some(start_ns);
            self.submit_all(start_ns)?;
        }
        Ok(self.reap(watch)?.or(now))
    }

    /// As [`Lane::turn`], whether anything was submitted or has finished.
    pub(super) fn step(&mut self, watch: Watch<'_>) -> Result<bool> {
        let submitted = self.submit_all(watch.ns())?;
        Ok(self.reap(watch)?.is_some() || submitted > 0)
    }

    /// Submits as much as may be at this time; how many commands that were.
    #[inline]
    fn submit_all(&mut self, start_ns: u64) -> Result<usize> {
        let submitted = match self.is_gated {
            true => self.submit_due(start_ns)?,
            false => {
                let free = self.generator.free.len();
                for _ in 0..free {
                    self.submit(Start { due_ns: start_ns, submitted_ns: start_ns })?;
                }
                free
            }
        };
        if submitted > 0 {
            self.ring()?;
        }
        Ok(submitted)
    }

    /// As [`Lane::submit_all`], of what rate and limit leave by now, and of commands that differ.
    #[cold]
    #[inline(never)]
    fn submit_due(&mut self, submitted_ns: u64) -> Result<usize> {
        if self.generator.replay.is_some() {
            return self.submit_recorded(submitted_ns);
        }
        let mut submitted = 0;
        if let Some(breaks) = &mut self.generator.breaks {
            breaks.wake(&mut self.generator.free, submitted_ns);
        }
        if self.is_restless {
            submitted += self.go_on()?;
        }
        while !self.generator.free.is_empty() {
            if self.generator.blend.as_ref().is_some_and(Blend::is_flush_due) {
                self.submit_flush(submitted_ns)?;
                submitted += 1;
                continue;
            }
            if self.left == Some(0) {
                break;
            }
            if self.generator.breaks.as_ref().is_some_and(|breaks| !breaks.admits(submitted_ns)) {
                break;
            }
            let due_ns = match &mut self.pace {
                Some(pace) => pace.take(submitted_ns),
                None => Some(submitted_ns),
            };
            let Some(due_ns) = due_ns else { break };
            let start = Start { due_ns, submitted_ns };
            let kind = match self.generator.blend {
                _ if self.generator.pairs.is_some() => self.submit_pair(start).map(|()| Kind::Data)?,
                None => self.submit(start).map(|()| Kind::Data)?,
                Some(_) => self.submit_blended(start)?,
            };
            if let Some(breaks) = &mut self.generator.breaks {
                breaks.submitted(submitted_ns);
            }
            // The limit is one of data.
            let counts = u64::from(kind == Kind::Data);
            self.left = self.left.map(|left| left - counts);
            submitted += 1;
        }
        Ok(submitted)
    }

    /// When rate or breaks let the next command through; `None` without them, or when all are on their way.
    pub(super) fn next_admission_ns(&self) -> Option<u64> {
        let (is_over, is_free) = (self.left == Some(0), !self.generator.free.is_empty());
        let paced = self.pace.as_ref().filter(|_| is_free).map(Pace::next_ns);
        let paused = self.generator.breaks.as_ref().and_then(|breaks| breaks.next_ns(is_free));
        let recorded = self.generator.replay.as_ref().filter(|_| is_free).and_then(Replay::next_ns);
        paced.into_iter().chain(paused).chain(recorded).min().filter(|_| !is_over)
    }

    /// True when all that there was to submit has come back.
    pub(super) fn is_done(&self) -> bool {
        let generator = &self.generator;
        let is_flushed = !generator.blend.as_ref().is_some_and(Blend::is_flush_due);
        self.left == Some(0) && (is_flushed && generator.is_idle() || generator.is_cut)
    }

    #[inline]
    fn submit(&mut self, start: Start) -> Result<()> {
        let Some((index, buf)) = self.generator.free.pop() else { return Ok(()) };
        let (op, buf) = self.generator.begin(index, buf, start);
        self.launch(op, buf, index)
    }

    /// As [`Lane::submit`], where commands differ.
    fn submit_blended(&mut self, start: Start) -> Result<Kind> {
        let Some((index, buf)) = self.generator.free.pop() else { return Ok(Kind::Data) };
        let (command, kind, buf) = self.generator.begin_blended(index, buf, start);
        match command {
            Command::Op(op) => self.launch(op, buf, index)?,
            Command::Deallocate(_) => self.send_whole(command, buf, token(index, 0))?,
        }
        Ok(kind)
    }

    /// Sends a flush. It is due when it is sent, whatever the rate.
    fn submit_flush(&mut self, now_ns: u64) -> Result<()> {
        let generator = &mut self.generator;
        let (Some((index, buf)), Some(blend)) = (generator.free.pop(), &mut generator.blend) else {
            return Ok(());
        };
        let sent = blend.flush();
        blend.keep(index, sent);
        let start = Start { due_ns: now_ns, submitted_ns: now_ns };
        generator.slots[index as usize] = Slot { start, ..Slot::default() };
        // The buffer waits with it; no data is moved.
        self.send_whole(Command::Op(Op::Flush), buf, token(index, 0))
    }

    /// Sends a command that is not split, whatever its length.
    fn send_whole(&mut self, command: Command, buf: DmaBuf, token: u64) -> Result<()> {
        match &mut self.sink {
            Sink::Device(queue) => command.submit(queue, buf, token),
            Sink::Narrow(narrow) => narrow.send(command, buf, token),
            Sink::Pairs(_) => Err(anyhow!("{}: a namespace of pairs has no blocks", self.generator.device)),
            Sink::Nothing(completions) => {
                let (status, result) = (Status::SUCCESS, 0);
                completions.push(Completion { token, status, result, buf: Some(buf) });
                Ok(())
            }
        }
        .with_context(|| self.generator.device.to_owned())
    }

    /// Sends a command, in as many parts as the device wants. This and what else is always inlined is the
    /// loop that is measured: a call that is left in it is a tenth of what a command of null media takes.
    #[inline(always)]
    fn launch(&mut self, op: Op<'static>, buf: DmaBuf, index: u32) -> Result<()> {
        match self.generator.split.is_empty() {
            true => self.send(op, buf, token(index, 0)),
            false => self.launch_parts(op, buf, index),
        }
    }

    #[cold]
    #[inline(never)]
    fn launch_parts(&mut self, op: Op<'static>, buf: DmaBuf, index: u32) -> Result<()> {
        let unit = self.generator.unit;
        let parts = unit.parts_of(blocks_of(&op));
        let rest: Vec<_> = self.generator.split[index as usize].begin(parts).collect();
        self.send(part_of(op, unit, 0), buf, token(index, 0))?;
        for (part, buf) in rest {
            self.send(part_of(op, unit, part), buf, token(index, part))?;
        }
        Ok(())
    }

    #[inline(always)]
    fn send(&mut self, op: Op<'static>, buf: DmaBuf, token: u64) -> Result<()> {
        match &mut self.sink {
            Sink::Device(queue) => {
                queue.submit(op, Some(buf), token).with_context(|| self.generator.device.to_owned())
            }
            Sink::Narrow(narrow) => {
                narrow.send(Command::Op(op), buf, token).with_context(|| self.generator.device.to_owned())
            }
            Sink::Pairs(_) => Err(anyhow!("{}: a namespace of pairs has no blocks", self.generator.device)),
            Sink::Nothing(completions) => {
                let (status, result) = (Status::SUCCESS, 0);
                completions.push(Completion { token, status, result, buf: Some(buf) });
                Ok(())
            }
        }
    }

    #[inline]
    fn ring(&mut self) -> Result<()> {
        match &mut self.sink {
            Sink::Device(queue) => queue.ring().with_context(|| self.generator.device.to_owned()),
            Sink::Narrow(narrow) => narrow.ring().with_context(|| self.generator.device.to_owned()),
            Sink::Pairs(queue) => queue.ring().with_context(|| self.generator.device.to_owned()),
            Sink::Nothing(_) => Ok(()),
        }
    }

    /// Takes what has finished; the time when that was something.
    #[inline]
    fn reap(&mut self, watch: Watch<'_>) -> Result<Option<u64>> {
        match &mut self.sink {
            Sink::Device(queue) => self.generator.finish_all(queue.poll(usize::MAX), watch),
            Sink::Narrow(narrow) => {
                let taken = narrow.poll().with_context(|| self.generator.device.to_owned())?;
                self.generator.finish_all(taken, watch)
            }
            Sink::Pairs(queue) => self.generator.finish_pairs(queue.poll(usize::MAX), watch),
            Sink::Nothing(completions) => self.generator.finish_all(completions.drain(..), watch),
        }
    }

    /// Ends the measurement: what is found from `now_ns` on does not count.
    pub(super) fn close(&mut self, now_ns: u64) {
        self.generator.counters.close(now_ns);
        let pace = self.pace.as_ref().filter(|_| self.left != Some(0));
        let recorded = self.generator.replay.as_ref().map_or(0, |replay| replay.overdue(now_ns));
        self.generator.counters.overdue = pace.map_or(recorded, |pace| pace.overdue(now_ns));
    }

    /// Waits for everything that is on its way. The driver's timeouts bound the time this takes. A lost
    /// connection is not waited for: what was on its way by it has failed.
    pub(super) fn drain(&mut self, watch: Watch<'_>) -> Result<()> {
        self.generator.end_breaks();
        self.generator.end_pairs();
        while !self.generator.is_cut && self.generator.free.len() < self.generator.slots.len() {
            if self.reap(watch)?.is_none() {
                watch.pass(None);
            }
            self.generator.end_pairs();
            let is_connected = match &mut self.sink {
                Sink::Device(queue) => queue.raw().is_connected(),
                Sink::Narrow(narrow) => narrow.queue().raw().is_connected(),
                Sink::Pairs(queue) => queue.raw().is_connected(),
                Sink::Nothing(_) => true,
            };
            if !is_connected {
                self.generator.give_up();
            }
        }
        self.generator.counters.settle();
        Ok(())
    }

    /// Reads every unit whose content is known and checks it; nothing may be on its way.
    pub(super) fn read_back(&mut self, watch: Watch<'_>, stop: impl Fn() -> bool) -> Result<()> {
        let Some(ledger) = self.generator.ledger.filter(|_| !self.generator.is_cut) else { return Ok(()) };
        for unit in self.generator.addresses.units() {
            while self.generator.free.is_empty() && !stop() {
                if self.reap(watch)?.is_none() {
                    watch.pass(None);
                }
            }
            let Some(generation) = ledger.claim(unit) else { continue };
            if generation == 0 {
                ledger.release(unit, 0);
                continue;
            }
            if let Some((index, buf)) = self.generator.free.pop() {
                let now = watch.ns();
                let start = Start { due_ns: now, submitted_ns: now };
                let slot = Slot { start, unit, read: true, generation };
                self.generator.slots[index as usize] = slot;
                if let Some(blend) = &mut self.generator.blend {
                    blend.keep(index, blend.whole());
                }
                let op = Op::Read(self.generator.unit.range(unit), Default::default());
                self.launch(op, buf, index)?;
                self.ring()?;
            }
            if stop() {
                break;
            }
        }
        self.drain(watch)
    }

    /// The driver's queue; none without a device.
    fn queue(&mut self) -> Option<&mut Queue> {
        match &mut self.sink {
            Sink::Device(queue) => Some(queue.raw()),
            Sink::Narrow(narrow) => Some(narrow.queue().raw()),
            Sink::Pairs(queue) => Some(queue.raw()),
            Sink::Nothing(_) => None,
        }
    }

    /// What the lane has seen.
    pub(super) fn into_counters(self) -> Counters {
        self.generator.counters
    }
}

/// For each command, a buffer for each of its parts.
fn buffers(alloc: impl Fn(usize) -> unvme::Result<DmaBuf>, plan: &Plan<'_>) -> Result<Vec<Vec<DmaBuf>>> {
    let unit = plan.unit;
    let mut content = vec![0; unit.part_bytes(0)];
    let mut buffer = |index: u32, part: u32| {
        let content = &mut content[..unit.part_bytes(part)];
        let mut buf = alloc(content.len())?;
        // Anything but zeroes, which some devices do not store.
        data::fill(content, unit.chunk_bytes(), index.into(), 1);
        buf.write(0, content);
        Ok(buf)
    };
    (0..u32::from(plan.depth))
        .map(|index| (0..unit.parts()).map(|part| buffer(index, part)).collect())
        .collect()
}

impl Generator<'_> {
    /// Chooses a command for a free slot.
    #[inline]
    fn begin(&mut self, index: u32, mut buf: DmaBuf, start: Start) -> (Op<'static>, DmaBuf) {
        let mut unit = self.addresses.next_unit();
        let read = self.addresses.next_is_read();
        let mut generation = 0;
        if let Some(ledger) = self.ledger {
            (unit, generation) = verified::claim(ledger, unit, &self.addresses.units());
            if !read {
                generation = after(generation);
                self.stamp(index, &mut buf, unit, generation);
            }
        }
        self.slots[index as usize] = Slot { start, unit, read, generation };
        let range = self.unit.range(unit);
        if read {
            return (Op::Read(range, Default::default()), buf);
        }
        let placement = self.placements.as_mut().map(Placements::next);
        (Op::Write(range, WriteOptions { placement, ..WriteOptions::default() }), buf)
    }

    /// As [`Generator::begin`], where commands differ.
    fn begin_blended(&mut self, index: u32, buf: DmaBuf, start: Start) -> (Command, Kind, DmaBuf) {
        let (op, buf) = self.begin(index, buf, start);
        let Some(blend) = &mut self.blend else { return (Command::Op(op), Kind::Data, buf) };
        let sent = blend.next(matches!(op, Op::Read(..)));
        blend.keep(index, sent);
        let first = |range: BlockRange| BlockRange::new(range.start, sent.blocks);
        let command = match op {
            Op::Read(range, flags) => Command::Op(Op::Read(first(range), flags)),
            Op::Write(range, _) if sent.kind == Kind::Trim => {
                // What a deallocated unit reads as is up to the device: nothing is known of it.
                self.slots[index as usize].generation = 0;
                Command::Deallocate(range)
            }
            Op::Write(range, options) => Command::Op(Op::Write(first(range), options)),
            other => Command::Op(other),
        };
        (command, sent.kind, buf)
    }

    /// What a slot has sent, where commands differ.
    fn sent(&self, index: u32) -> Option<Sent> {
        self.blend.as_ref().map(|blend| blend.of(index))
    }

    /// True when nothing is on its way.
    fn is_idle(&self) -> bool {
        let resting = self.breaks.as_ref().map_or(0, Breaks::resting);
        self.free.len() + resting == self.slots.len()
    }

    /// Slots that rest are free, and none rests any more.
    fn end_breaks(&mut self) {
        if let Some(mut breaks) = self.breaks.take() {
            breaks.wake(&mut self.free, u64::MAX);
        }
    }

    /// Counts what is still on its way as failed.
    fn give_up(&mut self) {
        self.is_cut = true;
        let lost = self.slots.len().saturating_sub(self.free.len());
        for _ in 0..lost {
            self.counters.failed(|| "the connection was lost on the way".to_owned());
        }
    }

    #[inline]
    fn finish_all(
        &mut self,
        mut completions: impl Iterator<Item = Completion>,
        watch: Watch<'_>,
    ) -> Result<Option<u64>> {
        let Some(first) = completions.next() else { return Ok(None) };
        let end_ns = watch.ns();
        self.finish(first, end_ns)?;
        for completion in completions {
            self.finish(completion, end_ns)?;
        }
        Ok(Some(end_ns))
    }

    #[inline(always)]
    fn finish(&mut self, completion: Completion, end_ns: u64) -> Result<()> {
        let Completion { token, status, buf, .. } = completion;
        let index = token as u32;
        let slot = *self.slots.get(index as usize).context("a completion of no command")?;
        let Some(buf) = buf else {
            let (device, what) = (self.device, self.name(index, slot));
            return Err(anyhow!("{device}: {what}: {status}; the controller was lost with its buffers"));
        };
        match self.is_plain {
            true => self.finish_whole((index, slot), (status, buf), end_ns),
            false => self.finish_other((token, slot), (status, buf), end_ns),
        }
        Ok(())
    }

    /// A command has ended that may be a part of one, differ from others, or be followed by a break.
    #[cold]
    #[inline(never)]
    fn finish_other(&mut self, (token, slot): (u64, Slot), (status, buf): (Status, DmaBuf), end_ns: u64) {
        let index = token as u32;
        let sent = self.sent(index);
        let kind = sent.map_or(Kind::Data, |sent| sent.kind);
        let whole = match self.split.get_mut(index as usize).filter(|_| kind == Kind::Data) {
            Some(parts) => parts.done((token >> 32) as u32, status, buf),
            None => Some((status, buf)),
        };
        let Some(whole) = whole else { return };
        match kind {
            Kind::Data => self.finish_data((index, slot), whole, sent, end_ns),
            Kind::Trim | Kind::Flush => self.finish_aside((index, slot), whole, kind, end_ns),
        }
        if let Some(breaks) = &mut self.breaks {
            breaks.rest(&mut self.free, end_ns);
        }
    }

    /// All of a read or write has ended that may be shorter than its unit.
    fn finish_data(
        &mut self,
        (index, slot): (u32, Slot),
        whole: (Status, DmaBuf),
        sent: Option<Sent>,
        end_ns: u64,
    ) {
        if let (Some(sent), true) = (sent, whole.0.is_success()) {
            self.counters.moved(u64::from(sent.blocks) * u64::from(self.unit.block_bytes), end_ns);
        }
        self.finish_whole((index, slot), whole, end_ns);
    }

    /// A command has ended that moves no data, and is counted apart.
    fn finish_aside(
        &mut self,
        (index, slot): (u32, Slot),
        (status, buf): (Status, DmaBuf),
        kind: Kind,
        end_ns: u64,
    ) {
        match status.is_success() {
            true => self.counters.done_aside(kind, slot.start.due_ns, end_ns),
            false => self.failed((index, slot), status),
        }
        if let Some(ledger) = self.ledger.filter(|_| kind == Kind::Trim) {
            ledger.release(slot.unit, slot.generation);
        }
        self.free.push((index, buf));
    }

    /// All of a command has ended.
    #[inline(always)]
    fn finish_whole(&mut self, (index, slot): (u32, Slot), (status, mut buf): (Status, DmaBuf), end_ns: u64) {
        if status.is_success() {
            self.counters.succeeded(slot.read, slot.start.due_ns, end_ns);
            if let Some(device) = &mut self.counters.from_submission {
                device.succeeded(slot.start.submitted_ns, end_ns);
            }
        } else {
            self.failed((index, slot), status);
        }
        if let Some(ledger) = self.ledger {
            self.verify(ledger, (index, slot), status, &mut buf);
        }
        self.free.push((index, buf));
    }

    /// Counts a command that has failed, and says why it was ended when its device has not answered.
    #[cold]
    fn failed(&mut self, (index, slot): (u32, Slot), status: Status) {
        let what = self.name(index, slot);
        let why = match (status.kind(), &self.controller) {
            (Status::ABORTED_BY_HOST, Some(controller)) => controller.ended_by(),
            _ => None,
        };
        let controller = &self.controller;
        self.counters.failed(|| match why.or_else(|| claimed(controller.as_ref()?, status)) {
            Some(why) => format!("{what}: {why} ({status})"),
            None => format!("{what}: {status}"),
        });
    }

    #[cold]
    fn name(&self, index: u32, slot: Slot) -> String {
        let verb = match (self.sent(index).map(|sent| sent.kind), slot.read) {
            (Some(Kind::Flush), _) => return "flush".to_owned(),
            (Some(Kind::Trim), _) => "deallocation",
            (_, true) => "read",
            (_, false) => "write",
        };
        let blocks = self.sent(index).map_or(self.unit.blocks, |sent| sent.blocks);
        let first = match self.replay {
            Some(_) => Lba(slot.unit),
            None => self.unit.range(slot.unit).start,
        };
        format!("{verb} of {} from block {first}", count(blocks, "block"))
    }
}

/// Who has claimed what a command would have changed; `None` when that is not why it has failed.
#[cold]
fn claimed(controller: &Controller, status: Status) -> Option<String> {
    let is_conflict = status.kind() == Status::RESERVATION_CONFLICT;
    let holders = is_conflict.then(|| controller.claims(Nsid::ALL))?.ok()?;
    Some(holders.trim_end().replace('\n', ", ")).filter(|holders| !holders.is_empty())
}

mod pairs;
mod recorded;
mod verified;
mod waiting;

#[cfg(test)]
mod tests;
