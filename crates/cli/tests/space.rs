//! Devices on a file system that is full, or cannot be written to.

mod home;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use home::{DEVICE, Home};

/// A file system of its own on a home's folder, until dropped.
struct Mounted(PathBuf);

impl Mounted {
    /// `None` where mounting is not allowed: the tests here need a user who may.
    fn on(folder: &Path, bytes: u64) -> Option<Self> {
        fs::create_dir_all(folder).unwrap();
        let options = format!("size={bytes},mode=0700");
        let made = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(folder).output();
        if made.as_ref().is_ok_and(|output| output.status.success()) {
            return Some(Self(folder.to_owned()));
        }
        // Who may not mount anything is no administrator; that the test needs one is no reason to fail.
        assert_ne!(user(), 0, "mount -t tmpfs: {made:?}");
        None
    }

    /// Nothing can be written to it any more.
    fn protect(&self) {
        let done = Command::new("mount").args(["-o", "remount,ro"]).arg(&self.0).status().unwrap();
        assert!(done.success());
    }

    /// Takes all space that is left.
    fn fill(&self) {
        let path = self.0.join("filler");
        let block = vec![1; 64 << 10];
        let mut file = fs::File::create(path).unwrap();
        while std::io::Write::write_all(&mut file, &block).is_ok() {}
        while std::io::Write::write_all(&mut file, &[1]).is_ok() {}
    }
}

/// The user the tests run as.
fn user() -> u32 {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self").unwrap().uid()
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// Runs a command that succeeds on a full file system, and has nothing to say about it.
fn ok(home: &Home, args: &[&str]) -> String {
    let done = home.run(args);
    assert_eq!(done.code, 0, "{args:?}: {}", done.stderr);
    assert_eq!(done.stderr, "", "{args:?}");
    done.text()
}

#[test]
fn pairs_on_a_full_file_system_can_be_read_and_checked() {
    let home = Home::new();
    let Some(disk) = Mounted::on(&home.path("unvme"), 48 << 20) else { return };
    home.ok(&["device", "create", DEVICE, "--type", "kv", "--size", "64M"]);
    for key in ["first", "second", "third"] {
        home.ok(&["kv", "store", DEVICE, key, "value"]);
    }
    disk.fill();
    assert_eq!(ok(&home, &["kv", "retrieve", DEVICE, "first"]), "value");
    ok(&home, &["device", "check", DEVICE]);
    // What needs more space than there is.
    let input = vec![1; 20 << 20];
    let more = home.run_with(&["kv", "store", DEVICE, "big"], &input);
    assert!(more.code == 1 && more.stderr.contains("Capacity Exceeded"), "{}", more.stderr);
    // A deletion finds space though each command opens the device anew, and so does what it makes room for.
    ok(&home, &["kv", "delete", DEVICE, "second"]);
    assert_eq!(ok(&home, &["kv", "list", DEVICE]), "first\nthird\n");
    ok(&home, &["kv", "store", DEVICE, "fourth", "value"]);
    ok(&home, &["device", "check", DEVICE]);
    fs::remove_file(disk.0.join("filler")).unwrap();
    home.ok_with(&["kv", "store", DEVICE, "big"], &input);
    home.ok(&["device", "check", DEVICE]);
}

#[test]
fn blocks_on_a_full_file_system_can_be_read_and_deallocated() {
    let home = Home::new();
    let Some(disk) = Mounted::on(&home.path("unvme"), 32 << 20) else { return };
    home.ok(&["device", "create", DEVICE, "--size", "64M"]);
    home.ok_with(&["write", DEVICE, "-z", "512"], b"blocks");
    disk.fill();
    assert!(ok(&home, &["read", DEVICE, "-z", "6"]).starts_with("blocks"));
    // Another chunk would need space.
    let more = home.run_with(&["write", DEVICE, "-s", "8192", "-z", "512"], b"more");
    assert!(more.code == 1 && more.stderr.contains("Capacity Exceeded"), "{}", more.stderr);
    ok(&home, &["dsm", DEVICE, "-s", "0", "-b", "8", "--ad"]);
    assert!(ok(&home, &["read", DEVICE, "-z", "6"]).starts_with("\0\0\0"));
}

#[test]
fn a_device_on_a_read_only_file_system_is_read_and_checked_and_refuses_writes() {
    let home = Home::new();
    let Some(disk) = Mounted::on(&home.path("unvme"), 64 << 20) else { return };
    home.ok(&["device", "create", DEVICE, "--type", "kv", "--size", "64M", "--namespaces", "32M,block:16M"]);
    home.ok(&["kv", "store", DEVICE, "key", "value"]);
    home.ok_with(&["write", DEVICE, "-n", "2", "-z", "512"], b"blocks");
    disk.protect();
    assert_eq!(home.ok(&["kv", "retrieve", DEVICE, "key"]), "value");
    assert!(home.ok(&["read", DEVICE, "-n", "2", "-z", "6"]).starts_with("blocks"));
    for (args, words) in [
        (&["kv", "store", DEVICE, "key", "other"][..], "Write Protected"),
        (&["kv", "delete", DEVICE, "key"], "Write Protected"),
        (&["write", DEVICE, "-n", "2", "-z", "512"], "Read Only"),
    ] {
        let refused = home.run_with(args, b"other");
        assert!(refused.code == 1 && refused.stderr.contains(words), "{args:?}: {}", refused.stderr);
    }
    home.ok(&["device", "check", DEVICE]);
    assert_eq!(home.ok(&["kv", "retrieve", DEVICE, "key"]), "value");
    // Bit 3 of the critical warning: the media is read only.
    assert_eq!(home.json(&["smart-log", DEVICE])["critical_warning"], 8);
}
