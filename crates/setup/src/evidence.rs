//! Looking for who uses a drive.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{OFlags, major, minor};
use rustix::io::Errno;
use unvme_bus::pci::DRIVER_VFIO;

use super::drive::block_bytes;
use super::mounts::{Mounts, swaps};
use super::openers::{Opener, scan};
use super::{Drive, How, System, Use, signature};

/// Mount points without which the running system does not work.
const BOOT: [&str; 5] = ["/", "/boot", "/boot/efi", "/efi", "/usr"];
/// How deep block devices made of block devices are followed. LVM on LUKS on RAID on a partition is three.
const DEPTH_MAX: usize = 16;

/// What the machine says about who uses what, read once for all drives.
#[derive(Debug)]
pub struct Evidence {
    system: System,
    mounts: Mounts,
    swaps: Vec<PathBuf>,
    openers: Vec<Opener>,
    /// `major:minor` of the device that the system resumes from.
    resume: Option<String>,
    /// Device paths that loop devices and NVMe targets pass on, and the names of those.
    passed_on: Vec<(String, String)>,
    /// Block devices of mounted btrfs file systems, and the names of those.
    file_systems: Vec<(String, String)>,
}

/// What was found about one drive.
#[derive(Clone, Debug, Default)]
pub struct Examined {
    /// Who uses it.
    pub uses: Vec<Use>,
    /// What could not be looked at, and why: whether anybody uses the drive is then not known.
    pub unseen: Vec<String>,
}

impl Evidence {
    /// Reads lists of mounts, swap areas and open files. Needs no permission; shows only processes that this
    /// user may see.
    pub fn gather(system: &System) -> Self {
        Self {
            mounts: Mounts::read(system),
            swaps: swaps(system),
            openers: scan(system),
            resume: system.text("/sys/power/resume").filter(|number| is_device_number(number)),
            passed_on: passed_on(system),
            file_systems: file_systems(system),
            system: system.clone(),
        }
    }

    /// Who uses a drive, without opening it.
    pub fn uses(&self, drive: &Drive) -> Vec<Use> {
        let mut found = Vec::new();
        let mut seen = BTreeSet::new();
        for block in drive.blocks() {
            self.follow(block, block, 0, &mut seen, &mut found);
        }
        for node in drive.nodes() {
            let device = node.strip_prefix("/dev/").filter(|name| !name.contains('/')).unwrap_or(&node);
            found.extend(
                self.passed_on
                    .iter()
                    .filter(|(path, _)| *path == node)
                    .map(|(_, by)| Use { device: device.to_owned(), how: How::PassedOn { by: by.clone() } }),
            );
            found.extend(self.openers.iter().filter(|opener| opener.node == node).map(|opener| Use {
                device: device.to_owned(),
                how: How::Open { pid: opener.pid, program: opener.program.clone() },
            }));
        }
        found
    }

    /// Who uses a drive; its block devices are opened, to find superblocks of members of arrays and volume
    /// groups, and whether something holds them that is not seen otherwise (a mount in another namespace).
    pub fn examine(&self, drive: &Drive) -> Examined {
        let mut examined = Examined { uses: self.uses(drive), unseen: Vec::new() };
        for namespace in drive.namespaces.iter().filter(|namespace| namespace.has_blocks) {
            let blocks: Vec<&String> =
                std::iter::once(&namespace.name).chain(&namespace.partitions).collect();
            match claim(&self.system, &namespace.name) {
                Ok(Claimed::Free(_)) => {}
                Ok(Claimed::Busy) => {
                    let is_explained =
                        |u: &Use| !u.is_opener() && blocks.iter().any(|block| **block == u.device);
                    if !examined.uses.iter().any(is_explained) {
                        examined.uses.push(Use { device: namespace.name.clone(), how: How::Exclusive });
                    }
                    continue;
                }
                Err(e) => {
                    examined.unseen.push(unseen(&namespace.name, &e));
                    continue;
                }
            }
            for block in blocks {
                match self.member_of(block) {
                    Ok(Some(of)) => {
                        examined.uses.push(Use { device: block.clone(), how: How::Member { of } })
                    }
                    Ok(None) => {}
                    Err(e) => examined.unseen.push(unseen(block, &e)),
                }
            }
        }
        examined
    }

