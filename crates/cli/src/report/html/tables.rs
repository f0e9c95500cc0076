//! The tables of the page.

use std::fmt::Display;

use super::super::markup::Markup;
use super::super::model::{Point, Row, Run, Workload};
use super::super::scale::{bytes, thousands};
use super::super::summary::{Summary, Sweep, setting_names};
use super::super::table::with_ends;
use unvme_advise::statistics::Spread;

/// Errors and miscompares of all points.
pub(super) fn failures(run: &Run) -> (u64, u64) {
    let totals = || run.points.iter().map(|point| &point.total);
    (totals().map(|row| row.errors).sum(), totals().map(|row| row.miscompares).sum())
}

/// The workload in words: `4 KiB random read`.
pub(in crate::report) fn pattern(workload: &Workload) -> String {
    let name = match workload.pattern.as_str() {
        "read" => "sequential read".to_owned(),
        "write" => "sequential write".to_owned(),
        "randread" => "random read".to_owned(),
        "randwrite" => "random write".to_owned(),
        "rw" => format!("sequential mix, {} % reads", workload.read_percent),
        "randrw" => format!("random mix, {} % reads", workload.read_percent),
        "mixed" => format!("retrieve and store, {} % retrieves", workload.read_percent),
        ycsb if ycsb.starts_with("ycsb-") => format!("YCSB {}", ycsb[5..].to_uppercase()),
        "replay" => return format!("trace with requests up to {}", bytes(workload.io_bytes)),
        other => other.to_owned(),
    };
    let sizes = || workload.shape.size_mix.iter().map(|size| size.bytes);
    match (sizes().min(), sizes().max()) {
        (Some(min), Some(max)) if min < max => format!("{} to {} {name}", bytes(min), bytes(max)),
        _ => format!("{} {name}", bytes(workload.io_bytes)),
    }
}

/// What a run is about: its workload, or in what its points differ.
pub(super) fn subject(run: &Run) -> String {
    if run.points.iter().all(|point| point.workload.is_none()) {
        return pattern(&run.workload);
    }
    match setting_names(&run.points).as_slice() {
        _ if run.points.iter().any(|point| point.phase.is_some()) => "several phases".to_owned(),
        [] => pattern(&run.workload),
        names => format!("sweep over {}", names.join(", ")),
    }
}

/// What the first column is called where points have names.
fn first_title(run: &Run) -> &'static str {
    let has_settings = run.points.iter().any(|point| !point.settings.is_empty());
    if has_settings { "Point" } else { "Phase" }
}

/// One line per point.
pub(super) fn results(page: &mut Markup, run: &Run) {
    if run.points.is_empty() {
        return;
    }
    let sweep = Summary::new(run).sweep() == Sweep::Depth;
    let tail = run.points.iter().any(|point| point.latency.is_some());
    let (errors, miscompares) = failures(run);
    let phases = Summary::new(run).has_settings();
    let mut columns = if phases { vec![first_title(run)] } else { Vec::new() };
    columns.extend(["Threads", "Depth", "IOPS", "MiB/s", "Average", "Min"]);
    columns.extend(tail.then_some(["p50", "p99", "p99.9", "p99.99"]).into_iter().flatten());
    columns.push("Max");
    let cpu = run.points.iter().any(|point| point.cpu.is_some());
    columns.extend(cpu.then_some("CPU %"));
    columns.extend((errors > 0).then_some("Errors"));
    columns.extend((miscompares > 0).then_some("Miscompares"));
    page.raw("<section>\n<h2>Results <small>latency in µs</small></h2>\n");
    table(page, &columns, |page| {
        let mut before = None;
        for point in &run.points {
            let mut cells = vec![point.threads.to_string(), point.depth.to_string()];
            cells.extend(rates(&point.total));
            cells.push(number_or_dash(point.total.latency_us_min));
            if tail {
                cells.extend([50.0, 99.0, 99.9, 99.99].map(|percent| percentile(point, percent)));
            }
            cells.push(number_or_dash(point.total.latency_us_max));
            cells
                .extend(cpu.then(|| point.cpu.map_or_else(String::new, |cpu| format!("{:.1}", cpu.percent))));
            cells.extend((errors > 0).then(|| point.total.errors.to_string()));
            cells.extend((miscompares > 0).then(|| point.total.miscompares.to_string()));
            let first = sweep && before.is_some_and(|before| before != point.threads);
            before = Some(point.threads);
            let place = phases.then(|| super::super::place(point));
            line(page, place.as_deref(), first, &cells);
            for job in &point.jobs {
                let mut cells = vec![job.threads.to_string(), job.depth.to_string()];
                cells.extend(rates(&job.total));
                cells.push(number_or_dash(job.total.latency_us_min));
                if tail {
                    let of = |percent| job.latency.as_ref().and_then(|own| own.all.percentile_us(percent));
                    cells.extend(
                        [50.0, 99.0, 99.9, 99.99].map(|percent| of(percent).map_or_else(String::new, number)),
                    );
                }
                cells.push(number_or_dash(job.total.latency_us_max));
                cells.extend(cpu.then(String::new));
                cells.extend((errors > 0).then(|| job.total.errors.to_string()));
                cells.extend((miscompares > 0).then(|| job.total.miscompares.to_string()));
                let name = format!("\u{2014} {}", job.name);
                line(page, phases.then_some(name.as_str()), false, &cells);
            }
        }
    });
    page.raw("</section>\n");
}

