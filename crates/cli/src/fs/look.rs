//! `fs ls`, `fs stat`, `fs tree`, `fs cat`.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;

use anyhow::{Context, Result};
use clap::Args;
use serde::Serialize;
use unvme_fs::{Attributes, FileType, Time, Vnode};

use super::place::{Mounted, Place, entries, shown};
use crate::columns::{Rule, write_table};
use crate::output::Output;
use crate::perf::rfc3339;

/// A file, as JSON has it.
#[derive(Serialize)]
struct File {
    name: String,
    ino: u64,
    r#type: &'static str,
    mode: String,
    links: u32,
    uid: u32,
    gid: u32,
    size: u64,
    allocated_bytes: u64,
    accessed: String,
    modified: String,
    changed: String,
    created: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    xattrs: Vec<String>,
}

fn type_of(file_type: FileType) -> (&'static str, char) {
    match file_type {
        FileType::Directory => ("directory", 'd'),
        FileType::Symlink => ("symlink", 'l'),
        FileType::Fifo => ("fifo", 'p'),
        FileType::Socket => ("socket", 's'),
        FileType::CharacterDevice => ("character-device", 'c'),
        FileType::BlockDevice => ("block-device", 'b'),
        _ => ("file", '-'),
    }
}

/// Permissions as `ls -l` has them.
fn letters(attributes: &Attributes) -> String {
    let mode = attributes.mode;
    let mut text = String::from(type_of(attributes.file_type()).1);
    for (shift, special, marks) in [(6, 0o4000, ['s', 'S']), (3, 0o2000, ['s', 'S']), (0, 0o1000, ['t', 'T'])]
    {
        let bits = mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (mode & special != 0, bits & 1 != 0) {
            (true, true) => marks[0],
            (true, false) => marks[1],
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    text
}

/// A moment in UTC.
fn utc(time: Time) -> String {
    let whole = rfc3339(time.seconds);
    format!("{}.{:09}Z", whole.trim_end_matches('Z'), time.nanoseconds)
}

fn file(name: &[u8], node: &Vnode, mounted: &Mounted) -> Result<File> {
    let attributes = node.attributes();
    let target = match attributes.file_type() {
        FileType::Symlink => Some(shown(&node.target()?)),
        _ => None,
    };
    Ok(File {
        name: shown(name),
        ino: attributes.ino,
        r#type: type_of(attributes.file_type()).0,
        mode: format!("{:04o}", attributes.mode & 0o7777),
        links: attributes.links,
        uid: attributes.uid,
        gid: attributes.gid,
        size: attributes.size,
        allocated_bytes: attributes.sectors * 512,
        accessed: utc(attributes.accessed),
        modified: utc(attributes.modified),
        changed: utc(attributes.changed),
        created: utc(attributes.created),
        target,
        xattrs: node.xattrs(&mounted.who)?.iter().map(|name| shown(name)).collect(),
    })
}

/// Arguments of `fs ls`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  unvme fs ls 0000:02:00.0
  unvme fs ls 0000:02:00.0 / -l --output json")]
pub(crate) struct Ls {
    #[command(flatten)]
    place: Place,
    /// Directory, or file
    #[arg(value_name = "PATH", default_value = "/")]
    path: OsString,
    /// Permissions, links, owner, group, size and time, too
    #[arg(short, long)]
    long: bool,
    #[command(flatten)]
    output: Output,
}

impl Ls {
    pub(crate) fn run(self) -> Result<()> {
        let mounted = self.place.look()?;
        let node = mounted.find(&self.path, false)?;
        let mut files = Vec::new();
        if node.file_type() == FileType::Directory {
            for entry in entries(&node)? {
                files.push((entry.name.clone(), node.lookup(&entry.name, &mounted.who)?));
            }
        } else {
            files.push((self.path.as_bytes().to_vec(), node));
        }
        let list: Vec<File> =
            files.iter().map(|(name, node)| file(name, node, &mounted)).collect::<Result<_>>()?;
        self.output.output.show(&list, |out| {
            if !self.long {
                return list.iter().try_for_each(|file| writeln!(out, "{}", file.name));
            }
            let row = |(file, (_, node)): (&File, &(Vec<u8>, Vnode))| {
                let name = match &file.target {
                    Some(target) => format!("{} -> {target}", file.name),
                    None => file.name.clone(),
                };
                let [links, uid, gid] = [file.links, file.uid, file.gid].map(|number| number.to_string());
                let time = file.modified[..16].replace('T', " ");
                [letters(&node.attributes()), links, uid, gid, file.size.to_string(), time, name]
            };
            let rows: Vec<_> = list.iter().zip(&files).map(row).collect();
            write_table(
                out,
                &["Mode", "Links", "User", "Group", "Size", "Modified", "Name"],
                Rule::None,
                &rows,
            )
        })
    }
}

/// Arguments of `fs stat`.
#[derive(Debug, Args)]
#[command(after_help = "Example: unvme fs stat 0000:02:00.0 /")]
pub(crate) struct Stat {
    #[command(flatten)]
    place: Place,
    /// File; a symbolic link is not followed
    #[arg(value_name = "PATH")]
    path: OsString,
    #[command(flatten)]
    output: Output,
}

impl Stat {
    pub(crate) fn run(self) -> Result<()> {
        let mounted = self.place.look()?;
        let node = mounted.find(&self.path, false)?;
        let found = file(self.path.as_bytes(), &node, &mounted)?;
        self.output.output.show(&found, |out| {
            writeln!(out, "  File: {}", found.name)?;
            if let Some(target) = &found.target {
                writeln!(out, "Target: {target}")?;
            }
            writeln!(out, "  Type: {}, inode {}, {} links", found.r#type, found.ino, found.links)?;
            writeln!(out, "  Size: {} bytes, {} allocated", found.size, found.allocated_bytes)?;
            writeln!(
                out,
                "Access: {} {}, user {}, group {}",
                found.mode,
                letters(&node.attributes()),
                found.uid,
                found.gid
            )?;
            for (what, when) in [
                ("Access", &found.accessed),
                ("Modify", &found.modified),
                ("Change", &found.changed),
                (" Birth", &found.created),
            ] {
                writeln!(out, "{what}: {when}")?;
            }
            found.xattrs.iter().try_for_each(|name| writeln!(out, " Xattr: {name}"))
        })
    }
}

/// Arguments of `fs tree`.
#[derive(Debug, Args)]
#[command(after_help = "Example: unvme fs tree 0000:02:00.0")]
pub(crate) struct Tree {
    #[command(flatten)]
    place: Place,
    /// Directory
    #[arg(value_name = "PATH", default_value = "/")]
    path: OsString,
    #[command(flatten)]
    output: Output,
}

/// A name and those below it.
#[derive(Serialize)]
struct Branch {
    name: String,
    r#type: &'static str,
    size: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    below: Vec<Branch>,
}

fn grow(name: String, node: &Vnode, mounted: &Mounted) -> Result<Branch> {
    let attributes = node.attributes();
    let mut below = Vec::new();
    if attributes.file_type() == FileType::Directory {
        for entry in entries(node)? {
            below.push(grow(shown(&entry.name), &node.lookup(&entry.name, &mounted.who)?, mounted)?);
        }
    }
    Ok(Branch { name, r#type: type_of(attributes.file_type()).0, size: attributes.size, below })
}

fn draw(branch: &Branch, before: &str, out: &mut dyn Write) -> io::Result<()> {
    for (at, below) in branch.below.iter().enumerate() {
        let is_last = at + 1 == branch.below.len();
        let (corner, line) = if is_last {
            ("\u{2514}\u{2500}\u{2500} ", "    ")
        } else {
            ("\u{251c}\u{2500}\u{2500} ", "\u{2502}   ")
        };
        writeln!(out, "{before}{corner}{}", below.name)?;
        draw(below, &format!("{before}{line}"), out)?;
    }
    Ok(())
}

impl Tree {
    pub(crate) fn run(self) -> Result<()> {
        let mounted = self.place.look()?;
        let root = grow(shown(self.path.as_bytes()), &mounted.find(&self.path, true)?, &mounted)?;
        self.output.output.show(&root, |out| {
            writeln!(out, "{}", root.name)?;
            draw(&root, "", out)
        })
    }
}

/// Arguments of `fs cat`.
#[derive(Debug, Args)]
#[command(after_help = "Example: unvme fs cat 0000:02:00.0 /Cargo.toml | head")]
pub(crate) struct Cat {
    #[command(flatten)]
    place: Place,
    /// Files
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,
}

/// Writes the data of a file.
pub(super) fn copy_out(node: &Vnode, path: &OsStr, out: &mut dyn Write) -> Result<()> {
    let mut buffer = vec![0; 1 << 20];
    let mut at = 0;
    loop {
        let bytes = node.read_at(at, &mut buffer).with_context(|| shown(path.as_bytes()))?;
        if bytes == 0 {
            return Ok(());
        }
        out.write_all(&buffer[..bytes])?;
        at += bytes as u64;
    }
}

impl Cat {
    pub(crate) fn run(self) -> Result<()> {
        let mounted = self.place.look()?;
        let mut out = io::stdout().lock();
        for path in &self.paths {
            copy_out(&mounted.find(path, true)?, path, &mut out)?;
        }
        Ok(out.flush()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_those_of_the_calendar() {
        let at = |seconds| utc(Time { seconds, nanoseconds: 5 });
        assert_eq!(at(0), "1970-01-01T00:00:00.000000005Z");
        assert_eq!(at(951_827_696), "2000-02-29T12:34:56.000000005Z");
        assert_eq!(at(-1), "1969-12-31T23:59:59.000000005Z");
        assert_eq!(at(4_107_542_400), "2100-03-01T00:00:00.000000005Z");
    }
}
