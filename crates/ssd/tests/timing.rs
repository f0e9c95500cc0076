//! A device with a timing: completions are held until they are due, on a virtual clock.

mod host;

use std::time::Duration;

use host::blocks::{COMPARE, FLUSH, READ, SOURCE, WRITE, access, pattern, transfer};
use host::pairs::{RETRIEVE, STORE, standard};
use host::random::Random;
use host::{DATA, Host, attached, config, sqe};
use unvme_bus::{EventFd, Function};
use unvme_flash::timing::{TimingConfig, TimingModel, TimingSpec};
use unvme_spec::{Cqe, Sqe, Status};
use unvme_ssd::{FlashConfig, FlashGeometry, MemoryStore, Ssd, SsdConfig, parse_faults};

/// A 4 KiB read of an idle `tlc` device: 2 µs of a core, 18 µs of firmware, 50 µs to sense, 9103 ns of
/// channel and 1343 of link.
const READ_NS: u64 = 80_446;
/// A 4 KiB write into the buffer: 2 µs of a core, 1343 ns of link, 5.6 µs and 0.6 µs.
const WRITE_NS: u64 = 9543;
/// A command that moves nothing: 2 µs of a core, 18 µs of firmware.
const NOTHING_NS: u64 = 20_000;

fn timed(name: &str) -> SsdConfig {
    SsdConfig { timing: TimingConfig::preset(name).unwrap(), ..config(4096) }
}

/// A host at a device with this timing, with I/O queue pair 1 of `entries` entries.
fn with_queue(name: &str, entries: u32) -> Host {
    let mut host = attached(timed(name));
    host.enable();
    host.create_queue_pair(1, entries);
    host
}

fn read(host: &Host, lba: u64) -> Sqe {
    transfer(host, READ, lba, 1, DATA, 4096)
}

fn write(host: &Host, lba: u64) -> Sqe {
    transfer(host, WRITE, lba, 1, SOURCE, 4096)
}

/// Submits commands on queue 1 and lets the device look at them once.
fn submit(host: &mut Host, commands: &[Sqe]) -> Vec<u16> {
    let cids = commands.iter().map(|&command| host.push(1, command)).collect();
    host.ring(1);
    host.advance();
    cids
}

/// Moves the clock to the next event and lets the device work; the time it is then.
fn jump(host: &Host) -> Option<u64> {
    let next = host.ssd.next_event()?;
    host.clock.advance(Duration::from_nanos(next.saturating_sub(host.clock.now())));
    host.advance();
    Some(next)
}

/// All completions of queue 1 with their times, in the order in which they are posted.
fn drain(host: &mut Host) -> Vec<(u64, Cqe)> {
    let mut all = Vec::new();
    loop {
        while let Some(cqe) = host.poll(1) {
            all.push((host.clock.now(), cqe));
        }
        if host.advance() == 0 && jump(host).is_none() {
            return all;
        }
    }
}

fn outcomes(completions: &[(u64, Cqe)]) -> Vec<(u64, u16, Status)> {
    completions.iter().map(|(time, cqe)| (*time, cqe.cid, cqe.status().kind())).collect()
}

#[test]
fn a_read_is_answered_when_it_is_due_and_not_a_nanosecond_earlier() {
    let mut host = with_queue("tlc", 8);
    assert_eq!(host.ssd.next_event(), None);
    let command = read(&host, 3);
    let cids = submit(&mut host, &[command]);
    assert_eq!((host.peek(1), host.ssd.next_event()), (None, Some(READ_NS)));
    host.clock.advance(Duration::from_nanos(READ_NS - 1));
    assert_eq!((host.advance(), host.peek(1)), (0, None));
    host.clock.advance(Duration::from_nanos(1));
    assert_eq!(host.advance(), 1);
    assert_eq!(host.poll(1).map(|cqe| (cqe.cid, cqe.status())), Some((cids[0], Status::SUCCESS)));
    assert_eq!((host.ssd.next_event(), host.advance()), (None, 0));
}

