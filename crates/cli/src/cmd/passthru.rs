//! `admin-passthru`, `io-passthru`: any command, dword by dword.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use unvme::{Completion, Device, Payload, QueueOptions};
use unvme_spec::Sqe;
use unvme_spec::command::{Changes, CommandSet, Direction, Facts, Length, io as io_facts};
use unvme_spec::identify::csi;

use super::transfer::read_input;
use crate::exit::usage;
use crate::numbers;
use crate::output::{Format, write_raw};
use crate::show::hex;
use crate::target::{DeviceArg, Force};
use crate::value::{Fields, Value, fields};

/// Most bytes of data that a command of this one moves.
const DATA_BYTES_MAX: u64 = 256 << 20;
/// How long an I/O command is waited for at a time; the driver's own limits end one that does not come.
const PATIENCE: Duration = Duration::from_secs(1);

/// A command, dword by dword, and what becomes of its data.
#[derive(Debug, Args)]
pub(crate) struct Passthru {
    #[command(flatten)]
    device: DeviceArg,
    /// Opcode
    #[arg(short = 'O', long, value_name = "OPCODE", value_parser = numbers::u8)]
    opcode: Option<u8>,
    /// Form of the result, text or json; nvme-cli before 2.9 has the opcode here, and so may this
    #[arg(
        short = 'o',
        long = "output",
        visible_alias = "output-format",
        value_name = "FORMAT",
        default_value = "text"
    )]
    output: FormatOrOpcode,
    /// Flags, byte 1 of the command
    #[arg(short, long, value_name = "FLAGS", default_value = "0", value_parser = numbers::u8)]
    flags: u8,
    /// Namespace
    #[arg(short, long, value_name = "NSID", value_parser = numbers::u32)]
    namespace_id: Option<u32>,
    /// Command dword 2
    #[arg(short = '2', long, value_name = "CDW", default_value = "0", value_parser = numbers::u32)]
    cdw2: u32,
    /// Command dword 3
    #[arg(short = '3', long, value_name = "CDW", default_value = "0", value_parser = numbers::u32)]
    cdw3: u32,
    /// Command dword 10
    #[arg(short = '4', long, value_name = "CDW", default_value = "0", value_parser = numbers::u32)]
    cdw10: u32,
    /// Command dword 11
    #[arg(short = '5', long, value_name = "CDW", default_value = "0", value_parser = numbers::u32)]
    cdw11: u32,
    /// Command dword 12
    #[arg(short = '6', long, value_name = "CDW", default_value = "0", value_parser = numbers::u32)]
    cdw12: u32,
    /// Command dword 13
    #[arg(short = '7', long, value_name = "CDW", default_value = "0", value_parser = numbers::u32)]
    cdw13: u32,
    /// Command dword 14
    #[arg(short = '8', long, value_name = "CDW", default_value = "0", value_parser = numbers::u32)]
    cdw14: u32,
    /// Command dword 15
    #[arg(short = '9', long, value_name = "CDW", default_value = "0", value_parser = numbers::u32)]
    cdw15: u32,
    /// Bytes of data; as many as the command says when left out, for commands that are known
    #[arg(short = 'l', long, value_name = "BYTES", value_parser = numbers::bytes)]
    data_len: Option<u64>,
    /// File with the data to send, or for the data that is received; standard input when left out, or `-`
    #[arg(short, long, value_name = "FILE")]
    input_file: Option<PathBuf>,
    /// Byte that the data is filled with where the file ends, and before it is received
    #[arg(short, long, value_name = "BYTE", default_value = "0", value_parser = numbers::u8)]
    prefill: u8,
    /// Data comes from the device; the opcode says so as well
    #[arg(short, long, conflicts_with = "write")]
    read: bool,
    /// Data goes to the device; the opcode says so as well
    #[arg(short, long)]
    write: bool,
    /// Write the data that was received as it is
    #[arg(short = 'b', long)]
    raw_binary: bool,
    /// Print the command before it is sent
    #[arg(short, long)]
    show_command: bool,
    /// Print the command, and do not send it
    #[arg(short, long)]
    dry_run: bool,
    /// Print how long it took
    #[arg(short = 'T', long)]
    latency: bool,
    #[command(flatten)]
    force: Force,
}

