//! Commands for pairs, put together by hand from the figures of the two command sets.

use std::sync::Arc;

use unvme_spec::{Sqe, Status};
use unvme_ssd::{Ssd, SsdConfig};

use super::blocks::SOURCE;
use super::{DATA, Host, MEDIA_BYTES, device, sqe};

pub const STORE: u8 = 0x01;
pub const RETRIEVE: u8 = 0x02;
pub const LIST: u8 = 0x06;
pub const DELETE: u8 = 0x10;
pub const EXIST: u8 = 0x14;

pub const VENDOR_STORE: u8 = 0x81;
pub const VENDOR_APPEND: u8 = 0x83;
pub const VENDOR_BATCH: u8 = 0x85;
pub const VENDOR_RETRIEVE: u8 = 0x90;
pub const VENDOR_DELETE: u8 = 0xa1;
pub const ITERATE_REQUEST: u8 = 0xb1;
pub const ITERATE_READ: u8 = 0xb2;
pub const VENDOR_EXIST: u8 = 0xb3;

/// Where keys that are not in their entries are put.
pub const KEYS: usize = SOURCE - 8192;

/// A status of type 3.
pub fn vendor(code: u8) -> Status {
    Status::new(3, code)
}

/// A device with one Key Value namespace over all of its media.
pub fn kv_config() -> SsdConfig {
    SsdConfig::kv(MEDIA_BYTES)
}

pub fn kv_device() -> Arc<Ssd> {
    device(kv_config())
}

fn dword(bytes: &[u8], index: usize) -> u32 {
    let mut word = [0; 4];
    for (target, byte) in word.iter_mut().zip(bytes.iter().skip(index * 4)) {
        *target = *byte;
    }
    u32::from_le_bytes(word)
}

/// A command of the standard set for namespace 1: the key in dwords 2, 3, 14 and 15, its length in dword 11.
pub fn standard(opcode: u8, key: &[u8]) -> Sqe {
    Sqe {
        cdw2: dword(key, 0),
        cdw3: dword(key, 1),
        cdw14: dword(key, 2),
        cdw15: dword(key, 3),
        cdw11: key.len() as u32,
        ..sqe(opcode, 1)
    }
}

/// A vendor command for namespace 1: the keyspace in dword 3; the key in dwords 12 to 15, or where they point
/// to when it is longer than 16 bytes; its length less one in dword 11.
pub fn samsung(host: &Host, opcode: u8, keyspace: u32, key: &[u8]) -> Sqe {
    let words = if key.len() > 16 {
        host.memory.write(KEYS, key);
        let mut pointer = Sqe::default();
        host.set_prps(&mut pointer, KEYS, key.len());
        let [first, second] = pointer.dptr;
        [first as u32, (first >> 32) as u32, second as u32, (second >> 32) as u32]
    } else {
        [0, 1, 2, 3].map(|index| dword(key, index))
    };
    let [cdw12, cdw13, cdw14, cdw15] = words;
    let cdw11 = (key.len() as u32).wrapping_sub(1) & 0xff;
    Sqe { cdw3: keyspace, cdw11, cdw12, cdw13, cdw14, cdw15, ..sqe(opcode, 1) }
}

impl Host {
    /// A host and a key-value device of 64 MiB, with all command sets enabled and I/O queue pair 1 of 64
    /// entries.
    pub fn with_pairs() -> Self {
        let mut host = Self::attach(kv_device());
        host.enable_all();
        host.create_queue_pair(1, 64);
        host
    }

    /// As [`Host::enable`], with CC.CSS 110b: all command sets.
    pub fn enable_all(&mut self) {
        self.set_admin_queue();
        self.write32(0x14, 0x0046_0061);
        assert_eq!(self.read32(0x1c) & 1, 1, "CSTS.RDY after CC.EN");
    }

    /// Points a command to `value`, which it stores.
    pub fn with_value(&self, mut sqe: Sqe, value: &[u8]) -> Sqe {
        self.memory.write(SOURCE, value);
        self.set_prps(&mut sqe, SOURCE, value.len());
        sqe
    }

