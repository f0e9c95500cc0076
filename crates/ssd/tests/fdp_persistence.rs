//! What of Flexible Data Placement survives the process, over a store in a folder.

mod host;

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use host::placement::{
    ENABLE, SAVE, SET_FEATURES, add, blocks_left, delete, event_types, events, fdp_config, flash_config,
    get_placement, host_at, log, set_placement, statistics, statuses, u16_at, u64_at, update, write,
    write_with,
};
use host::state::unsealed;
use host::{DATA, Host, outcome, sqe};
use unvme_spec::{Sqe, Status};
use unvme_ssd::{FileStore, Ssd, SsdConfig, SsdError};

fn open(folder: &Path, config: SsdConfig) -> Result<Arc<Ssd>, SsdError> {
    let bytes = config.store_bytes()?;
    Ssd::new(config, Box::new(FileStore::open(folder, bytes)?))
}

fn start(folder: &Path, config: SsdConfig) -> Host {
    host_at(open(folder, config).expect("a device"))
}

/// The process is gone from one moment to the next.
fn kill(host: Host) {
    std::mem::forget(host.ssd.clone());
}

/// Writes all blocks, 16 at a time, to placement handle 0.
fn fill(host: &mut Host, nsid: u32) {
    for lba in (0..16384).step_by(16) {
        assert_eq!(write_with(host, nsid, lba, 16, 2, 0), Ok(0));
    }
}

/// Set Features of feature 1Eh for all events, saved.
fn save_events(host: &mut Host, nsid: u32, handle: u32) {
    let mut set = Sqe { cdw10: SAVE | 0x1e, cdw11: 6 << 16 | handle, cdw12: 1, ..sqe(SET_FEATURES, nsid) };
    host.memory.write(DATA, &[0, 1, 2, 3, 0x80, 0x81]);
    host.set_prps(&mut set, DATA, 6);
    assert_eq!(host.admin(set), Ok(0));
}

fn usage(host: &mut Host) -> Vec<u8> {
    log(host, 0x21, 0, 72).unwrap()[8..].chunks(8).map(|entry| entry[0]).collect()
}

/// True when a log is another one and perhaps a few events more, for which the oldest have made room.
fn goes_on_from<T: PartialEq>(log: &[T], before: &[T]) -> bool {
    (0..8.min(before.len())).any(|gone| log.starts_with(&before[gone..]))
}

#[test]
fn everything_survives_a_killed_process() {
    let folder = tempfile::tempdir().unwrap();
    let mut host = start(folder.path(), SsdConfig { namespaces: Vec::new(), ..flash_config() });
    assert_eq!(set_placement(&mut host, 2 << 8 | ENABLE), Ok(0));
    let (first, second) = (add(&mut host, 1024, &[6, 1]), add(&mut host, 1024, &[]));
    save_events(&mut host, first, 0);
    // The Data Placement directive of the second one is disabled.
    assert_eq!(host.admin(Sqe { cdw11: 1, cdw12: 0x200, ..sqe(0x19, second) }), Ok(0));
    write(&mut host, first, 0, 0);
    write(&mut host, first, 1, 1);
    assert_eq!(write_with(&mut host, first, 2, 1, 2, 77), Ok(0));
    assert_eq!(update(&mut host, first, &[0]), Ok(0));
    write(&mut host, first, 3, 0);
    let before = events(&mut host, true);
    assert_eq!(before.iter().map(|event| event[0]).collect::<Vec<_>>(), [3, 0]);
    // Events are saved a second after the first one that was not.
    host.clock.advance(Duration::from_millis(1001));
    host.advance();
    host.io(sqe(0, 0xffff_ffff)).expect("Flush");
    let (counted, used) = (statistics(&mut host), usage(&mut host));
    assert_eq!((counted, &used[..]), ([4 * 4096, 4 * 4096, 0], &[0, 1, 0, 0, 0, 0, 1, 2][..]));
    let left: Vec<_> = statuses(&mut host, first);
    kill(host);

    let mut host = start(folder.path(), SsdConfig { namespaces: Vec::new(), ..flash_config() });
    assert_eq!([0, 2].map(|select| get_placement(&mut host, select)), [Ok(0x201), Ok(0x201)]);
    assert_eq!((statistics(&mut host), usage(&mut host)), (counted, used));
    assert_eq!(events(&mut host, true), before);
    assert_eq!(statuses(&mut host, first), left, "units that were open are written further");
    let directives = host.admin_in(Sqe { cdw10: 1023, cdw11: 1, ..sqe(0x1a, second) }, 4096).unwrap();
    assert_eq!(directives[32], 0b001);
    // What is recorded was saved: handle 0 of the first namespace, and no other.
    assert_eq!(write_with(&mut host, first, 0, 1, 2, 78), Ok(0));
    write(&mut host, first, 0, 1);
    assert_eq!(update(&mut host, first, &[1]), Ok(0));
    assert_eq!(event_types(&mut host, true), [3, 0, 3]);
    assert_eq!(u16_at(&events(&mut host, true)[2], 2), 78);
    // It stays saved: a reset goes back to it.
    host.disable();
    host.enable();
    host.create_queue_pair(1, 64);
    assert_eq!(write_with(&mut host, first, 0, 1, 2, 79), Ok(0));
    assert_eq!(event_types(&mut host, true), [3, 0, 3, 3]);
}

