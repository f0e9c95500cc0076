//! Who has which name, and what is counted.

use rustix::fs::FileType;

use super::Checker;
use crate::layout::{BLOCK, Inode, Kinds, ORPHANS_INO, ROOT_INO};

impl Checker<'_> {
    pub(super) fn judge(&mut self) {
        for (ino, what) in
            [(ROOT_INO, "the root directory"), (ORPHANS_INO, "the list of files without names")]
        {
            let is_there = self.found.get(&ino).is_some_and(|found| found.inode.is_directory());
            if !is_there {
                self.problem(what, "it is not there");
                let inode = Inode {
                    mode: FileType::Directory.as_raw_mode() | 0o755,
                    links: 2,
                    parent: ino,
                    ..Inode::default()
                };
                self.found.insert(ino, super::Found { inode, is_tree_bad: true, ..super::Found::default() });
            }
        }
        self.found
            .entry(ORPHANS_INO)
            .and_modify(|found| found.path = "the list of files without names".into());
        self.reach(ROOT_INO, "/", ROOT_INO);
        self.nameless();
        self.claim_all();
        self.holes();
        self.count();
    }

    /// Gives every name below a directory its path.
    fn reach(&mut self, start: u64, path: &str, parent: u64) {
        let Some(root) = self.found.get_mut(&start) else { return };
        (root.path, root.parent) = (path.to_owned(), parent);
        root.links = 1;
        let mut waiting = vec![start];
        while let Some(ino) = waiting.pop() {
            let Some(directory) = self.found.get(&ino) else { continue };
            let (base, names) = (directory.path.clone(), directory.names.clone());
            for name in names {
                let shown = String::from_utf8_lossy(&name.name).into_owned();
                let path = if base == "/" { format!("/{shown}") } else { format!("{base}/{shown}") };
                let target = name.target;
                let state = match self.found.get(&target.ino) {
                    None => Err("leads to an inode that is not there".to_owned()),
                    Some(_) if target.ino == ROOT_INO || target.ino == ORPHANS_INO => {
                        Err("leads to an inode of the file system itself".to_owned())
                    }
                    Some(found) if found.inode.is_directory() && found.links > 0 => {
                        Err(format!("leads to inode {}, a directory that has a name already", target.ino))
                    }
                    Some(found) => Ok(found.inode.file_type()),
                };
                match state {
                    Err(what) => {
                        self.problem(&path, what);
                        self.bad_names.push((ino, name.key));
                    }
                    Ok(file_type) => {
                        if file_type != target.file_type {
                            self.problem(&path, "the name says another type than the inode");
                            self.retyped.push((ino, name));
                        }
                        let is_directory = file_type == FileType::Directory;
                        if let Some(found) = self.found.get_mut(&target.ino) {
                            if found.links == 0 {
                                found.path = path;
                            }
                            found.links += 1;
                            if is_directory {
                                found.parent = ino;
                                waiting.push(target.ino);
                            }
                        }
                        if is_directory && let Some(directory) = self.found.get_mut(&ino) {
                            directory.directories += 1;
                        }
                    }
                }
            }
        }
    }

    /// What no name leads to: files that somebody had open, and what has lost its names.
    fn nameless(&mut self) {
        let without = |checker: &Self| -> Vec<u64> {
            let none = checker.found.iter().filter(|(ino, found)| **ino != ORPHANS_INO && found.links == 0);
            none.map(|(&ino, _)| ino).collect()
        };
        for ino in self.orphans.clone() {
            match self.found.get(&ino) {
                None => self.problem("the list of files without names", format!("inode {ino} is not there")),
                Some(found) if found.links == 0 => self.survey.unnamed += 1,
                // Its end is being cut off.
                Some(_) => {}
            }
        }
        // Directories first, and of those the ones that are in no other: they bring the rest with them.
        let nameless = without(self);
        let inside: Vec<u64> = nameless
            .iter()
            .filter_map(|ino| self.found.get(ino))
            .flat_map(|found| found.names.iter().map(|name| name.target.ino))
            .collect();
        let mut order: Vec<u64> = nameless.iter().copied().filter(|ino| !inside.contains(ino)).collect();
        order.extend(nameless.iter().copied().filter(|ino| inside.contains(ino)));
        for ino in order {
            let Some(found) = self.found.get(&ino) else { continue };
            let is_orphan = found.inode.links == 0 && self.orphans.contains(&ino);
            if found.links > 0 || is_orphan {
                continue;
            }
            if found.inode.links == 0 {
                self.problem(
                    format!("inode {ino}"),
                    "it has no name, and is not in the list of those that have none",
                );
            } else {
                self.problem(format!("inode {ino}"), "it has lost its name");
            }
            self.lost.push(ino);
            self.reach(ino, &format!("/lost+found/#{ino}"), 0);
        }
    }

    /// Who has which blocks: who comes first keeps them.
    fn claim_all(&mut self) {
        let all: Vec<u64> = self.found.keys().copied().collect();
        for ino in all {
            let Some(mut found) = self.found.remove(&ino) else { continue };
            let mut taken = false;
            for &page in &found.pages {
                if let Some(whose) = self.claim(ino, page, 1) {
                    self.problem(&found.path, format!("block {page} belongs to inode {whose}, too"));
                    taken = true;
                }
            }
            if taken {
                // What was read stays; it is written elsewhere.
                found.is_tree_bad |= found.inode.tree != 0;
                found.are_xattrs_bad |= found.inode.xattrs != 0;
            }
            let mut kept = Vec::new();
            for (at, extent) in std::mem::take(&mut found.extents) {
                match self.claim(ino, extent.start, extent.blocks) {
                    None => kept.push((at, extent)),
                    Some(whose) => {
                        let what = format!("blocks from {} on belong to inode {whose}, too", extent.start);
                        self.problem(&found.path, what);
                        found.is_tree_bad = true;
                    }
                }
            }
            found.extents = kept;
            let data: u64 = found.extents.iter().map(|(_, extent)| extent.blocks).sum();
            found.blocks = data + found.pages.len() as u64;
            self.found.insert(ino, found);
        }
    }

    /// Reports files of which extents are lost: a repair leaves holes there.
    fn holes(&mut self) {
        let files = self.found.values().filter(|found| found.inode.is_file() && found.is_tree_bad);
        let lost: Vec<String> = files.map(|found| found.path.clone()).collect();
        for path in lost {
            self.problem(path, "data are lost: after a repair they read as zeros");
        }
    }

    /// What each inode says of itself, against what was found.
    fn count(&mut self) {
        let mut wrong = Vec::new();
        for (&ino, found) in &self.found {
            if ino == ORPHANS_INO {
                continue;
            }
            let inode = &found.inode;
            let is_directory = inode.is_directory();
            let links = if is_directory && found.links > 0 { 2 + found.directories } else { found.links };
            if inode.links != links && !self.lost.contains(&ino) {
                wrong.push((ino, format!("{links} links, and {} are counted", inode.links)));
            }
            if is_directory {
                self.survey.directories += 1;
                if inode.names != found.names.len() as u64 {
                    wrong
                        .push((ino, format!("{} names, and {} are counted", found.names.len(), inode.names)));
                }
                if found.links > 0 && inode.parent != found.parent && !self.lost.contains(&ino) {
                    wrong.push((
                        ino,
                        format!("`..` is inode {}, and it is in {}", inode.parent, found.parent),
                    ));
                }
            } else {
                self.survey.files += u64::from(found.links > 0);
            }
            let is_rewritten = found.is_tree_bad || found.are_xattrs_bad;
            if inode.blocks != found.blocks && !is_rewritten {
                wrong.push((ino, format!("{} blocks, and {} are counted", found.blocks, inode.blocks)));
            }
            for (at, extent) in &found.extents {
                let end = inode.size.div_ceil(BLOCK as u64);
                if !extent.is_unwritten && at + extent.blocks > end && !self.orphans.contains(&ino) {
                    wrong.push((ino, format!("data behind its end, at block {}", (*at).max(end))));
                }
            }
        }
        for (ino, what) in wrong {
            let about = self.found[&ino].path.clone();
            self.problem(about, what);
        }
    }
}
