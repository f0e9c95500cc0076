//! Paths: names one behind another, with symbolic links in between.

use std::borrow::Cow;
use std::sync::Arc;

use rustix::fs::FileType;
use rustix::io::Errno;

use crate::access::Credentials;
use crate::error::{Error, Result};
use crate::layout::ROOT_INO;
use crate::node::Node;
use crate::system::{FileSystem, System};
use crate::vnode::{Attributes, Vnode, attributes_of};

/// The longest path, in bytes: on Linux there is a NUL behind it.
const PATH_MAX: usize = 4095;

/// Symbolic links that a path may lead through.
const LINKS_MAX: usize = 40;

impl FileSystem {
    /// What a path leads to, from the root on. A symbolic link at its end is followed if `follows`; those
    /// before are always.
    ///
    /// # Errors
    /// ENOENT, ENOTDIR, EACCES, ELOOP, ENAMETOOLONG.
    pub fn resolve(&self, path: &[u8], follows: bool, who: &Credentials) -> Result<Vnode> {
        let found = Vnode::new(&self.0, self.0.walk(path, follows, who)?);
        found.check_there()?;
        Ok(found)
    }

    /// What `stat` tells of what a path leads to: of a symbolic link at its end itself, unless it `follows`.
    ///
    /// # Errors
    /// As [`FileSystem::resolve`].
    pub fn attributes(&self, path: &[u8], follows: bool, who: &Credentials) -> Result<Attributes> {
        // All names but the last one lead to directories.
        let start = path.iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
        let (above, name) = path.split_at(start);
        if !name.is_empty() && name != b"." && name != b".." && path.len() <= PATH_MAX {
            let directory = if above.is_empty() { None } else { Some(self.0.walk(above, true, who)?) };
            let directory = match &directory {
                Some(directory) => directory,
                None => self.0.root()?,
            };
            if let Some(found) = self.0.glance(directory, name, follows, who)? {
                return Ok(found);
            }
        }
        let node = self.0.walk(path, follows, who)?;
        attributes_of(&node).ok_or(Error::Posix(Errno::NOENT))
    }

    /// The directory that the last name of a path is in, or would be, and that name.
    ///
    /// # Errors
    /// As [`FileSystem::resolve`]; EEXIST for a path without a name, such as the root; ENOTDIR for one with a
    /// slash at its end that leads to anything but a directory.
    pub fn resolve_parent(&self, path: &[u8], who: &Credentials) -> Result<(Vnode, Vec<u8>)> {
        let end = path.iter().rposition(|&byte| byte != b'/').ok_or(Error::Posix(Errno::EXIST))? + 1;
        let start = path[..end].iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
        if path.len() > PATH_MAX {
            return Err(Errno::NAMETOOLONG.into());
        }
        let above: &[u8] = if start == 0 { b"/" } else { &path[..start] };
        let directory = self.resolve(above, true, who)?;
        let name = &path[start..end];
        if end < path.len()
            && self
                .0
                .lookup(directory.node(), name, who)
                .is_ok_and(|node| node.file_type != FileType::Directory)
        {
            return Err(Errno::NOTDIR.into());
        }
        Ok((directory, name.to_vec()))
    }
}

/// What a path leads to that does not have to stay in the file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Walk<T> {
    /// This.
    Found(T),
    /// Something outside, by way of `..` in the root or of a symbolic link with an absolute target: by this
    /// path. One that begins with a slash is the machine's, another one begins at the root's place there.
    Outside(Vec<u8>),
}

impl<T> Walk<T> {
    /// Goes on with what was found.
    ///
    /// # Errors
    /// Those of `then`.
    pub fn then<R>(self, then: impl FnOnce(T) -> Result<R>) -> Result<Walk<R>> {
        Ok(match self {
            Self::Found(found) => Walk::Found(then(found)?),
            Self::Outside(path) => Walk::Outside(path),
        })
    }
}

/// The directory of a path's last name, and that name: empty for a path that is all slashes.
pub(crate) struct Parent<'a> {
    pub directory: Arc<Node>,
    pub name: &'a [u8],
    /// There is a slash behind it.
    pub is_directory: bool,
}

