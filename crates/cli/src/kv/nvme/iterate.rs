//! `open-it`, `read-it`, `close-it`.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::Args;
use unvme::{Kv, Nsid};
use unvme_spec::samsung_kv::{
    ITERATE_BUFFER_BYTES, ITERATE_HEADER_BYTES, IterateType, IterateWriter, Prefix, status,
};

use super::Common;
use super::iterators::Iterators;
use crate::count::count;
use crate::exit::{Failed, usage};
use crate::guide;
use crate::kv::place::{bytes_of, choose, shown};
use crate::numbers;
use crate::output::write_raw;
use crate::target::DeviceArg;

/// Fewest bytes a key takes in the buffer of a read: its length and four bytes.
const RECORD_BYTES_MIN: usize = 8;
/// Keys that are deleted before the listing begins anew.
const DELETE_CHUNK: usize = 4096;

#[derive(Clone, Debug, Args)]
pub(crate) struct OpenIt {
    #[command(flatten)]
    device: DeviceArg,
    /// First four bytes of the keys, as a big-endian number
    #[arg(short, long, value_name = "PREFIX", default_value = "0x0", value_parser = numbers::u32)]
    prefix: u32,
    /// Bits of the prefix that count, ones from the most significant one on
    #[arg(short, long, value_name = "BITMASK", default_value = "0xffffffff", value_parser = numbers::u32)]
    bitmask: u32,
    /// Type: 1 keys, 3 delete the pairs; 2 is taken for 1, as in the guide's example
    #[arg(short = 'i', long = "type", value_name = "TYPE", default_value = "1", value_parser = clap::value_parser!(u8).range(1..=3))]
    kind: u8,
    #[command(flatten)]
    common: Common,
}

impl OpenIt {
    pub(crate) fn run(self) -> Result<()> {
        let keys = Prefix { prefix: self.prefix, bitmask: self.bitmask };
        if !keys.is_contiguous() {
            return Err(usage(format!(
                "-b {:#x}: expected ones from the most significant bit on, such as 0xffff0000",
                self.bitmask
            )));
        }
        self.common.show(
            "open-it",
            &[
                ("device", self.device.device.clone()),
                ("prefix", format!("{:#010x}", self.prefix)),
                ("bitmask", format!("{:#010x}", self.bitmask)),
                ("type", self.kind.to_string()),
            ],
        )?;
        let kind = if self.kind == 3 { IterateType::KeyDelete } else { IterateType::Key };
        let mut iterators = Iterators::of(&self.device.device)?;
        // Opened in any case: an iterator of a device that is not there would be of no use.
        let mut kv = open(&self.device, self.common.namespace)?;
        let begin = Instant::now();
        let iterator = iterators.open(self.common.namespace, kind.number(), keys)?;
        let id = iterator.id;
        let mut line = format!("open-it: Success, iterator id {id}\n");
        if kind == IterateType::KeyDelete {
            let deleted = delete_all(&mut kv, keys)?;
            iterator.ended = true;
            line = format!("open-it: Success, iterator id {id}, {} deleted\n", count(deleted, "pair"));
        }
        iterators.save()?;
        self.common.tell("open-it", begin.elapsed())?;
        write_raw(line.as_bytes())
    }
}

/// Arguments of `read-it`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
The keys are printed one on a line, with \\xNN for what cannot be printed. A file gets the
device's own form: the number of keys as 4 bytes in little endian order, then for each its
length in 4 bytes, the key, and zeroes up to a multiple of 4. The exit code is 1 when no key is
left.")]
pub(crate) struct ReadIt {
    #[command(flatten)]
    device: DeviceArg,
    /// Identifier of the iterator
    #[arg(short = 'i', long, value_name = "ID", value_parser = numbers::u8)]
    iterator_id: u8,
    /// Bytes of the buffer that the keys have to fit into
    #[arg(short = 's', long = "value-size", value_name = "BYTES", default_value = "32768", value_parser = clap::value_parser!(u32).range(264..=i64::from(ITERATE_BUFFER_BYTES)))]
    size: u32,
    /// File for the buffer
    #[arg(short, long = "value", value_name = "FILE")]
    value: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

impl ReadIt {
    pub(crate) fn run(self) -> Result<()> {
        self.common.show(
            "read-it",
            &[
                ("device", self.device.device.clone()),
                ("iterator", self.iterator_id.to_string()),
                ("value_size", self.size.to_string()),
            ],
        )?;
        let mut iterators = Iterators::of(&self.device.device)?;
        let iterator = iterators.get("read-it", self.iterator_id)?;
        if iterator.kind == IterateType::KeyDelete.number() {
            let text = guide::status_text(status::ITERATE_REQUEST_FAIL);
            return Err(Failed(format!("read-it: an iterator that deletes returns no keys: {text}")).into());
        }
        let mut page = Page::new(self.size as usize);
        let mut begin = Instant::now();
        if !iterator.ended {
            let mut kv = open(&self.device, iterator.keyspace)?;
            let last = iterator.last_key.as_deref().map(|digits| bytes_of(digits, true)).transpose()?;
            // Without the time that it takes to open the device, as for the other commands.
            begin = Instant::now();
            page.read(&mut kv, iterator.keys(), last.as_deref())?;
            if let Some(key) = page.keys.last() {
                iterator.move_behind(key);
            }
            iterator.ended = page.is_last;
            iterators.save()?;
        }
        self.common.tell("read-it", begin.elapsed())?;
        if page.keys.is_empty() {
            return Err(Failed(format!("read-it: {}", guide::status_text(status::ITERATE_END))).into());
        }
        page.show(self.value.as_ref())
    }
}

/// What one read returns.
struct Page {
    bytes: usize,
    keys: BTreeSet<Vec<u8>>,
    /// No key is behind these.
    is_last: bool,
}

impl Page {
    fn new(bytes: usize) -> Self {
        Self { bytes, keys: BTreeSet::new(), is_last: true }
    }

