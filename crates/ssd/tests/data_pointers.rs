//! PRPs and SGLs: where the data of a command is.

mod host;

use std::sync::atomic::Ordering;

use host::blocks::{COMPARE, READ, SOURCE, WRITE, access, pattern, read, transfer, write};
use host::{BASE, DATA, Host};
use unvme_spec::{Sqe, Status};

#[test]
fn data_comes_back_through_prps_of_every_shape() {
    for block_bytes in [512, 4096] {
        let mut host = Host::with_queues(block_bytes as u32);
        // One entry, two, a list, a list of two megabytes; at the start, the middle and the end of a page.
        for (index, kib) in [4, 8, 12, 64, 1024, 2044].into_iter().enumerate() {
            for within in [0, 4, 512, 2048, 4092] {
                let bytes = kib << 10;
                let data = pattern((index * 7 + within) as u8, bytes);
                host.memory.write(SOURCE + within, &data);
                let blocks = (bytes / block_bytes) as u32;
                let write = transfer(&host, WRITE, 100, blocks, SOURCE + within, bytes);
                assert_eq!(host.io(write), Ok(0), "{kib} KiB at {within}");
                host.memory.fill(DATA - 4096, bytes + 3 * 4096, 0xee);
                let read = transfer(&host, READ, 100, blocks, DATA + within, bytes);
                assert_eq!(host.io(read), Ok(0), "{kib} KiB at {within}");
                assert!(host.bytes(DATA + within, bytes) == data, "{kib} KiB at {within}");
                let around =
                    [host.bytes(DATA - 4096, 4096 + within), host.bytes(DATA + within + bytes, 4096)];
                assert!(
                    around.concat().iter().all(|&byte| byte == 0xee),
                    "{kib} KiB at {within}: bytes around it"
                );
            }
        }
    }
}

#[test]
fn a_prp_list_may_start_near_the_end_of_a_page_and_go_on_in_another() {
    let mut host = Host::with_queues(512);
    let data = pattern(9, 6 * 4096);
    write(&mut host, 0, &data, 512);
    let (list, next) = (SOURCE + 4096 - 16, SOURCE + 3 * 4096);
    let page = |n: usize| BASE + (DATA + (10 - n) * 4096) as u64;
    let words = |host: &Host, at: usize, words: &[u64]| {
        words.iter().enumerate().for_each(|(i, &word)| {
            host.memory.store_u64(at + i * 8, word, Ordering::Relaxed);
        });
    };
    // Pages in descending order, so that a device that takes them for contiguous is found out.
    words(&host, list, &[page(1), BASE + next as u64]);
    words(&host, next, &[page(2), page(3), page(4), page(5)]);
    let mut read = access(READ, 0, 48);
    read.dptr = [page(0), BASE + list as u64];
    assert_eq!(host.io(read), Ok(0));
    let got: Vec<u8> = (0..6).flat_map(|n| host.bytes(DATA + (10 - n) * 4096, 4096)).collect();
    assert!(got == data);
    // Five pages are left for a list whose last entry of the page is the last entry of all: it is no pointer.
    words(&host, list, &[page(1), page(2)]);
    let mut three = access(READ, 0, 24);
    three.dptr = [page(0), BASE + list as u64];
    assert_eq!(host.io(three), Ok(0));
    // A list that leads back to its own page: the data ends, and so does the command.
    let circle = [vec![page(1); 511], vec![BASE + next as u64]].concat();
    words(&host, next, &circle);
    let mut endless = access(READ, 0, 4096);
    endless.dptr = [page(0), BASE + next as u64 + 2048];
    assert_eq!(host.io(endless), Ok(0));
}

