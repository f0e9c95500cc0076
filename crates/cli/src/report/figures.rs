//! Which plots a run gets, and what is in them.

use super::latency::{BUCKETS_PER_OCTAVE, Distribution, octave_slot};
use super::model::{Point, Run};
use super::plot::{Axis, Chart, Dot, Line};
use super::repetitions::PointSpread;
use super::scale::{NINES_MAX, Scale, average, micros, nines, si, trimmed};
use super::summary::{Summary, Sweep, iops, p99, thread_counts};
use super::{grid, timeline};
use crate::count::count;
use unvme_advise::statistics::Spread;

/// A rate over time is drawn when it has at least this many intervals.
const SERIES_MIN: usize = 4;
/// Lines whose names are at their ends at most; more of them take the room of the plot.
pub(super) const LABELS: usize = 4;
/// Dots with a hint on a curve that is drawn without dots.
const HINTS: usize = 48;
/// Colours of thread counts; one beyond the last shares its colour with an earlier one.
const SWEEP_COLOURS: usize = 8;
/// First of the colours, from cold to warm, of the points that are picked out of a sweep.
const SAMPLE_COLOUR: usize = 8;
/// Bars that the middle of a distribution is divided into, at most.
const BINS: i32 = 96;

/// All plots that `run` has data for.
pub(super) fn charts(run: &Run) -> Vec<Chart> {
    let summary = Summary::new(run);
    let mut charts = Vec::new();
    if matches!(summary.sweep(), Sweep::Depth | Sweep::Threads) {
        charts.push(rate(run, summary));
        charts.push(latency(run, summary));
        charts.push(rate_and_latency(run, summary));
    }
    charts.extend(grid::charts(run));
    let samples = summary.samples();
    if !samples.is_empty() {
        charts.push(percentiles(summary, &samples));
        charts.push(density(summary, &samples));
    }
    let timed = over_time(summary);
    if !timed.is_empty() {
        charts.push(series(summary, &timed));
        let named = coloured(&timed).map(|(colour, point)| (colour, point, summary.sample_name(point)));
        charts.extend(timeline::charts(&named.collect::<Vec<_>>()));
    }
    let mut repeated = chosen(summary);
    repeated.retain(|point| !point.repetitions.is_empty());
    if !repeated.is_empty() {
        charts.push(by_repetition(summary, &repeated));
    }
    if charts.len() % 2 == 1
        && let Some(last) = charts.last_mut()
    {
        last.wide = true;
    }
    charts
}

/// The points of one line, with its name and colour.
struct Group<'a> {
    name: String,
    colour: usize,
    points: Vec<&'a Point>,
}

/// The lines of a sweep: one per thread count over depth, or a single one over thread counts.
fn groups<'a>(run: &'a Run, summary: Summary<'_>) -> Vec<Group<'a>> {
    let counts = thread_counts(&run.points);
    if summary.sweep() == Sweep::Threads {
        let mut points: Vec<&Point> = run.points.iter().collect();
        points.sort_by_key(|point| point.threads);
        return vec![Group { name: String::new(), colour: 0, points }];
    }
    let group = |(colour, &threads): (usize, &u32)| {
        let mut points: Vec<&Point> = run.points.iter().filter(|point| point.threads == threads).collect();
        points.sort_by_key(|point| point.depth);
        let name = count(u64::from(threads), "thread");
        Group { name, colour: colour % SWEEP_COLOURS, points }
    };
    counts.iter().enumerate().map(group).collect()
}

fn sweep_value(summary: Summary<'_>, point: &Point) -> f64 {
    f64::from(if summary.sweep() == Sweep::Threads { point.threads } else { point.depth })
}

fn sweep_axis(run: &Run, summary: Summary<'_>) -> Axis {
    let values = run.points.iter().map(|point| sweep_value(summary, point));
    let (min, max) = bounds(values);
    let name = if summary.sweep() == Sweep::Threads { "Threads" } else { "Queue depth per thread" };
    Axis { name, scale: Scale::powers_of_two(min, max), tick: |tick| tick.to_string() }
}

