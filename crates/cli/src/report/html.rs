//! The report as one HTML file: style, script and plots are inside, nothing is loaded, and it prints well.

pub(super) mod tables;

use std::io::{self, Write};

use super::markup::Markup;
use super::model::{DeviceIdentity, Machine, Run};
use super::scale::{average, bytes, mebibytes, micros, micros_or_none, si};
use super::summary::{self, Summary, Sweep, p99};
use super::{figures, grid};
use crate::count::count;

/// Phases that have a card of their own.
const PHASE_CARDS: usize = 5;

/// How a page begins, up to its title.
pub(super) const HEAD: &str = "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
    <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
    <meta name=\"color-scheme\" content=\"light dark\">\n\
    <meta http-equiv=\"Content-Security-Policy\" \
    content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">\n\
    <link rel=\"icon\" href=\"data:,\">\n";

/// Colours, for light and for dark.
pub(super) const PALETTE: &str = include_str!("html/palette.css");
/// How plots are drawn.
pub(super) const PLOT: &str = include_str!("html/plot.css");
/// The rest of the page.
const STYLE: &str = include_str!("html/style.css");
/// What shows a point's values when the pointer is near.
const HOVER: &str = include_str!("html/hover.js");
/// What makes the data of the page a file.
const RAW: &str = include_str!("html/raw.js");
/// Devices that are described at the top; the tables have all.
const DEVICES_TOLD: usize = 4;

/// Writes the page. Errors: what `out` returns.
pub(crate) fn write(run: &Run, out: &mut impl Write) -> io::Result<()> {
    out.write_all(page(run).as_bytes())
}

fn page(run: &Run) -> String {
    let summary = Summary::new(run);
    let mut page = Markup::default();
    page.raw(HEAD);
    let pattern = tables::subject(run);
    page.element("title", &[], format_args!("{pattern}, {}, {}", names(run), run.started));
    begin(&mut page);
    header(&mut page, run, summary);
    failures(&mut page, run);
    cards(&mut page, run, summary);
    let charts = figures::charts(run);
    if !charts.is_empty() {
        page.raw("<section class=\"charts\" aria-label=\"Plots\">\n");
        charts.iter().for_each(|chart| chart.draw(&mut page));
        page.raw("</section>\n");
    }
    grid::maps(&mut page, run);
    asides(&mut page, run);
    steady(&mut page, run);
    tables::results(&mut page, run);
    tables::spreads(&mut page, run);
    tables::rows(&mut page, run);
    page.raw("<div class=\"facts\">\n");
    tables::devices(&mut page, run);
    tables::workload(&mut page, run);
    tables::machine(&mut page, run);
    schedules(&mut page, run, summary);
    harness(&mut page, summary);
    page.raw("</div>\n");
    tables::command_line(&mut page, &run.command_line);
    raw(&mut page, |out| super::write_json(run, out));
    end(&mut page);
    page.finish()
}

/// What the page was made from, and a link that saves it: its bytes are those that a file would have. A page
/// is without both where there is no JSON of it.
pub(super) fn raw(page: &mut Markup, write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) {
    let mut bytes = Vec::new();
    let written = write(&mut bytes);
    if let (Ok(()), Ok(json)) = (written, String::from_utf8(bytes)) {
        page.raw("<p class=\"raw\"><a id=\"raw\" hidden download=\"unvme-report.json\">raw JSON</a></p>\n");
        page.json("data", &json);
        page.raw("\n");
    }
}

/// What follows a page's title.
pub(super) fn begin(page: &mut Markup) {
    page.raw("\n<style>\n");
    page.raw(PALETTE);
    page.raw(STYLE);
    page.raw(PLOT);
    page.raw("</style>\n</head>\n<body>\n<main>\n");
}

/// How a page ends.
pub(super) fn end(page: &mut Markup) {
    page.raw("</main>\n<script>\n");
    page.raw(HOVER);
    page.raw(RAW);
    page.raw("</script>\n</body>\n</html>\n");
}

fn names(run: &Run) -> String {
    let names: Vec<&str> = run.devices.iter().map(|device| device.name.as_str()).collect();
    if names.is_empty() { "No device".to_owned() } else { names.join(", ") }
}

fn header(page: &mut Markup, run: &Run, summary: Summary<'_>) {
    page.raw("<header>\n");
    let pattern = tables::subject(run);
    page.element("p", &[("class", &"kicker")], format_args!("NVMe performance report · {pattern}"));
    page.element("h1", &[], names(run));
    page.element("p", &[("class", &"result")], summary.sentence());
    for device in run.devices.iter().take(DEVICES_TOLD) {
        page.element("p", &[("class", &"about")], told(device));
    }
    let more = run.devices.len().saturating_sub(DEVICES_TOLD);
    if more > 0 {
        page.element(
            "p",
            &[("class", &"about")],
            format_args!("and {}", count(more as u64, "more namespace")),
        );
    }
    page.element("p", &[("class", &"about")], on(&run.machine));
    let about = format!("{} · unvme {}", run.started, run.tool_version);
    page.element("p", &[("class", &"about")], about);
    page.raw("</header>\n");
}

/// What tells a device from others, in a line.
pub(super) fn told(device: &DeviceIdentity) -> String {
    let DeviceIdentity { model, serial, firmware, transport, nsid, .. } = device;
    if device.capacity_bytes == 0 {
        return transport.clone();
    }
    let size = bytes(device.capacity_bytes);
    format!("{model} · serial {serial} · firmware {firmware} · {transport} · namespace {nsid}, {size}")
}

