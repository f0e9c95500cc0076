//! `kv_db_bench` of the guide: RocksDB's benchmark on the pairs of a device.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;

use anyhow::{Context, Result};
use clap::Args;

use crate::preload::find_program;

use super::{ADVICE, KV_FLAGS, KV_LIBRARY, preloaded};

/// What it is made of.
const PROGRAM: &str = "db_bench";

/// Arguments of `kv_db_bench`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "\
It is the db_bench that is installed, with libkv_rocksdb.so before its other libraries, which
`make rocksdb` builds: every flag of db_bench is known, and --kv_async, with which writes return
before the device has them. Pairs are on the device of kv_sdk_sync_config.json in the working
folder, or of UNVME_KV_ROCKSDB=DEVICE in the environment.

Examples:
  UNVME_KV_ROCKSDB=mem:kv:1G unvme kv_db_bench --benchmarks=fillseq,readrandom --num=1000
  kv_db_bench -benchmarks fillrandom -num 1000000 -value_size 4096 -disable_wal -kv_async",
    disable_help_flag = true
)]
pub(crate) struct KvDbBench {
    /// Flags of db_bench
    #[arg(value_name = "FLAG", num_args = 0.., trailing_var_arg = true, allow_hyphen_values = true)]
    flags: Vec<OsString>,
    /// Print help, and not that of db_bench (-help)
    #[arg(short = 'h', long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

impl KvDbBench {
    pub(crate) fn run(self) -> Result<()> {
        let program = find_program(PROGRAM.as_ref(), ADVICE)?;
        let error = preloaded(&program, KV_LIBRARY, KV_FLAGS)?.args(self.flags).exec();
        // Only when it fails does it return.
        Err(error).with_context(|| format!("run {}", program.display()))
    }
}
