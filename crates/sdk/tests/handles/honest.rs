//! A flush that returns has everything on the device, and what could not be written is told, once.

use unvme::registry::{BlockBytes, DeviceSpec, FtlSpec};
use unvme::{Device, Error, Nsid, OpenOptions, Registry, Size, Status, open};

use crate::{bytes, device, handle, policies};

fn on_the_device(device: &Device, lba: u64, length: usize) -> Vec<u8> {
    let mut out = vec![0; length];
    device.block(Nsid(1)).expect("blocks").read_at(lba, &mut out).expect("read");
    out
}

#[test]
fn what_is_written_back_is_on_the_device_after_a_flush_and_not_before() {
    let device = device("mem:block:16M");
    let handle = handle(&device, "cache=write-back:4M");
    handle.write(3, &bytes(1, 10 * 512)).expect("write");
    assert_eq!(on_the_device(&device, 3, 5120), [0; 5120]);
    assert_eq!(handle.statistics().cache.dirty, 2);
    handle.flush().expect("flush");
    assert_eq!(on_the_device(&device, 3, 5120), bytes(1, 5120));
    assert_eq!(handle.statistics().cache.dirty, 0);
    // Changed and dropped: it is written, too.
    handle.write(3, &bytes(2, 512)).expect("write");
    drop(handle);
    assert_eq!(on_the_device(&device, 3, 512), bytes(2, 512));
}

#[test]
fn no_more_waits_than_may() {
    let device = device("mem:block:64M");
    let handle = handle(&device, "cache=write-back:8M:dirty:1M");
    for at in 0..4096u64 {
        handle.write(at * 16, &[at as u8; 512 * 8]).expect("write");
        assert!(handle.statistics().cache.dirty * 4096 <= 1 << 20, "{:?}", handle.statistics());
    }
    assert!(handle.statistics().cache.written_back > 3000);
}

#[test]
fn what_could_not_be_written_is_told_once_by_the_flush_and_waits_on() {
    let device = device("mem:block:16M");
    let handle = handle(&device, "cache=write-back:4M:dirty:1M");
    let rule = r#"{ "match": { "opcode": "write", "lba": "80-87" }, "act": { "status": "write-fault" } }"#;
    let rules = device.add_faults(rule).expect("rule");
    handle.write(0, &bytes(3, 200 * 512)).expect("it is in memory");
    for _ in 0..2 {
        // The data waits: each flush tries, and each fails.
        let error = handle.flush().expect_err("a block that cannot be written");
        assert_eq!(error.status().map(Status::kind), Some(Status::WRITE_FAULT), "{error}");
        assert!(handle.statistics().cache.dirty > 0);
    }
    // What is not about that block is there all the same.
    assert!(on_the_device(&device, 8, 8 * 512) == bytes(3, 200 * 512)[8 * 512..16 * 512]);
    assert!(on_the_device(&device, 192, 8 * 512) == bytes(3, 200 * 512)[192 * 512..]);
    let mut out = vec![0; 200 * 512];
    handle.read(0, &mut out).expect("it is in memory still");
    assert!(out == bytes(3, 200 * 512));
    device.clear_faults(None).expect("clear");
    let _ = rules;
    handle.flush().expect("now it can be written");
    assert!(on_the_device(&device, 0, 200 * 512) == bytes(3, 200 * 512));
    handle.flush().expect("and that is that");
}

#[test]
fn an_error_that_nobody_asked_for_is_that_of_the_next_flush_once() {
    let device = device("mem:block:64M");
    let handle = handle(&device, "cache=write-back:4M:dirty:64K");
    // The first write that is made to get room fails, and so does that of its first page alone; all later
    // ones work.
    let rule = r#"{ "match": { "opcode": "write", "count": 2 }, "act": { "status": "write-fault" } }"#;
    device.add_faults(rule).expect("rule");
    for at in 0..64u64 {
        handle.write(at * 8, &bytes(at as u8, 4096)).expect("it is not about this one");
    }
    let error = handle.flush().expect_err("something had failed");
    assert_eq!(error.status().map(Status::kind), Some(Status::WRITE_FAULT), "{error}");
    handle.flush().expect("it was told");
    for at in 0..64u64 {
        assert!(on_the_device(&device, at * 8, 4096) == bytes(at as u8, 4096), "{at}");
    }
}

