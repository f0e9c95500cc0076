//! Records of a journal that is damaged in the middle.
//!
//! A commit makes its record durable before the next one is begun, and numbers are consecutive. So a record
//! that is not whole is one of two things. Without any block of a later transaction in the ring it is a torn
//! tail: a power cut interrupted the commit, and no sync has returned for it. With one the record was
//! durable, and is damaged now.
//!
//! Every block of a damaged record that is whole by its own checksum counts. Images that are not whole are
//! lost, unless a later record has another image of the block, or frees it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Journal;
use super::replay::{Images, Reader};
use crate::error::{Error, Result};
use crate::layout::{BLOCK, Descriptor, ENTRIES_PER_BLOCK, Header, Kind, Page, entries_of, whole};

/// Blocks that a survey of the ring reads at once.
const SURVEY_BLOCKS: u64 = 256;

/// What was wrong with a journal that could be read all the same.
#[derive(Default)]
pub(crate) struct Damage {
    /// Something that a commit had made durable may be missing: one line each.
    pub lost: Vec<String>,
    /// Damage that cost nothing: one of the two heads, which the next checkpoint writes again.
    pub healed: Vec<String>,
    /// Blocks whose last image is lost: their addresses on the media hold an older one, or nothing.
    pub stale: BTreeSet<u64>,
    /// Lists of freed blocks are lost. Images of pages that no tree has must not be written to their
    /// addresses: these may hold data of files by now.
    pub lacks_revocations: bool,
}

impl Damage {
    /// Why the file system is read-only; `None` when nothing that was durable can be missing.
    pub(crate) fn reason(&self) -> Option<String> {
        (!self.lost.is_empty()).then(|| {
            format!(
                "the journal is damaged, and changes that were durable may be missing: {}; `unvme fs check` \
                 shows what is affected, and with --repair keeps what is left",
                self.lost.join("; ")
            )
        })
    }

    /// A later record has another image of a block, or frees it.
    pub(super) fn supersede(&mut self, block: u64) {
        self.stale.remove(&block);
    }
}

impl Journal {
    /// Logs damage of the journal of the device `name`, and ends all changes when durable ones may be
    /// missing. A check or a repair, `is_tolerant`, reports it on its own.
    pub(crate) fn report(&self, name: &str, damage: &Damage, is_tolerant: bool) {
        if is_tolerant {
            return;
        }
        for what in &damage.healed {
            tracing::warn!("{name}: the journal: {what}");
        }
        if let Some(reason) = damage.reason() {
            self.kill(&Error::Format(reason));
        }
    }
}

/// A block of the ring that is whole by its own checksum.
struct Piece {
    /// Blocks from the beginning of the ring.
    at: u64,
    tx: u64,
    is_descriptor: bool,
}

/// The whole blocks of a part of the ring, by transaction.
#[derive(Default)]
pub(super) struct Survey(BTreeMap<u64, Vec<Piece>>);

impl Survey {
    /// Reads `blocks` blocks of the ring from `from` on. Those of transaction `since` and later ones count.
    /// Blocks that cannot be read are noted in `damage`.
    pub(super) fn of(
        reader: &Reader<'_>,
        from: u64,
        blocks: u64,
        since: u64,
        damage: &mut Damage,
    ) -> Result<Self> {
        let mut found = Self::default();
        let (mut done, mut step) = (0, SURVEY_BLOCKS);
        while done < blocks {
            let start = (from + done) % reader.ring_blocks();
            let some = (blocks - done).min(step);
            let bytes = match reader.read(start, some) {
                Ok(bytes) => bytes,
                Err(_) if step > 1 => {
                    step = 1;
                    continue;
                }
                Err(e) => {
                    damage.healed.push(e.to_string());
                    done += some;
                    continue;
                }
            };
            for (nth, bytes) in bytes.chunks_exact(BLOCK).enumerate() {
                let page: &Page = bytes.try_into().expect("a block");
                let tx = Header::of(page).tx.get();
                if tx >= since && whole(page, reader.fs) {
                    let at = (start + nth as u64) % reader.ring_blocks();
                    let is_descriptor = Header::of(page).kind() == Kind::Descriptor as u16;
                    found.0.entry(tx).or_default().push(Piece { at, tx, is_descriptor });
                }
            }
            done += some;
            if done.is_multiple_of(SURVEY_BLOCKS) {
                step = SURVEY_BLOCKS;
            }
        }
        Ok(found)
    }