#[test]
fn a_device_with_parameters_of_its_own_keeps_to_them() {
    // What each adds to a read or to a write of the preset alone.
    for (text, read_ns, write_ns) in [
        ("tlc", READ_NS, WRITE_NS),
        ("tlc,read=90us", READ_NS + 40_000, WRITE_NS),
        ("tlc,command=5us,fixed=1us", READ_NS - 14_000, WRITE_NS + 3000),
        ("tlc,buffer-fixed=7600ns", READ_NS, WRITE_NS + 2000),
    ] {
        let spec: TimingSpec = text.parse().unwrap();
        for (is_read, expected) in [(true, read_ns), (false, write_ns)] {
            let mut host = attached(SsdConfig { timing: spec.config().clone(), ..config(4096) });
            host.enable();
            host.create_queue_pair(1, 8);
            let command = if is_read { read(&host, 3) } else { write(&host, 3) };
            submit(&mut host, &[command]);
            assert_eq!(drain(&mut host)[0].0, expected, "{text}");
        }
    }
}

#[test]
fn without_a_timing_everything_is_answered_at_once() {
    let mut host = with_queue("none", 8);
    let command = read(&host, 3);
    submit(&mut host, &[command]);
    assert!(host.poll(1).is_some());
    assert_eq!(host.ssd.next_event(), None);
}

#[test]
fn each_kind_of_command_has_its_time() {
    let time = |command: fn(&Host) -> Sqe| {
        let mut host = with_queue("tlc", 8);
        let command = command(&host);
        submit(&mut host, &[command]);
        let done = drain(&mut host);
        (done[0].0, done[0].1.status().kind())
    };
    assert_eq!(time(|host| read(host, 0)), (READ_NS, Status::SUCCESS));
    assert_eq!(time(|host| write(host, 0)), (WRITE_NS, Status::SUCCESS));
    assert_eq!(time(|_| sqe(FLUSH, 1)), (NOTHING_NS, Status::SUCCESS));
    // A command that fails is answered as soon as firmware has looked at it.
    assert_eq!(time(|_| sqe(0x7f, 1)), (NOTHING_NS, Status::INVALID_OPCODE));
    // The host's data comes over the link before the media is read.
    let (compared, status) = time(|host| transfer(host, COMPARE, 0, 1, DATA + 8192, 4096));
    assert_eq!((compared, status), (READ_NS, Status::SUCCESS));
    // Force Unit Access: the program has ended.
    let (durable, _) = time(|host| Sqe { cdw12: 1 << 30, ..write(host, 0) });
    assert!((561_000 + 12_000..561_000 + 30_000).contains(&durable), "{durable}");
    // 256 ranges of 16 bytes come over the link.
    let (deallocated, _) = time(|host| {
        let mut command = Sqe { cdw10: 255, cdw11: 4, ..sqe(0x09, 1) };
        host.set_prps(&mut command, DATA, 4096);
        command
    });
    assert_eq!(deallocated, NOTHING_NS + 1343);
}

#[test]
fn a_flush_waits_for_what_was_written_before_it() {
    let mut host = with_queue("tlc", 8);
    let command = write(&host, 0);
    submit(&mut host, &[command]);
    drain(&mut host);
    submit(&mut host, &[sqe(FLUSH, 1)]);
    let flushed = drain(&mut host)[0].0;
    assert!((561_000 + 18_000..561_000 + 40_000).contains(&flushed), "{flushed}");
}

#[test]
fn completions_are_posted_in_the_order_in_which_they_are_due_with_heads_that_never_go_back() {
    let mut host = with_queue("tlc", 8);
    let commands = [read(&host, 0), write(&host, 600), sqe(FLUSH, 1), read(&host, 1200)];
    let cids = submit(&mut host, &commands);
    let done = drain(&mut host);
    let order: Vec<u16> = done.iter().map(|(_, cqe)| cqe.cid).collect();
    assert_eq!(order, [cids[1], cids[0], cids[3], cids[2]]);
    assert!(done.is_sorted_by_key(|(time, _)| *time));
    assert_eq!(done.iter().map(|(_, cqe)| cqe.sq_head).collect::<Vec<_>>(), [4; 4]);
}

