//! A file with rules.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result};
use unvme_ssd::{FAULT_TEXT_BYTES_MAX, FaultRule, parse_faults};

use crate::exit::usage;

/// The rules in a file, or of standard input for `-`. Errors: a usage error with file, line, column and key;
/// that of reading the file.
pub(crate) fn read_rules(path: &Path) -> Result<Vec<FaultRule>> {
    let name = path.display().to_string();
    let what = || format!("read {name}");
    let source: Box<dyn Read> = match name.as_str() {
        "-" => Box::new(std::io::stdin()),
        _ => Box::new(File::open(path).with_context(what)?),
    };
    let mut bytes = Vec::new();
    source.take(FAULT_TEXT_BYTES_MAX as u64 + 1).read_to_end(&mut bytes).with_context(what)?;
    let text = String::from_utf8(bytes).map_err(|_| usage(format!("{name}: the file is not UTF-8 text")))?;
    parse(&name, &text)
}

/// The rules in a text that is called `name`.
pub(super) fn parse(name: &str, text: &str) -> Result<Vec<FaultRule>> {
    parse_faults(text).map_err(|error| match error.place() {
        Some((line, column)) => usage(format!("{name}:{line}:{column}: {}", error.reason())),
        None => usage(format!("{name}: {error}")),
    })
}