    /// Finds the keys next to `last` in byte order. All are looked at, as not all of them come in order, and
    /// only as many kept as fit.
    fn read(&mut self, kv: &mut Kv, wanted: Prefix, last: Option<&[u8]>) -> Result<()> {
        let most = (self.bytes - ITERATE_HEADER_BYTES) / RECORD_BYTES_MIN;
        let mut more = false;
        for key in kv.prefix(&whole_bytes(wanted))? {
            let key = key?;
            if !wanted.matches(&key) || last.is_some_and(|last| key.as_slice() <= last) {
                continue;
            }
            self.keys.insert(key);
            if self.keys.len() > most {
                self.keys.pop_last();
                more = true;
            }
        }
        let fitting = self.fitting();
        more |= fitting < self.keys.len();
        while self.keys.len() > fitting {
            self.keys.pop_last();
        }
        self.is_last = !more;
        Ok(())
    }

    /// How many of the keys fit.
    fn fitting(&self) -> usize {
        let mut buffer = vec![0; self.bytes];
        let Some(mut writer) = IterateWriter::new(&mut buffer) else { return 0 };
        self.keys.iter().take_while(|key| writer.push_key(key)).count()
    }

    fn show(&self, path: Option<&PathBuf>) -> Result<()> {
        let end = if self.is_last { ", the last" } else { "" };
        let line = format!("read-it: Success, {}{end}\n", count(self.keys.len(), "key"));
        let Some(path) = path else {
            let keys: String = self.keys.iter().map(|key| shown(key) + "\n").collect();
            write_raw(keys.as_bytes())?;
            // The output is keys; what is said about them is not one.
            return Ok(std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes())?);
        };
        let mut buffer = vec![0; self.bytes];
        let used = IterateWriter::new(&mut buffer).map_or(0, |mut writer| {
            self.keys.iter().take_while(|key| writer.push_key(key)).count();
            writer.finish()
        });
        std::fs::write(path, &buffer[..used]).with_context(|| format!("write {}", path.display()))?;
        write_raw(line.as_bytes())
    }
}

#[derive(Clone, Debug, Args)]
pub(crate) struct CloseIt {
    #[command(flatten)]
    device: DeviceArg,
    /// Identifier of the iterator
    #[arg(short = 'i', long, value_name = "ID", value_parser = numbers::u8)]
    iterator_id: u8,
}

impl CloseIt {
    pub(crate) fn run(self) -> Result<()> {
        let mut iterators = Iterators::of(&self.device.device)?;
        iterators.close(self.iterator_id)?;
        iterators.save()?;
        write_raw(b"close-it: Success\n")
    }
}

fn open(device: &DeviceArg, keyspace: u8) -> Result<Kv> {
    let device = device.open()?;
    let nsid: Nsid = choose(&device, None)?;
    Ok(device.kv(nsid)?.keyspace(keyspace)?)
}

/// Those bytes of a prefix of which all bits count: the device is asked for keys that begin with them.
fn whole_bytes(keys: Prefix) -> Vec<u8> {
    let whole = keys.bitmask.leading_ones() as usize / 8;
    keys.prefix.to_be_bytes()[..whole].to_vec()
}

/// Deletes the pairs that an iterator is about; their number.
fn delete_all(kv: &mut Kv, keys: Prefix) -> Result<u64> {
    let prefix = whole_bytes(keys);
    let mut deleted = 0;
    loop {
        let matching = kv.prefix(&prefix)?.filter(|key| key.as_ref().map_or(true, |key| keys.matches(key)));
        let chunk: Vec<Vec<u8>> = matching.take(DELETE_CHUNK).collect::<Result<_, _>>()?;
        if chunk.is_empty() {
            return Ok(deleted);
        }
        for key in &chunk {
            deleted += u64::from(kv.delete(key)?);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_bytes_that_count_whole_are_asked_for() {
        let bytes = |bitmask| whole_bytes(Prefix { prefix: 0x3031_3233, bitmask });
        assert_eq!(bytes(0xffff_ffff), b"0123");
        assert_eq!(bytes(0xfff0_0000), b"0");
        assert_eq!(bytes(0xf000_0000), b"");
        assert_eq!(bytes(0), b"");
    }
}
