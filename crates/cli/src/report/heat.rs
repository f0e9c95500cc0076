//! A heat map as a table: each cell has its figure, and is the darker the higher that is. It is read without
//! colours, too.

use super::markup::Markup;

/// A map.
#[derive(Debug)]
pub(crate) struct HeatMap {
    pub(crate) title: String,
    /// What rows and columns are, in the cell above the rows.
    pub(crate) corner: String,
    pub(crate) columns: Vec<String>,
    /// Names of the rows, and their cells; `None` where there is no figure.
    pub(crate) rows: Vec<(String, Vec<Option<HeatCell>>)>,
    /// How a figure is written.
    pub(crate) show: fn(f64) -> String,
}

/// A cell, with its hint.
#[derive(Debug)]
pub(crate) struct HeatCell {
    pub(crate) figure: f64,
    pub(crate) tip: String,
}

impl HeatMap {
    /// Draws the map as a section of its own.
    pub(super) fn draw(&self, page: &mut Markup) {
        let cells = self.rows.iter().flat_map(|(_, cells)| cells).flatten();
        let figures = cells.map(|cell| cell.figure).filter(|figure| *figure > 0.0);
        let (least, most) =
            figures.fold((f64::MAX, 0.0_f64), |(least, most), figure| (least.min(figure), most.max(figure)));
        // Rates and latencies span decades: equal steps are equal ratios.
        let share = |figure: f64| match most > least {
            true => ((figure.max(least) / least).ln() / (most / least).ln()).clamp(0.0, 1.0),
            false => 0.5,
        };
        page.raw("<section>\n");
        page.element("h2", &[], &self.title);
        page.raw("<div class=\"scroll\"><table class=\"map\">\n<thead><tr>");
        page.element("th", &[], &self.corner);
        self.columns.iter().for_each(|column| page.element("th", &[], column));
        page.raw("</tr></thead>\n<tbody>\n");
        for (name, cells) in &self.rows {
            page.raw("<tr>");
            page.element("th", &[], name);
            for cell in cells {
                match cell {
                    Some(HeatCell { figure, tip }) => {
                        let style = format!("--heat:{:.0}%", share(*figure) * 70.0);
                        page.element("td", &[("style", &style), ("title", tip)], (self.show)(*figure));
                    }
                    None => page.element("td", &[], "-"),
                }
            }
            page.raw("</tr>\n");
        }
        page.raw("</tbody></table></div>\n</section>\n");
    }
}
