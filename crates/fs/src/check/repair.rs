//! Writing what was found to be right.

use std::collections::HashSet;

use rustix::fs::FileType;

use super::{Checker, Found, Pieces};
use crate::access::Credentials;
use crate::bits;
use crate::directory::{self, Target};
use crate::error::{Error, Result};
use crate::extents::Extents;
use crate::layout::{BLOCK, FIRST_INO, Inline, Kind, Kinds, MAP_START, ORPHANS_INO, ROOT_INO};
use crate::names::NewFile;
use crate::space::Need;
use crate::tree::{GROWTH, Tree};

/// Keys that one transaction writes.
const STEP: usize = 64;

/// New pages that so many keys may need.
const STEP_GROWTH: u64 = STEP as u64 / 2 + GROWTH;

impl Checker<'_> {
    pub(super) fn repair(&mut self) -> Result<()> {
        if self.system.damage.lacks_revocations {
            // A page that was freed may hold data of a file by now.
            let pages: HashSet<u64> =
                self.found.values().flat_map(|found| found.pages.iter().copied()).collect();
            self.system.journal.drop_images(|block| !pages.contains(&block));
        }
        // What is written from now on counts, whatever the journal held.
        self.system.journal.finish(false)?;
        self.tables()?;
        self.write_maps()?;
        let all: Vec<u64> = self.found.keys().copied().collect();
        for ino in all {
            self.rewrite(ino)?;
        }
        self.fix_names()?;
        self.bring_back()?;
        self.system.journal.commit(self.system.journal.running())
    }

    /// Blocks of inodes that cannot be read are empty from now on; inodes that are none, too.
    fn tables(&mut self) -> Result<()> {
        let system = self.system;
        for &block in &self.bad_tables {
            let group = ((block - system.geometry.groups_start) / crate::layout::GROUP_BLOCKS) as u32;
            system.transact(Need::Delete, 0, |tx| {
                let buffer = system.buffers.create(block, Kind::Inodes, group.into());
                tx.rewrite(&buffer, |_| ());
                Ok(())
            })?;
        }
        for &ino in &self.dead {
            system.transact(Need::Delete, 0, |tx| tx.put_inode(ino, None))?;
        }
        Ok(())
    }

    /// Maps as they have to be; whoever allocates reads them again.
    fn write_maps(&mut self) -> Result<()> {
        let (system, geometry) = (self.system, self.system.geometry);
        let mut free = (0, 0);
        for group in 0..geometry.groups {
            let (start, len) = (geometry.group_start(group), geometry.group_len(group));
            let used: Vec<u64> = (0..len)
                .filter(|&place| place < geometry.group_overhead() || self.is_claimed(start + place))
                .collect();
            let per = u64::from(geometry.inodes_per_group);
            let inodes: Vec<u64> = (0..per)
                .filter(|place| {
                    let ino = u64::from(group) * per + place + 1;
                    ino < FIRST_INO || self.found.contains_key(&ino)
                })
                .collect();
            free.0 += len - used.len() as u64;
            free.1 += per - inodes.len() as u64;
            system.transact(Need::Delete, 0, |tx| {
                for (block, kind, places) in
                    [(start, Kind::BlockMap, &used), (geometry.inode_map(group), Kind::InodeMap, &inodes)]
                {
                    let buffer = system.buffers.create(block, kind, group.into());
                    tx.rewrite(&buffer, |page| {
                        page[MAP_START..].fill(0);
                        for &place in places {
                            bits::mark(page, place, 1, true);
                        }
                    });
                }
                Ok(())
            })?;
        }
        system.space.reset(free);
        system.journal.set_free_counts(free);
        Ok(())
    }

    /// An inode as it has to be, and its trees where they were not.
    fn rewrite(&mut self, ino: u64) -> Result<()> {
        let system = self.system;
        let Some(found) = self.found.get(&ino) else { return Ok(()) };
        let mut inode = found.inode.clone();
        let is_orphan = self.orphans.contains(&ino) && found.links == 0;
        if ino != ORPHANS_INO && !is_orphan {
            let is_directory = inode.is_directory();
            inode.links = if is_directory { 2 + found.directories } else { found.links };
            if is_directory {
                inode.names = found.names.len() as u64;
                inode.parent = found.parent;
            }
        }
        inode.blocks = found.blocks;
        if let Some((at, extent)) = found.extents.iter().rev().find(|(_, extent)| !extent.is_unwritten) {
            // Data behind the end are the end: whoever wrote them may miss them.
            let end = (at + extent.blocks) * BLOCK as u64;
            if end.div_ceil(BLOCK as u64) > inode.size.div_ceil(BLOCK as u64) && !self.orphans.contains(&ino)
            {
                inode.size = end;
            }
        }
        if found.is_tree_bad {
            (inode.tree, inode.inline) =
                (0, if inode.is_file() { Inline::None } else { inode.inline.clone() });
        }
        if found.are_xattrs_bad {
            inode.xattrs = 0;
        }
        system.transact(Need::Delete, 0, |tx| tx.put_inode(ino, Some(&inode)))?;
        let (is_tree_bad, are_xattrs_bad) = (found.is_tree_bad, found.are_xattrs_bad);
        let found = found.clone();
        if is_tree_bad && inode.is_file() {
            self.rewrite_extents(ino, &mut inode, &found)?;
        } else if is_tree_bad {
            let names = found.names.iter().map(|name| (name.key, name.target.value(&name.name)));
            let pieces: Pieces = match inode.is_directory() && ino != ORPHANS_INO {
                true => names.collect(),
                false => found.target.clone(),
            };
            inode.tree = self.rewrite_tree(ino, &mut inode, &pieces)?;
        }
        if are_xattrs_bad {
            let pieces = crate::xattrs::whole(&found.xattrs);
            inode.xattrs = self.rewrite_tree(ino, &mut inode, &pieces)?;
        }
        if inode.is_symlink() && is_tree_bad && !found.target.is_empty() {
            let whole: usize = found.target.iter().map(|(_, part)| part.len()).sum();
            inode.size = whole as u64;
        }
        if is_tree_bad || are_xattrs_bad {
            system.transact(Need::Delete, 0, |tx| tx.put_inode(ino, Some(&inode)))?;
        }
        Ok(())
    }

    fn rewrite_extents(&self, ino: u64, inode: &mut crate::layout::Inode, found: &Found) -> Result<()> {
        let mut extents = Extents::default();
        for some in found.extents.chunks(STEP) {
            some.iter().for_each(|&(at, extent)| extents.insert(at, extent));
            self.system.transact(Need::More, STEP_GROWTH, |tx| extents.store(tx, ino, inode))?;
        }
        Ok(())
    }

    /// A new tree. Returns its root, or 0 when nothing is in it.
    fn rewrite_tree(
        &self,
        ino: u64,
        inode: &mut crate::layout::Inode,
        pieces: &[(u64, Vec<u8>)],
    ) -> Result<u64> {
        let mut tree: Option<Tree> = None;
        for some in pieces.chunks(STEP) {
            tree = self.system.transact(Need::More, STEP_GROWTH, |tx| {
                let before = tx.pages();
                let tree = match tree {
                    Some(tree) => tree,
                    None => self.system.new_tree(tx, ino)?,
                };
                for (key, value) in some {
                    tree.insert(tx, *key, value)?;
                }
                inode.blocks = inode.blocks.wrapping_add_signed(tx.pages() - before);
                Ok(Some(tree))
            })?;
        }
        Ok(tree.map_or(0, |tree| tree.root))
    }

    /// Takes away names that lead nowhere, and has the others say the right type.
    fn fix_names(&mut self) -> Result<()> {
        let system = self.system;
        for (ino, key) in std::mem::take(&mut self.bad_names) {
            let node = system.node(ino)?;
            let mut state = node.lock();
            system.transact(Need::Delete, GROWTH, |tx| {
                system
                    .remove_name(tx, ino, &mut state, &key.into())
                    .and_then(|()| system.log(tx, ino, &mut state))
            })?;
        }
        for (ino, name) in std::mem::take(&mut self.retyped) {
            let Some(found) = self.found.get(&name.target.ino) else { continue };
            let target = Target { ino: name.target.ino, file_type: found.inode.file_type() };
            let node = system.node(ino)?;
            let mut state = node.lock();
            let tree = Tree { root: state.inode.tree, owner: ino };
            system.transact(Need::Delete, GROWTH, |tx| {
                directory::set(tree, tx, &name.key.into(), &name.name, target)?;
                system.log(tx, ino, &mut state)
            })?;
        }
        // The list of files without names has those, and no others.
        let wanted: HashSet<u64> =
            self.orphans.iter().copied().filter(|ino| self.found.contains_key(ino)).collect();
        let root = system.node(ORPHANS_INO)?.lock().inode.tree;
        system.journal.set_orphans(root);
        if root == 0 {
            let tree = system.transact(Need::More, GROWTH, |tx| {
                let tree = system.new_tree(tx, ORPHANS_INO)?;
                let node = system.node(ORPHANS_INO)?;
                let mut state = node.lock();
                state.inode.tree = tree.root;
                state.inode.blocks = 1;
                system.log(tx, ORPHANS_INO, &mut state)?;
                Ok(tree)
            })?;
            system.journal.set_orphans(tree.root);
        }
        for ino in self.orphans.clone() {
            if !wanted.contains(&ino) {
                system.transact(Need::Delete, GROWTH, |tx| system.remove_orphan(tx, ino))?;
            }
        }
        Ok(())
    }

    /// Gives what has lost its name a new one.
    fn bring_back(&mut self) -> Result<()> {
        let system = self.system;
        if self.lost.is_empty() {
            return Ok(());
        }
        let who = Credentials::root();
        let root = system.node(ROOT_INO)?;
        let place = match system.lookup(&root, b"lost+found", &who) {
            Ok(place) => place,
            Err(Error::Posix(_)) => {
                system.create(&root, Some(b"lost+found"), &NewFile::directory(0o700), &who, |node| node)?
            }
            Err(e) => return Err(e),
        };
        for ino in std::mem::take(&mut self.lost) {
            let node = system.node(ino)?;
            let file_type = node.lock().inode.file_type();
            let name = format!("#{ino}");
            let mut state = place.lock();
            system.transact(Need::More, 3 * GROWTH, |tx| {
                let found = system.find(place.ino, &state, name.as_bytes())?;
                let target = Target { ino, file_type };
                system.add_name(tx, place.ino, &mut state, (&found.free()?, name.as_bytes()), target)?;
                state.inode.links += u32::from(file_type == FileType::Directory);
                system.log(tx, place.ino, &mut state)?;
                let mut own = node.lock();
                own.inode.parent = if file_type == FileType::Directory { place.ino } else { 0 };
                system.log(tx, ino, &mut own)
            })?;
        }
        Ok(())
    }
}
