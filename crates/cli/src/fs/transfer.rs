//! `fs put`, `fs get`, `fs cp`.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use unvme_fs::{Errno, Error, FileType, NewAttributes, NewFile, Time, Vnode};

use super::look::copy_out;
use super::place::{Mounted, Place, below, entries, shown};
use crate::exit::usage;

/// Arguments of `fs put`.
#[derive(Debug, Args)]
#[command(after_help = "\
Permissions and times go with a file, its owner does not. When the path is a directory, the file
goes into it.

Examples:
  unvme fs put 0000:02:00.0 Cargo.toml /Cargo.toml
  echo text | unvme fs put 0000:02:00.0 - /note")]
pub(crate) struct Put {
    #[command(flatten)]
    place: Place,
    /// Local file or directory; - for standard input
    #[arg(value_name = "LOCAL")]
    local: PathBuf,
    /// Path in the file system
    #[arg(value_name = "PATH")]
    path: OsString,
    /// Directories, too, with everything below them
    #[arg(short, long)]
    recursive: bool,
}

/// Where something called `name` goes when it is sent to `path`: into it, if it is a directory.
fn goal(mounted: &Mounted, path: &OsStr, name: Option<&OsStr>) -> Result<OsString> {
    let found = mounted.find_if_any(path)?;
    let is_directory = found.is_some_and(|node| node.file_type() == FileType::Directory);
    Ok(match name {
        Some(name) if is_directory => below(path, name.as_bytes()),
        _ => path.to_os_string(),
    })
}

/// A file that is empty: new, or what was there.
fn fresh(mounted: &Mounted, path: &OsStr, permissions: u32) -> Result<Vnode> {
    let (parent, name) = mounted.parent(path)?;
    let context = || shown(path.as_bytes());
    match parent.create(&name, &NewFile::regular(permissions), &mounted.who) {
        Err(Error::Posix(Errno::EXIST)) => {
            let node = mounted.find(path, true)?;
            node.drop_privileges(&mounted.who).with_context(context)?;
            node.truncate(0).with_context(context)?;
            Ok(node)
        }
        other => other.with_context(context),
    }
}

fn directory(mounted: &Mounted, path: &OsStr, permissions: u32) -> Result<()> {
    let (parent, name) = mounted.parent(path)?;
    match parent.create(&name, &NewFile::directory(permissions), &mounted.who) {
        Err(Error::Posix(Errno::EXIST)) if mounted.find(path, true)?.file_type() == FileType::Directory => {
            Ok(())
        }
        other => other.map(drop).with_context(|| shown(path.as_bytes())),
    }
}

fn fill(node: &Vnode, path: &OsStr, from: &mut dyn Read) -> Result<()> {
    let mut buffer = vec![0; 1 << 20];
    let mut at = 0;
    loop {
        let bytes = from.read(&mut buffer)?;
        if bytes == 0 {
            return Ok(());
        }
        let mut done = 0;
        while done < bytes {
            let written = node.write_at(at, &buffer[done..bytes]).with_context(|| shown(path.as_bytes()))?;
            done += written;
            at += written as u64;
        }
    }
}

fn refused(what: &str) -> anyhow::Error {
    usage(format!("{what}: a directory; --recursive copies it with all below"))
}

impl Put {
    fn put(&self, mounted: &Mounted, local: &Path, path: &OsStr) -> Result<()> {
        let context = || local.display().to_string();
        let metadata = fs::symlink_metadata(local).with_context(context)?;
        let kind = metadata.file_type();
        let permissions = metadata.permissions().mode() & 0o7777;
        if kind.is_dir() {
            if !self.recursive {
                return Err(refused(&context()));
            }
            directory(mounted, path, permissions)?;
            for entry in fs::read_dir(local).with_context(context)? {
                let entry = entry.with_context(context)?;
                self.put(mounted, &entry.path(), &below(path, entry.file_name().as_bytes()))?;
            }
        } else if kind.is_symlink() && self.recursive {
            let target = fs::read_link(local).with_context(context)?;
            let (parent, name) = mounted.parent(path)?;
            let new = NewFile {
                file_type: FileType::Symlink,
                target: target.as_os_str().as_bytes(),
                ..NewFile::regular(0o777)
            };
            parent.create(&name, &new, &mounted.who).with_context(|| shown(path.as_bytes()))?;
            return Ok(());
        } else if kind.is_fifo() || kind.is_socket() || kind.is_char_device() || kind.is_block_device() {
            return Err(usage(format!("{}: neither a file nor a directory", context())));
        } else {
            let node = fresh(mounted, path, permissions)?;
            fill(&node, path, &mut File::open(local).with_context(context)?).with_context(context)?;
        }
        let time = |seconds: i64, nanoseconds: i64| Some(Time { seconds, nanoseconds: nanoseconds as u32 });
        let new = NewAttributes {
            permissions: Some(permissions),
            accessed: time(metadata.atime(), metadata.atime_nsec()),
            modified: time(metadata.mtime(), metadata.mtime_nsec()),
            ..NewAttributes::default()
        };
        Ok(mounted.find(path, true)?.set_attributes(&new, &mounted.who)?)
    }

    pub(crate) fn run(self) -> Result<()> {
        let mounted = self.place.change()?;
        if self.local.as_os_str() == "-" {
            let node = fresh(&mounted, &self.path, 0o644)?;
            fill(&node, &self.path, &mut std::io::stdin().lock()).context("standard input")?;
        } else {
            let path = goal(&mounted, &self.path, self.local.file_name())?;
            self.put(&mounted, &self.local, &path)?;
        }
        mounted.done()
    }
}

