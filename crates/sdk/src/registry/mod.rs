//! Virtual slots: devices in a folder, named by a PCI address.
//!
//! A slot is the folder `slots/<address>` of a [`Registry`]: `device.json` says what it is ([`DeviceSpec`]),
//! `lock` who holds it, `cntrl` is the vfio-user socket where its holder is reached, `unplugged` is there
//! when it cannot be opened ([`Registry::unplug`]), and the rest is the device's own.

mod config;
mod ftl;
mod lock;
mod plug;
#[cfg(feature = "local")]
mod watch;

use std::env;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
#[cfg(feature = "local")]
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

pub use config::{
    BlockBytes, CAPACITY_MAX, CAPACITY_MIN, CAPACITY_UNIT, DeviceSpec, DeviceType, KV_NAMESPACE_MIN,
    KeyspaceField, MODEL_BYTES_MAX, MODEL_DEFAULT, MediaKind, NAMESPACES_MAX, NamespaceSpec,
    SERIAL_BYTES_MAX,
};
pub use ftl::{
    FtlKind, FtlSpec, GROUPS_MAX, HANDLES_MAX, Overprovisioning, UNIT_DEFAULT, UNIT_MAX, UNIT_MIN, UNIT_STEP,
};
pub use lock::SlotLock;
pub use plug::Plugged;
pub use unvme_flash::ftl::VictimPolicy;
pub use unvme_flash::timing::TimingSpec;

pub(crate) use lock::{Attempt, Note, add_note, note};
#[cfg(feature = "local")]
pub(crate) use watch::PlugWatch;

#[cfg(feature = "local")]
use crate::NOTICES;
use crate::{Error, PciAddress, Result};

/// Environment variable that names the folder of all virtual slots.
pub const HOME_VARIABLE: &str = "UNVME_HOME";

const DEVICE_FILE: &str = "device.json";
const LOCK_FILE: &str = "lock";
const SOCKET_FILE: &str = "cntrl";
/// What is on a device is its owner's alone: whoever enters the folder can do with it what its holder can.
pub(crate) const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
/// Access of anybody but the owner.
pub(crate) const OTHERS: u32 = 0o077;

/// The folder that holds the virtual slots.
#[derive(Clone, Debug)]
pub struct Registry {
    home: PathBuf,
}

/// A virtual slot that exists.
#[derive(Clone, Debug)]
pub struct Slot {
    /// Its name.
    pub address: PciAddress,
    folder: PathBuf,
}

impl Registry {
    /// The registry of this user: `$UNVME_HOME`, or `$XDG_STATE_HOME/unvme`, or `$HOME/.local/state/unvme`.
    ///
    /// # Errors
    /// [`Error::Argument`] when none of these variables is set to an absolute path.
    pub fn from_environment() -> Result<Self> {
        let folder =
            |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| !path.as_os_str().is_empty());
        let home = folder(HOME_VARIABLE)
            .or_else(|| folder("XDG_STATE_HOME").map(|path| path.join("unvme")))
            .or_else(|| folder("HOME").map(|path| path.join(".local/state/unvme")));
        match home {
            Some(home) if home.is_absolute() => Ok(Self::at(home)),
            Some(home) => Err(Error::Argument(format!(
                "{}: the folder of the virtual devices is not an absolute path; set {HOME_VARIABLE} to one",
                home.display()
            ))),
            None => Err(Error::Argument(format!(
                "there is no place for virtual devices; set {HOME_VARIABLE} to a folder"
            ))),
        }
    }

    /// The registry in a folder, which need not exist yet.
    pub fn at(home: impl Into<PathBuf>) -> Self {
        Self { home: home.into() }
    }

    /// The folder.
    pub fn home(&self) -> &Path {
        &self.home
    }

    fn slots(&self) -> PathBuf {
        self.home.join("slots")
    }

    /// The slot at an address, if there is one.
    pub fn find(&self, address: PciAddress) -> Option<Slot> {
        let folder = self.slots().join(address.to_string());
        folder.is_dir().then_some(Slot { address, folder })
    }

    /// All slots by address. A folder whose name is no address is none.
    ///
    /// # Errors
    /// [`Error::Io`] when the folder cannot be read; one that does not exist holds no slots.
    pub fn list(&self) -> Result<Vec<Slot>> {
        let folder = self.slots();
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(Error::file("read", &folder, e)),
        };
        let mut slots = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|e| Error::file("read", &folder, e))?;
            let address = entry.file_name().to_str().and_then(|name| name.parse::<PciAddress>().ok());
            if let Some(slot) = address.and_then(|address| self.find(address)) {
                slots.push(slot);
            }
        }
        slots.sort_by_key(|slot| slot.address);
        // Two spellings of one address are two folders to the file system and one slot to us.
        slots.dedup_by_key(|slot| slot.address);
        Ok(slots)
    }

    /// The first free address of the form `0000:NN:00.0`, from bus 1 on.
    ///
    /// # Errors
    /// [`Error::Argument`] when all are taken.
    pub fn free_address(&self) -> Result<PciAddress> {
        (1..=u8::MAX)
            .map(|bus| PciAddress { domain: 0, bus, device: 0, function: 0 })
            .find(|&address| self.find(address).is_none())
            .ok_or_else(|| {
                Error::Argument("all 255 buses are taken; name an address, or remove a device".into())
            })
    }

    /// Creates a slot. It exists whole or not at all.
    ///
    /// # Errors
    /// [`Error::Exists`]; [`Error::Argument`] for a description outside its bounds; [`Error::Io`].
    pub fn create(&self, address: PciAddress, spec: &DeviceSpec) -> Result<Slot> {
        spec.check()?;
        let name = address.to_string();
        if self.find(address).is_some() {
            return Err(Error::Exists { name });
        }
        let slots = self.slots();
        let private = |recursive| {
            let mut builder = fs::DirBuilder::new();
            builder.recursive(recursive).mode(FOLDER_MODE);
            builder
        };
        private(true).create(&slots).map_err(|e| Error::file("create", &slots, e))?;
        let new = slots.join(format!(".new-{name}-{}", std::process::id()));
        private(false).create(&new).map_err(|e| Error::file("create", &new, e))?;
        let folder = slots.join(&name);
        let made = spec.store(&new.join(DEVICE_FILE)).and_then(|()| {
            renameat_with(CWD, &new, CWD, &folder, RenameFlags::NOREPLACE).map_err(|e| match e {
                Errno::EXIST => Error::Exists { name: name.clone() },
                e => Error::file("create", &folder, e),
            })
        });
        if let Err(e) = made {
            // The first error is the one to tell; what is left of a failed creation is no slot.
            let _ = fs::remove_dir_all(&new);
            return Err(e);
        }
        Ok(Slot { address, folder })
    }

    /// Removes a slot and all its data.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::InUse`]; [`Error::Io`].
    pub fn remove(&self, address: PciAddress) -> Result<()> {
        let name = address.to_string();
        let Some(slot) = self.find(address) else {
            return Err(self.not_found(&name));
        };
        let _lock = match SlotLock::attempt(&slot.lock_path())? {
            Attempt::Held(lock) => lock,
            Attempt::Busy(pid) => {
                return Err(Error::InUse { name, pid, reason: "stop that process first".into() });
            }
        };
        // Renamed first: should the removal be interrupted, what is left is no slot.
        let doomed = self.slots().join(format!(".removed-{name}-{}", std::process::id()));
        fs::rename(&slot.folder, &doomed).map_err(|e| Error::file("remove", &slot.folder, e))?;
        fs::remove_dir_all(&doomed).map_err(|e| Error::file("remove", &doomed, e))
    }

    /// The error for a name that nothing has: it lists what is there.
    pub fn not_found(&self, name: &str) -> Error {
        Error::NotFound { name: name.into(), available: self.available() }
    }

    fn available(&self) -> String {
        let slots = match self.list() {
            Ok(slots) if slots.is_empty() => "there are no virtual devices".to_owned(),
            Ok(slots) => {
                let name = |slot: &Slot| match slot.is_unplugged() {
                    true => format!("{} (unplugged)", slot.address),
                    false => slot.address.to_string(),
                };
                let names: Vec<String> = slots.iter().map(name).collect();
                format!("virtual devices are {}", names.join(", "))
            }
            Err(e) => format!("the virtual devices cannot be listed ({e})"),
        };
        format!(
            "{slots} in {}; {}; create one with `unvme device create`, or name mem:block:SIZE, mem:kv:SIZE, vfio-user:SOCKET, kernel:PATH or tcp:HOST:PORT/NQN",
            self.home.display(),
            crate::drive::available()
        )
    }
}

