//! Where the file system of a command is.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use anyhow::{Context, Result};
use clap::Args;
use unvme::{Block, Device};
use unvme_fs::share::{end_idle_server, socket_path};
use unvme_fs::{Credentials, Errno, Error, FileSystem, MountOptions, Vnode};

use crate::target::{DeviceArg, NamespaceArg};

/// Device and namespace.
#[derive(Debug, Args)]
pub(super) struct Place {
    #[command(flatten)]
    pub(super) device: DeviceArg,
    #[command(flatten)]
    pub(super) namespace: NamespaceArg,
}

/// A file system that is mounted for a command.
pub(super) struct Mounted {
    pub(super) fs: FileSystem,
    pub(super) who: Credentials,
    /// Last: the device is closed when everything is written.
    _device: Device,
}

/// The namespace whose file system a server has, unless another one is named.
pub(super) const NSID: u32 = 1;

impl Place {
    /// Opens the device. An idle server, which programs of `unvme run` have left, ends first.
    pub(super) fn open(&self) -> Result<(Device, Block)> {
        let device = &self.device.device;
        // What a mem: device has is gone with its server.
        if !device.starts_with("mem:")
            && let Ok(socket) = socket_path(device, self.namespace.namespace_id.unwrap_or(NSID))
        {
            end_idle_server(&socket);
        }
        self.open_held()
    }

    /// As [`Place::open`], for the process that holds the file system's socket.
    pub(super) fn open_held(&self) -> Result<(Device, Block)> {
        let device = self.device.open()?;
        let block = self.namespace.block(&device)?;
        Ok((device, block))
    }

    pub(super) fn mount_with(&self, options: &MountOptions) -> Result<Mounted> {
        let (device, block) = self.open()?;
        let fs = FileSystem::mount(&block, device.name(), options)?;
        Ok(Mounted { fs, who: Credentials::root(), _device: device })
    }

    /// To look, and to change nothing.
    pub(super) fn look(&self) -> Result<Mounted> {
        self.mount_with(&MountOptions { is_read_only: true, ..MountOptions::default() })
    }

    /// To change something.
    pub(super) fn change(&self) -> Result<Mounted> {
        self.mount_with(&MountOptions::default())
    }
}

impl Mounted {
    /// What a path leads to.
    pub(super) fn find(&self, path: &OsStr, follows: bool) -> Result<Vnode> {
        self.fs.resolve(path.as_bytes(), follows, &self.who).with_context(|| shown(path.as_bytes()))
    }

    /// What a path leads to; `None` when nothing has the path.
    pub(super) fn find_if_any(&self, path: &OsStr) -> Result<Option<Vnode>> {
        match self.fs.resolve(path.as_bytes(), true, &self.who) {
            Err(Error::Posix(Errno::NOENT)) => Ok(None),
            other => other.map(Some).with_context(|| shown(path.as_bytes())),
        }
    }

    /// The directory of a path's last name, and that name.
    pub(super) fn parent(&self, path: &OsStr) -> Result<(Vnode, Vec<u8>)> {
        self.fs.resolve_parent(path.as_bytes(), &self.who).with_context(|| shown(path.as_bytes()))
    }

    /// Leaves it in order.
    pub(super) fn done(self) -> Result<()> {
        Ok(self.fs.unmount()?)
    }
}

/// A name or path as it is printed: what is no text is shown as `\xNN`, as are control characters.
pub(super) fn shown(name: &[u8]) -> String {
    let mut text = String::new();
    for chunk in name.utf8_chunks() {
        for letter in chunk.valid().chars() {
            if letter.is_control() {
                let mut bytes = [0; 4];
                letter
                    .encode_utf8(&mut bytes)
                    .bytes()
                    .for_each(|byte| text.push_str(&format!("\\x{byte:02x}")));
            } else {
                text.push(letter);
            }
        }
        chunk.invalid().iter().for_each(|byte| text.push_str(&format!("\\x{byte:02x}")));
    }
    text
}

/// The path of a name in a directory.
pub(super) fn below(directory: &OsStr, name: &[u8]) -> OsString {
    let mut path = directory.as_bytes().to_vec();
    if !path.ends_with(b"/") {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    OsStr::from_bytes(&path).to_os_string()
}

/// The names of a directory, without those of itself and the one above, in order.
pub(super) fn entries(directory: &Vnode) -> Result<Vec<unvme_fs::Entry>> {
    let mut entries = Vec::new();
    directory.list(2, |entry| {
        entries.push(entry);
        std::ops::ControlFlow::Continue(())
    })?;
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(entries)
}