fn sweep_noun(summary: Summary<'_>) -> &'static str {
    if summary.sweep() == Sweep::Threads { "thread count" } else { "queue depth" }
}

fn rate(run: &Run, summary: Summary<'_>) -> Chart {
    let groups = groups(run, summary);
    let several = groups.len() > 1;
    let lines = groups
        .into_iter()
        .map(|group| Line {
            end_label: several.then(|| group.name.clone()),
            points: group
                .points
                .iter()
                .map(|point| Dot {
                    x: sweep_value(summary, point),
                    y: middle(point).0,
                    tip: Some(tip(point)),
                    range: point.spread.map(|spread| (spread.iops.min, spread.iops.max)),
                    ..Dot::default()
                })
                .collect(),
            name: group.name,
            colour: group.colour,
            dots: true,
            ..Line::default()
        })
        .collect();
    let title = format!("Throughput by {}", sweep_noun(summary));
    let note = format!("Completed commands per second, all threads together{}", repeated(run));
    let rates = rate_axis(run.points.iter().map(most));
    Chart::new(&title, note, sweep_axis(run, summary), rates, lines)
}

/// The rate and the average latency of a point: the medians of its repetitions, where it has some.
fn middle(point: &Point) -> (f64, Option<f64>) {
    let once = (point.total.iops, point.total.latency_us_average);
    let of = |spread: PointSpread| (spread.iops.median, spread.latency_us_average.map(|us| us.median));
    point.spread.map_or(once, of)
}

/// The highest rate of a point.
fn most(point: &Point) -> f64 {
    point.spread.map_or(point.total.iops, |spread| spread.iops.max)
}

/// What a plot of repetitions shows of them.
fn repeated(run: &Run) -> &'static str {
    let is_repeated = run.points.iter().any(|point| point.spread.is_some());
    if is_repeated { "; median, least and greatest of the repetitions" } else { "" }
}

fn latency(run: &Run, summary: Summary<'_>) -> Chart {
    let groups = groups(run, summary);
    let single = groups.len() == 1;
    let mut lines = Vec::new();
    for group in groups {
        let line =
            |value: &dyn Fn(&Point) -> Option<f64>, spread: fn(&Point) -> Option<Spread>, what: &str| {
                let dot = |point: &&Point| {
                    let y = value(point).filter(|&us| us > 0.0)?;
                    let range = spread(point).map(|spread| (spread.min, spread.max));
                    let tip = Some(tip(point));
                    Some(Dot { x: sweep_value(summary, point), y, tip, range, ..Dot::default() })
                };
                let points = group.points.iter().filter_map(dot).collect();
                let end_label = single.then(|| what.to_owned());
                Line { colour: group.colour, dots: true, points, end_label, ..Line::default() }
            };
        let spread_of_tail = |point: &Point| point.spread.and_then(|spread| spread.latency_us_p99);
        let middle_of_tail = |point: &Point| match spread_of_tail(point) {
            Some(spread) => Some(spread.median),
            None => p99(point),
        };
        let tail = line(&middle_of_tail, spread_of_tail, "p99");
        let tails = !tail.points.is_empty();
        lines.push(Line {
            name: group.name.clone(),
            ..line(
                &|point| middle(point).1,
                |point| point.spread.and_then(|spread| spread.latency_us_average),
                "average",
            )
        });
        lines.extend(tails.then_some(Line { dashed: true, ..tail }));
    }
    let tails = lines.iter().any(|line| line.dashed);
    let note = if tails { "Average (solid) and 99th percentile (dashed)" } else { "Average" };
    let title = format!("Latency by {}", sweep_noun(summary));
    let note = format!("{note}{}", repeated(run));
    Chart::new(&title, note, sweep_axis(run, summary), latency_axis(reach(&lines)), lines)
}

fn rate_and_latency(run: &Run, summary: Summary<'_>) -> Chart {
    let groups = groups(run, summary);
    let lines: Vec<Line> = groups
        .into_iter()
        .map(|group| Line {
            points: group
                .points
                .iter()
                .filter_map(|point| {
                    Some(Dot {
                        x: point.total.iops,
                        y: point.total.latency_us_average.filter(|&us| us > 0.0)?,
                        label: Some(format!("{}", sweep_value(summary, point))),
                        tip: Some(tip(point)),
                        ..Dot::default()
                    })
                })
                .collect(),
            name: group.name,
            colour: group.colour,
            dots: true,
            ..Line::default()
        })
        .collect();
    let note = format!("Average latency; the numbers are the {}", sweep_noun(summary));
    let rates = rate_axis(run.points.iter().map(|point| point.total.iops));
    Chart::new("Latency by throughput", note, rates, latency_axis(heights(&lines)), lines)
}

