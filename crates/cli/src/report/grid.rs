//! Plots of sweeps over settings other than threads and depth: lines over the last of them that is a number,
//! and maps where two vary.

use super::figures::{latency_axis, rate_axis, reach};
use super::heat::{HeatCell, HeatMap};
use super::markup::Markup;
use super::model::{Point, Run};
use super::plot::{Axis, Chart, Dot, Line};
use super::scale::{Scale, average, bytes, micros, si};
use super::summary::{Summary, iops, p99, setting_names};

/// Lines of a plot, as many as there are colours that tell them apart.
const LINES: usize = 8;

/// The number that a setting's value is: with a unit in bytes, without as it is.
fn number(value: &str) -> Option<f64> {
    let plain = value.trim_end_matches('%');
    crate::numbers::bytes(plain).ok().map(|number| number as f64).or_else(|| plain.parse().ok())
}

/// The last setting whose values are numbers, at least two, at all points.
fn swept(run: &Run) -> Option<&str> {
    let of = |point: &Point, name: &str| {
        let setting = point.settings.iter().find(|setting| setting.name == name)?;
        number(&setting.value)
    };
    let is_swept = |name: &&&str| {
        let values: Option<Vec<f64>> = run.points.iter().map(|point| of(point, name)).collect();
        values.is_some_and(|values| values.iter().any(|value| *value != values[0]))
    };
    let names = setting_names(&run.points);
    names.iter().rev().find(is_swept).copied()
}

fn title_of(name: &str) -> (&'static str, fn(f64) -> String) {
    let plain: fn(f64) -> String = |value| value.to_string();
    match name {
        "io-size" => ("Bytes per command", |value| bytes(value as u64)),
        "range" => ("Range", |value| bytes(value as u64)),
        "depth" => ("Queue depth per thread", plain),
        "threads" => ("Threads", plain),
        "read-percent" => ("Reads (%)", plain),
        "rate" => ("Rate asked for (IOPS)", si),
        _ => ("Value", plain),
    }
}

/// Plots of the sweep; none where no setting is a number at all points.
pub(super) fn charts(run: &Run) -> Vec<Chart> {
    if !Summary::new(run).has_settings() {
        return Vec::new();
    }
    let Some(name) = swept(run) else { return Vec::new() };
    let lines = lines(run, name);
    let axis = || {
        let (title, tick) = title_of(name);
        let values = lines.iter().flat_map(|line| &line.points).map(|(x, _)| *x);
        let (min, max) = values.fold((f64::MAX, f64::MIN), |(min, max), x| (min.min(x), max.max(x)));
        // Doublings are at equal distances where there are some, and where 0 is not among them.
        let scale = match min > 0.0 && max / min >= 4.0 && name != "read-percent" {
            true => Scale::powers_of_two(min, max),
            false => Scale::linear(max),
        };
        Axis { name: title, scale, tick }
    };
    let rates = drawn(&lines, |_, x, point| Some((x, point.total.iops)));
    let means =
        drawn(&lines, |_, x, point| Some((x, point.total.latency_us_average.filter(|&us| us > 0.0)?)));
    let mut latencies = Vec::new();
    let tails = drawn(&lines, |_, x, point| Some((x, p99(point)?)));
    for (mean, tail) in means.into_iter().zip(tails) {
        latencies.push(mean);
        latencies.push(Line { dashed: true, name: String::new(), end_label: None, ..tail });
    }
    let curves = drawn(&lines, |_, _, point| Some((point.total.iops, p99(point)?)));
    let by = title_of(name).0.to_lowercase();
    let note = "Completed commands per second, all threads together";
    let highest = || run.points.iter().map(|point| point.total.iops);
    let mut charts = vec![
        Chart::new(&format!("Throughput by {by}"), note, axis(), rate_axis(highest()), rates),
        Chart::new(
            &format!("Latency by {by}"),
            "Average (solid) and 99th percentile (dashed)",
            axis(),
            latency_axis(reach(&latencies)),
            latencies,
        ),
    ];
    if curves.iter().any(|line| line.points.len() > 1) {
        let reached = latency_axis(reach(&curves));
        let note = "99th percentile of the latency at the rate that was reached";
        charts.push(Chart::new("Latency by throughput", note, rate_axis(highest()), reached, curves));
    }
    charts
}

/// Points that differ in the swept setting alone, and its value at each.
struct Series<'a> {
    name: String,
    points: Vec<(f64, &'a Point)>,
}

fn lines<'a>(run: &'a Run, name: &str) -> Vec<Series<'a>> {
    let mut lines: Vec<Series<'a>> = Vec::new();
    for point in &run.points {
        let value = point.settings.iter().find(|setting| setting.name == name);
        let Some(x) = value.and_then(|setting| number(&setting.value)) else { continue };
        let phase = point.phase.iter().cloned();
        let others = point.settings.iter().filter(|setting| setting.name != name);
        let own: Vec<String> =
            phase.chain(others.map(|setting| format!("{} {}", setting.name, setting.value))).collect();
        let own = own.join(", ");
        match lines.iter_mut().find(|line| line.name == own) {
            Some(line) => line.points.push((x, point)),
            None => lines.push(Series { name: own, points: vec![(x, point)] }),
        }
    }
    lines.iter_mut().for_each(|line| line.points.sort_by(|a, b| a.0.total_cmp(&b.0)));
    lines.truncate(LINES);
    lines
}

