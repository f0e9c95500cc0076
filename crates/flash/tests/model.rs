//! The translation layer against a map of what was written, with flash that knows its own rules and fails at
//! random.

mod media;

use std::collections::BTreeMap;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use media::{Flash, Random};
use unvme_flash::ftl::{Ftl, FtlConfig, FtlError, Isolation, Placement, VictimPolicy};

/// A layer, its flash and what it should hold: a version of each logical page.
struct Bench {
    ftl: Ftl,
    flash: Flash,
    model: BTreeMap<u32, u64>,
    random: Random,
    version: u64,
}

impl Bench {
    fn new(config: FtlConfig, seed: u64) -> Self {
        let flash = Flash::new(&config);
        let ftl = Ftl::new(config).unwrap();
        Self { ftl, flash, model: BTreeMap::new(), random: Random::new(seed), version: 0 }
    }

    fn placement(&mut self) -> Placement {
        let (handles, groups) = (self.ftl.config().handles.len() as u32, u32::from(self.ftl.config().groups));
        Placement { handle: self.random.below(handles) as u16, group: self.random.below(groups) as u16 }
    }

    fn write(&mut self, lpn: u32, at: Placement) -> Result<(), FtlError> {
        self.version += 1;
        self.flash.host_version = self.version;
        let moved = self.ftl.stats().reclaim_pages - self.ftl.stats().forced_pages;
        let failed = self.ftl.stats().failed_pages;
        self.ftl.write(lpn, at, &mut self.flash)?;
        let ppn = self.ftl.map().get(lpn).expect("a page that was written is mapped");
        assert_eq!(self.flash.read(ppn, lpn), self.version);
        self.model.insert(lpn, self.version);
        let moved = self.ftl.stats().reclaim_pages - self.ftl.stats().forced_pages - moved;
        // HASTE_MAX * (BATCH_PAGES + valid / gain), the worst victim having won a single page.
        let bound = 4 * (8 + u64::from(self.ftl.config().unit_pages));
        assert!(moved <= bound || self.ftl.stats().failed_pages > failed, "{moved} pages moved for one");
        Ok(())
    }

    fn step(&mut self) {
        let lpn = self.random.below(self.ftl.config().logical_pages);
        let at = self.placement();
        match self.random.below(100) {
            0..80 => match self.write(lpn, at) {
                Ok(()) => {}
                Err(FtlError::WornOut) => assert!(self.ftl.is_read_only(), "full before its end"),
                Err(e) => panic!("{e}"),
            },
            80..95 => assert_eq!(self.ftl.trim(lpn), self.model.remove(&lpn).is_some()),
            95..97 => {
                let written = self.ftl.open_unit(at).map(|open| open.written);
                assert_eq!(self.ftl.close(at, &mut self.flash), written);
                assert_eq!(self.ftl.open_unit(at), None);
            }
            97..99 => {
                let before = self.ftl.stats().reclaim_pages;
                let budget = 1 + self.random.below(20);
                self.ftl.reclaim(at.group, budget, &mut self.flash);
                assert!(self.ftl.stats().reclaim_pages - before <= budget.into());
            }
            _ => self.restore(),
        }
    }

    /// The layer is made anew from what would be on the media, in an order of no meaning.
    fn restore(&mut self) {
        let image = self.ftl.image();
        let mut mapping: Vec<_> = self.ftl.mapping().collect();
        for at in (1..mapping.len()).rev() {
            mapping.swap(at, self.random.below(at as u32 + 1) as usize);
        }
        let restored = Ftl::restore(self.ftl.config().clone(), &image, mapping).unwrap();
        assert!(restored.image() == image, "an image of what an image was made into");
        assert_eq!(restored.wear(), self.ftl.wear());
        self.ftl = restored;
    }

    fn check(&self) {
        self.ftl.check().unwrap();
        for lpn in 0..self.ftl.config().logical_pages {
            let found = self.ftl.map().get(lpn).map(|ppn| self.flash.read(ppn, lpn));
            assert_eq!(found, self.model.get(&lpn).copied(), "logical page {lpn}");
        }
        assert_eq!(self.flash.programmed, self.ftl.stats().media_pages());
        assert_eq!(self.flash.failed, self.ftl.stats().failed_pages);
        assert_eq!(self.flash.erased, self.ftl.stats().erased_units);
    }
}

