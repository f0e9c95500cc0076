//! The measuring loop: one queue of one namespace, kept full.

use std::ops::Range;
use std::time::Instant;

use anyhow::{Context, Result, anyhow};
use unvme::{Block, BlockQueue, BlockRange, Completion, DmaBuf, Lba, Op, QueueOptions, Status, WriteOptions};

use super::addresses::Addresses;
use super::counters::Counters;
use super::data;
use super::ledger::{Ledger, after, expected};
use super::pace::Pace;
use super::placement::Placements;

/// Time since a thread began.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watch(Instant);

impl Watch {
    pub(super) fn start() -> Self {
        Self(Instant::now())
    }

    #[inline]
    pub(super) fn ns(&self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }
}

/// Where commands go. There is one per thread and namespace, used all the time: its size is of no concern.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)]
enum Sink {
    Device(BlockQueue),
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
}

impl Unit {
    fn range(self, unit: u64) -> BlockRange {
        BlockRange::new(Lba(unit * u64::from(self.blocks)), self.blocks)
    }

    /// Bytes of a command.
    pub(super) fn bytes(self) -> usize {
        self.block_bytes as usize * self.blocks as usize
    }
}

/// A command on its way. Its index is its token.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    start_ns: u64,
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
    /// Slots that are free, each with its buffer.
    free: Vec<(u32, DmaBuf)>,
    /// A unit's data, to be made or looked at.
    scratch: Vec<u8>,
    counters: Counters,
}

/// How a lane is to be.
#[derive(Debug)]
pub(super) struct Plan<'a> {
    /// Name of the device, for errors.
    pub(super) device: &'a str,
    pub(super) depth: u16,
    pub(super) unit: Unit,
    pub(super) addresses: Addresses,
    pub(super) placements: Option<Placements>,
    pub(super) ledger: Option<&'a Ledger>,
    pub(super) counters: Counters,
    /// Commands per second, when there is a limit.
    pub(super) rate: Option<f64>,
}

/// One queue, and what it is kept busy with.
#[derive(Debug)]
pub(super) struct Lane<'a> {
    sink: Sink,
    generator: Generator<'a>,
    pace: Option<Pace>,
}

impl<'a> Lane<'a> {
    /// A lane on a queue of its own.
    pub(super) fn on_device(block: &Block, plan: Plan<'a>) -> Result<Self> {
        let queue = block.queue(&QueueOptions { depth: plan.depth, ..QueueOptions::default() })?;
        let free = buffers(&queue, &plan)?;
        Ok(Self::new(Sink::Device(queue), free, plan))
    }

    /// A lane without a device; `queue` only lends it buffers.
    pub(super) fn on_nothing(queue: &BlockQueue, plan: Plan<'a>) -> Result<Self> {
        let free = buffers(queue, &plan)?;
        let completions = Vec::with_capacity(free.len());
        Ok(Self::new(Sink::Nothing(completions), free, plan))
    }

    fn new(sink: Sink, free: Vec<(u32, DmaBuf)>, plan: Plan<'a>) -> Self {
        let generator = Generator {
            device: plan.device,
            unit: plan.unit,
            addresses: plan.addresses,
            placements: plan.placements,
            ledger: plan.ledger,
            slots: vec![Slot::default(); free.len()],
            free,
            scratch: vec![0; if plan.ledger.is_some() { plan.unit.bytes() } else { 0 }],
            counters: plan.counters,
        };
        Self { sink, generator, pace: plan.rate.map(Pace::new) }
    }

    /// Submits as much as may be, and takes what has finished. Returns the time when it looked at the watch.
    #[inline]
    pub(super) fn turn(&mut self, watch: Watch) -> Result<Option<u64>> {
        let mut now = None;
        if !self.generator.free.is_empty() {
            let start_ns = watch.ns();
            now = Some(start_ns);
            let free = self.generator.free.len();
            let admitted = self.pace.as_mut().map_or(free, |pace| pace.admit(start_ns, free));
            for _ in 0..admitted {
                self.submit(start_ns)?;
            }
            if admitted > 0 {
                self.ring()?;
            }
        }
        Ok(self.reap(watch)?.or(now))
    }

    #[inline]
    fn submit(&mut self, start_ns: u64) -> Result<()> {
        let Some((index, buf)) = self.generator.free.pop() else { return Ok(()) };
        let (op, buf) = self.generator.begin(index, buf, start_ns);
        self.send(op, buf, index)
    }

