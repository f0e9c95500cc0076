//! The report as one HTML file: style, script and plots are inside, and nothing is loaded.

use crate::count::count;
use std::io::{self, Write};

use super::super::html::{HEAD, begin, card, end, raw, tables};
use super::super::markup::{Attributes, Markup};
use super::super::plot::widths;
use super::super::scale::{bytes, micros, si, thousands, trimmed};
use super::figures;
use super::model::{Handle, Row, Simulation, percent};

/// Width of the bars' labels, and height of a bar with the space around it.
const LABELS: f64 = 196.0;
const STEP: f64 = 24.0;
/// Room for the pages moved, at the end of a bar.
const FIGURES: f64 = 112.0;

/// Writes the page; `command_line` is what was typed. Errors: what `out` returns.
pub(crate) fn write(
    simulation: &Simulation,
    command_line: &[String],
    out: &mut impl Write,
) -> io::Result<()> {
    out.write_all(page(simulation, command_line).as_bytes())
}

fn page(simulation: &Simulation, command_line: &[String]) -> String {
    let mut page = Markup::default();
    page.raw(HEAD);
    page.element(
        "title",
        &[],
        format_args!("{}: {}", simulation.workload.title, super::sentence(simulation)),
    );
    begin(&mut page);
    header(&mut page, simulation);
    cards(&mut page, simulation);
    page.raw("<section class=\"charts\" aria-label=\"Plots\">\n");
    figures::charts(simulation).iter().for_each(|chart| chart.draw(&mut page));
    bars(&mut page, simulation);
    page.raw("</section>\n");
    results(&mut page, simulation);
    handles(&mut page, simulation);
    latencies(&mut page, simulation);
    page.raw("<div class=\"facts\">\n");
    device(&mut page, simulation);
    workload(&mut page, simulation);
    page.raw("</div>\n");
    tables::command_line(&mut page, command_line);
    raw(&mut page, |out| super::write_json(simulation, out));
    end(&mut page);
    page.finish()
}

fn header(page: &mut Markup, simulation: &Simulation) {
    page.raw("<header>\n");
    page.element("p", &[("class", &"kicker")], "Flash simulation report");
    page.element("h1", &[], &simulation.workload.title);
    page.element("p", &[("class", &"result")], super::sentence(simulation));
    let device = &simulation.device;
    let about = format!(
        "{} of flash, {} % overprovisioning, {} · seed {} · unvme {}",
        bytes(device.physical_bytes),
        trimmed(&format!("{:.2}", device.overprovisioning * 100.0)),
        device.policy,
        simulation.workload.seed,
        simulation.tool_version
    );
    page.element("p", &[("class", &"about")], about);
    page.raw("</header>\n");
}

fn cards(page: &mut Markup, simulation: &Simulation) {
    let fullest = |fdp: bool| {
        let rows = simulation.rows.iter().filter(|row| row.fdp == fdp);
        rows.max_by(|a, b| a.util.total_cmp(&b.util))
    };
    page.raw("<section class=\"cards\" aria-label=\"Key figures\">\n");
    for (row, title) in [(fullest(false), "WAF without FDP"), (fullest(true), "WAF with FDP")] {
        if let Some(row) = row {
            let note = format!("last quarter, {} % of the device in use", percent(row.util));
            card(page, title, &format!("{:.3}", row.plateau), "", &note);
        }
    }
    if let (Some(off), Some(on)) = (fullest(false), fullest(true)) {
        let moved = |row: &Row| (row.media_pages - row.host_pages) as f64;
        let saved = if moved(off) > 0.0 { 100.0 * (1.0 - moved(on) / moved(off)) } else { 0.0 };
        let unit = if saved < 0.0 { "% more" } else { "% less" };
        let value = format!("{:.1}", saved.abs());
        card(page, "Moved by reclaim", &value, unit, "with FDP, over all of the run");
        let life = off.plateau / on.plateau;
        card(page, "Life of the flash", &format!("{life:.2}"), "x", "writes by hosts until it is worn out");
    }
    let written = simulation.rows.iter().map(|row| row.media_pages).sum::<u64>();
    let note = format!("pages in {}", count(simulation.rows.len(), "run"));
    card(page, "Simulated", &si(written as f64), "", &note);
    page.raw("</section>\n");
}

