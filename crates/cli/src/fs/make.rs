//! `fs mkfs`.

use anyhow::Result;
use clap::Args;
use unvme_fs::{MakeOptions, make};

use super::place::Place;
use crate::numbers;
use crate::output::Output;
use crate::perf::Progress;
use crate::target::Force;
use crate::value::fields;

/// Arguments of `fs mkfs`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example: unvme fs mkfs 0000:02:00.0 --label scratch --bytes-per-inode 64K")]
pub(crate) struct Mkfs {
    #[command(flatten)]
    place: Place,
    /// A name for people, up to 63 bytes
    #[arg(short, long, value_name = "TEXT", default_value = "")]
    label: String,
    /// How many files there can be: one for so many bytes; 4K to 64M, 16K when left out
    #[arg(short, long, value_name = "SIZE", value_parser = numbers::bytes)]
    bytes_per_inode: Option<u64>,
    /// Size of the journal, from 1M on; a 32nd of the device, at most 256M, when left out
    #[arg(short, long, value_name = "SIZE", value_parser = numbers::bytes)]
    journal: Option<u64>,
    /// Do not deallocate the device first
    #[arg(short = 'K', long)]
    no_deallocate: bool,
    #[command(flatten)]
    force: Force,
    #[command(flatten)]
    output: Output,
}

impl Mkfs {
    pub(crate) fn run(self) -> Result<()> {
        let (device, block) = self.place.open()?;
        self.force.confirm(&device, "a new file system destroys everything in the namespace")?;
        let options = MakeOptions {
            label: self.label,
            bytes_per_inode: self.bytes_per_inode,
            journal_bytes: self.journal,
            uuid: None,
            deallocate: !self.no_deallocate,
        };
        let progress = Progress::new("make", 1);
        make(&block, device.name(), &options, |done, of| {
            progress.of(of);
            progress.set(done);
        })?;
        drop(progress);
        let json =
            fields! { "device": device.name(), "bytes": block.bytes(), "label": options.label.as_str() };
        self.output.output.say(json, format!("{}: a file system of {} bytes", device.name(), block.bytes()))
    }
}