/// What `-o` may be: a form, or in the manner of older tools the opcode.
#[derive(Clone, Copy, Debug)]
enum FormatOrOpcode {
    Format(Format),
    Opcode(u8),
}

impl std::str::FromStr for FormatOrOpcode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match Format::from_str(text, true) {
            Ok(format) => Ok(Self::Format(format)),
            Err(_) => numbers::u8(text)
                .map(Self::Opcode)
                .map_err(|_| "expected text or json, or an opcode of one byte".to_owned()),
        }
    }
}

/// Whose command it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Queue {
    Admin,
    Io,
}

impl Queue {
    fn name(self) -> &'static str {
        match self {
            Self::Admin => "Admin",
            Self::Io => "IO",
        }
    }
}

/// Arguments of `admin-passthru`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example: unvme admin-passthru 0000:02:00.0 --opcode 6 --cdw10 1 -l 4096 -r     Identify Controller")]
pub(crate) struct AdminPassthru {
    #[command(flatten)]
    command: Passthru,
}

impl AdminPassthru {
    pub(crate) fn run(self) -> Result<()> {
        self.command.run(Queue::Admin)
    }
}

/// Arguments of `io-passthru`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example: unvme io-passthru 0000:02:00.0 --opcode 2 -n 1 --cdw10 0 --cdw12 7 -l 4096 -r -b | xxd
         reads the first 8 blocks of 512 bytes")]
pub(crate) struct IoPassthru {
    #[command(flatten)]
    command: Passthru,
}

impl IoPassthru {
    pub(crate) fn run(self) -> Result<()> {
        self.command.run(Queue::Io)
    }
}

impl Passthru {
    fn run(self, queue: Queue) -> Result<()> {
        let (opcode, format) = self.opcode_and_format()?;
        let sqe = self.sqe(opcode);
        let direction = self.direction(&sqe, queue)?;
        if self.show_command || self.dry_run {
            self.print_command(&sqe)?;
        }
        if self.dry_run {
            return Ok(());
        }
        let device = self.device.open()?;
        let facts = facts(queue, &device, &sqe)?;
        let name = facts.map_or("Unknown", |facts| facts.name);
        if facts.is_none_or(|facts| matches!(facts.changes, Changes::Media | Changes::MediaByFields)) {
            let what = format!("opcode {opcode:#04x} ({name}) may change or destroy what is on the device");
            self.force.confirm(&device, &what)?;
        }
        let stated = facts.map_or(Ok(None), |facts| stated_bytes(&device, facts, &sqe))?;
        let payload = self.payload(&device, direction, stated)?;
        let start = Instant::now();
        let completion = match queue {
            Queue::Admin => device.admin(|controller| controller.admin(sqe, payload))?,
            Queue::Io => send_io(&device, sqe, payload)?,
        };
        let took = start.elapsed();
        if !completion.status.is_success() {
            let what = format!("{}: {} command {name}", device.name(), queue.name());
            return Err(device.refused(what, completion.status).into());
        }
        let mut data = match (direction, completion.buf) {
            (Direction::ToHost, Some(buf)) => buf.to_vec(),
            _ => Vec::new(),
        };
        data.truncate(self.data_len.or(stated).unwrap_or(0) as usize);
        let answer = Answer { queue, name, result: completion.result as u32, took, data };
        self.show(&answer, format)
    }

    /// `-o` twice over: see [`FormatOrOpcode`].
    fn opcode_and_format(&self) -> Result<(u8, Format)> {
        match (self.opcode, self.output) {
            (Some(opcode), FormatOrOpcode::Format(format)) => Ok((opcode, format)),
            (None, FormatOrOpcode::Opcode(opcode)) => Ok((opcode, Format::Text)),
            (Some(_), FormatOrOpcode::Opcode(_)) => {
                Err(usage("--output: expected text or json, as --opcode is there"))
            }
            (None, FormatOrOpcode::Format(_)) => Err(usage("which command? Name its --opcode")),
        }
    }

