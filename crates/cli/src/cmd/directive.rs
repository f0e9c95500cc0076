//! `dir-receive`, `dir-send`, `io-mgmt-recv`, `io-mgmt-send`.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use unvme::{Device, Error, Nsid, Payload};
use unvme_spec::admin::Command;
use unvme_spec::directive::{
    DirectiveReceive, DirectiveSend, EnableDirective, IdentifyParameters, dtype, identify_operation,
};
use unvme_spec::fdp::{IoManagementReceive, ReceiveOperation};
use unvme_spec::{Sqe, nvm};
use zerocopy::FromBytes;

use super::transfer::read_input;
use crate::exit::usage;
use crate::numbers;
use crate::output::{Output, write_raw};
use crate::show::hex;
use crate::target::{DeviceArg, Force, NamespaceArg};
use crate::value::{Fields, fields};

/// Most bytes that these commands move.
const DATA_BYTES_MAX: u64 = 1 << 20;

fn length(bytes: u64) -> Result<usize> {
    match bytes {
        0..=DATA_BYTES_MAX if bytes.is_multiple_of(4) => Ok(bytes as usize),
        _ => Err(usage(format!("--data-len {bytes}: expected a multiple of 4 up to {DATA_BYTES_MAX}"))),
    }
}

/// The data of a command: a file, or standard input without one; zeroes follow its end.
fn data_of(path: Option<&Path>, bytes: usize) -> Result<Vec<u8>> {
    let mut data = match bytes {
        0 => Vec::new(),
        _ => read_input(path, bytes as u64)?,
    };
    data.resize(bytes, 0);
    Ok(data)
}

/// Arguments of `dir-receive`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example: unvme dir-receive 0000:02:00.0 -n 1 -D 0 -O 1 -H     directives that namespace 1 has")]
pub(crate) struct DirReceive {
    #[command(flatten)]
    device: DeviceArg,
    #[command(flatten)]
    namespace: NamespaceArg,
    /// Directive type: 0 identify, 1 streams, 2 data placement
    #[arg(short = 'D', long, value_name = "TYPE", default_value = "0", value_parser = numbers::u8)]
    dir_type: u8,
    /// Operation of the directive
    #[arg(short = 'O', long, value_name = "OPERATION", default_value = "1", value_parser = numbers::u8)]
    dir_oper: u8,
    /// What the directive is about, such as a stream
    #[arg(short = 'S', long, value_name = "SPEC", default_value = "0", value_parser = numbers::u16)]
    dir_spec: u16,
    /// Streams that are asked for
    #[arg(short, long, value_name = "COUNT", default_value = "0", value_parser = numbers::u16)]
    req_resource: u16,
    /// Bytes of data
    #[arg(short = 'l', long, value_name = "BYTES", default_value = "4096", value_parser = numbers::bytes)]
    data_len: u64,
    /// Explain the directives
    #[arg(short = 'H', long)]
    human_readable: bool,
    /// Write the data as it is
    #[arg(short = 'b', long)]
    raw_binary: bool,
    #[command(flatten)]
    output: Output,
}

impl DirReceive {
    pub(crate) fn run(self) -> Result<()> {
        let bytes = length(self.data_len)?.max(4);
        let device = self.device.open()?;
        let nsid = self.namespace.choose_any(&device)?;
        let command = DirectiveReceive {
            nsid,
            dwords: bytes as u64 / 4,
            operation: self.dir_oper,
            dtype: self.dir_type,
            dspec: self.dir_spec,
            cdw12: self.req_resource.into(),
        };
        let sqe = Command::DirectiveReceive(command).encode();
        let (completion, data) = device.admin(|controller| controller.admin_receive(sqe, bytes))?;
        if self.raw_binary {
            return write_raw(&data);
        }
        let is_identify =
            (self.dir_type, self.dir_oper) == (dtype::IDENTIFY, identify_operation::RETURN_PARAMETERS);
        let parameters =
            IdentifyParameters::read_from_bytes(&data).ok().filter(|_| is_identify && self.human_readable);
        let result = completion.result as u32;
        let json = fields! {
            "type": self.dir_type, "operation": self.dir_oper, "spec": self.dir_spec, "nsid": nsid.0,
            "result": result, "directives": parameters.as_ref().map(directives), "data": hex::text(&data),
        };
        self.output.output.show(json, |out| {
            let Self { dir_type, dir_oper, dir_spec, .. } = self;
            writeln!(
                out,
                "dir-receive: type:{dir_type} operation:{dir_oper:#x} spec:{dir_spec} nsid:{:#x} result:{result}",
                nsid.0
            )?;
            match &parameters {
                Some(parameters) => write_directives(out, parameters),
                None => hex::write(out, &data),
            }
        })
    }
}

