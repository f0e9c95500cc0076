//! The life of a translation layer: isolation, pace, wear, failures, its end, and being restored.

mod media;

use media::{Flash, Random};
use unvme_flash::ftl::{
    Ftl, FtlConfig, FtlError, Image, Isolation, Placement, StreamStats, UnitImage, UnitState, VictimPolicy,
};

struct Bench {
    ftl: Ftl,
    flash: Flash,
    random: Random,
}

impl Bench {
    fn new(config: FtlConfig) -> Self {
        Self { flash: Flash::new(&config), ftl: Ftl::new(config).unwrap(), random: Random::new(7) }
    }

    fn write(&mut self, lpn: u32, handle: u16, group: u16) -> Result<u32, FtlError> {
        self.flash.host_version += 1;
        self.ftl.write(lpn, Placement { handle, group }, &mut self.flash)
    }

    fn fill(&mut self) {
        for lpn in 0..self.ftl.config().logical_pages {
            self.write(lpn, 0, 0).unwrap();
        }
    }

    /// Overwrites pages below `bound` at random.
    fn churn(&mut self, writes: u32, bound: u32) {
        for _ in 0..writes {
            let lpn = self.random.below(bound);
            self.write(lpn, 0, 0).unwrap();
        }
    }

    fn unit_of(&self, lpn: u32) -> u32 {
        self.ftl.map().get(lpn).unwrap() / self.ftl.config().unit_pages
    }
}

fn config(units: u32, unit_pages: u32, overprovisioning: f64) -> FtlConfig {
    FtlConfig::simple(FtlConfig::logical_pages_of(units, unit_pages, overprovisioning), units, unit_pages)
}

#[test]
fn a_configuration_without_room_for_its_reserve_names_the_least_that_works() {
    // 960 logical pages are 60 units; 8 handles, a destination and 2 free ones are 11; and one more.
    let handles = vec![Isolation::Initially; 8];
    let too_small = FtlConfig { handles, ..FtlConfig::simple(960, 71, 16) };
    assert_eq!(too_small.reserve_units(), 11);
    assert_eq!(
        Ftl::new(too_small.clone()).err().map(|e| e.to_string()).unwrap(),
        "units: 71 is not possible, expected at least 72 units of 16 pages for 960 logical pages: 11 of them are open or free \
         at any time"
    );
    Ftl::new(FtlConfig { units: 72, ..too_small.clone() }).unwrap();
    let bad = FtlConfig { units: 72, bad_units: vec![3, 3], ..too_small.clone() };
    assert!(Ftl::new(bad).is_err(), "a bad unit is not one to write to");
    Ftl::new(FtlConfig { units: 73, bad_units: vec![3, 3], ..too_small.clone() }).unwrap();
    let outside = FtlConfig { units: 72, bad_units: vec![72], ..too_small };
    let message = Ftl::new(outside).err().unwrap().to_string();
    assert_eq!(message, "bad_units: unit 72 is not possible, expected units below 72");
}

#[test]
fn persistently_isolated_data_never_shares_a_unit_and_initially_isolated_data_does() {
    use Isolation::{Initially, Persistently};
    let handles = vec![Persistently, Initially, Initially, Persistently];
    let mut bench = Bench::new(FtlConfig { handles, ..config(96, 32, 0.3) });
    let pages = bench.ftl.config().logical_pages;
    // Pages belong to a handle for ever.
    for lpn in (0..pages).chain((0..pages).rev()) {
        bench.write(lpn, (lpn % 4) as u16, 0).unwrap();
    }
    for _ in 0..20 * pages {
        let lpn = bench.random.below(pages);
        bench.write(lpn, (lpn % 4) as u16, 0).unwrap();
    }
    let mut handles_in = vec![[false; 4]; 96];
    for (lpn, ppn) in bench.ftl.mapping() {
        handles_in[(ppn / 32) as usize][(lpn % 4) as usize] = true;
    }
    for handles in &handles_in {
        let count = handles.iter().filter(|&&is_in| is_in).count();
        assert!(count <= 1 || !handles[0] && !handles[3], "{handles:?}");
    }
    assert!(handles_in.contains(&[false, true, true, false]), "reclaim mixes what may be mixed");
    let destinations =
        (0..bench.ftl.streams()).map(|stream| bench.ftl.stream(stream)).filter(|s| s.is_destination);
    let moved_to: Vec<_> = destinations.map(|s| (s.handle, s.stats.received_pages > 0)).collect();
    assert_eq!(moved_to, [(None, true), (Some(0), true), (Some(3), true)]);
    bench.ftl.check().unwrap();
}

