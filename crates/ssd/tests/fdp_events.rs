//! FDP events: which are recorded, when, and what they say. Time is virtual.

mod host;

use std::time::Duration;

use host::placement::{
    ENABLE, GET_FEATURES, NO_EVENTS, SET_FEATURES, add, blocks_left, delete, event_types, events, fdp_config,
    log, set_all_events, set_events, set_placement, started, statistics, statuses, u16_at, u32_at, u64_at,
    update, write, write_with,
};
use host::random::Random;
use host::{DATA, Host, sqe};
use unvme_spec::{Sqe, Status};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Types of events with their attributes, as Get Features of feature 1Eh lists them.
fn supported(host: &mut Host, nsid: u32, handle: u32, select: u32) -> Result<Vec<(u8, u8)>, Status> {
    let get = Sqe { cdw10: select << 8 | 0x1e, cdw11: handle, ..sqe(GET_FEATURES, nsid) };
    let mut with_data = get;
    host.memory.fill(DATA, 16, 0xee);
    host.set_prps(&mut with_data, DATA, 12);
    let count = host.admin(with_data)? as usize;
    Ok(host.bytes(DATA, count * 2).chunks(2).map(|pair| (pair[0], pair[1])).collect())
}

fn set_timestamp(host: &mut Host, milliseconds: u64) {
    let mut set = Sqe { cdw10: 0x0e, ..sqe(SET_FEATURES, 0) };
    host.memory.write(DATA, &milliseconds.to_le_bytes());
    host.set_prps(&mut set, DATA, 8);
    assert_eq!(host.admin(set), Ok(0));
}

#[test]
fn which_events_are_recorded_is_set_for_each_handle() {
    let mut host = started(fdp_config(0));
    let none: Vec<(u8, u8)> = [0, 1, 2, 3, 0x80, 0x81].map(|event| (event, 0)).to_vec();
    assert_eq!(supported(&mut host, 1, 0, 0), Ok(none.clone()));
    assert_eq!(set_events(&mut host, 1, 2, &[3, 0x80], true), Ok(0));
    let some: Vec<(u8, u8)> = vec![(0, 0), (1, 0), (2, 0), (3, 1), (0x80, 1), (0x81, 0)];
    assert_eq!(supported(&mut host, 1, 2, 0), Ok(some.clone()));
    assert_eq!(supported(&mut host, 1, 1, 0), Ok(none.clone()), "another handle");
    assert_eq!([1, 2].map(|select| supported(&mut host, 1, 2, select)), [Ok(none.clone()), Ok(none.clone())]);
    assert_eq!(set_events(&mut host, 1, 2, &[0x80, 0x81], false), Ok(0));
    assert_eq!(supported(&mut host, 1, 2, 0).unwrap()[3..], [(3, 1), (0x80, 0), (0x81, 0)]);
    let capabilities = Sqe { cdw10: 3 << 8 | 0x1e, ..sqe(GET_FEATURES, 1) };
    assert_eq!(host.admin(capabilities), Ok(0b111), "changeable, of a namespace, saveable");
}

#[test]
fn what_is_not_saved_ends_with_a_reset() {
    let mut host = started(fdp_config(0));
    let mut save = Sqe { cdw10: 1 << 31 | 0x1e, cdw11: 1 << 16 | 2, cdw12: 1, ..sqe(SET_FEATURES, 1) };
    host.memory.write(DATA, &[3]);
    host.set_prps(&mut save, DATA, 1);
    assert_eq!(host.admin(save), Ok(0));
    assert_eq!(set_events(&mut host, 1, 2, &[0], true), Ok(0));
    assert_eq!(supported(&mut host, 1, 2, 0).unwrap()[..4], [(0, 1), (1, 0), (2, 0), (3, 1)]);
    assert_eq!(supported(&mut host, 1, 2, 2).unwrap()[..4], [(0, 0), (1, 0), (2, 0), (3, 1)], "saved");
    host.disable();
    host.enable();
    assert_eq!(supported(&mut host, 1, 2, 0).unwrap()[..4], [(0, 0), (1, 0), (2, 0), (3, 1)]);
}