/// The spread of repetitions; nothing when no point was repeated.
pub(super) fn spreads(page: &mut Markup, run: &Run) {
    if run.points.iter().all(|point| point.spread.is_none()) {
        return;
    }
    page.raw("<section>\n<h2>Repetitions <small>median (least to greatest), latency in µs</small></h2>\n");
    let has_settings = Summary::new(run).has_settings();
    let mut columns = if has_settings { vec![first_title(run)] } else { Vec::new() };
    columns.extend(["Threads", "Depth", "Repetitions", "IOPS", "MiB/s", "Average", "p99", "Max"]);
    table(page, &columns, |page| {
        for point in &run.points {
            let Some(spread) = point.spread else { continue };
            let mut cells = vec![point.threads.to_string(), point.depth.to_string()];
            cells.push(point.repetitions.len().to_string());
            cells.push(with_ends(spread.iops, thousands));
            cells.push(with_ends(spread.mib_per_second, number));
            let latencies = [spread.latency_us_average, spread.latency_us_p99, spread.latency_us_max];
            let dash = || "-".to_owned();
            let told = |spread: Option<Spread>| spread.map_or_else(dash, |it| with_ends(it, number));
            cells.extend(latencies.map(told));
            let place = has_settings.then(|| super::super::place(point));
            line(page, place.as_deref(), false, &cells);
        }
    });
    page.raw("</section>\n");
}

/// One line per device and core of each point, folded away; nothing when no point has more than one.
pub(super) fn rows(page: &mut Markup, run: &Run) {
    if run.points.iter().all(|point| point.rows.len() < 2) {
        return;
    }
    page.raw("<section>\n<details>\n<summary>By device and core</summary>\n");
    let columns = [
        "Device",
        "Core",
        "Threads",
        "Depth",
        "IOPS",
        "MiB/s",
        "Average",
        "Min",
        "Max",
        "Errors",
        "Miscompares",
    ];
    table(page, &columns, |page| {
        for point in &run.points {
            for row in &point.rows {
                let core = row.core.map_or_else(String::new, |core| core.to_string());
                let mut cells = vec![core, point.threads.to_string(), point.depth.to_string()];
                cells.extend(rates(row));
                cells.extend([row.latency_us_min, row.latency_us_max].map(number_or_dash));
                cells.extend([row.errors.to_string(), row.miscompares.to_string()]);
                line(page, Some(&row.label), false, &cells);
            }
        }
    });
    page.raw("</details>\n</section>\n");
}

/// What each device said it is.
pub(in crate::report) fn devices(page: &mut Markup, run: &Run) {
    for device in &run.devices {
        page.raw("<section>\n<h2>Device</h2>\n<dl>\n");
        term(page, "Name", &device.name);
        term(page, "Transport", &device.transport);
        if device.capacity_bytes == 0 {
            page.raw("</dl>\n</section>\n");
            continue;
        }
        term(page, "Model", &device.model);
        term(page, "Serial number", &device.serial);
        term(page, "Firmware", &device.firmware);
        let size = bytes(device.capacity_bytes);
        let made_of = match device.block_bytes {
            0 => "for keys and values".to_owned(),
            block_bytes => format!("in blocks of {}", bytes(u64::from(block_bytes))),
        };
        term(page, "Namespace", format_args!("{}, {size} {made_of}", device.nsid));
        page.raw("</dl>\n</section>\n");
    }
}

