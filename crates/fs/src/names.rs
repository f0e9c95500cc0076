//! What changes names: making, linking, removing, renaming.

use std::sync::atomic::Ordering;
use std::sync::{Arc, RwLockWriteGuard};

use rustix::fs::FileType;
use rustix::io::Errno;
use unvme::lock::{lock, read};

use crate::access::{self, Credentials, EXECUTE, WRITE};
use crate::data::STEP;
use crate::dentries::Entry;
use crate::directory::{self, Key, Slot, Target};
use crate::error::{Error, Result};
use crate::journal::Tx;
use crate::layout::{Inline, Inode, Kinds, ROOT_INO, SYMLINK_INLINE, Time};
use crate::node::{Node, Saved, State};
use crate::page;
use crate::rename::{Rename, Whiteout};
use crate::space::Need;
use crate::system::System;
use crate::tree::{GROWTH, Tree};
use crate::vnode::{Attributes, attributes};

/// The longest target of a symbolic link, in bytes.
pub const TARGET_MAX: usize = 4095;

/// Names that a file can have. Of directories in a directory there may be as many as there are inodes.
pub const LINKS_MAX: u32 = 65000;

/// What a new file is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewFile<'a> {
    /// Its type.
    pub file_type: FileType,
    /// Permissions, without what a umask takes away.
    pub permissions: u32,
    /// What a device node stands for.
    pub rdev: u64,
    /// A symbolic link's target.
    pub target: &'a [u8],
}

impl NewFile<'_> {
    /// A regular file.
    pub fn regular(permissions: u32) -> Self {
        Self { file_type: FileType::RegularFile, permissions, rdev: 0, target: &[] }
    }

    /// A directory.
    pub fn directory(permissions: u32) -> Self {
        Self { file_type: FileType::Directory, ..Self::regular(permissions) }
    }
}

/// Locks of several nodes, which are taken in the order of their numbers.
struct Locked<'a>(Vec<(u64, RwLockWriteGuard<'a, State>)>);

impl<'a> Locked<'a> {
    fn take(nodes: &[&'a Arc<Node>]) -> Self {
        let mut nodes = nodes.to_vec();
        nodes.sort_unstable_by_key(|node| node.ino);
        nodes.dedup_by_key(|node| node.ino);
        Self(nodes.into_iter().map(|node| (node.ino, node.lock())).collect())
    }

    fn save(&self) -> Vec<Saved> {
        self.0.iter().map(|(_, state)| state.save()).collect()
    }

    fn restore(&mut self, saved: Vec<Saved>) {
        self.0.iter_mut().zip(saved).for_each(|((_, state), saved)| state.restore(saved));
    }

    /// Whether the inode of one is free again, and may be somebody else's.
    fn is_any_gone(&self) -> bool {
        self.0.iter().any(|(_, state)| state.is_gone)
    }

    fn state(&mut self, ino: u64) -> &mut State {
        let found = self.0.iter_mut().find(|(of, _)| *of == ino);
        &mut found.expect("it was locked").1
    }
}

/// One end of a renaming: a name in a directory.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub directory: &'a Arc<Node>,
    pub name: &'a [u8],
}

impl System {
    /// The tree of a directory, of which something is asked.
    fn directory_tree(ino: u64, state: &State) -> Result<Option<Tree>> {
        if !state.inode.is_directory() {
            return Err(Errno::NOTDIR.into());
        }
        Ok((state.inode.tree != 0).then_some(Tree { root: state.inode.tree, owner: ino }))
    }

    /// Where a name of a directory is, or would be.
    pub(crate) fn find(&self, ino: u64, state: &State, name: &[u8]) -> Result<Slot> {
        let tree = Self::directory_tree(ino, state)?;
        directory::find(tree, &self.buffers, name, directory::hash(name, self.seed))
    }