/// Directive types as they are listed: number, name in text, name in JSON.
const DIRECTIVES: [(u8, &str, &str); 3] = [
    (dtype::IDENTIFY, "Identify Directive", "identify"),
    (dtype::STREAMS, "Stream Directive", "streams"),
    (dtype::DATA_PLACEMENT, "Data Placement Directive", "data_placement"),
];

fn directives(parameters: &IdentifyParameters) -> Fields {
    DIRECTIVES.iter().fold(Fields::new(), |all, (number, _, name)| {
        all.with(
            *name,
            fields! {
                "supported": parameters.supported.contains(*number),
                "enabled": parameters.enabled.contains(*number),
                "persistent": parameters.persistent.contains(*number),
            },
        )
    })
}

fn write_directives(out: &mut dyn Write, parameters: &IdentifyParameters) -> io::Result<()> {
    let sections = [
        ("Directive support", parameters.supported, ["not supported", "supported"]),
        ("Directive enabled", parameters.enabled, ["disabled", "enabled"]),
        (
            "Directive Persistent Across Controller Level Resets",
            parameters.persistent,
            ["disabled", "enabled"],
        ),
    ];
    for (title, set, words) in sections {
        writeln!(out, "\t{title}")?;
        for (number, name, _) in DIRECTIVES {
            writeln!(out, "\t\t{name:25}: {}", words[usize::from(set.contains(number))])?;
        }
    }
    Ok(())
}

/// Arguments of `dir-send`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example: unvme dir-send 0000:02:00.0 -n 1 -D 0 -O 1 -T 2 -e 1     enable data placement")]
pub(crate) struct DirSend {
    #[command(flatten)]
    device: DeviceArg,
    #[command(flatten)]
    namespace: NamespaceArg,
    /// Directive type: 0 identify, 1 streams, 2 data placement
    #[arg(short = 'D', long, value_name = "TYPE", default_value = "0", value_parser = numbers::u8)]
    dir_type: u8,
    /// Operation of the directive
    #[arg(short = 'O', long, value_name = "OPERATION", default_value = "1", value_parser = numbers::u8)]
    dir_oper: u8,
    /// What the directive is about, such as a stream
    #[arg(short = 'S', long, value_name = "SPEC", default_value = "0", value_parser = numbers::u16)]
    dir_spec: u16,
    /// Directive type to enable or disable
    #[arg(short = 'T', long, value_name = "TYPE", default_value = "0", value_parser = numbers::u8)]
    target_dir: u8,
    /// 1 enables it, 0 disables it
    #[arg(short, long, value_name = "0|1", default_value = "0", value_parser = clap::value_parser!(u8).range(0..=1))]
    endir: u8,
    /// Bytes of data, for operations that have some
    #[arg(short = 'l', long, value_name = "BYTES", default_value = "0", value_parser = numbers::bytes)]
    data_len: u64,
    /// File with the data; standard input when left out, or `-`
    #[arg(short, long, value_name = "FILE")]
    input_file: Option<PathBuf>,
    #[command(flatten)]
    force: Force,
    #[command(flatten)]
    output: Output,
}

impl DirSend {
    pub(crate) fn run(self) -> Result<()> {
        let bytes = length(self.data_len)?;
        let data = data_of(self.input_file.as_deref(), bytes)?;
        let device = self.device.open()?;
        let (dir_type, dir_oper) = (self.dir_type, self.dir_oper);
        let what = format!("dir-send of type {dir_type}, operation {dir_oper:#x} changes where writes go");
        self.force.confirm(&device, &what)?;
        let nsid = self.namespace.choose_any(&device)?;
        let enable = EnableDirective::new().with_enable(self.endir == 1).with_target(self.target_dir);
        let command = DirectiveSend {
            nsid,
            dwords: (bytes as u64 / 4).max(1),
            operation: self.dir_oper,
            dtype: self.dir_type,
            dspec: self.dir_spec,
            cdw12: enable.into_bits(),
        };
        let sqe = Command::DirectiveSend(command).encode();
        let result = device.admin(|controller| controller.admin_send(sqe, &data))?.result as u32;
        let Self { dir_type, dir_oper, dir_spec, .. } = self;
        let json = fields! {
            "type": dir_type, "operation": dir_oper, "spec": dir_spec, "nsid": nsid.0, "result": result,
        };
        let line = format!(
            "dir-send: type {dir_type}, operation {dir_oper:#x}, spec_val {dir_spec}, nsid {:#x}, result {result}",
            nsid.0
        );
        self.output.output.say(json, line)
    }
}

