//! `completions`, `man`, `version`.

use std::fs;
use std::path::PathBuf;

use crate::args::Cli;
use crate::completion;
use crate::output::{Output, write_raw};
use crate::value::fields;
use anyhow::{Context, Result};
use clap::{Args, CommandFactory};

/// Arguments of `completions`.
#[derive(Debug, Args)]
#[command(after_help = "Example: unvme completions bash > ~/.local/share/bash-completion/completions/unvme")]
pub(crate) struct Completions {
    /// Shell: bash, elvish, fish, powershell or zsh
    #[arg(value_name = "SHELL")]
    shell: String,
}

impl Completions {
    pub(crate) fn run(self) -> Result<()> {
        write_raw(&completion::script(&self.shell)?)
    }
}

/// Arguments of `version`.
#[derive(Debug, Args)]
pub(crate) struct Version {
    #[command(flatten)]
    output: Output,
}

impl Version {
    pub(crate) fn run(self) -> Result<()> {
        let version = env!("CARGO_PKG_VERSION");
        self.output.output.say(fields! { "unvme": version }, format!("unvme version {version}"))
    }
}

/// Arguments of `man`.
#[derive(Debug, Args)]
#[command(after_help = "Example: unvme man ~/.local/share/man/man1")]
pub(crate) struct Man {
    /// Folder to write the pages to; made when it is not there
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
}

impl Man {
    pub(crate) fn run(self) -> Result<()> {
        let what = || format!("write the manual pages to {}", self.folder.display());
        fs::create_dir_all(&self.folder).with_context(what)?;
        clap_mangen::generate_to(Cli::command(), &self.folder).with_context(what)
    }
}
