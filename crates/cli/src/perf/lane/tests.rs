use std::time::Duration;

use unvme::fdp::PlacementId;
use unvme::{Device, Nsid, OpenOptions, open};

use super::super::addresses::{Distribution, Mix};
use super::super::blend::Recipe;
use super::super::breaks::Breaks;
use super::super::counters::{Window, histogram};
use super::super::pattern::Pattern;
use super::super::placement::Select;
use super::*;

const DEPTH: u16 = 4;
const UNIT: Unit = Unit { block_bytes: 512, blocks: 8, part_blocks: 8 };
const UNITS: u64 = 64;

fn device() -> Device {
    open("mem:block:2M", &OpenOptions::default()).expect("open")
}

fn plan(pattern: Pattern, ledger: Option<&Ledger>) -> Plan<'_> {
    let read_percent = if pattern.writes() { 0 } else { 100 };
    let mix = Mix { pattern, read_percent, distribution: Distribution::Uniform, seed: 1 };
    let addresses = Addresses::new(&mix, 0..UNITS, 0, 0).expect("addresses");
    let window = Window { from_ns: 0, until_ns: u64::MAX, interval_ns: u64::MAX, intervals_max: 2 };
    let counters = Counters::new(window).expect("counters");
    Plan {
        device: "mem:block:2M",
        depth: DEPTH,
        completion: Default::default(),
        replay: None,
        pairs: None,
        queue_depth_max: u16::MAX,
        unit: UNIT,
        addresses,
        placements: None,
        blend: None,
        breaks: None,
        ledger,
        counters,
        pace: None,
        limit: None,
    }
}

/// Goes once around all units, or a little further, and returns what was seen.
fn around(device: &Device, plan: Plan<'_>) -> Counters {
    let block = device.block(Nsid(1)).expect("namespace 1");
    let mut lane = Lane::on_device(&block, plan).expect("lane");
    let watch = Watch::wall();
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
    let mut queue = device.block(Nsid(1)).expect("namespace").queue(&QueueOptions::default()).expect("queue");
    queue.submit(Op::WriteUncorrectable(UNIT.range(3)), None, 0).expect("submit");
    assert!(queue.wait(Duration::from_secs(10)).expect("wait"));
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
fn reads_of_what_nobody_is_known_to_have_written_are_counted_and_not_wrong() {
    let device = device();
    let mut block = device.block(Nsid(1)).expect("namespace 1");
    block.write_at(3 * 8, &[0x5a; 4096]).expect("somebody else's data");
    let ledger = Ledger::new(UNITS).expect("ledger");
    let read = around(&device, plan(Pattern::Read, Some(&ledger)));
    assert_eq!((read.errors, read.miscompares, read.unjudged), (0, 0, UNITS));
    // What an earlier run has written is judged by its mark.
    around(&device, plan(Pattern::Write, Some(&Ledger::new(UNITS).expect("ledger"))));
    let read = around(&device, plan(Pattern::Read, Some(&ledger)));
    assert_eq!((read.miscompares, read.unjudged), (0, 0));
    let mut queue = block.queue(&QueueOptions::default()).expect("queue");
    queue
        .submit(Op::WriteZeroes { range: BlockRange::new(Lba(16), 1), deallocate: false }, None, 0)
        .expect("submit");
    assert!(queue.wait(Duration::from_secs(10)).expect("wait"));
    drop(queue);
    let ledger = Ledger::new(UNITS).expect("ledger");
    let read = around(&device, plan(Pattern::Read, Some(&ledger)));
    assert_eq!((read.miscompares, read.unjudged), (0, 1));
}

#[test]
fn reading_back_finds_what_a_point_of_writes_would_miss() {
    let device = device();
    let ledger = Ledger::new(UNITS).expect("ledger");
    around(&device, plan(Pattern::Write, Some(&ledger)));
    let mut block = device.block(Nsid(1)).expect("namespace");
    block.write_at(63 * 8 + 7, &[0; 512]).expect("write");
    let mut lane = Lane::on_device(&block, plan(Pattern::Write, Some(&ledger))).expect("lane");
    lane.read_back(Watch::wall(), || false).expect("read back");
    let counters = lane.into_counters();
    assert_eq!((counters.reads.len(), counters.miscompares), (UNITS, 1));
}

#[test]
fn commands_beyond_queue_and_transfer_size_count_once_and_keep_their_data() {
    let device = device();
    // Parts of 3, 3 and 2 blocks, of which the queue takes 2 at a time.
    let unit = Unit { part_blocks: 3, ..UNIT };
    let narrow = |pattern, ledger| Plan { unit, queue_depth_max: 2, ..plan(pattern, ledger) };
    let around = |plan: Plan<'_>| {
        let block = device.block(Nsid(1)).expect("namespace 1");
        let mut lane = Lane::on_device(&block, plan).expect("lane");
        let watch = Watch::wall();
        let seen =
            |lane: &Lane<'_>| lane.generator.counters.reads.len() + lane.generator.counters.writes.len();
        while seen(&lane) + u64::from(DEPTH) < UNITS {
            lane.turn(watch).expect("turn");
        }
        lane.drain(watch).expect("drain");
        lane.into_counters()
    };
    let ledger = Ledger::new(UNITS).expect("ledger");
    let written = around(narrow(Pattern::Write, Some(&ledger)));
    assert!((UNITS - u64::from(DEPTH)..=UNITS).contains(&written.writes.len()), "{}", written.writes.len());
    let read = around(narrow(Pattern::Read, Some(&ledger)));
    assert_eq!((written.errors, read.errors, read.miscompares), (0, 0, 0));
    // What is not split finds it as well, and what changes meanwhile is found in whichever part it is.
    let whole = around(plan(Pattern::Read, Some(&ledger)));
    assert_eq!((whole.errors, whole.miscompares), (0, 0));
    let mut block = device.block(Nsid(1)).expect("namespace");
    block.write_at(5 * 8 + 7, &[0; 512]).expect("write");
    let read = around(narrow(Pattern::Read, Some(&ledger)));
    assert_eq!((read.errors, read.miscompares), (0, 1));
    // A part that fails is the failure of the whole.
    let mut queue = block.queue(&QueueOptions::default()).expect("queue");
    let bad = BlockRange::new(Lba(9 * 8 + 4), 1);
    queue.submit(Op::WriteUncorrectable(bad), None, 0).expect("submit");
    assert!(queue.wait(Duration::from_secs(10)).expect("wait"));
    assert!(queue.poll(1).next().expect("completion").status.is_success());
    let read = around(narrow(Pattern::Read, None));
    assert_eq!(read.errors, 1);
    let first = read.first_failure.expect("a failure");
    assert!(first.starts_with("read of 8 blocks from block 72: "), "{first}");
}

