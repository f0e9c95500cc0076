//! `device check`.

use std::io::{self, Write};

use anyhow::Result;
use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use unvme::{
    CheckedBlocks, CheckedFlash, CheckedNamespace, CheckedSlot, Damage, FlashDamage, Losses, PciAddress,
    Registry,
};

use super::find_slot;
use crate::completion;
use crate::count::count;
use crate::exit::Failed;
use crate::output::Output;
use crate::show::hex;
use crate::value::{Fields, fields};

/// Arguments of `device check`.
#[derive(Debug, Args)]
#[command(after_help = "\
The device must not be in use. What cannot be read is named, a pair with its key, a page of flash
with its block of 4 KiB, where that can be told, blocks of a device with checksums (device create
--checksum) by their ranges, and the exit code is 1; everything else can be read. What has been
deleted or replaced since is no loss.

When parts of a key-value namespace are lost and nobody knows which pairs were in them, the
namespace is in doubt: whatever value a key has may be older than a lost one, and reading fails
(Unrecovered Error) until you accept the loss. --accept-loss does that, and prints what it gives
up: pairs that cannot be read are deleted, and what is left counts, though it may be older than
what was lost.")]
pub(crate) struct Check {
    /// PCI address
    #[arg(value_name = "ADDRESS", add = ArgValueCompleter::new(completion::slots))]
    address: PciAddress,
    /// Give up the pairs that are lost, so that everything that is left can be read
    #[arg(long)]
    accept_loss: bool,
    #[command(flatten)]
    output: Output,
}

impl Check {
    pub(crate) fn run(self) -> Result<()> {
        let slot = find_slot(&Registry::from_environment()?, self.address)?;
        let CheckedSlot { namespaces: checked, blocks, flash } =
            unvme::check(&slot, if self.accept_loss { Losses::Accept } else { Losses::Keep })?;
        let pairs: usize = checked.iter().map(|namespace| namespace.lost.len()).sum();
        let is_in_doubt = checked.iter().any(|namespace| namespace.is_in_doubt);
        let damaged: u64 = blocks.iter().flatten().map(|blocks| blocks.damaged).sum();
        let lost = pairs + flash.as_ref().map_or(0, |flash| flash.lost.len()) + damaged as usize;
        let namespaces: Vec<Fields> = checked.iter().map(json).collect();
        let fields = fields! {
            "address": self.address.to_string(), "namespaces": namespaces,
            "blocks": blocks.as_ref().map(|all| all.iter().map(blocks_json).collect::<Vec<Fields>>()),
            "flash": flash.as_ref().map(flash_json),
            "lost": lost as u64, "accepted": self.accept_loss,
        };
        self.output.output.show(fields, |out| {
            if checked.is_empty() && flash.is_none() && blocks.as_ref().is_none_or(Vec::is_empty) {
                return writeln!(
                    out,
                    "{}: there are no key-value namespaces, no flash, and no blocks with checksums",
                    self.address
                );
            }
            for CheckedNamespace { nsid, pairs, lost, is_in_doubt } in &checked {
                let losses = losses(lost.len());
                match self.accept_loss && !lost.is_empty() {
                    true => {
                        writeln!(out, "namespace {nsid}: {} left, {losses} given up", count(*pairs, "pair"))?
                    }
                    false => writeln!(out, "namespace {nsid}: {}, {losses}", count(*pairs, "pair"))?,
                }
                for damage in lost {
                    let name = name_of(damage).map_or(String::new(), |name| format!("{name}: "));
                    writeln!(out, "  offset {:#x}: {name}{}", damage.offset, damage.what)?;
                }
                if *is_in_doubt {
                    writeln!(
                        out,
                        "  in doubt: other values may be older than what was lost, and are not read"
                    )?;
                }
            }
            blocks.iter().flatten().try_for_each(|blocks| show_blocks(blocks, out))?;
            if let Some(CheckedFlash { mapped_pages, lost }) = &flash {
                let pages = count(*mapped_pages, "page");
                writeln!(out, "flash: {pages} of 4 KiB with data, {}", losses(lost.len()))?;
                for FlashDamage { offset, logical_page, what, .. } in lost {
                    let page = logical_page.map_or(String::new(), |page| format!("logical page {page}: "));
                    writeln!(out, "  offset {offset:#x}: {page}{what}")?;
                }
            }
            Ok(())
        })?;
        let lost = if self.accept_loss { lost - pairs } else { lost };
        if is_in_doubt {
            let what = format!(
                "{0}: records are lost, and nobody knows whose; nothing is read until you accept that: \
                 unvme device check {0} --accept-loss",
                self.address
            );
            return Err(Failed(what).into());
        }
        if lost > 0 {
            return Err(Failed(format!("{}: {lost} of what was stored cannot be read", self.address)).into());
        }
        Ok(())
    }
}

