//! Blocks whose content says which block they are and how often they were written.
//!
//! The first word of a block is its address, the second [`MAGIC`] and its generation, and the rest depends on
//! both: a block that is old, torn, in the wrong place, or another device's does not pass for the right one.
//! Words are 64 bits, little endian.

use std::fmt;

use unvme::random;

/// Generations are 1 to this; then they start again.
pub(super) const GENERATION_MAX: u8 = 127;

/// "unvme-p" in the upper seven bytes of a block's second word; its lowest byte is the generation.
const MAGIC: u64 = 0x756e_766d_652d_7000;
const GENERATION_MASK: u64 = 0xff;
const WORD_BYTES: usize = 8;

/// Bits of a mark that may be wrong: it is damaged then, and not somebody else's data. One block of random
/// data in 4 * 10^13 passes for that.
const MARK_BITS_WRONG: u32 = 2;

/// What a block should hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    /// What this run has written as this generation.
    Generation(u8),
    /// Nobody knows: what has the mark of a run can be judged by it, and all else not at all.
    Unknown,
}

/// What came of a check that found nothing wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Every block is as it was written.
    Right,
    /// There are blocks that nobody knows anything of.
    Unjudged,
}

/// A block that is not what it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mismatch {
    /// Its address.
    pub(super) lba: u64,
    expected: Expected,
    /// Byte within the block where it is wrong first.
    byte: usize,
    /// What the block says it is: address and generation.
    says: Option<(u64, u8)>,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "block {} is wrong from byte {} on: expected ", self.lba, self.byte)?;
        match self.expected {
            Expected::Generation(generation) => write!(f, "its data number {generation}")?,
            Expected::Unknown => f.write_str("what was written with --verify")?,
        }
        match self.says {
            Some((lba, generation)) => write!(f, ", found data number {generation} of block {lba}"),
            None => f.write_str(", found something else"),
        }
    }
}

fn word(lba: u64, generation: u8, index: usize) -> u64 {
    match index {
        0 => lba,
        1 => MAGIC | u64::from(generation),
        // The step is odd, so that all words of a block differ.
        _ => key(lba, generation).wrapping_add(random::STEP.wrapping_mul(index as u64)),
    }
}

/// Spreads address and generation over all bits.
fn key(lba: u64, generation: u8) -> u64 {
    random::mix(lba ^ u64::from(generation) << 56)
}

/// Fills `data`, whole blocks of `block_bytes` from `lba` on.
pub(super) fn fill(data: &mut [u8], block_bytes: usize, lba: u64, generation: u8) {
    for (lba, block) in (lba..).zip(data.chunks_exact_mut(block_bytes)) {
        for (index, bytes) in block.chunks_exact_mut(WORD_BYTES).enumerate() {
            bytes.copy_from_slice(&word(lba, generation, index).to_le_bytes());
        }
    }
}

/// Checks `data`, whole blocks of `block_bytes` from `lba` on. Errors: the first block that is wrong.
pub(super) fn check(
    data: &[u8],
    block_bytes: usize,
    lba: u64,
    expected: Expected,
) -> Result<Verdict, Mismatch> {
    let mut verdict = Verdict::Right;
    for (lba, block) in (lba..).zip(data.chunks_exact(block_bytes)) {
        let says = said(block);
        let generation = match (expected, says) {
            (Expected::Generation(generation), _) | (Expected::Unknown, Some((_, generation))) => generation,
            (Expected::Unknown, None) if has_mark(block) => 1,
            (Expected::Unknown, None) => {
                verdict = Verdict::Unjudged;
                continue;
            }
        };
        let mut words = block.chunks_exact(WORD_BYTES).enumerate();
        let wrong = words.find(|(index, bytes)| **bytes != word(lba, generation, *index).to_le_bytes());
        if let Some((index, _)) = wrong {
            return Err(Mismatch { lba, expected, byte: index * WORD_BYTES, says });
        }
    }
    Ok(verdict)
}

