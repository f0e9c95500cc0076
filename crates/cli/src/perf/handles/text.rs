//! The result as tables.

use std::io::{self, Write};

use super::outcome::{Figures, Outcome};
use crate::columns::{Rule, write_table};

const HEADERS: [&str; 10] =
    ["Handle", "IOPS", "MiB/s", "Average us", "p50 us", "p99 us", "p99.9 us", "CPU %", "Hits %", "Errors"];

pub(super) fn write(outcome: &Outcome, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}", outcome.device.label())?;
    for own in &outcome.handles {
        let rate = own.rate.map(|rate| format!(", {rate} a second")).unwrap_or_default();
        let policies = if own.policies.is_empty() { "no policies" } else { own.policies.as_str() };
        writeln!(
            out,
            "{}: {} of {} bytes, depth {}{rate}, blocks {} to {}; {policies}",
            own.name,
            own.pattern,
            own.io_bytes,
            own.depth,
            own.first_block,
            own.first_block + own.blocks
        )?;
    }
    for run in &outcome.runs {
        writeln!(out, "\n{}", run.name)?;
        let rows: Vec<[String; 10]> = run.handles.iter().map(row).collect();
        write_table(out, &HEADERS, Rule::Dashes, &rows)?;
    }
    writeln!(out, "\n{}", outcome.sentence())
}

pub(super) fn row(own: &Figures) -> [String; 10] {
    let shown = |us: Option<f64>| us.map_or_else(|| "-".to_owned(), |us| format!("{us:.1}"));
    let us = |percent| shown(own.percentile(percent));
    [
        own.name.clone(),
        format!("{:.0}", own.iops),
        format!("{:.1}", own.mib_per_second),
        shown(own.latency_us_average),
        us(50.0),
        us(99.0),
        us(99.9),
        format!("{:.0}", own.cpu_percent),
        own.hit_percent.map_or_else(|| "-".to_owned(), |hits| format!("{hits:.1}")),
        own.errors.to_string(),
    ]
}