/// Ranges of damaged blocks that people are shown; the rest is counted.
const RANGES_SHOWN: usize = 20;

fn show_blocks(blocks: &CheckedBlocks, out: &mut dyn Write) -> io::Result<()> {
    let CheckedBlocks { nsid, blocks: read, damaged, ranges } = blocks;
    let found = match damaged {
        0 => "all as they were written".to_owned(),
        damaged => format!("{} not as written", count(*damaged, "block")),
    };
    writeln!(out, "namespace {nsid}: {} with space, {found}", count(*read, "block"))?;
    let mut left = *damaged;
    for range in ranges.iter().take(RANGES_SHOWN) {
        left -= range.end - range.start;
        match range.end - range.start {
            1 => writeln!(out, "  block {}", range.start)?,
            _ => writeln!(out, "  blocks {} to {}", range.start, range.end - 1)?,
        }
    }
    if left > 0 { writeln!(out, "  and {} more", count(left, "block")) } else { Ok(()) }
}

fn blocks_json(blocks: &CheckedBlocks) -> Fields {
    let ranges: Vec<Fields> = blocks
        .ranges
        .iter()
        .map(|range| fields! { "first": range.start, "blocks": range.end - range.start })
        .collect();
    fields! {
        "nsid": blocks.nsid.0, "blocks": blocks.blocks, "damaged": blocks.damaged, "ranges": ranges,
    }
}

fn losses(count: usize) -> String {
    match count {
        0 => "nothing is lost".to_owned(),
        1 => "1 loss".to_owned(),
        losses => format!("{losses} losses"),
    }
}

fn flash_json(flash: &CheckedFlash) -> Fields {
    let lost: Vec<Fields> = flash
        .lost
        .iter()
        .map(|FlashDamage { offset, logical_page, what, .. }| {
            fields! { "offset": *offset, "what": what.as_str(), "logical_page": *logical_page }
        })
        .collect();
    fields! { "mapped_pages": flash.mapped_pages, "lost": lost }
}

/// Keyspace and key for people: as text where it is text.
fn name_of(damage: &Damage) -> Option<String> {
    let (keyspace, key) = damage.key.as_ref()?;
    let text = std::str::from_utf8(key).ok().filter(|text| text.chars().all(|c| !c.is_control()));
    let key = text.map_or_else(|| hex::text(key), |text| format!("\"{text}\""));
    Some(format!("key {key} of keyspace {keyspace}"))
}

fn json(namespace: &CheckedNamespace) -> Fields {
    let lost: Vec<Fields> = namespace
        .lost
        .iter()
        .map(|damage| {
            let (keyspace, key) = damage.key.as_ref().map(|(keyspace, key)| (*keyspace, hex::text(key))).unzip();
            fields! { "offset": damage.offset, "what": damage.what.as_str(), "keyspace": keyspace, "key": key }
        })
        .collect();
    fields! { "nsid": namespace.nsid.0, "pairs": namespace.pairs, "in_doubt": namespace.is_in_doubt, "lost": lost }
}
