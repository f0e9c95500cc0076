//! RocksDB's programs on our file system or straight on pairs, as they are, and what its db_bench has
//! measured.

mod kv_db_bench;
mod report;

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use clap::Args;

use crate::exit::usage;
use crate::file;
use crate::preload::{Library, find_program};

pub(crate) use kv_db_bench::KvDbBench;
pub(crate) use report::RocksdbPlot;

/// RocksDB's file system, and the flags that the uNVMe SDK's `db_bench` has.
const LIBRARY: &str = "librocksdb_unvme.so";
const FLAGS: &str = "librocksdb_unvme_flags.so";

/// RocksDB's interface on pairs, and the flag that the uNVMe SDK's `kv_db_bench` has.
const KV_LIBRARY: &str = "libkv_rocksdb.so";
const KV_FLAGS: &str = "libkv_rocksdb_flags.so";

/// The device with the pairs, for `libkv_rocksdb.so`.
const KV_DEVICE_VARIABLE: &str = "UNVME_KV_ROCKSDB";

/// Bytes of a program at most; db_bench with all its symbols has some hundred MiB.
const PROGRAM_BYTES_MAX: u64 = 4 << 30;

/// Where they are: a folder.
const FOLDER_VARIABLE: &str = "UNVME_ROCKSDB";

/// Where its programs are.
const ADVICE: &str = "; db_bench, ldb and sst_dump are in Debian's rocksdb-tools";

/// What a program has inside that is linked with RocksDB's shared library.
const ROCKSDB: &[u8] = b"librocksdb.so";

/// What a program has inside that takes flags from libraries, too.
const GFLAGS: &[u8] = b"libgflags.so";

/// Arguments of `rocksdb`.
#[derive(Debug, Args)]
#[command(after_help = "\
The program is run with librocksdb_unvme.so, which `make rocksdb` builds, before its other
libraries: --fs_uri=unvme://DEVICE[/FOLDER][?OPTION=VALUE&...] is known then. It must be linked with
RocksDB's shared library, as Debian's db_bench, ldb and sst_dump are. db_bench has the flags of the
uNVMe SDK's, too. The library is looked for in $UNVME_ROCKSDB, in lib/unvme beside the folder of
this program, and where `make rocksdb` puts it.

With --kv the library is libkv_rocksdb.so: databases are the pairs of a key-value device, without a
log, levels and files. Without -d the device is that of kv_sdk_sync_config.json in the working
folder.

Examples:
  unvme rocksdb -d mem:block:4G -- db_bench --benchmarks=fillseq,readrandom
  unvme rocksdb -- ldb --fs_uri=unvme://0000:02:00.0/db --db=/ scan
  unvme rocksdb --kv -d mem:kv:4G -- db_bench --benchmarks=fillrandom,readrandom")]
pub(crate) struct Rocksdb {
    /// Add --fs_uri for this device, or for what else stands behind unvme://; with --kv: the pairs'
    /// device, and options behind a question mark
    #[arg(short, long, value_name = "DEVICE")]
    device: Option<String>,
    /// Databases are pairs of a key-value device, not files
    #[arg(long)]
    kv: bool,
    /// The program and its arguments
    #[arg(value_name = "PROGRAM", required = true, num_args = 1.., last = true)]
    program: Vec<OsString>,
}

impl Rocksdb {
    pub(crate) fn run(self) -> Result<()> {
        let Some((program, arguments)) = self.program.split_first() else {
            return Err(usage("which program?"));
        };
        let found = find_program(program, ADVICE)?;
        let (library, flags) = if self.kv { (KV_LIBRARY, KV_FLAGS) } else { (LIBRARY, FLAGS) };
        let mut command = preloaded(&found, library, flags)?;
        command.args(arguments);
        match &self.device {
            Some(device) if self.kv => {
                command.env(KV_DEVICE_VARIABLE, device);
            }
            Some(device) => {
                command.arg(format!("--fs_uri=unvme://{device}"));
            }
            None => {}
        }
        // Only when it fails does this return.
        Err(command.exec()).with_context(|| format!("run {}", found.display()))
    }
}

/// A program with a library before its others, and with more flags where it takes some.
fn preloaded(program: &Path, library: &'static str, flags: &str) -> Result<Command> {
    let place = Library { file: library, variable: FOLDER_VARIABLE, built: Some("rocksdb"), word: "rocksdb" };
    let folder = place.find()?;
    // It would run, and write files.
    if library == KV_LIBRARY && has(program, b"\x7fELF")? && !has(program, ROCKSDB)? {
        return Err(usage(format!(
            "{}: it is not linked with RocksDB's shared library, so its databases would be files",
            program.display()
        )));
    }
    let mut preload = vec![folder.join(library)];
    if has(program, GFLAGS)? && folder.join(flags).exists() {
        preload.push(folder.join(flags));
    }
    let mut list = OsString::new();
    for library in preload {
        list.push(library);
        list.push(" ");
    }
    list.push(std::env::var_os("LD_PRELOAD").unwrap_or_default());
    let mut command = Command::new(program);
    command.env("LD_PRELOAD", list);
    Ok(command)
}

/// Whether a program has these bytes inside.
fn has(program: &Path, bytes: &[u8]) -> Result<bool> {
    let all = file::read(program, PROGRAM_BYTES_MAX, "a program of RocksDB")?;
    Ok(all.windows(bytes.len()).any(|some| some == bytes))
}
