//! `fs info`, `fs df`, `fs dump`.

use std::ffi::OsString;

use anyhow::Result;
use clap::Args;
use serde::Serialize;
use unvme_fs::{FileType, Vnode};

use super::place::{Mounted, Place, below, entries, shown};
use crate::columns::{Rule, write_table};
use crate::output::Output;
use crate::show::descriptors::uuid;
use crate::value::fields;

/// Arguments of `fs info`.
#[derive(Debug, Args)]
#[command(after_help = "Example: unvme fs info 0000:02:00.0")]
pub(crate) struct Info {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    output: Output,
}

impl Info {
    pub(crate) fn run(self) -> Result<()> {
        let mounted = self.place.look()?;
        let (about, usage) = (mounted.fs.description(), mounted.fs.usage());
        let shown = fields! {
            "device": self.place.device.device.as_str(),
            "label": about.label.as_str(),
            "uuid": uuid(&about.uuid),
            "version": u64::from(about.version),
            "block_bytes": usage.block_bytes,
            "blocks": usage.blocks,
            "free_blocks": usage.free_blocks,
            "inodes": usage.inodes,
            "free_inodes": usage.free_inodes,
            "journal_bytes": about.journal_bytes,
            "created": about.created / 1_000_000_000,
            "clean": about.is_clean,
            "records_replayed": about.replayed,
            "journal": about.damage.as_deref().unwrap_or("good"),
            "superblock": about.copy_taken.as_deref().unwrap_or("good"),
        };
        self.output.output.show(&shown, |out| shown.write_lines(out, 16))
    }
}

/// Arguments of `fs df`.
#[derive(Debug, Args)]
#[command(after_help = "Example: unvme fs df 0000:02:00.0 --output json")]
pub(crate) struct Df {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    output: Output,
}

impl Df {
    pub(crate) fn run(self) -> Result<()> {
        let mounted = self.place.look()?;
        let usage = mounted.fs.usage();
        let kib = |blocks: u64| blocks * usage.block_bytes / 1024;
        let used = usage.blocks - usage.free_blocks;
        let name = self.place.device.device.as_str();
        let json = fields! {
            "device": name, "bytes": usage.blocks * usage.block_bytes, "used_bytes": used * usage.block_bytes,
            "free_bytes": usage.free_blocks * usage.block_bytes, "inodes": usage.inodes,
            "free_inodes": usage.free_inodes,
        };
        self.output.output.show(json, |out| {
            let row = [
                name.to_owned(),
                kib(usage.blocks).to_string(),
                kib(used).to_string(),
                kib(usage.free_blocks).to_string(),
                format!("{}%", (used * 100).div_ceil(usage.blocks.max(1))),
                (usage.inodes - usage.free_inodes).to_string(),
                usage.free_inodes.to_string(),
            ];
            let headers = ["Device", "1K-blocks", "Used", "Available", "Use%", "Inodes", "Free inodes"];
            write_table(out, &headers, Rule::None, &[row])
        })
    }
}

/// Arguments of `fs dump`.
#[derive(Debug, Args)]
#[command(after_help = "\
Offsets and lengths are in bytes. What has no data yet is unwritten, and reads as zeros.

Examples:
  unvme fs dump 0000:02:00.0
  unvme fs dump 0000:02:00.0 / --output json")]
pub(crate) struct Dump {
    #[command(flatten)]
    place: Place,
    /// File, or directory with everything below it
    #[arg(value_name = "PATH", default_value = "/")]
    path: OsString,
    #[command(flatten)]
    output: Output,
}

/// A run of blocks of a file.
#[derive(Serialize)]
struct Run {
    path: String,
    ino: u64,
    offset: u64,
    device_offset: u64,
    bytes: u64,
    unwritten: bool,
}

fn collect(node: &Vnode, path: &OsString, mounted: &Mounted, runs: &mut Vec<Run>) -> Result<()> {
    use std::os::unix::ffi::OsStrExt;
    match node.file_type() {
        FileType::Directory => {
            for entry in entries(node)? {
                let below = below(path, &entry.name);
                collect(&node.lookup(&entry.name, &mounted.who)?, &below, mounted, runs)?;
            }
        }
        FileType::RegularFile => runs.extend(node.extents()?.into_iter().map(|extent| Run {
            path: shown(path.as_bytes()),
            ino: node.ino(),
            offset: extent.offset,
            device_offset: extent.device_offset,
            bytes: extent.bytes,
            unwritten: extent.is_unwritten,
        })),
        _ => {}
    }
    Ok(())
}

impl Dump {
    pub(crate) fn run(self) -> Result<()> {
        let mounted = self.place.look()?;
        let mut runs = Vec::new();
        collect(&mounted.find(&self.path, false)?, &self.path, &mounted, &mut runs)?;
        self.output.output.show(&runs, |out| {
            let row = |run: &Run| {
                let state = if run.unwritten { "unwritten" } else { "" };
                let numbers = [run.ino, run.offset, run.device_offset, run.bytes].map(|n| n.to_string());
                let [ino, offset, device_offset, bytes] = numbers;
                [ino, offset, device_offset, bytes, state.to_owned(), run.path.clone()]
            };
            let rows: Vec<_> = runs.iter().map(row).collect();
            write_table(out, &["Inode", "Offset", "On device", "Bytes", "State", "Path"], Rule::None, &rows)
        })
    }
}