fn percentiles(summary: Summary<'_>, samples: &[&Point]) -> Chart {
    let mut deepest = 0;
    let mut lines: Vec<Line> = Vec::new();
    for (colour, point) in coloured(samples) {
        let Some(latency) = &point.latency else { continue };
        let name = summary.sample_name(point);
        let points = cumulative(&latency.all, &name);
        deepest = deepest.max(latency.all.samples);
        let end_label = (2..=LABELS).contains(&samples.len()).then(|| name.clone());
        lines.push(Line { name, colour, points, end_label, ..Line::default() });
    }
    let threads = threads_note(summary, samples);
    let note = format!("Latency within which each share of commands completed; {threads}");
    let shares = Axis { name: "Percentile", scale: Scale::nines(deepest), tick: |tick| format!("{tick}%") };
    Chart::new("Latency percentiles", note, shares, latency_axis(heights(&lines)), lines)
}

/// Latency against the share of commands that were at least as fast.
pub(super) fn cumulative(distribution: &Distribution, name: &str) -> Vec<Dot> {
    let total = distribution.samples.max(1) as f64;
    let mut below = 0u64;
    let mut hinted = f64::NEG_INFINITY;
    let mut points = Vec::new();
    for bucket in &distribution.buckets {
        below += bucket.count;
        // The slowest command of n is the percentile of half of it: 100 % has no place on an axis of nines.
        let share = (below as f64 / total).min(1.0 - 0.5 / total);
        let place = nines(share * 100.0);
        if place > NINES_MAX {
            break;
        }
        let hint = (place - hinted) * HINTS as f64 >= NINES_MAX;
        if hint {
            hinted = place;
        }
        let tip = || format!("{name}\n{:.4} % within {}", share * 100.0, micros(bucket.value_us));
        points.push(Dot { x: share * 100.0, y: bucket.value_us, tip: hint.then(tip), ..Dot::default() });
    }
    points
}

fn density(summary: Summary<'_>, samples: &[&Point]) -> Chart {
    let mut lines: Vec<Line> = Vec::new();
    let mut rules = Vec::new();
    for (colour, point) in coloured(samples) {
        let Some(latency) = &point.latency else { continue };
        let name = summary.sample_name(point);
        let points = bars(&latency.all, &name);
        if samples.len() == 1 {
            let rule = |percent| Some((latency.all.percentile_us(percent)?, percent));
            let named = |(us, percent)| (us, format!("p{percent} {}", micros(us)));
            rules = [50.0, 99.0, 99.9].into_iter().filter_map(rule).map(named).collect();
        }
        lines.push(Line { name, colour, points, filled: true, ..Line::default() });
    }
    let threads = threads_note(summary, samples);
    let note = format!("Share of commands in each of many logarithmic bins; {threads}");
    let latencies = latency_axis(dots(&lines).map(|dot| dot.x));
    let scale = Scale::linear(bounds(heights(&lines)).1);
    let shares = Axis { name: "Share of commands", scale, tick: |tick| trimmed(&format!("{tick:.2} %")) };
    Chart { rules, ..Chart::new("Latency distribution", note, latencies, shares, lines) }
}

