//! Commands that wait for memory which they have themselves.

mod wire;

use std::time::Duration;

use unvme_ssd::fabrics::TargetOptions;
use unvme_ssd::tcp::Limits;
use wire::{Sqe, Wire, Wishes, pairs, target_for};

const NO_DIGESTS: Wishes = Wishes { header_digest: false, data_digest: false, hpda_z: 0, maxr2t_z: 0 };
/// The largest command: three quarters of all memory.
const BYTES: u32 = 3 << 19;
const MEMORY_BYTES: u64 = 2 << 20;
const KEY_NOT_FOUND: u16 = 0x4310;
/// The same, by the command of the standard.
const KEY_DOES_NOT_EXIST: u16 = 0x4087;

/// The vendor's Retrieve with a key of 17 bytes in the capsule.
fn retrieve(bytes: u32) -> Sqe {
    let sqe = Sqe::new(0x90).nsid(1).dword(11, 16).dword(12, 0).dword(13, 0);
    sqe.dword(14, 17).dword(15, 0x0100_0000).dword(10, bytes / 4).transported(bytes)
}

#[test]
fn a_command_for_all_memory_whose_key_is_in_the_capsule_has_its_turn() {
    let options = TargetOptions { memory_bytes: MEMORY_BYTES, ..TargetOptions::default() };
    let target = target_for(pairs(), options);
    let (mut admin, mut wire) = Wire::pair(&target, Limits::default(), NO_DIGESTS, 16);
    let mut other = admin.join(&target, Limits::default(), 2, 16);
    // The small one leaves memory behind that the key of the large one could have.
    for (cid, bytes) in [(6, 4096), (7, BYTES)] {
        wire.feed(&wire.capsule(&retrieve(bytes).cid(cid), &[b'a'; 256]));
        for _ in 0..3 {
            // What it keeps for its next command goes back.
            admin.wait(Duration::from_secs(1));
            wire.wait(Duration::from_secs(1));
        }
        let answer = wire.next().expect("an answer");
        assert_eq!((answer.cid(), answer.status()), (cid, KEY_NOT_FOUND));
    }
    let short = Sqe::new(0x02).nsid(1).dword(10, 1 << 20).dword(11, 1).dword(2, 0x61).transported(1 << 20);
    other.feed(&other.capsule(&short.cid(9), &[]));
    for _ in 0..3 {
        wire.wait(Duration::from_secs(1));
        other.feed(&[]);
    }
    let answer = other.next().expect("an answer");
    assert_eq!((answer.cid(), answer.status()), (9, KEY_DOES_NOT_EXIST));
}
