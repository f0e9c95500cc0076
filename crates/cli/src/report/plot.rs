//! Line plots as inline SVG. Colours are classes, so that one drawing serves a light and a dark page.

use super::markup::{Attributes, Markup};
use super::scale::Scale;

const HEIGHT: f64 = 336.0;
/// Widths of the drawings of a figure, with their classes: the style sheet shows the one that the window or
/// the sheet of paper has room for, so that type is never scaled down.
pub(super) const WIDTHS: [(f64, &str); 3] = [(1132.0, "large"), (556.0, "medium"), (360.0, "small")];
const TOP: f64 = 34.0;
const BOTTOM: f64 = 50.0;
/// Distance between the plot's edge and the first and last value, so that no mark is cut.
const INSET: f64 = 6.0;
/// Width of a character of the labels, on the generous side: the reader's font is not known here.
const CHARACTER: f64 = 7.0;
/// Height of a line of labels.
const LINE: f64 = 14.0;
/// Half of the width of a range's ends.
const FOOT: f64 = 4.0;

/// A plot with its title.
#[derive(Debug)]
pub(super) struct Chart {
    pub(super) title: String,
    /// One line that says what is plotted.
    pub(super) note: String,
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) lines: Vec<Line>,
    /// Vertical marks: a value on the x axis and what it is.
    pub(super) rules: Vec<(f64, String)>,
    /// Twice as wide as the others.
    pub(super) wide: bool,
}

#[derive(Debug)]
pub(super) struct Axis {
    pub(super) name: &'static str,
    pub(super) scale: Scale,
    /// Formats a tick.
    pub(super) tick: fn(f64) -> String,
}

/// One line of a plot.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// The legend's text; empty for a line that goes with the one before.
    pub(super) name: String,
    /// Index into the palette, `--c0` to `--c11` of the style sheet.
    pub(super) colour: usize,
    pub(super) dashed: bool,
    /// A dot on each point.
    pub(super) dots: bool,
    /// The area below is tinted.
    pub(super) filled: bool,
    /// Written at the end of the line.
    pub(super) end_label: Option<String>,
    pub(super) points: Vec<Dot>,
}

/// One point of a line.
#[derive(Debug, Default)]
pub(super) struct Dot {
    pub(super) x: f64,
    pub(super) y: f64,
    /// Written beside the point.
    pub(super) label: Option<String>,
    /// Shown when the pointer is near.
    pub(super) tip: Option<String>,
    /// The least and the greatest value that was found where this is the middle one.
    pub(super) range: Option<(f64, f64)>,
}

/// The rectangle that holds the data.
struct Frame {
    left: f64,
    right: f64,
    width: f64,
}

const BASE: f64 = HEIGHT - BOTTOM;

impl Chart {
    pub(super) fn new(title: &str, note: impl Into<String>, x: Axis, y: Axis, lines: Vec<Line>) -> Self {
        Self { title: title.to_owned(), note: note.into(), x, y, lines, rules: Vec::new(), wide: false }
    }

    /// The whole figure.
    pub(super) fn draw(&self, page: &mut Markup) {
        page.open("figure", &[("class", &if self.wide { "chart wide" } else { "chart" })]);
        page.element("h3", &[], &self.title);
        page.element("p", &[("class", &"note")], &self.note);
        if self.lines.iter().filter(|line| !line.name.is_empty()).count() > 1 {
            self.legend(page);
        }
        page.raw("<div class=\"canvas\">");
        for (width, class) in widths(self.wide) {
            let view = format!("0 0 {width} {HEIGHT}");
            let attributes: Attributes<'_> =
                &[("class", class), ("viewBox", &view), ("role", &"img"), ("aria-label", &self.title)];
            page.open("svg", attributes);
            self.draw_inside(page, &self.frame(*width), true);
            page.raw("</svg>");
        }
        page.raw("</div></figure>\n");
    }

