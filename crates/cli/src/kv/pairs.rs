//! Commands on one pair.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use unvme::StoreOptions;

use super::place::{KeyArg, Place, key_fields, shown};
use crate::count::count;
use crate::exit::{Failed, usage};
use crate::numbers;
use crate::output::{Format, Output, write_raw};
use crate::show::hex;
use crate::target::Force;
use crate::value::Value;

/// Most bytes that are read for a value: what any device takes.
const VALUE_BYTES_MAX: u64 = 256 << 20;

/// A value as it is given.
#[derive(Clone, Debug, Args)]
struct ValueArg {
    /// Value; from --file or standard input when left out
    #[arg(value_name = "VALUE", conflicts_with = "file")]
    value: Option<String>,
    /// File with the value, or `-` for standard input
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
}

impl ValueArg {
    fn bytes(&self) -> Result<Vec<u8>> {
        if let Some(value) = &self.value {
            return Ok(value.as_bytes().to_vec());
        }
        match self.file.as_deref().filter(|path| path.as_os_str() != "-") {
            Some(path) => {
                let what = || format!("read {}", path.display());
                read_all(File::open(path).with_context(what)?, &path.display().to_string()).with_context(what)
            }
            None => read_all(io::stdin().lock(), "standard input").context("read standard input"),
        }
    }
}

fn read_all(input: impl Read, name: &str) -> Result<Vec<u8>> {
    let mut value = Vec::new();
    let bytes = input.take(VALUE_BYTES_MAX + 1).read_to_end(&mut value)? as u64;
    if bytes > VALUE_BYTES_MAX {
        return Err(usage(format!("{name}: a value has at most {VALUE_BYTES_MAX} bytes")));
    }
    Ok(value)
}

/// Arguments of `kv store`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  unvme kv store 0000:02:00.0 user:1 Ada
  unvme kv store 0000:02:00.0 user:2 --file ada.bin --if-not-exists
  unvme kv store 0000:02:00.0 --key-hex 00ff01 < value.bin")]
pub(crate) struct Store {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    key: KeyArg,
    #[command(flatten)]
    value: ValueArg,
    /// Only when the key exists
    #[arg(long, conflicts_with = "if_not_exists")]
    if_exists: bool,
    /// Only when the key does not exist
    #[arg(long)]
    if_not_exists: bool,
    /// Ask the device to compress the value
    #[arg(long)]
    compress: bool,
    #[command(flatten)]
    force: Force,
    #[command(flatten)]
    output: Output,
}

impl Store {
    pub(crate) fn run(self) -> Result<()> {
        let (key, value) = (self.key.bytes()?, self.value.bytes()?);
        let condition = match (self.if_exists, self.if_not_exists) {
            (true, _) => StoreOptions::IF_EXISTS,
            (_, true) => StoreOptions::IF_NOT_EXISTS,
            _ => StoreOptions::default(),
        };
        let options = StoreOptions { compress: self.compress, ..condition };
        let mut kv = self
            .place
            .open_to_change(self.force, &format!("kv store overwrites the value of {}", shown(&key)))?;
        kv.store(&key, &value, options)?;
        kv.flush()?;
        let json = key_fields(&key).with("value_bytes", value.len() as u64);
        self.output.output.say(json, format!("store: Success, {}", count(value.len(), "byte")))
    }
}

/// Arguments of `kv append`.
#[derive(Debug, Args)]
#[command(after_help = "Example: unvme kv append 0000:02:00.0 log:1 'another line'")]
pub(crate) struct Append {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    key: KeyArg,
    #[command(flatten)]
    value: ValueArg,
    #[command(flatten)]
    force: Force,
    #[command(flatten)]
    output: Output,
}

impl Append {
    pub(crate) fn run(self) -> Result<()> {
        let (key, value) = (self.key.bytes()?, self.value.bytes()?);
        let mut kv = self
            .place
            .open_to_change(self.force, &format!("kv append changes the value of {}", shown(&key)))?;
        kv.append(&key, &value)?;
        kv.flush()?;
        let json = key_fields(&key).with("appended_bytes", value.len() as u64);
        self.output.output.say(json, format!("append: Success, {}", count(value.len(), "byte")))
    }
}

/// Form of a value on standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Show {
    /// The bytes as they are.
    Raw,
    /// A dump with offsets and characters.
    Hex,
}

/// Arguments of `kv retrieve`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  unvme kv retrieve 0000:02:00.0 user:1
  unvme kv retrieve 0000:02:00.0 user:1 --offset 512 --length 100 --show hex
  unvme kv retrieve 0000:02:00.0 user:1 --size-only
  unvme kv retrieve 0000:02:00.0 user:1 --output json")]
