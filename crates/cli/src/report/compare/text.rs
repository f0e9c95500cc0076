//! A comparison as text.

use std::io::{self, Write};

use super::super::table::{printable, with_ends};
use super::{Compared, Comparison};
use crate::columns::{Rule, write_table};

/// Writes all of it: the sides, a table per point, what is on one side alone, how it was judged. Errors: what
/// `out` returns.
pub(crate) fn write(comparison: &Comparison, out: &mut dyn Write) -> io::Result<()> {
    for side in &comparison.sides {
        writeln!(out, "{}", printable(&side.name()))?;
    }
    for point in &comparison.points {
        writeln!(out)?;
        table(point, out)?;
    }
    if !comparison.unmatched.is_empty() {
        writeln!(out)?;
    }
    for alone in &comparison.unmatched {
        writeln!(out, "Only in {}, not in {}: {}", alone.side, alone.missing, printable(&alone.what))?;
    }
    // A sentence per line.
    writeln!(out, "\n{}", comparison.judged().replace(". ", ".\n"))?;
    writeln!(out, "\n{}", comparison.sentence())
}

fn table(point: &Compared, out: &mut dyn Write) -> io::Result<()> {
    let (base, other) = (point.base, point.other);
    writeln!(out, "{}: median (least to greatest)", printable(&point.what))?;
    let (ratio, base, other) = (format!("{other}/{base}"), base.to_string(), other.to_string());
    let titles = ["", &base, &other, &ratio, "p", ""];
    let rows: Vec<[String; 6]> = point
        .metrics
        .iter()
        .map(|metric| {
            let show = |figure| metric.metric.show(figure);
            [
                metric.metric.name().to_owned(),
                with_ends(metric.base, show),
                with_ends(metric.other, show),
                metric.ratio_words(),
                metric.p_words(),
                metric.words(point.other),
            ]
        })
        .collect();
    write_table(out, &titles, Rule::None, &rows)?;
    for stalled in &point.stalled {
        writeln!(out, "{}", stalled.sentence())?;
    }
    Ok(())
}