#[test]
fn a_killed_process_loses_events_of_one_second_at_most() {
    let folder = tempfile::tempdir().unwrap();
    let mut host = start(folder.path(), fdp_config(0));
    save_events(&mut host, 1, 0);
    assert_eq!(write_with(&mut host, 1, 0, 1, 2, 50), Ok(0));
    host.clock.advance(Duration::from_millis(600));
    assert_eq!(write_with(&mut host, 1, 0, 1, 2, 51), Ok(0));
    host.clock.advance(Duration::from_millis(600));
    assert_eq!(write_with(&mut host, 1, 0, 1, 2, 52), Ok(0));
    kill(host);
    let mut host = start(folder.path(), fdp_config(0));
    let identifiers: Vec<u16> = events(&mut host, true).iter().map(|event| u16_at(event, 2)).collect();
    assert!(identifiers.starts_with(&[50, 51]), "{identifiers:?}");
    // An orderly end loses nothing.
    assert_eq!(write_with(&mut host, 1, 0, 1, 2, 53), Ok(0));
    drop(host);
    let mut host = start(folder.path(), fdp_config(0));
    assert_eq!(events(&mut host, true).last().map(|event| u16_at(event, 2)), Some(53));
}

#[test]
fn a_flush_makes_every_event_before_it_survive_a_killed_process() {
    let folder = tempfile::tempdir().unwrap();
    let mut host = start(folder.path(), fdp_config(0));
    save_events(&mut host, 1, 0);
    let mut expected = Vec::new();
    for round in 0..20u16 {
        // No time passes: what saves the event is the Flush alone, in a turn of its own or in the event's.
        let pid = 100 + round;
        let mut write = Sqe { cdw12: 2 << 20, cdw13: u32::from(pid) << 16, ..sqe(0x01, 1) };
        host.set_prps(&mut write, DATA, 4096);
        let flush = sqe(0, if round % 2 == 0 { 1 } else { 0xffff_ffff });
        if round % 4 < 2 {
            assert_eq!(host.io(write), Ok(0));
            assert_eq!(host.io(flush), Ok(0));
        } else {
            let _ = [write, flush].map(|command| host.push(1, command));
            host.ring(1);
            host.advance();
            let statuses = [(); 2].map(|()| outcome(host.poll(1).expect("a completion")));
            assert_eq!(statuses, [Ok(0); 2]);
        }
        expected.push(pid);
        let before = events(&mut host, true);
        kill(host);
        host = start(folder.path(), fdp_config(0));
        let identifiers: Vec<u16> = events(&mut host, true).iter().map(|event| u16_at(event, 2)).collect();
        assert_eq!(identifiers, expected, "round {round}");
        assert_eq!(events(&mut host, true), before, "round {round}: with their times");
    }
    // Those of the controller as well: units are full, and what is left in them is moved.
    for lba in (0..16384).chain((0..16384).step_by(3)) {
        write(&mut host, 1, lba, 0);
    }
    assert_eq!(host.io(sqe(0, 1)), Ok(0));
    let before = events(&mut host, false);
    assert!(!before.is_empty());
    kill(host);
    let mut host = start(folder.path(), fdp_config(0));
    assert!(goes_on_from(&events(&mut host, false), &before));
}

