//! `write`, `read`, `delete`, `exist`.

use std::fs::File;
use std::io::Read as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use unvme::{
    Device, DmaBuf, KvCompletion, KvKey, KvQueue, Nsid, Op, QueueOptions, StoreCondition, StoreOptions,
};

use super::Common;
use crate::count::count;
use crate::exit::{Failed, usage};
use crate::guide;
use crate::kv::place::{bytes_of, choose, shown};
use crate::numbers;
use crate::output::write_raw;
use crate::target::DeviceArg;

/// A wait that is this long is over only because the device is gone.
const LIMIT: Duration = Duration::from_secs(60);

/// The key a command is about.
#[derive(Clone, Debug, Args)]
pub(crate) struct KeyArg {
    /// Key
    #[arg(short, long, value_name = "KEY")]
    key: String,
    /// Bytes of the key
    #[arg(short = 'l', long = "key-len", value_name = "BYTES", value_parser = numbers::u32)]
    key_len: u32,
    /// The key is hexadecimal, two digits for each byte
    #[arg(long)]
    key_hex: bool,
}

impl KeyArg {
    /// As many bytes of the key as the length says.
    fn bytes(&self) -> Result<Vec<u8>> {
        let mut key = bytes_of(&self.key, self.key_hex)?;
        let length = self.key_len as usize;
        if key.len() < length {
            return Err(usage(format!("-l {length}: the key {} has {} bytes", self.key, key.len())));
        }
        key.truncate(length);
        Ok(key)
    }
}

/// A queue, and how commands on it are waited for.
struct Line {
    device: Device,
    queue: KvQueue,
    common: Common,
}

impl Line {
    fn open(device: &DeviceArg, common: Common) -> Result<Self> {
        let device = device.open()?;
        let nsid: Nsid = choose(&device, None)?;
        let options = QueueOptions { long_keys: true, ..QueueOptions::default() };
        let queue = device.kv(nsid)?.queue(&options)?;
        Ok(Self { device, queue, common })
    }

    /// Does one command and tells how long it took.
    fn run(&mut self, what: &str, op: Op<'_>, buf: Option<DmaBuf>) -> Result<KvCompletion> {
        let begin = Instant::now();
        self.device.admin(|_| self.queue.submit(op, buf, 0).map_err(|rejected| rejected.error))?;
        self.device.admin(|_| self.queue.ring())?;
        loop {
            if let Some(completion) = self.queue.poll(1).next() {
                self.common.tell(what, begin.elapsed())?;
                return Ok(completion);
            }
            if begin.elapsed() > LIMIT {
                bail!("{what}: the device did not answer in {} s", LIMIT.as_secs());
            }
            if !self.common.is_async {
                self.device.admin(|_| self.queue.wait(LIMIT))?;
            }
        }
    }

    /// Does a command that has to succeed.
    fn done(&mut self, what: &str, key: &[u8], op: Op<'_>, buf: Option<DmaBuf>) -> Result<KvCompletion> {
        let completion = self.run(what, op, buf)?;
        if completion.status.is_success() {
            return Ok(completion);
        }
        let text = guide::status_text(completion.status);
        Err(Failed(format!("{what}: {}: {text}", shown(key))).into())
    }
}

