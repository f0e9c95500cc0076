//! The machine's drives, on a copy of the kernel's trees.

mod home;

use std::fs;
use std::os::unix::fs::symlink;

use home::Home;

const DRIVE: &str = "0000:0b:00.0";

/// A home, and a machine with one drive: `nvme0` behind an IOMMU, with `nvme0n1`.
fn machine() -> Home {
    let home = Home::new();
    let file = |path: &str, content: &str| {
        let path = home.path("system").join(path);
        fs::create_dir_all(path.parent().expect("parent")).expect("folder");
        fs::write(path, content).expect("file");
    };
    let device = format!("sys/bus/pci/devices/{DRIVE}");
    for (name, content) in [
        ("vendor", "0x144d"),
        ("device", "0xa808"),
        ("class", "0x010802"),
        ("resource", "0x0 0x0 0x0"),
        ("numa_node", "0"),
        ("driver_override", "(null)"),
        ("nvme/nvme0/serial", "S1"),
        ("nvme/nvme0/model", "A drive"),
        ("nvme/nvme0/firmware_rev", "F1"),
        ("nvme/nvme0/nvme0n1/nsid", "1"),
    ] {
        file(&format!("{device}/{name}"), content);
    }
    for (path, content) in [
        ("sys/bus/pci/drivers/nvme/unbind", ""),
        ("sys/bus/pci/drivers/vfio-pci/unbind", ""),
        ("sys/bus/pci/drivers_probe", ""),
        ("sys/class/iommu/dmar0/x", ""),
        ("sys/class/block/nvme0n1/dev", "259:0"),
        ("sys/class/block/nvme0n1/nsid", "1"),
        ("sys/class/block/nvme0n1/size", "2097152"),
        ("sys/class/block/nvme0n1/queue/logical_block_size", "4096"),
        ("sys/class/nvme-generic/ng0n1/dev", "240:0"),
        ("sys/kernel/iommu_groups/7/type", "DMA"),
        ("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "3"),
        ("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "2"),
        ("dev/nvme0n1", ""),
        ("dev/nvme0", ""),
        ("dev/ng0n1", ""),
        ("proc/self/limits", "Max locked memory         8388608              8388608              bytes\n"),
        ("proc/self/mountinfo", ""),
    ] {
        file(path, content);
    }
    let group = home.path("system/sys/kernel/iommu_groups/7/devices");
    fs::create_dir_all(group.join(DRIVE)).expect("group");
    let device = home.path("system").join(device);
    symlink("../../../../kernel/iommu_groups/7", device.join("iommu_group")).expect("group");
    symlink("../../drivers/nvme", device.join("driver")).expect("driver");
    let node = fs::OpenOptions::new().write(true).open(home.path("system/dev/nvme0n1")).expect("node");
    node.set_len(1 << 30).expect("size");
    home
}

fn mount(home: &Home) {
    let line = "20 1 259:0 / /data rw - ext4 /dev/nvme0n1 rw\n";
    fs::write(home.path("system/proc/self/mountinfo"), line).expect("mountinfo");
}

#[test]
fn list_shows_drives_and_what_they_are_opened_by() {
    let home = machine();
    mount(&home);
    let text = home.ok(&["list"]);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[2], "0000:0b:00.0  S1  A drive  1          ? / 1.07 GB  4096 B  LBA       F1", "{text}");
    assert_eq!(lines[6], "0000:0b:00.0  0          nvme    /data (nvme0n1)  kernel:/dev/ng0n1", "{text}");
    let json = home.json(&["list"]);
    assert_eq!(json["Devices"][0]["DevicePath"], "kernel:/dev/ng0n1");
    assert_eq!(json["Devices"][0]["PhysicalSize"], 1_073_741_824);
    assert_eq!(json["Devices"][0]["MaximumLBA"], 262_144);
    assert_eq!(json["Functions"][0]["Address"], DRIVE);
    assert_eq!(json["Functions"][0]["OpenAs"][0], "kernel:/dev/ng0n1");
    assert_eq!(json["Functions"][0]["InUseBy"][0], "nvme0n1 is mounted at /data");
}

#[test]
fn status_is_the_table_of_the_guide_and_what_is_set_up() {
    let home = machine();
    let text = home.ok(&["setup", "status"]);
    assert_eq!(
        text,
        "NVMe devices\n\n\
         BDF           Numa Node  Driver name  Device name          In use by\n\
         0000:0b:00.0  0          nvme         nvme0 ng0n1 nvme0n1  -\n\n\
         IOMMU: on\n\
         huge pages of 2 MiB: 3, 2 free\n\
         locked memory (ulimit -l): 8192 KiB\n"
    );
    assert_eq!(home.json(&["setup", "status"])["drives"][0]["iommu_group"], 7);
    assert!(Home::new().ok(&["setup", "status"]).starts_with("no NVMe devices on the PCI bus\n"));
}

#[test]
fn a_dry_run_is_a_script_and_changes_nothing() {
    let home = machine();
    for word in [DRIVE, " 0000:0b:00.0 0b:00.0 "] {
        assert_eq!(
            home.ok(&["setup", "config", word, "--hugepages", "1G", "--dry-run"]),
            "# 0000:0b:00.0 (144d a808): nvme -> vfio-pci (an IOMMU guards it)\n\
             [ \"$(cat /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages)\" -ge 512 ] || \
             echo 512 > /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages\n\
             echo vfio-pci > /sys/bus/pci/devices/0000:0b:00.0/driver_override\n\
             echo 0000:0b:00.0 > /sys/bus/pci/devices/0000:0b:00.0/driver/unbind\n\
             echo 0000:0b:00.0 > /sys/bus/pci/drivers_probe\n"
        );
    }
    let json = home.json(&["setup", "config", "--dry-run"]);
    assert_eq!(json["drives"][0]["driver"], "vfio-pci");
    assert_eq!(json["commands"].as_array().map(Vec::len), Some(3));
    let probe = fs::read_to_string(home.path("system/sys/bus/pci/drivers_probe")).expect("probe");
    assert_eq!(probe, "");
}

#[test]
fn what_cannot_be_done_says_why_and_has_its_exit_code() {
    let home = machine();
    home.run(&["setup", "config", "0000:99:00.0"])
        .fails_with(3, &["0000:99:00.0: no such device; NVMe functions on the PCI bus are 0000:0b:00.0"]);
    home.run(&["setup", "config", "nvme0"]).fails_with(2, &["`nvme0`: a PCI address is "]);
    home.run(&["setup", "config", ""]).fails_with(2, &["a drive's address is empty"]);
    home.run(&["setup", "config", "--driver", "nvmee"]).fails_with_usage("a driver is vfio-pci");
    home.run(&["setup", "config", "--hugepages", "many"]).fails_with_usage("expected a number of huge pages");
    mount(&home);
    home.run(&["setup", "config", DRIVE])
        .fails_with(3, &["in use: nvme0n1 is mounted at /data", "umount /data"]);
    home.run(&["setup", "config"])
        .fails_with(4, &["the only NVMe function was left alone: nvme0n1 is mounted at /data"]);
    assert_eq!(home.ok(&["setup", "reset"]), "no drive is bound to vfio-pci or uio_pci_generic\n");
}
