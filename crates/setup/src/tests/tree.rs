//! A copy of the kernel's trees, and a thread that behaves like the kernel.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use crate::System;

/// Bytes of the block devices: room for the superblocks at their ends.
const BLOCK_BYTES: u64 = 1 << 20;

/// A machine with all drivers, without drives.
pub(super) struct Tree {
    folder: tempfile::TempDir,
}

impl Tree {
    pub(super) fn new() -> Self {
        let tree = Self { folder: tempfile::tempdir().expect("temporary folder") };
        for driver in ["nvme", "vfio-pci", "uio_pci_generic", "pcieport", "e1000e"] {
            tree.folder(&format!("/sys/bus/pci/drivers/{driver}"));
        }
        tree.file("/sys/bus/pci/drivers_probe", "");
        tree.file("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "0");
        tree.file("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "0");
        tree.file("/proc/swaps", "Filename Type Size Used Priority\n");
        tree.file("/proc/self/mountinfo", "");
        tree.file("/proc/sys/kernel/osrelease", "6.1.0-test\n");
        tree.file("/etc/passwd", "root:x:0:0::/root:/bin/sh\nalice:x:1000:1000::/home/alice:/bin/sh\n");
        tree
    }

    pub(super) fn system(&self) -> System {
        System::at(self.folder.path())
    }

    pub(super) fn path(&self, absolute: &str) -> PathBuf {
        self.folder.path().join(absolute.trim_start_matches('/'))
    }

    pub(super) fn text(&self, absolute: &str) -> String {
        fs::read_to_string(self.path(absolute)).expect(absolute)
    }

    pub(super) fn folder(&self, absolute: &str) {
        fs::create_dir_all(self.path(absolute)).expect(absolute);
    }

    pub(super) fn file(&self, absolute: &str, content: &str) {
        let path = self.path(absolute);
        fs::create_dir_all(path.parent().expect("parent")).expect(absolute);
        fs::write(path, content).expect(absolute);
    }

    pub(super) fn link(&self, absolute: &str, target: &str) {
        let path = self.path(absolute);
        fs::create_dir_all(path.parent().expect("parent")).expect(absolute);
        let _ = fs::remove_file(&path);
        symlink(target, path).expect(absolute);
    }

    /// A PCI function.
    pub(super) fn function(&self, address: &str, class: &str, driver: Option<&str>, group: Option<u32>) {
        let folder = format!("/sys/bus/pci/devices/{address}");
        for (name, content) in
            [("vendor", "0x144d"), ("device", "0xa808"), ("class", class), ("numa_node", "0")]
        {
            self.file(&format!("{folder}/{name}"), content);
        }
        self.file(
            &format!("{folder}/resource"),
            "0x00000000fe800000 0x00000000fe803fff 0x0000000000140204\n",
        );
        self.file(&format!("{folder}/driver_override"), "(null)\n");
        if let Some(driver) = driver {
            self.link(&format!("{folder}/driver"), &format!("../../drivers/{driver}"));
        }
        if let Some(group) = group {
            self.link(&format!("{folder}/iommu_group"), &format!("../../../kernel/iommu_groups/{group}"));
            self.file(&format!("/sys/kernel/iommu_groups/{group}/type"), "DMA-FQ\n");
            self.folder(&format!("/sys/kernel/iommu_groups/{group}/devices/{address}"));
            self.folder("/sys/class/iommu/dmar0");
        }
    }

    /// A drive that the kernel has, as `nvme0` with `nvme0n1` and two partitions.
    pub(super) fn drive(&self, address: &str, number: u32, group: Option<u32>) {
        self.function(address, "0x010802", Some("nvme"), group);
        let controller = format!("/sys/bus/pci/devices/{address}/nvme/nvme{number}");
        self.file(&format!("{controller}/serial"), &format!("SERIAL{number}  \n"));
        self.file(&format!("{controller}/model"), "A drive\n");
        self.file(&format!("{controller}/firmware_rev"), "1.0\n");
        self.folder(&format!("{controller}/ng{number}n1"));
        self.folder(&format!("{controller}/nvme{number}n1"));
        self.folder(&format!("/sys/class/nvme-generic/ng{number}n1"));
        self.file(&format!("/dev/nvme{number}"), "");
        self.file(&format!("/dev/ng{number}n1"), "");
        let disk = format!("nvme{number}n1");
        self.block(&disk, 16 * number);
        self.file(&format!("/sys/class/block/{disk}/queue/logical_block_size"), "512");
        self.file(&format!("/sys/class/block/{disk}/nsid"), "1");
        for partition in [1, 2] {
            let name = format!("{disk}p{partition}");
            self.file(&format!("/sys/class/block/{disk}/{name}/partition"), &partition.to_string());
            self.block(&name, 16 * number + partition);
        }
    }

    /// A block device 259:`minor`.
    pub(super) fn block(&self, name: &str, minor: u32) {
        self.file(&format!("/sys/class/block/{name}/dev"), &format!("259:{minor}\n"));
        self.file(&format!("/sys/class/block/{name}/size"), &(BLOCK_BYTES / 512).to_string());
        self.folder(&format!("/sys/class/block/{name}/holders"));
        self.file(&format!("/dev/{name}"), "");
        let node = fs::OpenOptions::new().write(true).open(self.path(&format!("/dev/{name}"))).expect(name);
        node.set_len(BLOCK_BYTES).expect(name);
    }

    /// A process that has files open.
    pub(super) fn process(&self, pid: u32, program: &str, nodes: &[&str]) {
        self.file(&format!("/proc/{pid}/comm"), program);
        for (fd, node) in nodes.iter().enumerate() {
            self.link(&format!("/proc/{pid}/fd/{fd}"), node);
        }
    }

    /// Has a thread bind and unbind as the kernel does, for functions with the driver `from`. A driver in
    /// `refusing` takes no function. The thread ends with the test program.
    pub(super) fn kernel(&self, address: &'static str, refusing: &'static [&'static str]) {
        let folder = self.path(&format!("/sys/bus/pci/devices/{address}"));
        let probe = self.path("/sys/bus/pci/drivers_probe");
        fs::remove_file(&probe).expect("drivers_probe");
        // A function's `driver` is a link to the driver's folder, and `unbind` is there.
        for driver in ["nvme", "vfio-pci", "uio_pci_generic"] {
            let unbind = self.path(&format!("/sys/bus/pci/drivers/{driver}/unbind"));
            pipe(&unbind);
            let link = folder.join("driver");
            thread::spawn(move || {
                while let Ok(text) = fs::read_to_string(&unbind) {
                    if text.trim() == address {
                        let _ = fs::remove_file(&link);
                    }
                }
            });
        }
        pipe(&probe);
        thread::spawn(move || {
            while let Ok(text) = fs::read_to_string(&probe) {
                let wanted = fs::read_to_string(folder.join("driver_override")).unwrap_or_default();
                let wanted = if wanted.trim().is_empty() { "nvme" } else { wanted.trim() };
                // The old driver has let go before: wait for the other thread.
                while folder.join("driver").is_symlink() {
                    thread::yield_now();
                }
                if text.trim() == address && !refusing.contains(&wanted) {
                    let target = Path::new("../../drivers").join(wanted);
                    let _ = symlink(target, folder.join("driver"));
                }
            }
        });
    }
}

fn pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().expect("mkfifo").success());
}
