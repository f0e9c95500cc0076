//! A copy of a machine's `/sys` and `/proc`, written from a description.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use unvme_setup::System;

use crate::Cpus;

pub(super) struct Tree {
    dir: tempfile::TempDir,
}

impl Tree {
    pub(super) fn new() -> Self {
        let tree = Self { dir: tempfile::tempdir().expect("temporary directory") };
        tree.file("/sys/bus/pci/devices/.keep", "");
        tree
    }

    pub(super) fn system(&self) -> System {
        System::at(self.dir.path())
    }

    pub(super) fn root(&self) -> &Path {
        self.dir.path()
    }

    pub(super) fn path(&self, absolute: &str) -> PathBuf {
        self.dir.path().join(absolute.trim_start_matches('/'))
    }

    pub(super) fn file(&self, absolute: &str, content: &str) {
        let path = self.path(absolute);
        fs::create_dir_all(path.parent().expect("a parent")).expect(absolute);
        fs::write(path, content).expect(absolute);
    }

    pub(super) fn remove(&self, absolute: &str) {
        let path = self.path(absolute);
        match path.is_dir() {
            true => fs::remove_dir_all(path).expect(absolute),
            false => fs::remove_file(path).expect(absolute),
        }
    }

    /// Describes CPUs `0..count`: of each its package, core and node, and the sets that share an L3.
    pub(super) fn cpus(&self, count: u32, of: impl Fn(u32) -> [u32; 3], l3: &[&str]) {
        let cpu = |number: u32| format!("/sys/devices/system/cpu/cpu{number}");
        let domains: Vec<Cpus> = l3.iter().map(|list| list.parse().expect(list)).collect();
        self.file("/sys/devices/system/cpu/online", &format!("0-{}\n", count - 1));
        self.file("/sys/devices/system/cpu/present", &format!("0-{}\n", count - 1));
        self.file("/sys/devices/system/cpu/isolated", "\n");
        for number in 0..count {
            let [package, core, _] = of(number);
            let siblings: Cpus = (0..count).filter(|&cpu| of(cpu)[..2] == [package, core]).collect();
            self.file(&format!("{}/topology/physical_package_id", cpu(number)), &format!("{package}\n"));
            self.file(&format!("{}/topology/core_cpus_list", cpu(number)), &format!("{siblings}\n"));
            self.file(&format!("{}/cache/index0/level", cpu(number)), "1\n");
            self.file(&format!("{}/cache/index0/shared_cpu_list", cpu(number)), &format!("{siblings}\n"));
            if let Some(domain) = domains.iter().find(|domain| domain.contains(number)) {
                self.file(&format!("{}/cache/index3/level", cpu(number)), "3\n");
                self.file(&format!("{}/cache/index3/shared_cpu_list", cpu(number)), &format!("{domain}\n"));
            }
        }
        let nodes = (0..count).map(|cpu| of(cpu)[2]).max().map_or(0, |last| last + 1);
        for node in 0..nodes {
            let own: Cpus = (0..count).filter(|&cpu| of(cpu)[2] == node).collect();
            let dir = format!("/sys/devices/system/node/node{node}");
            self.file(&format!("{dir}/cpulist"), &format!("{own}\n"));
            let package = |node: u32| (0..count).find(|&cpu| of(cpu)[2] == node).map(|cpu| of(cpu)[0]);
            let distance = |other: u32| match (other == node, package(other) == package(node)) {
                (true, _) => "10",
                (false, true) => "16",
                (false, false) => "32",
            };
            let distances: Vec<&str> = (0..nodes).map(distance).collect();
            self.file(&format!("{dir}/distance"), &format!("{}\n", distances.join(" ")));
            self.file(&format!("{dir}/hugepages/hugepages-2048kB/nr_hugepages"), "512\n");
            self.file(&format!("{dir}/hugepages/hugepages-2048kB/free_hugepages"), "500\n");
        }
    }

    /// An NVMe drive on the PCI bus.
    pub(super) fn drive(&self, address: &str, node: i32, driver: &str) {
        let dir = format!("/sys/bus/pci/devices/{address}");
        for (name, content) in [
            ("vendor", "0x144d\n"),
            ("device", "0xa808\n"),
            ("class", "0x010802\n"),
            ("resource", "0x00000000fe800000 0x00000000fe803fff 0x0000000000140204\n"),
        ] {
            self.file(&format!("{dir}/{name}"), content);
        }
        self.file(&format!("{dir}/numa_node"), &format!("{node}\n"));
        self.file(&format!("/sys/bus/pci/drivers/{driver}/.keep"), "");
        symlink(format!("../../drivers/{driver}"), self.path(&format!("{dir}/driver"))).expect("a link");
    }
}