#[test]
fn setting_events_refuses_what_is_not_there() {
    let mut host = started(fdp_config(0));
    let invalid_field = Err(Status::INVALID_FIELD);
    assert_eq!(set_events(&mut host, 1, 8, &[0], true), invalid_field, "a placement handle too many");
    assert_eq!(set_events(&mut host, 1, 0xffff, &[0], true), invalid_field);
    for unknown in [4, 0x70, 0x7f, 0x82, 0xf0, 0xff] {
        assert_eq!(set_events(&mut host, 1, 0, &[0, unknown], true), invalid_field, "type {unknown:#x}");
    }
    assert_eq!(supported(&mut host, 1, 0, 0).unwrap()[0], (0, 0), "nothing of a list with a bad one is set");
    assert_eq!(set_events(&mut host, 2, 0, &[0], true), invalid_field, "no such namespace");
    for nsid in [0, 0xffff_ffff] {
        assert_eq!(set_events(&mut host, nsid, 0, &[0], true), Err(Status::INVALID_NAMESPACE_OR_FORMAT));
    }
    assert_eq!(supported(&mut host, 1, 8, 0), Err(Status::INVALID_FIELD));
    assert_eq!(set_events(&mut host, 1, 0, &[], true), Ok(0), "no types");
    assert_eq!(delete(&mut host, 1), Ok(0));
    assert_eq!(set_placement(&mut host, 0), Ok(0));
    let nsid = add(&mut host, 64, &[]);
    assert_eq!(set_events(&mut host, nsid, 0, &[0], true), Err(Status::FDP_DISABLED));
    assert_eq!(supported(&mut host, nsid, 0, 0), Err(Status::FDP_DISABLED));
}

#[test]
fn a_unit_that_is_open_for_too_long_is_replaced() {
    // Configuration 5: a day.
    let mut host = started(fdp_config(5));
    set_all_events(&mut host, 1, 3);
    assert!(
        statuses(&mut host, 1).iter().all(|status| status.seconds == 86400),
        "units that are empty have all the time"
    );
    write(&mut host, 1, 0, 3);
    write(&mut host, 1, 1, 4);
    host.clock.advance(Duration::from_millis(86_399_001));
    let seconds = |host: &mut Host| statuses(host, 1).iter().map(|status| status.seconds).collect::<Vec<_>>();
    host.advance();
    assert_eq!(seconds(&mut host), [86400, 86400, 86400, 1, 1, 86400, 86400, 86400]);
    assert_eq!(event_types(&mut host, true), NO_EVENTS);
    host.clock.advance(Duration::from_millis(999));
    // Any turn of the device sees that the time is over, before anything is written.
    write(&mut host, 1, 2, 3);
    assert_eq!([3, 4].map(|pid| blocks_left(&mut host, 1, pid)), [63, 64]);
    let seen = events(&mut host, true);
    let [event] = &seen[..] else { panic!("{seen:?}: handle 4 records nothing") };
    assert_eq!((event[0], event[1], u16_at(event, 2), u32_at(event, 12)), (1, 0b111, 3, 1));
    assert_eq!((u16_at(event, 32), u16_at(event, 34)), (0, 3));
    assert_eq!(u64_at(event, 4) & 0xffff_ffff_ffff, 86_400_000, "milliseconds since the reset");
    assert_eq!(seconds(&mut host), [86400; 8], "the new unit has all the time");
    // A unit that is filled in time does not run out.
    for lba in 0..63 {
        write(&mut host, 1, lba, 3);
    }
    host.clock.advance(DAY);
    host.advance();
    assert_eq!(event_types(&mut host, true), [1]);
    assert_eq!(statuses(&mut host, 1)[3].seconds, 86400);
}

#[test]
fn a_subsystem_reset_closes_open_units_and_a_controller_reset_does_not() {
    let mut host = started(fdp_config(0));
    let mut save = Sqe { cdw10: 1 << 31 | 0x1e, cdw11: 2 << 16 | 1, cdw12: 1, ..sqe(SET_FEATURES, 1) };
    host.memory.write(DATA, &[2, 3]);
    host.set_prps(&mut save, DATA, 2);
    assert_eq!(host.admin(save), Ok(0));
    write(&mut host, 1, 0, 1);
    write(&mut host, 1, 1, 5);
    host.disable();
    host.enable();
    host.create_queue_pair(1, 64);
    assert_eq!(event_types(&mut host, true), NO_EVENTS);
    assert_eq!(blocks_left(&mut host, 1, 1), 63);
    // "NVMe" to NSSR.
    host.write32(0x20, 0x4e56_4d65);
    host.forget_queues();
    host.enable();
    host.create_queue_pair(1, 64);
    let seen = events(&mut host, true);
    let [event] = &seen[..] else { panic!("{seen:?}: handle 5 records nothing") };
    assert_eq!((event[0], event[1]), (2, 0b100), "its location only");
    assert_eq!((u16_at(event, 2), u32_at(event, 12), u16_at(event, 34)), (0, 0, 1));
    assert_eq!([1, 5].map(|pid| blocks_left(&mut host, 1, pid)), [64, 64]);
}

