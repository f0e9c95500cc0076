//! How long a device takes: a model of its resources, as a pure function.
//!
//! [`Timing::schedule`] is told what a command does and when it came, and says when it is done. It has no
//! clock, no data and no threads: the engine calls it and holds the completion until then, on the wall clock
//! or on a virtual one, and the simulator calls it without a device. What comes out depends on nothing but
//! the calls before: the same calls give the same times to the nanosecond.
//!
//! ```text
//!          firmware link in  buffer                channel       die, planes
//! write -> a core -> bytes -> a place for a page -> (a word line's pages) -> program  done: it has places
//! read  -> a core -------------------------------->  sense, channel, link out         done: it has its bytes
//! ```
//!
//! | module | resource |
//! |---|---|
//! | here | firmware cores: next available; commands through all the resources |
//! | `credits` | channels, and the link in either direction: bandwidth in slices of time |
//! | `die` | planes, programs and erases that reads suspend |
//! | `buffer` | the write buffer and its back-pressure |
//! | `layout` | where on the flash a page is |
//! | `config`, `preset` | the numbers |
//! | `spec` | them as they are typed |
//! | `op` | what the data path notes |
//!
//! What is simplified: pages of a program are collected for each die, whichever units they are for, so that a
//! die programs exactly as much as it is sent; it erases exactly as much, too, in whole blocks that small
//! units share. A time that has been given is not taken back: when a read suspends a program whose end
//! another write was promised a place for, that write is not made to wait longer. Data of reclaim takes no
//! place in the write buffer, but places of its own, and its reads take their whole die.

mod buffer;
mod config;
mod credits;
mod die;
mod layout;
mod op;
mod preset;
mod program;
mod spec;
mod trace;

#[cfg(test)]
mod tests;

use buffer::{Buffer, Resident};
pub use config::{TimingConfig, TimingError, TimingModel};
use credits::Credits;
use die::{Die, Kind, Suspension};
use layout::{Layout, Place};
pub use op::{Cause, FlashOp, NotedOp, OpList};
pub use preset::PRESETS;
use program::Collector;
pub use spec::TimingSpec;

use crate::PAGE_BYTES;

/// What kind of work a command is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandKind {
    /// Its bytes go to the host, each page's as soon as it has been read.
    Read,
    /// Its bytes come from the host. It is done when its pages are in the write buffer.
    Write,
    /// It is done when everything in the write buffer has been programmed.
    Flush,
    /// Anything else: its bytes come from the host, and it waits for what it reads, programs and erases.
    Other,
    /// No command at all, but work of the device on its own account: it takes neither firmware nor the link.
    Background,
}

/// A command, as far as its time depends on it.
#[derive(Clone, Copy, Debug)]
pub struct Command<'a> {
    /// What kind of work it is.
    pub kind: CommandKind,
    /// Bytes that it moves over the link.
    pub bytes: u64,
    /// It waits until what it writes has been programmed: Force Unit Access, or no write cache.
    pub durable: bool,
    /// Its flash operations, in the order in which they depend on each other.
    pub ops: &'a [NotedOp],
}

/// The resources of a device, and until when each is taken.
pub struct Timing {
    model: TimingModel,
    layout: Layout,
    suspension: Suspension,
    /// The latest time a command came.
    now: u64,
    /// When each processor can take a command.
    cores: Box<[u64]>,
    link_in: Credits,
    link_out: Credits,
    channels: Box<[Credits]>,
    dies: Box<[Die]>,
    buffer: Buffer,
    staging: Buffer,
    collector: Collector,
    /// Pages of erased units on each die that no erase of a block has been charged for.
    stale: Box<[u64]>,
}

/// Programs for every die that reclaim may be behind with: so much that no die waits for it, and a bound, as
/// hosts would otherwise go on while it falls back for ever.
const RECLAIM_PROGRAMS: u32 = 8;

/// Pages that reclaim is to read, or has read, and has not programmed.
fn staging(model: &TimingModel) -> Buffer {
    Buffer::of_reclaim(RECLAIM_PROGRAMS * model.dies() * model.program_pages())
}