    /// Points a command to a buffer of `bytes`, which it fills.
    pub fn with_buffer(&self, mut sqe: Sqe, bytes: usize) -> Sqe {
        self.memory.fill(DATA, bytes + 8, 0xee);
        self.set_prps(&mut sqe, DATA, bytes);
        sqe
    }

    /// Store of the standard set with options.
    pub fn store_with(&mut self, key: &[u8], value: &[u8], options: u32) -> Result<u64, Status> {
        let mut sqe = self.with_value(standard(STORE, key), value);
        sqe.cdw10 = value.len() as u32;
        sqe.cdw11 |= options << 8;
        self.io(sqe)
    }

    pub fn store(&mut self, key: &[u8], value: &[u8]) -> Result<u64, Status> {
        self.store_with(key, value, 0)
    }

    /// Retrieve of the standard set into a buffer of `bytes`: length of the value, and what the buffer holds
    /// of it.
    pub fn retrieve(&mut self, key: &[u8], bytes: usize) -> Result<(u64, Vec<u8>), Status> {
        self.retrieve_with(standard(RETRIEVE, key), bytes)
    }

    pub fn retrieve_with(&mut self, sqe: Sqe, bytes: usize) -> Result<(u64, Vec<u8>), Status> {
        let sqe = Sqe { cdw10: bytes as u32, ..self.with_buffer(sqe, bytes) };
        let length = self.io(sqe)?;
        Ok((length, self.buffer(length as usize, bytes)))
    }

    /// The first bytes of the buffer; nothing behind them, or the buffer, has been touched.
    fn buffer(&self, length: usize, bytes: usize) -> Vec<u8> {
        let used = length.min(bytes);
        let all = self.bytes(DATA, bytes + 8);
        assert!(all[used..].iter().all(|&byte| byte == 0xee), "behind the value");
        all[..used].to_vec()
    }

    /// Retrieves a value whole by the standard set.
    pub fn value(&mut self, key: &[u8]) -> Result<Vec<u8>, Status> {
        let (length, data) = self.retrieve(key, 256 << 10)?;
        assert_eq!(length as usize, data.len(), "the value is longer than the buffer");
        Ok(data)
    }

    pub fn delete(&mut self, key: &[u8]) -> Result<u64, Status> {
        self.io(standard(DELETE, key))
    }

    pub fn exist(&mut self, key: &[u8]) -> Result<u64, Status> {
        self.io(standard(EXIST, key))
    }

    /// Store or Append of the vendor's set.
    pub fn vendor_store(
        &mut self,
        opcode: u8,
        keyspace: u32,
        key: &[u8],
        value: &[u8],
        option: u32,
    ) -> Result<u64, Status> {
        let sqe = samsung(self, opcode, keyspace, key);
        let mut sqe = self.with_value(sqe, value);
        let dwords = value.len().div_ceil(4);
        sqe.cdw10 = dwords as u32;
        sqe.cdw11 |= option << 8 | ((dwords * 4 - value.len()) as u32) << 16;
        self.io(sqe)
    }

    /// Retrieve of the vendor's set: length of the whole value, and what the buffer holds.
    pub fn vendor_retrieve(
        &mut self,
        keyspace: u32,
        key: &[u8],
        offset: u32,
        bytes: usize,
    ) -> Result<(u64, Vec<u8>), Status> {
        let sqe = samsung(self, VENDOR_RETRIEVE, keyspace, key);
        let mut sqe = self.with_buffer(sqe, bytes);
        sqe.cdw10 = (bytes / 4) as u32;
        sqe.mptr = offset.into();
        let length = self.io(sqe)?;
        Ok((length, self.buffer(length as usize - offset as usize, bytes)))
    }

    /// Retrieves a value whole by the vendor's set.
    pub fn vendor_value(&mut self, keyspace: u32, key: &[u8]) -> Result<Vec<u8>, Status> {
        let (length, data) = self.vendor_retrieve(keyspace, key, 0, 256 << 10)?;
        assert_eq!(length as usize, data.len(), "the value is longer than the buffer");
        Ok(data)
    }

    pub fn vendor_delete(&mut self, keyspace: u32, key: &[u8], option: u32) -> Result<u64, Status> {
        let mut sqe = samsung(self, VENDOR_DELETE, keyspace, key);
        sqe.cdw11 |= option << 8;
        self.io(sqe)
    }

