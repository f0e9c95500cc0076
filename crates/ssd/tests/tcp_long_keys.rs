//! Keys of the vendor's commands that do not fit in an entry and are in the command capsule: the convention
//! of `unvme_spec::samsung_kv`, and what a host gets that breaks it.

mod wire;

use unvme_ssd::fabrics::TargetOptions;
use unvme_ssd::tcp::Limits;
use wire::{Pdu, Sqe, Wire, Wishes, pairs, target_for};

const NO_DIGESTS: Wishes = Wishes { header_digest: false, data_digest: false, hpda_z: 0, maxr2t_z: 0 };
const DIGESTS: Wishes = Wishes { header_digest: true, data_digest: true, hpda_z: 0, maxr2t_z: 0 };

const STORE: u8 = 0x81;
const BATCH: u8 = 0x85;
const RETRIEVE: u8 = 0x90;
const DELETE: u8 = 0xa1;
const ITERATE_REQUEST: u8 = 0xb1;
const ITERATE_READ: u8 = 0xb2;
const EXIST: u8 = 0xb3;

// With Do Not Retry, but for the one that may go better the next time.
const INVALID_FIELD: u16 = 0x4002;
const DATA_SGL_LENGTH_INVALID: u16 = 0x400f;
const SGL_TYPE_INVALID: u16 = 0x4011;
const SGL_OFFSET_INVALID: u16 = 0x4016;
const TRANSIENT_TRANSPORT_ERROR: u16 = 0x0022;
const INVALID_KEY_SIZE: u16 = 0x4303;
const KEY_NOT_FOUND: u16 = 0x4310;
const ITERATE_END: u16 = 0x0393;

/// Bytes of the capsule that a key takes.
const KEY_AREA: usize = 256;
/// Of Iterate Read.
const ITERATE_BYTES: u32 = 32 << 10;

fn io(wishes: Wishes) -> (Wire, Wire) {
    Wire::pair(&target_for(pairs(), TargetOptions::default()), Limits::default(), wishes, 16)
}

fn key(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| b'a' + (at % 26) as u8).collect()
}

fn value(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at % 251) as u8).collect()
}

/// What the capsule starts with.
fn area(key: &[u8]) -> Vec<u8> {
    let mut area = key.to_vec();
    area.resize(KEY_AREA, 0);
    area
}

/// A command on a key of so many bytes: its length zero-based in dword 11, its descriptor in dwords 12 to 15.
fn command(opcode: u8, key_bytes: u32) -> Sqe {
    let sqe = Sqe::new(opcode).nsid(1).dword(11, key_bytes - 1).dword(12, 0).dword(13, 0);
    sqe.dword(14, key_bytes).dword(15, 0x0100_0000)
}

/// Store of `bytes`, a multiple of 4, that are in the capsule behind the key.
fn store(key_bytes: u32, bytes: u32) -> Sqe {
    let sqe = command(STORE, key_bytes).dword(10, bytes / 4);
    sqe.dword(6, 256).dword(7, 0).dword(8, bytes).dword(9, 0x0100_0000)
}

fn retrieve(key_bytes: u32, bytes: u32) -> Sqe {
    command(RETRIEVE, key_bytes).dword(10, bytes / 4).transported(bytes)
}

/// Sends a capsule; the next PDU.
fn send(wire: &mut Wire, sqe: Sqe, data: &[u8]) -> Pdu {
    let cid = wire.cid();
    wire.feed(&wire.capsule(&sqe.cid(cid), data));
    let answer = wire.next().unwrap_or_else(|| panic!("an answer; ended: {:?}", wire.ending()));
    assert_eq!(answer.cid(), cid, "{answer:?}");
    answer
}

fn status(wire: &mut Wire, sqe: Sqe, data: &[u8]) -> u16 {
    send(wire, sqe, data).status()
}

