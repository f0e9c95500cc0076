//! A figure and its target.

use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;

/// Which way a figure gets better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Better {
    Higher,
    Lower,
}

/// The target of a row that is there to be read. JSON has `null` for it.
pub(crate) const NO_TARGET: f64 = f64::NEG_INFINITY;

/// One line of the table.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    /// Stable name.
    pub(crate) id: &'static str,
    /// What was measured.
    pub(crate) value: f64,
    /// Unit of `value` and `target`; `x` for a ratio.
    pub(crate) unit: &'static str,
    /// What the figure should be at least, or at most.
    pub(crate) target: f64,
    /// Which of the two.
    pub(crate) better: Better,
    /// Both sides of a ratio, and the conditions.
    pub(crate) note: String,
}

impl Row {
    /// True when the figure is on the right side of its target.
    fn is_reached(&self) -> bool {
        match self.better {
            Better::Higher => self.value >= self.target,
            Better::Lower => self.value <= self.target,
        }
    }

    pub(crate) fn write_header(out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "{:<25} {:>8} {:<6} {:>9}  {:<5}  note", "id", "value", "unit", "target", "")
    }

    pub(crate) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let sign = match self.better {
            Better::Higher => ">=",
            Better::Lower => "<=",
        };
        let target =
            if self.target == NO_TARGET { "-".to_owned() } else { format!("{sign} {}", self.target) };
        let verdict = if self.is_reached() { "ok" } else { "BELOW" };
        let Self { id, value, unit, note, .. } = self;
        writeln!(out, "{id:<25} {value:>8.3} {unit:<6} {target:>9}  {verdict:<5}  {note}")?;
        out.flush()
    }
}

/// Writes the rows as a JSON list.
pub(crate) fn save(rows: &[Row], path: &Path) -> Result<()> {
    let text = serde_json::to_string_pretty(rows)? + "\n";
    std::fs::write(path, text).with_context(|| format!("write {}", path.display()))
}
