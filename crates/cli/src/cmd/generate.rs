//! `completions`, `man`.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::args::Cli;
use crate::output::write_raw;

/// Arguments of `completions`.
#[derive(Debug, Args)]
#[command(after_help = "Example: unvme completions bash > ~/.local/share/bash-completion/completions/unvme")]
pub(crate) struct Completions {
    /// Shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self) -> Result<()> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "unvme", &mut script);
        write_raw(&script)
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