#[test]
fn a_stream_has_one_open_unit_in_each_group_and_says_how_much_is_left() {
    let handles = vec![Isolation::Initially; 2];
    let mut bench = Bench::new(FtlConfig { groups: 2, handles, ..config(40, 16, 0.5) });
    let at = Placement { handle: 1, group: 1 };
    assert_eq!((bench.ftl.open_unit(at), bench.ftl.pages_left(at)), (None, 16));
    for lpn in 0..5 {
        bench.write(lpn, 1, 1).unwrap();
        bench.write(100 + lpn, 1, 0).unwrap();
    }
    let open = bench.ftl.open_unit(at).unwrap();
    assert_eq!((open.written, open.left, open.opened_at), (5, 11, 0));
    assert!((20..40).contains(&open.unit), "of the second group");
    assert_eq!(bench.ftl.close(at, &mut bench.flash), Some(5));
    assert_eq!(bench.ftl.close(at, &mut bench.flash), None);
    bench.write(5, 1, 1).unwrap();
    let next = bench.ftl.open_unit(at).unwrap();
    assert_eq!((next.written, next.opened_at), (1, 10));
    assert_ne!(next.unit, open.unit);
    assert_eq!(bench.ftl.handle_stats(1).host_pages, 11);
    assert_eq!(bench.ftl.handle_stats(0), StreamStats::default());
    bench.ftl.check().unwrap();
}

#[test]
fn one_write_waits_for_a_bounded_number_of_moves_and_hardly_ever_for_a_whole_unit() {
    for handles in [1, 8] {
        let base = config(512, 256, 0.18);
        let mut bench = Bench::new(FtlConfig { handles: vec![Isolation::Initially; handles], ..base });
        let pages = bench.ftl.config().logical_pages;
        bench.fill();
        for count in 0..6 * pages {
            // All handles in turn: they need their next units at the same moment.
            let lpn = bench.random.below(pages);
            bench.write(lpn, (count as usize % handles) as u16, 0).unwrap();
        }
        let stats = bench.ftl.stats();
        // Write amplification of 3.5 means victims of which 5 of 7 pages are valid: 4 * (8 + 3) at the very
        // most.
        assert!(stats.moved_at_once_max <= 44 + stats.forced_pages, "{stats:?}");
        assert!(stats.forced_pages < stats.reclaim_pages / 1000, "{stats:?}");
    }
}

#[test]
fn reclaim_in_the_background_keeps_to_its_budget_and_ends() {
    let mut bench = Bench::new(config(64, 64, 0.3));
    let pages = bench.ftl.config().logical_pages;
    bench.fill();
    bench.churn(3 * pages, pages);
    let mut calls = 0;
    loop {
        let before = *bench.ftl.stats();
        let is_more = bench.ftl.reclaim(0, 16, &mut bench.flash);
        assert!(bench.ftl.stats().reclaim_pages - before.reclaim_pages <= 16);
        calls += 1;
        if !is_more {
            break;
        }
    }
    assert!((2..100).contains(&calls), "{calls} calls");
    // What was made ahead is used before hosts pay again.
    let before = bench.ftl.stats().reclaim_pages;
    bench.churn(64, pages);
    assert_eq!(bench.ftl.stats().reclaim_pages, before);
    bench.ftl.check().unwrap();
}