#[test]
fn one_command_that_a_rule_delays_does_not_make_the_head_go_back_over_those_answered_at_once() {
    let mut host = with_queue("none", 8);
    let rules =
        parse_faults(r#"{ "match": { "opcode": "read", "lba": "0-0" }, "act": { "delay": "50us" } }"#);
    host.ssd.add_passing_faults(rules.unwrap()).unwrap();
    let commands = [0, 600, 1200].map(|lba| read(&host, lba));
    let cids = submit(&mut host, &commands[..2]);
    let later = submit(&mut host, &commands[2..]);
    let done = drain(&mut host);
    let heads: Vec<_> = done.iter().map(|(time, cqe)| (*time, cqe.cid, cqe.sq_head)).collect();
    assert_eq!(heads, [(0, cids[1], 2), (0, later[0], 3), (50_000, cids[0], 3)]);
}

#[test]
fn a_queue_full_of_held_completions_takes_no_more_commands_and_none_is_lost() {
    // Four entries of which three can be used.
    let mut host = with_queue("tlc", 8);
    host.create_cq(2, 4).unwrap();
    host.create_sq(2, 2, 16).unwrap();
    let cids: Vec<u16> = (0..9)
        .map(|index| {
            let command = read(&host, index * 24);
            host.push(2, command)
        })
        .collect();
    host.ring(2);
    assert_eq!(host.advance(), 3);
    assert_eq!(host.advance(), 0, "there is no place for a fourth");
    let mut done = Vec::new();
    for round in 0..3 {
        while jump(&host).is_some() {}
        // Posted, and still nobody has taken them: their places are theirs.
        assert_eq!(host.advance(), 0);
        for _ in 0..3 {
            let cqe = host.poll(2).expect("three completions");
            done.push(cqe.cid);
        }
        assert_eq!(host.poll(2), None);
        assert_eq!(host.advance(), if round < 2 { 3 } else { 0 });
    }
    assert_eq!(done, cids);
}

#[test]
fn a_command_that_is_held_can_be_aborted_and_others_are_not_touched() {
    let mut host = with_queue("tlc", 8);
    let commands = [read(&host, 0), read(&host, 24)];
    let cids = submit(&mut host, &commands);
    let abort = |cid: u16, qid: u16| Sqe { cdw10: u32::from(cid) << 16 | u32::from(qid), ..sqe(0x08, 0) };
    assert_eq!(host.admin(abort(cids[1], 1)), Ok(0));
    // It is complete before the Abort is; the other one waits for its time.
    assert_eq!(
        host.poll(1).map(|cqe| (cqe.cid, cqe.status().kind())),
        Some((cids[1], Status::ABORT_REQUESTED))
    );
    assert_eq!((host.poll(1), host.ssd.next_event()), (None, Some(READ_NS)));
    // A second time, another queue's, no queue's: not aborted.
    for (cid, qid) in [(cids[1], 1), (cids[0], 2), (cids[0], 77), (cids[0], 0)] {
        assert_eq!(host.admin(abort(cid, qid)), Ok(1));
    }
    assert_eq!(outcomes(&drain(&mut host)), [(READ_NS, cids[0], Status::SUCCESS)]);
}

#[test]
fn a_reset_drops_what_is_held_and_the_next_host_finds_an_idle_device() {
    for level in 0..2 {
        let mut host = with_queue("tlc", 8);
        host.clock.advance(Duration::from_secs(1));
        let commands = [read(&host, 0), write(&host, 24)];
        submit(&mut host, &commands);
        match level {
            0 => host.disable(),
            _ => host.ssd.reset().unwrap(),
        }
        assert_eq!((host.ssd.next_event(), host.advance()), (None, 0));
        host.clock.advance(Duration::from_secs(1));
        host.advance();
        host.forget_queues();
        host.enable();
        host.create_queue_pair(1, 8);
        assert_eq!(host.peek(1), None);
        // As another process would: with a clock that begins anew.
        host.clock = unvme_bus::Clock::manual();
        host.disable();
        host.enable();
        host.create_queue_pair(1, 8);
        let command = read(&host, 0);
        submit(&mut host, &[command]);
        assert_eq!(host.ssd.next_event(), Some(READ_NS));
    }
}

#[test]
fn deleting_a_submission_queue_answers_what_has_been_executed_at_once() {
    let mut host = with_queue("tlc", 8);
    let commands = [read(&host, 0), write(&host, 24), read(&host, 48)];
    let cids = submit(&mut host, &commands);
    assert_eq!(host.admin(Sqe { cdw10: 1, ..sqe(0x00, 0) }), Ok(0));
    let done: Vec<(u16, Status)> =
        std::iter::from_fn(|| host.poll(1)).map(|cqe| (cqe.cid, cqe.status().kind())).collect();
    assert_eq!(done, [(cids[1], Status::SUCCESS), (cids[0], Status::SUCCESS), (cids[2], Status::SUCCESS)]);
    assert_eq!(host.ssd.next_event(), None);
    // Its completion queue can go, and both can come back.
    assert_eq!(host.admin(Sqe { cdw10: 1, ..sqe(0x04, 0) }), Ok(0));
    host.create_queue_pair(1, 8);
    let command = read(&host, 0);
    submit(&mut host, &[command]);
    assert_eq!(drain(&mut host).len(), 1);
}

#[test]
fn two_submission_queues_share_a_completion_queue_and_its_places() {
    let mut host = attached(timed("tlc"));
    host.enable();
    host.create_cq(1, 4).unwrap();
    host.create_sq(1, 1, 8).unwrap();
    host.create_sq(2, 1, 8).unwrap();
    for (qid, lba) in [(1, 0), (2, 24), (1, 48), (2, 72)] {
        let command = read(&host, lba);
        host.push(qid, command);
    }
    host.ring(1);
    host.ring(2);
    assert_eq!(host.advance(), 3, "three of four places");
    let mut heads = Vec::new();
    while jump(&host).is_some() {
        while let Some(cqe) = host.poll(1) {
            heads.push((cqe.sq_id, cqe.sq_head));
        }
        host.advance();
    }
    // The fourth command is taken when the first two have been: queue 2 is at its end when its first one is
    // posted.
    assert_eq!(heads, [(1, 2), (1, 2), (2, 2), (2, 2)]);
}

#[test]
fn an_interrupt_comes_with_the_completion_and_not_with_the_command() {
    let mut host = with_queue("tlc", 8);
    let event = EventFd::new().unwrap();
    host.ssd.set_vector(1, Some(event.clone())).unwrap();
    let command = read(&host, 0);
    submit(&mut host, &[command]);
    assert!(!event.drain());
    jump(&host);
    assert!(event.drain());
    // With coalescing (4 completions or 300 µs), when the time has passed.
    assert!(host.admin(Sqe { cdw10: 0x08, cdw11: 3 << 8 | 3, ..sqe(0x09, 0) }).is_ok());
    host.poll(1);
    submit(&mut host, &[command]);
    let posted = jump(&host).unwrap();
    assert!(host.peek(1).is_some() && !event.drain());
    assert_eq!(jump(&host), Some(posted + 300_000));
    assert!(event.drain());
}

#[test]
fn both_halves_of_a_fused_pair_are_answered_at_one_time_and_in_order() {
    let mut host = with_queue("tlc", 8);
    let compare = Sqe { flags: 1, ..transfer(&host, COMPARE, 0, 1, DATA + 8192, 4096) };
    let write = Sqe { flags: 2, ..write(&host, 0) };
    let cids = submit(&mut host, &[compare, write]);
    let done = outcomes(&drain(&mut host));
    assert_eq!(
        done.iter().map(|(_, cid, status)| (*cid, *status)).collect::<Vec<_>>(),
        [(cids[0], Status::SUCCESS), (cids[1], Status::SUCCESS)]
    );
    assert!(done[0].0 == done[1].0 && done[0].0 >= WRITE_NS, "{done:?}");
}

#[test]
fn data_is_what_it_is_without_a_timing() {
    let mut host = with_queue("qlc", 8);
    host.memory.write(SOURCE, &pattern(9, 4096));
    let command = write(&host, 5);
    submit(&mut host, &[command]);
    drain(&mut host);
    let command = read(&host, 5);
    submit(&mut host, &[command]);
    drain(&mut host);
    assert_eq!(host.bytes(DATA, 4096), pattern(9, 4096));
}

/// Random commands, never more than 16 outstanding: each one's time of completion, command identifier and
/// status.
fn workload(seed: u64) -> Vec<(u64, u16, Status)> {
    let mut host = with_queue("tlc", 32);
    let mut random = Random::new(seed);
    let (mut outstanding, mut done) = (0, Vec::new());
    for _ in 0..3000 {
        let lba = random.below(16_000);
        let command = match random.below(10) {
            0 => access(0x08, lba, 1),
            1..=4 => write(&host, lba),
            5 if random.below(20) == 0 => sqe(FLUSH, 1),
            _ => read(&host, lba),
        };
        submit(&mut host, &[command]);
        outstanding += 1;
        while outstanding >= 16 {
            jump(&host).expect("something is under way");
            while let Some(cqe) = host.poll(1) {
                done.push((host.clock.now(), cqe.cid, cqe.status().kind()));
                outstanding -= 1;
            }
        }
    }
    done.extend(outcomes(&drain(&mut host)));
    done
}

#[test]
fn the_same_seed_twice_gives_the_same_times_to_the_nanosecond() {
    let first = workload(0x5eed);
    assert_eq!(first.len(), 3000);
    assert!(first.is_sorted_by_key(|(time, ..)| *time));
    assert!(first.iter().all(|(_, _, status)| status.is_success()));
    assert_eq!(first, workload(0x5eed));
    assert_ne!(first, workload(0x5eee));
}

/// Writes pages one by one, 16 at a time; returns nanoseconds of each page.
fn write_pages(host: &mut Host, lbas: impl Iterator<Item = u64>) -> u64 {
    let started = host.clock.now();
    let (mut pages, mut outstanding) = (0, 0);
    for lba in lbas {
        let command = write(host, lba);
        submit(host, &[command]);
        (pages, outstanding) = (pages + 1, outstanding + 1);
        while outstanding >= 16 {
            jump(host).expect("something is under way");
            outstanding -= std::iter::from_fn(|| host.poll(1)).count();
        }
    }
    drain(host);
    (host.clock.now() - started) / pages
}

/// A `tlc` device with a translation layer and such units, with an I/O queue pair; and its pages.
fn with_units(unit_bytes: u64) -> (Host, u64) {
    let geometry = FlashGeometry { unit_bytes, ..FlashGeometry::default() };
    let flash = FlashConfig { geometry, ..FlashConfig::default() };
    let config = SsdConfig { flash: Some(flash), ..timed("tlc") };
    let pages = config.bytes / 4096;
    let store = MemoryStore::new(config.store_bytes().unwrap()).unwrap();
    let mut host = Host::attach(host::device_on(config, Box::new(store)));
    host.enable();
    host.create_queue_pair(1, 32);
    (host, pages)
}

#[test]
fn sequential_writes_keep_the_link_busy_whatever_the_size_of_a_unit() {
    for unit_bytes in [64 << 10, 96 << 10, 256 << 10, 1 << 20] {
        let (mut host, pages) = with_units(unit_bytes);
        // Twice, so that units are erased; a page takes the link for 1343 ns.
        let ns = [0; 2].map(|_| write_pages(&mut host, 0..pages));
        assert!(ns.iter().all(|ns| (1330..=1370).contains(ns)), "units of {unit_bytes} bytes: {ns:?} ns");
    }
}

#[test]
fn reclaim_takes_time_that_hosts_feel() {
    let (mut host, pages) = with_units(1 << 20);
    let first = write_pages(&mut host, 0..pages);
    let mut random = Random::new(0xf111);
    let second = write_pages(&mut host, (0..pages).map(|_| random.below(pages)));
    let third = write_pages(&mut host, (0..pages).map(|_| random.below(pages)));
    assert!(first < 5000 && third > 2 * first, "{first} ns a page, then {second}, then {third}");
    // Data is where it belongs all the while.
    let command = read(&host, 77);
    submit(&mut host, &[command]);
    assert!(outcomes(&drain(&mut host))[0].2.is_success());
}

#[test]
fn pairs_have_times_too() {
    let config =
        SsdConfig { timing: TimingConfig::preset("tlc").unwrap(), ..SsdConfig::kv(host::MEDIA_BYTES) };
    let mut host = attached(config);
    host.enable_all();
    host.create_queue_pair(1, 8);
    let value = host.with_value(standard(STORE, b"key"), &pattern(1, 4096));
    let command = Sqe { cdw10: 4096, ..value };
    submit(&mut host, &[command]);
    assert_eq!(outcomes(&drain(&mut host))[0].0, WRITE_NS);
    let started = host.clock.now();
    let command = Sqe { cdw10: 4096, ..host.with_buffer(standard(RETRIEVE, b"key"), 4096) };
    submit(&mut host, &[command]);
    let done = outcomes(&drain(&mut host));
    // It is in the buffer, in part: records do not begin where pages do.
    assert!(done[0].2.is_success() && (20_000..2 * READ_NS).contains(&(done[0].0 - started)), "{done:?}");
    let started = host.clock.now();
    submit(&mut host, &[sqe(FLUSH, 1)]);
    assert!(outcomes(&drain(&mut host))[0].0 - started > 500_000);
}

#[test]
fn what_pairs_program_on_flash_takes_its_time() {
    let flash = FlashConfig {
        geometry: FlashGeometry { unit_bytes: 1 << 20, ..FlashGeometry::default() },
        ..FlashConfig::default()
    };
    let timing = TimingConfig::preset("tlc").unwrap();
    let config = SsdConfig { timing, flash: Some(flash), ..SsdConfig::kv(host::MEDIA_BYTES) };
    let store = MemoryStore::new(config.store_bytes().unwrap()).unwrap();
    let mut host = Host::attach(host::device_on(config, Box::new(store)));
    host.enable_all();
    host.create_queue_pair(1, 8);
    let value = host.with_value(standard(STORE, b"key"), &pattern(1, 8192));
    submit(&mut host, &[Sqe { cdw10: 8192, ..value }]);
    // Into the buffer: the pages that are full, at 600 ns each, and the link for the bytes.
    let stored = outcomes(&drain(&mut host))[0].0;
    assert!((WRITE_NS + 600..WRITE_NS + 5000).contains(&stored), "{stored}");
    // What the translation layer was charged with is in the buffer until it has been programmed.
    submit(&mut host, &[sqe(FLUSH, 1)]);
    let flushed = outcomes(&drain(&mut host))[0].0 - stored;
    assert!((561_000..700_000).contains(&flushed), "{flushed}");
}

#[test]
fn a_timing_that_is_not_possible_is_refused() {
    let TimingConfig::Model(tlc) = TimingConfig::preset("tlc").unwrap() else { panic!("tlc is a model") };
    let timing = TimingConfig::Model(TimingModel { channels: 300, ..tlc });
    let config = SsdConfig { timing, ..config(4096) };
    let store = MemoryStore::null(config.bytes);
    let error = Ssd::new(config, Box::new(store)).err().map(|error| error.to_string());
    assert_eq!(error.as_deref(), Some("timing.channels: 300 is not possible; expected 1 to 256"));
}
