//! What survives the process, over a store in a folder.

mod host;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use host::state::unsealed;
use host::{BASE, DATA, Host, MEDIA_BYTES, config, sqe};
use unvme_spec::{Sqe, Status};
use unvme_ssd::{FileStore, NamespaceConfig, NamespaceKind, Ssd, SsdConfig, SsdError, firmware_image};

fn two_namespaces() -> SsdConfig {
    let namespaces = vec![
        NamespaceConfig { bytes: Some(16 << 20), kind: NamespaceKind::Blocks(512) },
        NamespaceConfig { bytes: None, kind: NamespaceKind::Blocks(4096) },
    ];
    SsdConfig { namespaces, ..config(512) }
}

fn open(folder: &Path) -> Result<Arc<Ssd>, SsdError> {
    Ssd::new(two_namespaces(), Box::new(FileStore::open(folder, MEDIA_BYTES)?))
}

fn start(folder: &Path) -> Host {
    let mut host = Host::attach(open(folder).expect("a device"));
    host.enable();
    host.create_queue_pair(1, 64);
    host
}

/// The process is gone from one moment to the next.
fn kill(host: Host) {
    std::mem::forget(host.ssd.clone());
}

fn identify(host: &mut Host, cns: u32, nsid: u32) -> Vec<u8> {
    host.admin_in(Sqe { cdw10: cns, ..sqe(0x06, nsid) }, 4096).expect("Identify")
}

fn write(host: &mut Host, nsid: u32, block: u32, value: u8, cdw12: u32) -> Result<u64, Status> {
    host.memory.fill(DATA, 4096, value);
    let mut sqe = Sqe { cdw10: block, cdw12, ..sqe(0x01, nsid) };
    sqe.dptr = [BASE + DATA as u64, 0];
    host.io(sqe)
}

fn read(host: &mut Host, nsid: u32, block: u32) -> Result<u8, Status> {
    let mut sqe = Sqe { cdw10: block, ..sqe(0x02, nsid) };
    sqe.dptr = [BASE + DATA as u64, 0];
    host.io(sqe)?;
    Ok(host.bytes(DATA, 1)[0])
}

fn mark(host: &mut Host, block: u32) {
    host.io(Sqe { cdw10: block, ..sqe(0x04, 1) }).expect("Write Uncorrectable");
}

fn flush(host: &mut Host) {
    host.io(sqe(0x00, 0xffff_ffff)).expect("Flush");
}

fn smart(host: &mut Host) -> Vec<u8> {
    host.admin_in(Sqe { cdw10: 127 << 16 | 2, ..sqe(0x02, 0xffff_ffff) }, 512).expect("Get Log Page")
}

fn u64_at(page: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(page[at..at + 8].try_into().unwrap())
}

const FUA: u32 = 1 << 30;

#[test]
fn namespaces_and_data_survive_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let mut host = start(folder.path());
    write(&mut host, 1, 3, 7, 0).unwrap();
    write(&mut host, 2, 3, 8, 0).unwrap();
    host.admin(Sqe { cdw10: 1, ..sqe(0x80, 1) }).expect("Format NVM");
    let before = [identify(&mut host, 0x00, 1), identify(&mut host, 0x00, 2)];
    drop(host);
    let mut host = start(folder.path());
    assert_eq!([identify(&mut host, 0x00, 1), identify(&mut host, 0x00, 2)], before);
    assert_eq!(u64_at(&before[0], 0), 4096, "formatted to 4 KiB blocks, not what the configuration says");
    assert_eq!((read(&mut host, 1, 3), read(&mut host, 2, 3)), (Ok(0), Ok(8)));
}

