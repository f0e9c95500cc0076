//! Where results go and in what form.

use std::io::{self, BufWriter, Stdout, Write};

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

/// `--output` alone, for commands where nvme-cli uses `-o` for an offset.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct LongOutput {
    /// Form of the result
    #[arg(long = "output", visible_alias = "output-format", value_name = "FORMAT", default_value = "text")]
    pub(crate) output: Format,
}

/// Standard output, buffered.
#[derive(Debug)]
pub(crate) struct Screen {
    out: BufWriter<Stdout>,
}

impl Screen {
    pub(crate) fn new() -> Self {
        Self { out: BufWriter::new(io::stdout()) }
    }

    /// Prints a result: `text` writes it for people, `json` is it for programs.
    pub(crate) fn show(
        &mut self,
        format: Format,
        json: impl Serialize,
        text: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<()> {
        match format {
            Format::Text => text(&mut self.out)?,
            Format::Json => {
                serde_json::to_writer_pretty(&mut self.out, &json)?;
                writeln!(self.out)?;
            }
        }
        Ok(self.out.flush()?)
    }

    /// Prints one line, or a structure.
    pub(crate) fn say(&mut self, format: Format, json: impl Serialize, line: impl AsRef<str>) -> Result<()> {
        self.show(format, json, |out| writeln!(out, "{}", line.as_ref()))
    }

    /// Writes bytes as they are.
    pub(crate) fn write_raw(&mut self, bytes: &[u8]) -> Result<()> {
        self.out.write_all(bytes)?;
        Ok(self.out.flush()?)
    }
}