    /// The figure as a file of its own, which needs nothing else: title, note and legend are in the picture.
    pub(super) fn picture(&self, styles: &[&'static str]) -> String {
        let mut page = Markup::default();
        let frame = self.frame(widths(self.wide)[0].0);
        let (margin, head) = (16.0, 66.0);
        let size = (frame.width + 2.0 * margin, HEIGHT + head + margin);
        let view = format!("{} {} {} {}", -margin, -head, size.0, size.1);
        let (width, height) = (format!("{}", size.0), format!("{}", size.1));
        page.open(
            "svg",
            &[
                ("xmlns", &"http://www.w3.org/2000/svg"),
                ("viewBox", &view),
                ("width", &width),
                ("height", &height),
                ("role", &"img"),
                ("aria-label", &self.title),
            ],
        );
        page.raw("\n<style>\n");
        styles.iter().for_each(|style| page.raw(style));
        page.raw("</style>\n");
        let corner = (one(-margin), one(-head));
        page.open(
            "rect",
            &[
                ("class", &"page"),
                ("x", &corner.0),
                ("y", &corner.1),
                ("width", &width),
                ("height", &height),
                ("rx", &8),
            ],
        );
        page.close("rect");
        label(&mut page, "title", (0.0, 30.0 - head), &self.title);
        label(&mut page, "name", (0.0, 50.0 - head), &self.note);
        self.draw_inside(&mut page, &frame, false);
        self.draw_keys(&mut page, &frame);
        page.raw("\n</svg>\n");
        page.finish()
    }

    /// The legend within a picture: right-aligned, above the plot. Lines that are named at their ends need
    /// none.
    fn draw_keys(&self, page: &mut Markup, frame: &Frame) {
        let mut right = frame.width;
        let is_unnamed = |line: &&Line| !line.name.is_empty() && line.end_label.is_none();
        for line in self.lines.iter().filter(is_unnamed).rev() {
            let width = line.name.chars().count() as f64 * CHARACTER + 8.0;
            if right - width - 20.0 < frame.left {
                break;
            }
            label(page, "name end", (right, 14.0), &line.name);
            right -= width;
            let dash = if line.dashed { " dashed" } else { "" };
            segment(page, &format!("line c{}{dash}", line.colour), (right - 20.0, 10.0), (right, 10.0));
            right -= 36.0;
        }
    }

    /// `hints` are what the pointer finds.
    fn draw_inside(&self, page: &mut Markup, frame: &Frame, hints: bool) {
        self.draw_axes(page, frame);
        for line in &self.lines {
            self.draw_line(page, frame, line);
        }
        self.draw_rules(page, frame);
        for line in &self.lines {
            self.draw_ranges(page, frame, line);
        }
        for line in self.lines.iter().filter(|line| hints || line.dots) {
            self.draw_dots(page, frame, line);
        }
        self.draw_labels(page, frame);
    }

    fn legend(&self, page: &mut Markup) {
        page.raw("<ul class=\"legend\">");
        for line in self.lines.iter().filter(|line| !line.name.is_empty()) {
            let dash = if line.dashed { " dashed" } else { "" };
            page.raw("<li>");
            page.open("i", &[("class", &format!("key c{}{dash}", line.colour))]);
            page.raw("</i>");
            page.text(&line.name);
            page.raw("</li>");
        }
        page.raw("</ul>");
    }

    fn frame(&self, width: f64) -> Frame {
        let widest = |labels: &mut dyn Iterator<Item = usize>| labels.max().unwrap_or(0) as f64 * CHARACTER;
        let ticks = widest(&mut self.y.scale.ticks().iter().map(|&tick| (self.y.tick)(tick).chars().count()));
        let ends =
            widest(&mut self.lines.iter().filter_map(|line| Some(line.end_label.as_ref()?.chars().count())));
        let right = if ends > 0.0 { ends + 16.0 } else { 22.0 };
        Frame { left: ticks + 14.0, right: width - right, width }
    }

    fn place(&self, frame: &Frame, x: f64, y: f64) -> (f64, f64) {
        let span = frame.right - frame.left - 2.0 * INSET;
        let across = frame.left + INSET + self.x.scale.fraction(x) * span;
        (across, BASE - self.y.scale.fraction(y) * (BASE - TOP))
    }

    fn draw_axes(&self, page: &mut Markup, frame: &Frame) {
        for &tick in self.y.scale.ticks() {
            let (_, y) = self.place(frame, 0.0, tick);
            segment(page, "grid", (frame.left, y), (frame.right, y));
            label(page, "tick end", (frame.left - 8.0, y + 4.0), &(self.y.tick)(tick));
        }
        let mut free_from = f64::NEG_INFINITY;
        for &tick in self.x.scale.ticks() {
            let (x, _) = self.place(frame, tick, 0.0);
            segment(page, "axis", (x, BASE), (x, BASE + 4.0));
            let text = (self.x.tick)(tick);
            let half = text.chars().count() as f64 * CHARACTER / 2.0;
            if x - half >= free_from {
                label(page, "tick middle", (x, BASE + 18.0), &text);
                free_from = x + half + 9.0;
            }
        }
        segment(page, "axis", (frame.left, BASE), (frame.right, BASE));
        label(page, "name", (0.0, 14.0), self.y.name);
        label(page, "name middle", (f64::midpoint(frame.left, frame.right), HEIGHT - 8.0), self.x.name);
    }

    fn draw_line(&self, page: &mut Markup, frame: &Frame, line: &Line) {
        let mut path = String::new();
        let mut last = 0.0;
        for (index, point) in line.points.iter().enumerate() {
            let (x, y) = self.place(frame, point.x, point.y);
            path += &format!("{}{x:.1} {y:.1}", if index == 0 { "M" } else { "L" });
            last = x;
        }
        let Some(first) = line.points.first() else { return };
        let colour = line.colour;
        if line.filled {
            let (start, _) = self.place(frame, first.x, first.y);
            let area = format!("{path}L{last:.1} {BASE:.1}L{start:.1} {BASE:.1}Z");
            page.open("path", &[("class", &format!("area c{colour}")), ("d", &area)]);
            page.close("path");
        }
        let dash = if line.dashed { " dashed" } else { "" };
        page.open("path", &[("class", &format!("line c{colour}{dash}")), ("d", &path)]);
        page.close("path");
    }

    fn draw_dots(&self, page: &mut Markup, frame: &Frame, line: &Line) {
        for point in &line.points {
            if !line.dots && point.tip.is_none() {
                continue;
            }
            let (x, y) = self.place(frame, point.x, point.y);
            let hollow = if line.dashed { " hollow" } else { "" };
            let kind = if line.dots { "dot" } else { "hit" };
            let class = format!("{kind} c{}{hollow}", line.colour);
            page.open("circle", &[("class", &class), ("cx", &one(x)), ("cy", &one(y)), ("r", &3.5)]);
            if let Some(tip) = &point.tip {
                page.element("title", &[], tip);
            }
            page.close("circle");
        }
    }

    /// A bar from the least to the greatest value of each point that has them, with a foot at both ends.
    fn draw_ranges(&self, page: &mut Markup, frame: &Frame, line: &Line) {
        let class = format!("range c{}", line.colour);
        for point in &line.points {
            let Some((low, high)) = point.range else { continue };
            let ((x, bottom), (_, top)) = (self.place(frame, point.x, low), self.place(frame, point.x, high));
            segment(page, &class, (x, bottom), (x, top));
            for y in [bottom, top] {
                segment(page, &class, (x - FOOT, y), (x + FOOT, y));
            }
        }
    }

    fn draw_rules(&self, page: &mut Markup, frame: &Frame) {
        for (index, (value, text)) in self.rules.iter().enumerate() {
            let (x, _) = self.place(frame, *value, 0.0);
            let y = TOP + index as f64 * LINE;
            segment(page, "rule", (x, y - 2.0), (x, BASE));
            let fits = x + 6.0 + text.chars().count() as f64 * CHARACTER < frame.width;
            let (class, x) = if fits { ("mark", x + 6.0) } else { ("mark end", x - 6.0) };
            label(page, class, (x, y + 8.0), text);
        }
    }

    fn draw_labels(&self, page: &mut Markup, frame: &Frame) {
        let mut ends: Vec<(f64, &str)> = Vec::new();
        let mut taken: Vec<(f64, f64)> = Vec::new();
        let places_of = |line: &Line| -> Vec<(f64, f64)> {
            line.points.iter().map(|point| self.place(frame, point.x, point.y)).collect()
        };
        let marks: Vec<(f64, f64)> = self.lines.iter().filter(|line| line.dots).flat_map(places_of).collect();
        for line in &self.lines {
            let places = places_of(line);
            // All labels of a line on one side: below it where another line's marks are close above.
            let offset = if places.iter().any(|place| is_close_above(*place, &marks)) { 18.0 } else { -9.0 };
            for (index, point) in line.points.iter().enumerate() {
                let Some(text) = &point.label else { continue };
                // Beside a line that climbs, above one that runs flat.
                let (from, to) =
                    (places[index.saturating_sub(1)], places[index.max(1).min(places.len() - 1)]);
                let flat = (to.0 - from.0).abs() > (to.1 - from.1).abs();
                let (x, y) = places[index];
                let width = text.chars().count() as f64 * CHARACTER;
                let (class, x, y, centre) = if flat {
                    ("mark middle", x, y + offset, x)
                } else {
                    ("mark end", x - 8.0, y + 4.0, x - 8.0 - width / 2.0)
                };
                let free = |&(other_x, other_y): &(f64, f64)| {
                    (other_x - centre).abs() > width + 4.0 || (other_y - y).abs() > LINE - 2.0
                };
                if centre - width / 2.0 >= frame.left && taken.iter().all(free) {
                    label(page, class, (x, y), text);
                    taken.push((centre, y));
                }
            }
            if let (Some(text), Some(&(_, y))) = (&line.end_label, places.last()) {
                ends.push((y, text));
            }
        }
        ends.sort_by(|one, other| one.0.total_cmp(&other.0));
        let wanted: Vec<f64> = ends.iter().map(|end| end.0).collect();
        for (y, (_, text)) in spread(&wanted, TOP, BASE).into_iter().zip(&ends) {
            label(page, "mark", (frame.right + 8.0, y + 4.0), text);
        }
    }
}

/// The drawings of a figure, the widest first.
pub(super) fn widths(wide: bool) -> &'static [(f64, &'static str)] {
    if wide { &WIDTHS } else { &WIDTHS[1..] }
}