#[test]
fn a_killed_process_loses_no_admin_command_and_nothing_that_was_flushed() {
    let folder = tempfile::tempdir().unwrap();
    let mut host = start(folder.path());
    mark(&mut host, 5);
    mark(&mut host, 6);
    write(&mut host, 1, 6, 1, 0).unwrap();
    flush(&mut host);
    let image = firmware_image("7.7", &[]);
    host.memory.write(DATA, &image);
    let mut download = Sqe { cdw10: image.len() as u32 / 4 - 1, ..sqe(0x11, 0) };
    host.set_prps(&mut download, DATA, image.len());
    host.admin(download).expect("Firmware Image Download");
    host.admin(Sqe { cdw10: 2 | 1 << 3, ..sqe(0x10, 0) }).expect("Firmware Commit");
    // Arbitration, saved.
    host.admin(Sqe { cdw10: 0x8000_0001, cdw11: 3, ..sqe(0x09, 0) }).expect("Set Features");
    host.admin(Sqe { cdw10: 1, ..sqe(0x0d, 2) }).expect("Namespace Management");
    kill(host);

    let mut host = start(folder.path());
    assert_eq!(read(&mut host, 1, 5), Err(Status::UNRECOVERED_READ_ERROR), "the mark");
    assert_eq!(read(&mut host, 1, 6), Ok(1), "the mark that was written over");
    assert_eq!(&identify(&mut host, 0x01, 0)[64..72], b"7.7     ", "a power cycle activates the firmware");
    assert_eq!(host.admin(Sqe { cdw10: 0x01, ..sqe(0x0a, 0) }), Ok(3), "Get Features");
    assert_eq!(identify(&mut host, 0x10, 0)[..8], [1, 0, 0, 0, 0, 0, 0, 0], "namespace 2 is gone");
}

#[test]
fn a_mark_that_is_written_over_with_fua_is_gone_for_good() {
    let folder = tempfile::tempdir().unwrap();
    let mut host = start(folder.path());
    mark(&mut host, 5);
    flush(&mut host);
    write(&mut host, 1, 5, 4, FUA).unwrap();
    kill(host);
    assert_eq!(read(&mut start(folder.path()), 1, 5), Ok(4));
}

#[test]
fn without_a_write_cache_marks_and_what_undoes_them_survive_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let cache_off = Sqe { cdw10: 0x06, ..sqe(0x09, 0) };
    let bad = Err(Status::UNRECOVERED_READ_ERROR);
    let mut host = start(folder.path());
    mark(&mut host, 5);
    host.admin(cache_off).expect("Set Features");
    kill(host);
    let mut host = start(folder.path());
    assert_eq!(read(&mut host, 1, 5), bad, "marked before the cache was switched off");
    host.admin(cache_off).expect("Set Features");
    mark(&mut host, 6);
    // Dataset Management: deallocate block 5.
    host.memory.write(DATA, &[0, 0, 0, 0, 1, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0]);
    let mut deallocate = Sqe { cdw11: 0b100, ..sqe(0x09, 1) };
    host.set_prps(&mut deallocate, DATA, 16);
    host.io(deallocate).expect("Dataset Management");
    kill(host);
    let mut host = start(folder.path());
    assert_eq!((read(&mut host, 1, 5), read(&mut host, 1, 6)), (Ok(0), bad));
}

#[test]
fn a_flush_writes_the_state_only_when_it_has_changed() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state.json");
    let mut host = start(folder.path());
    flush(&mut host);
    fs::remove_file(&state).unwrap();
    write(&mut host, 1, 0, 1, FUA).unwrap();
    flush(&mut host);
    assert!(!state.exists(), "nothing has changed");
    mark(&mut host, 9);
    assert!(!state.exists(), "not flushed");
    flush(&mut host);
    assert!(state.exists());
    fs::remove_file(&state).unwrap();
    write(&mut host, 1, 10, 1, 0).unwrap();
    flush(&mut host);
    assert!(!state.exists(), "an unmarked block");
    write(&mut host, 1, 9, 1, 0).unwrap();
    flush(&mut host);
    assert!(state.exists(), "a marked block");
}

#[test]
fn counters_survive_a_shutdown_and_go_on_from_there() {
    let folder = tempfile::tempdir().unwrap();
    let mut host = start(folder.path());
    for block in 0..3 {
        write(&mut host, 1, block, 1, 0).unwrap();
    }
    read(&mut host, 1, 0).unwrap();
    host.admin(sqe(0xff, 0)).expect_err("Invalid Command Opcode");
    drop(host);
    let mut host = start(folder.path());
    read(&mut host, 1, 0).unwrap();
    let log = smart(&mut host);
    assert_eq!((u64_at(&log, 64), u64_at(&log, 80)), (2, 3), "Host Read and Write Commands");
    assert_eq!((u64_at(&log, 112), u64_at(&log, 144)), (2, 0), "Power Cycles, Unsafe Shutdowns");
    assert_eq!(u64_at(&log, 176), 1, "Number of Error Information Log Entries");
    kill(host);
    let log = smart(&mut start(folder.path()));
    assert_eq!((u64_at(&log, 112), u64_at(&log, 144)), (3, 1), "Power Cycles, Unsafe Shutdowns");
}