    /// True when something has the function's VFIO group, whether or not its process can be seen: a group is
    /// open once at most.
    pub(super) fn has_open_group(&self, drive: &Drive) -> bool {
        let (Some(DRIVER_VFIO), Some(group)) = (drive.driver(), drive.function.iommu_group) else {
            return false;
        };
        let node = self.system.path(&format!("/dev/vfio/{group}"));
        let opened = OpenOptions::new().read(true).write(true).open(node);
        matches!(opened, Err(e) if e.raw_os_error() == Some(Errno::BUSY.raw_os_error()))
    }

    /// Adds what uses the block device `name`, which is `origin` or made of it.
    fn follow(
        &self,
        origin: &str,
        name: &str,
        depth: usize,
        seen: &mut BTreeSet<String>,
        found: &mut Vec<Use>,
    ) {
        let mut add = |how| found.push(Use { device: name.to_owned(), how });
        let number = self.system.text(&format!("/sys/class/block/{name}/dev")).unwrap_or_default();
        for at in self.mounts.of(&number, name) {
            let boots = BOOT.iter().any(|point| at == Path::new(point));
            add(if boots { How::Boots { at } } else { How::Mounted { at } });
        }
        // Device-mapper's devices have other names there: /dev/mapper/NAME, or /dev/dm-N.
        let mapped = self.system.text(&format!("/sys/class/block/{name}/dm/name"));
        let is_swap = |path: &PathBuf| {
            *path == Path::new("/dev").join(name)
                || mapped.as_ref().is_some_and(|mapped| *path == Path::new("/dev/mapper").join(mapped))
        };
        if self.swaps.iter().any(is_swap) {
            add(How::Swap);
        }
        if self.resume.as_deref() == Some(number.as_str()) {
            add(How::Resume);
        }
        for (_, what) in self.file_systems.iter().filter(|(device, _)| device == name) {
            add(How::FileSystem { what: what.clone() });
        }
        if name != origin {
            let path = format!("/dev/{name}");
            for (_, by) in self.passed_on.iter().filter(|(device, _)| *device == path) {
                add(How::PassedOn { by: by.clone() });
            }
        }
        for holder in self.system.names(&format!("/sys/class/block/{name}/holders")) {
            let (what, remedy) = describe_holder(&self.system, &holder);
            found.push(Use {
                device: name.to_owned(),
                how: How::Holder { name: holder.clone(), what, remedy },
            });
            if depth < DEPTH_MAX && seen.insert(holder.clone()) {
                self.follow(origin, &holder, depth + 1, seen, found);
            }
        }
    }

    /// What a block device is a member of: from its superblock.
    fn member_of(&self, name: &str) -> io::Result<Option<&'static str>> {
        let device = open_block(&self.system, name, OFlags::empty())?;
        signature::member_of(&device, block_bytes(&self.system, name))
    }
}

/// True for `major:minor` of a device; 0:0 stands for none.
fn is_device_number(text: &str) -> bool {
    let is_decimal = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    text != "0:0" && text.split_once(':').is_some_and(|(major, minor)| is_decimal(major) && is_decimal(minor))
}

