//! Processes that have a device node open, as far as `/proc` shows them to this user.

use std::fs;

use super::System;

/// An open device node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Opener {
    pub(super) pid: u32,
    /// The program's name.
    pub(super) program: String,
    /// The node, `/dev/vfio/7`.
    pub(super) node: String,
}

/// Every node below `/dev` that another process has open and whose name says NVMe, VFIO or UIO.
pub(super) fn scan(system: &System) -> Vec<Opener> {
    let mut found = Vec::new();
    for pid in system.names("/proc").iter().filter_map(|name| name.parse::<u32>().ok()) {
        if system.is_live() && pid == std::process::id() {
            continue;
        }
        // A process of another user, or one that has just ended, shows nothing.
        let Ok(entries) = fs::read_dir(system.path(&format!("/proc/{pid}/fd"))) else { continue };
        let mut nodes: Vec<String> = entries
            .flatten()
            .filter_map(|entry| fs::read_link(entry.path()).ok()?.into_os_string().into_string().ok())
            .filter(|target| {
                ["/dev/nvme", "/dev/ng", "/dev/vfio/", "/dev/uio"].iter().any(|p| target.starts_with(p))
            })
            .collect();
        nodes.sort();
        nodes.dedup();
        let program = system.text(&format!("/proc/{pid}/comm")).unwrap_or_default();
        found.extend(nodes.into_iter().map(|node| Opener { pid, program: program.clone(), node }));
    }
    found
}