/// Dies do not erase small units' blocks all at the same time: each begins with another part of a block.
fn stale(model: &TimingModel) -> Box<[u64]> {
    let (dies, block) = (u64::from(model.dies()), u64::from(model.block_pages));
    (0..dies).map(|die| die * block / dies).collect()
}

/// How far a command has come.
struct Progress {
    /// When the device began with it.
    begun: u64,
    /// When its flash operations can begin: its data has come over the link.
    ready: u64,
    /// When what a write has to read first has arrived.
    fetched: u64,
    /// When all of it is done.
    done: u64,
    /// When what reclaim has read can be programmed.
    reclaimed: u64,
    /// When what it has programmed is safe, and the unit it was in can be erased.
    safe: u64,
    /// Flash page that was sensed last, and when its data was in the die's register.
    row: Option<(u64, Cause, u64)>,
    /// Bytes of a read that have not been sent yet.
    unsent: u64,
    /// Pages that have gone into the buffer.
    buffered: u64,
}

fn check_unit_pages(unit_pages: u32) -> Result<(), TimingError> {
    if unit_pages > 0 {
        return Ok(());
    }
    Err(TimingError { key: "unit_pages", value: "0".into(), expected: "at least one page".into() })
}

impl TimingConfig {
    /// The device to ask, for reclaim units of `unit_pages` pages of 4 KiB; `None` when completions are
    /// posted at once. Errors: [`TimingError`] for a value out of its range.
    pub fn build(&self, unit_pages: u32) -> Result<Option<Timing>, TimingError> {
        self.model().map(|model| Timing::new(model.clone(), unit_pages)).transpose()
    }
}

impl Timing {
    /// A device that has been idle since time 0, with reclaim units of `unit_pages` pages of 4 KiB. Errors:
    /// [`TimingError`] for a value out of its range.
    pub fn new(model: TimingModel, unit_pages: u32) -> Result<Self, TimingError> {
        model.check()?;
        check_unit_pages(unit_pages)?;
        let link = |mb_s| Credits::new(mb_s, model.slice_ns);
        Ok(Self {
            layout: Layout::new(&model, unit_pages),
            suspension: Suspension {
                program_ns: model.program_suspend_ns.into(),
                erase_ns: model.erase_suspend_ns.into(),
                resume_ns: model.resume_ns.into(),
                reads_max: model.suspends_max,
            },
            now: 0,
            cores: vec![0; usize::from(model.firmware_cores)].into(),
            link_in: link(model.link_write_mb_s),
            link_out: link(model.link_read_mb_s),
            channels: (0..model.channels).map(|_| Credits::new(model.channel_mb_s, model.slice_ns)).collect(),
            dies: (0..model.dies()).map(|_| Die::new(model.planes)).collect(),
            buffer: Buffer::new(model.buffer_pages),
            collector: Collector::new(model.dies(), model.program_pages()),
            staging: staging(&model),
            stale: stale(&model),
            model,
        })
    }

    /// The numbers it works with.
    pub const fn model(&self) -> &TimingModel {
        &self.model
    }

    /// Reclaim units have another size from now on; nothing that has been asked for changes. Errors:
    /// [`TimingError`] for 0 pages.
    pub fn set_unit_pages(&mut self, unit_pages: u32) -> Result<(), TimingError> {
        check_unit_pages(unit_pages)?;
        self.layout = Layout::new(&self.model, unit_pages);
        Ok(())
    }

    /// Forgets everything that is under way: an idle device at time 0, whose clock may begin anew.
    pub fn restart(&mut self) {
        let model = &self.model;
        let link = |mb_s| Credits::new(mb_s, model.slice_ns);
        self.now = 0;
        self.cores.fill(0);
        (self.link_in, self.link_out) = (link(model.link_write_mb_s), link(model.link_read_mb_s));
        self.channels.fill_with(|| link(model.channel_mb_s));
        self.dies.fill_with(|| Die::new(model.planes));
        self.buffer = Buffer::new(model.buffer_pages);
        self.staging = staging(model);
        self.collector = Collector::new(model.dies(), model.program_pages());
    }

    /// Pages in the write buffer, those included that will have a place when an earlier one's program has
    /// ended.
    #[cfg(test)]
    const fn buffered_pages(&self) -> u32 {
        self.buffer.used()
    }

