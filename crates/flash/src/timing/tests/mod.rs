//! The model as a whole.

mod invariants;
mod tails;

use super::*;

const US: u64 = 1000;

fn preset(name: &str) -> TimingModel {
    let TimingConfig::Model(model) = TimingConfig::preset(name).unwrap() else {
        panic!("{name} has no model")
    };
    model
}

fn device(name: &str) -> Timing {
    Timing::new(preset(name), 2048).unwrap()
}

fn host(op: FlashOp) -> NotedOp {
    NotedOp { op, cause: Cause::Host }
}

fn reclaim(op: FlashOp) -> NotedOp {
    NotedOp { op, cause: Cause::Reclaim }
}

fn reads(first: u32, pages: u32) -> Vec<NotedOp> {
    (first..first + pages).map(|ppn| host(FlashOp::Read { ppn })).collect()
}

fn programs(first: u32, pages: u32) -> Vec<NotedOp> {
    (first..first + pages).map(|ppn| host(FlashOp::Program { ppn })).collect()
}

fn read(timing: &mut Timing, now: u64, first: u32, pages: u32) -> u64 {
    let ops = reads(first, pages);
    timing.schedule(
        now,
        &Command { kind: CommandKind::Read, bytes: u64::from(pages) * PAGE_BYTES, durable: false, ops: &ops },
    )
}

fn write(timing: &mut Timing, now: u64, first: u32, pages: u32) -> u64 {
    let ops = programs(first, pages);
    timing.schedule(
        now,
        &Command {
            kind: CommandKind::Write,
            bytes: u64::from(pages) * PAGE_BYTES,
            durable: false,
            ops: &ops,
        },
    )
}

fn flush(timing: &mut Timing, now: u64) -> u64 {
    timing.schedule(now, &Command { kind: CommandKind::Flush, bytes: 0, durable: false, ops: &[] })
}

fn background(timing: &mut Timing, now: u64, ops: &[NotedOp]) {
    timing.schedule(now, &Command { kind: CommandKind::Background, bytes: 0, durable: false, ops });
}

#[test]
fn a_read_of_an_idle_device_takes_the_sum_of_its_parts() {
    // 2 µs of a core, 18 µs of firmware, 50 µs to sense, 4096 bytes at 450 MB/s and at 3050 MB/s.
    assert_eq!(read(&mut device("tlc"), 1_000_000, 7, 1), 1_000_000 + 2000 + 18_000 + 50_000 + 9103 + 1343);
    assert_eq!(read(&mut device("qlc"), 0, 7, 1), 2000 + 18_000 + 107_000 + 9103 + 1343);
    // 1.8 µs of firmware, 4 µs of media, 4096 bytes at 1600 and 2400 MB/s.
    assert_eq!(read(&mut device("optane"), 0, 7, 1), 1800 + 4000 + 2560 + 1707);
    assert_eq!(read(&mut device("dram"), 0, 7, 1), 1600 + 400 + 100 + 320 + 586);
}

#[test]
fn pages_of_one_flash_page_are_sensed_once_and_dies_work_side_by_side() {
    // Four pages of 4 KiB: one sense, the channel four times; the link sends each as it arrives. Within a
    // slice of 4096 ns the channel does not know who came first: the time it was free in the first one is
    // found.
    let four = read(&mut device("tlc"), 0, 0, 4);
    assert!(
        (20_000 + 50_000 + 36_409 + 1343 - 4096..=20_000 + 50_000 + 36_409 + 1343).contains(&four),
        "{four}"
    );
    // A page on each of eight dies, on eight channels: as fast as one, but for the link.
    let ops: Vec<NotedOp> = (0..8).map(|die| host(FlashOp::Read { ppn: die * 24 })).collect();
    let command = Command { kind: CommandKind::Read, bytes: 8 * PAGE_BYTES, durable: false, ops: &ops };
    let eight = device("tlc").schedule(0, &command);
    assert!(
        (20_000 + 50_000 + 9103 + 10_744 - 4096..=20_000 + 50_000 + 9103 + 10_744).contains(&eight),
        "{eight}"
    );
}

#[test]
fn a_write_is_done_when_it_is_in_the_buffer_and_a_flush_when_it_is_programmed() {
    let mut timing = device("tlc");
    // 2 µs of a core, the link, 5.6 µs and 0.6 µs for the page.
    assert_eq!(write(&mut timing, 0, 0, 1), 2000 + 1343 + 5600 + 600);
    assert_eq!(timing.buffered_pages(), 1);
    // 23 pages of padding: only the one that is there is transferred.
    let programmed = flush(&mut timing, 10_000);
    assert!((10_000 + 9103 + 561_000..10_000 + 2 * 9103 + 561_000).contains(&programmed), "{programmed}");
    assert_eq!(flush(&mut timing, 2_000_000), 2_000_000 + 20_000);
    assert_eq!(timing.buffered_pages(), 0);
}

