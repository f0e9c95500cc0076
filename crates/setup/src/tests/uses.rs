//! Each way to use a drive, and what must be said about it.

use std::fs;
use std::os::unix::fs::FileExt;

use super::tree::Tree;

/// A name; what brings the drive into use; what the refusal must say.
type Case = (&'static str, fn(&Tree), &'static [&'static str]);

pub(super) static CASES: [Case; 19] = [
    (
        "a mounted partition",
        |t| mount(t, "259:1", "/mnt/a\\040b", "ext4", "/dev/nvme0n1p1", ""),
        &["nvme0n1p1 is mounted at /mnt/a b", "umount /mnt/a b"],
    ),
    (
        "the root file system",
        |t| mount(t, "259:2", "/", "ext4", "/dev/root", ""),
        &["nvme0n1p2 is mounted at /: the system runs from it", "choose another drive"],
    ),
    (
        "the EFI system partition",
        |t| mount(t, "259:1", "/boot/efi", "vfat", "/dev/nvme0n1p1", ""),
        &["runs from it"],
    ),
    (
        "the root as an overlay",
        |t| {
            let overlay =
                "20 1 0:20 / / rw - overlay root rw,lowerdir=/lower:/b,upperdir=/rw/u,workdir=/rw/w\n";
            t.file(
                "/proc/self/mountinfo",
                &format!("{overlay}21 20 259:1 / /lower ro - ext4 /dev/nvme0n1p1 ro\n"),
            );
        },
        &["nvme0n1p1 is mounted at /: the system runs from it", "mounted at /lower"],
    ),
    (
        "btrfs, mounted by another device",
        |t| t.folder("/sys/fs/btrfs/uuid/devices/nvme0n1p1"),
        &["nvme0n1p1 is part of the mounted btrfs uuid"],
    ),
    (
        "a swap partition",
        |t| t.file("/proc/swaps", "Filename\n/dev/nvme0n1p2 partition 1 0 -2\n"),
        &["nvme0n1p2 is swapped on", "swapoff /dev/nvme0n1p2"],
    ),
    (
        "hibernation",
        |t| t.file("/sys/power/resume", "259:2\n"),
        &["nvme0n1p2 is where the system resumes from"],
    ),
    (
        "a mounted LVM volume on it",
        |t| {
            hold(t, "nvme0n1p1", "dm-0", &[("dm/name", "vg-root"), ("dm/uuid", "LVM-abc")]);
            mount(t, "259:99", "/", "ext4", "/dev/mapper/vg-root", "");
        },
        &[
            "nvme0n1p1 is part of the LVM volume vg-root (dm-0)",
            "dm-0 is mounted at /: the system runs from it",
        ],
    ),
    (
        "swap on LUKS on RAID",
        |t| {
            hold(t, "nvme0n1", "md0", &[("md/level", "raid1")]);
            hold(t, "md0", "dm-1", &[("dm/name", "luks"), ("dm/uuid", "CRYPT-LUKS2-x")]);
            t.file("/proc/swaps", "Filename\n/dev/mapper/luks partition 1 0 -2\n");
        },
        &[
            "nvme0n1 is part of the raid1 array md0 (md0)",
            "md0 is part of the encrypted volume luks (dm-1)",
            "dm-1 is swapped on",
            "mdadm --stop /dev/md0",
        ],
    ),
    (
        "two block devices made of each other",
        |t| {
            hold(t, "nvme0n1", "dm-0", &[]);
            hold(t, "dm-0", "dm-0", &[]);
        },
        &["nvme0n1 is part of the block device dm-0"],
    ),
    (
        "an idle LVM member",
        |t| sign(t, "nvme0n1p2", 512, b"LABELONE................LVM2 001"),
        &["nvme0n1p2 is part of LVM, says its superblock", "pvremove /dev/nvme0n1p2"],
    ),
    ("an idle RAID member", |t| sign(t, "nvme0n1", 4096, &[0xfc, 0x4e, 0x2b, 0xa9]), &["a RAID array (md)"]),
    (
        "an idle ZFS member",
        |t| sign(t, "nvme0n1p1", 131072, &[0x0c, 0xb1, 0xba, 0, 0, 0, 0, 0]),
        &["part of ZFS"],
    ),
    (
        "a loop device",
        |t| t.file("/sys/class/block/loop3/loop/backing_file", "/dev/nvme0n1p1\n"),
        &["nvme0n1p1 is used by the loop device loop3"],
    ),
    (
        "an NVMe target",
        |t| {
            t.file("/sys/kernel/config/nvmet/subsystems/nqn.a/namespaces/1/device_path", "/dev/nvme0n1\n");
            t.file("/sys/kernel/config/nvmet/subsystems/nqn.a/namespaces/1/enable", "1\n");
        },
        &["nvme0n1 is used by the NVMe target nqn.a"],
    ),
    (
        "an NVMe target by another name",
        |t| {
            t.link("/dev/disk/by-id/nvme-DRIVE", "../../nvme0n1");
            let folder = "/sys/kernel/config/nvmet/subsystems/nqn.a/namespaces/1";
            t.file(&format!("{folder}/device_path"), "/dev/disk/by-id/nvme-DRIVE\n");
            t.file(&format!("{folder}/enable"), "1\n");
        },
        &["nvme0n1 is used by the NVMe target nqn.a"],
    ),
    (
        "a process whose name is more than a line",
        |t| t.process(42, "a\nreboot\u{1b}\n", &["/dev/ng0n1"]),
        &["ng0n1 is open in process 42 (a?reboot?)"],
    ),
    (
        "a process by passthrough",
        |t| t.process(42, "fio\n", &["/dev/null", "/dev/ng0n1"]),
        &["ng0n1 is open in process 42 (fio)", "end process 42"],
    ),
    (
        "a mapped device nobody knows",
        |t| hold(t, "nvme0n1p1", "dm-7", &[("dm/name", "x")]),
        &["dmsetup remove x"],
    ),
];

pub(super) fn mount(tree: &Tree, device: &str, at: &str, kind: &str, source: &str, options: &str) {
    tree.file(
        "/proc/self/mountinfo",
        &format!("20 1 {device} / {at} rw shared:1 - {kind} {source} rw{options}\n"),
    );
}

fn hold(tree: &Tree, below: &str, name: &str, files: &[(&str, &str)]) {
    tree.folder(&format!("/sys/class/block/{below}/holders/{name}"));
    tree.block(name, 99);
    for (file, content) in files {
        tree.file(&format!("/sys/class/block/{name}/{file}"), content);
    }
}

fn sign(tree: &Tree, name: &str, offset: u64, bytes: &[u8]) {
    let node = fs::OpenOptions::new().write(true).open(tree.path(&format!("/dev/{name}"))).expect(name);
    node.write_all_at(bytes, offset).expect(name);
}