#[test]
fn what_a_dead_process_left_on_free_media_is_never_seen() {
    let folder = tempfile::tempdir().unwrap();
    let mut host = start(folder.path());
    write(&mut host, 2, 0, 9, FUA).unwrap();
    drop(host);
    // The deletion of namespace 2 was saved, and its space not given back.
    edit(folder.path(), |state| {
        state["namespaces"].as_array_mut().unwrap().pop();
    });
    let mut host = start(folder.path());
    host.memory.fill(DATA, 4096, 0);
    host.memory.write(DATA, &4096u64.to_le_bytes());
    host.memory.write(DATA + 8, &4096u64.to_le_bytes());
    host.memory.write(DATA + 26, &[1]);
    let mut create = sqe(0x0d, 0);
    create.dptr = [BASE + DATA as u64, 0];
    assert_eq!(host.admin(create), Ok(2));
    host.memory.fill(DATA, 4096, 0);
    host.memory.write(DATA, &[1, 0, 0, 0]);
    let mut attach = sqe(0x15, 2);
    attach.dptr = [BASE + DATA as u64, 0];
    host.admin(attach).expect("Namespace Attachment");
    write(&mut host, 2, 1, 1, 0).unwrap();
    assert_eq!(read(&mut host, 2, 0), Ok(0));
}

#[test]
fn the_first_day_follows_the_configuration() {
    let try_with = |namespaces: &[(Option<u64>, u32)]| {
        let folder = tempfile::tempdir().unwrap();
        let namespaces = namespaces
            .iter()
            .map(|&(bytes, block_bytes)| NamespaceConfig { bytes, kind: NamespaceKind::Blocks(block_bytes) });
        let config = SsdConfig { namespaces: namespaces.collect(), ..config(512) };
        let ssd = Ssd::new(config, Box::new(FileStore::open(folder.path(), MEDIA_BYTES)?))?;
        let mut host = Host::attach(ssd);
        host.enable();
        let sizes: Vec<u64> = (1..=3).map(|nsid| u64_at(&identify(&mut host, 0x00, nsid), 0)).collect();
        Ok::<_, SsdError>(sizes)
    };
    assert_eq!(try_with(&[]).unwrap(), [0, 0, 0]);
    assert_eq!(try_with(&[(None, 512)]).unwrap(), [131_072, 0, 0]);
    // What is left is counted in pieces of 2 MiB, wherever the namespace is in the list.
    let sizes = try_with(&[(Some(5 << 20), 512), (None, 4096), (Some(512), 512)]).unwrap();
    assert_eq!(sizes, [10_240, 14_336, 1]);
    for bad in [
        &[(Some(0), 512)][..],
        &[(Some(513), 512)],
        &[(Some(512), 4096)],
        &[(Some(MEDIA_BYTES + 512), 512)],
        &[(Some(u64::MAX - 4095), 4096), (Some(u64::MAX - 4095), 4096)],
        &[(None, 512), (None, 512)],
        &[(Some(MEDIA_BYTES), 512), (None, 512)],
    ] {
        let error = try_with(bad).expect_err("an error");
        assert!(matches!(error, SsdError::Config { key: "namespaces", .. }), "{bad:?}: {error}");
    }
}

fn edit(folder: &Path, change: impl FnOnce(&mut serde_json::Value)) {
    let mut state = serde_json::from_str(&unsealed(folder)).unwrap();
    change(&mut state);
    fs::write(folder.join("state.json"), serde_json::to_vec_pretty(&state).unwrap()).unwrap();
}

