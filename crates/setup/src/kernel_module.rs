//! Drivers as modules of the kernel.

use super::System;

/// Whether the kernel has a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Module {
    /// It is there.
    Loaded,
    /// `modprobe` would load it.
    Loadable,
    /// The running kernel has no such module.
    Missing,
}

/// Looks for a PCI driver; `-` and `_` are the same in the names of modules.
pub(super) fn look_up(system: &System, driver: &str) -> Module {
    if system.has(&format!("/sys/bus/pci/drivers/{driver}")) {
        return Module::Loaded;
    }
    let folder = format!("/lib/modules/{}", release(system));
    let wanted = driver.replace('-', "_");
    let lists = |file: &str| {
        let text = system.text(&format!("{folder}/{file}")).unwrap_or_default();
        text.lines().any(|line| {
            // kernel/drivers/vfio/pci/vfio-pci.ko.xz: kernel/...
            let path = line.split(':').next().unwrap_or_default();
            let name = path.rsplit('/').next().unwrap_or_default();
            name.split_once(".ko").is_some_and(|(name, _)| name.replace('-', "_") == wanted)
        })
    };
    if lists("modules.dep") || lists("modules.builtin") { Module::Loadable } else { Module::Missing }
}

/// The kernel's release, as in the name of its package.
pub(super) fn release(system: &System) -> String {
    system.text("/proc/sys/kernel/osrelease").unwrap_or_else(|| "unknown".to_owned())
}

/// Where to get a module that the kernel does not have.
pub(super) fn remedy(system: &System) -> String {
    let release = release(system);
    format!(
        "install the kernel's other modules: linux-modules-extra-{release} (Ubuntu), kernel-modules (Fedora), \
         or linux-image-amd64 in place of a -cloud kernel (Debian)"
    )
}