/// What each handle of the fullest device took, and what reclaim moved of it.
fn bars(page: &mut Markup, simulation: &Simulation) {
    let top = simulation.rows.iter().map(|row| row.util).fold(0.0, f64::max);
    let rows: Vec<&Row> = simulation.rows.iter().filter(|row| row.util == top).collect();
    let bars: Vec<(&Row, &Handle)> =
        rows.iter().flat_map(|row| row.handles.iter().map(move |handle| (*row, handle))).collect();
    let most =
        bars.iter().map(|(_, handle)| handle.host_pages + handle.moved_pages).max().unwrap_or(0).max(1);
    let height = bars.len() as f64 * STEP + 8.0;
    let wide = simulation.rows.iter().all(|row| row.util == top);
    page.open("figure", &[("class", &"chart wide")]);
    page.raw("<h3>What came through each handle</h3>");
    let note = if wide { String::new() } else { format!(", {} % of the device in use", percent(top)) };
    page.element(
        "p",
        &[("class", &"note")],
        format_args!("Pages that the host wrote (full colour), and those that reclaim moved out of the units they filled (pale){note}"),
    );
    page.raw("<div class=\"canvas\">");
    for (width, class) in widths(true) {
        let view = format!("0 0 {width} {height}");
        let attributes: Attributes<'_> =
            &[("class", class), ("viewBox", &view), ("role", &"img"), ("aria-label", &"Pages by handle")];
        page.open("svg", attributes);
        let per_page = (width - LABELS - FIGURES) / most as f64;
        for (index, (row, handle)) in bars.iter().enumerate() {
            bar(page, index as f64 * STEP, row, handle, per_page);
        }
        page.raw("</svg>");
    }
    page.raw("</div></figure>\n");
}

/// One bar; a page has a width of `per_page`.
fn bar(page: &mut Markup, y: f64, row: &Row, handle: &Handle, per_page: f64) {
    let width = |pages: u64| pages as f64 * per_page;
    let fdp = if row.fdp { "FDP" } else { "no FDP" };
    let name = match handle.handle {
        Some(number) => format!("{fdp}, {number}: {}", handle.stream),
        None => format!("{fdp}, {}", handle.stream),
    };
    let text = |page: &mut Markup, class: &str, x: f64, text: &str| {
        let (x, y) = (format!("{x:.1}"), format!("{:.1}", y + 16.0));
        page.element("text", &[("class", &class), ("x", &x), ("y", &y)], text);
    };
    text(page, "name end", LABELS - 8.0, &name);
    let colour = if row.fdp { 0 } else { 1 };
    let (host, moved) = (width(handle.host_pages), width(handle.moved_pages));
    let said = [
        format!("{name}\n{} pages written by the host", thousands(handle.host_pages as f64)),
        format!("{name}\n{} pages moved by reclaim", thousands(handle.moved_pages as f64)),
    ];
    let parts = [("bar", LABELS, host), ("bar pale", LABELS + host, moved)];
    for ((class, x, width), said) in parts.into_iter().zip(&said) {
        let class = format!("{class} c{colour}");
        let (x, y, width) = (format!("{x:.1}"), format!("{:.1}", y + 4.0), format!("{width:.1}"));
        page.open("rect", &[("class", &class), ("x", &x), ("y", &y), ("width", &width), ("height", &16)]);
        page.element("title", &[], said);
        page.close("rect");
    }
    let moved_pages = format!("moved {}", si(handle.moved_pages as f64));
    text(page, "mark", LABELS + host + moved + 6.0, &moved_pages);
}

fn results(page: &mut Markup, simulation: &Simulation) {
    let theory = simulation.rows.iter().any(|row| row.theory.is_some());
    let published = simulation.rows.iter().any(|row| row.published.is_some());
    page.raw("<section>\n<h2>Write amplification <small>in each twelfth of the run</small></h2>\n");
    let numbers: Vec<String> =
        (1..=simulation.rows.first().map_or(0, |row| row.twelfths.len())).map(|n| n.to_string()).collect();
    let mut columns = vec!["In use, FDP", "Mapped, %"];
    columns.extend(numbers.iter().map(String::as_str));
    columns.push("Plateau");
    columns.extend(theory.then_some("Theory"));
    columns.extend(published.then_some("Published"));
    tables::table(page, &columns, |page| {
        let mut before = None;
        for row in &simulation.rows {
            let mut cells = vec![row.mapped()];
            cells.extend(row.twelfths.iter().map(|waf| format!("{waf:.2}")));
            cells.push(format!("{:.3}", row.plateau));
            cells.extend(theory.then(|| super::theory(row)));
            cells.extend(
                published.then(|| row.published.as_ref().map_or("-", |published| published.value).to_owned()),
            );
            let first = before.is_some_and(|before| before != row.util);
            before = Some(row.util);
            tables::line(page, Some(&row.label()), first, &cells);
        }
    });
    for note in super::notes(simulation) {
        page.element("p", &[("class", &"note")], note);
    }
    page.raw("</section>\n");
}

