//! `get-log`.

use anyhow::Result;
use clap::Args;
use unvme::{Device, LogRequest, Nsid};
use unvme_spec::log_page;
use unvme_spec::samsung_log::{ExtendedSmartLog, IteratorLog, WafLog, lid};
use zerocopy::FromBytes;

use crate::exit::usage;
use crate::numbers;
use crate::output::{LongOutput, write_raw};
use crate::show::{hex, key_value};
use crate::target::DeviceArg;
use crate::value::fields;

/// Most bytes of a log page this command asks for.
const LOG_BYTES_MAX: u64 = 64 << 20;

/// Arguments of `get-log`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  unvme get-log 0000:02:00.0 --log-id 2 --log-len 512
  unvme get-log 0000:02:00.0 -i 5 -l 4096 --raw-binary > effects.bin
  unvme get-log 0000:02:00.0 -i 0xc0 -l 1024     counters of a KV SSD; also 0xca and 0xd0 with 512")]
pub(crate) struct GetLog {
    #[command(flatten)]
    device: DeviceArg,
    /// Log page to read
    #[arg(short = 'i', long, value_name = "ID", value_parser = numbers::u8)]
    log_id: u8,
    /// Bytes to read
    #[arg(short = 'l', long, value_name = "BYTES", value_parser = numbers::bytes)]
    log_len: u64,
    /// First byte, a multiple of 4
    #[arg(short = 'o', long, value_name = "OFFSET", default_value = "0", value_parser = numbers::bytes)]
    lpo: u64,
    /// Log specific parameter
    #[arg(short = 's', long, value_name = "LSP", default_value = "0", value_parser = numbers::u8)]
    lsp: u8,
    /// Log specific identifier
    #[arg(short = 'S', long, value_name = "LSI", default_value = "0", value_parser = numbers::u16)]
    lsi: u16,
    /// Command set identifier
    #[arg(short = 'y', long, value_name = "CSI", default_value = "0", value_parser = numbers::u8)]
    csi: u8,
    /// Retain the asynchronous event that the page clears
    #[arg(short, long)]
    rae: bool,
    /// Namespace, for pages that have a scope of one
    #[arg(short, long, value_name = "NSID", default_value = "0xffffffff", value_parser = numbers::u32)]
    namespace_id: u32,
    /// Write the bytes as they are
    #[arg(short = 'b', long)]
    raw_binary: bool,
    #[command(flatten)]
    output: LongOutput,
}

impl GetLog {
    pub(crate) fn run(self) -> Result<()> {
        if !(1..=LOG_BYTES_MAX).contains(&self.log_len) {
            return Err(usage(format!("--log-len {}: expected 1 to {LOG_BYTES_MAX} bytes", self.log_len)));
        }
        let device = self.device.open()?;
        let length = self.log_len as usize;
        let request = LogRequest {
            nsid: Nsid(self.namespace_id),
            lid: self.log_id,
            lsp: self.lsp,
            lsi: self.lsi,
            csi: self.csi,
            offset: self.lpo,
            // The device counts in dwords.
            bytes: length.next_multiple_of(4),
            retain_async_event: self.rae,
        };
        let mut bytes = device.admin(|controller| controller.get_log(&request))?;
        bytes.truncate(length);
        if self.raw_binary {
            return write_raw(&bytes);
        }
        if let Some(result) = self.show_known(&device, &bytes) {
            return result;
        }
        let json = fields! {
            "device": device.name(), "log_id": self.log_id,
            "name": log_page::lid::name(self.log_id).unwrap_or("Unknown"), "namespace_id": self.namespace_id,
            "offset": self.lpo, "data": hex::text(&bytes),
        };
        self.output.output.show(json, |out| {
            let (name, id, nsid) = (device.name(), self.log_id, self.namespace_id);
            writeln!(out, "Device:{name} log-id:{id} namespace-id:{nsid:#x}")?;
            hex::write(out, &bytes)
        })
    }

    /// Pages of Samsung's KV SSDs that were read whole are shown field by field.
    fn show_known(&self, device: &Device, bytes: &[u8]) -> Option<Result<()>> {
        if self.lpo != 0 {
            return None;
        }
        let (name, format) = (device.name(), self.output.output);
        Some(match self.log_id {
            lid::EXTENDED_SMART => {
                let (log, _) = ExtendedSmartLog::read_from_prefix(bytes).ok()?;
                let fields = key_value::extended_smart(&log);
                format.show(fields.clone(), |out| {
                    key_value::write_log(out, "Extended SMART Log", name, &fields)
                })
            }
            lid::WAF => {
                let (log, _) = WafLog::read_from_prefix(bytes).ok()?;
                let fields = key_value::waf(&log);
                format.show(fields.clone(), |out| {
                    key_value::write_log(out, "Write Amplification Log", name, &fields)
                })
            }
            lid::ITERATORS => {
                let (log, _) = IteratorLog::read_from_prefix(bytes).ok()?;
                format.show(key_value::iterators(&log), |out| key_value::write_iterators(out, name, &log))
            }
            _ => return None,
        })
    }
}