    pub fn vendor_exist(&mut self, keyspace: u32, key: &[u8]) -> Result<u64, Status> {
        let sqe = samsung(self, VENDOR_EXIST, keyspace, key);
        self.io(sqe)
    }

    /// List from `start` into a buffer of `bytes`: the keys, and the bytes as they came.
    pub fn list(&mut self, start: &[u8], bytes: usize) -> Result<(Vec<Vec<u8>>, Vec<u8>), Status> {
        let sqe = self.with_buffer(standard(LIST, start), bytes);
        self.io(Sqe { cdw10: bytes as u32, ..sqe })?;
        let data = self.bytes(DATA, bytes);
        let count = dword(&data, 0);
        let mut keys = Vec::new();
        let mut at = 4;
        for _ in 0..count {
            let length = usize::from(u16::from_le_bytes([data[at], data[at + 1]]));
            keys.push(data[at + 2..at + 2 + length].to_vec());
            let padded = (2 + length).div_ceil(4) * 4;
            assert!(data[at + 2 + length..at + padded].iter().all(|&byte| byte == 0), "padding");
            at += padded;
        }
        assert!(data[at..].iter().all(|&byte| byte == 0xee), "behind the keys");
        Ok((keys, data[..at].to_vec()))
    }

    /// Opens an iterator over the keys of a keyspace that begin with `prefix` as far as `mask` says.
    pub fn iterate_open(
        &mut self,
        keyspace: u32,
        prefix: [u8; 4],
        mask: u32,
        kind: u32,
    ) -> Result<u64, Status> {
        let (cdw12, cdw13) = (u32::from_le_bytes(prefix), mask.swap_bytes());
        self.io(Sqe { cdw3: keyspace, cdw11: (0x01 | kind) << 8, cdw12, cdw13, ..sqe(ITERATE_REQUEST, 1) })
    }

    pub fn iterate_close(&mut self, id: u64) -> Result<u64, Status> {
        self.io(Sqe { cdw11: 0x0200 | id as u32, ..sqe(ITERATE_REQUEST, 1) })
    }

    /// Reads an iterator: status, bytes, and the bytes.
    pub fn iterate_read(&mut self, id: u64) -> (Status, Vec<u8>) {
        let sqe = self.with_buffer(sqe(ITERATE_READ, 1), 32768);
        let cqe = self.execute(1, Sqe { cdw10: 8192, cdw11: id as u32, ..sqe });
        let bytes = cqe.result() as usize;
        let all = self.bytes(DATA, 32768 + 8);
        assert!(all[bytes..].iter().all(|&byte| byte == 0xee), "behind the records");
        (cqe.status().kind(), all[..bytes].to_vec())
    }
}

/// A command of a batch: opcode, keyspace, option, key, value.
pub type BatchPart<'a> = (u8, u8, u8, &'a [u8], &'a [u8]);

/// The data of a batch, as the open host code describes it.
pub fn batch_data(commands: &[BatchPart<'_>]) -> Vec<u8> {
    let mut data = vec![0; 512];
    for (index, (opcode, keyspace, option, key, value)) in commands.iter().enumerate() {
        let at = index * 16;
        data[at] = *opcode;
        data[at + 1] = key.len() as u8;
        data[at + 4..at + 8].copy_from_slice(&(value.len() as u32).to_le_bytes());
        data[at + 8] = *option;
        data[at + 9] = *keyspace;
        data.extend_from_slice(&[0; 64]);
        for part in [key, value] {
            data.extend_from_slice(part);
            data.resize(data.len().next_multiple_of(64), 0);
        }
    }
    data
}

/// The keys in what an iterator over keys returned.
pub fn keys_of(data: &[u8]) -> Vec<Vec<u8>> {
    let count = if data.is_empty() { 0 } else { dword(data, 0) };
    let mut at = 4;
    let mut keys = Vec::new();
    for _ in 0..count {
        let length = dword(&data[at..], 0) as usize;
        keys.push(data[at + 4..at + 4 + length].to_vec());
        at += 4 + length.div_ceil(4) * 4;
    }
    assert!(data.is_empty() || at == data.len(), "{at} of {} bytes", data.len());
    keys
}