pub(crate) struct Retrieve {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    key: KeyArg,
    /// First byte of the value
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = numbers::u32)]
    offset: u32,
    /// Most bytes of it; to its end when left out
    #[arg(long, value_name = "BYTES", value_parser = numbers::bytes)]
    length: Option<u64>,
    /// Tell the size of the value, without its data
    #[arg(long, conflicts_with_all = ["offset", "length", "file", "show"])]
    size_only: bool,
    /// File for the value; standard output when left out
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Form of the value on standard output
    #[arg(long, value_name = "FORM", default_value = "raw", conflicts_with = "file")]
    show: Show,
    #[command(flatten)]
    output: Output,
}

impl Retrieve {
    pub(crate) fn run(self) -> Result<()> {
        let key = self.key.bytes()?;
        let mut kv = self.place.open()?;
        let format = self.output.output;
        if self.size_only {
            let Some(bytes) = kv.value_bytes(&key)? else { return Err(missing("retrieve", &key)) };
            return format.say(key_fields(&key).with("value_bytes", bytes), bytes.to_string());
        }
        let found = match (self.offset, self.length) {
            (0, None) => kv.retrieve(&key)?.map(|value| (value.len() as u64, value)),
            (offset, length) => part(&mut kv, &key, offset, length)?,
        };
        let Some((value_bytes, value)) = found else { return Err(missing("retrieve", &key)) };
        if let Some(path) = &self.file {
            write_file(path, &value)?;
            let json = key_fields(&key).with("value_bytes", value_bytes).with("bytes", value.len() as u64);
            let line = format!("retrieve: Success, {} of {}", value.len(), count(value_bytes, "byte"));
            return format.say(json, line);
        }
        match (format, self.show) {
            (Format::Json, _) => {
                let json = key_fields(&key).with("value_bytes", value_bytes).with("offset", self.offset);
                let json = json.with("value", std::str::from_utf8(&value).ok());
                format.say(json.with("value_hex", hex::text(&value)), "")
            }
            (Format::Text, Show::Raw) => {
                write_raw(&value)?;
                // So that a shell's prompt is not behind the value.
                let is_open = io::stdout().is_terminal() && !value.ends_with(b"\n");
                if is_open { write_raw(b"\n") } else { Ok(()) }
            }
            (Format::Text, Show::Hex) => format.show(Value::Flag(true), |out| hex::write(out, &value)),
        }
    }
}

/// A part of a value, and the size of all of it.
fn part(kv: &mut unvme::Kv, key: &[u8], offset: u32, length: Option<u64>) -> Result<Option<(u64, Vec<u8>)>> {
    let Some(value_bytes) = kv.value_bytes(key)? else { return Ok(None) };
    let behind = value_bytes.saturating_sub(offset.into());
    let mut value = vec![0; length.map_or(behind, |length| length.min(behind)) as usize];
    let Some(got) = kv.retrieve_into(key, offset, &mut value)? else { return Ok(None) };
    value.truncate(got.copied);
    Ok(Some((got.value_bytes, value)))
}

fn write_file(path: &Path, value: &[u8]) -> Result<()> {
    let written = File::create(path).and_then(|file| {
        let mut out = BufWriter::new(file);
        out.write_all(value)?;
        out.flush()
    });
    written.with_context(|| format!("write {}", path.display()))
}

/// Arguments of `kv delete`.
#[derive(Debug, Args)]
#[command(after_help = "Example: unvme kv delete 0000:02:00.0 user:1")]
pub(crate) struct Delete {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    key: KeyArg,
    /// A key that does not exist is no error
    #[arg(long)]
    ignore_missing: bool,
    #[command(flatten)]
    force: Force,
    #[command(flatten)]
    output: Output,
}

impl Delete {
    pub(crate) fn run(self) -> Result<()> {
        let key = self.key.bytes()?;
        let mut kv =
            self.place.open_to_change(self.force, &format!("kv delete destroys the pair {}", shown(&key)))?;
        let deleted = kv.delete(&key)?;
        if !deleted && !self.ignore_missing {
            return Err(missing("delete", &key));
        }
        kv.flush()?;
        let line = if deleted { "delete: Success" } else { "delete: there was no such key" };
        self.output.output.say(key_fields(&key).with("deleted", deleted), line)
    }
}

/// Arguments of `kv exist`.
#[derive(Debug, Args)]
#[command(after_help = "\
The exit code is 0 when the key exists and 1 when it does not.

Example: unvme kv exist 0000:02:00.0 user:1 && echo there")]
pub(crate) struct Exist {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    key: KeyArg,
    #[command(flatten)]
    output: Output,
}

impl Exist {
    pub(crate) fn run(self) -> Result<()> {
        let key = self.key.bytes()?;
        let exists = self.place.open()?.exist(&key)?;
        if exists || self.output.output == Format::Json {
            let json = key_fields(&key).with("exists", exists);
            self.output.output.say(json, "exist: the key exists")?;
        }
        if exists { Ok(()) } else { Err(missing("exist", &key)) }
    }
}

/// The device works, and there is no such key.
fn missing(what: &str, key: &[u8]) -> anyhow::Error {
    Failed(format!("{what}: there is no key {}", shown(key))).into()
}
