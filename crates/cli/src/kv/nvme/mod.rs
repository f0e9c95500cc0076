//! `kv_nvme`: the guide's command line for key-value SSDs.
//!
//! | module | concept |
//! |---|---|
//! | `admin` | `list`, `id-ctrl`, `format` and so on: the commands of `unvme` with the guide's flags |
//! | `io` | `write`, `read`, `delete`, `exist` |
//! | `iterate` | `open-it`, `read-it`, `close-it` |
//! | `iterators` | the file in which iterators live over invocations |

mod admin;
mod io;
mod iterate;
mod iterators;

use std::time::Duration;

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::exit::usage;

/// Commands of nvme-cli that the original does not have.
const UNSUPPORTED: [&str; 10] = [
    "dsm",
    "flush",
    "get-feature",
    "set-feature",
    "security-send",
    "security-recv",
    "compare",
    "write-zeroes",
    "write-uncor",
    "subsystem-reset",
];

/// Commands of `kv_nvme`.
#[derive(Clone, Debug, Subcommand)]
#[command(after_help = "\
Unsupported: dsm, flush, get-feature, set-feature, security-send, security-recv, compare,
write-zeroes, write-uncor, subsystem-reset. `unvme` has those of them that a device can do.

Examples:
  kv_nvme write 0000:02:00.0 -k keyvalue12345678 -l 16 -v value.txt -o 0 -s 4096 -a -w -t
  kv_nvme read 0000:02:00.0 -k keyvalue12345678 -l 16 -s 4096 -t -w
  kv_nvme open-it 0000:02:00.0 -p 0x30303030 -i 1
  kv_nvme read-it 0000:02:00.0 -i 1 -w
  kv_nvme close-it 0000:02:00.0 -i 1")]
pub(crate) enum KvNvme {
    /// List all devices and namespaces
    List(admin::List),
    /// Identify Controller
    IdCtrl(admin::Page),
    /// List the controllers of the NVM subsystem
    ListCtrl(admin::Plain),
    /// List the namespaces of a device
    ListNs(admin::Plain),
    /// Read any log page, as the bytes it has; `unvme get-log` shows it
    GetLog(admin::GetLog),
    /// SMART / Health log
    SmartLog(admin::Page),
    /// Format a device; destroys its data
    Format(admin::Format),
    /// Download new firmware and activate it
    FwDownload(admin::FwDownload),
    /// Refused: fw-download activates what it downloads
    FwActivate(admin::Ignored),
    /// Reset the controller
    Reset(admin::Plain),
    /// Show the version
    Version,
    /// Store a pair
    Write(io::Write),
    /// Retrieve a value
    Read(io::Read),
    /// Delete a pair
    Delete(io::Delete),
    /// Ask whether a key exists
    Exist(io::Exist),
    /// Open an iterator
    OpenIt(iterate::OpenIt),
    /// Read the next keys of an iterator
    ReadIt(iterate::ReadIt),
    /// Close an iterator
    CloseIt(iterate::CloseIt),
    #[command(external_subcommand)]
    Other(Vec<String>),
}

impl KvNvme {
    /// Does what was asked for.
    pub(crate) fn run(self) -> Result<()> {
        match self {
            Self::List(command) => command.run(),
            Self::IdCtrl(command) => command.run(admin::PageKind::Controller),
            Self::ListCtrl(command) => command.run("list-ctrl"),
            Self::ListNs(command) => command.run("list-ns"),
            Self::GetLog(command) => command.run(),
            Self::SmartLog(command) => command.run(admin::PageKind::Smart),
            Self::Format(command) => command.run(),
            Self::FwDownload(command) => command.run(),
            Self::FwActivate(_) => Err(usage(
                "FW-ACTIVATE PROHIBITED: fw-download has activated the firmware (slot 2, action 1)",
            )),
            Self::Reset(command) => command.run("reset"),
            Self::Version => admin::version(),
            Self::Write(command) => command.run(),
            Self::Read(command) => command.run(),
            Self::Delete(command) => command.run(),
            Self::Exist(command) => command.run(),
            Self::OpenIt(command) => command.run(),
            Self::ReadIt(command) => command.run(),
            Self::CloseIt(command) => command.run(),
            Self::Other(words) => Err(unknown(words.first().map_or("", String::as_str))),
        }
    }
}

fn unknown(word: &str) -> anyhow::Error {
    if UNSUPPORTED.contains(&word) {
        return usage(format!("{word} is not supported by kv_nvme; see `unvme help`"));
    }
    usage(format!("{word}: there is no such command; see `kv_nvme help`"))
}

/// Options that all commands on pairs have.
#[derive(Clone, Copy, Debug, Args)]
struct Common {
    /// Keyspace, 0 or 1
    #[arg(short, long, value_name = "NUMBER", default_value = "0", value_parser = clap::value_parser!(u8).range(0..=1))]
    namespace: u8,
    /// Show the arguments in readable form
    #[arg(short = 'w', long)]
    show: bool,
    /// Show how long the command took
    #[arg(short = 't', long)]
    latency: bool,
    /// Asynchronous: poll for the completion in place of waiting for it
    #[arg(short = 'a', long = "async")]
    is_async: bool,
}

impl Common {
    /// Shows the arguments, when they are to be shown; on standard error, as the output may be a value.
    fn show(self, command: &str, arguments: &[(&str, String)]) -> Result<()> {
        if self.show {
            let lines: String =
                arguments.iter().map(|(name, value)| format!("  {name:<12}: {value}\n")).collect();
            let mode = if self.is_async { "async" } else { "sync" };
            let text = format!(
                "{command}\n{lines}  {:<12}: {}\n  {:<12}: {mode}\n",
                "keyspace", self.namespace, "mode"
            );
            std::io::Write::write_all(&mut std::io::stderr(), text.as_bytes())?;
        }
        Ok(())
    }

    /// Shows how long a command took, when that is to be shown; on standard error, as the output may be a
    /// value.
    fn tell(self, command: &str, latency: Duration) -> Result<()> {
        if self.latency {
            let us = latency.as_secs_f64() * 1e6;
            std::io::Write::write_fmt(
                &mut std::io::stderr(),
                format_args!("{command} latency: {us:.3} us\n"),
            )?;
        }
        Ok(())
    }
}
