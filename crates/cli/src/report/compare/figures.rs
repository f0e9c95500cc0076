//! The plots of a comparison, every side in each.

use super::super::figures::{
    cumulative, dots, heights, latency_axis, rate_axis, reach, repetition_axis, repetition_line,
};
use super::super::model::Point;
use super::super::plot::{Axis, Chart, Dot, Line};
use super::super::repetitions::repetitions;
use super::super::scale::Scale;
use super::super::summary::thread_counts;
use super::{Comparison, Metric, Side};
use crate::count::count;
use unvme_advise::statistics::Spread;

/// Colours that tell lines apart.
const COLOURS: usize = 8;

/// All plots there is data for.
pub(super) fn charts(comparison: &Comparison) -> Vec<Chart> {
    let phases = comparison.points.iter().any(|point| point.phase.is_some());
    let mut depths: Vec<u32> = comparison.points.iter().map(|point| point.depth).collect();
    depths.sort_unstable();
    depths.dedup();
    let mut charts = Vec::new();
    if depths.len() > 1 && !phases {
        charts.push(by_depth(comparison, Metric::Iops));
        charts.push(by_depth(comparison, Metric::LatencyUsAverage));
    }
    if let Some(first) = comparison.points.first() {
        let chosen: Vec<(&Side, &Point)> = comparison
            .sides
            .iter()
            .filter_map(|side| {
                let same = |point: &&Point| {
                    (point.threads, point.depth, &point.phase) == (first.threads, first.depth, &first.phase)
                };
                Some((side, side.run.points.iter().find(same)?))
            })
            .collect();
        charts.push(by_repetition(&first.what, &chosen, Metric::Iops));
        charts.push(by_repetition(&first.what, &chosen, Metric::LatencyUsAverage));
        charts.extend(percentiles(&first.what, &chosen));
    }
    if charts.len() % 2 == 1
        && let Some(last) = charts.last_mut()
    {
        last.wide = true;
    }
    charts
}

fn axis(metric: Metric, lines: &[Line]) -> Axis {
    match metric {
        Metric::Iops | Metric::MibPerSecond => rate_axis(reach(lines)),
        Metric::LatencyUsAverage | Metric::LatencyUsP99 => latency_axis(reach(lines)),
    }
}

fn by_depth(comparison: &Comparison, metric: Metric) -> Chart {
    let mut lines = Vec::new();
    for side in &comparison.sides {
        let counts = thread_counts(&side.run.points);
        for &threads in &counts {
            let mut points: Vec<&Point> =
                side.run.points.iter().filter(|point| point.threads == threads).collect();
            points.sort_by_key(|point| point.depth);
            let name = match counts.len() {
                1 => side.name(),
                _ => format!("{}, {}", side.name(), count(u64::from(threads), "thread")),
            };
            let points = points.iter().filter_map(|point| dot(&name, metric, point)).collect();
            let colour = lines.len() % COLOURS;
            lines.push(Line { name, colour, dots: true, points, ..Line::default() });
        }
    }
    let depths = || dots(&lines).map(|dot| dot.x);
    let (least, most) = (depths().fold(f64::INFINITY, f64::min), depths().fold(1.0, f64::max));
    let scale = Scale::powers_of_two(least, most);
    let depth = Axis { name: "Queue depth per thread", scale, tick: |tick| tick.to_string() };
    let title = format!("{} by queue depth", metric.name());
    let figures = axis(metric, &lines);
    Chart::new(&title, "Median, least and greatest of the repetitions", depth, figures, lines)
}

fn dot(name: &str, metric: Metric, point: &Point) -> Option<Dot> {
    let figures: Option<Vec<f64>> = repetitions(point).iter().map(|it| metric.of(it)).collect();
    let spread = Spread::of(&figures?)?;
    let tip = format!(
        "{name}\ndepth {}: {} ({} to {})",
        point.depth,
        metric.show(spread.median),
        metric.show(spread.min),
        metric.show(spread.max)
    );
    let range = (!point.repetitions.is_empty()).then_some((spread.min, spread.max));
    Some(Dot { x: f64::from(point.depth), y: spread.median, tip: Some(tip), range, ..Dot::default() })
}

fn by_repetition(what: &str, chosen: &[(&Side, &Point)], metric: Metric) -> Chart {
    let line = |(index, (side, point)): (usize, &(&Side, &Point))| {
        let figures: Vec<f64> = repetitions(point).iter().filter_map(|it| metric.of(it)).collect();
        repetition_line(side.name(), index % COLOURS, figures.into_iter(), |figure| metric.show(figure))
    };
    let lines: Vec<Line> = chosen.iter().enumerate().map(line).collect();
    let title = format!("{} by repetition", metric.name());
    let figures = axis(metric, &lines);
    Chart::new(&title, what, repetition_axis(&lines), figures, lines)
}

/// Latency percentiles, where all sides have recorded them.
fn percentiles(what: &str, chosen: &[(&Side, &Point)]) -> Option<Chart> {
    let mut deepest = 0;
    let mut lines = Vec::new();
    for (index, (side, point)) in chosen.iter().enumerate() {
        let latency = point.latency.as_ref()?;
        deepest = deepest.max(latency.all.samples);
        let points = cumulative(&latency.all, &side.name());
        lines.push(Line { name: side.name(), colour: index % COLOURS, points, ..Line::default() });
    }
    let shares = Axis { name: "Percentile", scale: Scale::nines(deepest), tick: |tick| format!("{tick}%") };
    let latencies = latency_axis(heights(&lines));
    Some(Chart::new("Latency percentiles", what, shares, latencies, lines))
}