    /// When a command that comes at `now` is done; never before `now`. Both are in nanoseconds since any
    /// origin.
    ///
    /// Commands are scheduled in the order in which they come. One that comes earlier than the one before it
    /// is taken to come at the same time.
    pub fn schedule(&mut self, now: u64, command: &Command<'_>) -> u64 {
        self.now = self.now.max(now);
        let now = self.now;
        self.retire(now);
        let mut progress = self.begin(now, command);
        for noted in command.ops {
            match (noted.op, noted.cause) {
                (FlashOp::Read { ppn }, Cause::Host) => self.read(&mut progress, command.kind, ppn),
                (FlashOp::Read { ppn }, Cause::Reclaim) => self.reclaim(&mut progress, ppn),
                (FlashOp::Program { ppn }, Cause::Host) => self.write(&mut progress, ppn),
                (FlashOp::Program { ppn }, Cause::Reclaim) => self.relocate(&mut progress, ppn),
                (FlashOp::Erase { unit }, cause) => self.erase(&mut progress, unit, cause),
            }
        }
        self.finish(&mut progress, command)
    }

    /// Firmware takes the command, and its data comes over the link.
    fn begin(&mut self, now: u64, command: &Command<'_>) -> Progress {
        let mut begun = now;
        if command.kind != CommandKind::Background
            && let Some(core) = self.cores.iter_mut().min()
        {
            begun = now.max(*core) + u64::from(self.model.firmware_command_ns);
            *core = begun;
        }
        let (ready, unsent) = match command.kind {
            CommandKind::Read => (begun + u64::from(self.model.firmware_fixed_ns), command.bytes),
            CommandKind::Background => (begun, 0),
            CommandKind::Write if self.buffer.exists() => (self.link_in().transfer(begun, command.bytes), 0),
            CommandKind::Write | CommandKind::Flush | CommandKind::Other => {
                let looked_up = begun + u64::from(self.model.firmware_fixed_ns);
                (self.link_in().transfer(looked_up, command.bytes), 0)
            }
        };
        self.collector.begin();
        Progress {
            begun,
            ready,
            fetched: ready,
            done: ready,
            reclaimed: begun,
            safe: begun,
            row: None,
            unsent,
            buffered: 0,
        }
    }

    /// A page that the host waits for.
    fn read(&mut self, progress: &mut Progress, kind: CommandKind, ppn: u32) {
        let asked = progress.ready;
        let place = self.layout.place(ppn);
        let arrived = if self.is_buffered(ppn, place, asked) {
            asked
        } else {
            let sensed = match progress.row {
                Some((row, Cause::Host, sensed)) if row == place.row => sensed,
                _ => {
                    let duration = self.sense_ns(place);
                    let suspension = self.suspension;
                    self.die(place.die).read(place.plane, asked, duration, &suspension)
                }
            };
            progress.row = Some((place.row, Cause::Host, sensed));
            self.channel(place.die).transfer(sensed, PAGE_BYTES)
        };
        if kind == CommandKind::Read {
            let bytes = progress.unsent.min(PAGE_BYTES);
            progress.unsent -= bytes;
            progress.done = progress.done.max(self.link_out().transfer(arrived, bytes));
        } else {
            progress.fetched = progress.fetched.max(arrived);
            progress.done = progress.done.max(arrived);
        }
    }

    /// A page that the host writes.
    fn write(&mut self, progress: &mut Progress, ppn: u32) {
        let place = self.layout.place_programmed(ppn, Cause::Host);
        let ready = progress.ready.max(progress.fetched);
        if !self.buffer.exists() {
            let end = self.collect(place, Cause::Host, ready, None);
            progress.done = progress.done.max(end.unwrap_or(ready));
            return;
        }
        let entered = self.enter_buffer(ready);
        self.buffer.put(ppn, Resident::Collecting);
        self.collect(place, Cause::Host, entered, Some(ppn));
        progress.done = progress.done.max(entered);
        progress.buffered += 1;
    }

