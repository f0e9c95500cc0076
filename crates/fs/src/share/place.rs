//! Where a server of a file system is found.

use std::hash::Hasher;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use twox_hash::XxHash3_64;
use unvme::{DeviceName, Registry};

use crate::error::{Error, Result};

/// Most of a device's name that is shown in its socket's: all names have to fit into 107 bytes.
const SHOWN: usize = 32;

/// Where the server of a device's namespace listens unless it was told otherwise: a socket in a folder of
/// this user alone. All names of a device lead to the same place; those of virtual devices, which belong to a
/// folder of their own, to others than those of other folders.
///
/// # Errors
/// [`Error::Format`] for a name that is none; [`Error::Device`] when there is no such folder and it cannot be
/// made, or somebody else could get in.
pub fn socket_path(device: &str, nsid: u32) -> Result<PathBuf> {
    let name = match DeviceName::parse(device).map_err(|e| Error::Format(e.to_string()))? {
        Some(DeviceName::Address(address)) => address.to_string(),
        Some(DeviceName::Kernel(path)) => {
            format!("kernel:{}", path.canonicalize().unwrap_or(path).display())
        }
        _ => device.to_owned(),
    };
    let home = Registry::from_environment().map(|registry| registry.home().to_path_buf());
    let home = home.map_err(|e| Error::Device(e.to_string()))?;
    let mut hash = XxHash3_64::with_seed(u64::from(nsid));
    for part in [home.as_os_str().as_encoded_bytes(), name.as_bytes()] {
        hash.write(part);
        hash.write_u8(0);
    }
    let shown = |letter: char| if letter.is_ascii_alphanumeric() || letter == '.' { letter } else { '-' };
    let shown: String = name.chars().map(shown).take(SHOWN).collect();
    let folder = unvme::runtime_folder().map_err(|e| Error::Device(e.to_string()))?.join("fs");
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&folder)
        .map_err(|e| Error::Device(format!("create {}: {e}", folder.display())))?;
    Ok(folder.join(format!("{shown}-{nsid}-{:016x}", hash.finish())))
}

/// Where a process that has the file system of a server's socket to itself is asked to share it.
pub fn alone_socket(socket: &Path) -> PathBuf {
    let mut path = socket.as_os_str().to_owned();
    path.push(".alone");
    PathBuf::from(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_one_device_lead_to_one_socket_and_others_elsewhere() {
        let path = |device, nsid| socket_path(device, nsid).expect("a path");
        assert_eq!(path("0000:02:00.0", 1), path("02:00.0", 1));
        let all = [
            path("02:00.0", 1),
            path("02:00.0", 2),
            path("0000:03:00.0", 1),
            path("mem:block:1G", 1),
            path("kernel:/dev/../dev/null", 1),
        ];
        assert_eq!(all[4], path("kernel:/dev/null", 1));
        for (at, one) in all.iter().enumerate() {
            assert!(!all[..at].contains(one), "{}", one.display());
            assert!(one.as_os_str().len() + ".lock".len() < 107);
        }
    }
}
