//! Whether everything on the media fits together: every block and inode that is used belongs to somebody,
//! once, and everything that is counted is counted right. And making it so.
//!
//! Everything is read that says it is an inode (`scan`), then compared with what names, counts and maps say
//! (`judge`). What does not fit is a problem. A repair writes what was found to be right (`repair`): what
//! cannot be read is given up, and what has no name any more gets one in `lost+found`.

mod judge;
mod repair;
mod scan;

use std::collections::{BTreeMap, BTreeSet};

use unvme::Block;

use crate::directory::Target;
use crate::error::Result;
use crate::extents::Extent;
use crate::layout::Inode;
use crate::system::{FileSystem, MountOptions, System};

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
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

/// Keys of a tree, and their values.
type Pieces = Vec<(u64, Vec<u8>)>;

/// A name of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Name {
    key: u64,
    name: Vec<u8>,
    target: Target,
}

/// An inode, and what it has.
#[derive(Clone, Debug, Default)]
struct Found {
    inode: Inode,
    names: Vec<Name>,
    extents: Vec<(u64, Extent)>,
    /// Keys and pieces of the extended attributes.
    xattrs: Pieces,
    /// The target of a long symbolic link, in pieces.
    target: Pieces,
    /// Pages of its trees.
    pages: Vec<u64>,
    /// Its tree, or that of its attributes, is not as it should be, and has to be written anew.
    is_tree_bad: bool,
    are_xattrs_bad: bool,
    /// Blocks that it has, and how many it should count.
    blocks: u64,
    path: String,
    /// Names that lead to it, and directories in it.
    links: u32,
    directories: u32,
    parent: u64,
}

/// What is known of a file system.
struct Checker<'a> {
    system: &'a System,
    survey: Survey,
    found: BTreeMap<u64, Found>,
    /// Runs of blocks that somebody has: the first one, and behind the last one, and whose.
    claims: BTreeMap<u64, (u64, u64)>,
    /// Files without names, as the list of them says.
    orphans: BTreeSet<u64>,
    /// Names that lead nowhere, or where they must not: directory and key.
    bad_names: Vec<(u64, u64)>,
    /// Names whose type is wrong.
    retyped: Vec<(u64, Name)>,
    /// Inodes that have no name and should.
    lost: Vec<u64>,
    /// Inodes that are none.
    dead: Vec<u64>,
    /// Blocks of inodes that cannot be read.
    bad_tables: Vec<u64>,
}

impl<'a> Checker<'a> {
    fn new(system: &'a System) -> Self {
        Self {
            system,
            survey: Survey::default(),
            found: BTreeMap::new(),
            claims: BTreeMap::new(),
            orphans: BTreeSet::new(),
            bad_names: Vec::new(),
            retyped: Vec::new(),
            lost: Vec::new(),
            dead: Vec::new(),
            bad_tables: Vec::new(),
        }
    }

    fn problem(&mut self, about: impl Into<String>, what: impl Into<String>) {
        self.survey.problems.push(Problem { about: about.into(), what: what.into() });
    }

    fn run(&mut self, progress: &mut dyn FnMut(u64)) -> Result<()> {
        self.scan(progress)?;
        self.judge();
        self.maps()?;
        self.name_paths();
        Ok(())
    }

    /// Has problems of inodes say the path, where a name leads to it.
    fn name_paths(&mut self) {
        for problem in &mut self.survey.problems {
            let ino = problem.about.strip_prefix("inode ").and_then(|number| number.parse().ok());
            if let Some(found) = ino.and_then(|ino: u64| self.found.get(&ino)) {
                problem.about.clone_from(&found.path);
            }
        }
    }
}

impl FileSystem {
    /// Checks the whole file system as the media and the running transaction have it. Nobody else uses it
    /// meanwhile. Nothing is written but what waits for it; `progress` is told how many inodes were looked
    /// at.
    ///
    /// # Errors
    /// [`crate::Error::Device`]; what is damaged is a [`Problem`].
    pub fn check(&self, mut progress: impl FnMut(u64)) -> Result<Survey> {
        if !self.0.is_read_only {
            self.sync()?;
        }
        let mut checker = Checker::new(&self.0);
        checker.run(&mut progress)?;
        self.0.damage.lost.iter().for_each(|what| checker.problem("the journal", what));
        checker.survey.problems.sort();
        Ok(checker.survey)
    }
}

/// Checks the file system of a namespace, mountable or not. Nothing is written.
///
/// # Errors
/// [`crate::Error::Format`] when there is none; [`crate::Error::Busy`]; [`crate::Error::Device`].
pub fn check(block: &Block, name: &str, mut progress: impl FnMut(u64)) -> Result<Survey> {
    let options = MountOptions { is_read_only: true, ..MountOptions::default() };
    let (system, _holder, told) = System::open(block, name, &options, true)?;
    let mut checker = Checker::new(&system);
    checker.run(&mut progress)?;
    told.into_iter().for_each(|(about, what)| checker.problem(about, what));
    checker.survey.problems.sort();
    Ok(checker.survey)
}

/// Repairs the file system of a namespace. Returns what was wrong; afterwards it can be mounted, and a check
/// finds nothing. Blocks and inodes that cannot be read are dropped. What has lost its name gets one in
/// `lost+found`. A file of which something was lost keeps its name; the problems that are returned have its
/// path.
///
/// # Errors
/// As [`check()`]; ENOSPC when there is no room for what has to be written anew.
pub fn repair(block: &Block, name: &str, mut progress: impl FnMut(u64)) -> Result<Vec<Problem>> {
    let (system, _holder, told) = System::open(block, name, &MountOptions::default(), true)?;
    let mut checker = Checker::new(&system);
    checker.run(&mut progress)?;
    told.into_iter().for_each(|(about, what)| checker.problem(about, what));
    if !checker.survey.problems.is_empty() {
        checker.repair()?;
    }
    system.journal.finish(true)?;
    system.rewrite_superblocks()?;
    checker.survey.problems.sort();
    Ok(checker.survey.problems)
}