    #[inline]
    fn send(&mut self, op: Op<'_>, buf: DmaBuf, index: u32) -> Result<()> {
        match &mut self.sink {
            Sink::Device(queue) => {
                queue.submit(op, Some(buf), index.into()).with_context(|| self.generator.device.to_owned())
            }
            Sink::Nothing(completions) => {
                let (status, result) = (Status::SUCCESS, 0);
                completions.push(Completion { token: index.into(), status, result, buf: Some(buf) });
                Ok(())
            }
        }
    }

    #[inline]
    fn ring(&mut self) -> Result<()> {
        match &mut self.sink {
            Sink::Device(queue) => queue.ring().with_context(|| self.generator.device.to_owned()),
            Sink::Nothing(_) => Ok(()),
        }
    }

    /// Takes what has finished; the time when that was something.
    #[inline]
    fn reap(&mut self, watch: Watch) -> Result<Option<u64>> {
        match &mut self.sink {
            Sink::Device(queue) => self.generator.finish_all(queue.poll(usize::MAX), watch),
            Sink::Nothing(completions) => self.generator.finish_all(completions.drain(..), watch),
        }
    }

    /// Ends the measurement: what is found from `now_ns` on does not count.
    pub(super) fn close(&mut self, now_ns: u64) {
        self.generator.counters.close(now_ns);
    }

    /// Waits for everything that is on its way. The driver's timeouts bound the time this takes.
    pub(super) fn drain(&mut self, watch: Watch) -> Result<()> {
        while self.generator.free.len() < self.generator.slots.len() {
            self.reap(watch)?;
        }
        self.generator.counters.settle();
        Ok(())
    }

    /// Reads every unit whose content is known and checks it; nothing may be on its way.
    pub(super) fn read_back(&mut self, watch: Watch, stop: impl Fn() -> bool) -> Result<()> {
        let Some(ledger) = self.generator.ledger else { return Ok(()) };
        for unit in self.generator.addresses.units() {
            while self.generator.free.is_empty() {
                self.reap(watch)?;
            }
            let Some(generation) = ledger.claim(unit) else { continue };
            if generation == 0 {
                ledger.release(unit, 0);
                continue;
            }
            if let Some((index, buf)) = self.generator.free.pop() {
                let slot = Slot { start_ns: watch.ns(), unit, read: true, generation };
                self.generator.slots[index as usize] = slot;
                let op = Op::Read(self.generator.unit.range(unit), Default::default());
                self.send(op, buf, index)?;
                self.ring()?;
            }
            if stop() {
                break;
            }
        }
        self.drain(watch)
    }

    /// What the lane has seen.
    pub(super) fn into_counters(self) -> Counters {
        self.generator.counters
    }
}

fn buffers(queue: &BlockQueue, plan: &Plan<'_>) -> Result<Vec<(u32, DmaBuf)>> {
    let bytes = plan.unit.bytes();
    let mut content = vec![0; bytes];
    (0..u32::from(plan.depth))
        .map(|index| {
            let mut buf = queue.alloc(bytes)?;
            // Anything but zeroes, which some devices do not store.
            data::fill(&mut content, plan.unit.block_bytes as usize, index.into(), 1);
            buf.write(0, &content);
            Ok((index, buf))
        })
        .collect()
}

