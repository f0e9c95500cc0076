//! The path of an open file. A file does not know where it is.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use rustix::fs::FileType;
use rustix::io::Errno;

use crate::access::Credentials;
use crate::error::{Error, Result};
use crate::system::FileSystem;
use crate::vnode::Vnode;

/// Most directories between a directory and the root.
const DEPTH_MAX: usize = 4096;
/// Most directories that the search for a file's name reads.
const DIRECTORIES_MAX: usize = 1 << 16;

/// Returns the path of a file from the root on, and nothing for the root. A directory is looked up in each of
/// those above it; of another file, one of its names is searched for from the root on.
///
/// # Errors
/// ENOENT when it has no name, or was not found in as many directories as are searched; ENAMETOOLONG; those
/// of reading a directory.
pub(super) fn path_of(fs: &FileSystem, file: &Vnode) -> Result<Vec<u8>> {
    if file.file_type() != FileType::Directory {
        return search(fs.root()?, file);
    }
    let mut at = file.clone();
    let root = fs.root()?.ino();
    let checked = Credentials { are_checked: true, ..Credentials::default() };
    let mut path = Vec::new();
    for _ in 0..DEPTH_MAX {
        if at.ino() == root {
            return Ok(path);
        }
        if at.attributes().links == 0 {
            return Err(Errno::NOENT.into());
        }
        let above = at.lookup(b"..", &checked)?;
        let mut name = None;
        above.list(2, |entry| {
            if entry.ino == at.ino() {
                name = Some(entry.name);
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        })?;
        let mut front = vec![b'/'];
        front.extend_from_slice(&name.ok_or(Error::Posix(Errno::NOENT))?);
        front.extend_from_slice(&path);
        (path, at) = (front, above);
    }
    Err(Errno::NAMETOOLONG.into())
}

/// One of a file's names, from the root on: a file does not know where it is, so directories are looked
/// through, as many as are worth it.
fn search(root: Vnode, file: &Vnode) -> Result<Vec<u8>> {
    let checked = Credentials { are_checked: true, ..Credentials::default() };
    let mut waiting = VecDeque::from([(root, Vec::new())]);
    let mut left = if file.attributes().links == 0 { 0 } else { DIRECTORIES_MAX };
    let mut unread = None;
    while let Some((directory, path)) = waiting.pop_front()
        && left > 0
    {
        left -= 1;
        let mut name = None;
        let mut below = Vec::new();
        directory.list(0, |entry| {
            if entry.ino == file.ino() {
                name = Some(entry.name);
                return ControlFlow::Break(());
            }
            if entry.file_type == FileType::Directory && entry.name != b"." && entry.name != b".." {
                below.push(entry.name);
            }
            ControlFlow::Continue(())
        })?;
        let join = |name: &[u8]| [&path, &b"/"[..], name].concat();
        if let Some(name) = name {
            return Ok(join(&name));
        }
        for name in below {
            match directory.lookup(&name, &checked) {
                Ok(found) => waiting.push_back((found, join(&name))),
                // Removed since it was listed.
                Err(Error::Posix(Errno::NOENT)) => {}
                // The file may be below it, or elsewhere.
                Err(e) => unread = Some(e),
            }
        }
    }
    Err(unread.unwrap_or(Errno::NOENT.into()))
}
