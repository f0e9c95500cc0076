//! Keys and values of the guide's programs, made from the number of a pair.

use std::sync::Arc;

use twox_hash::XxHash3_64;
use unvme::Region;

use super::ids::scatter;
use super::record::PairSize;
use crate::numbers;

/// Bytes of a key of the guide's programs.
pub(crate) const KEY_BYTES: usize = 16;
/// Most bytes of a value that one command moves.
pub(crate) const VALUE_BYTES_MAX: u32 = unvme_spec::samsung_kv::VALUE_BYTES_MAX;
/// Keys that each thread of `kv_perf` has for itself.
const KEYS_PER_THREAD: u64 = 100_000_000;

/// A value size that was typed.
pub(crate) fn value_size(text: &str) -> Result<u32, String> {
    match numbers::u32(text)? {
        size if size > VALUE_BYTES_MAX => Err(format!("a value has at most {VALUE_BYTES_MAX} bytes")),
        size => Ok(size),
    }
}

/// How a key is made from an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyForm {
    /// `kv_perf`: the id behind those of the threads before, as 8 bytes in little endian order, then zeroes.
    Thread(u32),
    /// `sdk_perf`: the id as 4 bytes in little endian order, then zeroes.
    First,
    /// `sdk_iterate`: zeroes, then the id as 4 bytes in little endian order, so that all keys have one
    /// prefix.
    Last,
}

impl KeyForm {
    pub(crate) fn key(self, id: u64) -> [u8; KEY_BYTES] {
        let mut key = [0; KEY_BYTES];
        match self {
            Self::Thread(thread) => {
                let number = (u64::from(thread) * KEYS_PER_THREAD).wrapping_add(id);
                key[..8].copy_from_slice(&number.to_le_bytes());
            }
            Self::First => key[..4].copy_from_slice(&(id as u32).to_le_bytes()),
            Self::Last => key[KEY_BYTES - 4..].copy_from_slice(&(id as u32).to_le_bytes()),
        }
        key
    }
}

/// What values hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// One letter, which the id chooses.
    Letters,
    /// A text over and over, cut off at the end of the value.
    Text(Vec<u8>),
    /// Data that looks random and is another for each id, for verifying; `salt` makes it another in each run.
    Random {
        /// Any number.
        salt: u64,
    },
}

/// Values: how long they are and what they hold.
#[derive(Clone, Debug)]
pub(crate) struct Values {
    /// Sizes in bytes, at least one; the id chooses.
    pub(crate) sizes: Vec<u32>,
    /// What they hold.
    pub(crate) content: Content,
}

impl Values {
    /// Which of the sizes the value of an id has.
    fn size_index(&self, id: u64) -> usize {
        (id % self.sizes.len() as u64) as usize
    }

    /// Bytes of the value of an id.
    fn bytes(&self, id: u64) -> u32 {
        self.sizes[self.size_index(id)]
    }

    /// Bytes of the largest value.
    pub(crate) fn bytes_max(&self) -> u32 {
        self.sizes.iter().copied().max().unwrap_or(0)
    }

    /// Makes the value of an id in `out`, whatever was there.
    fn fill(&self, id: u64, out: &mut Vec<u8>) {
        let bytes = self.bytes(id) as usize;
        match &self.content {
            Content::Letters => {
                out.clear();
                out.resize(bytes, letter(id));
            }
            Content::Text(text) => {
                out.clear();
                out.extend(text.iter().cycle().take(bytes));
                // An empty text has nothing to repeat.
                out.resize(bytes, 0);
            }
            Content::Random { salt } => {
                out.resize(bytes, 0);
                fill_series(scatter(salt ^ scatter(id)), out);
            }
        }
    }
}

/// The letter of a value.
fn letter(id: u64) -> u8 {
    b'a' + (id % 26) as u8
}

/// Where the pairs of a thread come from.
#[derive(Clone, Debug)]
pub(crate) enum Pairs {
    /// Made from their ids.
    Made {
        /// How keys are made.
        form: KeyForm,
        /// What values hold.
        values: Values,
    },
    /// Read from a file; an id is the place in it.
    Listed(Arc<Vec<Pair>>),
    /// Blocks of a block device: the id times the blocks of the largest value, so that none is within
    /// another.
    Blocks {
        block_bytes: u32,
        /// What blocks hold.
        values: Values,
    },
}

/// A pair of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
}

/// What an operation is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target<'a> {
    /// A pair of a key-value device.
    Key(&'a [u8]),
    /// Blocks of a block device.
    Blocks {
        /// The first one.
        lba: u64,
        /// How many.
        blocks: u32,
    },
}

impl Pairs {
    /// What the operations on an id are about; a key that is made is put into `key`.
    pub(crate) fn target<'a>(&'a self, id: u64, key: &'a mut [u8; KEY_BYTES]) -> Target<'a> {
        match self {
            Self::Made { form, .. } => {
                *key = form.key(id);
                Target::Key(key)
            }
            Self::Listed(pairs) => Target::Key(&pairs[id as usize].key),
            Self::Blocks { block_bytes, values } => {
                let stride = values.bytes_max() / block_bytes;
                Target::Blocks {
                    lba: id.saturating_mul(stride.into()),
                    blocks: values.bytes(id) / block_bytes,
                }
            }
        }
    }