    /// The direction that opcode, `--read`, `--write` and `--data-len` agree on.
    fn direction(&self, sqe: &Sqe, queue: Queue) -> Result<Direction> {
        let direction = Direction::of(sqe, queue == Queue::Admin);
        let problem = match direction {
            Direction::Both => Some("its data would go both ways, which no command does here"),
            Direction::None if self.read || self.write || self.data_len.is_some_and(|bytes| bytes > 0) => {
                Some("it moves no data")
            }
            Direction::ToController if self.read => Some("its data goes to the device (--write)"),
            Direction::ToHost if self.write => Some("its data comes from the device (--read)"),
            _ => None,
        };
        if let Some(problem) = problem {
            let opcode = sqe.opcode;
            return Err(usage(format!("--opcode {opcode:#04x}: {problem}, as bits 1:0 of an opcode say")));
        }
        match self.data_len {
            Some(bytes) if bytes > DATA_BYTES_MAX => {
                Err(usage(format!("--data-len {bytes}: expected at most {DATA_BYTES_MAX} bytes")))
            }
            _ => Ok(direction),
        }
    }

    fn sqe(&self, opcode: u8) -> Sqe {
        let Self { flags, cdw2, cdw3, cdw10, cdw11, cdw12, cdw13, cdw14, cdw15, .. } = *self;
        let nsid = self.namespace_id.unwrap_or(0);
        Sqe { opcode, flags, nsid, cdw2, cdw3, cdw10, cdw11, cdw12, cdw13, cdw14, cdw15, ..Sqe::default() }
    }

    /// The lines of nvme-cli; on standard error where standard output has data.
    fn print_command(&self, sqe: &Sqe) -> io::Result<()> {
        let mut out: Box<dyn Write> =
            if self.raw_binary { Box::new(io::stderr()) } else { Box::new(io::stdout()) };
        writeln!(out, "opcode       : {:02x}", sqe.opcode)?;
        writeln!(out, "flags        : {:02x}", sqe.flags)?;
        let dwords = [
            ("nsid", sqe.nsid),
            ("cdw2", sqe.cdw2),
            ("cdw3", sqe.cdw3),
            ("data_len", self.data_len.unwrap_or(0) as u32),
            ("cdw10", sqe.cdw10),
            ("cdw11", sqe.cdw11),
            ("cdw12", sqe.cdw12),
            ("cdw13", sqe.cdw13),
            ("cdw14", sqe.cdw14),
            ("cdw15", sqe.cdw15),
        ];
        dwords.iter().try_for_each(|(name, value)| writeln!(out, "{name:12} : {value:08x}"))
    }

    /// The buffer of a command: as long as the command says, whatever was typed, as the device goes by that.
    fn payload(&self, device: &Device, direction: Direction, stated: Option<u64>) -> Result<Option<Payload>> {
        let bytes = stated.unwrap_or(0).max(self.data_len.unwrap_or(0)) as usize;
        if direction == Direction::None || bytes == 0 {
            return Ok(None);
        }
        let mut data = vec![self.prefill; bytes];
        if direction == Direction::ToController {
            let typed = self.data_len.map_or(bytes, |bytes| bytes as usize);
            // Of no bytes no input is asked: what the command says it sends is the prefill.
            if typed > 0 {
                self.fill(&mut data[..typed])?;
            }
        }
        let mut buf = device.admin(|controller| controller.alloc(bytes))?;
        buf.write(0, &data);
        Ok(Some(Payload { buf, bytes }))
    }

    fn file(&self) -> Option<&PathBuf> {
        self.input_file.as_ref().filter(|path| path.as_os_str() != "-")
    }

