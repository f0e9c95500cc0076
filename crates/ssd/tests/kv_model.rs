//! Random commands for pairs, of both command sets, against a map: over flushes, formats, processes that are
//! killed and power that is cut.

#[path = "host/disk.rs"]
mod disk;
mod host;

use std::collections::BTreeMap;
use std::sync::Arc;

use disk::{Disk, DiskStore};
use host::pairs::{
    BatchPart, RETRIEVE, VENDOR_APPEND, VENDOR_BATCH, VENDOR_STORE, batch_data, keys_of, kv_config, standard,
    vendor,
};
use host::random::Random;
use host::{Host, device_on, sqe};
use unvme_spec::{Nsid, Sqe, Status};
use unvme_ssd::{CHUNK_BYTES, SsdConfig, SsdError, Store};

const BYTES: usize = 32 << 20;
/// Different keys of a run: few, so that commands meet.
const KEYS: u64 = 80;
const STEPS: usize = 2500;
/// Largest value that is stored: a list of one page describes it, with room to retrieve more.
const VALUE_BYTES: u64 = 300_000;

/// Keyspace and key.
type Name = (u32, Vec<u8>);
type Value = Vec<u8>;

/// A key of one length or another, for one command set, the other, or both.
fn random_name(random: &mut Random) -> Name {
    let number = random.below(KEYS) as usize;
    let length = [1, 3, 4, 8, 16, 16, 17, 40, 255][number % 9];
    let mut key = vec![b'k'; length];
    key[0] = [b'a', b'b', 0xf3][number % 3];
    key[length - 1] = number as u8;
    let keyspace = if length < 4 { 0 } else { number / 9 % 2 };
    (keyspace as u32, key)
}

fn random_value(random: &mut Random) -> Value {
    let bytes = match random.below(100) {
        0..5 => 0,
        5..60 => random.below(200),
        60..90 => random.below(6000),
        _ => random.below(VALUE_BYTES),
    } as usize;
    if random.below(2) == 0 { random.bytes(bytes) } else { vec![random.next() as u8; bytes] }
}

/// Whether a command for a key is sent as one of the vendor's: by chance when both sets have such keys.
fn is_vendors(random: &mut Random, (keyspace, key): &Name) -> bool {
    *keyspace != 0 || key.len() > 16 || (key.len() >= 4 && random.below(2) == 0)
}

struct Machine {
    disk: Arc<Disk>,
    host: Host,
    pairs: BTreeMap<Name, Value>,
    /// What the keys that have changed since the last flush have been since then: after a power cut, any of
    /// it.
    versions: BTreeMap<Name, Vec<Option<Value>>>,
    /// EDNEK.
    delete_tells: bool,
    /// The write cache is disabled: what is done is durable.
    is_write_through: bool,
    /// Power was cut: what was not flushed may be told as lost.
    was_cut: bool,
}

fn start(disk: &Arc<Disk>) -> Host {
    let config = SsdConfig { bytes: BYTES as u64, ..kv_config() };
    let mut host = Host::attach(device_on(config, Box::new(DiskStore(Arc::clone(disk)))));
    host.enable_all();
    host.create_queue_pair(1, 64);
    host
}

impl Machine {
    fn new() -> Self {
        let disk = Disk::new(&vec![0; BYTES], || {});
        let host = start(&disk);
        let (pairs, versions) = (BTreeMap::new(), BTreeMap::new());
        Self { disk, host, pairs, versions, delete_tells: false, is_write_through: false, was_cut: false }
    }

    /// A key has another value, or none.
    fn set(&mut self, name: Name, value: Option<Value>) {
        let old = self.pairs.get(&name).cloned();
        self.versions.entry(name.clone()).or_insert_with(|| vec![old]).push(value.clone());
        match value {
            Some(value) => _ = self.pairs.insert(name, value),
            None => _ = self.pairs.remove(&name),
        }
    }

    /// Set Features, Volatile Write Cache. What was cached when it is disabled is written out.
    fn set_write_cache(&mut self, enabled: bool) {
        self.host.admin(Sqe { cdw10: 0x06, cdw11: enabled.into(), ..sqe(0x09, 0) }).unwrap();
        self.is_write_through = !enabled;
    }