fn any_config(random: &mut Random) -> FtlConfig {
    let isolations = [Isolation::Initially, Isolation::Persistently];
    let policies =
        [VictimPolicy::Greedy, VictimPolicy::CostBenefit, VictimPolicy::Fifo, VictimPolicy::DChoice(3)];
    let unit_pages = 2 + random.below(15);
    let groups = 1 + random.below(3);
    let handles = (0..=random.below(4)).map(|_| isolations[random.below(2) as usize]).collect();
    let base = FtlConfig {
        groups: groups as u16,
        handles,
        policy: policies[random.below(4) as usize],
        wear_spread_max: random.chance(0.5).then(|| 1 + random.below(8)),
        endurance: random.chance(0.2).then(|| 10 + random.below(100)),
        seed: u64::from(random.below(1 << 30)),
        pool_units: random.below(5),
        ..FtlConfig::simple(1 + random.below(200), 0, unit_pages)
    };
    let units = (base.needed_units() + random.below(8)).next_multiple_of(groups);
    let spare = units - base.needed_units();
    let bad_units = (0..random.below(spare + 1)).map(|_| random.below(units)).collect();
    FtlConfig { units, bad_units, ..base }
}

/// Runs with the seed told when it fails.
fn with_seed(seed: u64, run: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(run)) {
        let _ = writeln!(std::io::stderr(), "seed {seed}");
        resume_unwind(panic);
    }
}

#[test]
fn whatever_happens_every_page_reads_what_was_written_last() {
    for seed in 0..300 {
        with_seed(seed, || {
            let mut random = Random::new(seed);
            let config = any_config(&mut random);
            let mut bench = Bench::new(config, seed);
            bench.flash.failure_chance = if random.chance(0.3) { 0.001 } else { 0.0 };
            for step in 0..4000 {
                bench.step();
                if step % 200 == 0 {
                    bench.check();
                }
            }
            bench.check();
        });
    }
}

#[test]
fn a_full_device_of_the_least_possible_units_can_be_overwritten_for_ever() {
    for seed in 0..60 {
        with_seed(seed, || {
            let mut random = Random::new(seed);
            let config = any_config(&mut random);
            let units = config.needed_units().next_multiple_of(config.groups.into());
            let config = FtlConfig { units, endurance: None, bad_units: Vec::new(), ..config };
            let logical = config.logical_pages;
            let mut bench = Bench::new(config, seed);
            for lpn in 0..logical {
                let at = bench.placement();
                bench.write(lpn, at).unwrap();
            }
            for _ in 0..20 * logical {
                let (lpn, at) = (bench.random.below(logical), bench.placement());
                bench.write(lpn, at).unwrap();
            }
            bench.check();
        });
    }
}

#[test]
fn flash_that_fails_ever_more_ends_read_only_with_everything_readable() {
    for seed in 0..60 {
        with_seed(seed, || {
            let mut random = Random::new(seed);
            let config = FtlConfig { endurance: None, ..any_config(&mut random) };
            let logical = config.logical_pages;
            let mut bench = Bench::new(config, seed);
            bench.flash.failure_chance = 0.05;
            let mut refused = 0;
            for _ in 0..100_000 {
                let (lpn, at) = (bench.random.below(logical), bench.placement());
                match bench.write(lpn, at) {
                    Ok(()) => {}
                    Err(FtlError::WornOut) => refused += 1,
                    Err(e) => panic!("{e}"),
                }
                if refused > 100 {
                    break;
                }
            }
            assert!(refused > 100 && bench.ftl.is_read_only());
            assert_eq!(bench.ftl.wear().spare_units, 0);
            bench.check();
            bench.restore();
            assert!(bench.ftl.is_read_only());
            bench.check();
        });
    }
}

#[test]
fn the_same_seed_twice_does_the_same_on_the_flash() {
    let run = |seed: u64| {
        let config = any_config(&mut Random::new(seed));
        let mut bench = Bench::new(config, seed);
        bench.flash.failure_chance = 0.0005;
        for _ in 0..5000 {
            bench.step();
        }
        (bench.flash.history, *bench.ftl.stats(), bench.ftl.mapping().collect::<Vec<_>>())
    };
    for seed in 0..20 {
        assert!(run(seed) == run(seed), "seed {seed}");
    }
    assert_ne!(run(1).0, run(2).0);
}
