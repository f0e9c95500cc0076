//! Standard output and standard error of a program, as far as somebody reads them as text.

use std::fmt::Display;
use std::io::{self, Write};

use anyhow::Result;

use crate::output::Format;

/// Where a program's lines go. With JSON on standard output there are none but warnings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Console {
    program: &'static str,
    text: bool,
}

impl Console {
    pub(crate) fn new(program: &'static str, format: Format) -> Self {
        Self { program, text: format == Format::Text }
    }

    /// True when text is printed.
    pub(crate) fn is_text(self) -> bool {
        self.text
    }

    /// Prints text.
    pub(crate) fn write(self, text: impl Display) -> Result<()> {
        if self.text {
            let mut out = io::stdout().lock();
            write!(out, "{text}")?;
            out.flush()?;
        }
        Ok(())
    }

    /// Prints a line.
    pub(crate) fn say(self, line: impl Display) -> Result<()> {
        self.write(format_args!("{line}\n"))
    }

    /// Prints a line on standard error, where the original has it.
    pub(crate) fn note(self, line: impl Display) -> Result<()> {
        if self.text {
            writeln!(io::stderr().lock(), "{line}")?;
        }
        Ok(())
    }

    /// Prints a warning on standard error, whatever the form of the result is.
    pub(crate) fn warn(self, line: impl Display) -> Result<()> {
        Ok(writeln!(io::stderr().lock(), "{}: warning: {line}", self.program)?)
    }
}
