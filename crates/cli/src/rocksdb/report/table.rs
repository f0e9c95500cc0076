//! Results as text for a terminal.

use std::io::{self, Write};

use super::results::{Phase, Results};
use crate::columns::{Rule, write_rows};
use crate::report::scale::micros;

/// Writes the table: a line for each side of each phase, and how it compares with the last side where there
/// are several. Errors: what `out` returns.
pub(super) fn write(results: &Results, out: &mut dyn Write) -> io::Result<()> {
    let several = results.sides.len() > 1;
    let mut headers = vec!["Phase", "Benchmark"];
    headers.extend(several.then_some("On"));
    headers.extend(["ops/s", "MB/s", "us/op", "P50", "P99", "P99.9", "P99.99", "Max"]);
    let ratio = base(results).map(|base| format!("/ {base}"));
    headers.extend(ratio.as_deref());
    let mut rows = Vec::new();
    for name in results.phases() {
        for (_, side, phase) in results.of(name) {
            let mut row = vec![name.to_owned(), phase.benchmark.clone()];
            row.extend(several.then(|| side.name.clone()));
            row.extend(figures(phase));
            row.extend(several.then(|| {
                ratio_of(results, &side.name, phase).map_or_else(String::new, |ratio| format!("{ratio:.2}"))
            }));
            rows.push(row.into_iter().map(|cell| printable(&cell)).collect::<Vec<String>>());
        }
    }
    let rows: Vec<&[String]> = rows.iter().map(Vec::as_slice).collect();
    write_rows(out, &headers, Rule::Dashes, &rows)
}

/// The name of the last side, which the others are compared with; none where there is one alone.
pub(super) fn base(results: &Results) -> Option<&str> {
    let [.., _, last] = results.sides.as_slice() else { return None };
    Some(&last.name)
}

/// The rate of a phase to that of the last side.
pub(super) fn ratio_of(results: &Results, side: &str, phase: &Phase) -> Option<f64> {
    let base = base(results).filter(|base| *base != side)?;
    let base = results.sides.iter().rev().find(|side| side.name == base)?.phase(&phase.name)?;
    (base.ops_per_second > 0.0).then(|| phase.ops_per_second / base.ops_per_second)
}

/// Rate, bandwidth, and latencies; a dash for what is not known.
pub(super) fn figures(phase: &Phase) -> Vec<String> {
    let dash = || "-".to_owned();
    let mut figures = vec![
        format!("{:.0}", phase.ops_per_second),
        phase.mb_per_second.map_or_else(dash, |rate| format!("{rate:.1}")),
        format!("{:.2}", phase.micros_per_op),
    ];
    match &phase.latency {
        Some(own) => {
            figures.extend([own.p50_us, own.p99_us, own.p99_9_us, own.p99_99_us, own.max_us].map(micros))
        }
        None => figures.extend(std::iter::repeat_with(dash).take(5)),
    }
    figures
}

/// A terminal obeys what is not printable.
pub(super) fn printable(text: &str) -> String {
    text.chars().map(|at| if at.is_control() { char::REPLACEMENT_CHARACTER } else { at }).collect()
}