    fn step(&mut self, random: &mut Random) {
        if self.is_write_through && random.below(30) == 0 {
            self.set_write_cache(true);
        }
        let name = random_name(random);
        match random.below(100) {
            0..35 => self.store(random, name),
            35..55 => self.retrieve(random, &name),
            55..70 => self.delete(random, name),
            70..76 => self.exist(random, &name),
            76..82 => self.append(random, name),
            82..86 => self.batch(random),
            86..91 => self.list(random, name.1),
            91..95 => self.iterate(random, &name),
            95 => self.iterate_and_delete(random, &name),
            96 => {
                self.delete_tells = random.below(2) == 0;
                let cdw11 = self.delete_tells.into();
                self.host.admin(Sqe { cdw10: 0x20, cdw11, ..sqe(0x09, 1) }).unwrap();
            }
            97..99 => {
                self.host.io(sqe(0x00, random.pick(&[1, u32::MAX]))).unwrap();
                self.versions.clear();
            }
            _ if random.below(4) == 0 => self.set_write_cache(false),
            _ if random.below(8) == 0 => {
                self.host.admin(Sqe { cdw10: (random.below(2) as u32) << 9, ..sqe(0x80, 1) }).unwrap();
                self.pairs.clear();
                self.versions.clear();
            }
            _ => {}
        }
        if self.is_write_through {
            self.versions.clear();
        }
    }

    fn store(&mut self, random: &mut Random, name: Name) {
        let value = random_value(random);
        let (only_old, only_new) = (random.below(6) == 0, random.below(6) == 0);
        let only_new = only_new && !only_old;
        let exists = self.pairs.contains_key(&name);
        let answer = if is_vendors(random, &name) {
            let compress = random.below(2) as u32;
            let option = u32::from(only_new) << 1 | u32::from(only_old) << 3 | compress;
            let expected = match exists {
                true if only_new => Err(vendor(0x80)),
                false if only_old => Err(vendor(0x10)),
                _ => Ok(0),
            };
            (self.host.vendor_store(VENDOR_STORE, name.0, &name.1, &value, option), expected)
        } else {
            let option = u32::from(only_old) | u32::from(only_new) << 1 | (random.below(2) as u32) << 2;
            let expected = match exists {
                true if only_new => Err(Status::new(0, 0x89)),
                false if only_old => Err(Status::new(0, 0x87)),
                _ => Ok(0),
            };
            (self.host.store_with(&name.1, &value, option), expected)
        };
        assert_eq!(answer.0, answer.1, "store of {} bytes under {name:02x?}", value.len());
        if answer.0.is_ok() {
            self.set(name, Some(value));
        }
    }

    fn retrieve(&mut self, random: &mut Random, name: &Name) {
        let value = self.pairs.get(name);
        let bytes = random.pick(&[0, 100, 4096, 40_000, VALUE_BYTES as usize]);
        let (answer, expected) = if is_vendors(random, name) {
            let offset = random.pick(&[0, 0, 0, 512, 5120, 51_200]);
            let expected = match value {
                None => Err(vendor(0x10)),
                Some(value) if offset > 0 && offset >= value.len() => Err(vendor(0x02)),
                Some(value) => {
                    let end = value.len().min(offset + bytes);
                    Ok((value.len() as u64, value[offset..end].to_vec()))
                }
            };
            (self.host.vendor_retrieve(name.0, &name.1, offset as u32, bytes), expected)
        } else {
            let whole = |value: &Value| (value.len() as u64, value[..value.len().min(bytes)].to_vec());
            let expected = value.map(whole).ok_or(Status::new(0, 0x87));
            (self.host.retrieve_with(standard(RETRIEVE, &name.1), bytes), expected)
        };
        assert!(answer == expected, "retrieve of {name:02x?}: {answer:02x?} and not {expected:02x?}");
    }

    fn delete(&mut self, random: &mut Random, name: Name) {
        let exists = self.pairs.contains_key(&name);
        let (answer, expected) = if is_vendors(random, &name) {
            let option = random.below(2) as u32;
            let expected = if option == 1 && !exists { Err(vendor(0x10)) } else { Ok(0) };
            (self.host.vendor_delete(name.0, &name.1, option), expected)
        } else {
            let expected = if self.delete_tells && !exists { Err(Status::new(0, 0x87)) } else { Ok(0) };
            (self.host.delete(&name.1), expected)
        };
        assert_eq!(answer, expected, "delete of {name:02x?}");
        self.set(name, None);
    }