impl System {
    /// The node that a path leads to, from the root on. It may have gone meanwhile.
    pub(crate) fn walk(&self, path: &[u8], follows: bool, who: &Credentials) -> Result<Arc<Node>> {
        match self.walk_from(None, path, follows, who)? {
            Walk::Found(found) => Ok(found),
            Walk::Outside(_) => Err(Errno::XDEV.into()),
        }
    }

    /// The node that a path leads to from `base` on, or where it leaves the file system. Without a `base` it
    /// stays there: everything begins at the root.
    pub(crate) fn walk_from(
        &self,
        base: Option<&Arc<Node>>,
        path: &[u8],
        follows: bool,
        who: &Credentials,
    ) -> Result<Walk<Arc<Node>>> {
        if path.len() > PATH_MAX {
            return Err(Errno::NAMETOOLONG.into());
        }
        if path.is_empty() {
            return Err(Errno::NOENT.into());
        }
        // What the next name is looked for in; `None` stands for the root.
        let root = self.root()?;
        let is_confined = base.is_none();
        let mut at: Option<Arc<Node>> = base.cloned();
        let mut links = 0;
        // What is left of the path; a link puts its target before it.
        let mut left: Cow<'_, [u8]> = Cow::Borrowed(path);
        let mut from = 0;
        while let Some((name, end)) = next(&left, from) {
            let directory = at.as_ref().unwrap_or(root);
            if !is_confined && &left[name.clone()] == b".." && directory.ino == ROOT_INO {
                return Ok(Walk::Outside(left[name.start..].to_vec()));
            }
            let found = self.lookup(directory, &left[name], who)?;
            from = end;
            if found.file_type != FileType::Symlink
                || !follows && !path.ends_with(b"/") && next(&left, end).is_none()
            {
                at = Some(found);
                continue;
            }
            links += 1;
            if links > LINKS_MAX {
                return Err(Errno::LOOP.into());
            }
            let mut target = self.target(&found)?;
            let is_absolute = target.starts_with(b"/");
            if from < left.len() {
                target.push(b'/');
                target.extend_from_slice(&left[from..]);
            }
            if is_absolute && !is_confined {
                return Ok(Walk::Outside(target));
            }
            if is_absolute {
                at = None;
            }
            (left, from) = (Cow::Owned(target), 0);
        }
        let found = at.unwrap_or_else(|| Arc::clone(root));
        // `file/` is a directory, or nothing.
        if path.ends_with(b"/") && found.file_type != FileType::Directory {
            return Err(Errno::NOTDIR.into());
        }
        Ok(Walk::Found(found))
    }

    /// The directory of the last name of a path from `base` on.
    pub(crate) fn walk_to_parent<'a>(
        &self,
        base: &Arc<Node>,
        path: &'a [u8],
        who: &Credentials,
    ) -> Result<Walk<Parent<'a>>> {
        if path.is_empty() {
            return Err(Errno::NOENT.into());
        }
        if path.len() > PATH_MAX {
            return Err(Errno::NAMETOOLONG.into());
        }
        let end = path.iter().rposition(|&byte| byte != b'/').map_or(0, |at| at + 1);
        let start = path[..end].iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
        let (name, is_directory) = (&path[start..end], end < path.len());
        let directory = match start {
            0 => Walk::Found(Arc::clone(base)),
            _ => self.walk_from(Some(base), &path[..start], true, who)?,
        };
        Ok(match directory {
            Walk::Found(directory) if name == b".." && directory.ino == ROOT_INO => {
                Walk::Outside(path[start..].to_vec())
            }
            Walk::Found(directory) => Walk::Found(Parent { directory, name, is_directory }),
            Walk::Outside(mut outside) => {
                if !outside.ends_with(b"/") {
                    outside.push(b'/');
                }
                outside.extend_from_slice(&path[start..]);
                Walk::Outside(outside)
            }
        })
    }
}

/// Where the next name of a path is from `from` on, and where it ends.
fn next(path: &[u8], from: usize) -> Option<(std::ops::Range<usize>, usize)> {
    let start = from + path[from..].iter().position(|&byte| byte != b'/')?;
    let end = path[start..].iter().position(|&byte| byte == b'/').map_or(path.len(), |len| start + len);
    Some((start..end, end))
}