#[test]
fn bad_prps_are_refused_before_a_byte_moves() {
    let mut host = Host::with_queues(512);
    let data = BASE + DATA as u64;
    let unmapped = 0x7000_0000;
    host.memory.fill(DATA, 16384, 0xee);
    for (opcode, blocks) in [(READ, 8), (WRITE, 8), (COMPARE, 8)] {
        for (dptr, expected) in [
            ([data + 1, 0], Status::PRP_OFFSET_INVALID),
            ([data + 2, 0], Status::PRP_OFFSET_INVALID),
            ([unmapped, 0], Status::DATA_TRANSFER_ERROR),
            ([0, 0], Status::DATA_TRANSFER_ERROR),
            ([u64::MAX - 3, 0], Status::DATA_TRANSFER_ERROR),
            // The second page of two.
            ([data + 512, unmapped], Status::DATA_TRANSFER_ERROR),
            ([data + 512, data + 4096 + 8], Status::PRP_OFFSET_INVALID),
        ] {
            let refused = Sqe { dptr, ..access(opcode, 0, blocks) };
            assert_eq!(host.io(refused), Err(expected), "opcode {opcode:#x}, {dptr:x?}");
        }
        let list = BASE + SOURCE as u64;
        for (second, entries, expected) in [
            (unmapped, [0, 0], Status::DATA_TRANSFER_ERROR),
            (data + 4, [0, 0], Status::PRP_OFFSET_INVALID),
            (list, [data + 4096, unmapped], Status::DATA_TRANSFER_ERROR),
            (list, [data + 4096, data + 16], Status::PRP_OFFSET_INVALID),
        ] {
            host.memory.write_words(SOURCE, entries);
            let refused = Sqe { dptr: [data, second], ..access(opcode, 0, 24) };
            assert_eq!(
                host.io(refused),
                Err(expected),
                "opcode {opcode:#x}, list at {second:#x} of {entries:x?}"
            );
        }
    }
    assert_eq!(host.bytes(DATA, 16384), vec![0xee; 16384]);
    assert_eq!(read(&mut host, 0, 4096, 512), vec![0; 4096]);
}

/// An SGL descriptor.
type Words = [u64; 2];

/// A descriptor: type and sub type in the last byte.
fn descriptor(identifier: u8, address: u64, length: u32) -> Words {
    [address, u64::from(length) | u64::from(identifier) << 56]
}

/// Writes descriptors at `offset` of the host's memory.
fn put_descriptors(host: &Host, offset: usize, descriptors: &[[u64; 2]]) {
    for (index, words) in descriptors.iter().enumerate() {
        host.memory.write_words(offset + index * 16, *words);
    }
}

fn with_sgl(sqe: Sqe, first: [u64; 2]) -> Sqe {
    Sqe { flags: 0x40, dptr: first, ..sqe }
}

#[test]
fn data_comes_back_through_sgls_of_every_shape() {
    let mut host = Host::with_queues(512);
    let data = pattern(3, 8192);
    write(&mut host, 5, &data, 512);
    let target = BASE + DATA as u64;
    let (first, second, third) = (SOURCE + 1, SOURCE + 8192, SOURCE + 3 * 4096 - 16);
    let at = |offset: usize| BASE + offset as u64;
    // Pieces of odd sizes at odd addresses, with gaps.
    let pieces = [(0u64, 1u32), (3, 700), (2000, 3000), (6001, 95), (7000, 4396)];
    let blocks: Vec<[u64; 2]> = pieces.iter().map(|&(o, l)| descriptor(0x00, target + o, l)).collect();
    let gathered = |host: &Host| -> Vec<u8> {
        pieces.iter().flat_map(|&(o, l)| host.bytes(DATA + o as usize, l as usize)).collect()
    };
    let command = access(READ, 5, 16);

    assert_eq!(host.io(with_sgl(command, descriptor(0x00, target + 3, 8192))), Ok(0));
    assert!(host.bytes(DATA + 3, 8192) == data, "a data block");
    host.memory.fill(DATA, 20000, 0xee);
    assert_eq!(host.io(with_sgl(command, descriptor(0x00, target, 20000))), Ok(0));
    assert!(host.bytes(DATA, 8192) == data, "a data block longer than the data");
    assert_eq!(host.bytes(DATA + 8192, 64), [0xee; 64]);
    host.memory.fill(DATA, 20000, 0xee);
    assert_eq!(host.io(with_sgl(access(READ, 5, 8), descriptor(0x00, target + 4093, 6000))), Ok(0));
    assert!(host.bytes(DATA + 4093, 4096) == data[..4096], "a page's worth across two pages");
    assert_eq!((host.bytes(DATA, 4093), host.bytes(DATA + 8189, 64)), (vec![0xee; 4093], vec![0xee; 64]));

    put_descriptors(&host, second, &blocks);
    assert_eq!(host.io(with_sgl(command, descriptor(0x30, at(second), 80))), Ok(0));
    assert!(gathered(&host) == data, "a last segment");

    host.memory.fill(DATA, 20000, 0xee);
    put_descriptors(&host, third, &blocks[3..]);
    put_descriptors(&host, second, &[blocks[1], blocks[2], descriptor(0x30, at(third), 32)]);
    // A segment need not be aligned: this one starts at an odd address.
    let mut bytes = Vec::new();
    for words in [blocks[0], descriptor(0x20, at(second), 48)] {
        words.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
    }
    host.memory.write(first, &bytes);
    assert_eq!(host.io(with_sgl(command, descriptor(0x20, at(first), 32))), Ok(0));
    assert!(gathered(&host) == data, "three segments");

    // And the other way: PSDT 10b says the same of the data.
    host.memory.write(DATA, &pattern(77, 512));
    let write = with_sgl(access(WRITE, 9, 1), descriptor(0x00, target, 512));
    assert_eq!(host.io(Sqe { flags: 0x80, ..write }), Ok(0));
    assert_eq!(read(&mut host, 9, 512, 512), pattern(77, 512));
}

