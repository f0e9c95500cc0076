//! The text that a terminal shows: one table per point, and one for a whole sweep.

use std::io::{self, Write};

use super::latency::{Distribution, Latency};
use super::markup::is_unprintable;
use super::model::{Point, Row, Run};
use super::summary::{Summary, depths, failures, p99, setting_names, thread_counts};
use crate::columns::{Rule, write_rows, write_table};
use crate::count::count;
use unvme_advise::statistics::Spread;

const RULE: &str = "========================================================";
const WIDE_RULE: &str = "=================================================================================";
/// Width of ` from core 12`, which the name of a device is followed by.
const CORE_WIDTH: usize = 13;
/// The name is padded to that of a PCI device with domain, so that the tables of different devices line up.
const NAME_WIDTH: usize = 28;
/// Width of `Latency(us)` and all columns before it, behind the name.
const LATENCY_OFFSET: usize = 60;

/// How much is told of the latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Percentiles {
    /// A line, from the median to the rarest that there are samples enough for.
    Line,
    /// The same and the whole list, of reads and of writes apart where both were done.
    List,
}

/// Writes the table of one point: a row per device and core, then their sum, then the percentiles if latency
/// was recorded. Errors and miscompares get a line of their own when there are any. Errors: what `out`
/// returns.
pub(crate) fn write(point: &Point, wanted: Percentiles, out: &mut impl Write) -> io::Result<()> {
    let names: Vec<String> = point.rows.iter().map(|row| printable(&row.label)).collect();
    let widest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0).max(NAME_WIDTH);
    let width = widest + CORE_WIDTH;
    writeln!(out, "{RULE}")?;
    writeln!(out, "{:>1$}", "Latency(us)", widest + LATENCY_OFFSET)?;
    let titles = ["IOPS", "MiB/s", "Average", "min", "max"].map(|title| format!(" {title:>10}"));
    writeln!(out, "{:<width$}:{}", "Device Information", titles.concat())?;
    for (name, row) in names.iter().zip(&point.rows) {
        let from = row.core.map_or_else(String::new, |core| format!(" from core {core:>2}"));
        line(&format!("{name}{from}"), width, row, out)?;
    }
    writeln!(out, "{RULE}")?;
    line("Total", width, &point.total, out)?;
    if let Some(text) = failures(point.total.errors, point.total.miscompares) {
        writeln!(out, "{text}")?;
    }
    if let Some(told) = point.latency.as_ref().and_then(|latency| latency.all.told()) {
        writeln!(out, "Latency: {told}")?;
    }
    for text in point.schedule.iter().flat_map(|schedule| schedule.sentences(&point.total)) {
        writeln!(out, "{text}")?;
    }
    for (name, figures) in point.asides() {
        writeln!(out, "{name}: {}", figures.sentence())?;
    }
    for text in point.pairs.iter().flat_map(super::PairFigures::sentences) {
        writeln!(out, "{text}")?;
    }
    if let Some(cpu) = &point.cpu {
        writeln!(out, "Processor: {}", cpu.sentence())?;
    }
    if let Some(amplification) = point.write_amplification {
        writeln!(out, "Write amplification: {amplification:.3}")?;
    }
    if let Some(latency) = point.latency.as_ref().filter(|_| wanted == Percentiles::List) {
        let subject = match names.as_slice() {
            [only] => only.as_str(),
            _ => "all devices and cores",
        };
        percentiles(subject, latency, out)?;
    }
    Ok(())
}

/// Writes the summary of a sweep. Over threads and depths: a row per depth, and for each thread count its
/// rate, average and 99th percentile; over anything else a row per point, with what it is in front. A
/// combination that was not measured, or a percentile that was not recorded, is a dash. Errors: what `out`
/// returns.
pub(crate) fn write_sweep(run: &Run, out: &mut impl Write) -> io::Result<()> {
    let points = &run.points;
    if Summary::new(run).has_settings() {
        return write_points(points, out);
    }
    let threads = thread_counts(points);
    let depths = depths(points);
    let group = |threads: &u32| format!("  |{:^33}", count(*threads, "thread"));
    let groups: String = threads.iter().map(group).collect();
    let titles = format!("  |{:>11}{:>11}{:>11}", "IOPS", "avg(us)", "p99(us)");
    writeln!(out, "{}", format!("{:5}{groups}", "").trim_end())?;
    writeln!(out, "Depth{}", titles.repeat(threads.len()))?;
    writeln!(out, "-----{}", format!("--+{}", "-".repeat(33)).repeat(threads.len()))?;
    for depth in depths {
        write!(out, "{depth:>5}")?;
        for &count in &threads {
            let point = points.iter().find(|point| point.threads == count && point.depth == depth);
            let rate = figure(point.map(|point| point.total.iops));
            let average = figure(point.and_then(|point| point.total.latency_us_average));
            let tail = figure(point.and_then(p99));
            write!(out, "  |{rate:>11}{average:>11}{tail:>11}")?;
        }
        writeln!(out)?;
    }
    Ok(())
}