impl Common {
    /// Shows the arguments of a command on a pair, when they are to be shown.
    fn show_pair(self, command: &str, on: &DeviceArg, key: &[u8], others: &[(&str, String)]) -> Result<()> {
        let pair = [("device", on.device.clone()), ("key", shown(key)), ("key_len", key.len().to_string())];
        self.show(command, &[&pair, others].concat())
    }
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Write {
    #[command(flatten)]
    device: DeviceArg,
    #[command(flatten)]
    key: KeyArg,
    /// File with the value; what it lacks in bytes are zeroes
    #[arg(short, long = "value", value_name = "FILE")]
    value: PathBuf,
    /// Bytes of the value
    #[arg(short = 's', long = "value-size", value_name = "BYTES", value_parser = numbers::u32)]
    size: u32,
    /// Not supported but as 0
    #[arg(short, long, value_name = "BYTES", default_value = "0", value_parser = numbers::u32)]
    offset: u32,
    /// 0: default, 1: only when the key does not exist
    #[arg(short = 'i', long = "io-option", value_name = "OPTION", default_value = "0", value_parser = clap::value_parser!(u8).range(0..=1))]
    option: u8,
    #[command(flatten)]
    common: Common,
}

impl Write {
    pub(crate) fn run(self) -> Result<()> {
        if self.offset != 0 {
            return Err(usage("write: an offset is not supported; a value is written whole"));
        }
        let key = self.key.bytes()?;
        let what = || format!("read {}", self.value.display());
        let mut value = Vec::new();
        // What is longer is cut.
        let file = File::open(&self.value).with_context(what)?;
        file.take(self.size.into()).read_to_end(&mut value).with_context(what)?;
        let there = value.len();
        value.resize(self.size as usize, 0);
        self.common.show_pair(
            "write",
            &self.device,
            &key,
            &[
                ("value", format!("{} ({there} bytes)", self.value.display())),
                ("value_size", self.size.to_string()),
                ("option", self.option.to_string()),
            ],
        )?;
        let mut line = Line::open(&self.device, self.common)?;
        let bytes = value.len();
        let buf = match bytes {
            0 => None,
            _ => {
                let mut buf = line.queue.alloc(bytes)?;
                buf.write(0, &value);
                Some(buf)
            }
        };
        let condition = if self.option == 1 { StoreCondition::IfNotExists } else { StoreCondition::Always };
        let options = StoreOptions { condition, compress: false };
        let key_of = KvKey { keyspace: self.common.namespace, bytes: &key };
        line.done("write", &key, Op::Store { key: key_of, bytes, options }, buf)?;
        write_raw(format!("write: Success, {}\n", count(bytes, "byte")).as_bytes())
    }
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Read {
    #[command(flatten)]
    device: DeviceArg,
    #[command(flatten)]
    key: KeyArg,
    /// Most bytes to read
    #[arg(short = 's', long = "value-size", value_name = "BYTES", value_parser = numbers::u32)]
    size: u32,
    /// File for the value; standard output when left out
    #[arg(short, long = "value", value_name = "FILE")]
    value: Option<PathBuf>,
    /// First byte of the value, a multiple of 512
    #[arg(short, long, value_name = "BYTES", default_value = "0", value_parser = numbers::u32)]
    offset: u32,
    /// 0: default, 2: only the size of the value
    #[arg(short = 'i', long = "io-option", value_name = "OPTION", default_value = "0", value_parser = ["0", "2"])]
    option: String,
    #[command(flatten)]
    common: Common,
}

impl Read {
    pub(crate) fn run(self) -> Result<()> {
        let key = self.key.bytes()?;
        let size_only = self.option == "2";
        self.common.show_pair(
            "read",
            &self.device,
            &key,
            &[
                ("value_size", self.size.to_string()),
                ("offset", self.offset.to_string()),
                ("option", self.option.clone()),
            ],
        )?;
        let mut line = Line::open(&self.device, self.common)?;
        // The device moves whole dwords; what is more than was asked for is dropped here.
        let bytes = if size_only { 0 } else { (self.size as usize).next_multiple_of(4) };
        let buf = if bytes == 0 { None } else { Some(line.queue.alloc(bytes)?) };
        let key_of = KvKey { keyspace: self.common.namespace, bytes: &key };
        let retrieve = Op::Retrieve { key: key_of, offset: self.offset, bytes };
        let completion = line.done("read", &key, retrieve, buf)?;
        if size_only {
            return write_raw(format!("{}\n", completion.value_bytes).as_bytes());
        }
        let behind = completion.value_bytes.saturating_sub(self.offset) as usize;
        let mut value = vec![0; behind.min(self.size as usize)];
        if let Some(buf) = &completion.buf {
            buf.read(0, &mut value);
        }
        let line = format!("read: Success, {} of {}\n", value.len(), count(completion.value_bytes, "byte"));
        let Some(path) = &self.value else {
            write_raw(&value)?;
            if value.len() < behind {
                // The output is the value; that there is more of it is not seen there.
                std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes())?;
            }
            return Ok(());
        };
        std::fs::write(path, &value).with_context(|| format!("write {}", path.display()))?;
        write_raw(line.as_bytes())
    }
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Delete {
    #[command(flatten)]
    device: DeviceArg,
    #[command(flatten)]
    key: KeyArg,
    /// 0: default, 1: a key that does not exist is an error
    #[arg(short = 'i', long = "io-option", value_name = "OPTION", default_value = "0", value_parser = clap::value_parser!(u8).range(0..=1))]
    option: u8,
    #[command(flatten)]
    common: Common,
}

impl Delete {
    pub(crate) fn run(self) -> Result<()> {
        let key = self.key.bytes()?;
        self.common.show_pair("delete", &self.device, &key, &[("option", self.option.to_string())])?;
        let mut line = Line::open(&self.device, self.common)?;
        let key_of = KvKey { keyspace: self.common.namespace, bytes: &key };
        let completion = line.run("delete", Op::Delete { key: key_of, must_exist: true }, None)?;
        let gone = guide::is_missing(completion.status) && self.option == 0;
        if !completion.status.is_success() && !gone {
            let text = guide::status_text(completion.status);
            return Err(Failed(format!("delete: {}: {text}", shown(&key))).into());
        }
        write_raw(b"delete: Success\n")
    }
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Exist {
    #[command(flatten)]
    device: DeviceArg,
    #[command(flatten)]
    key: KeyArg,
    /// 0: default
    #[arg(short = 'i', long = "io-option", value_name = "OPTION", default_value = "0", value_parser = ["0"])]
    option: String,
    #[command(flatten)]
    common: Common,
}

impl Exist {
    pub(crate) fn run(self) -> Result<()> {
        let key = self.key.bytes()?;
        self.common.show_pair("exist", &self.device, &key, &[("option", self.option.clone())])?;
        let mut line = Line::open(&self.device, self.common)?;
        let key_of = KvKey { keyspace: self.common.namespace, bytes: &key };
        line.done("exist", &key, Op::Exist(key_of), None)?;
        write_raw(b"exist: the key exists\n")
    }
}
