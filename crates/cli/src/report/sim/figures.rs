//! Which plots a simulation gets, and what is in them.

use super::super::plot::{Axis, Chart, Dot, Line};
use super::super::scale::{Scale, trimmed};
use super::model::{Row, Sample, Simulation, percent};

/// Colours of a run without FDP and of one with it, where there is one of each.
const WITHOUT: usize = 1;
const WITH: usize = 0;
/// Colours of utilisations, where there are several: from cold to warm.
const SWEEP: [usize; 6] = [2, 0, 8, 9, 10, 11];
/// Points with a hint on a line.
const HINTS: usize = 48;

/// All plots that the simulation has data for; the widest first.
pub(super) fn charts(simulation: &Simulation) -> Vec<Chart> {
    let mut charts = vec![amplification(simulation), mapped(simulation)];
    if utils(simulation).len() > 1 {
        charts.push(sweep(simulation));
    }
    charts[0].wide = true;
    // Two beside each other, or one alone: each line of the page is full.
    charts[1].wide = charts.len() == 2;
    charts
}

/// Write amplification over the run.
pub(super) fn amplification(simulation: &Simulation) -> Chart {
    let lines = lines(simulation, |at| at.write_amplification, |value| format!("{value:.3}"));
    let note = format!("{}; pages programmed per page written, in each interval", simulation.workload.title);
    Chart::new("Write amplification over time", note, time_axis(simulation), waf_axis(&lines), lines)
}

/// How full the device is, over the run: a line for each utilisation, as FDP makes no difference to it.
pub(super) fn mapped(simulation: &Simulation) -> Chart {
    let utils = utils(simulation);
    let several = utils.len() > 1;
    let rows = || utils.iter().filter_map(|util| simulation.rows.iter().find(|row| row.util == *util));
    let line = |row: &Row, value: fn(&Sample) -> f64, what: &str| {
        let dot = |(index, at): (usize, &Sample)| Dot {
            x: time(at),
            y: value(at) * 100.0,
            tip: (index % 2 == 0).then(|| format!("{}: {:.1} % {what}", when(at), value(at) * 100.0)),
            ..Dot::default()
        };
        let points = row.samples.iter().enumerate().map(dot).collect();
        let colour = if several { colour(simulation, row) } else { WITH };
        Line { colour, points, ..Line::default() }
    };
    let mut lines = Vec::new();
    for row in rows() {
        let name =
            if several { format!("{} % in use", percent(row.util)) } else { "mapped pages".to_owned() };
        let end_label = several.then(|| format!("{} %", percent(row.util)));
        lines.push(Line { name, end_label, ..line(row, |at| at.mapped, "mapped") });
    }
    if let Some(row) = rows().next_back() {
        let free = line(row, |at| at.free, "of the units free");
        let colour = if several { free.colour } else { WITHOUT };
        lines.push(Line { name: "free units".to_owned(), dashed: true, colour, ..free });
    }
    let note = "Pages that hold data, of those exported; free reclaim units, of all";
    Chart::new("Utilisation over time", note, time_axis(simulation), share_axis("Share"), lines)
}

/// Where write amplification settles, by utilisation.
pub(super) fn sweep(simulation: &Simulation) -> Chart {
    let line = |fdp: bool, value: &dyn Fn(&Row) -> Option<f64>| {
        let mut rows: Vec<&Row> = simulation.rows.iter().filter(|row| row.fdp == fdp).collect();
        rows.sort_by(|a, b| a.util.total_cmp(&b.util));
        let dot = |row: &&Row| {
            let y = value(row)?;
            let tip = Some(format!("{}\nplateau {:.3}", row.label(), row.plateau));
            Some(Dot { x: percent(row.util), y, label: Some(format!("{y:.2}")), tip, ..Dot::default() })
        };
        let points: Vec<Dot> = rows.iter().filter_map(dot).collect();
        Line { colour: if fdp { WITH } else { WITHOUT }, dots: true, points, ..Line::default() }
    };
    let mut lines = Vec::new();
    for (fdp, name) in [(false, "no FDP"), (true, "FDP")] {
        let measured = line(fdp, &|row| Some(row.plateau));
        if !measured.points.is_empty() {
            lines.push(Line { name: name.to_owned(), end_label: Some(name.to_owned()), ..measured });
        }
    }
    let note = "Write amplification in the last quarter of each run";
    let used = share_axis("Share of the device in use");
    Chart::new("Where it settles", note, used, waf_axis(&lines), lines)
}

