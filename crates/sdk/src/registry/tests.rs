use std::thread;
use std::time::{Duration, Instant};

use super::*;
use crate::Size;

fn address(text: &str) -> PciAddress {
    text.parse().expect("address")
}

fn registry() -> (tempfile::TempDir, Registry) {
    let folder = tempfile::tempdir().expect("temporary folder");
    let registry = Registry::at(folder.path().join("home"));
    (folder, registry)
}

fn spec() -> DeviceSpec {
    DeviceSpec::block(Size(4 << 20), BlockBytes::B512, "S1")
}

#[test]
fn slots_are_created_listed_and_removed() {
    let (_folder, registry) = registry();
    assert!(registry.list().expect("list").is_empty(), "a folder that does not exist holds no slots");
    registry.create(address("0000:82:00.0"), &spec()).expect("create");
    registry.create(address("02:00.0"), &spec()).expect("create");
    let names: Vec<String> = registry.list().expect("list").iter().map(|s| s.address.to_string()).collect();
    assert_eq!(names, ["0000:02:00.0", "0000:82:00.0"]);
    let slot = registry.find(address("0000:02:00.0")).expect("find");
    assert_eq!(slot.spec().expect("spec"), spec());
    registry.remove(slot.address).expect("remove");
    assert!(registry.find(slot.address).is_none());
    assert_eq!(fs::read_dir(registry.slots()).expect("read").count(), 1, "nothing of it is left");
}

#[cfg(feature = "local")]
#[test]
fn what_is_in_a_slot_is_its_owners_alone() {
    let (_folder, registry) = registry();
    let slot = registry.create(address("01:00.0"), &spec()).expect("create");
    let mode = |path: &Path| path.metadata().expect("inspect").permissions().mode() & 0o7777;
    let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("mode");
    let look = || {
        let options = crate::OpenOptions { registry: Some(registry.clone()), ..Default::default() };
        let device = crate::open("0000:01:00.0", &options).expect("open");
        let files: Vec<_> =
            fs::read_dir(slot.folder()).expect("read").map(|f| f.expect("file").path()).collect();
        assert!(files.len() >= 5, "device.json, lock, media.img, state.json and the socket: {files:?}");
        for path in files {
            assert_eq!(mode(&path), 0o600, "{}", path.display());
        }
        assert_eq!(mode(slot.folder()), 0o700);
        drop(device);
    };
    assert_eq!((mode(registry.home()), mode(&registry.slots())), (0o700, 0o700));
    look();
    // As an earlier version has left them.
    set(slot.folder(), 0o755);
    set(&slot.folder().join("media.img"), 0o644);
    set(&slot.folder().join("device.json"), 0o664);
    look();
}

#[test]
fn an_address_is_taken_once() {
    let (_folder, registry) = registry();
    registry.create(address("01:00.0"), &spec()).expect("create");
    let again = registry.create(address("0000:01:00.0"), &spec());
    assert!(matches!(again, Err(Error::Exists { name }) if name == "0000:01:00.0"));
    assert_eq!(registry.free_address().expect("free"), address("02:00.0"));
    assert_eq!(fs::read_dir(registry.slots()).expect("read").count(), 1, "nothing of the failure is left");
}

#[test]
fn a_slot_in_use_is_not_removed() {
    let (_folder, registry) = registry();
    let slot = registry.create(address("01:00.0"), &spec()).expect("create");
    let held = SlotLock::attempt(&slot.lock_path()).expect("hold");
    assert_eq!(slot.holder().expect("holder"), Some(Some(std::process::id())));
    let refused = registry.remove(slot.address).expect_err("in use").to_string();
    assert_eq!(
        refused,
        format!("0000:01:00.0: in use by process {}; stop that process first", std::process::id())
    );
    drop(held);
    assert_eq!(slot.holder().expect("holder"), None);
    registry.remove(slot.address).expect("remove");
}

#[test]
fn removing_what_is_not_there_lists_what_is() {
    let (_folder, registry) = registry();
    registry.create(address("01:00.0"), &spec()).expect("create");
    let message = registry.remove(address("02:00.0")).expect_err("missing").to_string();
    assert!(
        message.starts_with("0000:02:00.0: no such device; virtual devices are 0000:01:00.0 in "),
        "{message}"
    );
}

#[test]
fn what_is_no_slot_is_not_listed() {
    let (_folder, registry) = registry();
    registry.create(address("01:00.0"), &spec()).expect("create");
    for name in [".new-0000:03:00.0-1", "readme", "0000:04:00", "03:00.0"] {
        fs::create_dir(registry.slots().join(name)).expect("create");
    }
    fs::write(registry.slots().join("0000:05:00.0"), "a file").expect("write");
    assert_eq!(registry.list().expect("list").len(), 1);
}