    /// A name as the table of those that were looked up lately has it.
    fn entry<'a>(&self, directory: u64, name: &'a [u8]) -> Entry<'a> {
        Entry { directory, name, hash: directory::hash(name, self.seed) }
    }

    /// The node that a name in a directory leads to.
    #[inline]
    pub(crate) fn lookup(&self, directory: &Node, name: &[u8], who: &Credentials) -> Result<Arc<Node>> {
        Self::check_search(directory, who)?;
        match name {
            b"." => return self.node(directory.ino),
            b".." => return self.node(read(&directory.state).inode.parent),
            _ if name.len() > directory::NAME_MAX => return Err(Errno::NAMETOOLONG.into()),
            _ => {}
        }
        let entry = self.entry(directory.ino, name);
        match self.dentries.get(&entry) {
            Some(node) => Ok(node),
            None => self.look_up(directory, &entry),
        }
    }

    /// Whether somebody may look for names in it.
    #[inline]
    fn check_search(directory: &Node, who: &Credentials) -> Result<()> {
        if directory.file_type != FileType::Directory {
            return Err(Errno::NOTDIR.into());
        }
        // Root may do so everywhere.
        if who.is_root() { Ok(()) } else { access::check(&read(&directory.state).inode, who, EXECUTE) }
    }

    /// What `stat` tells of what a name leads to, if that can be told at once: it was looked up lately,
    /// nobody changes it right now, and it is no symbolic link that leads on.
    #[inline]
    pub(crate) fn glance(
        &self,
        directory: &Node,
        name: &[u8],
        follows: bool,
        who: &Credentials,
    ) -> Result<Option<Attributes>> {
        Self::check_search(directory, who)?;
        let found = self.dentries.with(&self.entry(directory.ino, name), |node| {
            let is_end = !follows || node.file_type != FileType::Symlink;
            is_end.then(|| node.state.try_read().ok().map(|state| attributes(node, &state))).flatten()
        });
        Ok(found.flatten())
    }

    #[cold]
    fn look_up(&self, directory: &Node, entry: &Entry<'_>) -> Result<Arc<Node>> {
        let state = read(&directory.state);
        if state.is_gone {
            return Err(Errno::NOENT.into());
        }
        let tree = Self::directory_tree(directory.ino, &state)?;
        let found = directory::find(tree, &self.buffers, entry.name, entry.hash)?;
        let target = found.target().ok_or(Error::Posix(Errno::NOENT))?;
        // Under the directory's lock: the name, and so the inode, is still there.
        let node = self.node(target.ino)?;
        self.dentries.put(entry, &node);
        Ok(node)
    }

    /// A tree near its inode.
    pub(crate) fn new_tree(&self, tx: &mut Tx<'_>, ino: u64) -> Result<Tree> {
        Tree::create(tx, self.geometry.inode_block(ino).map_or(0, |(block, _)| block), ino)
    }

    /// Has a name that is not there, with a key for it, lead to `target`. The directory's inode is changed,
    /// and not logged.
    pub(crate) fn add_name(
        &self,
        tx: &mut Tx<'_>,
        ino: u64,
        state: &mut State,
        (key, name): (&Key, &[u8]),
        target: Target,
    ) -> Result<()> {
        let before = tx.pages();
        let tree = match Self::directory_tree(ino, state)? {
            Some(tree) => tree,
            None => self.new_tree(tx, ino)?,
        };
        directory::set(tree, tx, key, name, target)?;
        state.inode.tree = tree.root;
        state.inode.names += 1;
        state.inode.blocks = state.inode.blocks.wrapping_add_signed(tx.pages() - before);
        Self::touch(state);
        Ok(())
    }

    pub(crate) fn remove_name(&self, tx: &mut Tx<'_>, ino: u64, state: &mut State, key: &Key) -> Result<()> {
        let before = tx.pages();
        directory::unset(Tree { root: state.inode.tree, owner: ino }, tx, key)?;
        state.inode.names = state.inode.names.saturating_sub(1);
        state.inode.blocks = state.inode.blocks.wrapping_add_signed(tx.pages() - before);
        Self::touch(state);
        Ok(())
    }

    pub(crate) fn touch(state: &mut State) {
        let now = Time::now();
        (state.inode.modified, state.inode.changed) = (now, now);
    }

    pub(crate) fn take_inode(&self, parent: u64, is_directory: bool) -> Result<u64> {
        self.space.take_inode(parent, is_directory).or_else(|e| {
            if !matches!(e, Error::Posix(Errno::NOSPC)) {
                return Err(e);
            }
            self.journal.reclaim()?;
            self.space.take_inode(parent, is_directory)
        })
    }

    /// The inode of a new file in a directory.
    pub(crate) fn new_inode(
        &self,
        parent: u64,
        directory: &Inode,
        new: &NewFile<'_>,
        who: &Credentials,
    ) -> Inode {
        let is_directory = new.file_type == FileType::Directory;
        let now = Time::now();
        let inherits = directory.mode & 0o2000 != 0;
        let gid = if inherits { directory.gid } else { who.gid };
        let mut permissions = new.permissions & 0o7777;
        if inherits && is_directory {
            permissions |= 0o2000;
        } else if !who.is_root() && !who.is_in(gid) {
            permissions &= !0o2000;
        }
        Inode {
            mode: new.file_type.as_raw_mode() | permissions,
            uid: who.uid,
            gid,
            links: if is_directory { 2 } else { 1 },
            size: new.target.len() as u64,
            accessed: now,
            modified: now,
            changed: now,
            created: now,
            generation: unvme::random::number() as u32,
            rdev: new.rdev,
            parent: if is_directory { parent } else { 0 },
            hint: directory.hint,
            ..Inode::default()
        }
    }

    /// Puts the target of a symbolic link where it belongs.
    fn put_target(&self, tx: &mut Tx<'_>, ino: u64, inode: &mut Inode, target: &[u8]) -> Result<()> {
        if target.is_empty() {
            return Ok(());
        }
        if target.len() <= SYMLINK_INLINE {
            inode.inline = Inline::Symlink(target.to_vec());
            return Ok(());
        }
        let before = tx.pages();
        let tree = self.new_tree(tx, ino)?;
        for (index, part) in target.chunks(page::VALUE_MAX).enumerate() {
            tree.insert(tx, index as u64, part)?;
        }
        inode.tree = tree.root;
        inode.blocks = (tx.pages() - before) as u64;
        Ok(())
    }

    /// A symbolic link's target.
    pub(crate) fn target(&self, node: &Node) -> Result<Vec<u8>> {
        let state = read(&node.state);
        if state.is_gone {
            return Err(Errno::NOENT.into());
        }
        if !state.inode.is_symlink() {
            return Err(Errno::INVAL.into());
        }
        let mut target = Vec::new();
        match &state.inode.inline {
            Inline::Symlink(bytes) => target.extend_from_slice(bytes),
            _ if state.inode.tree != 0 => {
                Tree { root: state.inode.tree, owner: node.ino }.visit(&self.buffers, 0, |_, part| {
                    target.extend_from_slice(part);
                    std::ops::ControlFlow::Continue(())
                })?;
            }
            _ => {}
        }
        self.note_read(node, &state);
        Ok(target)
    }

    /// Makes a file with a name in a directory, or without one. `have` is called before anybody else can
    /// remove it.
    pub(crate) fn create<R>(
        &self,
        directory: &Node,
        name: Option<&[u8]>,
        new: &NewFile<'_>,
        who: &Credentials,
        have: impl FnOnce(Arc<Node>) -> R,
    ) -> Result<R> {
        self.check_writable()?;
        if new.target.len() > TARGET_MAX {
            return Err(Errno::NAMETOOLONG.into());
        }
        if new.file_type == FileType::Symlink && new.target.is_empty() {
            return Err(Errno::NOENT.into());
        }
        let is_directory = new.file_type == FileType::Directory;
        let mut state = directory.lock();
        let mut key = None;
        if let Some(name) = name {
            directory::check_name(name)?;
            if !state.inode.is_directory() {
                return Err(Errno::NOTDIR.into());
            }
            access::check(&state.inode, who, EXECUTE)?;
            key = Some(self.find(directory.ino, &state, name)?.free()?);
        }
        access::check(&state.inode, who, WRITE | EXECUTE)?;
        if state.inode.links == 0 {
            return Err(Errno::NOENT.into());
        }
        let ino = self.take_inode(directory.ino, is_directory)?;
        let mut inode = self.new_inode(directory.ino, &state.inode, new, who);
        if name.is_none() {
            inode.links = 0;
        }
        let done = self.transact_on(&mut state, Need::Name, 4 * GROWTH, |tx, state| {
            tx.use_inode(ino)?;
            self.put_target(tx, ino, &mut inode, new.target)?;
            tx.put_inode(ino, Some(&inode))?;
            match name.zip(key.as_ref()) {
                Some((name, key)) => {
                    let target = Target { ino, file_type: new.file_type };
                    self.add_name(tx, directory.ino, state, (key, name), target)?;
                    state.inode.links += u32::from(is_directory);
                    self.log(tx, directory.ino, state)?;
                }
                None => self.add_orphan(tx, ino)?,
            }
            Ok(tx.id())
        });
        let tx = done.inspect_err(|_| self.space.untake_inode(ino))?;
        let node = self.nodes.put(Node::new(ino, inode, tx), (&self.dentries, self.done()));
        if let Some(name) = name {
            self.dentries.put(&self.entry(directory.ino, name), &node);
        }
        Ok(have(node))
    }

    /// Gives a file another name. One that has none is for those who have it open: `linkat` of `O_TMPFILE`.
    pub(crate) fn link(&self, node: &Arc<Node>, place: Place<'_>, who: &Credentials) -> Result<()> {
        self.check_writable()?;
        directory::check_name(place.name)?;
        let mut locked = Locked::take(&[node, place.directory]);
        if locked.is_any_gone() {
            return Err(Errno::NOENT.into());
        }
        let directory = locked.state(place.directory.ino);
        if !directory.inode.is_directory() {
            return Err(Errno::NOTDIR.into());
        }
        access::check(&directory.inode, who, EXECUTE)?;
        let key = self.find(place.directory.ino, directory, place.name)?.free()?;
        access::check(&directory.inode, who, WRITE)?;
        if directory.inode.links == 0 {
            return Err(Errno::NOENT.into());
        }
        let state = locked.state(node.ino);
        let inode = &state.inode;
        if inode.is_directory() {
            return Err(Errno::PERM.into());
        }
        if inode.links == 0 && state.stays_nameless {
            return Err(Errno::NOENT.into());
        }
        if inode.links >= LINKS_MAX {
            return Err(Errno::MLINK.into());
        }
        let (had_none, file_type) = (inode.links == 0, inode.file_type());
        self.transact_on_all(&mut locked, Need::Name, 3 * GROWTH, |tx, locked| {
            let target = Target { ino: node.ino, file_type };
            let directory = locked.state(place.directory.ino);
            self.add_name(tx, place.directory.ino, directory, (&key, place.name), target)?;
            self.log(tx, place.directory.ino, directory)?;
            if had_none {
                self.remove_orphan(tx, node.ino)?;
            }
            let state = locked.state(node.ino);
            state.inode.links += 1;
            state.inode.changed = Time::now();
            self.log(tx, node.ino, state)
        })
    }

    /// As [`System::transact_on`], of several inodes.
    fn transact_on_all<'a>(
        &self,
        locked: &mut Locked<'a>,
        need: Need,
        growth: u64,
        act: impl FnOnce(&mut Tx<'_>, &mut Locked<'a>) -> Result<()>,
    ) -> Result<()> {
        let saved = locked.save();
        self.transact(need, growth, |tx| act(tx, locked)).inspect_err(|_| locked.restore(saved))
    }

    /// Takes a name off a file, in a transaction that has its directory already.
    fn drop_link(&self, tx: &mut Tx<'_>, ino: u64, state: &mut State) -> Result<()> {
        state.inode.links = if state.inode.is_directory() { 0 } else { state.inode.links.saturating_sub(1) };
        state.inode.changed = Time::now();
        if state.inode.links == 0 {
            state.stays_nameless = true;
            self.add_orphan(tx, ino)?;
        }
        self.log(tx, ino, state)
    }

    /// Gives up what nobody has any more. An error leaves it for later.
    pub(crate) fn reap_idle(&self, node: &Arc<Node>) {
        if node.pins.load(Ordering::Acquire) == 0
            && let Err(e) = self.reap(node)
        {
            self.note_unfinished(node, &e);
        }
    }

    /// Removes a name: of a directory, or of anything else.
    pub(crate) fn remove(&self, place: Place<'_>, is_rmdir: bool, who: &Credentials) -> Result<()> {
        self.check_writable()?;
        match place.name {
            b"." if is_rmdir => return Err(Errno::INVAL.into()),
            b".." if is_rmdir => return Err(Errno::NOTEMPTY.into()),
            b"." | b".." => return Err(Errno::ISDIR.into()),
            name => directory::check_name(name)?,
        }
        loop {
            let node = self.lookup(place.directory, place.name, who)?;
            if node.ino == place.directory.ino {
                return Err(Errno::INVAL.into());
            }
            let mut locked = Locked::take(&[&node, place.directory]);
            if locked.state(node.ino).is_gone {
                continue;
            }
            let directory = locked.state(place.directory.ino);
            let key = match self.find(place.directory.ino, directory, place.name)? {
                Slot::Taken(key, target) if target.ino == node.ino => key,
                // Somebody was faster.
                _ => continue,
            };
            let directory = directory.inode.clone();
            let inode = &locked.state(node.ino).inode;
            access::check_removal(&directory, inode, who)?;
            let is_directory = inode.is_directory();
            if is_rmdir && !is_directory {
                return Err(Errno::NOTDIR.into());
            }
            if !is_rmdir && is_directory {
                return Err(Errno::ISDIR.into());
            }
            if is_directory && inode.names > 0 {
                return Err(Errno::NOTEMPTY.into());
            }
            // Nobody gets it from there afterwards, and who has got it before finds that it is gone.
            self.dentries.remove(&self.entry(place.directory.ino, place.name));
            let short = self.short_end(&node, locked.state(node.ino))?;
            self.transact_on_all(&mut locked, Need::Delete, 2 * GROWTH, |tx, locked| {
                let directory = locked.state(place.directory.ino);
                self.remove_name(tx, place.directory.ino, directory, &key)?;
                directory.inode.links -= u32::from(is_directory);
                self.log(tx, place.directory.ino, directory)?;
                let state = locked.state(node.ino);
                match &short {
                    Some(pages) => self.end(tx, &node, state, pages),
                    None => self.drop_link(tx, node.ino, state),
                }
            })?;
            if short.is_some() {
                let state = locked.state(node.ino);
                self.drop_pages(&node, state, 0..u64::MAX);
                return Ok(());
            }
            drop(locked);
            self.reap_idle(&node);
            return Ok(());
        }
    }

    /// Whether the last name of a file can take all of it along, in one transaction: nobody has it, and it is
    /// small. Returns the pages of its trees.
    fn short_end(&self, node: &Node, state: &mut State) -> Result<Option<Vec<u64>>> {
        let is_last = state.inode.links <= 1 || state.inode.is_directory();
        if !is_last || node.pins.load(Ordering::Acquire) > 0 {
            return Ok(None);
        }
        if state.inode.is_file() {
            if state.inode.tree != 0 {
                return Ok(None);
            }
            self.load_extents(node.ino, state)?;
        }
        let pages = self.pages_of(node.ino, &state.inode)?;
        Ok((pages.len() <= STEP).then_some(pages))
    }

    /// Gives back all that a small file has.
    fn end(&self, tx: &mut Tx<'_>, node: &Node, state: &mut State, pages: &[u64]) -> Result<()> {
        if state.inode.is_file() {
            // Before anybody can have its blocks: whoever reads without the lock looks again.
            node.bump();
            self.remove_some(tx, node.ino, state, 0..u64::MAX)?;
        }
        state.inode.links = 0;
        if state.is_being_cut {
            self.remove_orphan(tx, node.ino)?;
        }
        self.give_up(tx, node.ino, state, pages)
    }

    /// Whether a directory is `above`, or below it. Nothing moves meanwhile.
    fn is_below(&self, mut ino: u64, above: u64) -> Result<bool> {
        let from = ino;
        // No way up is longer than all directories together, unless it goes around in a circle.
        for _ in 0..self.geometry.inodes() {
            if ino == above {
                return Ok(true);
            }
            if ino == ROOT_INO {
                return Ok(false);
            }
            ino = read(&self.node(ino)?.state).inode.parent;
        }
        Err(Error::damaged(0, format!("directory {from} does not lead up to the root")))
    }

    /// Whether these names can be given and taken.
    fn check_names(names: &[&[u8]]) -> Result<()> {
        names.iter().try_for_each(|name| match *name {
            b"." | b".." => Err(Errno::BUSY.into()),
            name => directory::check_name(name),
        })
    }

    /// Renames.
    pub(crate) fn rename(
        &self,
        from: Place<'_>,
        to: Place<'_>,
        how: Rename,
        who: &Credentials,
    ) -> Result<()> {
        self.check_writable()?;
        Self::check_names(&[from.name, to.name])?;
        // Directories that change their place do so one at a time, or two could end up below each other.
        let _moving = (from.directory.ino != to.directory.ino).then(|| lock(&self.moving));
        loop {
            let source = self.lookup(from.directory, from.name, who)?;
            let victim = match self.lookup(to.directory, to.name, who) {
                Ok(node) => Some(node),
                Err(Error::Posix(Errno::NOENT)) => None,
                Err(e) => return Err(e),
            };
            if !how.replaces() && victim.is_some() {
                return Err(Errno::EXIST.into());
            }
            self.check_places(&from, &to, &source, victim.as_ref(), how)?;
            if victim.is_some() && how != Rename::Exchange {
                // Whoever replaces a file by another one wants either, and none that is empty.
                self.write_back(&source, &mut source.lock())?;
            }
            let mut nodes = vec![from.directory, to.directory, &source];
            nodes.extend(&victim);
            let mut locked = Locked::take(&nodes);
            if [from.directory, to.directory].iter().any(|directory| locked.state(directory.ino).is_gone) {
                return Err(Errno::NOENT.into());
            }
            if locked.is_any_gone() {
                // Somebody was faster.
                continue;
            }
            let source_slot = self.find(from.directory.ino, locked.state(from.directory.ino), from.name)?;
            let slot = self.find(to.directory.ino, locked.state(to.directory.ino), to.name)?;
            let source_key = match source_slot {
                Slot::Taken(key, target) if target.ino == source.ino => key,
                _ => continue,
            };
            if slot.target().map(|target| target.ino) != victim.as_ref().map(|node| node.ino) {
                continue;
            }
            self.dentries.remove(&self.entry(from.directory.ino, from.name));
            self.dentries.remove(&self.entry(to.directory.ino, to.name));
            let key = match slot {
                Slot::Taken(key, _) => key,
                free => free.free()?,
            };
            return match (&victim, how) {
                (Some(victim), _) if victim.ino == source.ino => Ok(()),
                (Some(victim), Rename::Exchange) => {
                    self.exchange(&mut locked, (from, &source), (to, victim), &(source_key, key), who)
                }
                _ => {
                    let keys = (source_key, key);
                    self.move_leaving(&mut locked, (from, &source), (to, victim.as_ref()), &keys, how, who)?;
                    drop(locked);
                    if let Some(victim) = &victim {
                        self.reap_idle(victim);
                    }
                    Ok(())
                }
            };
        }
    }

    /// Whether there is what to exchange, and a directory would come to be below itself.
    fn check_places(
        &self,
        from: &Place<'_>,
        to: &Place<'_>,
        source: &Node,
        victim: Option<&Arc<Node>>,
        how: Rename,
    ) -> Result<()> {
        if victim.is_none() && how == Rename::Exchange {
            return Err(Errno::NOENT.into());
        }
        if from.directory.ino == to.directory.ino {
            return Ok(());
        }
        if read(&source.state).inode.is_directory() && self.is_below(to.directory.ino, source.ino)? {
            return Err(Errno::INVAL.into());
        }
        if let Some(victim) = victim
            && read(&victim.state).inode.is_directory()
            && self.is_below(from.directory.ino, victim.ino)?
        {
            let is_exchange = how == Rename::Exchange;
            return Err(if is_exchange { Errno::INVAL } else { Errno::NOTEMPTY }.into());
        }
        Ok(())
    }

    /// A directory that moves to another one takes a link with it, and needs the right to write to it, as its
    /// `..` changes.
    fn check_move(inode: &Inode, is_elsewhere: bool, who: &Credentials) -> Result<()> {
        if inode.is_directory() && is_elsewhere {
            access::check(inode, who, WRITE)?;
        }
        Ok(())
    }

    /// Moves a name, and leaves a whiteout in its place if that is asked for.
    fn move_leaving(
        &self,
        locked: &mut Locked<'_>,
        from: (Place<'_>, &Node),
        to: (Place<'_>, Option<&Arc<Node>>),
        keys: &(Key, Key),
        how: Rename,
        who: &Credentials,
    ) -> Result<()> {
        if !how.leaves_whiteout() {
            return self.move_name(locked, from, to, keys, None, who);
        }
        let parent = from.0.directory.ino;
        let whiteout = self.take_whiteout(parent, locked.state(parent), who)?;
        self.move_name(locked, from, to, keys, Some(&whiteout), who)
            .inspect_err(|_| self.untake_whiteout(&whiteout))
    }

    fn move_name(
        &self,
        locked: &mut Locked<'_>,
        (from, source): (Place<'_>, &Node),
        (to, victim): (Place<'_>, Option<&Arc<Node>>),
        (source_key, key): &(Key, Key),
        whiteout: Option<&Whiteout>,
        who: &Credentials,
    ) -> Result<()> {
        let is_elsewhere = from.directory.ino != to.directory.ino;
        let from_directory = locked.state(from.directory.ino).inode.clone();
        let to_directory = locked.state(to.directory.ino).inode.clone();
        let moved = locked.state(source.ino).inode.clone();
        access::check_removal(&from_directory, &moved, who)?;
        access::check(&to_directory, who, WRITE | EXECUTE)?;
        Self::check_move(&moved, is_elsewhere, who)?;
        if to_directory.links == 0 {
            return Err(Errno::NOENT.into());
        }
        if let Some(victim) = victim {
            let inode = &locked.state(victim.ino).inode;
            access::check_removal(&to_directory, inode, who)?;
            match (moved.is_directory(), inode.is_directory()) {
                (true, false) => return Err(Errno::NOTDIR.into()),
                (false, true) => return Err(Errno::ISDIR.into()),
                (true, true) if inode.names > 0 => return Err(Errno::NOTEMPTY.into()),
                _ => {}
            }
        }
        let target = Target { ino: source.ino, file_type: moved.file_type() };
        let need = if whiteout.is_some() { Need::Name } else { Need::Delete };
        self.transact_on_all(locked, need, 4 * GROWTH, |tx, locked| {
            let directory = locked.state(from.directory.ino);
            match whiteout {
                Some(whiteout) => self.put_whiteout(tx, from, directory, source_key, whiteout)?,
                None => self.remove_name(tx, from.directory.ino, directory, source_key)?,
            }
            directory.inode.links -= u32::from(moved.is_directory());
            let directory = locked.state(to.directory.ino);
            if victim.is_some() {
                let tree = Tree { root: directory.inode.tree, owner: to.directory.ino };
                directory::set(tree, tx, key, to.name, target)?;
                Self::touch(directory);
            } else {
                // In one directory the removal may have moved other names to other pages.
                let key = if is_elsewhere { key.clone() } else { key.anew() };
                self.add_name(tx, to.directory.ino, directory, (&key, to.name), target)?;
            }
            let loses_directory = victim.is_some() && moved.is_directory();
            directory.inode.links += u32::from(moved.is_directory());
            directory.inode.links -= u32::from(loses_directory);
            self.log(tx, from.directory.ino, locked.state(from.directory.ino))?;
            self.log(tx, to.directory.ino, locked.state(to.directory.ino))?;
            if let Some(victim) = victim {
                self.drop_link(tx, victim.ino, locked.state(victim.ino))?;
            }
            let state = locked.state(source.ino);
            state.inode.changed = Time::now();
            if moved.is_directory() {
                state.inode.parent = to.directory.ino;
            }
            self.log(tx, source.ino, state)
        })
    }

    fn exchange(
        &self,
        locked: &mut Locked<'_>,
        (from, source): (Place<'_>, &Node),
        (to, other): (Place<'_>, &Node),
        (source_key, other_key): &(Key, Key),
        who: &Credentials,
    ) -> Result<()> {
        let is_elsewhere = from.directory.ino != to.directory.ino;
        let ends = [(from, source_key, source, other), (to, other_key, other, source)];
        for (place, _, leaves, _) in &ends {
            let directory = locked.state(place.directory.ino).inode.clone();
            let inode = &locked.state(leaves.ino).inode;
            access::check_removal(&directory, inode, who)?;
            Self::check_move(inode, is_elsewhere, who)?;
        }
        self.transact_on_all(locked, Need::Delete, 2 * GROWTH, |tx, locked| {
            for (place, key, leaves, comes) in &ends {
                let (left, came) = {
                    let left = locked.state(leaves.ino).inode.is_directory();
                    (left, locked.state(comes.ino).inode.file_type())
                };
                let is_directory = came == FileType::Directory;
                let directory = locked.state(place.directory.ino);
                let tree = Tree { root: directory.inode.tree, owner: place.directory.ino };
                directory::set(tree, tx, key, place.name, Target { ino: comes.ino, file_type: came })?;
                directory.inode.links = directory.inode.links + u32::from(is_directory) - u32::from(left);
                Self::touch(directory);
                self.log(tx, place.directory.ino, directory)?;
                let state = locked.state(comes.ino);
                state.inode.changed = Time::now();
                if is_directory {
                    state.inode.parent = place.directory.ino;
                }
                self.log(tx, comes.ino, state)?;
            }
            Ok(())
        })
    }
}