#[test]
fn bad_sgls_are_refused_with_the_status_that_names_the_mistake() {
    let mut host = Host::with_queues(512);
    let data = BASE + DATA as u64;
    let list = BASE + SOURCE as u64;
    let command = access(READ, 0, 8);
    host.memory.fill(DATA, 8192, 0xee);
    let ok = descriptor(0x00, data, 2048);
    let segments: [(&[Words], Words, Status); 12] = [
        (&[], descriptor(0x00, data, 4095), Status::DATA_SGL_LENGTH_INVALID),
        (&[], descriptor(0x00, data, 0), Status::DATA_SGL_LENGTH_INVALID),
        (&[], descriptor(0x01, data, 4096), Status::SGL_DESCRIPTOR_TYPE_INVALID),
        (&[], descriptor(0x10, data, 4096), Status::SGL_DESCRIPTOR_TYPE_INVALID),
        (&[], descriptor(0x40, data, 4096), Status::SGL_DESCRIPTOR_TYPE_INVALID),
        (&[], descriptor(0xf0, data, 4096), Status::SGL_DESCRIPTOR_TYPE_INVALID),
        (&[], descriptor(0x00, 0x7000_0000, 4096), Status::DATA_TRANSFER_ERROR),
        (&[ok, ok], descriptor(0x30, list, 0), Status::INVALID_SGL_SEGMENT),
        (&[ok, ok], descriptor(0x30, list, 31), Status::INVALID_SGL_SEGMENT),
        (&[ok, ok], descriptor(0x31, list, 32), Status::SGL_DESCRIPTOR_TYPE_INVALID),
        // A segment that is not the last must end in a pointer, and only there may one be.
        (&[ok, ok], descriptor(0x20, list, 32), Status::INVALID_SGL_SEGMENT),
        (&[ok, descriptor(0x30, list, 16), ok], descriptor(0x20, list, 48), Status::INVALID_SGL_SEGMENT),
    ];
    for (entries, first, expected) in segments {
        put_descriptors(&host, SOURCE, entries);
        assert_eq!(host.io(with_sgl(command, first)), Err(expected), "{first:x?} to {entries:x?}");
    }
    put_descriptors(&host, SOURCE, &[ok, descriptor(0x30, list, 32)]);
    let nested = with_sgl(command, descriptor(0x30, list, 32));
    assert_eq!(host.io(nested), Err(Status::INVALID_SGL_SEGMENT), "a pointer in the last segment");
    put_descriptors(&host, SOURCE, &[descriptor(0x00, data, 0), descriptor(0x20, list, 32)]);
    let endless = with_sgl(command, descriptor(0x20, list, 32));
    assert_eq!(host.io(endless), Err(Status::INVALID_SGL_COUNT), "segments in a circle");
    let long = with_sgl(command, descriptor(0x30, list, 16 * 5000));
    assert_eq!(host.io(long), Err(Status::INVALID_SGL_COUNT));
    let unmapped = with_sgl(command, descriptor(0x30, 0x7000_0000, 32));
    assert_eq!(host.io(unmapped), Err(Status::DATA_TRANSFER_ERROR));
    assert_eq!(host.io(Sqe { flags: 0xc0, ..nested }), Err(Status::INVALID_FIELD), "PSDT 11b");
    assert_eq!(host.bytes(DATA, 8192), vec![0xee; 8192]);
}