/// True when a label above this place would hide one of the marks.
fn is_close_above((x, y): (f64, f64), marks: &[(f64, f64)]) -> bool {
    let hidden = y - 9.0 - LINE - 4.0..y - 1.0;
    marks.iter().any(|&(other_x, other_y)| (other_x - x).abs() < LINE && hidden.contains(&other_y))
}

/// Moves labels apart until none touches another, as little as it takes, inside `top..bottom`. Input and
/// output ascend.
fn spread(wanted: &[f64], top: f64, bottom: f64) -> Vec<f64> {
    let mut places = wanted.to_vec();
    for index in 1..places.len() {
        places[index] = places[index].max(places[index - 1] + LINE);
    }
    let mut limit = bottom;
    for place in places.iter_mut().rev() {
        *place = place.min(limit).max(top);
        limit = *place - LINE;
    }
    places
}

fn segment(page: &mut Markup, class: &str, from: (f64, f64), to: (f64, f64)) {
    let ends = [one(from.0), one(from.1), one(to.0), one(to.1)];
    page.open(
        "line",
        &[("class", &class), ("x1", &ends[0]), ("y1", &ends[1]), ("x2", &ends[2]), ("y2", &ends[3])],
    );
    page.close("line");
}

fn label(page: &mut Markup, class: &str, at: (f64, f64), text: &str) {
    page.element("text", &[("class", &class), ("x", &one(at.0)), ("y", &one(at.1))], text);
}

/// A coordinate to a tenth of a unit.
fn one(value: f64) -> String {
    format!("{value:.1}")
}

#[cfg(test)]
mod tests {
    use super::{is_close_above, spread};

    #[test]
    fn a_label_goes_below_its_line_when_it_would_hide_a_mark_of_another_one() {
        let at = (100.0, 289.0);
        assert!(is_close_above(at, &[at, (100.0, 274.0)]));
        // Itself, one that is below, further above, or beside it.
        assert!(!is_close_above(at, &[at, (100.0, 300.0), (100.0, 189.0), (147.0, 274.0)]));
    }

    #[test]
    fn labels_that_would_touch_are_moved_apart_and_stay_inside() {
        assert_eq!(spread(&[50.0, 52.0, 120.0], 0.0, 200.0), [50.0, 64.0, 120.0]);
        assert_eq!(spread(&[190.0, 195.0, 199.0], 0.0, 200.0), [172.0, 186.0, 200.0]);
    }
}
