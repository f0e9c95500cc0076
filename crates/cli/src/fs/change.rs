//! `fs mkdir`, `fs rm`, `fs mv`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use anyhow::{Context, Result};
use clap::Args;
use unvme_fs::{Errno, Error, FileType, NewFile, Rename};

use super::place::{Mounted, Place, below, entries, shown};
use crate::exit::usage;

/// Arguments of `fs mkdir`.
#[derive(Debug, Args)]
#[command(after_help = "Example: unvme fs mkdir 0000:02:00.0 -p /a/b/c")]
pub(crate) struct Mkdir {
    #[command(flatten)]
    place: Place,
    /// Directories
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,
    /// Directories above, too; one that is there is no error
    #[arg(short, long)]
    parents: bool,
}

fn is(error: &anyhow::Error, errno: Errno) -> bool {
    error.chain().any(|cause| matches!(cause.downcast_ref(), Some(Error::Posix(found)) if *found == errno))
}

fn make_directory(mounted: &Mounted, path: &OsStr) -> Result<()> {
    let (parent, name) = mounted.parent(path)?;
    let made = parent.create(&name, &NewFile::directory(0o755), &mounted.who);
    made.map(drop).with_context(|| shown(path.as_bytes()))
}

impl Mkdir {
    pub(crate) fn run(self) -> Result<()> {
        let mounted = self.place.change()?;
        for path in &self.paths {
            if !self.parents {
                make_directory(&mounted, path)?;
                continue;
            }
            let bytes = path.as_bytes();
            let ends = (1..bytes.len()).filter(|&at| bytes[at] == b'/' && bytes[at - 1] != b'/');
            for end in ends.chain([bytes.len()]) {
                let part = OsStr::from_bytes(&bytes[..end]);
                match make_directory(&mounted, part) {
                    Err(e)
                        if is(&e, Errno::EXIST)
                            && mounted.find(part, true)?.file_type() == FileType::Directory => {}
                    other => other?,
                }
            }
        }
        mounted.done()
    }
}

/// Arguments of `fs rm`.
#[derive(Debug, Args)]
#[command(after_help = "Example: unvme fs rm 0000:02:00.0 -rf /old")]
pub(crate) struct Rm {
    #[command(flatten)]
    place: Place,
    /// Files
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,
    /// Directories, too, with everything below them
    #[arg(short, long)]
    recursive: bool,
    /// What is not there is no error
    #[arg(short, long)]
    force: bool,
}

impl Rm {
    fn remove(&self, mounted: &Mounted, path: &OsStr) -> Result<()> {
        let (parent, name) = mounted.parent(path)?;
        let context = || shown(path.as_bytes());
        let node = parent.lookup(&name, &mounted.who).with_context(context)?;
        if node.file_type() != FileType::Directory {
            return parent.unlink(&name, &mounted.who).with_context(context);
        }
        if !self.recursive {
            return Err(usage(format!("{}: a directory; --recursive removes it with all below", context())));
        }
        for entry in entries(&node)? {
            self.remove(mounted, &below(path, &entry.name))?;
        }
        parent.rmdir(&name, &mounted.who).with_context(context)
    }

    pub(crate) fn run(self) -> Result<()> {
        let mounted = self.place.change()?;
        for path in &self.paths {
            match self.remove(&mounted, path) {
                Err(e) if self.force && is(&e, Errno::NOENT) => {}
                other => other?,
            }
        }
        mounted.done()
    }
}

/// Arguments of `fs mv`.
#[derive(Debug, Args)]
#[command(after_help = "\
What has the new name already is replaced, in one step, unless it is a directory: then the name
is moved into it.

Example: unvme fs mv 0000:02:00.0 /draft /text")]
pub(crate) struct Mv {
    #[command(flatten)]
    place: Place,
    /// File or directory
    #[arg(value_name = "FROM")]
    from: OsString,
    /// Its new path, or the directory it goes to
    #[arg(value_name = "TO")]
    to: OsString,
    /// An error when something has the new name
    #[arg(long, conflicts_with = "exchange")]
    no_clobber: bool,
    /// Both have each other's name afterwards
    #[arg(short, long)]
    exchange: bool,
}

impl Mv {
    pub(crate) fn run(self) -> Result<()> {
        let mounted = self.place.change()?;
        let (from, name) = mounted.parent(&self.from)?;
        let into = match self.exchange {
            true => None,
            false => mounted.find_if_any(&self.to)?.filter(|to| to.file_type() == FileType::Directory),
        };
        let (to, new_name) = match into {
            Some(directory) => (directory, name.clone()),
            None => mounted.parent(&self.to)?,
        };
        let how = match (self.no_clobber, self.exchange) {
            (true, _) => Rename::NoReplace,
            (_, true) => Rename::Exchange,
            _ => Rename::Replace,
        };
        let context = || format!("{} to {}", shown(self.from.as_bytes()), shown(self.to.as_bytes()));
        from.rename(&name, (&to, &new_name), how, &mounted.who).with_context(context)?;
        mounted.done()
    }
}
