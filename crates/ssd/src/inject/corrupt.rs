//! Data that changes on the way.

use std::collections::BTreeSet;

use unvme_bus::mem::PAGE_BYTES;
use unvme_bus::space::{Direction, Place};
use unvme_bus::{AddressSpace, DmaAccess, Mappings, Region};
use unvme_spec::{Sqe, Status, samsung_kv};

use crate::dptr::DataPointer;
use crate::fault::judge::random;
use crate::fault::{Corruption, Flips};
use crate::queue::SubmissionQueue;

/// Memory page of a command whose data is a copy of ours: so large that one PRP is all of it.
const COPY_PAGE_BYTES: u32 = 1 << 30;

impl Corruption {
    /// Byte offsets and what to change there, within `bytes` bytes of data.
    fn changes(&self, bytes: u64, seed: u64) -> Vec<(u64, u8)> {
        match &self.flips {
            Flips::At { offset, mask } => {
                let places = (*offset..).zip(mask.iter().copied());
                places.take_while(|(at, _)| *at < bytes).filter(|(_, mask)| *mask != 0).collect()
            }
            Flips::Random(bits) => {
                let there = bytes.saturating_mul(8);
                let wanted = u64::from(*bits).min(there) as usize;
                let mut chosen = BTreeSet::new();
                // No bit twice: that would be no change.
                let mut nth = 0;
                while chosen.len() < wanted {
                    nth += 1;
                    chosen.insert(random(seed, nth) % there);
                }
                chosen.into_iter().map(|bit| (bit / 8, 1 << (bit % 8))).collect()
            }
        }
    }
}

/// Changes `bytes` bytes of host memory that the device has written.
pub(super) fn corrupt_pieces(
    host: &Mappings,
    pieces: &[Place],
    bytes: u64,
    corruptions: &[(&Corruption, u64)],
) {
    for (corruption, seed) in corruptions {
        for (at, mask) in corruption.changes(bytes, *seed) {
            let mut before = 0;
            for &place in pieces {
                let within = at.wrapping_sub(before);
                if within < place.bytes as u64 {
                    flip(host.region(place), place.offset + within as usize, mask);
                    break;
                }
                before += place.bytes as u64;
            }
        }
    }
}

fn flip(memory: &Region, at: usize, mask: u8) {
    let mut byte = [0];
    memory.read(at, &mut byte);
    memory.write(at, &[byte[0] ^ mask]);
}

/// A copy of a command's data, and of its key when that is in memory, that the device executes the command on
/// in place of the host's: host memory is not the device's to change, and may not be writable.
pub(super) struct Copied {
    memory: Region,
    space: AddressSpace,
    bytes: usize,
    /// The command with its data and its key in the copy.
    pub(super) sqe: Sqe,
}

impl Copied {
    /// Fetches `bytes` bytes of data for the device, and the key. Errors: what the command itself would fail
    /// with.
    pub(super) fn fetch(sq: &mut SubmissionQueue, sqe: &Sqe, bytes: usize) -> Result<Self, Status> {
        let key = match samsung_kv::Command::key_of(sqe) {
            Some(samsung_kv::Key::Memory { prp, length }) => Some((prp, usize::from(length))),
            _ => None,
        };
        let key_at = bytes.next_multiple_of(PAGE_BYTES);
        let memory = Region::anonymous(key_at + PAGE_BYTES).map_err(|_| Status::INTERNAL_ERROR)?;
        let mut copy = |pointer: DataPointer<'_>, at: usize| {
            pointer.walk(&mut sq.pieces)?;
            let mut done = at;
            for &place in &sq.pieces {
                sq.host.region(place).copy_to(place.offset, &memory, done, place.bytes);
                done += place.bytes;
            }
            Ok::<(), Status>(())
        };
        let (host, page_bytes, direction) = (&sq.host, sq.page_bytes, Direction::Read);
        copy(DataPointer { host, sqe, page_bytes, bytes, direction }, 0)?;
        // PRPs, which all commands take.
        let mut copied = Sqe { flags: sqe.flags & 0x3f, dptr: [0, 0], ..*sqe };
        if let Some((prp, bytes)) = key {
            let entry = Sqe { dptr: prp, ..Sqe::default() };
            copy(DataPointer { host, sqe: &entry, page_bytes, bytes, direction }, key_at)?;
            samsung_kv::set_key_prp(&mut copied, [key_at as u64, 0]);
        }
        let space = AddressSpace::new();
        let access = DmaAccess { read: true, write: false };
        space.map(0, &memory, access).map_err(|_| Status::INTERNAL_ERROR)?;
        Ok(Self { memory, space, bytes, sqe: copied })
    }

    /// Changes the data.
    pub(super) fn corrupt(&self, corruption: &Corruption, seed: u64) {
        for (at, mask) in corruption.changes(self.bytes as u64, seed) {
            flip(&self.memory, at as usize, mask);
        }
    }

    /// Lets `execute` run with the copy in place of host memory.
    pub(super) fn execute<T>(
        &self,
        sq: &mut SubmissionQueue,
        execute: impl FnOnce(&mut SubmissionQueue, &Sqe) -> T,
    ) -> T {
        let host = std::mem::replace(&mut sq.host, self.space.view());
        let page_bytes = std::mem::replace(&mut sq.page_bytes, COPY_PAGE_BYTES);
        let done = execute(sq, &self.sqe);
        (sq.host, sq.page_bytes) = (host, page_bytes);
        done
    }
}
