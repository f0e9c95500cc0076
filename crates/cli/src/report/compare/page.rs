//! A comparison as one HTML page that needs nothing else.

use std::io::{self, Write};

use super::super::html::{HEAD, begin, end, on, raw, tables, told};
use super::super::markup::Markup;
use super::super::table::with_ends;
use super::figures;
use super::{Compared, Comparison};

/// Writes the page. Errors: what `out` returns.
pub(crate) fn write(comparison: &Comparison, out: &mut dyn Write) -> io::Result<()> {
    out.write_all(page(comparison).as_bytes())
}

fn page(comparison: &Comparison) -> String {
    let mut page = Markup::default();
    page.raw(HEAD);
    let sides: Vec<String> = comparison.sides.iter().map(title).collect();
    page.element("title", &[], format_args!("Comparison of {}", sides.join(" and ")));
    begin(&mut page);
    header(&mut page, comparison);
    page.raw("<section class=\"charts\" aria-label=\"Plots\">\n");
    figures::charts(comparison).iter().for_each(|chart| chart.draw(&mut page));
    page.raw("</section>\n");
    comparison.points.iter().for_each(|point| table(&mut page, point));
    if !comparison.unmatched.is_empty() {
        page.raw("<section>\n<h2>On one side alone</h2>\n");
        for alone in &comparison.unmatched {
            let text = format!("Only in {}, not in {}: {}", alone.side, alone.missing, alone.what);
            page.element("p", &[("class", &"prose")], text);
        }
        page.raw("</section>\n");
    }
    page.raw("<section>\n<h2>How it is judged</h2>\n");
    page.element("p", &[("class", &"prose")], comparison.judged());
    page.raw("</section>\n");
    for side in &comparison.sides {
        page.raw("<div class=\"facts\">\n");
        page.raw("<section>\n<h2>Side</h2>\n<dl>\n");
        tables::term(&mut page, "Name", side.name());
        tables::term(&mut page, "Measured", &side.run.started);
        tables::term(&mut page, "Version", &side.run.tool_version);
        page.raw("</dl>\n</section>\n");
        tables::devices(&mut page, &side.run);
        tables::workload(&mut page, &side.run);
        tables::machine(&mut page, &side.run);
        page.raw("</div>\n");
        tables::command_line(&mut page, &side.run.command_line);
    }
    raw(&mut page, |out| super::write_json(comparison, out));
    end(&mut page);
    page.finish()
}

fn header(page: &mut Markup, comparison: &Comparison) {
    page.raw("<header>\n");
    page.element("p", &[("class", &"kicker")], "NVMe performance comparison");
    let names: Vec<String> = comparison.sides.iter().map(super::Side::name).collect();
    page.element("h1", &[], names.join(" · "));
    page.element("p", &[("class", &"result")], comparison.sentence());
    for side in &comparison.sides {
        let devices: Vec<String> = side.run.devices.iter().map(told).collect();
        let (devices, machine) = (devices.join("; "), on(&side.run.machine));
        let about = format!("{}: {devices} · {machine} · {}", side.letter, side.run.started);
        page.element("p", &[("class", &"about")], about);
    }
    page.element("p", &[("class", &"about")], format_args!("unvme {}", comparison.tool_version));
    page.raw("</header>\n");
}

/// A side within the title: what was measured, on what and when.
fn title(side: &super::Side) -> String {
    format!("{}, {}, {}", tables::pattern(&side.run.workload), side.name(), side.run.started)
}

fn table(page: &mut Markup, point: &Compared) {
    page.raw("<section>\n<h2>");
    page.text(&point.what);
    page.raw(" <small>median (least to greatest)</small></h2>\n");
    let (base, other) = (point.base.to_string(), point.other.to_string());
    let ratio = format!("{other}/{base} (95 %)");
    tables::table(page, &["Metric", &base, &other, &ratio, "p", "Result"], |page| {
        for metric in &point.metrics {
            let show = |figure| metric.metric.show(figure);
            let cells = [
                with_ends(metric.base, show),
                with_ends(metric.other, show),
                metric.ratio_words(),
                metric.p_words(),
                metric.words(point.other),
            ];
            tables::line(page, Some(metric.metric.name()), false, &cells);
        }
    });
    for stalled in &point.stalled {
        page.element("p", &[("class", &"note")], stalled.sentence());
    }
    page.raw("</section>\n");
}
