//! What ties the files of a device together.
//!
//! A device in a folder is two files that are of no use without each other: `media.img`, and `state.json`,
//! which says whose its chunks are. Both name one identity, a number that is drawn when the media file is
//! made. So a file that is missing, was cut, or belongs to another device is noticed before anything is
//! written: a device never starts as a new one because what was known of it is gone.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use serde::Deserialize;
use twox_hash::XxHash3_64;
use unvme_bus::random;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::hex::{bytes_of, hexadecimal};

/// Bytes behind the data in a media file: a page that says which device it is of.
pub(super) const LABEL_BYTES: u64 = 4096;
const LABEL_MAGIC: [u8; 8] = *b"UNVMESSD";
/// The version of a saved state that has an identity and a checksum; earlier ones have none, and of later
/// ones nothing is known.
const SEALED: u32 = 4;

/// Which device a file is of.
pub(super) type Identity = [u8; 16];

/// The page behind the data in a media file.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct Label {
    magic: [u8; 8],
    version: U32,
    /// 1 when the device has saved its state: there is a state file from then on.
    has_state: U32,
    identity: Identity,
    reserved: [u8; 24],
    /// Of what is before.
    check: U64,
}

const CHECK_AT: usize = std::mem::offset_of!(Label, check);
const VERSION: u32 = 1;

impl Label {
    fn new(identity: Identity, has_state: bool) -> Self {
        let mut label = Self {
            magic: LABEL_MAGIC,
            version: VERSION.into(),
            has_state: u32::from(has_state).into(),
            identity,
            reserved: [0; 24],
            check: 0.into(),
        };
        label.check = label.expected_check().into();
        label
    }

    fn expected_check(&self) -> u64 {
        XxHash3_64::oneshot(self.as_bytes().get(..CHECK_AT).unwrap_or_default())
    }

    /// The label of a media file of `bytes` bytes of data; `None` when it is damaged or not there.
    pub(super) fn read(file: &File, bytes: u64) -> io::Result<Option<(Identity, bool)>> {
        let mut label = Self::new_zeroed();
        file.read_exact_at(label.as_mut_bytes(), bytes)?;
        let is_intact = label.magic == LABEL_MAGIC
            && label.version.get() == VERSION
            && label.check.get() == label.expected_check();
        Ok(is_intact.then(|| (label.identity, label.has_state.get() == 1)))
    }

    /// Writes the label of a media file of `bytes` bytes of data.
    pub(super) fn write(file: &File, bytes: u64, identity: Identity, has_state: bool) -> io::Result<()> {
        file.write_all_at(Self::new(identity, has_state).as_bytes(), bytes)
    }
}

/// An identity nobody else has.
pub(super) fn draw() -> Identity {
    (u128::from(random::number()) << 64 | u128::from(random::number())).to_le_bytes()
}

/// A saved state as it was read.
#[derive(Debug)]
pub(super) struct Sealed {
    /// `None` in a file from before files had one.
    pub(super) identity: Option<Identity>,
    /// The state itself.
    pub(super) text: Vec<u8>,
}

/// The one field that every version has.
#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

const BEFORE_IDENTITY: &[u8] = b"{\n  \"identity\": \"";
const BEFORE_CHECK: &[u8] = b"\",\n  \"check\": \"";
const BEFORE_REST: &[u8] = b"\",\n";
/// What a state begins with, as it is made.
const START: &[u8] = b"{\n";

/// The bytes of a state file: `text`, a JSON object on lines of its own, with two fields more: the device's
/// identity, and a CRC-32C of all other bytes.
pub(super) fn seal(identity: Identity, text: &[u8]) -> Vec<u8> {
    let digits = hexadecimal(&identity);
    let rest = text.strip_prefix(START).unwrap_or(text);
    let check = format!("{:08x}", check(digits.as_bytes(), rest));
    [BEFORE_IDENTITY, digits.as_bytes(), BEFORE_CHECK, check.as_bytes(), BEFORE_REST, rest].concat()
}

fn check(digits: &[u8], rest: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(&[digits, rest].concat())
}

/// Reads a state file. Errors: the reason, when its checksum is not there or does not fit.
pub(super) fn unseal(bytes: Vec<u8>) -> Result<Sealed, String> {
    let Some(sealed) = bytes.strip_prefix(BEFORE_IDENTITY) else {
        // What is no JSON is told by who reads the state, with line and column.
        return match serde_json::from_slice(&bytes) {
            Ok(Versioned { version: SEALED }) => {
                Err("it does not begin with an identity and a checksum, so it was edited or damaged"
                    .to_owned())
            }
            _ => Ok(Sealed { identity: None, text: bytes }),
        };
    };
    let parts = sealed.split_at_checked(32).and_then(|(digits, sealed)| {
        let (check, rest) = sealed.strip_prefix(BEFORE_CHECK)?.split_at_checked(8)?;
        Some((digits, check, rest.strip_prefix(BEFORE_REST)?))
    });
    let damaged = || "its checksum does not fit: it was edited or damaged".to_owned();
    let (digits, found, rest) = parts.ok_or_else(damaged)?;
    let identity = std::str::from_utf8(digits).ok().and_then(bytes_of::<16>).ok_or_else(damaged)?;
    if found != format!("{:08x}", check(digits, rest)).as_bytes() {
        return Err(damaged());
    }
    // Its lines keep their numbers.
    Ok(Sealed { identity: Some(identity), text: [START, b"\n\n", rest].concat() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_state_reads_as_it_was_and_every_flipped_bit_is_noticed() {
        let text = b"{\n  \"version\": 4,\n  \"namespaces\": []\n}".to_vec();
        let sealed = seal([7; 16], &text);
        let read = unseal(sealed.clone()).unwrap();
        let json = |text: &[u8]| serde_json::from_slice::<serde_json::Value>(text).unwrap();
        assert_eq!((read.identity, json(&read.text)), (Some([7; 16]), json(&text)));
        for bit in 0..sealed.len() * 8 {
            let mut damaged = sealed.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let read = unseal(damaged);
            // A first line that is none any more makes it a text without a seal: no state of this version.
            let is_refused = read.as_ref().map_or(true, |read| {
                read.identity.is_none() && serde_json::from_slice::<Versioned>(&read.text).is_err()
            });
            assert!(is_refused, "bit {bit}: {read:?}");
        }
    }

    #[test]
    fn states_from_before_there_was_a_seal_are_read_and_later_ones_without_it_are_not() {
        let old = b"{ \"version\": 3 }".to_vec();
        assert_eq!(unseal(old.clone()).unwrap().text, old);
        assert!(unseal(b"{ \"version\": 4 }".to_vec()).is_err());
    }
}