    /// The last transaction of which the ring has a block.
    pub(super) fn last(&self) -> Option<u64> {
        self.0.last_key_value().map(|(&tx, _)| tx)
    }

    /// The first whole record of a transaction after `tx`: where it is, and which one.
    pub(super) fn next_record(&self, reader: &Reader<'_>, tx: u64) -> Result<Option<(u64, u64)>> {
        for piece in self.0.range(tx + 1..).flat_map(|(_, pieces)| pieces).filter(|piece| piece.is_descriptor)
        {
            if reader.record(piece.at, piece.tx)?.is_some() {
                return Ok(Some((piece.at, piece.tx)));
            }
        }
        Ok(None)
    }

    /// The first record of the newest run of consecutive transactions, for a journal without a head.
    pub(super) fn newest_run(&self, reader: &Reader<'_>) -> Result<Option<(u64, u64)>> {
        let mut first = self.last();
        while let Some(before) = first.and_then(|tx| tx.checked_sub(1)).filter(|tx| self.0.contains_key(tx)) {
            first = Some(before);
        }
        match first {
            Some(first) => self.next_record(reader, first - 1),
            None => Ok(None),
        }
    }

    /// Applies the whole blocks of the damaged records of `from..to`.
    pub(super) fn salvage(
        &self,
        reader: &Reader<'_>,
        (from, to): (u64, u64),
        images: &mut Images,
        damage: &mut Damage,
    ) -> Result<()> {
        let mut next = from;
        for (&tx, pieces) in self.0.range(from..to) {
            // Of those between nothing is left.
            damage.lacks_revocations |= tx != next;
            next = tx + 1;
            let mut salvage = Salvage::default();
            for piece in pieces {
                let bytes = reader.read(piece.at, 1)?;
                let page: &Page = bytes.as_slice().try_into().expect("a block");
                if piece.is_descriptor { salvage.list(page) } else { salvage.keep(reader, page, tx) }
            }
            salvage.finish(tx, images, damage);
        }
        damage.lacks_revocations |= next != to;
        Ok(())
    }
}

/// What is whole of one record.
#[derive(Default)]
struct Salvage {
    descriptors: BTreeSet<u32>,
    /// How many there should be.
    wanted: u32,
    listed: Vec<u64>,
    revoked: Vec<u64>,
    images: BTreeMap<u64, Page>,
}

impl Salvage {
    fn list(&mut self, page: &Page) {
        let found = Descriptor::of(page);
        let (index, all) = (found.index.get(), found.entries.get() as usize);
        let Some(left) =
            (index as usize).checked_mul(ENTRIES_PER_BLOCK).and_then(|first| all.checked_sub(first))
        else {
            return;
        };
        if !self.descriptors.insert(index) {
            return;
        }
        self.wanted = found.descriptors.get();
        let images = (found.images.get() as usize).saturating_sub(index as usize * ENTRIES_PER_BLOCK);
        for (nth, entry) in entries_of(page, left.min(ENTRIES_PER_BLOCK)).enumerate() {
            let list = if nth < images { &mut self.listed } else { &mut self.revoked };
            list.push(entry.block.get());
        }
    }

    fn keep(&mut self, reader: &Reader<'_>, page: &Page, tx: u64) {
        let block = Header::of(page).block.get();
        if reader.is_image(page, block, tx) {
            self.images.insert(block, *page);
        }
    }

    fn finish(self, tx: u64, images: &mut Images, damage: &mut Damage) {
        damage.lacks_revocations |= self.wanted == 0 || self.descriptors.len() != self.wanted as usize;
        for block in self.revoked {
            images.remove(&block);
            damage.supersede(block);
        }
        damage.stale.extend(self.listed);
        for (block, page) in self.images {
            images.insert(block, (Arc::new(page), tx));
            damage.supersede(block);
        }
    }
}
