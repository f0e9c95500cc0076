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