    fn exist(&mut self, random: &mut Random, name: &Name) {
        let exists = self.pairs.contains_key(name);
        let (answer, missing) = if is_vendors(random, name) {
            (self.host.vendor_exist(name.0, &name.1), vendor(0x10))
        } else {
            (self.host.exist(&name.1), Status::new(0, 0x87))
        };
        assert_eq!(answer, if exists { Ok(0) } else { Err(missing) }, "exist of {name:02x?}");
    }

    fn append(&mut self, random: &mut Random, name: Name) {
        let count = random.below(3000) as usize;
        let more = random.bytes(count);
        let mut value = self.pairs.get(&name).cloned().unwrap_or_default();
        if name.1.len() < 4 || value.len() + more.len() > VALUE_BYTES as usize {
            return;
        }
        value.extend_from_slice(&more);
        let answer = self.host.vendor_store(VENDOR_APPEND, name.0, &name.1, &more, 0);
        assert_eq!(answer, Ok(value.len() as u64), "append to {name:02x?}");
        self.set(name, Some(value));
    }

    /// Stores, and deletes that tell when there is nothing to delete.
    fn batch(&mut self, random: &mut Random) {
        let count = 1 + random.below(8) as usize;
        let mut parts = Vec::new();
        while parts.len() < count {
            let name = random_name(random);
            if name.1.len() >= 4 {
                let count = random.below(5000) as usize;
                parts.push((name, (random.below(3) > 0).then(|| random.bytes(count))));
            }
        }
        let wire: Vec<BatchPart<'_>> = parts
            .iter()
            .map(|((keyspace, key), value)| match value {
                Some(value) => (0x81, *keyspace as u8, 0, &key[..], &value[..]),
                None => (0xa1, *keyspace as u8, 1, &key[..], &[][..]),
            })
            .collect();
        let data = batch_data(&wire);
        let command = self.host.with_value(sqe(VENDOR_BATCH, 1), &data);
        let command = Sqe { cdw10: (data.len() / 4) as u32, cdw11: count as u32, ..command };
        let cqe = self.host.execute(1, command);
        let mut results = 0;
        for (index, (name, value)) in parts.into_iter().enumerate() {
            if value.is_none() && !self.pairs.contains_key(&name) {
                results |= 6 << (4 * index);
            }
            self.set(name, value);
        }
        let status = if results == 0 { Status::SUCCESS } else { vendor(0x10) };
        assert_eq!((cqe.status().kind(), cqe.result()), (status, results));
    }

    fn list(&mut self, random: &mut Random, start: Vec<u8>) {
        let start = if start.len() > 16 || random.below(3) == 0 { Vec::new() } else { start };
        let bytes = random.pick(&[4, 5, 30, 200, 4096]);
        let mut left = bytes - 4;
        let mut expected = Vec::new();
        for (_, key) in self.pairs.keys().filter(|(keyspace, key)| *keyspace == 0 && *key >= start) {
            if key.len() > 16 {
                continue;
            }
            let record = (2 + key.len()).next_multiple_of(4);
            if record > left {
                break;
            }
            left -= record;
            expected.push(key.clone());
        }
        let listed = self.host.list(&start, bytes).unwrap().0;
        assert_eq!(listed, expected, "from {start:02x?} into {bytes} bytes");
    }

    /// The keys that an iterator like one for `name` is about, and prefix and mask of it.
    fn matching(&self, random: &mut Random, (keyspace, key): &Name) -> (Vec<Name>, [u8; 4], u32) {
        let first = |key: &[u8]| [0, 1, 2, 3].map(|index| key.get(index).copied().unwrap_or(0));
        let mask = random.pick(&[0, 0xf000_0000, 0xff00_0000, 0xffff_0000, u32::MAX]);
        let masked = |key: &[u8]| u32::from_be_bytes(first(key)) & mask;
        let names = self.pairs.keys().filter(|name| name.0 == *keyspace && masked(&name.1) == masked(key));
        (names.cloned().collect(), first(key), mask)
    }