fn handles(page: &mut Markup, simulation: &Simulation) {
    page.raw("<section>\n<details>\n<summary>By reclaim unit handle</summary>\n");
    let columns =
        ["In use, FDP", "Mapped, %", "Handle", "Stream", "Host pages", "Moved pages", "Erased units"];
    tables::table(page, &columns, |page| {
        for row in &simulation.rows {
            for handle in &row.handles {
                let cells = [
                    row.mapped(),
                    super::number_of(handle),
                    handle.stream.clone(),
                    thousands(handle.host_pages as f64),
                    thousands(handle.moved_pages as f64),
                    thousands(handle.erased_units as f64),
                ];
                tables::line(page, Some(&row.label()), false, &cells);
            }
        }
    });
    page.raw("</details>\n</section>\n");
}

fn latencies(page: &mut Markup, simulation: &Simulation) {
    let timed: Vec<_> = simulation.rows.iter().filter_map(|row| Some((row, row.latency?))).collect();
    let Some((_, first)) = timed.first() else { return };
    page.raw("<section>\n<h2>Latency of writes ");
    page.element("small", &[], format_args!("4 KiB at depth {}, in virtual time", first.depth));
    page.raw("</h2>\n");
    let columns = ["In use, FDP", "Mapped, %", "Lasts", "Average", "p50", "p99", "p99.9", "p99.99", "Max"];
    tables::table(page, &columns, |page| {
        for (row, at) in &timed {
            let lasts =
                row.samples.last().and_then(|last| last.seconds).map_or_else(String::new, super::span);
            let mut cells = vec![row.mapped(), lasts];
            cells
                .extend([at.mean_us, at.p50_us, at.p99_us, at.p99_9_us, at.p99_99_us, at.max_us].map(micros));
            tables::line(page, Some(&row.label()), false, &cells);
        }
    });
    page.raw("</section>\n");
}

fn device(page: &mut Markup, simulation: &Simulation) {
    let device = &simulation.device;
    page.raw("<section>\n<h2>Device</h2>\n<dl>\n");
    tables::term(
        page,
        "Flash",
        format_args!("{}, {} exported", bytes(device.physical_bytes), bytes(device.exported_bytes)),
    );
    tables::term(
        page,
        "Reclaim units",
        format_args!("{} of {}", thousands(device.units.into()), bytes(device.unit_bytes)),
    );
    tables::term(page, "Placement", super::groups(device));
    tables::term(page, "Victims", &device.policy);
    let sold = trimmed(&format!("{:.2}", device.overprovisioning * 100.0));
    let mut reserves: Vec<(u32, f64)> = Vec::new();
    for row in &simulation.rows {
        if !reserves.iter().any(|reserve| reserve.0 == row.reserve_units) {
            reserves.push((row.reserve_units, row.overprovisioning_effective));
        }
    }
    let effective: Vec<String> = reserves
        .iter()
        .map(|(units, rest)| format!("{:.2} % after a reserve of {}", rest * 100.0, count(*units, "unit")))
        .collect();
    tables::term(page, "Overprovisioning", format_args!("{sold} % as sold; {}", effective.join(", ")));
    tables::term(page, "Timing", &device.timing);
    page.raw("</dl>\n</section>\n");
}

fn workload(page: &mut Markup, simulation: &Simulation) {
    page.raw("<section>\n<h2>Workload</h2>\n<dl>\n");
    for parameter in &simulation.workload.parameters {
        tables::term(page, parameter.name, &parameter.value);
    }
    let begun = if simulation.workload.prefilled { "every page in use written once" } else { "empty" };
    tables::term(page, "The device at first", begun);
    tables::term(page, "Seed", simulation.workload.seed);
    page.raw("</dl>\n</section>\n");
}