impl Slot {
    /// The folder with everything of this slot.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Where a process that serves this slot listens.
    pub fn socket_path(&self) -> PathBuf {
        self.folder.join(SOCKET_FILE)
    }

    /// The lock file.
    pub fn lock_path(&self) -> PathBuf {
        self.folder.join(LOCK_FILE)
    }

    /// Takes the access to the slot's folder and files away from everybody but their owner, and says so if
    /// there was any.
    #[cfg(feature = "local")]
    pub(crate) fn make_private(&self) {
        let files = fs::read_dir(&self.folder).into_iter().flatten().flatten().map(|entry| entry.path());
        let mut was_open = false;
        for path in std::iter::once(self.folder.clone()).chain(files) {
            let Ok(mode) = path.metadata().map(|metadata| metadata.permissions().mode()) else { continue };
            if mode & OTHERS == 0 {
                continue;
            }
            match fs::set_permissions(&path, fs::Permissions::from_mode(mode & !OTHERS)) {
                Ok(()) => was_open = true,
                Err(e) if e.kind() == io::ErrorKind::ReadOnlyFilesystem => {}
                Err(e) => tracing::warn!(path = %path.display(), error = %e, "others can read or change it"),
            }
        }
        if was_open {
            tracing::warn!(
                target: NOTICES,
                "{}: others could read or change what is in {}; only its owner can now",
                self.address,
                self.folder.display()
            );
        }
    }

    /// Reads the slot's description.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Config`] with file, line, column and key.
    pub fn spec(&self) -> Result<DeviceSpec> {
        DeviceSpec::load(&self.folder.join(DEVICE_FILE))
    }

    /// The process that holds the slot at this moment; `Some(None)` when it is held by one that does not say.
    ///
    /// # Errors
    /// [`Error::Io`] when the lock file cannot be used.
    pub fn holder(&self) -> Result<Option<Option<u32>>> {
        lock::probe(&self.lock_path())
    }

    /// Bytes that the slot's files take on the disk.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn disk_bytes(&self) -> Result<u64> {
        use std::os::unix::fs::MetadataExt;
        let mut bytes = 0;
        for entry in fs::read_dir(&self.folder).map_err(|e| Error::file("read", &self.folder, e))? {
            let entry = entry.map_err(|e| Error::file("read", &self.folder, e))?;
            // st_blocks counts units of 512 bytes whatever the file system's block is.
            bytes += entry.metadata().map_err(|e| Error::file("inspect", &entry.path(), e))?.blocks() * 512;
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests;