#[test]
fn a_durable_write_waits_for_its_program_and_so_does_one_without_a_buffer() {
    let mut timing = device("tlc");
    let ops = programs(0, 1);
    let command = Command { kind: CommandKind::Write, bytes: PAGE_BYTES, durable: true, ops: &ops };
    let due = timing.schedule(0, &command);
    assert!((3343 + 9103 + 561_000..3343 + 2 * 9103 + 561_000).contains(&due), "{due}");
    // The pages of one write are programmed side by side.
    let one = write(&mut device("optane"), 0, 0, 1);
    assert!((1800 + 2048 + 2560 + 4000..1800 + 2048 + 2 * 2560 + 4000).contains(&one), "{one}");
    let eight = write(&mut device("optane"), 0, 0, 8);
    let expected = 1800 + 8 * 2048 + 2 * 2560 + 4000;
    assert!((expected - 1024..=expected).contains(&eight), "{eight}");
}

#[test]
fn a_page_that_is_still_in_the_buffer_is_read_from_there() {
    let mut timing = device("tlc");
    write(&mut timing, 0, 100, 24);
    assert_eq!(read(&mut timing, 100_000, 100, 1), 100_000 + 20_000 + 1343);
    // The word line of pages 96 to 119 is complete and being programmed until then.
    let programmed = flush(&mut timing, 150_000);
    assert_eq!(read(&mut timing, programmed - 20_001, 100, 1), programmed - 20_001 + 20_000 + 1343);
    assert_eq!(read(&mut timing, programmed, 100, 1), programmed + 80_446);
}

#[test]
fn bytes_that_no_page_holds_take_only_the_link() {
    let command = Command { kind: CommandKind::Read, bytes: 8192, durable: false, ops: &[] };
    assert_eq!(device("tlc").schedule(0, &command), 20_000 + 2686);
    let command = Command { kind: CommandKind::Other, bytes: 0, durable: false, ops: &[] };
    assert_eq!(device("tlc").schedule(0, &command), 20_000);
}

#[test]
fn commands_wait_for_a_core() {
    let mut timing = device("tlc");
    let idle = |timing: &mut Timing| {
        timing.schedule(0, &Command { kind: CommandKind::Other, bytes: 0, durable: false, ops: &[] })
    };
    // Two cores.
    assert_eq!([(); 5].map(|()| idle(&mut timing)), [20_000, 20_000, 22_000, 22_000, 24_000]);
}

#[test]
fn reclaim_reads_before_it_programs_and_erases_last() {
    // A block on each die is a program of 24 pages.
    let model = TimingModel { block_pages: 24, ..preset("tlc") };
    let mut timing = Timing::new(model, 24).unwrap();
    // A whole word line: 24 pages in six flash pages of die 0 to die 1.
    let mut ops: Vec<NotedOp> = (0..24).map(|ppn| reclaim(FlashOp::Read { ppn })).collect();
    ops.extend((24..48).map(|ppn| reclaim(FlashOp::Program { ppn })));
    ops.push(reclaim(FlashOp::Erase { unit: 0 }));
    background(&mut timing, 0, &ops);
    // The six senses take die 0 for 300 µs, and the last page is there 9.1 µs later or more.
    let erased = host(FlashOp::Erase { unit: 32 });
    let command = Command { kind: CommandKind::Other, bytes: 0, durable: false, ops: &[erased] };
    // Unit 32 is erased on die 0, too, behind unit 0.
    let due = timing.schedule(0, &command);
    let last_page = 300 * US + 4 * 9103;
    let earliest = last_page + 24 * 9103 + 561 * US + 4000 * US - 100 * US;
    assert!((earliest..earliest + 400 * US).contains(&due), "{due}, {earliest}");
}

#[test]
fn a_device_that_starts_again_is_idle_even_at_an_earlier_time() {
    let mut timing = device("tlc");
    // Both cores have been busy.
    write(&mut timing, 5_000_000_000, 0, 250);
    write(&mut timing, 5_000_000_000, 250, 250);
    timing.restart();
    assert_eq!((read(&mut timing, 0, 0, 1), timing.buffered_pages()), (80_446, 0));
    assert!(timing.set_unit_pages(0).is_err() && timing.set_unit_pages(512).is_ok());
}

#[test]
fn the_word_line_that_has_waited_for_longest_is_given_up_first() {
    let mut timing = device("tlc");
    // One for die 0, which is complete; then one page for die 1, and one for die 0 again.
    write(&mut timing, 0, 0, 24);
    write(&mut timing, 0, 24, 1);
    write(&mut timing, 0, 24 * 32, 1);
    assert!(timing.program_oldest());
    assert_eq!(timing.buffer.find(24 * 32), Some(Resident::Collecting));
    assert!(matches!(timing.buffer.find(24), Some(Resident::Program(_))));
    assert!(timing.program_oldest() && !timing.program_oldest());
}

#[test]
fn units_of_no_pages_and_impossible_models_are_refused() {
    let error = Timing::new(preset("tlc"), 0).err().map(|error| error.to_string());
    assert_eq!(error.as_deref(), Some("unit_pages: 0 is not possible; expected at least one page"));
    let model = TimingModel { planes: 17, ..preset("tlc") };
    assert!(TimingConfig::Model(model).build(2048).is_err());
    assert!(TimingConfig::None.build(2048).unwrap().is_none());
}
