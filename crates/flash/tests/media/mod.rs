//! Flash below a translation layer that counts or remembers, and a generator of random numbers that is the
//! same everywhere.
#![allow(dead_code, reason = "each test uses a part of it")]

use unvme_flash::ftl::{FtlConfig, Nand, Opened, Origin, ProgramFailure};

/// Flash that never fails and counts what reaches it.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) programmed: u64,
    pub(crate) erased: u64,
}

impl Nand for Tally {
    fn open(&mut self, _opened: Opened) {}

    fn program(&mut self, _ppn: u32, _lpn: u32, _origin: Origin) -> Result<(), ProgramFailure> {
        self.programmed += 1;
        Ok(())
    }

    fn close(&mut self, _unit: u32, _written: u32) {}

    fn erase(&mut self, _unit: u32) {
        self.erased += 1;
    }
}

/// What a unit is, as flash sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Erased,
    Open,
    Closed,
}

/// Flash that keeps a version of each page instead of its data, and does not let its rules be broken: units
/// are opened erased, written from the first page to the last, each page once, and closed with as many pages
/// as were written.
pub(crate) struct Flash {
    unit_pages: u32,
    /// Logical page and version in each physical page.
    pages: Vec<Option<(u32, u64)>>,
    units: Vec<(Use, u32)>,
    opened: Vec<Option<Opened>>,
    /// Version of the page that the host is writing.
    pub(crate) host_version: u64,
    /// How likely a program fails.
    pub(crate) failure_chance: f64,
    /// No unit may be opened at the moment.
    pub(crate) refuses: bool,
    /// Physical pages whose next program fails.
    pub(crate) broken: Vec<u32>,
    random: Random,
    pub(crate) programmed: u64,
    pub(crate) failed: u64,
    pub(crate) erased: u64,
    /// A digest of all that was done.
    pub(crate) history: u64,
}

impl Flash {
    pub(crate) fn new(config: &FtlConfig) -> Self {
        Self {
            unit_pages: config.unit_pages,
            pages: vec![None; (config.units * config.unit_pages) as usize],
            units: vec![(Use::Erased, 0); config.units as usize],
            opened: vec![None; config.units as usize],
            host_version: 0,
            failure_chance: 0.0,
            refuses: false,
            broken: Vec::new(),
            random: Random::new(config.seed),
            programmed: 0,
            failed: 0,
            erased: 0,
            history: 0,
        }
    }

    /// Version of a logical page in a physical one.
    pub(crate) fn read(&self, ppn: u32, lpn: u32) -> u64 {
        let (owner, version) = self.pages[ppn as usize].expect("a page that was programmed");
        assert_eq!(owner, lpn, "physical page {ppn}");
        version
    }

    /// What a unit was opened for last.
    pub(crate) fn opened(&self, unit: u32) -> Option<Opened> {
        self.opened[unit as usize]
    }

    fn remember(&mut self, what: u64, at: u32) {
        self.history = (self.history ^ what ^ (u64::from(at) << 3)).wrapping_mul(0x0100_0000_01b3);
    }
}

impl Nand for Flash {
    fn admit(&mut self, _unit: u32) -> bool {
        !self.refuses
    }

    fn open(&mut self, opened: Opened) {
        self.remember(1, opened.unit);
        let entry = &mut self.units[opened.unit as usize];
        assert_eq!(*entry, (Use::Erased, 0), "{opened:?}");
        entry.0 = Use::Open;
        self.opened[opened.unit as usize] = Some(opened);
    }

    fn program(&mut self, ppn: u32, lpn: u32, origin: Origin) -> Result<(), ProgramFailure> {
        self.remember(2, ppn);
        let (unit, page) = (ppn / self.unit_pages, ppn % self.unit_pages);
        let entry = &mut self.units[unit as usize];
        assert_eq!(*entry, (Use::Open, page), "program of physical page {ppn}");
        entry.1 += 1;
        let is_broken = self.broken.iter().position(|&broken| broken == ppn);
        if is_broken.map(|at| self.broken.swap_remove(at)).is_some()
            || self.random.chance(self.failure_chance)
        {
            self.failed += 1;
            return Err(ProgramFailure);
        }
        let version = match origin {
            Origin::Host => self.host_version,
            Origin::Reclaim { from } => self.read(from, lpn),
        };
        self.pages[ppn as usize] = Some((lpn, version));
        self.programmed += 1;
        Ok(())
    }

    fn close(&mut self, unit: u32, written: u32) {
        self.remember(3, unit);
        let entry = &mut self.units[unit as usize];
        assert_eq!(*entry, (Use::Open, written), "close of unit {unit}");
        entry.0 = Use::Closed;
    }

    fn erase(&mut self, unit: u32) {
        self.remember(4, unit);
        assert_eq!(self.units[unit as usize].0, Use::Closed, "erasure of unit {unit}");
        self.units[unit as usize] = (Use::Erased, 0);
        let first = unit * self.unit_pages;
        self.pages[first as usize..(first + self.unit_pages) as usize].fill(None);
        self.erased += 1;
    }
}

/// SplitMix64.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        (((self.next() >> 32) * u64::from(bound)) >> 32) as u32
    }

    pub(crate) fn chance(&mut self, probability: f64) -> bool {
        ((self.next() >> 11) as f64 / (1_u64 << 53) as f64) < probability
    }
}
