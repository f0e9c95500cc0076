//! What can be typed.

use clap::{Parser, Subcommand};

use crate::advise;
use crate::cmd::{
    attach, commands, compare, create_ns, device, directive, discover, dsm, feature, firmware, flush, format,
    generate, get_log, identify, key, list, log_pages, logs, passthru, read, registers, reset, serve,
    subsystems, telemetry, write, write_zeroes,
};
use crate::exit;
use crate::fault;
use crate::fdp;
use crate::fio;
use crate::fs;
use crate::guide;
use crate::kv;
use crate::perf;
use crate::rocksdb;
use crate::run;
use crate::setup;
use crate::sim;

const ABOUT: &str = "Manage, evaluate and serve NVMe devices from user space";

const LONG_ABOUT: &str = "\
Manage, evaluate and serve NVMe devices from user space.

A DEVICE is one of
  0000:02:00.0                       a virtual device, made with `unvme device create`; or a drive of this
                                     machine, set up with `unvme setup config`
  kernel:PATH                        what the kernel drives: /dev/nvme0 or /dev/ng0n1 with all commands, or a
                                     disk, a partition or a file
  mem:block:SIZE[,OPTION...]         a virtual device that lives and dies with the command; options are
                                     block=4096, media=null|tags, ftl=page, op=18%, ru=8M, groups=1,
                                     handles=8, policy=greedy, fdp, timing=tlc:dies=16:prog=700us
  vfio-user:SOCKET                   a device that another process serves
  tcp:HOST:PORT/NQN[,OPTION...]      a device that another machine serves by NVMe/TCP; options are hdgst,
                                     ddgst, keep-alive=SECONDS, reconnect=SECONDS

Commands and options are nvme-cli's where it has them; a number is decimal, or hexadecimal with 0x.";

const EXAMPLES: &str = "\
Examples:
  unvme device create 0000:02:00.0 --size 4G    make a virtual SSD
  unvme list                                    what is there
  unvme id-ctrl 0000:02:00.0                    its identity
  echo hello | unvme write 0000:02:00.0 -s 0 -z 512
  unvme read 0000:02:00.0 -s 0 -z 512           what was written
  unvme setup status                            the drives of this machine, and who uses them

Virtual devices are in $UNVME_HOME, else $XDG_STATE_HOME/unvme, else ~/.local/state/unvme.
UNVME_LOG=debug shows on standard error what goes on inside.";

/// The command line.
#[derive(Debug, Parser)]
#[command(
    name = "unvme",
    version,
    about = ABOUT,
    long_about = LONG_ABOUT,
    after_help = EXAMPLES,
    after_long_help = format!("{EXAMPLES}\n\n{}", exit::HELP),
    arg_required_else_help = true,
    infer_long_args = false
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

