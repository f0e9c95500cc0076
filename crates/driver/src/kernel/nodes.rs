//! The kernel's NVMe nodes, and what sysfs says of them.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::errno;
use crate::Error;

/// Where the system's files are; a test has folders of its own.
#[derive(Clone, Debug)]
pub(super) struct Roots {
    pub(super) sys: PathBuf,
    pub(super) dev: PathBuf,
}

impl Roots {
    pub(super) fn system() -> Self {
        Self { sys: PathBuf::from("/sys"), dev: PathBuf::from("/dev") }
    }
}

/// What a path names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Node {
    /// A controller, by its kernel name: `nvme0`.
    Controller(String),
    /// A namespace for passthrough, by its kernel name: `ng0n1`.
    Namespace(String),
    /// A block device; its folder in sysfs.
    Block(PathBuf),
    /// A regular file.
    File,
}

/// Finds out what `path` is, whatever it is called.
pub(super) fn identify(roots: &Roots, path: &Path) -> Result<Node, Error> {
    let shown = path.display().to_string();
    let metadata = fs::metadata(path)
        .map_err(|e| errno::explain("open", &shown, e.raw_os_error().unwrap_or(libc::EIO)))?;
    let kind = metadata.file_type();
    if kind.is_file() {
        return Ok(Node::File);
    }
    let (major, minor) = (libc::major(metadata.rdev()), libc::minor(metadata.rdev()));
    if kind.is_block_device() {
        return Ok(Node::Block(roots.sys.join(format!("dev/block/{major}:{minor}"))));
    }
    if kind.is_char_device() {
        let folder = roots.sys.join(format!("dev/char/{major}:{minor}"));
        if let Some(node) = character(&folder) {
            return Ok(node);
        }
    }
    Err(Error::Unsupported(format!(
        "{shown} is none of the kernel's ways to a drive: /dev/nvmeX, /dev/ngXnY, a block device, a partition, or a file"
    )))
}

/// A character device of the NVMe driver, by the class it is in.
fn character(folder: &Path) -> Option<Node> {
    let name = file_name(&fs::canonicalize(folder).ok()?)?;
    let class = file_name(&fs::canonicalize(folder.join("subsystem")).ok()?)?;
    match class.as_str() {
        "nvme" => Some(Node::Controller(name)),
        "nvme-generic" => Some(Node::Namespace(name)),
        _ => None,
    }
}

fn file_name(path: &Path) -> Option<String> {
    Some(path.file_name()?.to_str()?.to_owned())
}

/// The numbers in the name of a namespace: controller (or subsystem) and head, `nvme0n1`, `nvme0c1n1`,
/// `ng0n1`.
fn numbers(name: &str) -> Option<(u32, u32)> {
    let rest = name.strip_prefix("nvme").or_else(|| name.strip_prefix("ng"))?;
    let (first, head) = rest.split_once('n')?;
    let instance = first.split_once('c').map_or(first, |(instance, _)| instance);
    Some((instance.parse().ok()?, head.parse().ok()?))
}

/// A namespace of a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NamespaceNode {
    pub(super) nsid: u32,
    pub(super) path: PathBuf,
}

/// The namespaces of controller `nvme0`, by identifier, and where their passthrough nodes are.
pub(super) fn namespaces(roots: &Roots, controller: &str) -> Vec<NamespaceNode> {
    let folder = roots.sys.join("class/nvme").join(controller);
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut found: Vec<_> = entries
        .flatten()
        .filter_map(|entry| {
            let (instance, head) = numbers(entry.file_name().to_str()?)?;
            let nsid = number(&entry.path().join("nsid"))?;
            let path = roots.dev.join(format!("ng{instance}n{head}"));
            Some(NamespaceNode { nsid: u32::try_from(nsid).ok()?, path })
        })
        .collect();
    found.sort_by_key(|node| node.nsid);
    found.dedup_by_key(|node| node.nsid);
    found
}

/// The controller that namespace node `ng0n1` is of; one of them, when it has several.
pub(super) fn controller_of(roots: &Roots, namespace: &str) -> Option<String> {
    let parent =
        fs::canonicalize(roots.sys.join("class/nvme-generic").join(namespace).join("device")).ok()?;
    let is_controller = |name: &String| {
        name.strip_prefix("nvme")
            .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))
    };
    if let Some(name) = file_name(&parent).filter(is_controller) {
        return Some(name);
    }
    // The parent of a namespace that has several paths is the subsystem.
    let entries = fs::read_dir(parent).ok()?;
    entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).filter(is_controller).min()
}

