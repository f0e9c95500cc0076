//! What is set up, and what is missing for this user.

use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::process::geteuid;
use unvme_bus::pci::{DRIVER_UIO, DRIVER_VFIO};

use super::account::user_name;
use super::{Drive, Evidence, HugePages, System, Use, drives, huge_pages};
use unvme::Result;

/// Locked memory with which a drive can be used: queues and some buffers. More is better.
const MEMLOCK_BYTES_MIN: u64 = 64 << 20;

/// The state of the machine.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Status {
    /// NVMe functions by address.
    pub drives: Vec<DriveStatus>,
    /// Whether an IOMMU is switched on.
    pub has_iommu: bool,
    /// Huge pages of 2 MiB by NUMA node.
    pub huge_pages: Vec<HugePages>,
    /// Bytes that this process may lock, which is what drives behind an IOMMU reach; `None` is no limit.
    pub memlock_bytes: Option<u64>,
    /// The user that all this is about.
    pub user: String,
    /// What this user is missing.
    pub missing: Vec<Missing>,
}

/// A drive, and who uses it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DriveStatus {
    /// The drive.
    pub drive: Drive,
    /// Who uses it.
    pub uses: Vec<Use>,
    /// What this user may not look at: whether somebody uses it is then not known.
    pub unseen: Vec<String>,
}

/// Something that this user is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Missing {
    /// What, and for what.
    pub what: String,
    /// The command that grants it.
    pub command: String,
}

/// Looks at everything, as far as this user may. Errors: [`unvme::Error::Driver`] when the PCI bus cannot be
/// listed.
pub fn status(system: &System) -> Result<Status> {
    let evidence = Evidence::gather(system);
    let drives: Vec<DriveStatus> = drives(system)?
        .into_iter()
        .map(|drive| {
            let examined = evidence.examine(&drive);
            DriveStatus { drive, uses: examined.uses, unseen: examined.unseen }
        })
        .collect();
    let user = user_name(system, geteuid().as_raw());
    let mut status = Status {
        drives,
        has_iommu: system.bus().has_iommu(),
        huge_pages: huge_pages(system),
        memlock_bytes: memlock(system),
        user,
        missing: Vec::new(),
    };
    status.missing = missing(system, &status, geteuid().is_root());
    Ok(status)
}

/// The soft limit of `Max locked memory` of this process; `None` is unlimited, and also not known.
fn memlock(system: &System) -> Option<u64> {
    let text = system.text("/proc/self/limits")?;
    let line = text.lines().find_map(|line| line.strip_prefix("Max locked memory"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// What `user` is missing to use the drives by the drivers they are bound to.
fn missing(system: &System, status: &Status, is_root: bool) -> Vec<Missing> {
    let mut found = Vec::new();
    let mut add = |what: String, command: String| found.push(Missing { what, command });
    let user = &status.user;
    let may = |node: &str| {
        accessat(CWD, system.path(node), Access::READ_OK | Access::WRITE_OK, AtFlags::EACCESS).is_ok()
    };
    let mut vfio = None;
    let mut uio = None;
    for DriveStatus { drive, uses, .. } in &status.drives {
        let address = drive.function.address;
        match drive.driver() {
            Some(DRIVER_VFIO) => {
                vfio = Some(address);
                for node in drive.nodes().into_iter().filter(|node| !node.starts_with("/dev/vfio/devices/")) {
                    if !may(&node) {
                        let command = format!("sudo unvme setup config {address} --user {user}");
                        add(format!("{address}: {user} may not open {node}"), command);
                    }
                }
            }
            Some(DRIVER_UIO) => {
                uio = Some(address);
                if !is_root {
                    let what =
                        format!("{address}: a drive without an IOMMU reaches all memory, which takes root");
                    add(what, format!("sudo unvme COMMAND {address}"));
                }
            }
            _ => {
                let denied: Vec<String> =
                    drive.character_nodes().into_iter().filter(|node| !may(node)).collect();
                if denied.is_empty() {
                    continue;
                }
                // A device node for passthrough reaches everything on the drive: not for one that others rely
                // on.
                let command = match uses.is_empty() {
                    true => format!("sudo unvme setup config {address} --driver nvme --user {user}"),
                    false => format!("sudo setfacl -m u:{user}:rw {}", denied.join(" ")),
                };
                add(format!("{address}: {user} may not open {}", denied.join(", ")), command);
            }
        }
    }
    if vfio.is_some() && !may("/dev/vfio/vfio") {
        add(format!("{user} may not open /dev/vfio/vfio"), "sudo chmod 666 /dev/vfio/vfio".to_owned());
    }
    if let (Some(address), Some(bytes), false) = (vfio, status.memlock_bytes, is_root)
        && bytes < MEMLOCK_BYTES_MIN
    {
        add(
            format!("{user} may lock only {} KiB of memory, which is what drives reach", bytes >> 10),
            format!(
                "sudo prlimit --pid $$ --memlock=unlimited (this shell), or sudo unvme setup config {address} \
                 --limits {user} (from the next login on)"
            ),
        );
    }
    if let Some(address) = uio
        && status.huge_pages.iter().all(|pages| pages.free == 0)
    {
        add(
            format!("{address}: a drive without an IOMMU needs huge pages, and none is free"),
            format!("sudo unvme setup config {address} --hugepages 1024"),
        );
    }
    found
}