/// The value of a key, which has at most `most` bytes.
fn get(wire: &mut Wire, key: &[u8], most: u32) -> Vec<u8> {
    let answer = send(wire, retrieve(key.len() as u32, most), &area(key));
    let data = answer.payload().1.to_vec();
    let answer = wire.next().expect("a response, whose result is the length");
    assert_eq!((answer.status(), answer.cqe_u32(0) as usize), (0, data.len()));
    data
}

/// A capsule that breaks a rule gets this status, stores nothing, and its connection lives.
#[track_caller]
fn is_refused(sqe: Sqe, data: &[u8], expected: u16) {
    let (_admin, mut wire) = io(NO_DIGESTS);
    assert_eq!(status(&mut wire, sqe, data), expected);
    assert_eq!(wire.ending(), None);
    assert_eq!(status(&mut wire, command(EXIST, 17), &area(&key(17))), KEY_NOT_FOUND);
    assert_eq!(
        status(&mut wire, store(17, 8), &[area(&key(17)), value(8)].concat()),
        0,
        "the connection lives"
    );
    assert!(wire.connection.is_idle());
}

#[test]
fn a_key_and_a_short_value_are_in_one_capsule() {
    for wishes in [NO_DIGESTS, DIGESTS] {
        let (_admin, mut wire) = io(wishes);
        for (key_bytes, bytes) in [(17, 4), (255, 100), (200, 4096), (255, 8192 - 256)] {
            let (key, value) = (key(key_bytes), value(bytes));
            let sqe = store(key_bytes as u32, bytes as u32);
            assert_eq!(
                status(&mut wire, sqe, &[area(&key), value.clone()].concat()),
                0,
                "{key_bytes} {bytes}"
            );
            assert_eq!(get(&mut wire, &key, 16384), value);
        }
        assert!(wire.connection.is_idle());
    }
}

#[test]
fn a_longer_value_is_asked_for_once_its_key_is_there() {
    let limits = Limits { r2t_bytes_max: 64 << 10, ..Limits::default() };
    for (wishes, chunk) in [(NO_DIGESTS, usize::MAX), (DIGESTS, usize::MAX), (NO_DIGESTS, 100)] {
        let target = target_for(pairs(), TargetOptions::default());
        let (_admin, mut wire) = Wire::pair(&target, limits, wishes, 16);
        wire.chunk = chunk;
        let (key, value) = (key(255), value(100_000));
        let sqe = command(STORE, 255).dword(10, 25_000).transported(100_000).cid(0x1234);
        let capsule = wire.capsule(&sqe, &area(&key));
        wire.feed(&capsule[..capsule.len() - 1]);
        assert!(wire.output.is_empty(), "the key is not whole");
        wire.feed(&capsule[capsule.len() - 1..]);
        let mut asked = 0;
        while asked < value.len() {
            let ask = wire.next().expect("an R2T");
            let (ttag, offset, bytes) = ask.r2t();
            assert_eq!((ask.cid(), offset as usize), (0x1234, asked));
            let end = asked + bytes as usize;
            wire.feed(&wire.data(0x1234, ttag, offset, &value[asked..end], true));
            asked = end;
        }
        assert_eq!(wire.next().expect("a response").status(), 0);
        assert_eq!(get(&mut wire, &key, 128 << 10), value);
    }
}

#[test]
fn commands_without_data_have_nothing_but_the_key_in_their_capsule() {
    let (_admin, mut wire) = io(NO_DIGESTS);
    let key = area(&key(100));
    assert_eq!(status(&mut wire, command(EXIST, 100), &key), KEY_NOT_FOUND);
    // A value of no bytes.
    assert_eq!(status(&mut wire, command(STORE, 100), &key), 0);
    assert_eq!(status(&mut wire, command(EXIST, 100), &key), 0);
    // Another length is another key.
    assert_eq!(status(&mut wire, command(EXIST, 99), &key), KEY_NOT_FOUND);
    assert_eq!(status(&mut wire, command(RETRIEVE, 100), &key), 0);
    assert_eq!(status(&mut wire, command(DELETE, 100), &key), 0);
    assert_eq!(status(&mut wire, command(EXIST, 100), &key), KEY_NOT_FOUND);
}

