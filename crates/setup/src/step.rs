//! The steps of a plan: what each does, as commands that do the same by hand.

use std::fmt;
use std::str::FromStr;

use unvme_bus::pci::{DRIVER_UIO, DRIVER_VFIO};

use super::Owner;
use super::huge_pages::count_file;
use unvme::{Error, PciAddress};

/// Where [`Step::Limits`] writes.
pub(super) const LIMITS_FILE: &str = "/etc/security/limits.d/unvme.conf";

/// A driver of the kernel that setup binds functions to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Driver {
    /// `vfio-pci`: user space, behind an IOMMU. A user can be given the drive.
    VfioPci,
    /// `uio_pci_generic`: user space without an IOMMU. Needs root and huge pages.
    UioPciGeneric,
    /// `nvme`: the kernel.
    Nvme,
}

impl Driver {
    /// The kernel's name of it.
    pub fn name(self) -> &'static str {
        match self {
            Self::VfioPci => DRIVER_VFIO,
            Self::UioPciGeneric => DRIVER_UIO,
            Self::Nvme => "nvme",
        }
    }
}

impl fmt::Display for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Driver {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        [Self::VfioPci, Self::UioPciGeneric, Self::Nvme].into_iter().find(|d| d.name() == text).ok_or_else(
            || Error::Argument(format!("a driver is vfio-pci, uio_pci_generic or nvme, not `{text}`")),
        )
    }
}

/// How many huge pages of 2 MiB there are to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HugePageCount {
    /// This many or more; fewer is an error.
    AtLeast(u64),
    /// As many as the kernel has to give, to this number; none is an error.
    UpTo(u64),
    /// This many, also when there are more now. The kernel keeps those that are in use.
    Exactly(u64),
}

impl HugePageCount {
    pub(super) fn pages(self) -> u64 {
        match self {
            Self::AtLeast(pages) | Self::UpTo(pages) | Self::Exactly(pages) => pages,
        }
    }
}

/// One step of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// Load a driver's module.
    LoadModule(Driver),
    /// Reserve huge pages.
    HugePages {
        /// NUMA node; `None` lets the kernel spread them.
        node: Option<u32>,
        /// How many.
        count: HugePageCount,
    },
    /// Take a function from its driver and bind it to another one.
    Bind {
        /// The function.
        address: PciAddress,
        /// What it is bound to.
        from: Option<String>,
        /// What it will be bound to.
        to: Driver,
        /// Block devices that must be nobody's at that moment.
        disks: Vec<String>,
    },
    /// Wait until udev has done what it does with new device nodes.
    Settle,
    /// Give device nodes to a user or a group.
    Give {
        /// The function they belong to.
        address: PciAddress,
        /// The nodes; none means the character devices that the kernel's driver makes.
        nodes: Vec<String>,
        /// Who gets them.
        owner: Owner,
    },
    /// Let a user lock as much memory as he likes from his next login on.
    Limits {
        /// The user.
        user: String,
    },
}

impl Step {
    /// Commands for a root shell that do the same.
    pub fn commands(&self) -> Vec<String> {
        match self {
            Self::LoadModule(driver) => vec![format!("modprobe {driver}")],
            Self::HugePages { node, count } => {
                let (file, pages) = (count_file(*node), count.pages());
                vec![match count {
                    HugePageCount::Exactly(_) => format!("echo {pages} > {file}"),
                    // More than that stay: they are somebody else's.
                    _ => format!("[ \"$(cat {file})\" -ge {pages} ] || echo {pages} > {file}"),
                }]
            }
            Self::Bind { address, from, to, .. } => {
                let mut lines = vec![match override_text(*to) {
                    "" => format!("echo > {}", override_file(*address)),
                    name => format!("echo {name} > {}", override_file(*address)),
                }];
                if from.is_some() {
                    lines.push(format!("echo {address} > {}", unbind_file(*address)));
                }
                lines.push(format!("echo {address} > {PROBE_FILE}"));
                lines
            }
            Self::Settle => vec!["udevadm settle --timeout=10".to_owned()],
            Self::Give { address, nodes, owner } => {
                let nodes = match nodes.join(" ") {
                    none if none.is_empty() => format!("/dev/nvmeX /dev/ngXnY  # those of {address}"),
                    nodes => nodes,
                };
                match owner {
                    Owner::User(name) => vec![format!("chown {name} {nodes}")],
                    Owner::Group(name) => {
                        vec![format!("chgrp {name} {nodes}"), format!("chmod g+rw {nodes}")]
                    }
                }
            }
            Self::Limits { user } => vec![format!("echo '{}' >> {LIMITS_FILE}", limits_line(user))],
        }
    }
}

/// Writing a function's address here has the kernel look for its driver.
pub(super) const PROBE_FILE: &str = "/sys/bus/pci/drivers_probe";

/// The file that says which driver alone may have a function.
pub(super) fn override_file(address: PciAddress) -> String {
    format!("/sys/bus/pci/devices/{address}/driver_override")
}

/// The file that takes a function from its driver.
pub(super) fn unbind_file(address: PciAddress) -> String {
    format!("/sys/bus/pci/devices/{address}/driver/unbind")
}

/// What is written to the override: the kernel's own driver needs none.
pub(super) fn override_text(driver: Driver) -> &'static str {
    if driver == Driver::Nvme { "" } else { driver.name() }
}

/// The line of `limits.conf(5)` for a user.
pub(super) fn limits_line(user: &str) -> String {
    format!("{user} - memlock unlimited")
}
