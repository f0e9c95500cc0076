//! An experiment as one HTML file: style, script and plots are inside, nothing is loaded, and it prints well.

use std::io::{self, Write};

use serde::Serialize;

use super::super::html::{HEAD, begin, card, end, raw, tables};
use super::super::markup::Markup;
use super::{Experiment, Facts, Figure, Table};

/// Writes the page. `data` is what it was made from: a link on the page saves that as JSON. Errors: what
/// `out` returns.
pub(crate) fn write(experiment: &Experiment, data: &impl Serialize, out: &mut impl Write) -> io::Result<()> {
    out.write_all(page(experiment, data).as_bytes())
}

fn page(experiment: &Experiment, data: &impl Serialize) -> String {
    let mut page = Markup::default();
    page.raw(HEAD);
    page.element("title", &[], format_args!("{}: {}", experiment.kicker, experiment.title));
    begin(&mut page);
    header(&mut page, experiment);
    for warning in &experiment.warnings {
        page.element("p", &[("class", &"failed"), ("role", &"alert")], warning);
    }
    if !experiment.cards.is_empty() {
        page.raw("<section class=\"cards\" aria-label=\"Key figures\">\n");
        for own in &experiment.cards {
            card(&mut page, &own.title, &own.figure, own.unit, &own.note);
        }
        page.raw("</section>\n");
    }
    page.raw("<section class=\"charts\" aria-label=\"Plots\">\n");
    for figure in &experiment.figures {
        match figure {
            Figure::Curves(curves) => curves.chart().draw(&mut page),
            Figure::Bars(bars) => bars.draw(&mut page),
        }
    }
    page.raw("</section>\n");
    experiment.maps.iter().for_each(|map| map.draw(&mut page));
    experiment.tables.iter().for_each(|table| draw_table(&mut page, table));
    if !experiment.facts.is_empty() {
        page.raw("<div class=\"facts\">\n");
        experiment.facts.iter().for_each(|facts| draw_facts(&mut page, facts));
        page.raw("</div>\n");
    }
    for listing in &experiment.listings {
        page.raw("<section>\n");
        page.element("h2", &[], &listing.title);
        page.element("pre", &[], &listing.text);
        page.raw("\n</section>\n");
    }
    if !experiment.commands.is_empty() {
        page.raw("<section>\n<details>\n<summary>Commands</summary>\n");
        page.element("pre", &[], experiment.commands.join("\n"));
        page.raw("\n</details>\n</section>\n");
    }
    raw(&mut page, |out| {
        serde_json::to_writer_pretty(&mut *out, data)?;
        out.write_all(b"\n")
    });
    end(&mut page);
    page.finish()
}

fn header(page: &mut Markup, experiment: &Experiment) {
    page.raw("<header>\n");
    page.element("p", &[("class", &"kicker")], &experiment.kicker);
    page.element("h1", &[], &experiment.title);
    page.element("p", &[("class", &"result")], &experiment.result);
    for line in &experiment.about {
        page.element("p", &[("class", &"about")], line);
    }
    page.raw("</header>\n");
}

fn draw_table(page: &mut Markup, table: &Table) {
    page.raw("<section>\n<h2>");
    page.text(&table.title);
    page.raw(" ");
    page.element("small", &[], table.note);
    page.raw("</h2>\n");
    tables::table(page, &table.columns, |page| {
        for row in &table.rows {
            tables::line(page, Some(&row.head), row.starts_group, &row.cells);
        }
    });
    page.raw("</section>\n");
}

fn draw_facts(page: &mut Markup, facts: &Facts) {
    page.raw("<section>\n");
    page.element("h2", &[], &facts.title);
    page.raw("<dl>\n");
    for (name, value) in &facts.terms {
        page.raw("<div>");
        page.element("dt", &[], name);
        page.element("dd", &[], value);
        page.raw("</div>\n");
    }
    page.raw("</dl>\n</section>\n");
}
