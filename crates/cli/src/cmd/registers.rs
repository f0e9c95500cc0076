//! `show-regs`, `get-property`.

use std::io::{self, Write};

use anyhow::Result;
use clap::Args;
use unvme::{Device, Transport};

use crate::exit::usage;
use crate::numbers;
use crate::output::Output;
use crate::show::registers::{REGISTERS, Register, explain, json, text};
use crate::target::DeviceArg;
use crate::value::fields;

/// Columns of a name in the text.
const NAME_WIDTH: usize = 8;

/// Arguments of `show-regs`.
#[derive(Debug, Args)]
#[command(after_help = "\
A controller on the network has those that are properties as well, one that the kernel's driver has
none for others.

Example: unvme show-regs 0000:02:00.0 -H")]
pub(crate) struct ShowRegs {
    #[command(flatten)]
    device: DeviceArg,
    /// Explain them field by field
    #[arg(short = 'H', long)]
    human_readable: bool,
    #[command(flatten)]
    output: Output,
}

impl ShowRegs {
    pub(crate) fn run(self) -> Result<()> {
        let device = self.device.open()?;
        let all = REGISTERS.iter().filter(|register| register.is_property || !is_fabric(&device));
        let mut values = Vec::new();
        for register in all {
            values.push((register, read(&device, register)?));
        }
        self.output.output.show(json(&values), |out| {
            values.iter().try_for_each(|(register, value)| {
                writeln!(out, "{:NAME_WIDTH$}: {}", register.name, text(*value))?;
                if self.human_readable { write_fields(out, register, *value) } else { Ok(()) }
            })
        })
    }
}

/// Arguments of `get-property`.
#[derive(Debug, Args)]
#[command(after_help = "\
Properties: 0x0 CAP, 0x8 VS, 0x14 CC, 0x1c CSTS, 0x20 NSSR, 0x68 CRTO. Of a controller that is not
on the network the register at the same place is read.

Example: unvme get-property tcp:127.0.0.1:4420/nqn.2024-01.io.example:blocks -O 0x1c -H")]
pub(crate) struct GetProperty {
    #[command(flatten)]
    device: DeviceArg,
    /// Offset of the property
    #[arg(short = 'O', long, value_name = "OFFSET", value_parser = numbers::u64)]
    offset: u64,
    /// Explain it field by field
    #[arg(short = 'H', long)]
    human_readable: bool,
    #[command(flatten)]
    output: Output,
}

impl GetProperty {
    pub(crate) fn run(self) -> Result<()> {
        let found = REGISTERS.iter().find(|register| register.is_property && register.offset == self.offset);
        let Some(register) = found else {
            let list: Vec<String> = REGISTERS
                .iter()
                .filter(|register| register.is_property)
                .map(|register| format!("{:#x} ({})", register.offset, register.json))
                .collect();
            return Err(usage(format!("--offset {:#x}: expected one of {}", self.offset, list.join(", "))));
        };
        let device = self.device.open()?;
        let value = read(&device, register)?;
        let json = fields! { "offset": register.offset, "name": register.json, "value": value };
        self.output.output.show(json, |out| {
            writeln!(out, "property: {:#04x} ({}), value: {value:x}", register.offset, register.title)?;
            if self.human_readable { write_fields(out, register, value) } else { Ok(()) }
        })
    }
}

fn is_fabric(device: &Device) -> bool {
    device.transport() == Transport::Tcp
}

fn read(device: &Device, register: &Register) -> Result<u64> {
    Ok(device.admin(|controller| controller.register(register.offset, register.bytes))?)
}

fn write_fields(out: &mut dyn Write, register: &Register, value: u64) -> io::Result<()> {
    let explained = explain(register, value);
    explained.0.iter().try_for_each(|(name, value)| writeln!(out, "\t{name}: {value}"))?;
    if explained.0.is_empty() { Ok(()) } else { writeln!(out) }
}