impl Generator<'_> {
    /// Chooses a command for a free slot.
    #[inline]
    fn begin(&mut self, index: u32, mut buf: DmaBuf, start_ns: u64) -> (Op<'static>, DmaBuf) {
        let mut unit = self.addresses.next_unit();
        let read = self.addresses.next_is_read();
        let mut generation = 0;
        if let Some(ledger) = self.ledger {
            (unit, generation) = claim(ledger, unit, &self.addresses.units());
            if !read {
                generation = after(generation);
                self.stamp(&mut buf, unit, generation);
            }
        }
        self.slots[index as usize] = Slot { start_ns, unit, read, generation };
        let range = self.unit.range(unit);
        if read {
            return (Op::Read(range, Default::default()), buf);
        }
        let placement = self.placements.as_mut().map(Placements::next);
        (Op::Write(range, WriteOptions { placement, ..WriteOptions::default() }), buf)
    }

    fn stamp(&mut self, buf: &mut DmaBuf, unit: u64, generation: u8) {
        let lba = self.unit.range(unit).start.0;
        data::fill(&mut self.scratch, self.unit.block_bytes as usize, lba, generation);
        buf.write(0, &self.scratch);
    }

    #[inline]
    fn finish_all(
        &mut self,
        mut completions: impl Iterator<Item = Completion>,
        watch: Watch,
    ) -> Result<Option<u64>> {
        let Some(first) = completions.next() else { return Ok(None) };
        let end_ns = watch.ns();
        self.finish(first, end_ns)?;
        for completion in completions {
            self.finish(completion, end_ns)?;
        }
        Ok(Some(end_ns))
    }

    #[inline]
    fn finish(&mut self, completion: Completion, end_ns: u64) -> Result<()> {
        let Completion { token, status, buf, .. } = completion;
        let slot = *self.slots.get(token as usize).context("a completion of no command")?;
        let Some(buf) = buf else {
            let (device, what) = (self.device, self.name(slot));
            return Err(anyhow!("{device}: {what}: {status}; the controller was lost with its buffers"));
        };
        if status.is_success() {
            self.counters.succeeded(slot.read, slot.start_ns, end_ns);
        } else {
            let what = self.name(slot);
            self.counters.failed(|| format!("{what}: {status}"));
        }
        if let Some(ledger) = self.ledger {
            self.verify(ledger, slot, status, &buf);
        }
        self.free.push((token as u32, buf));
        Ok(())
    }

    /// Checks what was read, and enters what was written.
    fn verify(&mut self, ledger: &Ledger, slot: Slot, status: Status, buf: &DmaBuf) {
        if !status.is_success() {
            // A write that failed may have happened or not. What a read did not return is as it was.
            return ledger.release(slot.unit, if slot.read { slot.generation } else { 0 });
        }
        if slot.read {
            buf.read(0, &mut self.scratch);
            let lba = self.unit.range(slot.unit).start.0;
            let found =
                data::check(&self.scratch, self.unit.block_bytes as usize, lba, expected(slot.generation));
            if let Err(mismatch) = found {
                self.counters.miscompared(|| mismatch.to_string());
            }
        }
        ledger.release(slot.unit, slot.generation);
    }

    #[cold]
    fn name(&self, slot: Slot) -> String {
        let verb = if slot.read { "read" } else { "write" };
        let range = self.unit.range(slot.unit);
        format!("{verb} of {} blocks from block {}", range.blocks, range.start)
    }
}

/// A unit nobody is at, `wanted` if possible. A lane has more units than slots, so there is one.
fn claim(ledger: &Ledger, wanted: u64, units: &Range<u64>) -> (u64, u8) {
    ledger.claim_from(wanted, units).unwrap_or_else(|| unreachable!("more commands than units"))
}

#[cfg(test)]
mod tests {
    use unvme::fdp::PlacementId;
    use unvme::{Device, Nsid, OpenOptions, open};

    use super::super::addresses::{Distribution, Mix};
    use super::super::args::Pattern;
    use super::super::counters::Window;
    use super::super::placement::Select;
    use super::*;

    const DEPTH: u16 = 4;
    const UNIT: Unit = Unit { block_bytes: 512, blocks: 8 };
    const UNITS: u64 = 64;

    fn device() -> Device {
        open("mem:block:2M", &OpenOptions::default()).expect("open")
    }