    /// Fills the front of `data` with what the input has.
    fn fill(&self, data: &mut [u8]) -> Result<()> {
        let input = read_input(self.file().map(PathBuf::as_path), data.len() as u64)?;
        if input.is_empty() {
            let what = self.file().map_or("standard input".into(), |path| path.display().to_string());
            return Err(usage(format!("read {what}: it is empty; the command sends {} bytes", data.len())));
        }
        data[..input.len()].copy_from_slice(&input);
        Ok(())
    }

    fn show(&self, answer: &Answer, format: Format) -> Result<()> {
        let latency = self.latency.then_some(answer.took.as_micros() as u64);
        if let Some(path) = self.file().filter(|_| !answer.data.is_empty()) {
            fs::write(path, &answer.data).with_context(|| format!("write {}", path.display()))?;
        }
        if self.raw_binary {
            if let Some(us) = latency {
                writeln!(io::stderr(), "{}", answer.latency_line(us))?;
            }
            return if self.file().is_none() { write_raw(&answer.data) } else { Ok(()) };
        }
        format.show(answer.json(latency), |out| {
            let (queue, name) = (answer.queue.name(), answer.name);
            writeln!(out, "{queue} Command {name} is Success and result: {:#010x}", answer.result)?;
            if let Some(us) = latency {
                writeln!(out, "{}", answer.latency_line(us))?;
            }
            if answer.data.is_empty() || self.file().is_some() {
                Ok(())
            } else {
                hex::write(out, &answer.data)
            }
        })
    }
}

/// What came of a command.
struct Answer {
    queue: Queue,
    name: &'static str,
    result: u32,
    took: Duration,
    data: Vec<u8>,
}

impl Answer {
    fn latency_line(&self, us: u64) -> String {
        format!("{} Command {} latency: {us} us", self.queue.name(), self.name)
    }

    fn json(&self, latency_us: Option<u64>) -> Fields {
        let data = (!self.data.is_empty()).then(|| hex::text(&self.data));
        fields! {
            "command": self.name, "result": self.result, "latency_us": latency_us.map(Value::from),
            "data": data,
        }
    }
}

/// What is known of the command; of an I/O command, in the command set of its namespace.
fn facts(queue: Queue, device: &Device, sqe: &Sqe) -> Result<Option<&'static Facts>> {
    if queue == Queue::Admin {
        return Ok(CommandSet::Admin.facts(sqe.opcode));
    }
    let nsid = unvme::Nsid(sqe.nsid);
    let active = device.admin(|controller| controller.active_namespaces())?;
    let command_set = match active.contains(&nsid) {
        true => device.admin(|controller| controller.namespace_command_set(nsid))?,
        false => csi::NVM,
    };
    Ok(io_facts(command_set, sqe.opcode))
}

/// Bytes that the device moves for the command, as the command says.
fn stated_bytes(device: &Device, facts: &Facts, sqe: &Sqe) -> Result<Option<u64>> {
    let block_bytes = match facts.length {
        Length::Blocks => {
            let namespace =
                device.admin(|controller| controller.identify_namespace(unvme::Nsid(sqe.nsid)))?;
            namespace.format().block_bytes().unwrap_or(0)
        }
        _ => 0,
    };
    match facts.length.bytes(sqe, block_bytes.into()) {
        Some(bytes) if bytes > DATA_BYTES_MAX => {
            Err(usage(format!("{} of {bytes} bytes: expected at most {DATA_BYTES_MAX} bytes", facts.name)))
        }
        bytes => Ok(bytes),
    }
}

/// Sends a command by a queue of its own, and waits for it.
pub(super) fn send_io(device: &Device, sqe: Sqe, payload: Option<Payload>) -> Result<Completion> {
    let options = QueueOptions { depth: 1, ..QueueOptions::default() };
    let mut queue = device.admin(|controller| controller.create_queue(&options))?;
    device.admin(|_| queue.submit(sqe, payload, 0).map_err(|rejected| rejected.error))?;
    loop {
        device.admin(|_| queue.wait(PATIENCE))?;
        if let Some(completion) = queue.poll(1).next() {
            return Ok(completion);
        }
    }
}