/// Arguments of `fs get`.
#[derive(Debug, Args)]
#[command(after_help = "\
Permissions and times go with a file, its owner does not.

Example: unvme fs get 0000:02:00.0 -r / copy")]
pub(crate) struct Get {
    #[command(flatten)]
    place: Place,
    /// Path in the file system
    #[arg(value_name = "PATH")]
    path: OsString,
    /// Local file or directory
    #[arg(value_name = "LOCAL")]
    local: PathBuf,
    /// Directories, too, with everything below them
    #[arg(short, long)]
    recursive: bool,
}

impl Get {
    fn get(&self, mounted: &Mounted, node: &Vnode, path: &OsStr, local: &Path) -> Result<()> {
        let context = || local.display().to_string();
        let attributes = node.attributes();
        match attributes.file_type() {
            FileType::Directory => {
                if !self.recursive {
                    return Err(refused(&shown(path.as_bytes())));
                }
                if !local.is_dir() {
                    fs::create_dir(local).with_context(context)?;
                }
                for entry in entries(node)? {
                    let found = node.lookup(&entry.name, &mounted.who)?;
                    let name = OsStr::from_bytes(&entry.name);
                    self.get(mounted, &found, &below(path, &entry.name), &local.join(name))?;
                }
            }
            FileType::Symlink => {
                let target = node.target()?;
                return std::os::unix::fs::symlink(OsStr::from_bytes(&target), local).with_context(context);
            }
            FileType::RegularFile => {
                let mut file = File::create(local).with_context(context)?;
                copy_out(node, path, &mut file).with_context(context)?;
                file.flush().with_context(context)?;
                let modified = std::time::UNIX_EPOCH.checked_add(std::time::Duration::new(
                    attributes.modified.seconds.max(0) as u64,
                    attributes.modified.nanoseconds,
                ));
                if let Some(modified) = modified {
                    file.set_modified(modified).with_context(context)?;
                }
            }
            _ => return Err(usage(format!("{}: neither a file nor a directory", shown(path.as_bytes())))),
        }
        let permissions = fs::Permissions::from_mode(attributes.mode & 0o777);
        fs::set_permissions(local, permissions).with_context(context)
    }

    pub(crate) fn run(self) -> Result<()> {
        let mounted = self.place.look()?;
        let node = mounted.find(&self.path, true)?;
        let name = Path::new(&self.path).file_name();
        let local = match name {
            Some(name) if self.local.is_dir() => self.local.join(name),
            _ => self.local.clone(),
        };
        self.get(&mounted, &node, &self.path, &local)
    }
}

/// Arguments of `fs cp`.
#[derive(Debug, Args)]
#[command(after_help = "Example: unvme fs cp 0000:02:00.0 /text /copy")]
pub(crate) struct Cp {
    #[command(flatten)]
    place: Place,
    /// File or directory
    #[arg(value_name = "FROM")]
    from: OsString,
    /// Path of the copy, or the directory it goes to
    #[arg(value_name = "TO")]
    to: OsString,
    /// Directories, too, with everything below them
    #[arg(short, long)]
    recursive: bool,
}

impl Cp {
    fn copy(&self, mounted: &Mounted, node: &Vnode, from: &OsStr, to: &OsStr) -> Result<()> {
        let attributes = node.attributes();
        match attributes.file_type() {
            FileType::Directory => {
                if !self.recursive {
                    return Err(refused(&shown(from.as_bytes())));
                }
                // What comes while it is copied is not: a copy into itself has an end.
                let names = entries(node)?;
                directory(mounted, to, attributes.mode & 0o7777)?;
                let copy = mounted.find(to, true)?.ino();
                for entry in names.iter().filter(|entry| entry.ino != copy) {
                    let found = node.lookup(&entry.name, &mounted.who)?;
                    self.copy(mounted, &found, &below(from, &entry.name), &below(to, &entry.name))?;
                }
                Ok(())
            }
            FileType::RegularFile => {
                if mounted.find_if_any(to)?.is_some_and(|there| there.ino() == node.ino()) {
                    return Err(usage(format!("{}: the same file", shown(to.as_bytes()))));
                }
                let copy = fresh(mounted, to, attributes.mode & 0o7777)?;
                let done =
                    node.copy_range(0, &copy, 0, attributes.size).with_context(|| shown(to.as_bytes()))?;
                if done < attributes.size {
                    return Err(anyhow::Error::from(Error::Posix(Errno::NOSPC)).context(shown(to.as_bytes())));
                }
                Ok(())
            }
            file_type => {
                let (parent, name) = mounted.parent(to)?;
                let target = if file_type == FileType::Symlink { node.target()? } else { Vec::new() };
                let new = NewFile {
                    file_type,
                    permissions: attributes.mode & 0o7777,
                    rdev: attributes.rdev,
                    target: &target,
                };
                parent.create(&name, &new, &mounted.who).map(drop).with_context(|| shown(to.as_bytes()))
            }
        }
    }

    pub(crate) fn run(self) -> Result<()> {
        let mounted = self.place.change()?;
        let node = mounted.find(&self.from, !self.recursive)?;
        let to = goal(&mounted, &self.to, Path::new(&self.from).file_name())?;
        self.copy(&mounted, &node, &self.from, &to)?;
        mounted.done()
    }
}