/// The machine in a line; what it does not say of itself is left out.
pub(super) fn on(machine: &Machine) -> String {
    let parts = [
        machine.cpu_model.clone(),
        if machine.cores > 0 { count(machine.cores, "core") } else { String::new() },
        if machine.memory_bytes > 0 { bytes(machine.memory_bytes) } else { String::new() },
        machine.kernel.clone(),
    ];
    parts.iter().filter(|part| !part.is_empty()).cloned().collect::<Vec<String>>().join(" · ")
}

/// Says at the top, not only in a table, that figures come from a run in which something went wrong.
fn failures(page: &mut Markup, run: &Run) {
    if run.interrupted {
        let text = "Stopped early: the figures are of the time until then.";
        page.element("p", &[("class", &"failed"), ("role", &"alert")], text);
    }
    let (errors, miscompares) = tables::failures(run);
    if let Some(text) = summary::failures(errors, miscompares) {
        page.element("p", &[("class", &"failed"), ("role", &"alert")], format_args!("{text}."));
    }
    if let Some(text) = super::unjudged(run) {
        page.element("p", &[], format_args!("{text}."));
    }
}

fn cards(page: &mut Markup, run: &Run, summary: Summary<'_>) {
    let (Some(peak), Some(quiet)) = (summary.peak(), summary.quietest()) else { return };
    let at = |point: &super::Point| {
        format!("depth {}, {}", point.depth, count(u64::from(point.threads), "thread"))
    };
    page.raw("<section class=\"cards\" aria-label=\"Key figures\">\n");
    if summary.sweep() == Sweep::Phases {
        phase_cards(page, run);
        page.raw("</section>\n");
        return;
    }
    card(page, "Peak throughput", &si(peak.total.iops), "IOPS", &at(peak));
    card(page, "Bandwidth", &mebibytes(peak.total.mib_per_second), "", &at(peak));
    card(page, "Average latency", &micros_or_none(quiet.total.latency_us_average), "", &at(quiet));
    if let Some(tail) = p99(quiet) {
        card(page, "p99 latency", &micros(tail), "", &at(quiet));
    }
    if summary.sweep() != Sweep::Single
        && let Some(tail) = p99(peak)
    {
        card(page, "p99 at peak", &micros(tail), "", &at(peak));
    } else {
        card(page, "Longest latency", &micros_or_none(peak.total.latency_us_max), "", &at(peak));
    }
    failure_card(page, run);
    page.raw("</section>\n");
}

/// Commands that are counted apart.
fn asides(page: &mut Markup, run: &Run) {
    for point in &run.points {
        for text in point.pairs.iter().flat_map(super::PairFigures::sentences) {
            page.element("p", &[("class", &"note")], format_args!("{}: {text}", super::place(point)));
        }
        for (name, figures) in point.asides() {
            let text = format_args!("{}: {name}: {}", super::place(point), figures.sentence());
            page.element("p", &[("class", &"note")], text);
        }
    }
}

/// Whether points that were to become steady did.
fn steady(page: &mut Markup, run: &Run) {
    for (point, steady) in run.points.iter().filter_map(|point| Some((point, point.steady.as_ref()?))) {
        page.element(
            "p",
            &[("class", &"note")],
            format_args!("{}: {}", super::place(point), steady.sentence()),
        );
    }
}

/// A card for each of the first phases: they do different things, and none is the best.
fn phase_cards(page: &mut Markup, run: &Run) {
    for point in run.points.iter().take(PHASE_CARDS) {
        let average = average(point.total.latency_us_average);
        let note = match p99(point) {
            Some(tail) => format!("{average}, {} p99", micros(tail)),
            None => average,
        };
        card(page, &super::place(point), &si(point.total.iops), "IOPS", &note);
    }
    failure_card(page, run);
}

fn failure_card(page: &mut Markup, run: &Run) {
    let (errors, miscompares) = tables::failures(run);
    let checked = if run.workload.verify { "data verified" } else { "data not verified" };
    card(page, "Failures", &(errors + miscompares).to_string(), "", checked);
}

/// One key figure; the unit that a number carries is set smaller than the number.
pub(super) fn card(page: &mut Markup, title: &str, figure: &str, unit: &str, note: &str) {
    let (number, prefix) = figure.split_once(' ').unwrap_or((figure, ""));
    let unit = [prefix, unit].join(" ");
    page.raw("<div class=\"card\">");
    page.element("h2", &[], title);
    page.raw("<p class=\"figure\">");
    page.text(number);
    page.element("span", &[], unit.trim());
    page.raw("</p>");
    page.element("p", &[("class", &"note")], note);
    page.raw("</div>\n");
}

/// How the rate was kept that was asked for.
fn schedules(page: &mut Markup, run: &Run, summary: Summary<'_>) {
    if run.points.iter().all(|point| point.schedule.is_none()) {
        return;
    }
    page.raw("<section>\n<h2>Schedule</h2>\n");
    for point in &run.points {
        for text in point.schedule.iter().flat_map(|schedule| schedule.sentences(&point.total)) {
            let text = format!("{}: {text}.", summary.sample_name(point));
            page.element("p", &[("class", &"prose")], text);
        }
    }
    page.raw("</section>\n");
}

fn harness(page: &mut Markup, summary: Summary<'_>) {
    if let Some(text) = summary.harness() {
        page.raw("<section>\n<h2>Cost of the measuring loop</h2>\n");
        page.element("p", &[("class", &"prose")], text);
        page.raw("</section>\n");
    }
}
