//! Logical blocks that are not as they were written, of media that has checksums of them.

use std::ops::Range;

use unvme_spec::Nsid;

use super::{Blocks, Contents, NamespaceTable};
use crate::media::{Media, UNIT_BYTES};
use crate::store::{CHUNK_BYTES, Extent};

/// Ranges that are remembered to be told; what is beyond is counted.
const RANGES_MAX: usize = 1000;

/// What [`Ssd::check_blocks`](crate::Ssd::check_blocks) has found in a namespace of logical blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckedBlocks {
    /// The namespace.
    pub nsid: Nsid,
    /// Its blocks that have space, and were read.
    pub blocks: u64,
    /// Blocks that are not as they were written.
    pub damaged: u64,
    /// Where these are, the first thousand of them that do not follow each other.
    pub ranges: Vec<Range<u64>>,
}

impl CheckedBlocks {
    fn note(&mut self, block: u64) {
        self.damaged += 1;
        let has_room = self.ranges.len() < RANGES_MAX;
        match self.ranges.last_mut() {
            Some(last) if last.end == block => last.end += 1,
            _ if has_room => self.ranges.push(block..block + 1),
            _ => {}
        }
    }
}

impl NamespaceTable {
    /// Reads all logical blocks and compares them with their checksums.
    pub(crate) fn check_blocks(&self, media: &Media) -> Vec<CheckedBlocks> {
        let blocks = self.iter().filter(|namespace| !namespace.busy).filter_map(|namespace| match &namespace
            .contents
        {
            Contents::Blocks(blocks) => Some((namespace.nsid, blocks)),
            Contents::KeyValue(_) => None,
        });
        blocks.map(|(nsid, blocks)| check(nsid, blocks, media)).collect()
    }
}

fn check(nsid: Nsid, blocks: &Blocks, media: &Media) -> CheckedBlocks {
    let mut checked = CheckedBlocks { nsid, blocks: 0, damaged: 0, ranges: Vec::new() };
    let block_bytes = blocks.bytes(1) as usize;
    let end = blocks.bytes(blocks.count);
    for start in (0..end).step_by(CHUNK_BYTES as usize) {
        let bytes = (end - start).min(CHUNK_BYTES) as usize;
        let Some(chunk) =
            blocks.locate(start, bytes).filter(|chunk| media.is_reserved(chunk.offset / CHUNK_BYTES))
        else {
            continue;
        };
        checked.blocks += (chunk.bytes / block_bytes) as u64;
        let pieces = |extent: Extent, step: usize| {
            (0..extent.bytes).step_by(step).map(move |at| Extent {
                offset: extent.offset + at as u64,
                bytes: step.min(extent.bytes - at),
            })
        };
        // A unit holds a block or several.
        for unit in pieces(chunk, UNIT_BYTES).filter(|unit| !media.is_intact(*unit)) {
            for block in pieces(unit, block_bytes).filter(|block| !media.is_intact(*block)) {
                checked.note((start + block.offset - chunk.offset) / block_bytes as u64);
            }
        }
    }
    checked
}