#[test]
fn a_lane_with_a_limit_submits_so_many_and_is_done() {
    let device = device();
    let block = device.block(Nsid(1)).expect("namespace 1");
    let limited = Plan { limit: Some(10), ..plan(Pattern::Randread, None) };
    let mut lane = Lane::on_device(&block, limited).expect("lane");
    while !lane.is_done() {
        lane.turn(Watch::wall()).expect("turn");
    }
    lane.turn(Watch::wall()).expect("turn");
    lane.drain(Watch::wall()).expect("drain");
    assert_eq!(lane.into_counters().reads.len(), 10);
}

#[test]
fn nothing_completes_everything() {
    let device = device();
    let block = device.block(Nsid(1)).expect("namespace");
    let queue = block.queue(&QueueOptions { depth: 1, ..QueueOptions::default() }).expect("queue");
    let mut lane = Lane::on_nothing(&queue, plan(Pattern::Randread, None)).expect("lane");
    let watch = Watch::wall();
    for _ in 0..10 {
        assert!(lane.turn(watch).expect("turn").is_some());
    }
    assert_eq!(lane.generator.free.len(), usize::from(DEPTH));
    lane.drain(watch).expect("drain");
    assert_eq!(lane.into_counters().reads.len(), 10 * u64::from(DEPTH));
}

#[test]
fn commands_of_different_sizes_are_on_the_first_bytes_of_their_units_and_count_as_they_are() {
    let device = device();
    // Split where it is whole: parts of 3, 3 and 2 blocks.
    for unit in [UNIT, Unit { part_blocks: 3, ..UNIT }] {
        let mut block = device.block(Nsid(1)).expect("namespace 1");
        block.write_at(0, &vec![0; UNITS as usize * 4096]).expect("write");
        let sizes = Some("512:1,1K:1,4K:1".parse().expect("a mix"));
        let blend = Blend::new(&Recipe { sizes, ..Recipe::default() }, unit, 1, 0);
        let mut wanted = blend.clone().expect("a blend");
        let mut plan = Plan { unit, blend, ..plan(Pattern::Write, None) };
        plan.counters.bytes = Some(0);
        plan.limit = Some(UNITS);
        let mut lane = Lane::on_device(&block, plan).expect("lane");
        while !lane.is_done() {
            lane.turn(Watch::wall()).expect("turn");
        }
        lane.drain(Watch::wall()).expect("drain");
        let counters = lane.into_counters();
        assert_eq!((counters.writes.len(), counters.errors), (UNITS, 0));
        let mut sum = 0;
        for unit in 0..UNITS {
            let blocks = wanted.next(false).blocks as usize;
            sum += blocks as u64 * 512;
            let mut found = vec![0; 4096];
            block.read_at(unit * 8, &mut found).expect("read");
            let written = found.chunks(512).take_while(|block| block.iter().any(|&byte| byte != 0)).count();
            assert_eq!(written, blocks, "unit {unit}");
            assert!(found[blocks * 512..].iter().all(|&byte| byte == 0), "unit {unit}");
        }
        assert_eq!(counters.bytes, Some(sum));
    }
}