    fn plan(pattern: Pattern, ledger: Option<&Ledger>) -> Plan<'_> {
        let read_percent = if pattern.writes() { 0 } else { 100 };
        let mix = Mix { pattern, read_percent, distribution: Distribution::Uniform, seed: 1 };
        let addresses = Addresses::new(&mix, 0..UNITS, 0, 0).expect("addresses");
        let window = Window { from_ns: 0, until_ns: u64::MAX, intervals: 1 };
        let counters = Counters::new(window).expect("counters");
        Plan {
            device: "mem:block:2M",
            depth: DEPTH,
            unit: UNIT,
            addresses,
            placements: None,
            ledger,
            counters,
            rate: None,
        }
    }

    /// Goes once around all units, or a little further, and returns what was seen.
    fn around(device: &Device, plan: Plan<'_>) -> Counters {
        let block = device.block(Nsid(1)).expect("namespace 1");
        let mut lane = Lane::on_device(&block, plan).expect("lane");
        let watch = Watch::start();
        for _ in 0..UNITS / u64::from(DEPTH) {
            lane.turn(watch).expect("turn");
        }
        lane.drain(watch).expect("drain");
        lane.into_counters()
    }

    #[test]
    fn every_command_is_counted_once() {
        let device = device();
        let written = around(&device, plan(Pattern::Write, None));
        assert_eq!((written.writes.len(), written.reads.len(), written.errors), (UNITS, 0, 0));
        let read = around(&device, plan(Pattern::Read, None));
        assert_eq!((read.writes.len(), read.reads.len(), read.errors), (0, UNITS, 0));
    }

    #[test]
    fn writes_go_to_the_placement_identifiers_of_the_plan_one_after_the_other() {
        let name = "mem:block:16M,fdp,handles=4,ru=256K";
        let device = open(name, &OpenOptions::default()).expect("open");
        let mut block = device.block(Nsid(1)).expect("namespace 1");
        let mut left = || -> Vec<u64> {
            block.handles().expect("handles").iter().map(|handle| handle.blocks_left).collect()
        };
        let before = left();
        let list = [PlacementId(1), PlacementId(3)];
        let placements = Placements::new(&list, Select::RoundRobin, 1, 0);
        around(&device, Plan { placements, ..plan(Pattern::Write, None) });
        let after = left();
        let written: Vec<u64> = before.iter().zip(&after).map(|(before, after)| before - after).collect();
        let half = UNITS / 2 * u64::from(UNIT.blocks);
        assert_eq!(written, [0, half, 0, half]);
    }

    #[test]
    fn commands_that_fail_are_counted_apart_and_the_first_is_told() {
        let device = device();
        let mut queue =
            device.block(Nsid(1)).expect("namespace").queue(&QueueOptions::default()).expect("queue");
        queue.submit(Op::WriteUncorrectable(UNIT.range(3)), None, 0).expect("submit");
        assert!(queue.wait(std::time::Duration::from_secs(10)).expect("wait"));
        assert!(queue.poll(1).next().expect("completion").status.is_success());
        let counters = around(&device, plan(Pattern::Read, None));
        assert_eq!((counters.reads.len(), counters.errors), (UNITS - 1, 1));
        let first = counters.first_failure.expect("a failure");
        assert!(first.starts_with("read of 8 blocks from block 24: "), "{first}");
        assert!(first.contains("Unrecovered Read Error"), "{first}");
    }

    #[test]
    fn what_was_written_is_found_again_and_anything_else_is_a_miscompare() {
        let device = device();
        let ledger = Ledger::new(UNITS).expect("ledger");
        let written = around(&device, plan(Pattern::Write, Some(&ledger)));
        let read = around(&device, plan(Pattern::Read, Some(&ledger)));
        assert_eq!((written.errors, read.miscompares, read.reads.len()), (0, 0, UNITS));
        // As if another write had been acknowledged and lost.
        ledger.release(5, 2);
        let read = around(&device, plan(Pattern::Read, Some(&ledger)));
        assert_eq!((read.miscompares, read.reads.len()), (1, UNITS));
        let first = read.first_failure.expect("a failure");
        assert_eq!(
            first,
            "block 40 is wrong from byte 8 on: expected its data number 2, found data number 1 of block 40"
        );
    }

    #[test]
    fn reading_back_finds_what_a_point_of_writes_would_miss() {
        let device = device();
        let ledger = Ledger::new(UNITS).expect("ledger");
        around(&device, plan(Pattern::Write, Some(&ledger)));
        let mut block = device.block(Nsid(1)).expect("namespace");
        block.write_at(63 * 8 + 7, &[0; 512]).expect("write");
        let mut lane = Lane::on_device(&block, plan(Pattern::Write, Some(&ledger))).expect("lane");
        lane.read_back(Watch::start(), || false).expect("read back");
        let counters = lane.into_counters();
        assert_eq!((counters.reads.len(), counters.miscompares), (UNITS, 1));
    }

    #[test]
    fn nothing_completes_everything() {
        let device = device();
        let block = device.block(Nsid(1)).expect("namespace");
        let queue = block.queue(&QueueOptions { depth: 1, ..QueueOptions::default() }).expect("queue");
        let mut lane = Lane::on_nothing(&queue, plan(Pattern::Randread, None)).expect("lane");
        let watch = Watch::start();
        for _ in 0..10 {
            assert!(lane.turn(watch).expect("turn").is_some());
        }
        assert_eq!(lane.generator.free.len(), usize::from(DEPTH));
        lane.drain(watch).expect("drain");
        assert_eq!(lane.into_counters().reads.len(), 10 * u64::from(DEPTH));
    }
}