#[test]
fn a_state_file_that_was_changed_is_refused_and_so_is_one_of_a_later_version() {
    let folder = tempfile::tempdir().unwrap();
    drop(start(folder.path()));
    let path = folder.path().join("state.json");
    let good = fs::read_to_string(&path).unwrap();
    for changed in [
        good.replace("\"block_bytes\": 512", "\"block_bytes\": 4096"),
        good.replace("\"attached\": true", "\"attached\": false"),
        unsealed(folder.path()).replace("\"version\": 3", "\"version\": 4"),
    ] {
        assert_ne!(changed, good);
        fs::write(&path, changed).unwrap();
        let message = refusal(folder.path());
        assert!(message.contains("checksum") && message.contains("state.json"), "{message}");
    }
    // The checksum is not looked at in a file whose format is not known.
    fs::write(&path, unsealed(folder.path()).replace("\"version\": 3", "\"version\": 5")).unwrap();
    let error = open(folder.path()).map(drop).unwrap_err();
    assert!(matches!(error, SsdError::Newer { found: 5, .. }), "{error}");
    assert!(!error.to_string().contains("create it again"), "{error}");
    fs::write(&path, good).unwrap();
    open(folder.path()).expect("the good one again");
}

#[test]
fn files_that_do_not_belong_together_are_refused_and_nothing_is_changed() {
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write(&mut start(folder.path()), 1, 0, 1, 0).unwrap();
    drop(start(other.path()));
    let (state, media) = (folder.path().join("state.json"), folder.path().join("media.img"));
    let (good_state, good_media) = (fs::read(&state).unwrap(), fs::read(&media).unwrap());
    let refused = |expected: &[&str]| {
        let before = (fs::read(&state).ok(), fs::read(&media).ok());
        let message = refusal(folder.path());
        assert!(expected.iter().all(|word| message.contains(word)), "{message}");
        assert!((fs::read(&state).ok(), fs::read(&media).ok()) == before, "nothing is changed");
    };
    fs::remove_file(&state).unwrap();
    refused(&["state.json", "missing"]);
    fs::copy(other.path().join("state.json"), &state).unwrap();
    refused(&["media.img", "another device"]);
    fs::write(&state, &good_state).unwrap();
    fs::remove_file(&media).unwrap();
    refused(&["media.img", "missing"]);
    assert!(!media.exists());
    fs::write(&media, b"").unwrap();
    refused(&["media.img", "0 bytes"]);
    fs::copy(other.path().join("media.img"), &media).unwrap();
    refused(&["media.img", "another device"]);
    // Emptied, and as large as before again.
    for bytes in [MEDIA_BYTES, good_media.len() as u64] {
        fs::write(&media, b"").unwrap();
        fs::OpenOptions::new().write(true).open(&media).unwrap().set_len(bytes).unwrap();
        refused(&["media.img", "holds nothing", "create it again"]);
    }
    // The page that says whose the data is can be lost: the state knows it, too.
    let mut damaged = good_media.clone();
    damaged[MEDIA_BYTES as usize..].fill(0);
    fs::write(&media, &damaged).unwrap();
    drop(start(folder.path()));
    assert!(fs::read(&media).unwrap()[MEDIA_BYTES as usize..] == good_media[MEDIA_BYTES as usize..]);
    // Both are lost: there is data, and nobody knows whose chunks it is in.
    fs::remove_file(&state).unwrap();
    let mut data = damaged;
    data[1 << 20] = 1;
    fs::write(&media, &data).unwrap();
    refused(&["state.json", "missing"]);
}

#[test]
fn a_label_that_is_written_again_says_that_there_is_a_state() {
    for old in ["damaged", "from before the state"] {
        let folder = tempfile::tempdir().unwrap();
        let (state, media) = (folder.path().join("state.json"), folder.path().join("media.img"));
        if old == "damaged" {
            write(&mut start(folder.path()), 1, 0, 1, 0).unwrap();
            fs::OpenOptions::new().write(true).open(&media).unwrap().set_len(MEDIA_BYTES).unwrap();
        } else {
            // As a process leaves it that is killed when it has saved the first state.
            drop(FileStore::open(folder.path(), MEDIA_BYTES).unwrap());
            let first = fs::read(&media).unwrap();
            drop(start(folder.path()));
            fs::write(&media, first).unwrap();
        }
        // Killed before it saves anything.
        drop(FileStore::open(folder.path(), MEDIA_BYTES).unwrap());
        fs::remove_file(&state).unwrap();
        let error = FileStore::open(folder.path(), MEDIA_BYTES).map(drop).expect_err(old).to_string();
        assert!(error.contains("state.json") && error.contains("missing"), "{old}: {error}");
    }
}