#[test]
fn moved_data_is_a_controller_event_when_it_was_initially_isolated() {
    // Configuration 2: handles 0 to 3 initially, 4 to 7 persistently isolated.
    let mut host = started(fdp_config(2));
    for handle in 0..8 {
        set_all_events(&mut host, 1, handle);
    }
    // What lives beside what dies: blocks of each handle all over the device, written again and again.
    let mut random = Random::new(0x5eed_0e80);
    for _ in 0..3 * 16384 / 8 {
        let lba = random.below(16384 / 8) * 8;
        let pid = if lba.is_multiple_of(16) { 1 } else { 5 };
        assert_eq!(write_with(&mut host, 1, lba, 8, 2, pid), Ok(0));
    }
    let [written, programmed, _] = statistics(&mut host);
    assert!(programmed > written, "reclaim has moved something");
    let seen = events(&mut host, false);
    assert!(seen.iter().any(|event| event[1] & 0b100 != 0), "reclaim has moved data of handle 1");
    for event in &seen {
        assert_eq!((event[0], event[1] & !0b111), (0x80, 0));
        let (flags, moved, first) = (event[16], u16_at(event, 18), u64_at(event, 20));
        assert_eq!(flags, 1, "LBAV");
        assert!((1..=64).contains(&moved), "NLBAM {moved} of a unit of 64 blocks");
        assert!(first < 16384, "an LBA of the namespace: {first}");
        if event[1] & 0b100 != 0 {
            assert_eq!((event[1], u16_at(event, 2), u32_at(event, 12)), (0b111, 1, 1));
            assert_eq!(
                (u16_at(event, 32), u16_at(event, 34)),
                (0, 1),
                "never a persistently isolated handle"
            );
        }
    }
    assert!(event_types(&mut host, true).is_empty(), "no host event");
}

#[test]
fn the_log_keeps_the_last_63_events_in_order() {
    let mut host = started(fdp_config(0));
    set_all_events(&mut host, 1, 0);
    for number in 0..70 {
        assert_eq!(write_with(&mut host, 1, 0, 1, 2, 0x1000 + number), Ok(0));
    }
    let identifiers: Vec<u16> = events(&mut host, true).iter().map(|event| u16_at(event, 2)).collect();
    assert_eq!(identifiers, (0x1007..0x1046).collect::<Vec<u16>>());
    let whole = log(&mut host, 0x23, 1, 4096).unwrap();
    let numdl = 15 << 16;
    let part = Sqe { cdw10: numdl | 1 << 8 | 0x23, cdw11: 1 << 16, cdw12: 128, ..sqe(0x02, 0) };
    assert_eq!(host.admin_in(part, 64).unwrap(), whole[128..192], "from an offset");
    assert_eq!(event_types(&mut host, false), NO_EVENTS, "host events are not the controller's");
}

#[test]
fn events_have_the_time_of_the_timestamp_feature() {
    let mut host = started(fdp_config(0));
    set_all_events(&mut host, 1, 0);
    host.clock.advance(Duration::from_millis(1500));
    assert_eq!(write_with(&mut host, 1, 0, 1, 2, 99), Ok(0));
    set_timestamp(&mut host, 1_700_000_000_000);
    host.clock.advance(Duration::from_secs(2));
    write(&mut host, 1, 0, 0);
    assert_eq!(update(&mut host, 1, &[0]), Ok(0));
    host.clock.advance(DAY);
    let times: Vec<(u64, u8)> = events(&mut host, true)
        .iter()
        .map(|event| (u64_at(event, 4) & 0xffff_ffff_ffff, event[10]))
        .collect();
    assert_eq!(times.len(), 2);
    // Nobody had set it before: the count starts when features are first looked at after the reset.
    assert_eq!(times[0].1, 0, "origin: the reset");
    assert!(times[0].0 <= 1500);
    assert_eq!(times[1], (1_700_000_002_000, 2), "origin: set by the host");
}

#[test]
fn another_configuration_begins_with_empty_logs() {
    let mut host = started(fdp_config(0));
    set_all_events(&mut host, 1, 0);
    assert_eq!(write_with(&mut host, 1, 0, 1, 2, 99), Ok(0));
    assert_eq!(event_types(&mut host, true), [3]);
    assert_eq!(delete(&mut host, 1), Ok(0));
    assert_eq!(event_types(&mut host, true), [3], "the namespace is gone, what happened is not");
    assert_eq!(set_placement(&mut host, 1 << 8 | ENABLE), Ok(0));
    assert_eq!(event_types(&mut host, true), NO_EVENTS);
    let nsid = add(&mut host, 1024, &[0]);
    assert_eq!(supported(&mut host, nsid, 0, 0).unwrap()[3], (3, 0), "and nothing is recorded");
}
