//! The model of time against what `docs/timing.md` says that it comes to: bandwidth is the least of what the
//! resources carry, each of them kept busy, at any depth and with units of any size.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use unvme_flash::PAGE_BYTES;
use unvme_flash::ftl::{Ftl, FtlConfig, Nand, Opened, Origin, Placement, ProgramFailure};
use unvme_flash::timing::{
    Cause, Command, CommandKind, FlashOp, NotedOp, OpList, Timing, TimingConfig, TimingModel,
};

const DEPTHS: [usize; 9] = [1, 2, 4, 7, 8, 16, 32, 128, 256];

fn preset(name: &str) -> TimingModel {
    TimingConfig::preset(name).unwrap().model().unwrap().clone()
}

/// A host that keeps `depth` commands of one page outstanding.
struct Host {
    timing: Timing,
    depth: usize,
    outstanding: BinaryHeap<Reverse<u64>>,
    now: u64,
}

impl Host {
    fn new(model: &TimingModel, unit_pages: u32, depth: usize) -> Self {
        let timing = Timing::new(model.clone(), unit_pages).unwrap();
        Self { timing, depth, outstanding: BinaryHeap::new(), now: 0 }
    }

    fn submit(&mut self, kind: CommandKind, ops: &[NotedOp]) {
        if self.outstanding.len() == self.depth {
            let Reverse(first) = self.outstanding.pop().unwrap();
            self.now = self.now.max(first);
        }
        let command = Command { kind, bytes: PAGE_BYTES, durable: false, ops };
        self.outstanding.push(Reverse(self.timing.schedule(self.now, &command)));
    }
}

/// What a resource does for each page of the host: nanoseconds of it, and how many of it there are.
struct Demand(f64, f64);

/// Pages per second, in thousands: as many as `depth` commands of `alone` nanoseconds allow, and no more than
/// any resource carries.
fn stated(depth: usize, alone: f64, demands: &[Demand]) -> f64 {
    let bound = demands.iter().map(|demand| demand.1 / demand.0).fold(f64::MAX, f64::min);
    (depth as f64 / alone).min(bound) * 1e6
}

fn page_ns(mb_s: u32) -> f64 {
    4096.0 * 1e3 / f64::from(mb_s)
}

/// Pages that a page of the host comes to: programmed, read by reclaim, flash pages sensed for that, and
/// erased.
#[derive(Clone, Copy, Debug, Default)]
struct Work {
    programs: f64,
    moves: f64,
    senses: f64,
    erased: f64,
}

fn writes_stated(model: &TimingModel, depth: usize, work: Work) -> f64 {
    let (dies, channel) = (f64::from(model.dies()), page_ns(model.channel_mb_s));
    let alone = f64::from(model.firmware_command_ns)
        + page_ns(model.link_write_mb_s)
        + f64::from(model.buffer_fixed_ns)
        + f64::from(model.buffer_page_ns);
    let die = work.programs * f64::from(model.program_ns) / f64::from(model.program_pages())
        + work.senses * f64::from(model.read_ns[0])
        + work.erased * f64::from(model.erase_ns) / f64::from(model.block_pages);
    stated(
        depth,
        alone,
        &[
            Demand(model.firmware_command_ns.into(), model.firmware_cores.into()),
            Demand(page_ns(model.link_write_mb_s), 1.0),
            Demand(channel * (work.programs + work.moves), model.channels.into()),
            Demand(die, dies),
        ],
    )
}

fn reads_stated(model: &TimingModel, depth: usize) -> f64 {
    let (channel, link) = (page_ns(model.channel_mb_s), page_ns(model.link_read_mb_s));
    let firmware = f64::from(model.firmware_command_ns);
    let sense = f64::from(model.read_ns[0]);
    let alone = firmware + f64::from(model.firmware_fixed_ns) + sense + channel + link;
    stated(
        depth,
        alone,
        &[
            Demand(firmware, model.firmware_cores.into()),
            Demand(sense, f64::from(model.dies()) * f64::from(model.planes)),
            Demand(channel, model.channels.into()),
            Demand(link, 1.0),
        ],
    )
}

#[track_caller]
fn agrees(what: &str, found: f64, stated: f64) {
    let off = found / stated - 1.0;
    assert!(off.abs() <= 0.02, "{what}: {found:.1} thousand pages per second, stated {stated:.1}");
}

/// Units are filled one after the other, in an order that has nothing to do with their numbers; behind the
/// first lap each is erased before.
fn sequential(model: &TimingModel, unit_pages: u32, depth: usize) -> f64 {
    let pages = 600_000_u32.max(8 * unit_pages);
    let units = (pages / 2).div_ceil(unit_pages) | 1;
    let mut host = Host::new(model, unit_pages, depth);
    let mut ops = Vec::new();
    let mut begun = (0, 0);
    for page in 0..pages {
        let (index, within) = (page / unit_pages, page % unit_pages);
        // A permutation of an odd number of units.
        let unit = (u64::from(index) * 0x9e37 % u64::from(units)) as u32;
        ops.clear();
        if within == 0 && index >= units {
            ops.push(NotedOp { op: FlashOp::Erase { unit }, cause: Cause::Reclaim });
        }
        ops.push(NotedOp { op: FlashOp::Program { ppn: unit * unit_pages + within }, cause: Cause::Host });
        host.submit(CommandKind::Write, &ops);
        if page == pages / 2 {
            begun = (host.now, page);
        }
    }
    f64::from(pages - 1 - begun.1) * 1e6 / (host.now - begun.0) as f64
}