/// What came of asking for a block device for oneself alone.
pub(super) enum Claimed {
    /// It is ours until this is dropped: nobody can mount it or a partition of it meanwhile.
    Free(#[expect(dead_code, reason = "held, not read")] File),
    /// Something else has it, or a partition of it.
    Busy,
}

/// Asks for a block device for oneself alone: `O_EXCL` (`open(2)`) on the whole conflicts with every mount,
/// swap area and holder of it and of its partitions.
pub(super) fn claim(system: &System, name: &str) -> io::Result<Claimed> {
    match open_block(system, name, OFlags::EXCL) {
        Ok(device) => Ok(Claimed::Free(device)),
        Err(e) if e.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => Ok(Claimed::Busy),
        Err(e) => Err(e),
    }
}

fn open_block(system: &System, name: &str, flags: OFlags) -> io::Result<File> {
    let flags = flags | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let device = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(system.path(&format!("/dev/{name}")))?;
    if system.is_live() {
        // A node that somebody else made could lead anywhere, and a file of that name be left by a mistyped
        // dd.
        let metadata = device.metadata()?;
        let number = metadata.rdev();
        let is = format!("{}:{}", major(number), minor(number));
        if !metadata.file_type().is_block_device()
            || system.text(&format!("/sys/class/block/{name}/dev")).as_deref() != Some(is.as_str())
        {
            return Err(io::Error::other("the node is not the one of this block device"));
        }
    }
    Ok(device)
}

fn unseen(name: &str, error: &io::Error) -> String {
    let error = Errno::from_io_error(error).map_or_else(|| error.to_string(), |e| e.to_string());
    format!("/dev/{name} cannot be looked at: {error}")
}

/// What a block device above another one is, and the command that takes it apart.
fn describe_holder(system: &System, name: &str) -> (String, String) {
    let text =
        |file: &str| system.text(&format!("/sys/class/block/{name}/{file}")).filter(|text| !text.is_empty());
    if let Some(mapped) = text("dm/name") {
        let uuid = text("dm/uuid").unwrap_or_default();
        return match uuid.split('-').next() {
            Some("LVM") => (
                format!("the LVM volume {mapped}"),
                format!("vgchange -an its volume group, or dmsetup remove {mapped}"),
            ),
            Some("CRYPT") => (format!("the encrypted volume {mapped}"), format!("cryptsetup close {mapped}")),
            Some("mpath") => (format!("the multipath device {mapped}"), format!("multipath -f {mapped}")),
            _ => (format!("the mapped device {mapped}"), format!("dmsetup remove {mapped}")),
        };
    }
    if let Some(level) = text("md/level") {
        return (format!("the {level} array {name}"), format!("mdadm --stop /dev/{name}"));
    }
    if name.starts_with("bcache") {
        return (format!("the cache {name}"), format!("echo 1 > /sys/class/block/{name}/bcache/stop"));
    }
    (format!("the block device {name}"), format!("remove /dev/{name}"))
}

/// Paths that loop devices and the kernel's NVMe target pass on, with the names of those.
fn passed_on(system: &System) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for name in system.names("/sys/class/block").into_iter().filter(|name| name.starts_with("loop")) {
        if let Some(path) = system.text(&format!("/sys/class/block/{name}/loop/backing_file")) {
            found.push((path, format!("the loop device {name}")));
        }
    }
    let subsystems = "/sys/kernel/config/nvmet/subsystems";
    for subsystem in system.names(subsystems) {
        let by = format!("the NVMe target {subsystem}");
        let folder = format!("{subsystems}/{subsystem}");
        let namespaces = system.names(&format!("{folder}/namespaces"));
        let namespaces = namespaces.iter().map(|nsid| format!("{folder}/namespaces/{nsid}"));
        for place in namespaces.chain([format!("{folder}/passthru")]) {
            if system.number(&format!("{place}/enable")) == Some(1)
                && let Some(path) = system.text(&format!("{place}/device_path"))
            {
                found.push((resolved(system, path), by.clone()));
            }
        }
    }
    found
}

/// Where a path below `/dev` leads: the target keeps what its administrator wrote, such as
/// `/dev/disk/by-id/...`, and opens that without claiming it.
fn resolved(system: &System, path: String) -> String {
    let found = path.starts_with("/dev/").then(|| {
        let root = fs::canonicalize(system.path("/")).ok()?;
        let found = fs::canonicalize(system.path(&path)).ok()?;
        Path::new("/").join(found.strip_prefix(root).ok()?).into_os_string().into_string().ok()
    });
    found.flatten().unwrap_or(path)
}

/// Block devices of mounted btrfs file systems: `mountinfo` names one of several, and none by its number.
fn file_systems(system: &System) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for uuid in system.names("/sys/fs/btrfs") {
        for device in system.names(&format!("/sys/fs/btrfs/{uuid}/devices")) {
            found.push((device, format!("btrfs {uuid}")));
        }
    }
    found
}
