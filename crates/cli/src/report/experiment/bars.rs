//! Bars as inline SVG: a group below another, with its name on the left and each value at the bar's end.

use super::super::markup::{Attributes, Markup};
use super::super::plot::widths;
use super::super::scale::Scale;
use super::{Bar, Bars, COLOURS};

/// Height of a bar with the space around it, and of the space between groups.
const STEP: f64 = 22.0;
const GAP: f64 = 10.0;
const THICK: f64 = 15.0;
/// Width of a character, on the generous side.
const CHARACTER: f64 = 7.0;
/// Values further apart than this are drawn by their magnitude.
const LINEAR_MAX: f64 = 30.0;

impl Bars {
    /// The values that can be drawn, and the rule.
    fn values(&self) -> impl Iterator<Item = f64> {
        let all = self.groups.iter().flat_map(|group| &group.bars).map(|bar| bar.value);
        all.chain(self.rule).filter(|value| value.is_finite() && *value > 0.0)
    }

    pub(super) fn is_logarithmic(&self) -> bool {
        let (min, max) = self
            .values()
            .fold((f64::INFINITY, 0.0_f64), |(min, max), value| (min.min(value), max.max(value)));
        max > min * LINEAR_MAX
    }

    fn scale(&self) -> Scale {
        let max = self.values().fold(0.0, f64::max);
        if self.is_logarithmic() {
            // The shortest bar is to be seen, and what is left of the rule.
            let min = self.values().fold(f64::INFINITY, f64::min);
            return Scale::decades(min / 4.0, max);
        }
        Scale::linear(max)
    }

    /// The whole figure.
    pub(super) fn draw(&self, page: &mut Markup) {
        page.open("figure", &[("class", &if self.is_wide { "chart wide" } else { "chart" })]);
        page.element("h3", &[], &self.title);
        let logarithmic = if self.is_logarithmic() { "; logarithmic" } else { "" };
        page.element("p", &[("class", &"note")], format_args!("{}{logarithmic}", self.note));
        self.legend(page);
        page.raw("<div class=\"canvas\">");
        let bars: usize = self.groups.iter().map(|group| group.bars.len()).sum();
        let height = bars as f64 * STEP + self.groups.len() as f64 * GAP;
        for (width, class) in widths(self.is_wide) {
            let view = format!("0 0 {width} {height}");
            let attributes: Attributes<'_> =
                &[("class", class), ("viewBox", &view), ("role", &"img"), ("aria-label", &self.title)];
            page.open("svg", attributes);
            self.draw_inside(page, *width, height);
            page.raw("</svg>");
        }
        page.raw("</div></figure>\n");
    }

    /// What the colours are, where there are several.
    fn legend(&self, page: &mut Markup) {
        let mut known: Vec<(&str, usize)> = Vec::new();
        for bar in self.groups.iter().flat_map(|group| &group.bars) {
            let key = (bar.name.as_str(), bar.colour % COLOURS);
            if !known.contains(&key) {
                known.push(key);
            }
        }
        if known.len() < 2 {
            return;
        }
        page.raw("<ul class=\"legend\">");
        for (name, colour) in known {
            page.raw("<li>");
            page.open("i", &[("class", &format!("key c{colour}"))]);
            page.raw("</i>");
            page.text(name);
            page.raw("</li>");
        }
        page.raw("</ul>");
    }

    fn draw_inside(&self, page: &mut Markup, width: f64, height: f64) {
        let longest =
            |lengths: &mut dyn Iterator<Item = usize>| lengths.max().unwrap_or(0) as f64 * CHARACTER;
        let names = longest(&mut self.groups.iter().map(|group| group.name.chars().count()));
        let shown = |bar: &Bar| self.quantity.show(bar.value);
        let figures = longest(
            &mut self.groups.iter().flat_map(|group| &group.bars).map(|bar| shown(bar).chars().count()),
        );
        let left = (names + 12.0).min(width / 2.0);
        let room = (width - left - figures - 12.0).max(1.0);
        let scale = self.scale();
        let length = |value: f64| if value.is_finite() { scale.fraction(value) * room } else { 0.0 };
        let mut y = 0.0;
        for group in &self.groups {
            let middle = y + (group.bars.len() as f64 * STEP) / 2.0 + 4.0;
            text(page, "name end", (left - 10.0, middle), &group.name);
            for bar in &group.bars {
                let (class, long) = (format!("bar c{}", bar.colour % COLOURS), length(bar.value));
                let sides = [left, y + (STEP - THICK) / 2.0, long, THICK].map(|side| format!("{side:.1}"));
                let [x, top, width, height] = &sides;
                page.open(
                    "rect",
                    &[("class", &class), ("x", x), ("y", top), ("width", width), ("height", height)],
                );
                page.element("title", &[], format_args!("{}, {}\n{}", group.name, bar.name, shown(bar)));
                page.close("rect");
                text(page, "mark", (left + long + 6.0, y + STEP / 2.0 + 4.0), &shown(bar));
                y += STEP;
            }
            y += GAP;
        }
        if let Some(rule) = self.rule {
            let x = format!("{:.1}", left + length(rule));
            let end = format!("{height:.1}");
            page.open("line", &[("class", &"rule"), ("x1", &x), ("y1", &0), ("x2", &x), ("y2", &end)]);
            page.close("line");
        }
    }
}

fn text(page: &mut Markup, class: &str, at: (f64, f64), text: &str) {
    let (x, y) = (format!("{:.1}", at.0), format!("{:.1}", at.1));
    page.element("text", &[("class", &class), ("x", &x), ("y", &y)], text);
}
