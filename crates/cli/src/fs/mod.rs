//! `unvme fs`: a file system on a namespace, without a mount.
//!
//! | module | concept |
//! |---|---|
//! | `place` | which device and namespace; paths as typed; mounting for one command |
//! | `make`, `check` | `mkfs`, `check` |
//! | `about` | `info`, `df`, `dump` |
//! | `look` | `ls`, `stat`, `tree`, `cat` |
//! | `change` | `mkdir`, `rm`, `mv` |
//! | `transfer` | `put`, `get`, `cp` |
//! | `serve` | `serve`: for processes that share it |
//! | [`mount`] | `unvme mount` and `unvme umount`: the same for the kernel |

mod about;
mod change;
mod check;
mod look;
mod make;
pub(crate) mod mount;
mod place;
mod serve;
mod transfer;

use clap::Subcommand;

use crate::cmd::commands;

commands! {
/// Commands on a file system.
#[derive(Debug, Subcommand)]
#[command(after_help = "\
Each command mounts the file system for as long as it takes. A path is one within it, from its
root on.

Examples:
  unvme fs mkfs 0000:02:00.0 --label scratch
  unvme fs put 0000:02:00.0 Cargo.toml /Cargo.toml
  unvme fs ls 0000:02:00.0 -l
  unvme fs cat 0000:02:00.0 /Cargo.toml
  unvme fs check 0000:02:00.0")]
pub(crate) enum Command {
    /// Make a file system; destroys what the namespace held
    Mkfs(make::Mkfs),
    /// Check that everything in a file system fits together
    Check(check::Check),
    /// What a file system is, and how it was left
    Info(about::Info),
    /// List a directory
    Ls(look::Ls),
    /// Everything about a file but its data
    Stat(look::Stat),
    /// Print files
    Cat(look::Cat),
    /// Copy files and directories into the file system
    Put(transfer::Put),
    /// Copy files and directories out of the file system
    Get(transfer::Get),
    /// Copy files and directories within the file system
    Cp(transfer::Cp),
    /// Remove files and directories
    Rm(change::Rm),
    /// Move or rename files and directories
    Mv(change::Mv),
    /// Make directories
    Mkdir(change::Mkdir),
    /// Show a directory and everything below it
    Tree(look::Tree),
    /// How full a file system is
    Df(about::Df),
    /// Where files are on the device
    Dump(about::Dump),
    /// Serve a file system to several programs at a time
    Serve(serve::Serve),
}
}
