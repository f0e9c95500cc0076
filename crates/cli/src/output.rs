//! Where results go and in what form.

use std::io::{self, BufWriter, Write};

use anyhow::Result;
use clap::{Args, ValueEnum};
use serde::Serialize;

/// Form of a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Text for people, like nvme-cli's.
    #[default]
    #[value(alias = "normal")]
    Text,
    /// JSON for programs, with nvme-cli's keys.
    Json,
}

/// `-o`, for commands that have no other use for the letter.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Output {
    /// Form of the result
    #[arg(
        short,
        long = "output",
        visible_alias = "output-format",
        value_name = "FORMAT",
        default_value = "text"
    )]
    pub(crate) output: Format,
}

/// `--output` alone, for commands whose `-o` is an offset, as in nvme-cli.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct LongOutput {
    /// Form of the result; -o is the offset, as in nvme-cli
    #[arg(long = "output", visible_alias = "output-format", value_name = "FORMAT", default_value = "text")]
    pub(crate) output: Format,
}

impl Format {
    /// Prints a result: `text` writes it for people, `json` is it for programs.
    pub(crate) fn show(
        self,
        json: impl Serialize,
        text: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<()> {
        let mut out = BufWriter::new(io::stdout());
        match self {
            Self::Text => text(&mut out)?,
            Self::Json => {
                serde_json::to_writer_pretty(&mut out, &json)?;
                writeln!(out)?;
            }
        }
        Ok(out.flush()?)
    }

    /// Prints one line, or a structure.
    pub(crate) fn say(self, json: impl Serialize, line: impl AsRef<str>) -> Result<()> {
        self.show(json, |out| writeln!(out, "{}", line.as_ref()))
    }
}

/// Writes bytes to standard output as they are.
pub(crate) fn write_raw(bytes: &[u8]) -> Result<()> {
    let mut out = io::stdout();
    out.write_all(bytes)?;
    Ok(out.flush()?)
}