/// What was asked of the devices.
pub(in crate::report) fn workload(page: &mut Markup, run: &Run) {
    let workload = &run.workload;
    let differs = run.points.iter().any(|point| point.workload.is_some());
    let title = if differs { "Workload of the first point" } else { "Workload" };
    page.raw("<section>\n");
    page.element("h2", &[], title);
    page.raw("\n<dl>\n");
    term(page, "Commands", pattern(workload));
    term(page, "Addresses", &workload.distribution);
    match workload.commands {
        Some(commands) => {
            term(
                page,
                "Length",
                format_args!("{} commands of each thread in each phase", thousands(commands as f64)),
            );
        }
        None => term(page, "Duration", format_args!("{} s per point", workload.seconds)),
    }
    for (name, text) in workload.shape.facts() {
        term(page, name, text);
    }
    if let Some(placement) = &workload.placement {
        term(page, "Writes placed", placement);
    }
    term(page, "Data verified", if workload.verify { "yes" } else { "no" });
    match workload.rate_limit_iops {
        Some(limit) => {
            let arrivals = workload.arrivals.as_deref().unwrap_or("fixed");
            term(page, "Rate", format_args!("{} IOPS, {arrivals} arrivals", thousands(limit as f64)));
        }
        None => term(page, "Rate", "as fast as the depth allows"),
    }
    page.raw("</dl>\n</section>\n");
}

/// Where it ran.
pub(in crate::report) fn machine(page: &mut Markup, run: &Run) {
    let machine = &run.machine;
    if machine.cores == 0 {
        return;
    }
    page.raw("<section>\n<h2>Machine</h2>\n<dl>\n");
    term(page, "Processor", &machine.cpu_model);
    term(page, "Cores", machine.cores);
    term(page, "Memory", bytes(machine.memory_bytes));
    let huge = machine.hugepages_bytes;
    term(page, "Huge pages", if huge == 0 { "none".to_owned() } else { bytes(huge) });
    term(page, "Kernel", &machine.kernel);
    page.raw("</dl>\n</section>\n");
}

/// How to run it again.
pub(in crate::report) fn command_line(page: &mut Markup, words: &[String]) {
    let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
    page.raw("<section>\n<h2>Command line</h2>\n");
    page.element("pre", &[], words.join(" "));
    page.raw("\n</section>\n");
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let plain = |character: char| character.is_ascii_alphanumeric() || "-_=+:,./@%".contains(character);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

fn rates(row: &Row) -> [String; 3] {
    [thousands(row.iops), number(row.mib_per_second), number_or_dash(row.latency_us_average)]
}

fn percentile(point: &Point, percent: f64) -> String {
    let value = point.latency.as_ref().and_then(|latency| latency.all.percentile_us(percent));
    number_or_dash(value)
}

/// A figure; a dash where no command completed.
fn number_or_dash(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), number)
}

fn number(value: f64) -> String {
    format!("{value:.2}")
}

pub(in crate::report) fn table(page: &mut Markup, columns: &[&str], body: impl FnOnce(&mut Markup)) {
    page.raw("<div class=\"scroll\"><table>\n<thead><tr>");
    for column in columns {
        // Names are on the left, as those below are.
        match *column {
            "Point" | "Phase" => page.element("th", &[("scope", &"col"), ("class", &"name")], column),
            _ => page.element("th", &[("scope", &"col")], column),
        }
    }
    page.raw("</tr></thead>\n<tbody>\n");
    body(page);
    page.raw("</tbody>\n</table></div>\n");
}

pub(in crate::report) fn line(page: &mut Markup, head: Option<&str>, starts_group: bool, cells: &[String]) {
    page.raw(if starts_group { "<tr class=\"group\">" } else { "<tr>" });
    if let Some(head) = head {
        page.element("th", &[("scope", &"row")], head);
    }
    for cell in cells {
        page.element("td", &[], cell);
    }
    page.raw("</tr>\n");
}

pub(in crate::report) fn term(page: &mut Markup, name: &'static str, value: impl Display) {
    page.raw("<div>");
    page.element("dt", &[], name);
    page.element("dd", &[], value);
    page.raw("</div>\n");
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn words_that_a_shell_would_split_are_quoted() {
        assert_eq!(quoted("--depth=1..256"), "--depth=1..256");
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
    }
}
