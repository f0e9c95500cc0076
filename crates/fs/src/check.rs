//! Whether everything on the media fits together: every block and inode that is used belongs to somebody,
//! once, and everything that is counted is counted right.

use std::collections::HashMap;
use std::ops::ControlFlow;

use rustix::fs::FileType;
use unvme::lock::lock;

use crate::bits;
use crate::directory::{self, Target};
use crate::error::{Error, Result};
use crate::extents::Extents;
use crate::layout::{BLOCK, Inode, Kind, Kinds, ORPHANS_INO, ROOT_INO};
use crate::system::{FileSystem, System};
use crate::tree::Tree;

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The path of the file, or what else it is about.
    pub about: String,
    /// What is wrong.
    pub what: String,
}

/// What a check has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Directories, the root included.
    pub directories: u64,
    /// Everything else that has a name.
    pub files: u64,
    /// Files without a name that somebody had open.
    pub unnamed: u64,
    /// Blocks that files, directories and their trees have.
    pub blocks: u64,
    /// What is wrong; empty when all is well.
    pub problems: Vec<Problem>,
}

/// An inode that was met.
struct Met {
    path: String,
    inode: Inode,
    /// Names that lead to it.
    names: u32,
    /// Directories in it.
    directories: u32,
}

struct Checker<'a> {
    system: &'a System,
    survey: Survey,
    met: HashMap<u64, Met>,
    /// Who has each block.
    blocks: HashMap<u64, u64>,
}

impl FileSystem {
    /// Checks the whole file system as the media and the running transaction have it. Nobody else uses it
    /// meanwhile. Nothing is written; `progress` is told how many inodes were looked at.
    ///
    /// # Errors
    /// [`Error::Device`]; what is damaged is a [`Problem`].
    pub fn check(&self, mut progress: impl FnMut(u64)) -> Result<Survey> {
        let mut checker = Checker {
            system: &self.0,
            survey: Survey::default(),
            met: HashMap::new(),
            blocks: HashMap::new(),
        };
        checker.walk(&mut progress)?;
        checker.orphans()?;
        checker.links();
        checker.maps()?;
        Ok(checker.survey)
    }
}