/// The distribution in bins of equal ratio, up to the latency that only one command in 10000 exceeds: what is
/// beyond is invisible on a linear scale, and the plot of percentiles shows it.
fn bars(distribution: &Distribution, name: &str) -> Vec<Dot> {
    let (Some(first), Some(last)) = (distribution.buckets.first(), distribution.buckets.last()) else {
        return Vec::new();
    };
    let end = distribution.percentile_us(99.99).unwrap_or(last.value_us);
    let slot = |us| octave_slot(us, BUCKETS_PER_OCTAVE);
    // Whole numbers of buckets per bin: anything else gives every other bin one bucket more.
    let stride = ((slot(end) - slot(first.value_us)) / BINS + 1).max(2);
    let ratio = f64::from(stride) / f64::from(BUCKETS_PER_OCTAVE);
    let edge = |bin: i32| 2f64.powf(f64::from(bin) * ratio) / 1e3;
    let (low, high) = (slot(first.value_us).div_euclid(stride), slot(end).div_euclid(stride));
    let mut counts = vec![0u64; (high - low + 1).max(1) as usize];
    for bucket in distribution.buckets.iter().take_while(|bucket| bucket.value_us <= end) {
        let index = (slot(bucket.value_us).div_euclid(stride) - low) as usize;
        if let Some(count) = counts.get_mut(index) {
            *count += bucket.count;
        }
    }
    let mut points = vec![Dot { x: edge(low) / 2f64.powf(ratio / 2.0), ..Dot::default() }];
    for (bin, count) in (low..).zip(counts) {
        let share = count as f64 / distribution.samples as f64 * 100.0;
        let range = format!("{} to {}", micros(edge(bin)), micros(edge(bin + 1)));
        let tip = (share >= 0.1).then(|| format!("{name}\n{share:.1} % took {range}"));
        points.push(Dot { x: edge(bin) * 2f64.powf(ratio / 2.0), y: share, tip, ..Dot::default() });
    }
    points.push(Dot { x: edge(high + 1) * 2f64.powf(ratio / 2.0), ..Dot::default() });
    points
}

/// The points that are drawn apart: those of the latency plots, or the peak when there are none.
fn chosen<'a>(summary: Summary<'a>) -> Vec<&'a Point> {
    let mut points = summary.samples();
    if points.is_empty() {
        points.extend(summary.peak());
    }
    points
}

/// Of these, those whose rate over time is drawn.
fn over_time(summary: Summary<'_>) -> Vec<&Point> {
    let mut points = chosen(summary);
    points.retain(|point| point.series.len() >= SERIES_MIN);
    points
}

fn series(summary: Summary<'_>, points: &[&Point]) -> Chart {
    let lines: Vec<Line> = coloured(points)
        .map(|(colour, point)| {
            let name = summary.sample_name(point);
            let stride = point.series.len().div_ceil(4 * HINTS);
            let dot = |(index, at): (usize, &super::Sample)| Dot {
                x: at.second,
                y: at.iops,
                tip: (index % stride == 0).then(|| format!("{name}\n{:.1} s: {}", at.second, iops(at.iops))),
                ..Dot::default()
            };
            let dots = point.series.iter().enumerate().map(dot).collect();
            let end_label = (2..=LABELS).contains(&points.len()).then(|| name.clone());
            Line { name: name.clone(), colour, points: dots, end_label, ..Line::default() }
        })
        .collect();
    let (_, end) = bounds(dots(&lines).map(|dot| dot.x));
    let note = format!("Completed commands per second in each interval; {}", threads_note(summary, points));
    let time = Axis { name: "Time", scale: Scale::linear(end), tick: seconds_tick };
    Chart::new("Throughput over time", note, time, rate_axis(heights(&lines)), lines)
}

pub(super) fn dots(lines: &[Line]) -> impl Iterator<Item = &Dot> {
    lines.iter().flat_map(|line| &line.points)
}

pub(super) fn heights(lines: &[Line]) -> impl Iterator<Item = f64> {
    dots(lines).map(|dot| dot.y)
}

/// All that lines and their ranges reach.
pub(super) fn reach(lines: &[Line]) -> impl Iterator<Item = f64> {
    let ends = |dot: &Dot| {
        [dot.y, dot.range.map_or(dot.y, |range| range.0), dot.range.map_or(dot.y, |range| range.1)]
    };
    dots(lines).flat_map(ends)
}

/// The rate of each repetition in the order measured, so that a device that slows down or warms up is seen.
fn by_repetition(summary: Summary<'_>, points: &[&Point]) -> Chart {
    let lines: Vec<Line> = coloured(points)
        .map(|(colour, point)| {
            let name = summary.sample_name(point);
            let rates = point.repetitions.iter().map(|repetition| repetition.iops);
            repetition_line(name, colour, rates, iops)
        })
        .collect();
    let note =
        format!("Completed commands per second, in the order measured; {}", threads_note(summary, points));
    Chart::new("Throughput by repetition", note, repetition_axis(&lines), rate_axis(heights(&lines)), lines)
}

