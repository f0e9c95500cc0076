//! Latency and write amplification over the time of a point.

use super::figures::{LABELS, latency_axis, reach, seconds_tick};
use super::model::{Point, Sample};
use super::plot::{Axis, Chart, Dot, Line};
use super::scale::{Scale, micros};

/// Dots with a hint on a line.
const HINTS: usize = 192;

/// What there is of both, for points with their colours and names.
pub(super) fn charts(points: &[(usize, &Point, String)]) -> Vec<Chart> {
    let end = points.iter().flat_map(|(_, point, _)| &point.series).map(|at| at.second).fold(0.0, f64::max);
    let time = || Axis { name: "Time", scale: Scale::linear(end), tick: seconds_tick };
    let mut charts = Vec::new();
    let latencies = lines(points, |at| at.latency_us_average.filter(|&us| us > 0.0), micros);
    if !latencies.is_empty() {
        let axis = latency_axis(reach(&latencies));
        charts.push(Chart::new("Latency over time", "Average in each interval", time(), axis, latencies));
    }
    let amplification = lines(points, |at| at.write_amplification, |waf| format!("{waf:.3}"));
    if !amplification.is_empty() {
        let most = amplification.iter().flat_map(|line| &line.points).map(|dot| dot.y).fold(1.0, f64::max);
        let axis =
            Axis { name: "Write amplification", scale: Scale::linear(most), tick: |tick| tick.to_string() };
        let note = "Bytes that flash has written for each byte of the host, in each interval";
        charts.push(Chart::new("Write amplification over time", note, time(), axis, amplification));
    }
    charts
}

fn lines(
    points: &[(usize, &Point, String)],
    of: fn(&Sample) -> Option<f64>,
    show: fn(f64) -> String,
) -> Vec<Line> {
    let line = |(colour, point, name): &(usize, &Point, String)| {
        let stride = point.series.len().div_ceil(HINTS).max(1);
        let dot = |(index, at): (usize, &Sample)| {
            let y = of(at)?;
            let tip = (index % stride == 0).then(|| format!("{name}\n{:.1} s: {}", at.second, show(y)));
            Some(Dot { x: at.second, y, tip, ..Dot::default() })
        };
        let dots: Vec<Dot> = point.series.iter().enumerate().filter_map(dot).collect();
        let end_label = (2..=LABELS).contains(&points.len()).then(|| name.clone());
        (dots.len() > 1).then(|| Line {
            name: name.clone(),
            colour: *colour,
            points: dots,
            end_label,
            ..Line::default()
        })
    };
    points.iter().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn what_samples_say_is_drawn_and_nothing_else() {
        let mut point = sample::point(1, 8);
        assert!(charts(&[(0, &point, "one".to_owned())]).is_empty());
        for (index, at) in point.series.iter_mut().enumerate() {
            at.latency_us_average = (index != 1).then_some(10.0);
            at.write_amplification = (index > 1).then_some(1.5);
        }
        let charts = charts(&[(0, &point, "one".to_owned())]);
        let dots: Vec<usize> = charts.iter().map(|chart| chart.lines[0].points.len()).collect();
        assert_eq!(dots, [point.series.len() - 1, point.series.len() - 2]);
    }
}