fn word_at(block: &[u8], index: usize) -> Option<u64> {
    let bytes = block.get(index * WORD_BYTES..(index + 1) * WORD_BYTES)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

/// True for a block that a run has written, though its mark may be damaged.
fn has_mark(block: &[u8]) -> bool {
    word_at(block, 1).is_some_and(|mark| ((mark ^ MAGIC) & !GENERATION_MASK).count_ones() <= MARK_BITS_WRONG)
}

/// What a block says it is, if it was written here at all.
fn said(block: &[u8]) -> Option<(u64, u8)> {
    let (lba, mark) = (word_at(block, 0)?, word_at(block, 1)?);
    let generation = (mark & GENERATION_MASK) as u8;
    let ours = mark & !GENERATION_MASK == MAGIC && (1..=GENERATION_MAX).contains(&generation);
    ours.then_some((lba, generation))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(lba: u64, generation: u8) -> Vec<u8> {
        let mut data = vec![0; 1024];
        fill(&mut data, 512, lba, generation);
        data
    }

    #[test]
    fn a_block_begins_with_its_address_and_generation() {
        let data = written(0x0102_0304, 7);
        assert_eq!(data[..16], [4, 3, 2, 1, 0, 0, 0, 0, 7, b'p', b'-', b'e', b'm', b'v', b'n', b'u']);
        assert_eq!(data[512..520], [5, 3, 2, 1, 0, 0, 0, 0], "the second block has the next address");
    }

    #[test]
    fn what_was_written_passes() {
        let data = written(100, 3);
        assert_eq!(check(&data, 512, 100, Expected::Generation(3)), Ok(Verdict::Right));
        assert_eq!(check(&data, 512, 100, Expected::Unknown), Ok(Verdict::Right));
    }

    #[test]
    fn a_flipped_bit_anywhere_is_found() {
        for byte in 0..1024 {
            let mut data = written(100, 3);
            data[byte] ^= 0x10;
            for expected in [Expected::Generation(3), Expected::Unknown] {
                let wrong = check(&data, 512, 100, expected).expect_err("a flipped bit");
                assert_eq!(wrong.lba, 100 + byte as u64 / 512, "byte {byte}");
            }
        }
    }

    #[test]
    fn what_nobody_is_known_to_have_written_is_not_judged() {
        let foreign: Vec<u8> = (0..512_u64).map(|byte| random::mix(byte) as u8).collect();
        for other in [&[0; 512][..], &[0xff; 512], &foreign] {
            assert_eq!(check(other, 512, 100, Expected::Unknown), Ok(Verdict::Unjudged));
            check(other, 512, 100, Expected::Generation(1)).expect_err("this run has written something else");
            // What is known beside it is judged all the same.
            let mut both = [other, &written(101, 2)[..512]].concat();
            assert_eq!(check(&both, 512, 100, Expected::Unknown), Ok(Verdict::Unjudged));
            both[600] ^= 1;
            assert_eq!(check(&both, 512, 100, Expected::Unknown).expect_err("a flipped bit").lba, 101);
        }
    }

    #[test]
    fn old_data_misplaced_data_and_zeroes_are_found_and_named() {
        let message =
            |data: &[u8], expected| check(data, 512, 100, expected).expect_err("wrong data").to_string();
        assert_eq!(
            message(&written(100, 2), Expected::Generation(3)),
            "block 100 is wrong from byte 8 on: expected its data number 3, found data number 2 of block 100"
        );
        assert_eq!(
            message(&written(200, 3), Expected::Unknown),
            "block 100 is wrong from byte 0 on: expected what was written with --verify, found data number 3 of block 200"
        );
        assert_eq!(
            message(&[0; 512], Expected::Generation(3)),
            "block 100 is wrong from byte 0 on: expected its data number 3, found something else"
        );
    }

    #[test]
    fn a_torn_block_is_found() {
        let mut data = written(100, 4);
        data[256..512].copy_from_slice(&written(100, 3)[256..512]);
        let wrong = check(&data, 512, 100, Expected::Unknown).expect_err("torn");
        assert_eq!((wrong.lba, wrong.byte), (100, 256));
    }
}