#[test]
fn events_of_the_controller_survive_too() {
    let folder = tempfile::tempdir().unwrap();
    let mut host = start(folder.path(), fdp_config(0));
    save_events(&mut host, 1, 0);
    // Every third page is written over: what is left of the units is moved.
    fill(&mut host, 1);
    for lba in (0..16384).step_by(3) {
        write(&mut host, 1, lba, 0);
    }
    let before = events(&mut host, false);
    assert!(before.iter().any(|event| event[0] == 0x80), "{before:?}");
    drop(host);
    let mut host = start(folder.path(), fdp_config(0));
    assert!(goes_on_from(&events(&mut host, false), &before));
}

#[test]
fn what_was_written_of_pages_in_part_survives() {
    let folder = tempfile::tempdir().unwrap();
    let config = SsdConfig { flash: fdp_config(0).flash, fdp: Some(0), ..SsdConfig::block(64 << 20, 512) };
    let mut host = start(folder.path(), config.clone());
    // 512 bytes.
    write(&mut host, 1, 5, 1);
    assert_eq!(statistics(&mut host), [512, 4096, 0]);
    drop(host);
    let mut host = start(folder.path(), config);
    assert_eq!(statistics(&mut host), [512, 4096, 0]);
    // Another configuration begins anew.
    assert_eq!(delete(&mut host, 1), Ok(0));
    assert_eq!(set_placement(&mut host, 1 << 8 | ENABLE), Ok(0));
    let nsid = add(&mut host, 1024, &[0]);
    write(&mut host, nsid, 0, 0);
    assert_eq!(statistics(&mut host), [4096, 4096, 0]);
}

#[test]
fn a_configuration_survives_whatever_the_device_is_started_with() {
    let folder = tempfile::tempdir().unwrap();
    let mut host = start(folder.path(), fdp_config(4));
    write(&mut host, 1, 0, 7);
    drop(host);
    // What is saved wins over the first day's.
    let mut host = start(folder.path(), flash_config());
    assert_eq!(get_placement(&mut host, 0), Ok(0x401));
    assert_eq!(blocks_left(&mut host, 1, 7), 255, "units of 1 MiB");
    assert_eq!(delete(&mut host, 1), Ok(0));
    assert_eq!(set_placement(&mut host, 0), Ok(0));
    kill(host);
    let mut host = start(folder.path(), fdp_config(4));
    assert_eq!(get_placement(&mut host, 0), Ok(0));
    assert_eq!(host.ssd.ftl_stats().unwrap().config.unit_pages, 64);
}

#[test]
fn a_process_killed_between_dividing_the_flash_and_saying_so_leaves_a_device_that_starts() {
    let folder = tempfile::tempdir().unwrap();
    let empty = SsdConfig { namespaces: Vec::new(), ..flash_config() };
    let mut host = start(folder.path(), empty.clone());
    let state = fs::read(folder.path().join("state.json")).unwrap();
    assert_eq!(set_placement(&mut host, 4 << 8 | ENABLE), Ok(0));
    kill(host);
    // The flash is divided for configuration 4; the state says that FDP is disabled.
    fs::write(folder.path().join("state.json"), state).unwrap();
    let mut host = start(folder.path(), empty);
    assert_eq!(get_placement(&mut host, 0), Ok(0));
    assert_eq!(host.ssd.ftl_stats().unwrap().config.unit_pages, 64);
    let nsid = add(&mut host, 1024, &[]);
    write(&mut host, nsid, 0, 0);
}

#[test]
fn entries_of_the_error_log_survive() {
    let folder = tempfile::tempdir().unwrap();
    let errors =
        |host: &mut Host| host.admin_in(Sqe { cdw10: 1023 << 16 | 1, ..sqe(0x02, 0) }, 4096).unwrap();
    let mut host = start(folder.path(), fdp_config(0));
    for lba in [20000, 30000] {
        assert_eq!(write_with(&mut host, 1, lba, 1, 0, 0), Err(Status::LBA_OUT_OF_RANGE));
    }
    let before = errors(&mut host);
    assert_eq!([0, 64, 128].map(|at| u64_at(&before, at)), [2, 1, 0], "error counts");
    assert_eq!([16, 80].map(|at| u64_at(&before, at)), [30000, 20000], "blocks");
    drop(host);
    let mut host = start(folder.path(), fdp_config(0));
    assert_eq!(errors(&mut host), before);
    assert_eq!(write_with(&mut host, 1, 40000, 1, 0, 0), Err(Status::LBA_OUT_OF_RANGE));
    let after = errors(&mut host);
    assert_eq!((u64_at(&after, 0), &after[64..192]), (3, &before[..128]));
}