#[test]
fn a_batch_has_its_keys_in_its_data() {
    let (_admin, mut wire) = io(NO_DIGESTS);
    let (key, mut data) = (key(200), vec![0; 512]);
    data[..9].copy_from_slice(&[STORE, 200, 0, 0, 4, 0, 0, 0, 0]);
    data.extend_from_slice(&[0; 64]);
    data.extend_from_slice(&key);
    data.resize(512 + 64 + 256, 0);
    data.extend_from_slice(b"four");
    data.resize(512 + 64 + 256 + 64, 0);
    let bytes = data.len() as u32;
    let sqe = Sqe::new(BATCH).nsid(1).dword(10, bytes / 4).dword(11, 1).in_capsule(bytes);
    assert_eq!(status(&mut wire, sqe, &data), 0);
    assert_eq!(get(&mut wire, &key, 64), b"four");
}

#[test]
fn the_last_keys_of_an_iteration_come_with_its_end() {
    let (_admin, mut wire) = io(NO_DIGESTS);
    let name = key(255);
    assert_eq!(status(&mut wire, command(STORE, 255), &area(&name)), 0);
    // Open, for keys.
    let open = Sqe::new(ITERATE_REQUEST).nsid(1).dword(11, 0x0500);
    let opened = send(&mut wire, open, &[]);
    assert_eq!(opened.status(), 0);
    let iterator = opened.cqe_u32(0);
    let read = Sqe::new(ITERATE_READ).nsid(1).dword(10, ITERATE_BYTES / 4).dword(11, iterator);
    let answer = send(&mut wire, read.transported(ITERATE_BYTES), &[]);
    // A count, the length of the key, and the key, padded to whole dwords.
    let mut expected = vec![1, 0, 0, 0, 255, 0, 0, 0];
    expected.extend_from_slice(&name);
    expected.push(0);
    assert_eq!(answer.payload(), (0, expected.as_slice()));
    let end = wire.next().expect("a response");
    assert_eq!((end.status(), end.cqe_u32(0) as usize), (ITERATE_END, expected.len()));
}

#[test]
fn a_wrong_digest_of_a_key_fails_the_command_and_nothing_is_asked_for() {
    let (_admin, mut wire) = io(DIGESTS);
    let sqe = command(STORE, 40).dword(10, 5000).transported(20_000).cid(9);
    let mut capsule = wire.capsule(&sqe, &area(&key(40)));
    let last = capsule.len() - 5;
    capsule[last] ^= 1;
    wire.feed(&capsule);
    let answer = wire.next().expect("a response");
    assert_eq!((answer.cid(), answer.status()), (9, TRANSIENT_TRANSPORT_ERROR));
    assert!(wire.output.is_empty() && wire.connection.is_idle());
}

#[test]
fn a_key_that_is_not_described_as_in_the_capsule_is_refused() {
    // A Keyed Data Block, an address, the transport's, a bit bucket, a list, PRPs.
    for identifier in [0x40, 0x00, 0x5a, 0x10, 0x21] {
        let sqe = store(17, 8).dword(15, u32::from_le_bytes([0, 0, 0, identifier]));
        is_refused(sqe, &[area(&key(17)), value(8)].concat(), SGL_TYPE_INVALID);
    }
}

#[test]
fn a_key_anywhere_else_in_the_capsule_is_refused() {
    // Within its area, behind it, over the value, beyond the capsule, beyond all numbers.
    for (low, high) in [(1, 0), (239, 0), (256, 0), (8192, 0), (0, 1), (u32::MAX, u32::MAX)] {
        let sqe = store(17, 8).dword(12, low).dword(13, high);
        is_refused(sqe, &[area(&key(17)), value(8)].concat(), SGL_OFFSET_INVALID);
    }
}