#[test]
fn what_is_lost_with_another_handle_is_told_to_those_who_have_its_blocks() {
    let device = device("mem:block:16M");
    let (one, other) = (handle(&device, "cache=write-back:4M"), handle(&device, "cache=write-back:4M"));
    let apart = device.handle(Nsid(1), &crate::options(1024..2048, "")).expect("handle");
    one.write(0, &bytes(5, 4096)).expect("write");
    // It is in the other one's cache, as the page is.
    other.write(1, &bytes(6, 512)).expect("write");
    let rule = r#"{ "match": { "opcode": "write" }, "act": { "status": "write-fault" } }"#;
    device.add_faults(rule).expect("rule");
    one.close().expect_err("it cannot be written");
    device.clear_faults(None).expect("clear");
    let error = other.flush().expect_err("what was written is not there");
    assert_eq!(error.status().map(Status::kind), Some(Status::WRITE_FAULT), "{error}");
    other.flush().expect("it was told");
    apart.flush().expect("it has nothing to do with it");
}

#[test]
fn a_change_of_policies_that_cannot_write_what_waits_changes_nothing_that_matters() {
    let device = device("mem:block:16M");
    let handle = handle(&device, "cache=write-back:4M");
    handle.write(0, &bytes(5, 8192)).expect("write");
    device
        .add_faults(r#"{ "match": { "opcode": "write" }, "act": { "status": "write-fault" } }"#)
        .expect("rule");
    assert!(matches!(handle.set(&policies("cache=read:1M")), Err(Error::Device { .. })));
    let mut out = vec![0; 8192];
    handle.read(0, &mut out).expect("read");
    assert!(out == bytes(5, 8192));
    device.clear_faults(None).expect("clear");
    handle.set(&policies("cache=read:1M")).expect("now it can");
    assert!(on_the_device(&device, 0, 8192) == bytes(5, 8192));
}

#[test]
fn what_was_flushed_survives_a_power_cut_at_any_write() {
    for cut in [1, 5, 17, 40, 90] {
        let home = tempfile::tempdir().expect("a folder");
        let registry = Registry::at(home.path());
        let mut spec = DeviceSpec::block(Size(64 << 20), BlockBytes::B4096, "S1");
        spec.ftl = Some(FtlSpec::new(Size(64 << 20)));
        registry.create("01:00.0".parse().expect("address"), &spec).expect("create");
        let options = OpenOptions { registry: Some(registry), ..OpenOptions::default() };
        let device = open("01:00.0", &options).expect("open");
        let handle = handle(&device, "cache=write-back:4M:dirty:256K");
        let rule = format!(
            r#"{{ "match": {{ "opcode": "write", "after": {cut} }}, "act": {{ "power_cut": true }} }}"#
        );
        device.add_passing_faults(&rule).expect("rule");
        // Rounds of writes to all of 64 places, each with a flush behind it.
        let mut flushed = 0;
        let mut begun = 0;
        'rounds: for round in 1..=100u8 {
            begun = round;
            for place in 0..64 {
                if handle.write(place * 16, &[round; 4096]).is_err() {
                    break 'rounds;
                }
            }
            if handle.flush().is_err() {
                break;
            }
            flushed = round;
        }
        assert!(begun > flushed, "the power was cut after {cut}");
        drop(handle);
        drop(device);
        let device = open("01:00.0", &options).expect("open it again");
        for place in 0..64 {
            let block = on_the_device(&device, place * 16, 4096);
            let is_whole = block.iter().all(|byte| *byte == block[0]);
            assert!(
                is_whole && (flushed..=begun).contains(&block[0]),
                "cut {cut}: block of round {}, flushed {flushed}, begun {begun}",
                block[0]
            );
        }
    }
}
