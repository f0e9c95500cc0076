//! A disk whose power is cut.

use std::collections::BTreeMap;

use unvme_fs::Event;

pub(crate) const BLOCK: usize = 4096;

/// What was written to a disk, and what of it has no power behind it yet.
#[derive(Default)]
pub(crate) struct Media {
    durable: BTreeMap<u64, Vec<u8>>,
    /// Commands, block by block.
    pending: Vec<Vec<(u64, Vec<u8>)>>,
}

/// Which of what is not durable is on the media after all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    Nothing,
    Everything,
    /// One command alone, and all but one.
    Only(usize),
    Without(usize),
    /// Single blocks, by chance.
    Blocks(u64),
}

impl Media {
    pub(crate) fn apply(&mut self, event: &Event) {
        match event {
            Event::Write { block, data, durable } => {
                let blocks = (*block..).zip(data.chunks(BLOCK).map(<[u8]>::to_vec));
                if *durable {
                    self.durable.extend(blocks);
                } else {
                    self.pending.push(blocks.collect());
                }
            }
            Event::Flush => self.durable.extend(self.pending.drain(..).flatten()),
            Event::Deallocate(ranges) => {
                // Nobody may rely on what is there.
                for &(start, count) in ranges {
                    self.durable.extend((start..start + count).map(|block| (block, vec![0xdd; BLOCK])));
                }
            }
        }
    }

    /// What a power cut may choose.
    pub(crate) fn choices(&self) -> Vec<Choice> {
        let count = self.pending.len();
        let mut all = vec![Choice::Nothing];
        if count > 0 {
            all.push(Choice::Everything);
        }
        if count > 1 {
            all.extend((0..count).flat_map(|nth| [Choice::Only(nth), Choice::Without(nth)]));
        }
        if self.pending.iter().any(|command| command.len() > 1) || count > 2 {
            all.extend((1..4_u64).map(|seed| Choice::Blocks(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))));
        }
        all
    }

    /// The blocks that are different after a cut.
    pub(crate) fn cut(&self, choice: &Choice) -> BTreeMap<u64, Vec<u8>> {
        let mut left = self.durable.clone();
        let mut seed = match choice {
            Choice::Blocks(seed) => *seed,
            _ => 0,
        };
        for (nth, command) in self.pending.iter().enumerate() {
            for (block, data) in command {
                seed = seed.rotate_left(7).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let is_there = match choice {
                    Choice::Nothing => false,
                    Choice::Everything => true,
                    Choice::Only(only) => nth == *only,
                    Choice::Without(without) => nth != *without,
                    Choice::Blocks(_) => seed >> 63 == 1,
                };
                if is_there {
                    left.insert(*block, data.clone());
                }
            }
        }
        left
    }
}