    /// How large the pair of an id is.
    pub(crate) fn size(&self, id: u64) -> PairSize {
        match self {
            Self::Made { values, .. } | Self::Blocks { values, .. } => PairSize {
                index: values.size_index(id),
                key_bytes: KEY_BYTES as u32,
                value_bytes: values.bytes(id),
            },
            Self::Listed(pairs) => {
                let pair = &pairs[id as usize];
                PairSize { index: 0, key_bytes: pair.key.len() as u32, value_bytes: pair.value.len() as u32 }
            }
        }
    }

    /// Makes the value of an id in `out`, whatever was there.
    pub(crate) fn fill(&self, id: u64, out: &mut Vec<u8>) {
        match self {
            Self::Made { values, .. } | Self::Blocks { values, .. } => values.fill(id, out),
            Self::Listed(pairs) => out.clone_from(&pairs[id as usize].value),
        }
    }

    /// Bytes of the largest value.
    pub(crate) fn bytes_max(&self) -> u32 {
        match self {
            Self::Made { values, .. } | Self::Blocks { values, .. } => values.bytes_max(),
            Self::Listed(pairs) => pairs.iter().map(|pair| pair.value.len()).max().unwrap_or(0) as u32,
        }
    }

    /// Makes the value of an id at the beginning of a buffer, in place where that is possible; `scratch` is
    /// overwritten.
    pub(crate) fn fill_region(&self, id: u64, region: &Region, scratch: &mut Vec<u8>) {
        match self {
            Self::Made { values, .. } | Self::Blocks { values, .. } if values.content == Content::Letters => {
                region.fill(0, values.bytes(id) as usize, letter(id));
            }
            _ => {
                self.fill(id, scratch);
                region.write(0, scratch);
            }
        }
    }

    /// Checksum of the value of an id; `scratch` is overwritten.
    pub(crate) fn checksum(&self, id: u64, scratch: &mut Vec<u8>) -> u64 {
        self.fill(id, scratch);
        checksum(scratch)
    }
}

/// Checksum of a value: XXH3, 64 bits.
pub(crate) fn checksum(value: &[u8]) -> u64 {
    XxHash3_64::oneshot(value)
}

/// Fills `out` with numbers of a series that `state` begins.
fn fill_series(mut state: u64, out: &mut [u8]) {
    state |= 1;
    for chunk in out.chunks_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        chunk.copy_from_slice(&state.to_le_bytes()[..chunk.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_those_of_the_original_programs() {
        assert_eq!(
            KeyForm::Thread(2).key(5),
            [0x05, 0xc2, 0xeb, 0x0b, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            "200000005 in little endian order"
        );
        assert_eq!(KeyForm::Thread(50).key(0)[..8], [0x00, 0xf2, 0x05, 0x2a, 0x01, 0, 0, 0], "5000000000");
        assert_eq!(KeyForm::First.key(0x0102_0304), *b"\x04\x03\x02\x01\0\0\0\0\0\0\0\0\0\0\0\0");
        assert_eq!(KeyForm::Last.key(0x0102_0304), *b"\0\0\0\0\0\0\0\0\0\0\0\0\x04\x03\x02\x01");
    }

    fn value(content: Content, sizes: &[u32], id: u64) -> Vec<u8> {
        let mut out = vec![0xee; 7];
        Values { sizes: sizes.to_vec(), content }.fill(id, &mut out);
        out
    }

    #[test]
    fn the_id_chooses_letter_and_size() {
        assert_eq!(value(Content::Letters, &[3], 0), b"aaa");
        assert_eq!(value(Content::Letters, &[3, 5], 27), b"bbbbb");
        assert_eq!(value(Content::Letters, &[0], 1), b"");
    }

    #[test]
    fn a_text_is_repeated_and_cut_off() {
        let text = || Content::Text(b"DEADBEEF".to_vec());
        assert_eq!(value(text(), &[20], 0), b"DEADBEEFDEADBEEFDEAD");
        assert_eq!(value(text(), &[3], 9), b"DEA");
        assert_eq!(value(Content::Text(Vec::new()), &[2], 0), [0, 0]);
    }

    #[test]
    fn random_values_differ_by_id_and_by_run_and_come_again() {
        let random = |salt, id| value(Content::Random { salt }, &[21], id);
        assert_eq!(random(1, 2), random(1, 2));
        assert_ne!(random(1, 2), random(1, 3));
        assert_ne!(random(1, 2), random(2, 2));
        assert_eq!(random(1, 2).len(), 21);
    }

    #[test]
    fn blocks_of_an_id_follow_those_of_the_one_before() {
        let values = Values { sizes: vec![4096, 8192], content: Content::Letters };
        let pairs = Pairs::Blocks { block_bytes: 512, values };
        let mut key = [0; KEY_BYTES];
        assert_eq!(pairs.target(6, &mut key), Target::Blocks { lba: 96, blocks: 8 });
        assert_eq!(pairs.target(7, &mut key), Target::Blocks { lba: 112, blocks: 16 });
    }

    #[test]
    fn a_checksum_tells_values_apart() {
        let values = Values { sizes: vec![100], content: Content::Random { salt: 9 } };
        let values = Pairs::Made { form: KeyForm::First, values };
        let mut scratch = Vec::new();
        let (one, two) = (values.checksum(1, &mut scratch), values.checksum(2, &mut scratch));
        assert_ne!(one, two);
        scratch[99] ^= 1;
        assert_ne!(checksum(&scratch), two);
        // The digest of nothing, from the description of XXH3.
        assert_eq!(checksum(b""), 0x2d06_8005_38d3_94c2);
    }
}