#[test]
fn a_group_with_nothing_but_valid_data_takes_units_of_another() {
    let mut bench = Bench::new(FtlConfig { groups: 2, ..config(32, 16, 0.6) });
    let pages = bench.ftl.config().logical_pages;
    assert!(pages > 16 * 16, "more than one group has");
    for round in 0..5 {
        for lpn in 0..pages {
            bench.write(lpn, 0, 0).unwrap();
        }
        bench.ftl.check().unwrap_or_else(|e| panic!("round {round}: {e}"));
    }
    let opened =
        (0..32).filter_map(|unit| bench.flash.opened(unit)).find(|opened| opened.unit >= 16).unwrap();
    assert_eq!((opened.group, bench.ftl.stream(opened.stream).group), (1, 0), "a guest");
}

#[test]
fn wear_levelling_keeps_erase_counts_together_that_cold_data_would_drive_apart() {
    let run = |wear_spread_max| {
        let mut bench = Bench::new(FtlConfig { wear_spread_max, ..config(64, 32, 0.3) });
        let pages = bench.ftl.config().logical_pages;
        bench.fill();
        bench.churn(100 * pages, pages / 4);
        bench.ftl.check().unwrap();
        (bench.ftl.wear(), *bench.ftl.stats())
    };
    let (without, before) = run(None);
    assert!(without.erased_max - without.erased_min > 100, "{without:?}");
    assert_eq!(before.levelled_pages, 0);
    let (with, stats) = run(Some(10));
    assert!(with.erased_max - with.erased_min <= 20, "{with:?}");
    assert!(stats.levelled_pages > 0);
    let (cost, free) = (stats.reclaim_pages as f64, before.reclaim_pages as f64);
    assert!(cost - free < 0.25 * stats.host_pages as f64, "levelling costs {cost} moves, without it {free}");
}

#[test]
fn the_least_worn_free_unit_is_opened_first() {
    let mut bench = Bench::new(config(32, 16, 0.5));
    let pages = bench.ftl.config().logical_pages;
    bench.fill();
    bench.churn(10 * pages, pages / 8);
    while bench.ftl.reclaim(0, 64, &mut bench.flash) {}
    let free = |bench: &Bench| {
        let units = (0..32).map(|unit| bench.ftl.unit(unit)).filter(|unit| unit.state == UnitState::Free);
        units.map(|unit| unit.erased).min().unwrap()
    };
    for _ in 0..10 {
        let least = free(&bench);
        bench.ftl.close(Placement::default(), &mut bench.flash);
        bench.write(0, 0, 0).unwrap();
        let opened = bench.ftl.open_unit(Placement::default()).unwrap().unit;
        assert_eq!(bench.ftl.unit(opened).erased, least);
    }
}

#[test]
fn a_unit_in_which_a_program_fails_is_emptied_first_and_bad_then() {
    let mut bench = Bench::new(config(64, 16, 0.4));
    for lpn in 0..5 {
        bench.write(lpn, 0, 0).unwrap();
    }
    let unit = bench.unit_of(0);
    let spare = bench.ftl.wear().spare_units;
    bench.flash.broken.push(unit * 16 + 5);
    bench.write(5, 0, 0).unwrap();
    assert_ne!(bench.unit_of(5), unit);
    assert_eq!(bench.ftl.unit(unit).state, UnitState::Failing);
    assert_eq!(bench.ftl.wear().spare_units, spare - 1);
    // The device is nearly empty, and yet the data is moved at once.
    for lpn in 6..20 {
        bench.write(lpn, 0, 0).unwrap();
    }
    assert_eq!(bench.ftl.unit(unit).state, UnitState::Bad);
    assert_ne!(bench.unit_of(0), unit);
    assert_eq!((bench.ftl.stats().failed_pages, bench.ftl.stats().reclaim_pages), (1, 5));
    bench.ftl.check().unwrap();
    let pages = bench.ftl.config().logical_pages;
    bench.fill();
    bench.churn(10 * pages, pages);
    assert_eq!(bench.ftl.unit(unit), UnitImage { erased: 1, state: UnitState::Bad, ..UnitImage::default() });
}

