//! The guide's programs by their names: as subcommands, and as links to the one binary.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use clap::error::ErrorKind;
use unvme_guide::session::QueueKind;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use super::blobfs::{Fuse, Mkfs};
use super::blobfs_perf::BlobfsPerf;
use super::kv_perf::KvPerf;
use super::sdk_iterate::SdkIterate;
use super::sdk_perf::SdkPerf;
use crate::args::{Cli, Command};
use crate::exit;
use crate::kv::nvme::KvNvme;
use crate::rocksdb::KvDbBench;

/// Exit code of `kv_perf` for wrong usage: what a shell sees of the original's `-EINVAL`.
const EINVAL: u8 = 234;

/// A program of the guide.
#[derive(Clone, Debug, Subcommand)]
#[command(rename_all = "snake_case")]
pub(crate) enum Program {
    /// Workloads on key-value and block devices, as the guide's kv_perf
    KvPerf(Box<KvPerf>),
    /// Manage key-value SSDs, as the guide's kv_nvme
    #[command(subcommand)]
    KvNvme(Box<KvNvme>),
    /// Store, retrieve, exist and delete one after the other, as the guide's sdk_perf
    SdkPerf(SdkPerf),
    /// The same, many at a time, as the guide's sdk_perf_async
    SdkPerfAsync(SdkPerf),
    /// Find keys by an iterator, as the guide's sdk_iterate
    SdkIterate(SdkIterate),
    /// The same with asynchronous reads, as the guide's sdk_iterate_async
    SdkIterateAsync(SdkIterate),
    /// Make a file system on a block device of a configuration, as the guide's mkfs
    Mkfs(Mkfs),
    /// Mount it, as the guide's fuse
    Fuse(Fuse),
    /// How fast files are written and read, as the guide's blobfs_perf
    BlobfsPerf(Box<BlobfsPerf>),
    /// RocksDB's db_bench on pairs, as the guide's kv_db_bench
    KvDbBench(KvDbBench),
}

/// A program with what was typed after its name.
#[derive(Debug, Parser)]
#[command(multicall = true)]
struct Called {
    #[command(subcommand)]
    program: Program,
}

impl Program {
    /// Does what was asked for.
    pub(crate) fn run(self) -> anyhow::Result<()> {
        match self {
            Self::KvPerf(args) => args.run(),
            Self::KvNvme(command) => command.run(),
            Self::SdkPerf(args) => args.run(QueueKind::Sync),
            Self::SdkPerfAsync(args) => args.run(QueueKind::Async),
            Self::SdkIterate(args) => args.run(QueueKind::Sync),
            Self::SdkIterateAsync(args) => args.run(QueueKind::Async),
            Self::Mkfs(args) => args.run(),
            Self::Fuse(args) => args.run(),
            Self::BlobfsPerf(args) => args.run(),
            Self::KvDbBench(args) => args.run(),
        }
    }
}

/// Runs a program of the guide, when it is called by its name: as a link, `kv_perf -w`, or as
/// `unvme kv_perf -w`. `None` for everything else.
pub(crate) fn called() -> Option<ExitCode> {
    let mut words: Vec<OsString> = std::env::args_os().collect();
    let by_link = is_program(words.first()?);
    if by_link {
        // A link may be called by a path; its last part is the program.
        words[0] = Path::new(&words[0]).file_name()?.to_owned();
    } else if !is_program(words.get(1)?) {
        return None;
    }
    let name = words[usize::from(!by_link)].clone();
    let usage = if name == "kv_perf" { EINVAL } else { exit::USAGE };
    let program = match parsed(words, by_link) {
        Ok(program) => program?,
        Err(error) => {
            let help = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
            // With the output gone there is nobody left to tell.
            let _ = error.print();
            // The original's help is an error, too; as a command of `unvme` it is none.
            let legacy = by_link && usage == EINVAL;
            return Some(ExitCode::from(if help && !legacy { exit::OK } else { usage }));
        }
    };
    Some(match program.run() {
        Ok(()) => ExitCode::from(exit::OK),
        Err(error) if exit::is_broken_pipe(&error) => ExitCode::from(exit::OK),
        Err(error) => {
            let (line, code) = exit::told(&error);
            let _ = writeln!(std::io::stderr(), "{}: {line}", name.display());
            ExitCode::from(if code == exit::USAGE { usage } else { code })
        }
    })
}

/// Understands what was typed; `None` when it is no program of the guide after all.
fn parsed(words: Vec<OsString>, by_link: bool) -> Result<Option<Program>, clap::Error> {
    if by_link {
        let mut matches = Called::command().try_get_matches_from(words)?;
        return Ok(Some(Called::from_arg_matches_mut(&mut matches)?.program));
    }
    Ok(match Cli::try_parse_from(words)?.command {
        Command::Guide(program) => Some(program),
        _ => None,
    })
}

fn is_program(word: &OsStr) -> bool {
    let Some(name) = Path::new(word).file_name().and_then(OsStr::to_str) else { return false };
    Called::command().find_subcommand(name).is_some()
}
