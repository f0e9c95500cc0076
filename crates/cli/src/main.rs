//! The `unvme` command: manage, evaluate and serve NVMe devices from user space.
//!
//! | module | concept |
//! |---|---|
//! | `args` | what can be typed |
//! | `advise` | where threads and queues go, measured |
//! | `cmd` | a file per command, or per family of them |
//! | `target` | the device and the namespace a command is about, and asking before data is destroyed |
//! | `show`, `value`, `output` | structures of a device as text like nvme-cli's, and as JSON |
//! | `kv` | pairs of a key-value namespace, one command at a time; the guide's `kv_nvme` |
//! | `fdp` | Flexible Data Placement: log pages, features, reclaim unit handles |
//! | `fault` | faults by script |
//! | `fs` | file systems: without a mount, and mounted for all programs |
//! | `completion` | what a shell is told when somebody presses Tab |
//! | `help` | help as wide as the terminal |
//! | `guide` | the programs of the guide: `kv_perf` and its like |
//! | `count` | counted things in words |
//! | `perf`, `report` | measuring a device, and showing what was found |
//! | `preload` | where a program is, and a library that is loaded before its others |
//! | `run` | programs as they are, with files on a device in user space |
//! | `setup` | the machine's drives, handed to user space and back |
//! | `sim` | traffic on a simulated device: write amplification |
//! | `notice` | logging, and what is told whatever is logged |
//! | `exit` | exit codes, and how an error is told |
#![forbid(unsafe_code)]

mod advise;
mod args;
mod cmd;
mod columns;
mod completion;
mod count;
mod exit;
mod fault;
mod fdp;
mod file;
mod fio;
mod fs;
mod guide;
mod help;
mod kv;
mod notice;
mod numbers;
mod output;
mod perf;
mod preload;
mod report;
mod rocksdb;
mod run;
mod setup;
mod show;
mod sim;
mod target;
mod timing;
mod trace;
mod value;

use std::process::ExitCode;
use std::sync::Arc;
use std::thread;

use anyhow::Context;
use clap::{CommandFactory, FromArgMatches};
use rustix::process::{Resource, getrlimit};
use signal_hook::consts::SIGXFSZ;
use tracing_subscriber::filter::LevelFilter;

/// Environment variable with the level of diagnostics on stderr: `off`, `error`, `warn`, `info`, `debug` or
/// `trace`.
const LOG_VARIABLE: &str = "UNVME_LOG";

/// The limit of the main thread's stack (`ulimit -s`) below which the command runs on a thread of its own:
/// what can be typed takes more to describe than the smallest limits leave.
const STACK_MIN: u64 = 4 << 20;
const OWN_STACK: usize = 8 << 20;

fn main() -> ExitCode {
    match getrlimit(Resource::Stack).current {
        Some(limit) if limit < STACK_MIN => run_on_own_stack(),
        _ => dispatch(),
    }
}

/// [`dispatch`] on a thread with a stack of its own.
fn run_on_own_stack() -> ExitCode {
    /// What a program ends with whose main thread has panicked.
    const PANICKED: u8 = 101;
    match thread::Builder::new().name("unvme".to_owned()).stack_size(OWN_STACK).spawn(dispatch) {
        Ok(thread) => thread.join().unwrap_or(ExitCode::from(PANICKED)),
        Err(error) => exit::report(Err(error).context("start a thread with a stack of 8 MiB")),
    }
}

/// Runs the command that was typed.
#[inline(never)]
fn dispatch() -> ExitCode {
    completion::answer(args::Cli::command);
    match level() {
        Ok(level) => notice::start(level),
        Err(error) => return exit::report(Err(error)),
    }
    // A file that would grow beyond the limit of its size is an error of the write, not the end of the
    // program.
    if let Err(error) = signal_hook::flag::register(SIGXFSZ, Arc::default()) {
        tracing::debug!(%error, "handle SIGXFSZ");
    }
    match guide::called() {
        Some(code) => code,
        None => exit::report(parsed().command.run()),
    }
}

/// What was typed; anything else than a command ends here, with help or with what is wrong.
fn parsed() -> args::Cli {
    let command = help::fitted(args::Cli::command(), help::width());
    let mut shown = command.clone();
    args::Cli::from_arg_matches(
        &command.get_matches_from(fs::mount::external::translate(std::env::args_os().collect())),
    )
    .unwrap_or_else(|error| error.format(&mut shown).exit())
}

/// The level that the variable names. Errors: it names none that there is.
fn level() -> anyhow::Result<LevelFilter> {
    match std::env::var_os(LOG_VARIABLE) {
        None => Ok(default_level()),
        Some(text) if text.is_empty() => Ok(default_level()),
        Some(text) => text.to_str().and_then(|text| text.parse().ok()).ok_or_else(|| {
            let text = text.to_string_lossy();
            exit::usage(format!("{LOG_VARIABLE}={text}: expected off, error, warn, info, debug or trace"))
        }),
    }
}

/// The level when the variable says none. Whom a server has refused, and why, it has no other way to say.
fn default_level() -> LevelFilter {
    match std::env::args_os().nth(1) {
        Some(command) if command == "serve" => LevelFilter::WARN,
        _ => LevelFilter::ERROR,
    }
}