#[test]
fn units_from_the_factory_that_are_bad_are_never_touched() {
    let bad_units = vec![0, 17, 63];
    let mut bench = Bench::new(FtlConfig { bad_units: bad_units.clone(), ..config(64, 16, 0.5) });
    let pages = bench.ftl.config().logical_pages;
    bench.fill();
    bench.churn(10 * pages, pages);
    for unit in bad_units {
        assert_eq!(bench.flash.opened(unit), None);
        assert_eq!(bench.ftl.unit(unit).state, UnitState::Bad);
    }
    assert_eq!(bench.ftl.wear().bad_units, 3);
    bench.ftl.check().unwrap();
}

#[test]
fn worn_out_media_is_read_only_and_keeps_everything() {
    let mut bench =
        Bench::new(FtlConfig { endurance: Some(20), wear_spread_max: Some(4), ..config(48, 16, 0.4) });
    let pages = bench.ftl.config().logical_pages;
    let mut versions = vec![0; pages as usize];
    let mut spare = bench.ftl.wear().spare_units;
    let written = loop {
        let lpn = bench.random.below(pages);
        match bench.write(lpn, 0, 0) {
            Ok(_) => versions[lpn as usize] = bench.flash.host_version,
            Err(e) => break e,
        }
        assert!(bench.ftl.wear().spare_units <= spare, "spares only become fewer");
        spare = bench.ftl.wear().spare_units;
    };
    assert_eq!(written, FtlError::WornOut);
    assert_eq!(written.to_string(), "too many reclaim units are bad: the media is read-only");
    assert!(bench.ftl.is_read_only());
    assert_eq!(bench.ftl.wear().spare_units, 0);
    // 20 erasures of 48 units of 16 pages, less what was left of the last ones, over the amplification.
    assert!((3_000..15_360).contains(&bench.ftl.stats().host_pages), "{:?}", bench.ftl.stats());
    assert!(bench.ftl.wear().erased_max <= 20);
    for _ in 0..100 {
        assert_eq!(bench.write(3, 0, 0), Err(FtlError::WornOut));
    }
    for lpn in 0..pages {
        let found = bench.ftl.map().get(lpn).map_or(0, |ppn| bench.flash.read(ppn, lpn));
        assert_eq!(found, versions[lpn as usize], "logical page {lpn}");
    }
    assert!(bench.ftl.trim(3), "deallocating still works");
    assert!(!bench.ftl.trim(3));
    bench.ftl.check().unwrap();
}

#[test]
fn flash_that_lets_no_unit_be_opened_for_a_while_loses_nothing_by_that() {
    let mut bench = Bench::new(FtlConfig { handles: vec![Isolation::Initially; 2], ..config(64, 16, 0.3) });
    let pages = bench.ftl.config().logical_pages;
    bench.fill();
    bench.churn(3 * pages, pages);
    for _ in 0..50 {
        bench.flash.refuses = true;
        let refused = loop {
            let lpn = bench.random.below(pages);
            let before = bench.ftl.map().get(lpn).map(|ppn| bench.flash.read(ppn, lpn));
            if let Err(e) = bench.write(lpn, 1, 0) {
                let after = bench.ftl.map().get(lpn).map(|ppn| bench.flash.read(ppn, lpn));
                assert_eq!(after, before, "a write that is refused changes nothing");
                break e;
            }
        };
        assert_eq!(refused, FtlError::Refused);
        assert!(!bench.ftl.is_read_only());
        bench.ftl.check().unwrap();
        bench.flash.refuses = false;
        bench.churn(100, pages);
    }
    bench.ftl.check().unwrap();
}

#[test]
fn what_is_restored_goes_on_exactly_as_what_was_saved() {
    for policy in [VictimPolicy::Greedy, VictimPolicy::Fifo, VictimPolicy::CostBenefit] {
        let handles = vec![Isolation::Initially, Isolation::Persistently];
        let mut bench = Bench::new(FtlConfig { policy, handles, ..config(64, 16, 0.3) });
        let pages = bench.ftl.config().logical_pages;
        bench.fill();
        bench.churn(3 * pages + 5, pages);
        bench.write(1, 1, 0).unwrap();
        let open = bench.ftl.open_unit(Placement { handle: 1, group: 0 }).unwrap();
        let restored =
            Ftl::restore(bench.ftl.config().clone(), &bench.ftl.image(), bench.ftl.mapping()).unwrap();
        restored.check().unwrap();
        assert_eq!(restored.stats(), bench.ftl.stats());
        assert_eq!(restored.open_unit(Placement { handle: 1, group: 0 }), Some(open));
        bench.ftl = restored;
        bench.write(2, 1, 0).unwrap();
        assert_eq!(bench.unit_of(2), open.unit, "the open unit goes on where it was");
        bench.churn(3 * pages, pages);
        bench.ftl.check().unwrap();
    }
}

