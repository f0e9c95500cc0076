//! Faults by script: `unvme fault`, and `--faults` of other commands.
//!
//! | module | concept |
//! |---|---|
//! | `add`, `options` | `fault add`: a rule from options, from text, from a file |
//! | `list`, `clear` | `fault list`, `fault clear` |
//! | `file` | a file with rules |
//! | `script` | rules for as long as a command runs |

mod add;
mod clear;
mod file;
mod list;
mod options;
mod script;

use clap::Subcommand;

use crate::cmd::commands;

pub(crate) use file::read_rules;
pub(crate) use script::Script;

commands! {
/// `fault`.
#[derive(Debug, Subcommand)]
#[command(after_help = "\
A rule says which commands fail, and how. Rules stay with a virtual device until they are cleared,
also when nobody has it open; they work on a device that another process serves, too.

Examples:
  unvme fault add 0000:02:00.0 --opcode write --lba 100-200 --after 2 --count 1 --status 0x281
  unvme fault add 0000:02:00.0 --opcode read --probability 0.001 --seed 7 --delay 50ms
  unvme fault list 0000:02:00.0
  unvme fault clear 0000:02:00.0")]
pub(crate) enum Command {
    /// Add a rule, or several from a file
    Add(Box<add::Add>),
    /// List the rules of a device, and how often each has acted
    List(list::List),
    /// Clear one rule, or all of them
    Clear(clear::Clear),
}
}
