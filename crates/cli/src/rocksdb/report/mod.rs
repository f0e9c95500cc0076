//! `unvme rocksdb-plot`: what RocksDB's db_bench has written, as a table, JSON and a page.
//!
//! - [`output`], [`series`]: the text of db_bench
//! - [`results`]: what is kept of it, and reading files
//! - [`table`], [`page`]: showing it

mod output;
mod page;
mod results;
mod series;
mod table;
#[cfg(test)]
mod tests;

use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use self::results::Results;
use crate::output::Output;
use crate::perf;
use crate::report::experiment;

/// Arguments of `rocksdb-plot`.
#[derive(Debug, Args)]
#[command(after_help = "\
Results of several folders are drawn beside each other, and compared with the last one. With
--histogram=1 latencies are drawn, with --stats_interval_seconds=1 throughput over time, with
--statistics=1 what RocksDB has written. NAME.stats.json beside NAME.txt is what the file system has
counted: UNVME_ROCKSDB_STATS=NAME.stats.json for `unvme rocksdb`. The files of a folder are phases,
in the order of their names; a number in front, as in 02-read.txt, is not shown.

share/unvme/unvme_rocksdb/run_tests.sh makes such folders.

Examples:
  unvme rocksdb-plot fillseq.txt
  unvme rocksdb-plot out/unvme out/kernel --report page.html --json results.json
  unvme rocksdb-plot results.json --report again.html")]
pub(crate) struct RocksdbPlot {
    /// Outputs of db_bench, folders of them (all *.txt), or JSON of an earlier report
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    output: Output,
    /// The page: one HTML file that needs nothing else
    #[arg(long, value_name = "FILE", default_value = "rocksdb-report.html")]
    report: PathBuf,
    /// Write all figures as JSON, too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl RocksdbPlot {
    pub(crate) fn run(&self) -> Result<()> {
        let results = Results::read(&self.paths)?;
        let page = page::experiment(&results);
        perf::save(Some(&self.report), |out| experiment::write(&page, &results, out))?;
        perf::save(self.json.as_deref(), |out| {
            serde_json::to_writer_pretty(&mut *out, &results)?;
            out.write_all(b"\n")
        })?;
        self.output.output.show(&results, |out| {
            table::write(&results, out)?;
            for warning in &page.warnings {
                writeln!(out, "{}", table::printable(warning))?;
            }
            writeln!(out, "\nReport: {}", self.report.display())
        })
    }
}