fn drawn(lines: &[Series<'_>], at: impl Fn(&Series<'_>, f64, &Point) -> Option<(f64, f64)>) -> Vec<Line> {
    let several = lines.len() > 1;
    let line = |(colour, series): (usize, &Series<'_>)| {
        let dot = |&(x, point): &(f64, &Point)| {
            let (x, y) = at(series, x, point)?;
            Some(Dot { x, y, tip: Some(tip(point)), ..Dot::default() })
        };
        Line {
            name: series.name.clone(),
            end_label: several.then(|| series.name.clone()),
            colour,
            dots: true,
            points: series.points.iter().filter_map(dot).collect(),
            ..Line::default()
        }
    };
    lines.iter().enumerate().map(line).collect()
}

fn tip(point: &Point) -> String {
    let tail = p99(point).map_or_else(String::new, |us| format!("\np99 {}", micros(us)));
    let average = average(point.total.latency_us_average);
    format!("{}\n{}\n{average}{tail}", super::place(point), iops(point.total.iops))
}

/// Maps of rate and tail latency for each phase in which two settings vary; nothing where none does.
pub(super) fn maps(page: &mut Markup, run: &Run) {
    let mut phases: Vec<&Option<String>> = Vec::new();
    for point in run.points.iter().filter(|point| point.settings.len() == 2) {
        if !phases.contains(&&point.phase) {
            phases.push(&point.phase);
        }
    }
    for phase in phases {
        let points: Vec<&Point> =
            run.points.iter().filter(|point| point.phase == *phase && point.settings.len() == 2).collect();
        let values = |axis: usize| {
            let mut values: Vec<&str> = Vec::new();
            for point in &points {
                let value = point.settings[axis].value.as_str();
                if !values.contains(&value) {
                    values.push(value);
                }
            }
            values
        };
        let map = Map { phase: phase.as_deref(), points: &points, rows: values(0), columns: values(1) };
        if map.rows.len() > 1 && map.columns.len() > 1 {
            map.draw(page, "IOPS", |point| Some(point.total.iops), si);
            map.draw(page, "p99 latency", p99, micros);
        }
    }
}

struct Map<'a> {
    phase: Option<&'a str>,
    points: &'a [&'a Point],
    rows: Vec<&'a str>,
    columns: Vec<&'a str>,
}

impl Map<'_> {
    /// A heat map of one figure.
    fn draw(&self, page: &mut Markup, what: &str, of: fn(&Point) -> Option<f64>, show: fn(f64) -> String) {
        let Some(first) = self.points.first() else { return };
        let (row_name, column_name) = (&first.settings[0].name, &first.settings[1].name);
        let cell = |row: &str, column: &str| {
            let is_here =
                |point: &&&Point| point.settings[0].value == row && point.settings[1].value == column;
            let point = self.points.iter().find(is_here)?;
            Some(HeatCell { figure: of(point)?, tip: tip(point) })
        };
        let cells = |row: &&str| self.columns.iter().map(|column| cell(row, column)).collect();
        let phase = self.phase.map_or_else(String::new, |phase| format!("{phase}: "));
        let map = HeatMap {
            title: format!("{phase}{what} by {row_name} and {column_name}"),
            corner: format!("{row_name} \\ {column_name}"),
            columns: self.columns.iter().map(|&column| column.to_owned()).collect(),
            rows: self.rows.iter().map(|row| ((*row).to_owned(), cells(row))).collect(),
            show,
        };
        map.draw(page);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::model::Setting;
    use crate::report::sample;

    fn run(axes: [(&str, &[&str]); 2]) -> Run {
        let mut run = sample::single(1, 8);
        run.points.clear();
        let setting = |name: &str, value: &str| Setting { name: name.to_owned(), value: value.to_owned() };
        for row in axes[0].1 {
            for column in axes[1].1 {
                let mut point = sample::point(1, 8);
                point.settings = vec![setting(axes[0].0, row), setting(axes[1].0, column)];
                run.points.push(point);
            }
        }
        run
    }

    #[test]
    fn lines_are_over_the_last_setting_that_is_a_number() {
        let run = run([("io-size", &["4K", "8K", "64K"]), ("workload", &["read", "write"])]);
        assert_eq!(swept(&run), Some("io-size"));
        let charts = charts(&run);
        assert_eq!(charts[0].title, "Throughput by bytes per command");
        let names: Vec<&str> = charts[0].lines.iter().map(|line| line.name.as_str()).collect();
        assert_eq!(names, ["workload read", "workload write"]);
        let xs: Vec<f64> = charts[0].lines[0].points.iter().map(|dot| dot.x).collect();
        assert_eq!(xs, [4096.0, 8192.0, 65536.0]);
        assert!(super::charts(&sample::single(1, 8)).is_empty(), "threads and depth have plots of their own");
    }

    #[test]
    fn a_map_has_a_cell_for_each_pair_and_a_dash_where_none_was_measured() {
        let mut run = run([("depth", &["1", "2"]), ("read-percent", &["100", "0"])]);
        run.points.pop();
        let mut page = Markup::default();
        maps(&mut page, &run);
        let page = page.finish();
        assert_eq!(page.matches("<td").count(), 8);
        assert_eq!(page.matches("<td>-</td>").count(), 2);
        assert_eq!(page.matches("IOPS by depth and read-percent").count(), 1);
        assert_eq!(page.matches("p99 latency by depth and read-percent").count(), 1);
    }
}