/// Bytes that this thread has written, and taken back before they were on their way to a disk; `None` where
/// the system does not count them.
fn taken_back() -> Option<u64> {
    let counters = fs::read_to_string("/proc/thread-self/io").ok()?;
    counters.lines().find_map(|line| line.strip_prefix("cancelled_write_bytes: ")?.parse().ok())
}

#[test]
fn a_device_opens_wherever_a_kill_or_a_power_cut_stopped_its_first_start() {
    let folder = tempfile::tempdir().unwrap();
    let media = folder.path().join("media.img");
    let sized = |bytes| fs::File::create(&media).unwrap().set_len(bytes).unwrap();
    let opens = || drop(FileStore::open(folder.path(), MEDIA_BYTES).unwrap());
    // The media file is there, has its size, has its label: no state is.
    for bytes in [0, MEDIA_BYTES, MEDIA_BYTES + 4096] {
        sized(bytes);
        opens();
        opens();
    }
    // Before a state can be there the label is on the disk: nothing of it is left to be written.
    sized(0);
    opens();
    let before = taken_back();
    sized(0);
    assert_eq!(taken_back(), before, "the label was synced");
    // The state is there, and the label does not know it yet. Nothing was ever written.
    opens();
    let first = fs::read(&media).unwrap();
    kill(start(folder.path()));
    fs::write(&media, first).unwrap();
    drop(start(folder.path()));
    drop(start(folder.path()));
}

#[test]
fn a_device_from_before_files_had_an_identity_opens_and_gets_one() {
    let folder = tempfile::tempdir().unwrap();
    let mut host = start(folder.path());
    write(&mut host, 1, 3, 1, 0).unwrap();
    drop(host);
    let path = folder.path().join("state.json");
    fs::write(&path, unsealed(folder.path())).unwrap();
    fs::OpenOptions::new()
        .write(true)
        .open(folder.path().join("media.img"))
        .unwrap()
        .set_len(MEDIA_BYTES)
        .unwrap();
    let mut host = start(folder.path());
    assert_eq!(read(&mut host, 1, 3), Ok(1));
    drop(host);
    assert!(fs::read_to_string(&path).unwrap().contains("\"identity\""));
    // The same without the state: its data would be nobody's.
    fs::remove_file(&path).unwrap();
    assert!(refusal(folder.path()).contains("state.json"));
}

/// Message of the error that a changed state file leads to.
fn refusal(folder: &Path) -> String {
    match open(folder) {
        Err(error @ SsdError::State { .. }) => error.to_string(),
        Err(other) => panic!("not an error of the state: {other}"),
        Ok(_) => panic!("the state was accepted"),
    }
}

#[test]
fn a_state_file_that_is_not_json_is_refused_with_file_line_and_column() {
    let folder = tempfile::tempdir().unwrap();
    drop(start(folder.path()));
    let path = folder.path().join("state.json");
    // Without what fills it up to whole pages.
    let good = unsealed(folder.path()).trim_end().to_owned();
    for (text, expected) in [
        (String::new(), "line 1 column 0"),
        ("{\n  \"version\": oops\n}".into(), "line 2 column 14"),
        ("[]".into(), "line 1 column"),
        (good.replace("\"version\": 3", "\"version\": 0"), "version 0 of the format is not known"),
        (good.replace("\"version\": 3", "\"version\": -1"), "line 2 column"),
        (good.replace("\"error_count\"", "\"error_cuont\""), "unknown field `error_cuont`"),
        (good.replace("\"blocks\"", "\"blokcs\""), "unknown field `blokcs`"),
        (good[..good.len() / 2].to_owned(), "EOF while parsing"),
        ("[".repeat(100_000), "line 1 column"),
    ] {
        fs::write(&path, &text).unwrap();
        let message = refusal(folder.path());
        assert!(message.contains(expected) && message.contains("state.json"), "{message}");
    }
    fs::write(&path, [0xff; 64]).unwrap();
    refusal(folder.path());
    fs::write(&path, good).unwrap();
    open(folder.path()).expect("the good one again");
}