/// Arguments of `io-mgmt-recv`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example: unvme io-mgmt-recv 0000:02:00.0 --mo 1 -l 256     `unvme fdp status`, as it comes")]
pub(crate) struct IoMgmtRecv {
    #[command(flatten)]
    device: DeviceArg,
    #[command(flatten)]
    namespace: NamespaceArg,
    /// Management operation: 0 nothing, 1 reclaim unit handle status
    #[arg(short, long, value_name = "MO", default_value = "0", value_parser = numbers::u8)]
    mo: u8,
    /// What is specific to the operation
    #[arg(short = 's', long, value_name = "MOS", default_value = "0", value_parser = numbers::u16)]
    mos: u16,
    /// Bytes of data
    #[arg(short = 'l', long, value_name = "BYTES", default_value = "4096", value_parser = numbers::bytes)]
    data_len: u64,
    /// File for the data; a dump on standard output when left out
    #[arg(short, long, value_name = "FILE")]
    data: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
}

impl IoMgmtRecv {
    pub(crate) fn run(self) -> Result<()> {
        let bytes = length(self.data_len)?.max(4);
        let device = self.device.open()?;
        let nsid = self.namespace.choose(&device)?;
        let receive = IoManagementReceive {
            operation: ReceiveOperation::from_raw(self.mo),
            specific: self.mos,
            dwords: bytes as u64 / 4,
        };
        let sqe = nvm::Command::IoManagementReceive(receive).encode(nsid);
        let buf = device.admin(|controller| controller.alloc(bytes))?;
        let data = exchange(&device, nsid, "I/O Management Receive", sqe, Some(Payload { buf, bytes }))?;
        if let Some(path) = &self.data {
            fs::write(path, &data).with_context(|| format!("write {}", path.display()))?;
        }
        let json = fields! { "mos": self.mos, "mo": self.mo, "nsid": nsid.0, "data": hex::text(&data) };
        self.output.output.show(json, |out| {
            writeln!(out, "io-mgmt-recv: Success, mos:{} mo:{} nsid:{}", self.mos, self.mo, nsid.0)?;
            if self.data.is_some() { Ok(()) } else { hex::write(out, &data) }
        })
    }
}

/// Arguments of `io-mgmt-send`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example: printf '\\0\\0\\1\\0' | unvme io-mgmt-send 0000:02:00.0 --mo 1 --mos 1 -l 4
         gives placement identifiers 0 and 1 new reclaim units, as `unvme fdp update -p 0,1` does")]
pub(crate) struct IoMgmtSend {
    #[command(flatten)]
    device: DeviceArg,
    #[command(flatten)]
    namespace: NamespaceArg,
    /// Management operation: 0 nothing, 1 reclaim unit handle update
    #[arg(short, long, value_name = "MO", default_value = "0", value_parser = numbers::u8)]
    mo: u8,
    /// What is specific to the operation: of an update, the number of placement identifiers minus one
    #[arg(short = 's', long, value_name = "MOS", default_value = "0", value_parser = numbers::u16)]
    mos: u16,
    /// Bytes of data
    #[arg(short = 'l', long, value_name = "BYTES", default_value = "0", value_parser = numbers::bytes)]
    data_len: u64,
    /// File with the data; standard input when left out, or `-`
    #[arg(short, long, value_name = "FILE")]
    data: Option<PathBuf>,
    #[command(flatten)]
    force: Force,
    #[command(flatten)]
    output: Output,
}

impl IoMgmtSend {
    pub(crate) fn run(self) -> Result<()> {
        let bytes = length(self.data_len)?;
        let data = data_of(self.data.as_deref(), bytes)?;
        let device = self.device.open()?;
        let what = format!("io-mgmt-send of operation {:#x} changes where writes go", self.mo);
        self.force.confirm(&device, &what)?;
        let nsid = self.namespace.choose(&device)?;
        let cdw10 = u32::from(self.mos) << 16 | u32::from(self.mo);
        let sqe = Sqe { opcode: nvm::opcode::IO_MANAGEMENT_SEND, nsid: nsid.0, cdw10, ..Sqe::default() };
        let payload = match bytes {
            0 => None,
            _ => {
                let mut buf = device.admin(|controller| controller.alloc(bytes))?;
                buf.write(0, &data);
                Some(Payload { buf, bytes })
            }
        };
        exchange(&device, nsid, "I/O Management Send", sqe, payload)?;
        let json = fields! { "mos": self.mos, "mo": self.mo, "nsid": nsid.0 };
        let line = format!("io-mgmt-send: Success, mos:{} mo:{} nsid:{}", self.mos, self.mo, nsid.0);
        self.output.output.say(json, line)
    }
}

/// Sends an I/O command; the data that came back.
fn exchange(device: &Device, nsid: Nsid, what: &str, sqe: Sqe, payload: Option<Payload>) -> Result<Vec<u8>> {
    let completion = super::passthru::send_io(device, sqe, payload)?;
    if !completion.status.is_success() {
        let what = format!("{}: namespace {nsid}: {what}", device.name());
        return Err(Error::Device { what, status: completion.status }.into());
    }
    Ok(completion.buf.map(|buf| buf.to_vec()).unwrap_or_default())
}