#[test]
fn a_deallocation_takes_what_is_known_of_a_unit_with_it_and_counts_apart() {
    let device = device();
    let block = device.block(Nsid(1)).expect("namespace 1");
    // Whole, and split with a queue that has room for two at a time.
    for (part_blocks, queue_depth_max) in [(8, u16::MAX), (3, 2)] {
        let unit = Unit { part_blocks, ..UNIT };
        let ledger = Ledger::new(UNITS).expect("ledger");
        let written = around(&device, plan(Pattern::Write, Some(&ledger)));
        assert_eq!((written.writes.len(), written.errors), (UNITS, 0));
        let blend = Blend::new(&Recipe { trim_percent: 50, ..Recipe::default() }, UNIT, 1, 0);
        let mut plan = Plan { unit, queue_depth_max, blend, ..plan(Pattern::Write, Some(&ledger)) };
        plan.counters.trims = Some(histogram().expect("histogram"));
        plan.limit = Some(UNITS / 4);
        let mut lane = Lane::on_device(&block, plan).expect("lane");
        while !lane.is_done() {
            lane.turn(Watch::wall()).expect("turn");
        }
        lane.read_back(Watch::wall(), || false).expect("read back");
        let seen = lane.into_counters();
        let trims = seen.trims.as_ref().map_or(0, |trims| trims.len());
        assert_eq!((seen.writes.len(), seen.errors, seen.miscompares), (UNITS / 4, 0, 0));
        assert!((4..=UNITS).contains(&trims), "{trims}");
        let unknown = (0..UNITS).filter(|&unit| ledger.claim(unit) == Some(0)).count() as u64;
        assert_eq!((unknown, seen.reads.len()), (trims, UNITS - trims));
    }
}

#[test]
fn a_flush_goes_out_after_so_many_writes_and_the_last_one_too() {
    let device = device();
    let block = device.block(Nsid(1)).expect("namespace 1");
    for (part_blocks, queue_depth_max) in [(8, u16::MAX), (3, 2)] {
        let unit = Unit { part_blocks, ..UNIT };
        let blend = Blend::new(&Recipe { flush_every: Some(4), ..Recipe::default() }, unit, 1, 0);
        let ledger = Ledger::new(UNITS).expect("ledger");
        let mut plan = Plan { unit, queue_depth_max, blend, ..plan(Pattern::Write, Some(&ledger)) };
        plan.counters.flushes = Some(histogram().expect("histogram"));
        plan.limit = Some(UNITS);
        let mut lane = Lane::on_device(&block, plan).expect("lane");
        while !lane.is_done() {
            lane.turn(Watch::wall()).expect("turn");
        }
        lane.read_back(Watch::wall(), || false).expect("read back");
        let seen = lane.into_counters();
        assert_eq!((seen.writes.len(), seen.reads.len()), (UNITS, UNITS));
        assert_eq!((seen.errors, seen.miscompares), (0, 0));
        assert_eq!(seen.flushes.map(|flushes| flushes.len()), Some(UNITS / 4));
    }
}

#[test]
fn a_slot_rests_before_its_next_command_and_not_at_the_end() {
    let device = device();
    let block = device.block(Nsid(1)).expect("namespace 1");
    let ledger = Ledger::new(UNITS).expect("ledger");
    let hour = Breaks::new("3600s".parse().ok(), None);
    let mut lane =
        Lane::on_device(&block, Plan { breaks: hour, ..plan(Pattern::Write, Some(&ledger)) }).expect("lane");
    let watch = Watch::wall();
    for _ in 0..100 {
        lane.turn(watch).expect("turn");
    }
    assert!(lane.generator.free.is_empty() && lane.generator.is_idle(), "all have written once, and rest");
    assert!(lane.next_admission_ns().is_some_and(|ns| ns > 3_599_000_000_000));
    lane.drain(watch).expect("drain");
    lane.read_back(watch, || false).expect("read back");
    let counters = lane.into_counters();
    assert_eq!((counters.writes.len(), counters.reads.len()), (u64::from(DEPTH), u64::from(DEPTH)));
    assert_eq!((counters.errors, counters.miscompares), (0, 0));
    let short = Breaks::new("1us".parse().ok(), None);
    let seen = {
        let plan = Plan { breaks: short, limit: Some(UNITS), ..plan(Pattern::Write, None) };
        let mut lane = Lane::on_device(&block, plan).expect("lane");
        while !lane.is_done() {
            lane.turn(watch).expect("turn");
        }
        lane.drain(watch).expect("drain");
        lane.into_counters()
    };
    assert_eq!(seen.writes.len(), UNITS, "slots that have rested go on");
}

#[test]
fn a_burst_is_followed_by_nothing() {
    let device = device();
    let block = device.block(Nsid(1)).expect("namespace 1");
    let breaks = Breaks::new(None, "10:3600s".parse().ok());
    let mut lane = Lane::on_device(&block, Plan { breaks, ..plan(Pattern::Randread, None) }).expect("lane");
    for _ in 0..100 {
        lane.turn(Watch::wall()).expect("turn");
    }
    lane.drain(Watch::wall()).expect("drain");
    assert_eq!(lane.into_counters().reads.len(), 10);
}