#[test]
fn sequential_writes_are_as_fast_as_stated_whatever_the_unit_and_the_depth() {
    for name in ["tlc", "qlc"] {
        let model = preset(name);
        for unit_pages in [16, 24, 64, 100, 2048, 16_384] {
            for depth in DEPTHS {
                let work = Work { programs: 1.0, erased: 1.0, ..Work::default() };
                let found = sequential(&model, unit_pages, depth);
                let what = format!("{name}, units of {unit_pages} pages, depth {depth}");
                agrees(&what, found, writes_stated(&model, depth, work));
            }
        }
    }
}

#[test]
fn reads_that_visit_the_planes_in_turn_are_as_fast_as_stated_whatever_the_unit_and_the_depth() {
    for name in ["dram", "optane", "tlc", "qlc"] {
        let model = preset(name);
        let row = u32::from(model.plane_pages);
        for unit_pages in [16, 24, 64, 2048, 16_384] {
            for depth in DEPTHS {
                let mut host = Host::new(&model, unit_pages, depth);
                let (mut begun, mut program) = (0, 0_u32);
                for index in 0..60_000_u32 {
                    // A page of each die in turn, and the next plane when all dies have had one.
                    let lap = index / model.dies() % (model.program_pages() / row);
                    let ppn = program * model.program_pages() + lap * row;
                    program = (program + 1) % (1 << 14);
                    let op = NotedOp { op: FlashOp::Read { ppn }, cause: Cause::Host };
                    host.submit(CommandKind::Read, &[op]);
                    if index == 30_000 {
                        begun = host.now;
                    }
                }
                let found = 29_999.0 * 1e6 / (host.now - begun) as f64;
                let what = format!("{name}, units of {unit_pages} pages, depth {depth}");
                agrees(&what, found, reads_stated(&model, depth));
            }
        }
    }
}

/// Notes what the layer does, and counts it.
struct Noting {
    notes: OpList,
    work: Work,
    row_pages: u32,
}

impl Noting {
    fn new(row_pages: u32) -> Self {
        Self { notes: OpList::new(true), work: Work::default(), row_pages }
    }
}

impl Nand for Noting {
    fn open(&mut self, _opened: Opened) {}

    fn program(&mut self, ppn: u32, _lpn: u32, origin: Origin) -> Result<(), ProgramFailure> {
        let cause = match origin {
            Origin::Host => Cause::Host,
            Origin::Reclaim { from } => {
                let last = self.notes.ops().iter().rev().find_map(|noted| match noted.op {
                    FlashOp::Read { ppn } => Some(ppn),
                    _ => None,
                });
                self.work.moves += 1.0;
                if last.is_none_or(|last| last / self.row_pages != from / self.row_pages) {
                    self.work.senses += 1.0;
                }
                self.notes.note(FlashOp::Read { ppn: from }, Cause::Reclaim);
                Cause::Reclaim
            }
        };
        self.work.programs += 1.0;
        self.notes.note(FlashOp::Program { ppn }, cause);
        Ok(())
    }

    fn close(&mut self, _unit: u32, _written: u32) {}

    fn erase(&mut self, unit: u32) {
        self.notes.note(FlashOp::Erase { unit }, Cause::Reclaim);
    }
}

/// A layer in the steady state of random writes, and the host that writes to it.
struct Steady {
    ftl: Ftl,
    state: u64,
    logical: u32,
}

impl Steady {
    /// At 22 % of overprovisioning. The model of time need not be asked until it is steady.
    fn new(units: u32, unit_pages: u32) -> Self {
        let logical = FtlConfig::logical_pages_of(units, unit_pages, 0.22);
        let mut ftl = Ftl::new(FtlConfig::simple(logical, units, unit_pages)).unwrap();
        let mut nand = Noting::new(1);
        for lpn in 0..logical {
            ftl.write(lpn, Placement::default(), &mut nand).unwrap();
        }
        let mut steady = Self { ftl, state: 0x1234_5678_9abc_def1, logical };
        for _ in 0..3 * logical {
            steady.write(&mut nand);
            nand.notes.clear();
        }
        steady
    }

    fn write(&mut self, nand: &mut Noting) {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        let random = self.state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32;
        let lpn = ((random * u64::from(self.logical)) >> 32) as u32;
        self.ftl.write(lpn, Placement::default(), nand).unwrap();
    }

    /// Thousands of pages per second: what is found, and what is stated for the work that they came to.
    fn run(&mut self, model: &TimingModel, unit_pages: u32, depth: usize) -> (f64, f64) {
        const PAGES: u32 = 150_000;
        let mut nand = Noting::new(model.plane_pages.into());
        let mut host = Host::new(model, unit_pages, depth);
        let mut write = |host: &mut Host, nand: &mut Noting, pages: u32| {
            for _ in 0..pages {
                self.write(nand);
                host.submit(CommandKind::Write, nand.notes.ops());
                nand.notes.clear();
            }
        };
        write(&mut host, &mut nand, PAGES / 5);
        let begun = host.now;
        nand.work = Work::default();
        write(&mut host, &mut nand, PAGES);
        let count = f64::from(PAGES);
        let Work { programs, moves, senses, .. } = nand.work;
        let (programs, moves, senses) = (programs / count, moves / count, senses / count);
        let work = Work { programs, moves, senses, erased: programs };
        (count * 1e6 / (host.now - begun) as f64, writes_stated(model, depth, work))
    }
}

#[test]
fn steady_random_writes_keep_the_scarcest_resource_busy_whatever_the_unit_and_the_depth() {
    for (units, unit_pages) in [(8192, 16), (4096, 64), (512, 512), (256, 2048), (128, 16_384)] {
        let mut steady = Steady::new(units, unit_pages);
        for name in ["tlc", "qlc"] {
            for depth in [1, 4, 32, 256] {
                let (found, stated) = steady.run(&preset(name), unit_pages, depth);
                agrees(&format!("{name}, {units} units of {unit_pages} pages, depth {depth}"), found, stated);
            }
        }
    }
}