#[test]
fn a_state_file_of_an_older_version_is_read_and_one_that_contradicts_itself_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.json");
    drop(start(folder.path(), fdp_config(0)));
    let good: serde_json::Value = serde_json::from_str(&unsealed(folder.path())).unwrap();
    assert_eq!((&good["version"], &good["fdp"]["configuration"]), (&3.into(), &0.into()));
    let refusal = |state: &serde_json::Value| {
        fs::write(&path, state.to_string()).unwrap();
        match open(folder.path(), fdp_config(0)) {
            Err(error @ SsdError::State { .. }) => error.to_string(),
            Err(other) => panic!("not an error of the state: {other}"),
            Ok(_) => panic!("the state was accepted"),
        }
    };
    for (at, value, expected) in [
        ("/fdp/configuration", serde_json::json!(7), "configuration 7 is not possible"),
        ("/fdp/configuration", serde_json::json!(256), "invalid value"),
        (
            "/fdp",
            serde_json::json!({"configuration": null, "events": [], "host_events": [], "controller_events": [],
            "before": {"host_bytes": 0, "media_bytes": 0, "erased_bytes": 0}}),
            "namespace 1: it has placement handles, but FDP",
        ),
        ("/fdp/events", serde_json::json!([0]), "6 bits per reclaim unit handle"),
        ("/fdp/events", serde_json::json!([64, 0, 0, 0, 0, 0, 0, 0]), "6 bits per reclaim unit handle"),
        ("/fdp/host_events", serde_json::json!(["00"]), "at most 63 of 64 bytes"),
        ("/fdp/host_events", serde_json::json!(vec!["00".repeat(64); 64]), "at most 63 of 64 bytes"),
        ("/fdp/controller_events", serde_json::json!(["00".repeat(64)]), "at most 63 of 64 bytes"),
        ("/namespaces/0/placement", serde_json::json!(null), "it has no placement handles"),
        ("/namespaces/0/placement/ruhs", serde_json::json!([0, 8]), "not different ones of the 8"),
        ("/namespaces/0/placement/ruhs", serde_json::json!([1, 1]), "not different ones of the 8"),
        ("/namespaces/0/placement/ruhs", serde_json::json!([]), "not different ones of the 8"),
        ("/namespaces/0/placement/by_host", serde_json::json!(false), "none of which a host has asked for"),
    ] {
        let mut state = good.clone();
        *state.pointer_mut(at).unwrap() = value;
        let message = refusal(&state);
        assert!(message.contains(expected), "{at}: {message}");
    }
    let mut state = good.clone();
    state["errors"] = serde_json::json!(["00"]);
    assert!(refusal(&state).contains("errors are not at most 64"));
    // Version 2 knows neither FDP nor entries of the error log.
    let mut old = good.clone();
    old["version"] = 2.into();
    old.as_object_mut().unwrap().remove("fdp").unwrap();
    old["namespaces"][0].as_object_mut().unwrap().remove("placement").unwrap();
    fs::write(&path, old.to_string()).unwrap();
    let mut host = start(folder.path(), flash_config());
    assert_eq!(get_placement(&mut host, 0), Ok(0), "what it does not say is disabled");
    drop(host);
    fs::write(&path, good.to_string()).unwrap();
    let plain = SsdConfig { flash: None, fdp: None, ..flash_config() };
    let other = tempfile::tempdir().unwrap();
    fs::write(other.path().join("state.json"), good.to_string()).unwrap();
    fs::File::create(other.path().join("media.img")).unwrap().set_len(plain.store_bytes().unwrap()).unwrap();
    let message = open(other.path(), plain).map(|_| ()).unwrap_err().to_string();
    assert!(message.contains("the device has no flash"), "{message}");
}