/// A layer of 10 units of 4 pages for 12 logical ones, of which page 1 is in the open unit 0, and page 2 in
/// the closed unit 3.
fn small_image() -> (FtlConfig, Image, Vec<(u32, u32)>) {
    let config = FtlConfig::simple(12, 10, 4);
    let mut image =
        Image { units: vec![UnitImage::default(); 10], ..Ftl::new(config.clone()).unwrap().image() };
    image.units[0] = UnitImage { state: UnitState::Open, written: 2, ..UnitImage::default() };
    image.units[3] = UnitImage { state: UnitState::Closed, written: 4, erased: 7, stream: 1, since: 0 };
    (config, image, vec![(1, 1), (2, 14)])
}

#[test]
fn an_image_that_cannot_be_true_is_refused_and_says_why() {
    type Change = fn(&mut Image, &mut Vec<(u32, u32)>);
    let (config, image, mapping) = small_image();
    Ftl::restore(config.clone(), &image, mapping.clone()).unwrap().check().unwrap();
    let changes: [(Change, &str); 14] = [
        (|i, _| i.units.truncate(9), "9 units, expected 10"),
        (|i, _| i.streams.truncate(1), "counters of 1 streams, expected 2"),
        (|i, _| i.stats.host_pages = 5, "5 host pages, but 0 of all streams together"),
        (|i, _| i.streams[1].erased_units = 5, "0 erased units, but 5 of all streams together"),
        (|i, _| i.units[3].written = 5, "unit 3 with 5 of 4 pages written"),
        (|i, _| i.units[4].written = 1, "unit 4 is free, but 1 of its pages are written"),
        (|i, _| i.units[3].stream = 2, "unit 3 of stream 2, of 2"),
        (|i, _| i.units[3].state = UnitState::Open, ""),
        (
            |i, _| i.units[7] = UnitImage { state: UnitState::Open, written: 1, ..UnitImage::default() },
            "units 0 and 7 are both open for stream 0",
        ),
        (|_, m| m.push((12, 2)), "logical page 12, of 12"),
        (|_, m| m.push((3, 40)), "logical page 3 in physical page 40, of 40"),
        (|_, m| m.push((1, 13)), "logical page 1 in physical pages 1 and 13"),
        (|_, m| m.push((5, 14)), "physical page 14 of logical pages 2 and 5"),
        (
            |_, m| m.push((5, 2)),
            "logical page 5 in physical page 2, but 2 pages of unit 0, which is Open, are written",
        ),
    ];
    for (change, expected) in changes {
        let (mut image, mut mapping) = (image.clone(), mapping.clone());
        change(&mut image, &mut mapping);
        match Ftl::restore(config.clone(), &image, mapping) {
            Ok(ftl) => {
                assert_eq!(expected, "");
                ftl.check().unwrap();
            }
            Err(FtlError::Image(message)) => assert_eq!(message, expected),
            Err(e) => panic!("{e}"),
        }
    }
}

#[test]
fn counters_that_lag_behind_the_units_of_an_image_are_not_held_against_it() {
    let (config, mut image, mapping) = small_image();
    image.stats.host_pages = 1;
    image.streams[0].host_pages = 1;
    let mut ftl = Ftl::restore(config.clone(), &image, mapping).unwrap();
    ftl.check().unwrap();
    let mut flash = media::Tally::default();
    for lpn in (0..12).cycle().take(500) {
        ftl.write(lpn, Placement::default(), &mut flash).unwrap();
        ftl.check().unwrap();
    }
    assert_eq!(ftl.stats().host_pages, 501);
}