/// The same, a row per point.
fn write_points(points: &[Point], out: &mut dyn Write) -> io::Result<()> {
    let names = setting_names(points);
    let has_phases = points.iter().any(|point| point.phase.is_some());
    let mut titles: Vec<&str> = if has_phases { vec!["Phase"] } else { Vec::new() };
    titles.extend(names.iter().copied());
    let lead = titles.len();
    titles.extend(["IOPS", "MiB/s", "Average(us)", "p99(us)"]);
    let has_flash = points.iter().any(|point| point.write_amplification.is_some());
    titles.extend(has_flash.then_some("WAF"));
    let has_completion = names.contains(&"completion");
    titles.extend(has_completion.then_some("CPU"));
    let mut rows: Vec<Vec<String>> = Vec::new();
    for point in points {
        let of = |name: &&str| point.settings.iter().find(|setting| setting.name == **name);
        let mut row: Vec<String> =
            has_phases.then(|| point.phase.clone().unwrap_or_default()).into_iter().collect();
        row.extend(names.iter().map(|name| of(name).map_or_else(|| "-".to_owned(), |own| own.value.clone())));
        row.extend(figures(&point.total, p99(point)));
        let amplification =
            point.write_amplification.map_or_else(|| "-".to_owned(), |waf| format!("{waf:.3}"));
        row.extend(has_flash.then_some(amplification));
        let cpu = point.cpu.map_or_else(|| "-".to_owned(), |cpu| format!("{:.1} %", cpu.percent));
        row.extend(has_completion.then_some(cpu));
        rows.push(row);
        for job in &point.jobs {
            let tail = job.latency.as_ref().and_then(|latency| latency.all.percentile_us(99.0));
            let mut row = vec![format!("  {}", job.name)];
            row.resize(lead.max(1), String::new());
            row.extend(figures(&job.total, tail));
            row.resize(titles.len(), String::new());
            rows.push(row);
        }
    }
    let rows: Vec<&[String]> = rows.iter().map(Vec::as_slice).collect();
    write_rows(out, &titles, Rule::Dashes, &rows)
}

fn figures(total: &Row, p99: Option<f64>) -> [String; 4] {
    [
        format!("{:.0}", total.iops),
        format!("{:.2}", total.mib_per_second),
        figure(total.latency_us_average),
        figure(p99),
    ]
}

/// A figure to two digits behind the point; a dash where there is none.
fn figure(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"))
}

/// Writes how far the repetitions of points are apart: a line per point with medians, in parentheses the
/// least and the greatest. Nothing where there are none. Errors: what `out` returns.
pub(crate) fn write_spreads(points: &[Point], out: &mut dyn Write) -> io::Result<()> {
    let titles = ["Point", "Times", "IOPS", "MiB/s", "Average(us)", "p99(us)"];
    let row = |point: &Point| {
        let spread = point.spread?;
        let two = |spread: Spread| with_ends(spread, |figure| format!("{figure:.2}"));
        let two_or_dash = |spread: Option<Spread>| spread.map_or_else(|| "-".to_owned(), two);
        Some([
            super::place(point),
            point.repetitions.len().to_string(),
            with_ends(spread.iops, |figure| format!("{figure:.0}")),
            two(spread.mib_per_second),
            two_or_dash(spread.latency_us_average),
            two_or_dash(spread.latency_us_p99),
        ])
    };
    let rows: Vec<[String; 6]> = points.iter().filter_map(row).collect();
    if rows.is_empty() {
        return Ok(());
    }
    writeln!(out, "Repetitions: median (least to greatest)")?;
    write_table(out, &titles, Rule::None, &rows)
}

/// A median, and in parentheses how far it reaches.
pub(super) fn with_ends(spread: Spread, show: impl Fn(f64) -> String) -> String {
    format!("{} ({} to {})", show(spread.median), show(spread.min), show(spread.max))
}

fn line(name: &str, width: usize, row: &Row, out: &mut impl Write) -> io::Result<()> {
    let latencies = [row.latency_us_average, row.latency_us_min, row.latency_us_max];
    let figures = [Some(row.iops), Some(row.mib_per_second)].into_iter().chain(latencies);
    let figures: Vec<String> = figures.map(|value| format!(" {:>10}", figure(value))).collect();
    writeln!(out, "{name:<width$}:{}", figures.concat())
}

fn percentiles(subject: &str, latency: &Latency, out: &mut impl Write) -> io::Result<()> {
    block(subject, &latency.all, out)?;
    for (kind, part) in [("reads", &latency.read), ("writes", &latency.write)] {
        if let Some(part) = part {
            block(&format!("{subject}, {kind}"), part, out)?;
        }
    }
    Ok(())
}

fn block(subject: &str, distribution: &Distribution, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "\nSummary latency data for {subject}:\n{WIDE_RULE}")?;
    for at in &distribution.percentiles {
        // Five digits line up; beyond 99.99999 they would all be 100.
        let percent =
            if at.percent > 99.99999 { at.percent.to_string() } else { format!("{:.5}", at.percent) };
        writeln!(out, "{percent:>9}% : {:>9.3}us", at.us)?;
    }
    Ok(())
}

/// The label without what a terminal would obey: a device chooses its own names.
pub(super) fn printable(label: &str) -> String {
    label.chars().map(|character| if is_unprintable(character) { '?' } else { character }).collect()
}