#[test]
fn a_state_file_that_contradicts_itself_or_the_device_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    drop(start(folder.path()));
    let path = folder.path().join("state.json");
    let good = unsealed(folder.path());
    let cases: [(&str, serde_json::Value, &str); 19] = [
        ("/namespaces/0/nsid", 0.into(), "nsid 0"),
        ("/namespaces/0/nsid", 129.into(), "nsid 129"),
        ("/namespaces/0/nsid", 2.into(), "namespace 2 is there twice"),
        ("/namespaces/0/block_bytes", 1024.into(), "block_bytes is 1024"),
        ("/namespaces/0/blocks", 0.into(), "8 chunks"),
        ("/namespaces/0/blocks", u64::MAX.into(), "8 chunks"),
        ("/namespaces/0/blocks", 32769.into(), "8 chunks"),
        ("/namespaces/0/nguid", "00".into(), "nguid"),
        ("/namespaces/0/eui64", "zzzzzzzzzzzzzzzz".into(), "eui64"),
        ("/namespaces/0/eui64", "+1+1+1+1+1+1+1+1".into(), "eui64"),
        ("/namespaces/1/chunks/0/first", 7.into(), "namespace 2: chunk 7"),
        ("/namespaces/1/chunks/0/first", 9.into(), "24 chunks from 9"),
        ("/namespaces/1/chunks/0/count", u32::MAX.into(), "not within the device"),
        ("/namespaces/1/chunks/0/count", 0.into(), "not within the device"),
        ("/namespaces/0/uncorrectable", serde_json::json!([[5, 5]]), "uncorrectable blocks 5 to 5"),
        ("/namespaces/0/uncorrectable", serde_json::json!([[5, 32769]]), "uncorrectable blocks 5 to 32769"),
        ("/namespaces/0/uncorrectable", serde_json::json!([[5, 7], [6, 9]]), "uncorrectable blocks 6 to 9"),
        ("/namespaces_created", 1.into(), "namespaces_created is 1"),
        ("/namespaces_created", u64::MAX.into(), "namespaces_created is 18446744073709551615"),
    ];
    for (pointer, value, expected) in cases {
        fs::write(&path, &good).unwrap();
        edit(folder.path(), |state| *state.pointer_mut(pointer).expect(pointer) = value);
        let message = refusal(folder.path());
        assert!(message.contains(expected) && message.contains("state.json"), "{pointer}: {message}");
    }
    for (pointer, value) in [
        ("/firmware/active", serde_json::json!(2)),
        ("/firmware/active", serde_json::json!(0)),
        ("/firmware/next", serde_json::json!(255)),
        ("/firmware/running", serde_json::json!("")),
        ("/firmware/running", serde_json::json!("123456789")),
        ("/firmware/slots/0", serde_json::json!("a\u{1b}b")),
    ] {
        fs::write(&path, &good).unwrap();
        edit(folder.path(), |state| *state.pointer_mut(pointer).expect(pointer) = value);
        assert!(refusal(folder.path()).contains("firmware"), "{pointer}");
    }
}

#[test]
fn counters_at_the_end_of_their_range_do_not_stop_the_device() {
    let folder = tempfile::tempdir().unwrap();
    drop(start(folder.path()));
    edit(folder.path(), |state| {
        for value in state["smart"].as_object_mut().unwrap().values_mut().filter(|value| value.is_u64()) {
            *value = u64::MAX.into();
        }
        state["error_count"] = u64::MAX.into();
        state["namespaces_created"] = ((1u64 << 40) - 2).into();
    });
    let mut host = start(folder.path());
    write(&mut host, 1, 0, 1, 0).unwrap();
    read(&mut host, 1, 0).unwrap();
    host.admin(sqe(0xff, 0)).expect_err("Invalid Command Opcode");
    smart(&mut host);
    host.memory.fill(DATA, 4096, 0);
    host.admin(Sqe { cdw10: 1, ..sqe(0x0d, 2) }).expect("Namespace Management: delete");
    host.memory.write(DATA, &1u64.to_le_bytes());
    host.memory.write(DATA + 8, &1u64.to_le_bytes());
    let mut create = sqe(0x0d, 0);
    create.dptr = [BASE + DATA as u64, 0];
    assert_eq!(host.admin(create), Ok(2), "the last identifiers there are");
    assert_eq!(host.admin(create), Err(Status::NAMESPACE_IDENTIFIER_UNAVAILABLE));
    drop(host);
    start(folder.path());
}