commands! {
/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Create, list, show, unplug, plug and remove virtual devices
    #[command(subcommand)]
    Device(device::Command),
    /// List all devices and their namespaces: virtual ones, and the drives of this machine
    List(list::List),
    /// List NVM subsystems and the controllers they are reached by
    ListSubsys(subsystems::ListSubsys),
    /// Hand the machine's drives to user space and back, and show who uses them
    #[command(subcommand)]
    Setup(setup::Command),
    /// Identify Controller: who the device is and what it can do
    IdCtrl(identify::IdCtrl),
    /// Identify Namespace: size, use and formats of a namespace
    IdNs(identify::IdNs),
    /// Namespace Identification Descriptors: EUI64, NGUID, UUID, command set
    NsDescs(identify::NsDescs),
    /// List the controllers of the NVM subsystem
    ListCtrl(identify::ListCtrl),
    /// List the namespaces of a device
    ListNs(identify::ListNs),
    /// Read any log page
    GetLog(get_log::GetLog),
    /// SMART / Health log: temperature, wear, amounts of data
    SmartLog(logs::SmartLog),
    /// Error Information log: the latest errors
    ErrorLog(logs::ErrorLog),
    /// Firmware Slot log: which firmware is where
    FwLog(logs::FwLog),
    /// Commands Supported and Effects log: which commands there are, and what they change
    EffectsLog(log_pages::EffectsLog),
    /// Supported Log Pages
    SupportedLogPages(log_pages::SupportedPages),
    /// Endurance Group log: spare, wear, what hosts and the media have written
    EnduranceLog(log_pages::EnduranceLog),
    /// Asymmetric Namespace Access log: how well namespaces are reached
    AnaLog(log_pages::AnaLog),
    /// Telemetry log, to a file
    TelemetryLog(telemetry::TelemetryLog),
    /// Read a feature
    GetFeature(feature::GetFeature),
    /// Change a feature
    SetFeature(feature::SetFeature),
    /// Format a namespace; destroys its data
    Format(format::Format),
    /// Download a firmware image to the device
    FwDownload(firmware::Download),
    /// Commit a downloaded image to a slot, activate a slot
    #[command(visible_alias = "fw-activate")]
    FwCommit(firmware::Commit),
    /// Create a namespace
    CreateNs(create_ns::CreateNs),
    /// Delete a namespace; destroys its data
    DeleteNs(create_ns::DeleteNs),
    /// Attach a namespace to a controller
    AttachNs(attach::AttachNs),
    /// Detach a namespace from a controller
    DetachNs(attach::DetachNs),
    /// Controller registers
    ShowRegs(registers::ShowRegs),
    /// A property of a controller on the network, or the register at its place
    GetProperty(registers::GetProperty),
    /// Reset the controller
    Reset(reset::Reset),
    /// Reset the NVM subsystem
    SubsystemReset(reset::SubsystemReset),
    /// Read blocks to a file or standard output
    Read(read::Read),
    /// Write blocks from a file or standard input; destroys what they held
    Write(write::Write),
    /// Compare blocks with a file or standard input
    Compare(compare::Compare),
    /// Make everything that was written durable
    Flush(flush::Flush),
    /// Dataset Management: deallocate blocks, give hints
    Dsm(dsm::Dsm),
    /// Set blocks to zero
    WriteZeroes(write_zeroes::WriteZeroes),
    /// Have blocks be unreadable until they are written again; destroys what they held
    WriteUncor(write_zeroes::WriteUncor),
    /// Check that blocks can be read, without reading them to here
    Verify(write_zeroes::Verify),
    /// Directive Receive: which directives there are, what they know
    DirReceive(directive::DirReceive),
    /// Directive Send: enable a directive, set it up
    DirSend(directive::DirSend),
    /// I/O Management Receive
    IoMgmtRecv(directive::IoMgmtRecv),
    /// I/O Management Send
    IoMgmtSend(directive::IoMgmtSend),
    /// Send any admin command, dword by dword
    AdminPassthru(Box<passthru::AdminPassthru>),
    /// Send any I/O command, dword by dword
    IoPassthru(Box<passthru::IoPassthru>),
    /// Store, retrieve, delete and list pairs of a key-value namespace
    #[command(subcommand)]
    Kv(kv::Command),
    /// Flexible Data Placement: configurations, use, statistics, events
    #[command(subcommand)]
    Fdp(fdp::Command),
    /// Have commands fail by script: add, list and clear rules
    #[command(subcommand)]
    Fault(fault::Command),
    /// A file system on a namespace: make, check, list, copy
    #[command(subcommand)]
    Fs(fs::Command),
    /// Mount a file system for all programs
    Mount(Box<fs::mount::Mount>),
    /// Unmount a file system
    Umount(fs::mount::Umount),
    /// Measure how fast a device is
    Perf(Box<perf::Perf>),
    /// Where threads and queues go on this machine: measure placements, print masks for the SDK
    Advise(Box<advise::Advise>),
    /// Draw what fio has measured as a report of `unvme perf`
    FioPlot(fio::FioPlot),
    /// Run any program with its files on a device in user space, as it is
    Run(run::Run),
    /// Run a program of RocksDB's on a file system of ours, as it is
    Rocksdb(rocksdb::Rocksdb),
    /// Draw what RocksDB's db_bench has measured, on one file system or beside another
    RocksdbPlot(rocksdb::RocksdbPlot),
    /// Simulate hours of traffic in seconds: write amplification, with FDP and without
    Sim(Box<sim::Sim>),
    #[command(flatten)]
    Guide(guide::Program),
    /// Serve devices to other processes on a vfio-user socket, or to other machines by NVMe/TCP
    Serve(Box<serve::Serve>),
    /// Ask a discovery service which subsystems there are
    Discover(discover::Discover),
    /// Make and check keys for NVMe/TCP
    #[command(subcommand)]
    Key(key::Command),
    /// Print a completion script for a shell
    Completions(generate::Completions),
    /// Write the manual pages to a folder
    Man(generate::Man),
    /// Print the version
    Version(generate::Version),
}
}

#[cfg(test)]
mod tests {
    use clap::{Command, CommandFactory};

    use super::Cli;

    /// Commands whose `-o` is something else, and what: an offset as in nvme-cli, the size of commands as in
    /// the guide.
    const OTHER_USES: [(&str, &str); 3] =
        [("get-log", "lpo"), ("fw-download", "offset"), ("perf", "io-size")];

    /// Calls `look` with each command below `command` and the words it is called by.
    fn walk(command: &Command, words: &str, look: &mut dyn FnMut(&str, &Command)) {
        for sub in command.get_subcommands() {
            let words = format!("{words} {}", sub.get_name());
            let words = words.trim_start();
            look(words, sub);
            walk(sub, words, look);
        }
    }

    #[test]
    fn every_form_of_output_goes_by_the_letter_o() {
        let mut seen = 0;
        let mut look = |words: &str, command: &Command| {
            let arguments = || command.get_arguments();
            // The guide's programs, which have an underscore in their names, have fixed command lines.
            if words.split(' ').next().is_some_and(|program| program.contains('_')) {
                return;
            }
            let Some(output) = arguments().find(|argument| argument.get_long() == Some("output")) else {
                return;
            };
            seen += 1;
            let letter = arguments().find(|argument| argument.get_short() == Some('o'));
            let letter = letter.and_then(|argument| argument.get_long()).unwrap_or("nothing");
            match OTHER_USES.iter().find(|(name, _)| *name == words) {
                None => assert_eq!(letter, "output", "-o of {words}"),
                Some((_, other)) => {
                    assert_eq!(letter, *other, "-o of {words}");
                    let help = output.get_help().map(ToString::to_string).unwrap_or_default();
                    assert!(help.contains("; -o is the "), "{words}: {help}");
                }
            }
        };
        walk(&Cli::command(), "", &mut look);
        assert!(seen > 60, "{seen} commands have a form of output");
    }
}
