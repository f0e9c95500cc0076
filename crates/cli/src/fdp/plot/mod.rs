//! `fdp plot`: what `fdp watch` has seen of two runs, with placement and without: a table, JSON, and a page.
//!
//! | module | concept |
//! |---|---|
//! | `lines` | the files, as they are |
//! | `result` | write amplification and use that come from them |
//! | `page` | the page |

mod lines;
mod page;
mod result;
#[cfg(test)]
mod tests;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;

use self::lines::{Recording, Simulated};
use self::result::{Outcome, Side};
use crate::exit::usage;
use crate::file;
use crate::output::Output;
use crate::perf;
use crate::report::experiment;

/// Most bytes of a file that is read.
const BYTES_MAX: u64 = 64 << 20;

/// Arguments of `fdp plot`.
#[derive(Debug, Args)]
#[command(after_help = "\
The files are what `unvme fdp watch -o json` writes, of one run each. Between its lines there may be
others:
  {\"phase\":\"overwrite\"}              what is written from here on; write amplification counts from
                                     the last one on, and settles in the last quarter of that
  {\"operations_per_second\":50000}    what a program says of the phase

Example:
  unvme fdp plot --placed on.jsonl --unplaced off.jsonl --html waf.html")]
pub(crate) struct Plot {
    /// Lines of a run whose writes name placement handles
    #[arg(long, value_name = "FILE")]
    placed: PathBuf,
    /// Lines of one that did the same without
    #[arg(long, value_name = "FILE")]
    unplaced: PathBuf,
    /// What `unvme sim --fdp both` has written with --json for the same device
    #[arg(long, value_name = "FILE")]
    simulation: Option<PathBuf>,
    /// What was run, for the page's title
    #[arg(long, value_name = "TEXT", default_value = "Flexible Data Placement")]
    title: String,
    /// How it was run: a line of the page for each
    #[arg(long = "note", value_name = "TEXT")]
    notes: Vec<String>,
    /// The page: one HTML file that needs nothing else
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write all figures as JSON, too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
}

impl Plot {
    pub(super) fn run(self) -> Result<()> {
        let placed = side("with placement", &self.placed)?;
        let unplaced = side("without", &self.unplaced)?;
        let simulated = self.simulation.as_deref().map(simulated).transpose()?;
        let outcome = Outcome::new(self.title, self.notes, placed, unplaced, simulated);
        let write_json = |out: &mut dyn Write| -> io::Result<()> {
            serde_json::to_writer_pretty(&mut *out, &outcome)?;
            writeln!(out)
        };
        perf::save(self.json.as_deref(), |out| write_json(out))?;
        let page = page::experiment(&outcome);
        perf::save(self.html.as_deref(), |out| experiment::write(&page, &outcome, out))?;
        self.output.output.show(&outcome, |out| outcome.write_table(out))
    }
}

fn side(name: &'static str, path: &Path) -> Result<Side> {
    let parsed = Recording::parse(&read(path)?).and_then(|recording| Side::new(name, &recording));
    parsed.map_err(|e| usage(format!("{}: {e}", path.display())))
}

fn simulated(path: &Path) -> Result<Simulated> {
    Simulated::parse(&read(path)?).map_err(|e| usage(format!("{}: {e}", path.display())))
}

fn read(path: &Path) -> Result<String> {
    let bytes = file::read(path, BYTES_MAX, "a recording, or what unvme sim has written")?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