    fn iterate(&mut self, random: &mut Random, name: &Name) {
        let (expected, prefix, mask) = self.matching(random, name);
        let id = self.host.iterate_open(name.0, prefix, mask, 0x04).unwrap();
        let mut found = Vec::new();
        loop {
            let (status, data) = self.host.iterate_read(id);
            found.extend(keys_of(&data).into_iter().map(|key| (name.0, key)));
            match status {
                Status::SUCCESS => {}
                status => break assert_eq!(status, vendor(0x93)),
            }
        }
        assert_eq!(found, expected, "prefix {prefix:02x?}, mask {mask:08x}");
        self.host.iterate_close(id).unwrap();
    }

    fn iterate_and_delete(&mut self, random: &mut Random, name: &Name) {
        let (doomed, prefix, mask) = self.matching(random, name);
        let id = self.host.iterate_open(name.0, prefix, mask, 0x10).unwrap();
        let mut turns = 0;
        loop {
            let log = Sqe { cdw10: 127 << 16 | 0xd0, ..sqe(0x02, 1) };
            let entry = 16 * (id as usize - 1);
            if self.host.admin_in(log, 512).unwrap()[entry + 12] == 1 {
                break;
            }
            turns += 1;
            assert!(turns < 1000, "the iterator does not end");
            self.host.advance();
        }
        self.host.iterate_close(id).unwrap();
        for name in doomed {
            self.set(name, None);
        }
    }

    /// The value of a key, by whichever command set has such keys.
    fn value(&mut self, random: &mut Random, name: &Name) -> Option<Value> {
        let (found, missing) = if is_vendors(random, name) {
            let found = self.host.vendor_retrieve(name.0, &name.1, 0, VALUE_BYTES as usize);
            (found, vendor(0x10))
        } else {
            (self.host.retrieve(&name.1, VALUE_BYTES as usize), Status::new(0, 0x87))
        };
        match found {
            Ok((_, value)) => Some(value),
            Err(status) => {
                assert_eq!(status, missing, "{name:02x?}");
                None
            }
        }
    }

    /// Everything is there, and nothing else.
    fn check(&mut self, random: &mut Random) {
        for (name, value) in self.pairs.clone() {
            assert!(self.value(random, &name) == Some(value), "{name:02x?}");
        }
        let stats = self.host.ssd.kv_stats(Nsid(1)).unwrap();
        assert_eq!(stats.pairs, self.pairs.len() as u64);
        let checked = self.host.ssd.check();
        assert!(self.was_cut || checked.iter().all(|namespace| namespace.lost.is_empty()), "{checked:?}");
    }

    /// The device ends in order, is killed, or loses its power, and is there again.
    fn end(&mut self, random: &mut Random) {
        let how = random.below(3);
        if how == 2 {
            // CC.SHN, a normal shutdown: what the power cut after it leaves is everything.
            self.host.write32(0x14, 0x0046_4061);
        }
        // What a device that is killed does when it is dropped, later, nobody sees.
        let image =
            if how == 0 { self.disk.image() } else { self.disk.cut_power(|limit| random.below(limit)) };
        let state = self.disk.state.lock().unwrap().clone();
        self.disk = Disk::new(&image, || {});
        *self.disk.state.lock().unwrap() = state;
        self.host = start(&self.disk);
        (self.delete_tells, self.is_write_through) = (false, false);
        let versions = std::mem::take(&mut self.versions);
        self.was_cut |= how == 1;
        if how == 1 {
            for (name, versions) in versions {
                let found = self.value(random, &name);
                assert!(versions.contains(&found), "{name:02x?} is what it never was");
                match found {
                    Some(value) => _ = self.pairs.insert(name, value),
                    None => _ = self.pairs.remove(&name),
                }
            }
        }
        self.check(random);
    }
}

#[test]
fn random_commands_of_both_command_sets_give_what_a_map_gives_over_kills_and_power_cuts() {
    let mut random = Random::from_environment();
    let mut machine = Machine::new();
    for _ in 0..STEPS {
        machine.step(&mut random);
        // More often where the last command alone has to survive.
        if random.below(if machine.is_write_through { 15 } else { 150 }) == 0 {
            machine.end(&mut random);
        }
    }
    machine.check(&mut random);
}