impl Checker<'_> {
    fn problem(&mut self, about: impl Into<String>, what: impl Into<String>) {
        self.survey.problems.push(Problem { about: about.into(), what: what.into() });
    }

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

    fn claim(&mut self, ino: u64, path: &str, start: u64, blocks: u64) {
        self.survey.blocks += blocks;
        for block in start..start + blocks {
            if self.system.geometry.group_of(block).is_none() {
                self.problem(path, format!("block {block} cannot belong to a file"));
            }
            if let Some(other) = self.blocks.insert(block, ino) {
                let whose = self.met.get(&other).map_or(String::new(), |met| format!(" ({})", met.path));
                self.problem(path, format!("block {block} belongs to inode {other}{whose}, too"));
            }
        }
    }

    /// The pages of a tree. Returns how many.
    fn pages(&mut self, ino: u64, path: &str, root: u64) -> Result<u64> {
        let mut pages = Vec::new();
        if root != 0 {
            let found = Tree { root, owner: ino }.pages(&self.system.buffers, &mut |page| pages.push(page));
            self.told(path, found)?;
        }
        pages.iter().for_each(|&page| self.claim(ino, path, page, 1));
        Ok(pages.len() as u64)
    }

    /// Everything that has a name.
    fn walk(&mut self, progress: &mut dyn FnMut(u64)) -> Result<()> {
        self.meet(ROOT_INO, String::from("/"), ROOT_INO)?;
        if let Some(root) = self.met.get_mut(&ROOT_INO) {
            root.names = 1;
        }
        let mut waiting = vec![ROOT_INO];
        while let Some(ino) = waiting.pop() {
            let Some(met) = self.met.get(&ino) else { continue };
            let (path, inode) = (met.path.clone(), met.inode.clone());
            let names = self.names(ino, &path, &inode)?;
            if names.len() as u64 != inode.names {
                self.problem(&path, format!("{} names, and {} are counted", names.len(), inode.names));
            }
            for (name, target) in names {
                let name = String::from_utf8_lossy(&name).into_owned();
                let path = if ino == ROOT_INO { format!("/{name}") } else { format!("{path}/{name}") };
                if !self.met.contains_key(&target.ino) {
                    self.meet(target.ino, path.clone(), ino)?;
                    waiting.extend(
                        self.met.get(&target.ino).filter(|met| met.inode.is_directory()).map(|_| target.ino),
                    );
                } else if target.file_type == FileType::Directory {
                    self.problem(
                        &path,
                        format!("leads to inode {}, a directory that has a name already", target.ino),
                    );
                }
                self.count(target, &path, ino);
                progress(self.met.len() as u64);
            }
        }
        Ok(())
    }

    fn count(&mut self, target: Target, path: &str, directory: u64) {
        let Some(met) = self.met.get_mut(&target.ino) else { return };
        met.names += 1;
        let is_directory = met.inode.is_directory();
        if met.inode.file_type() != target.file_type {
            self.problem(path, "the name says another type than the inode");
        }
        if is_directory && let Some(directory) = self.met.get_mut(&directory) {
            directory.directories += 1;
        }
    }

    fn names(&mut self, ino: u64, path: &str, inode: &Inode) -> Result<Vec<(Vec<u8>, Target)>> {
        let mut names = Vec::new();
        let mut wrong = Vec::new();
        if inode.tree != 0 {
            let seed = self.system.seed;
            let found = Tree { root: inode.tree, owner: ino }.visit(&self.system.buffers, 0, |key, value| {
                match Target::parse(value) {
                    Some((target, name))
                        if directory::check_name(name).is_ok()
                            && key & !63 == directory::key_of(name, seed) =>
                    {
                        names.push((name.to_vec(), target));
                    }
                    _ => wrong.push(key),
                }
                ControlFlow::Continue(())
            });
            self.told(path, found)?;
        }
        for key in wrong {
            self.problem(path, format!("what has key {key:#x} is no name"));
        }
        Ok(names)
    }

    /// Looks at an inode for the first time.
    fn meet(&mut self, ino: u64, path: String, parent: u64) -> Result<()> {
        let found = self.system.node(ino).map(|node| unvme::lock::read(&node.state).inode.clone());
        let Some(inode) = self.told(&path, found)? else { return Ok(()) };
        let mut blocks = self.pages(ino, &path, inode.tree)? + self.pages(ino, &path, inode.xattrs)?;
        match inode.file_type() {
            FileType::Directory => {
                self.survey.directories += 1;
                if parent != 0 && inode.parent != parent && ino != ORPHANS_INO {
                    self.problem(&path, format!("`..` is inode {}, and it is in {parent}", inode.parent));
                }
            }
            _ => self.survey.files += 1,
        }
        if inode.is_file() {
            let extents = Extents::load(&self.system.buffers, &self.system.geometry, ino, &inode);
            if let Some(extents) = self.told(&path, extents)? {
                for (at, extent) in extents.iter() {
                    self.claim(ino, &path, extent.start, extent.blocks);
                    blocks += extent.blocks;
                    if !extent.is_unwritten && at + extent.blocks > inode.size.div_ceil(BLOCK as u64) {
                        self.problem(&path, format!("data behind its end, at block {at}"));
                    }
                }
            }
        }
        if blocks != inode.blocks && ino != ORPHANS_INO {
            self.problem(&path, format!("{blocks} blocks, and {} are counted", inode.blocks));
        }
        self.met.insert(ino, Met { path, inode, names: 0, directories: 0 });
        Ok(())
    }

    /// Files without names, and the list of them.
    fn orphans(&mut self) -> Result<()> {
        let tree = *lock(&self.system.orphans);
        let mut found = Vec::new();
        let listed = tree.visit(&self.system.buffers, 0, |ino, _| {
            found.push(ino);
            ControlFlow::Continue(())
        });
        self.told("the list of files without names", listed)?;
        self.meet(ORPHANS_INO, String::from("the list of files without names"), ORPHANS_INO)?;
        self.survey.directories -= 1;
        for ino in found {
            // One that has a name is a file whose end is being cut off.
            if !self.met.contains_key(&ino) {
                self.meet(ino, format!("inode {ino}, without a name"), 0)?;
                self.survey.unnamed += 1;
            }
        }
        Ok(())
    }

    fn links(&mut self) {
        let mut wrong = Vec::new();
        for (&ino, met) in &self.met {
            let names =
                if met.inode.is_directory() && met.names > 0 { 2 + met.directories } else { met.names };
            if ino != ORPHANS_INO && met.inode.links != names {
                wrong.push((met.path.clone(), format!("{names} links, and {} are counted", met.inode.links)));
            }
        }
        wrong.sort();
        wrong.into_iter().for_each(|(path, what)| self.problem(path, what));
    }

    /// The maps of blocks and inodes.
    fn maps(&mut self) -> Result<()> {
        let geometry = self.system.geometry;
        for group in 0..geometry.groups {
            let about = format!("group {group}");
            let start = geometry.group_start(group);
            let map = self.system.buffers.get(start, Kind::BlockMap, group.into());
            if let Some(map) = self.told(&about, map)? {
                let wrong: Vec<_> = (0..geometry.group_len(group))
                    .map(|place| (start + place, map.with(|page| bits::is_marked(page, place)), place))
                    .filter(|&(block, is_used, place)| {
                        is_used != (place < geometry.group_overhead() || self.blocks.contains_key(&block))
                    })
                    .collect();
                for (block, is_used, _) in wrong {
                    let state =
                        if is_used { "used, and belongs to nobody" } else { "free, and belongs to somebody" };
                    self.problem(&about, format!("block {block} is {state}"));
                }
            }
            let map = self.system.buffers.get(geometry.inode_map(group), Kind::InodeMap, group.into());
            if let Some(map) = self.told(&about, map)? {
                let per = u64::from(geometry.inodes_per_group);
                for place in 0..per {
                    let ino = u64::from(group) * per + place + 1;
                    let is_used = map.with(|page| bits::is_marked(page, place));
                    let is_met = ino < crate::layout::FIRST_INO || self.met.contains_key(&ino);
                    if is_used != is_met {
                        let state = if is_used { "used, and has no name" } else { "free, and has a name" };
                        self.problem(&about, format!("inode {ino} is {state}"));
                    }
                }
            }
        }
        Ok(())
    }
}
