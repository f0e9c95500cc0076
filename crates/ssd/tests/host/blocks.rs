//! Commands that move logical blocks.

use unvme_spec::Sqe;

use super::{DATA, Host, sqe};

pub const FLUSH: u8 = 0x00;
pub const WRITE: u8 = 0x01;
pub const READ: u8 = 0x02;
pub const WRITE_UNCORRECTABLE: u8 = 0x04;
pub const COMPARE: u8 = 0x05;
pub const WRITE_ZEROES: u8 = 0x08;
pub const DATASET_MANAGEMENT: u8 = 0x09;
pub const VERIFY: u8 = 0x0c;

/// Where written data comes from, apart from where it is read to.
pub const SOURCE: usize = DATA + (4 << 20);

/// A command on namespace 1 without data.
pub fn access(opcode: u8, lba: u64, blocks: u32) -> Sqe {
    Sqe { cdw10: lba as u32, cdw11: (lba >> 32) as u32, cdw12: blocks - 1, ..sqe(opcode, 1) }
}

/// A command on namespace 1 whose data is at `offset` of the host's memory.
pub fn transfer(host: &Host, opcode: u8, lba: u64, blocks: u32, offset: usize, bytes: usize) -> Sqe {
    let mut sqe = access(opcode, lba, blocks);
    host.set_prps(&mut sqe, offset, bytes);
    sqe
}

/// Bytes that say where they come from.
pub fn pattern(seed: u8, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| seed ^ (i as u8) ^ ((i >> 8) as u8).wrapping_mul(31)).collect()
}

pub fn write(host: &mut Host, lba: u64, data: &[u8], block_bytes: usize) {
    host.memory.write(SOURCE, data);
    let write = transfer(host, WRITE, lba, (data.len() / block_bytes) as u32, SOURCE, data.len());
    assert_eq!(host.io(write), Ok(0));
}

pub fn read(host: &mut Host, lba: u64, bytes: usize, block_bytes: usize) -> Vec<u8> {
    host.memory.fill(DATA, bytes, 0xee);
    let read = transfer(host, READ, lba, (bytes / block_bytes) as u32, DATA, bytes);
    assert_eq!(host.io(read), Ok(0));
    host.bytes(DATA, bytes)
}