    /// A page that reclaim reads to move it.
    fn reclaim(&mut self, progress: &mut Progress, ppn: u32) {
        progress.begun = self.enter_staging(progress.begun);
        // Hosts write as fast as reclaim can follow.
        progress.done = progress.done.max(progress.begun);
        let place = self.layout.place(ppn);
        let sensed = match progress.row {
            Some((row, Cause::Reclaim, sensed)) if row == place.row => sensed,
            _ => {
                let (duration, begun) = (self.sense_ns(place), progress.begun);
                let die = self.die(place.die);
                let number = die.push(Kind::Read, begun, duration);
                die.end_of(number).unwrap_or(begun)
            }
        };
        progress.row = Some((place.row, Cause::Reclaim, sensed));
        let arrived = self.channel(place.die).transfer(sensed, PAGE_BYTES);
        progress.reclaimed = progress.reclaimed.max(arrived);
    }

    /// A page that reclaim writes: what it has read is there.
    fn relocate(&mut self, progress: &mut Progress, ppn: u32) {
        let place = self.layout.place_programmed(ppn, Cause::Reclaim);
        if let Some(end) = self.collect(place, Cause::Reclaim, progress.reclaimed, None) {
            progress.safe = progress.safe.max(end);
        }
    }

    /// A unit's pages are erased. Where it is smaller than the blocks it lies in, a die erases a block when
    /// as many pages of units are to be erased there as a block has.
    fn erase(&mut self, progress: &mut Progress, unit: u32, cause: Cause) {
        let (duration, block) = (u64::from(self.model.erase_ns), u64::from(self.model.block_pages));
        for (die, pages) in self.layout.erase(unit) {
            let stale = &mut self.stale[die as usize];
            let blocks = (*stale + pages) / block;
            *stale = (*stale + pages) % block;
            if blocks == 0 || duration == 0 {
                continue;
            }
            let die = self.die(die);
            let number = die.push(Kind::Erase, progress.safe.max(progress.reclaimed), duration * blocks);
            if cause == Cause::Host {
                progress.done = progress.done.max(die.end_of(number).unwrap_or_default());
            }
        }
    }

    /// What is left when all operations have been queued.
    fn finish(&mut self, progress: &mut Progress, command: &Command<'_>) -> u64 {
        match command.kind {
            // What no flash page holds (never written, or no flash at all) is made up at once.
            CommandKind::Read => {
                progress.done = progress.done.max(self.link_out().transfer(progress.ready, progress.unsent));
            }
            CommandKind::Write if self.buffer.exists() => {
                progress.done += u64::from(self.model.buffer_fixed_ns);
                progress.done += u64::from(self.model.buffer_page_ns) * progress.buffered;
            }
            CommandKind::Flush => progress.done = progress.done.max(self.drain()),
            CommandKind::Write | CommandKind::Other | CommandKind::Background => {}
        }
        if command.durable {
            progress.done = progress.done.max(self.program_touched());
        }
        progress.done
    }

    /// Frees the places of the buffers that are free at `now`; the other resources forget the past when they
    /// are used.
    fn retire(&mut self, now: u64) {
        let dies = &self.dies;
        self.buffer.retire(now, |release| program::end_of(dies, release));
        self.staging.retire(now, |release| program::end_of(dies, release));
    }

    /// True when a page is still in the buffer at `at`.
    fn is_buffered(&self, ppn: u32, place: Place, at: u64) -> bool {
        match self.buffer.find(ppn) {
            None => false,
            Some(Resident::Collecting) => true,
            Some(Resident::Program(number)) => {
                self.dies[place.die as usize].end_of(number).is_some_and(|end| end > at)
            }
        }
    }

    fn sense_ns(&self, place: Place) -> u64 {
        self.model.read_ns.get(place.cell).copied().unwrap_or_default().into()
    }

    /// The die, which forgets what is over.
    fn die(&mut self, die: u32) -> &mut Die {
        let die = &mut self.dies[die as usize];
        die.retire(self.now);
        die
    }

    fn channel(&mut self, die: u32) -> &mut Credits {
        let channels = self.channels.len();
        let channel = &mut self.channels[die as usize % channels];
        channel.retire(self.now);
        channel
    }

    fn link_in(&mut self) -> &mut Credits {
        self.link_in.retire(self.now);
        &mut self.link_in
    }

    fn link_out(&mut self) -> &mut Credits {
        self.link_out.retire(self.now);
        &mut self.link_out
    }
}
