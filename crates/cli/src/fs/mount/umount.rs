//! `unvme umount`, and the helper that umount(8) calls.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, anyhow};
use clap::Args;
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use unvme::NOTICES;

use super::daemon::{self, Daemon, MountPoint};
use super::namespace::in_namespace;
use super::{check_kind, is_root};
use crate::exit::usage;

/// Arguments of `umount`.
#[derive(Debug, Args)]
#[command(after_help = "\
It returns when everything is on the device, and the device is free. umount(8) does so, too, with
umount.fuse.unvme in /sbin.

Example: sudo unvme umount /mnt/scratch")]
pub(crate) struct Umount {
    /// Directory that a file system is mounted at, or the device
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Detach it now; it ends when the last process that uses it has closed its files
    #[arg(short, long)]
    lazy: bool,
    /// Abort the requests in flight, of umount(8)
    #[arg(long, hide = true)]
    force: bool,
    /// Make it read-only when it is in use, of umount(8)
    #[arg(long, hide = true)]
    read_only: bool,
    /// Print what was unmounted, of umount(8)
    #[arg(long, hide = true)]
    verbose: bool,
    /// Type, of umount(8)
    #[arg(short = 't', hide = true)]
    kind: Option<String>,
    /// Mount namespace, of umount(8)
    #[arg(short = 'N', hide = true)]
    namespace: Option<PathBuf>,
}

impl Umount {
    pub(crate) fn run(self) -> Result<()> {
        check_kind(self.kind.as_deref())?;
        in_namespace(self.namespace.as_deref(), || self.unmount())
    }

    fn unmount(&self) -> Result<()> {
        let path = std::path::absolute(&self.directory)?;
        let path = path.canonicalize().unwrap_or(path);
        let Some(mount) = daemon::mount_point(&path, self.directory.as_os_str())? else {
            return Err(usage(format!("{}: no file system of unvme is mounted there", path.display())));
        };
        let daemons: Vec<_> = Daemon::all().into_iter().filter(|daemon| daemon.serves(&mount)).collect();
        if !self.detach(&mount)? {
            return Ok(());
        }
        if self.verbose {
            tracing::info!(target: NOTICES, "{}: unmounted", mount.directory.display());
        }
        // The same device may be mounted there twice, read-only: then one of its processes ends.
        let rest = daemon::mount_points()?;
        let is_last =
            !rest.iter().any(|other| (&other.source, &other.directory) == (&mount.source, &mount.directory));
        if !self.lazy && is_last {
            // What is dirty is written back when they end.
            for daemon in &daemons {
                daemon.wait(None)?;
            }
        }
        Ok(())
    }

    /// Unmounts it. Returns false when it was made read-only instead.
    fn detach(&self, mount: &MountPoint) -> Result<bool> {
        let directory = &mount.directory;
        if !is_root() {
            return self.call_fusermount(directory).map(|()| true);
        }
        let mut flags = UnmountFlags::empty();
        flags.set(UnmountFlags::DETACH, self.lazy);
        flags.set(UnmountFlags::FORCE, self.force);
        match rustix::mount::unmount(directory, flags) {
            Ok(()) => Ok(true),
            Err(Errno::BUSY) if self.read_only => {
                rustix::mount::mount_remount(directory, read_only_flags(mount), c"")
                    .map_err(|e| anyhow!("make {} read-only: {}", directory.display(), io::Error::from(e)))?;
                tracing::info!(target: NOTICES, "{}: in use, and read-only from now on", directory.display());
                Ok(false)
            }
            Err(Errno::BUSY) => {
                Err(anyhow!("{}: a process uses it; --lazy detaches it all the same", directory.display()))
            }
            Err(e) => Err(anyhow!("unmount {}: {}", directory.display(), io::Error::from(e))),
        }
    }

    /// Other users than root unmount what they have mounted by fusermount3.
    fn call_fusermount(&self, directory: &Path) -> Result<()> {
        let mut command = Command::new("fusermount3");
        command.arg("-u").args(self.lazy.then_some("-z")).arg("--").arg::<&OsStr>(directory.as_ref());
        let status = command.status().context("run fusermount3")?;
        if status.success() {
            Ok(())
        } else {
            Err(anyhow!("fusermount3 -u {}: {status}", directory.display()))
        }
    }
}

/// The flags of a mount point, and read-only.
fn read_only_flags(mount: &MountPoint) -> MountFlags {
    let named = [
        ("nosuid", MountFlags::NOSUID),
        ("nodev", MountFlags::NODEV),
        ("noexec", MountFlags::NOEXEC),
        ("noatime", MountFlags::NOATIME),
        ("nodiratime", MountFlags::NODIRATIME),
    ];
    let kept = named.into_iter().filter(|(name, _)| mount.options.iter().any(|option| option == name));
    kept.fold(MountFlags::RDONLY, |flags, (_, flag)| flags | flag)
}