#[test]
fn a_slot_is_unplugged_and_plugged_and_keeps_its_place_meanwhile() {
    let (_folder, registry) = registry();
    let slot = registry.create(address("01:00.0"), &spec()).expect("create");
    assert!(!slot.is_unplugged() && slot.check_plugged().is_ok());
    assert_eq!(registry.unplug(slot.address).expect("unplug"), Plugged::Changed);
    assert_eq!(registry.unplug(slot.address).expect("unplug"), Plugged::Already);
    assert!(slot.is_unplugged());
    assert_eq!(
        slot.check_plugged().expect_err("unplugged").to_string(),
        "0000:01:00.0 is unplugged; plug it with: unvme device plug 0000:01:00.0"
    );
    assert_eq!(registry.list().expect("list").len(), 1);
    assert_eq!(registry.free_address().expect("free"), address("02:00.0"));
    let message = registry.not_found("09:00.0").to_string();
    assert!(message.contains("virtual devices are 0000:01:00.0 (unplugged) in "), "{message}");
    assert_eq!(registry.plug(slot.address).expect("plug"), Plugged::Changed);
    assert_eq!(registry.plug(slot.address).expect("plug"), Plugged::Already);
    assert!(slot.check_plugged().is_ok());
    assert_eq!(slot.spec().expect("spec"), spec());
}

#[test]
fn what_is_not_there_is_neither_unplugged_nor_plugged() {
    let (_folder, registry) = registry();
    for done in [registry.unplug(address("01:00.0")), registry.plug(address("01:00.0"))] {
        let message = done.expect_err("missing").to_string();
        assert!(
            message.starts_with("0000:01:00.0: no such device; there are no virtual devices"),
            "{message}"
        );
    }
}

#[test]
fn unplugging_waits_until_the_holder_has_given_the_slot_back() {
    let (_folder, registry) = registry();
    let slot = registry.create(address("01:00.0"), &spec()).expect("create");
    let held = SlotLock::attempt(&slot.lock_path()).expect("hold");
    let holder = {
        let slot = slot.clone();
        thread::spawn(move || {
            while !slot.is_unplugged() {
                thread::yield_now();
            }
            thread::sleep(Duration::from_millis(50));
            drop(held);
        })
    };
    assert_eq!(registry.unplug(slot.address).expect("unplug"), Plugged::Changed);
    assert_eq!(slot.holder().expect("holder"), None);
    holder.join().expect("holder");
}

#[test]
fn a_slot_whose_holder_keeps_it_stays_plugged_and_the_holder_is_named() {
    let (_folder, registry) = registry();
    let slot = registry.create(address("01:00.0"), &spec()).expect("create");
    let _held = SlotLock::attempt(&slot.lock_path()).expect("hold");
    let refused = registry.unplug_within(slot.address, Duration::from_millis(20)).expect_err("in use");
    let pid = std::process::id();
    assert_eq!(
        refused.to_string(),
        format!(
            "0000:01:00.0: in use by process {pid}; it has not given the device back within 20ms; end it, then unplug"
        )
    );
    assert!(!slot.is_unplugged());
}

#[test]
fn a_slot_that_is_plugged_while_somebody_waits_for_its_holder_ends_the_wait() {
    let (_folder, registry) = registry();
    let slot = registry.create(address("01:00.0"), &spec()).expect("create");
    let _held = SlotLock::attempt(&slot.lock_path()).expect("hold");
    let started = Instant::now();
    thread::scope(|scope| {
        let unplugging = scope.spawn(|| registry.unplug_within(slot.address, Duration::from_secs(60)));
        while registry.plug(slot.address).expect("plug") == Plugged::Already {
            thread::yield_now();
        }
        let message = unplugging.join().expect("thread").expect_err("plugged").to_string();
        assert!(message.contains("plugged again"), "{message}");
    });
    assert!(started.elapsed() < Duration::from_secs(60));
}

#[test]
fn an_unplugging_that_was_killed_is_completed_by_the_next() {
    let (_folder, registry) = registry();
    let slot = registry.create(address("01:00.0"), &spec()).expect("create");
    let held = SlotLock::attempt(&slot.lock_path()).expect("hold");
    // What the killed one has left: the slot is marked, and its holder still there.
    fs::write(slot.folder().join("unplugged"), "").expect("write");
    thread::scope(|scope| {
        let unplugging = scope.spawn(|| registry.unplug(slot.address));
        thread::sleep(Duration::from_millis(20));
        drop(held);
        assert_eq!(unplugging.join().expect("thread").expect("unplug"), Plugged::Changed);
    });
}

#[test]
fn two_who_unplug_at_once_both_find_it_done() {
    let (_folder, registry) = registry();
    let slot = registry.create(address("01:00.0"), &spec()).expect("create");
    for _ in 0..50 {
        let done = thread::scope(|scope| {
            let both = [(); 2].map(|()| scope.spawn(|| registry.unplug(slot.address).expect("unplug")));
            both.map(|one| one.join().expect("thread"))
        });
        assert!(done.contains(&Plugged::Changed), "{done:?}");
        assert!(slot.is_unplugged());
        assert_eq!(registry.plug(slot.address).expect("plug"), Plugged::Changed);
    }
}

#[test]
fn an_unplugged_slot_can_be_removed() {
    let (_folder, registry) = registry();
    let slot = registry.create(address("01:00.0"), &spec()).expect("create");
    registry.unplug(slot.address).expect("unplug");
    registry.remove(slot.address).expect("remove");
    assert!(registry.find(slot.address).is_none());
}