#[test]
fn a_descriptor_of_another_length_than_the_keys_is_refused() {
    for bytes in [0, 16, 18, 256, u32::MAX] {
        is_refused(
            store(17, 8).dword(14, bytes),
            &[area(&key(17)), value(8)].concat(),
            DATA_SGL_LENGTH_INVALID,
        );
    }
}

#[test]
fn a_key_of_256_bytes_is_one_too_long() {
    is_refused(command(EXIST, 256), &key(256), INVALID_KEY_SIZE);
}

#[test]
fn a_value_that_is_not_behind_the_key_is_refused() {
    // Over the key, within its padding, with a gap.
    for offset in [0, 4, 252, 260, u32::MAX] {
        is_refused(store(17, 8).dword(6, offset), &[area(&key(17)), value(8)].concat(), SGL_OFFSET_INVALID);
    }
}

#[test]
fn a_value_beyond_what_a_capsule_takes_is_refused() {
    for bytes in [8192 - 256 + 4, 8192, 0xffff_fffc] {
        is_refused(store(17, bytes), &area(&key(17)), SGL_OFFSET_INVALID);
    }
}

#[test]
fn a_capsule_without_its_key_or_with_more_than_it_is_refused() {
    for bytes in [0, 17, 255, 257] {
        is_refused(command(EXIST, 17), &value(bytes), DATA_SGL_LENGTH_INVALID);
    }
    for bytes in [256, 256 + 7, 256 + 9] {
        is_refused(store(17, 8), &value(bytes), DATA_SGL_LENGTH_INVALID);
    }
    // The value by itself, and in the capsule as well.
    let sqe = command(STORE, 17).dword(10, 2).transported(8);
    is_refused(sqe, &[area(&key(17)), value(8)].concat(), DATA_SGL_LENGTH_INVALID);
}

#[test]
fn a_command_whose_data_pointer_is_a_prp_is_refused() {
    let mut sqe = command(EXIST, 17);
    sqe.0[1] = 0;
    is_refused(sqe, &area(&key(17)), INVALID_FIELD);
}

#[test]
fn keys_do_not_wait_for_the_memory_that_values_wait_for() {
    let options = TargetOptions { memory_bytes: 3 << 20, ..TargetOptions::default() };
    let target = target_for(pairs(), options);
    let (admin, mut wire) = Wire::pair(&target, Limits::default(), NO_DIGESTS, 16);
    let bytes = 1 << 20;
    let mut tags = Vec::new();
    for cid in 0..6u16 {
        let sqe = command(STORE, 100).dword(10, bytes / 4).transported(bytes).cid(cid);
        wire.feed(&wire.capsule(&sqe, &area(&[b'a' + cid as u8; 100])));
        // A short command passes those that wait.
        let short = command(EXIST, 100).cid(1000 + cid);
        wire.feed(&wire.capsule(&short, &area(&[b'x'; 100])));
    }
    let (mut answered, mut passed, mut waited) = (0, 0, false);
    while answered < 6 {
        while let Some(pdu) = wire.next() {
            match pdu.kind() {
                9 => tags.push((pdu.cid(), pdu.r2t())),
                _ if pdu.cid() >= 1000 => passed += 1,
                _ => {
                    assert_eq!(pdu.status(), 0);
                    answered += 1;
                }
            }
        }
        waited |= tags.len() < 6 && passed == 6;
        assert!(target.memory().used() <= (3 << 20) + 16 * 8192, "{}", target.memory().used());
        let Some((cid, (ttag, offset, length))) = tags.pop() else { continue };
        wire.feed(&wire.data(cid, ttag, offset, &vec![cid as u8; length as usize], true));
    }
    assert!(waited);
    for cid in 0..6u8 {
        assert_eq!(get(&mut wire, &[b'a' + cid; 100], bytes), vec![cid; bytes as usize]);
    }
    drop((wire, admin));
    assert_eq!(target.memory().used(), 0);
}
