//! Paths: names one behind another, with symbolic links in between.

use std::borrow::Cow;

use rustix::fs::FileType;
use rustix::io::Errno;

use crate::access::Credentials;
use crate::error::{Error, Result};
use crate::system::FileSystem;
use crate::vnode::Vnode;

/// The longest path, in bytes, as on Linux.
const PATH_MAX: usize = 4096;

/// Symbolic links that a path may lead through.
const LINKS_MAX: usize = 40;

impl FileSystem {
    /// What a path leads to, from the root on. A symbolic link at its end is followed if `follows`; those
    /// before are always.
    ///
    /// # Errors
    /// ENOENT, ENOTDIR, EACCES, ELOOP, ENAMETOOLONG.
    pub fn resolve(&self, path: &[u8], follows: bool, who: &Credentials) -> Result<Vnode> {
        self.resolve_from(&self.root()?, path, follows, who)
    }

    /// As [`FileSystem::resolve`], from a directory on; a path that begins with a slash begins at the root.
    ///
    /// # Errors
    /// As there.
    pub fn resolve_from(
        &self,
        start: &Vnode,
        path: &[u8],
        follows: bool,
        who: &Credentials,
    ) -> Result<Vnode> {
        if path.len() > PATH_MAX {
            return Err(Errno::NAMETOOLONG.into());
        }
        let mut at = if path.starts_with(b"/") { self.root()? } else { start.clone() };
        let mut links = 0;
        // What is left of the path; a link puts its target before it.
        let mut left: Cow<'_, [u8]> = Cow::Borrowed(path);
        let mut from = 0;
        while let Some((name, end)) = next(&left, from) {
            let found = at.lookup(&left[name], who)?;
            let is_last = next(&left, end).is_none();
            from = end;
            if found.file_type() != FileType::Symlink || is_last && !follows && !path.ends_with(b"/") {
                at = found;
                continue;
            }
            links += 1;
            if links > LINKS_MAX {
                return Err(Errno::LOOP.into());
            }
            let mut target = found.target()?;
            if target.starts_with(b"/") {
                at = self.root()?;
            }
            target.push(b'/');
            target.extend_from_slice(&left[from..]);
            (left, from) = (Cow::Owned(target), 0);
        }
        // `file/` is a directory, or nothing.
        if path.ends_with(b"/") && at.file_type() != FileType::Directory {
            return Err(Errno::NOTDIR.into());
        }
        Ok(at)
    }

    /// The directory that the last name of a path is in, or would be, and that name.
    ///
    /// # Errors
    /// As [`FileSystem::resolve`]; EEXIST for a path without a name, such as the root.
    pub fn resolve_parent(&self, path: &[u8], who: &Credentials) -> Result<(Vnode, Vec<u8>)> {
        let end = path.iter().rposition(|&byte| byte != b'/').ok_or(Error::Posix(Errno::EXIST))? + 1;
        let start = path[..end].iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
        let directory = self.resolve(&path[..start], true, who)?;
        Ok((directory, path[start..end].to_vec()))
    }
}

/// Where the next name of a path is from `from` on, and where it ends.
fn next(path: &[u8], from: usize) -> Option<(std::ops::Range<usize>, usize)> {
    let start = from + path[from..].iter().position(|&byte| byte != b'/')?;
    let end = path[start..].iter().position(|&byte| byte == b'/').map_or(path.len(), |len| start + len);
    Some((start..end, end))
}