fn waf_axis(lines: &[Line]) -> Axis {
    let top = lines.iter().flat_map(|line| line.points.iter().map(|dot| dot.y)).fold(1.0f64, f64::max);
    Axis { name: "WAF", scale: Scale::linear(top), tick: |tick| trimmed(&format!("{tick:.2}")) }
}

fn share_axis(name: &'static str) -> Axis {
    Axis { name, scale: Scale::linear(100.0), tick: |tick| format!("{tick} %") }
}

/// A line for each row.
fn lines(simulation: &Simulation, value: fn(&Sample) -> f64, shown: fn(f64) -> String) -> Vec<Line> {
    let several = utils(simulation).len() > 1;
    let both = simulation.rows.iter().any(|row| row.fdp) && simulation.rows.iter().any(|row| !row.fdp);
    let line = |row: &Row| {
        let name = match (several, both) {
            (true, _) => row.label(),
            (false, true) => (if row.fdp { "FDP" } else { "no FDP" }).to_owned(),
            (false, false) => simulation.workload.name.clone(),
        };
        let stride = row.samples.len().div_ceil(HINTS).max(1);
        let dot = |(index, at): (usize, &Sample)| Dot {
            x: time(at),
            y: value(at),
            tip: (index % stride == 0).then(|| format!("{name}\n{}: {}", when(at), shown(value(at)))),
            ..Dot::default()
        };
        Line {
            colour: colour(simulation, row),
            dashed: several && both && row.fdp,
            points: row.samples.iter().enumerate().map(dot).collect(),
            end_label: (!several || !row.fdp || !both)
                .then(|| name.clone())
                .filter(|_| simulation.rows.len() > 1),
            name,
            ..Line::default()
        }
    };
    simulation.rows.iter().map(line).collect()
}

fn colour(simulation: &Simulation, row: &Row) -> usize {
    let utils = utils(simulation);
    if utils.len() < 2 {
        return if row.fdp { WITH } else { WITHOUT };
    }
    SWEEP[utils.iter().position(|&util| util == row.util).unwrap_or(0) % SWEEP.len()]
}

/// The utilisations, in the order asked for.
fn utils(simulation: &Simulation) -> Vec<f64> {
    let mut utils = Vec::new();
    for row in &simulation.rows {
        if !utils.contains(&row.util) {
            utils.push(row.util);
        }
    }
    utils
}

fn is_timed(simulation: &Simulation) -> bool {
    simulation.rows.iter().any(|row| row.latency.is_some())
}

fn time(at: &Sample) -> f64 {
    at.seconds.unwrap_or(at.device_writes)
}

fn when(at: &Sample) -> String {
    let written = format!("{:.1} device writes", at.device_writes);
    at.seconds.map_or(written.clone(), |seconds| format!("{written}, {}", super::span(seconds)))
}

fn time_axis(simulation: &Simulation) -> Axis {
    let end = simulation.rows.iter().filter_map(|row| row.samples.last().map(time)).fold(0.0, f64::max);
    let scale = Scale::linear(end);
    if is_timed(simulation) {
        return Axis { name: "Virtual time", scale, tick: |tick| trimmed(&super::span(tick)) };
    }
    let tick = |tick: f64| trimmed(&format!("{tick:.2}"));
    Axis { name: "Written by the host / physical capacity", scale, tick }
}