/// A line through one figure of each repetition.
pub(super) fn repetition_line(
    name: String,
    colour: usize,
    figures: impl Iterator<Item = f64>,
    show: impl Fn(f64) -> String,
) -> Line {
    let dot = |(index, y): (usize, f64)| {
        let number = index + 1;
        let tip = Some(format!("{name}\nrepetition {number}: {}", show(y)));
        Dot { x: number as f64, y, tip, ..Dot::default() }
    };
    let points: Vec<Dot> = figures.enumerate().map(dot).collect();
    Line { dots: points.len() <= HINTS, name, colour, points, ..Line::default() }
}

/// As far as the longest of the lines.
pub(super) fn repetition_axis(lines: &[Line]) -> Axis {
    let most = lines.iter().map(|line| line.points.len()).max().unwrap_or(1);
    Axis { name: "Repetition", scale: Scale::counted(most), tick: |tick| tick.to_string() }
}

pub(super) fn latency_axis(values: impl Iterator<Item = f64>) -> Axis {
    let (min, max) = bounds(values);
    Axis { name: "Latency", scale: Scale::decades(min, max), tick: micros_tick }
}

/// A time in seconds, with as many digits as a run of milliseconds needs.
pub(super) fn seconds_tick(seconds: f64) -> String {
    match seconds {
        0.0 => "0 s".to_owned(),
        ..0.1 => trimmed(&format!("{:.2} ms", seconds * 1e3)),
        _ => trimmed(&format!("{seconds:.2} s")),
    }
}

pub(super) fn rate_axis(values: impl Iterator<Item = f64>) -> Axis {
    let (_, max) = bounds(values);
    Axis { name: "IOPS", scale: Scale::linear(max), tick: si_tick }
}

/// The points with the colours they have in every plot that picks some of the sweep.
fn coloured<'a>(points: &[&'a Point]) -> impl Iterator<Item = (usize, &'a Point)> {
    // Phases have nothing cold or warm about them, nor have settings.
    let has_none = |point: &&Point| point.phase.is_none() && point.settings.is_empty();
    let sampled = points.len() > 1 && points.iter().all(has_none);
    let first = if sampled { SAMPLE_COLOUR } else { 0 };
    points.iter().enumerate().map(move |(index, &point)| (first + index, point))
}

fn threads_note(summary: Summary<'_>, points: &[&Point]) -> String {
    match (summary.sweep(), points.first()) {
        (Sweep::Threads, Some(point)) => format!("depth {}", point.depth),
        (_, Some(point)) => count(u64::from(point.threads), "thread"),
        (_, None) => String::new(),
    }
}

/// What a dot of a sweep says about its point.
fn tip(point: &Point) -> String {
    let threads = count(u64::from(point.threads), "thread");
    let tail = p99(point).map_or_else(String::new, |us| format!("\np99 {}", micros(us)));
    let mean = average(point.total.latency_us_average);
    let range = point.spread.map_or_else(String::new, |spread| {
        let average = spread.latency_us_average.map_or_else(String::new, |average| {
            format!(", average {} to {}", micros(average.min), micros(average.max))
        });
        let (count, rates) = (point.repetitions.len(), spread.iops);
        format!("\nin {count} repetitions: {} to {}{average}", iops(rates.min), iops(rates.max))
    });
    format!("depth {}, {threads}\n{}\n{mean}{tail}{range}", point.depth, iops(point.total.iops))
}

fn si_tick(value: f64) -> String {
    trimmed(&si(value))
}

fn micros_tick(us: f64) -> String {
    trimmed(&micros(us))
}

/// The least and the greatest of the values above zero.
fn bounds(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let positive = values.filter(|&value| value > 0.0);
    let (min, max) =
        positive.fold((f64::INFINITY, 0.0f64), |(min, max), value| (min.min(value), max.max(value)));
    if min.is_finite() { (min, max) } else { (1.0, 1.0) }
}
