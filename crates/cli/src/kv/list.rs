//! `kv list`.

use std::io::{BufWriter, Write};

use anyhow::Result;
use clap::Args;

use super::place::{Place, bytes_of, key_fields, shown};
use crate::numbers;
use crate::output::{Format, Output};
use crate::show::hex;
use crate::value::{Value, fields};

/// Arguments of `kv list`.
#[derive(Debug, Args)]
#[command(after_help = "\
Keys of up to 16 bytes come first, in the device's order, which is ascending on most; longer
ones follow in any order. What cannot be printed is shown as \\xNN.

Examples:
  unvme kv list 0000:02:00.0
  unvme kv list 0000:02:00.0 --prefix user: --limit 10
  unvme kv list 0000:02:00.0 --key-hex --start 00ff --output json")]
pub(crate) struct List {
    #[command(flatten)]
    place: Place,
    /// Keys that begin with this
    #[arg(short, long, value_name = "TEXT")]
    prefix: Option<String>,
    /// Keys from this one on, in byte order
    #[arg(short, long, value_name = "KEY")]
    start: Option<String>,
    /// Most keys to list
    #[arg(short, long, value_name = "COUNT", value_parser = numbers::u64)]
    limit: Option<u64>,
    /// Keys are hexadecimal, as typed and as shown
    #[arg(short = 'x', long)]
    key_hex: bool,
    #[command(flatten)]
    output: Output,
}

impl List {
    pub(crate) fn run(self) -> Result<()> {
        let bytes =
            |text: &Option<String>| text.as_deref().map(|text| bytes_of(text, self.key_hex)).transpose();
        let (prefix, start) = (bytes(&self.prefix)?, bytes(&self.start)?);
        let mut kv = self.place.open()?;
        let keys = match (&prefix, &start) {
            (Some(prefix), _) => kv.prefix(prefix)?,
            (None, Some(start)) => kv.list_from(start)?,
            (None, None) => kv.list()?,
        };
        // With a prefix the device is asked for that alone, and the start is looked at here.
        let wanted = keys.filter(|key| match (key, &start) {
            (Ok(key), Some(start)) => key >= start,
            _ => true,
        });
        let wanted =
            wanted.take(self.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX)));
        if self.output.output == Format::Json {
            let keys = wanted.map(|key| Ok(Value::Fields(key_fields(&key?)))).collect::<Result<Vec<_>>>()?;
            let json = fields! { "count": keys.len() as u64, "keys": Value::List(keys) };
            return Format::Json.say(json, "");
        }
        // Line by line: there may be millions, and their reader may have enough after a few.
        let mut out = BufWriter::new(std::io::stdout().lock());
        for key in wanted {
            let key = key?;
            let text = if self.key_hex { hex::text(&key) } else { shown(&key) };
            writeln!(out, "{text}")?;
        }
        Ok(out.flush()?)
    }
}
