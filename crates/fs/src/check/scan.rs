//! Reading everything that says it is an inode, and all that it has.

use rustix::fs::FileType;

use super::{Checker, Found, Name, Pieces};
use crate::bits;
use crate::directory::{self, Target};
use crate::error::{Error, Result};
use crate::extents::{Extent, inline_extents};
use crate::layout::{FIRST_INO, INODES_PER_BLOCK, Inline, Inode, Kind, Kinds, ORPHANS_INO, ROOT_INO, decode};
use crate::tree::Tree;
use crate::xattrs;

/// Where a symbolic link leads to whose target is lost.
const LOST_TARGET: &[u8] = b"(lost)";

impl Checker<'_> {
    /// What is damaged is told, and the check goes on.
    fn told<T>(&mut self, about: &str, result: Result<T>) -> Result<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(e @ Error::Device(_)) => Err(e),
            Err(e) => {
                self.problem(about, e.to_string());
                Ok(None)
            }
        }
    }

    pub(super) fn scan(&mut self, progress: &mut dyn FnMut(u64)) -> Result<()> {
        let geometry = self.system.geometry;
        for group in 0..geometry.groups {
            let map = self.system.buffers.get(geometry.inode_map(group), Kind::InodeMap, group.into());
            let map = match map {
                Err(e @ Error::Device(_)) => return Err(e),
                // It is told when the maps are compared.
                other => other.ok(),
            };
            for table in 0..geometry.table_blocks() {
                let first = table * INODES_PER_BLOCK;
                let is_used = match &map {
                    Some(map) => map.with(|page| {
                        (first..first + INODES_PER_BLOCK).any(|place| bits::is_marked(page, place))
                    }),
                    None => true,
                };
                if is_used {
                    let ino = u64::from(group) * u64::from(geometry.inodes_per_group) + first + 1;
                    self.table(group, ino, map.is_some())?;
                    progress(self.found.len() as u64);
                }
            }
        }
        let orphans =
            self.found.get(&ORPHANS_INO).map(|found| found.target.iter().map(|(ino, _)| *ino).collect());
        self.orphans = orphans.unwrap_or_default();
        Ok(())
    }

    /// The inodes of a block.
    fn table(&mut self, group: u32, first: u64, is_sure: bool) -> Result<()> {
        let system = self.system;
        let Some((block, _)) = system.geometry.inode_block(first) else { return Ok(()) };
        let buffer = match system.buffers.get(block, Kind::Inodes, group.into()) {
            Ok(buffer) => buffer,
            Err(e @ Error::Device(_)) => return Err(e),
            // Without a map nobody knows whether there was ever anything.
            Err(_) if !is_sure && first > FIRST_INO => return Ok(()),
            Err(e) => {
                self.bad_tables.push(block);
                self.problem(format!("inodes {first} to {}", first + INODES_PER_BLOCK - 1), e.to_string());
                return Ok(());
            }
        };
        for index in 0..INODES_PER_BLOCK {
            let ino = first + index;
            match buffer.with(|page| decode(page, index as usize)) {
                Ok(None) => {}
                Ok(Some(inode)) if ino == ROOT_INO || ino == ORPHANS_INO || ino >= FIRST_INO => {
                    self.meet(ino, inode)?;
                }
                Ok(Some(_)) => {
                    self.dead.push(ino);
                    self.problem(format!("inode {ino}"), "it is one of those that nobody may have");
                }
                Err(what) => {
                    self.dead.push(ino);
                    self.problem(format!("inode {ino}"), what);
                }
            }
        }
        Ok(())
    }

    /// Everything that an inode has.
    fn meet(&mut self, ino: u64, inode: Inode) -> Result<()> {
        let about = format!("inode {ino}");
        let mut found = Found { inode: inode.clone(), path: about.clone(), ..Found::default() };
        if inode.xattrs != 0 {
            let (pieces, is_whole) = self.salvage(ino, inode.xattrs, &mut found.pages, &about)?;
            found.xattrs = pieces;
            found.are_xattrs_bad = !is_whole || !xattrs::are_whole(&found.xattrs);
            if is_whole && found.are_xattrs_bad {
                self.problem(&about, "extended attributes are not whole");
            }
        }
        let pages = found.pages.len();
        let (pieces, is_whole) = match inode.tree {
            0 => (Vec::new(), true),
            root => self.salvage(ino, root, &mut found.pages, &about)?,
        };
        found.is_tree_bad = !is_whole;
        self.stale(&about, ino, &found.pages);
        match inode.file_type() {
            _ if ino == ORPHANS_INO => found.target = pieces,
            FileType::Directory => self.names(&about, &mut found, pieces),
            FileType::RegularFile => self.extents(&about, &mut found, pieces),
            // A part of a target leads elsewhere.
            FileType::Symlink if !is_whole => {}
            _ => found.target = pieces,
        }
        self.look_over(&about, &mut found);
        if found.is_tree_bad {
            // It is written anew: its pages are nobody's.
            found.pages.truncate(pages);
        }
        if found.are_xattrs_bad {
            found.pages.drain(..pages);
        }
        self.found.insert(ino, found);
        Ok(())
    }

    /// Reports an inode whose last state was in a record of the journal that is damaged.
    fn stale(&mut self, about: &str, ino: u64, pages: &[u64]) {
        let stale = &self.system.damage.stale;
        let is_stale = |block: &u64| stale.contains(block);
        let table = self.system.geometry.inode_block(ino).map(|(block, _)| block);
        if table.iter().chain(pages).any(is_stale) {
            self.problem(
                about,
                "the damaged journal had a newer state of it: what is left is older, or of another file",
            );
        }
    }

    /// What an inode says of itself that cannot be, each by itself. It says something else from now on.
    fn look_over(&mut self, about: &str, found: &mut Found) {
        let inode = &mut found.inode;
        let mut wrong: Vec<String> = Vec::new();
        if inode.mode >> 16 != 0 {
            wrong.push(format!("mode {:#o}", inode.mode));
            inode.mode &= 0o177_777;
        }
        for time in [&mut inode.accessed, &mut inode.modified, &mut inode.changed, &mut inode.created] {
            if time.nanoseconds >= 1_000_000_000 {
                wrong.push(format!("a time with {} nanoseconds", time.nanoseconds));
                time.nanoseconds = 0;
            }
        }
        if !xattrs::is_hint(inode.hint) {
            wrong.push(format!("write hint {}", inode.hint));
            inode.hint = 0;
        }
        let is_inline_right = match &inode.inline {
            Inline::None => true,
            Inline::Symlink(_) => inode.is_symlink() && inode.tree == 0,
            Inline::Extents(_) => inode.is_file() && inode.tree == 0,
        };
        if !is_inline_right {
            wrong.push("what is inline belongs to another type, or beside a tree".to_owned());
            inode.inline = Inline::None;
        }
        let may_have_tree = inode.is_directory() || inode.is_file() || inode.is_symlink();
        if inode.tree != 0 && !may_have_tree {
            wrong.push("a tree, which its type has not".to_owned());
            found.target.clear();
            found.is_tree_bad = true;
        }
        if inode.is_symlink() {
            let bytes = match &inode.inline {
                Inline::Symlink(target) => target.len(),
                _ => found.target.iter().map(|(_, part)| part.len()).sum(),
            };
            if bytes == 0 {
                wrong.push(
                    "its target is lost: after a repair the symbolic link leads to `(lost)`".to_owned(),
                );
                inode.inline = Inline::Symlink(LOST_TARGET.to_vec());
                inode.size = LOST_TARGET.len() as u64;
                found.target.clear();
                found.is_tree_bad = inode.tree != 0;
            } else if inode.size != bytes as u64 {
                wrong.push(format!("a target of {bytes} bytes, and its size is {}", inode.size));
                inode.size = bytes as u64;
            }
        }
        wrong.into_iter().for_each(|what| self.problem(about, what));
    }

    /// What can be read of a tree, and whether it is all of it.
    fn salvage(&mut self, ino: u64, root: u64, pages: &mut Vec<u64>, about: &str) -> Result<(Pieces, bool)> {
        let mut pieces = Vec::new();
        let (mut is_in_order, mut is_read) = (true, true);
        let mut last = None;
        let system = self.system;
        Tree { root, owner: ino }.salvage(
            &system.buffers,
            &mut |page| pages.push(page),
            &mut |key, value| {
                is_in_order &= last.is_none_or(|last| last < key);
                last = Some(key);
                pieces.push((key, value.to_vec()));
            },
            &mut |e| {
                is_read = false;
                self.problem(about, e.to_string());
            },
        )?;
        let is_in_place = pages.iter().all(|&page| system.geometry.group_of(page).is_some());
        if !is_in_order || !is_in_place {
            self.problem(about, "a tree whose keys are not in order, or with pages where none can be");
        }
        Ok((pieces, is_in_order && is_read && is_in_place))
    }

    fn names(&mut self, about: &str, found: &mut Found, pieces: Pieces) {
        for (key, value) in pieces {
            let name = match Target::parse(&value) {
                Some((target, name))
                    if directory::check_name(name).is_ok()
                        && directory::is_key_of(key, directory::hash(name, self.system.seed))
                        && !found.names.iter().rev().take(64).any(|other| other.name == name) =>
                {
                    Name { key, name: name.to_vec(), target }
                }
                _ => {
                    self.problem(about, format!("what has key {key:#x} is no name"));
                    found.is_tree_bad = true;
                    continue;
                }
            };
            found.names.push(name);
        }
    }

    fn extents(&mut self, about: &str, found: &mut Found, pieces: Pieces) {
        let geometry = self.system.geometry;
        let pieces = match &found.inode.inline {
            Inline::Extents(bytes) if found.inode.tree == 0 => inline_extents(bytes),
            _ => pieces,
        };
        let mut end = 0;
        for (at, bytes) in pieces {
            let extent = Extent::parse(&bytes).filter(|extent| {
                geometry.holds_data(extent.start, extent.blocks)
                    && at >= end
                    && at.checked_add(extent.blocks).is_some_and(|end| end <= 1 << 51)
            });
            match extent {
                Some(extent) => {
                    end = at + extent.blocks;
                    found.extents.push((at, extent));
                }
                None => {
                    self.problem(about, format!("its extent at block {at} cannot be"));
                    found.is_tree_bad = true;
                }
            }
        }
    }

    /// Somebody has blocks. Returns those that somebody else has already.
    pub(super) fn claim(&mut self, ino: u64, start: u64, blocks: u64) -> Option<u64> {
        let end = start + blocks;
        let before = self.claims.range(..end).next_back().map(|(&at, &(end, whose))| (at, end, whose));
        if let Some((_, _, whose)) = before.filter(|&(_, other_end, _)| other_end > start) {
            return Some(whose);
        }
        self.survey.blocks += blocks;
        self.claims.insert(start, (end, ino));
        None
    }

    pub(super) fn is_claimed(&self, block: u64) -> bool {
        self.claims.range(..=block).next_back().is_some_and(|(_, &(end, _))| end > block)
    }

    /// What the maps say, against who has what.
    pub(super) fn maps(&mut self) -> Result<()> {
        let geometry = self.system.geometry;
        let mut free = (0, 0);
        for group in 0..geometry.groups {
            let about = format!("group {group}");
            let (start, len) = (geometry.group_start(group), geometry.group_len(group));
            let mut state = vec![false; len as usize];
            state[..geometry.group_overhead() as usize].fill(true);
            for (&first, &(end, _)) in self.claims.range(start..start + len) {
                state[(first - start) as usize..(end - start) as usize].fill(true);
            }
            free.0 += state.iter().filter(|&&is_used| !is_used).count() as u64;
            let map = self.system.buffers.get(start, Kind::BlockMap, group.into());
            if let Some(map) = self.told(&about, map)? {
                let wrong = (0..len)
                    .filter(|&place| map.with(|page| bits::is_marked(page, place)) != state[place as usize]);
                for place in wrong.collect::<Vec<_>>() {
                    let what = if state[place as usize] {
                        "free, and belongs to somebody"
                    } else {
                        "used, and belongs to nobody"
                    };
                    self.problem(&about, format!("block {} is {what}", start + place));
                }
            }
            let map = self.system.buffers.get(geometry.inode_map(group), Kind::InodeMap, group.into());
            let per = u64::from(geometry.inodes_per_group);
            let is_used = |checker: &Self, place: u64| {
                let ino = u64::from(group) * per + place + 1;
                ino < FIRST_INO || checker.found.contains_key(&ino)
            };
            free.1 += (0..per).filter(|&place| !is_used(self, place)).count() as u64;
            if let Some(map) = self.told(&about, map)? {
                for place in 0..per {
                    let is_used = is_used(self, place);
                    if map.with(|page| bits::is_marked(page, place)) != is_used {
                        let ino = u64::from(group) * per + place + 1;
                        let what = if is_used { "free, and there" } else { "used, and not there" };
                        self.problem(&about, format!("inode {ino} is {what}"));
                    }
                }
            }
        }
        let counted = self.system.journal.free_counts();
        if counted != free {
            self.problem(
                "the journal",
                format!(
                    "{} free blocks and {} free inodes, and {} and {} are counted",
                    free.0, free.1, counted.0, counted.1
                ),
            );
        }
        Ok(())
    }
}