/// The folder of the block device that belongs to namespace node `ng0n1`.
pub(super) fn block_of(roots: &Roots, namespace: &Path) -> Option<PathBuf> {
    let (instance, head) = numbers(&file_name(namespace)?)?;
    let folder = roots.sys.join(format!("class/block/nvme{instance}n{head}"));
    folder.exists().then_some(folder)
}

/// What the kernel calls a block device.
pub(super) fn block_name(major: u32, minor: u32) -> Option<String> {
    file_name(&fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?)
}

/// A number of sysfs.
pub(super) fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// A text of sysfs, without the padding.
pub(super) fn text(path: &Path) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned()).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(root: &Path, path: &str, content: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn roots(folder: &Path) -> Roots {
        Roots { sys: folder.join("sys"), dev: PathBuf::from("/dev") }
    }

    #[test]
    fn namespaces_are_found_with_and_without_several_paths() {
        let folder = tempfile::tempdir().unwrap();
        put(folder.path(), "sys/class/nvme/nvme3/nvme3n2/nsid", "7\n");
        put(folder.path(), "sys/class/nvme/nvme3/nvme1c3n1/nsid", "1\n");
        put(folder.path(), "sys/class/nvme/nvme3/ng3n2/dev", "241:0\n");
        put(folder.path(), "sys/class/nvme/nvme3/serial", "X\n");
        put(folder.path(), "sys/class/nvme/nvme3/hwmon3/name", "nvme\n");
        let found = namespaces(&roots(folder.path()), "nvme3");
        let node = |nsid, path: &str| NamespaceNode { nsid, path: path.into() };
        assert_eq!(found, [node(1, "/dev/ng1n1"), node(7, "/dev/ng3n2")]);
        assert_eq!(namespaces(&roots(folder.path()), "nvme4"), []);
    }

    #[test]
    fn a_namespace_leads_to_its_controller_also_through_a_subsystem() {
        let folder = tempfile::tempdir().unwrap();
        let sys = folder.path().join("sys");
        fs::create_dir_all(sys.join("devices/nvme0/ng0n1")).unwrap();
        fs::create_dir_all(sys.join("devices/nvme-subsys1/nvme2")).unwrap();
        fs::create_dir_all(sys.join("devices/nvme-subsys1/nvme1")).unwrap();
        fs::create_dir_all(sys.join("class/nvme-generic/ng0n1")).unwrap();
        fs::create_dir_all(sys.join("class/nvme-generic/ng1n1")).unwrap();
        let link = |to: &str, at: &str| std::os::unix::fs::symlink(sys.join(to), sys.join(at)).unwrap();
        link("devices/nvme0", "class/nvme-generic/ng0n1/device");
        link("devices/nvme-subsys1", "class/nvme-generic/ng1n1/device");
        assert_eq!(controller_of(&roots(folder.path()), "ng0n1").as_deref(), Some("nvme0"));
        assert_eq!(controller_of(&roots(folder.path()), "ng1n1").as_deref(), Some("nvme1"));
        assert_eq!(controller_of(&roots(folder.path()), "ng9n9"), None);
    }

    #[test]
    fn a_path_that_is_no_way_to_a_drive_is_refused_in_words() {
        let error = |path: &str| identify(&Roots::system(), Path::new(path)).unwrap_err().to_string();
        assert!(error("/dev/null").contains("/dev/ngXnY"), "{}", error("/dev/null"));
        assert!(error("/tmp").contains("/tmp is none of"));
        assert!(error("/dev/nvme99").starts_with("open /dev/nvme99: No such file"));
    }

    #[test]
    fn names_that_are_no_namespaces_have_no_numbers() {
        assert_eq!(numbers("nvme0n1"), Some((0, 1)));
        assert_eq!(numbers("nvme10c2n31"), Some((10, 31)));
        assert_eq!(numbers("ng4n5"), Some((4, 5)));
        for name in ["nvme0", "nvme0n1p1", "nvmen1", "ng", "sda", "nvme0nx"] {
            assert_eq!(numbers(name), None, "{name}");
        }
    }
}
