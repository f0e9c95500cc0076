//! A faked `/sys` and `/dev`: folders with the files the kernel would show.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use unvme_bus::{PciBus, PciFunction};

/// A machine whose files are in a temporary folder.
pub(crate) struct Machine(TempDir);

impl Machine {
    /// One without any function.
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for name in ["sys/bus/pci/devices", "dev/vfio"] {
            fs::create_dir_all(folder.path().join(name)).expect("a folder");
        }
        Self(folder)
    }

    /// The bus of this machine.
    pub(crate) fn bus(&self) -> PciBus {
        PciBus::at(self.sys()).with_dev(self.dev())
    }

    pub(crate) fn sys(&self) -> PathBuf {
        self.0.path().join("sys")
    }

    pub(crate) fn dev(&self) -> PathBuf {
        self.0.path().join("dev")
    }

    pub(crate) fn folder(&self, address: &str) -> PathBuf {
        self.sys().join("bus/pci/devices").join(address)
    }

    /// Adds a function as QEMU's controller shows itself.
    pub(crate) fn add(&self, address: &str) -> &Self {
        self.set(address, "vendor", "0x1b36\n");
        self.set(address, "device", "0x0010\n");
        self.set(address, "class", "0x010802\n");
        self.set(address, "numa_node", "-1\n");
        // Captured from a guest: BAR 0 of 16 KiB and 64 bits, its upper half, nothing in the others.
        let mut resource = String::from(
            "0x00000000fe800000 0x00000000fe803fff 0x0000000000140204\n0x0000000000000000 0x0000000000000000 0x0000000000000000\n",
        );
        for _ in 2..13 {
            resource.push_str("0x0000000000000000 0x0000000000000000 0x0000000000000000\n");
        }
        self.set(address, "resource", &resource)
    }

    pub(crate) fn set(&self, address: &str, file: &str, text: &str) -> &Self {
        write(&self.folder(address).join(file), text);
        self
    }

    /// Binds a function to a driver.
    pub(crate) fn bind(&self, address: &str, driver: &str) -> &Self {
        symlink(format!("../../../bus/pci/drivers/{driver}"), self.folder(address).join("driver"))
            .expect("a link");
        self
    }

    /// Puts a function into an IOMMU group.
    pub(crate) fn group(&self, address: &str, group: u32) -> &Self {
        let devices = self.sys().join(format!("kernel/iommu_groups/{group}/devices"));
        fs::create_dir_all(&devices).expect("a folder");
        symlink(self.folder(address), devices.join(address)).expect("a link");
        symlink(format!("../../../kernel/iommu_groups/{group}"), self.folder(address).join("iommu_group"))
            .expect("a link");
        self
    }

    pub(crate) fn find(&self, address: &str) -> PciFunction {
        let found = self.bus().find(address.parse().expect("an address"));
        found.expect("readable").unwrap_or_else(|| panic!("{address} is not there"))
    }
}

pub(crate) fn write(path: &Path, text: &str) {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).expect("a folder");
    }
    fs::write(path, text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
}
