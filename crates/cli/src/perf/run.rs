//! A whole run: everything in order, and the results where they are wanted.

use std::fs::File as OnDisk;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use super::args::{Output, Perf};
use super::counters::Live;
use super::machine::{machine, now};
use super::pattern::Pattern;
use super::point::Onlooker;
use super::progress::Progress;
use super::session::{Session, Stage};
use super::sheet::{File, Sheet, WINDOW};
use super::status::Status;
use super::{load, point, prefill, status};
use crate::count::count;
use crate::exit::{Failed, INTERRUPTED, Interrupted, usage};
use crate::fault::Script;
use crate::report::compare::{self, Comparison};
use crate::report::table::Percentiles;
use crate::report::{self, Point, Run, SteadyFigure, SteadyState};

/// Repetitions of runs that are compared, where nobody says how many.
const REPEAT_TO_COMPARE: u32 = 10;
/// What is said of a run that a signal has ended.
const INTERRUPTED_RUN: &str = "interrupted: the figures are of the time until then";

/// Does what was typed.
pub(super) fn run(mut args: Perf) -> Result<()> {
    if args.kv {
        args.settings.pattern.get_or_insert(Pattern::Retrieve);
    }
    let file = File::chosen(&args)?;
    if let (true, Some(sheet), Some(file)) = (args.explain, args.sheet, &file) {
        return explain(sheet, file);
    }
    let stop = stop_on_signals()?;
    for path in [&args.json, &args.csv, &args.report].into_iter().flatten() {
        touch(path)?;
    }
    let file = file.unwrap_or_else(|| File::of(&args));
    file.apply(&mut args);
    let compared = compared(&args, &file)?;
    let session = Session::new(&args, &file.phases, &file.top, stop)?;
    let started = now();
    prefill::run(&session, args.prefill)?;
    warn_of_empty_blocks(&args, &session);
    note(&session.notes);
    let script = args.faults.as_deref().map(|file| Script::start(file, &session.devices())).transpose()?;
    let repeat = args.repeat.unwrap_or(if compared.is_some() { REPEAT_TO_COMPARE } else { 1 });
    let measured = measure(&session, &args, repeat);
    // Asked before the loop without a device is measured: a signal then takes nothing away.
    let interrupted = session.is_stopped();
    note(script.iter().flat_map(Script::outcome));
    drop(script);
    let rate = |(_, point): &(usize, Point)| point.total.iops;
    let harness = match measured.points.iter().max_by(|a, b| rate(a).total_cmp(&rate(b))) {
        Some((stage, _)) if measured.broken.is_none() && session.is_connected() => {
            point::harness(&session, &session.stages[*stage])?
        }
        _ => None,
    };
    let workload = session.stages.iter().find_map(Stage::workload).context("there is nothing to measure")?;
    let with_workload = |(stage, mut point): (usize, Point)| {
        let own = session.stages[stage].workload();
        point.workload = own.filter(|own| *own != workload).cloned();
        point
    };
    let run = Run {
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        started,
        command_line: command_line(),
        machine: machine(),
        devices: session.namespaces.iter().map(|namespace| namespace.identity.clone()).collect(),
        workload: workload.clone(),
        points: measured.points.into_iter().map(with_workload).collect(),
        harness,
        unjudged_reads: args.verify.then_some(measured.unjudged),
        interrupted,
    };
    let result = match (&run.points[..], compared) {
        ([], _) => Err(prefill::stopped()),
        (_, Some(name)) if measured.broken.is_none() && !interrupted => {
            publish_comparison(&args, &run, &name)
        }
        _ => publish(&args, &session, &run),
    };
    if let Some(error) = measured.broken {
        return Err(error);
    }
    result?;
    verdict(&run, measured.first_failure)
}

/// Whether a run that was measured to its end succeeded. Errors: commands failed, a signal ended it early, or
/// no command completed at a point.
fn verdict(run: &Run, first_failure: Option<String>) -> Result<()> {
    match (report::failures(run), first_failure) {
        (Some(counts), Some(first)) => Err(Failed(format!("{counts}; the first: {first}")).into()),
        _ if run.interrupted => Err(Interrupted(INTERRUPTED_RUN.to_owned()).into()),
        _ => match report::stalled(run) {
            Some(what) => Err(Failed(what).into()),
            None => Ok(()),
        },
    }
}

fn note(lines: impl IntoIterator<Item: std::fmt::Display>) {
    for line in lines {
        // With stderr gone there is nobody left to tell.
        let _ = writeln!(io::stderr(), "unvme: note: {line}");
    }
}

/// Becomes true with the first signal; the second one ends the program at once.
pub(crate) fn stop_on_signals() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // In this order, so that the first one does not end it.
        flag::register_conditional_shutdown(signal, INTERRUPTED.into(), Arc::clone(&stop))
            .and_then(|_| flag::register(signal, Arc::clone(&stop)))
            .context("handle signals")?;
    }
    Ok(stop)
}

/// Prints what a sheet is about, and the sheet as a file.
fn explain(sheet: Sheet, file: &File) -> Result<()> {
    let mut out = io::stdout().lock();
    let commented = file.about.trim_end().lines().map(|line| format!("# {line}").trim_end().to_owned());
    for line in commented {
        writeln!(out, "{line}")?;
    }
    let rest = sheet.text().split_once("\"\"\"\n").and_then(|(_, rest)| rest.split_once("\"\"\"\n"));
    let text = rest.map_or(sheet.text(), |(_, rest)| rest);
    writeln!(out, "\n{}", text.trim())?;
    Ok(())
}

/// The setting whose values are compared with each other, if they are.
fn compared(args: &Perf, file: &File) -> Result<Option<String>> {
    if !args.compare {
        return Ok(None);
    }
    let axis = file.phases.iter().find_map(|phase| phase.axes.first());
    match axis {
        Some(axis) if axis.values.len() > 1 => Ok(Some(axis.name.clone())),
        _ => Err(usage(
            "--compare: expected several devices, -r A -r B, or a --matrix of a setting, such as depth=1,2",
        )),
    }
}

/// The arguments as typed, the program by its name alone.
pub(crate) fn command_line() -> Vec<String> {
    let mut words: Vec<String> =
        std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    if let Some(program) = words.first_mut() {
        *program = "unvme".to_owned();
    }
    words
}

/// Finds out before the measurement, not after it, that a file cannot be written. What it holds stays until
/// then.
pub(crate) fn touch(path: &Path) -> Result<()> {
    OnDisk::options()
        .append(true)
        .create(true)
        .open(path)
        .with_context(|| format!("write {}", path.display()))?;
    Ok(())
}

fn warn_of_empty_blocks(args: &Perf, session: &Session) {
    if args.verify {
        return;
    }
    let pairs = session.namespaces.iter().filter(|namespace| session.lacks_pairs(namespace));
    if !args.no_prefill {
        note(pairs.map(|namespace| {
            let name = &namespace.identity.name;
            format!("{name}: pairs that are not there are misses; --prefill stores them all before")
        }));
    }
    for namespace in session.namespaces.iter().filter(|namespace| namespace.may_be_empty()) {
        let name = &namespace.identity.name;
        // With stderr gone there is nobody left to tell.
        let _ = writeln!(
            io::stderr(),
            "unvme: note: {name}: blocks that were never written are read as zeroes, without the media; --prefill \
             writes them all"
        );
    }
}

/// The points, as far as they got.
struct Measured {
    /// Index of the stage, and what came of it.
    points: Vec<(usize, Point)>,
    first_failure: Option<String>,
    unjudged: u64,
    /// Why there are no more.
    broken: Option<anyhow::Error>,
}

/// A run under way.
struct Course<'a> {
    session: &'a Session,
    progress: Progress,
    status: Status,
    /// What was planned of what is over.
    passed: Duration,
    first_failure: Option<String>,
    unjudged: u64,
}

/// Measures all points once, then all again: what changes with time changes all of them.
fn measure(session: &Session, args: &Perf, repeat: u32) -> Measured {
    let planned: Duration = session.stages.iter().map(Stage::planned).sum();
    let mut course = Course {
        session,
        progress: Progress::new("measure", (planned * repeat).as_millis() as u64),
        status: Status::new(args.status_interval),
        passed: Duration::ZERO,
        first_failure: None,
        unjudged: 0,
    };
    let mut points: Vec<Vec<Point>> = vec![Vec::new(); session.stages.len()];
    let mut broken = None;
    'all: for round in 0..repeat {
        for (stage, points) in session.stages.iter().zip(&mut points) {
            if session.is_stopped() {
                break 'all;
            }
            match course.stage(stage, round) {
                Ok(point) => points.extend(point),
                Err(error) => {
                    broken = Some(error);
                    break 'all;
                }
            }
        }
    }
    let combined = points.into_iter().enumerate();
    let points = combined.filter_map(|(stage, points)| Some((stage, report::combine(points)?))).collect();
    Measured { points, first_failure: course.first_failure, unjudged: course.unjudged, broken }
}

impl Course<'_> {
    /// Measures a stage, in rounds where it is to become steady: the last of them stand for it, then.
    fn stage(&mut self, stage: &Stage, round: u32) -> Result<Option<Point>> {
        let after = self.passed + stage.planned();
        let Some(rounds) = &stage.rounds else {
            let point = self.once(stage, round, "")?;
            self.passed = after;
            return Ok(Some(point));
        };
        let (mut points, mut figures) = (Vec::new(), Vec::new());
        let mut steady = SteadyState::of(rounds.figure, &figures, WINDOW);
        while (figures.len() as u32) < rounds.max && !steady.reached && !self.session.is_stopped() {
            let number = figures.len() as u32 + 1;
            // Rounds of repetitions are apart: there are fewer than this of each.
            let point = self.once(stage, (round << 16) + number, &format!(", round {number}"))?;
            self.passed += stage.duration();
            figures.push(match rounds.figure {
                SteadyFigure::Iops => point.total.iops,
                SteadyFigure::Throughput => point.total.mib_per_second,
                // Of a round without a completion there is no latency: no state of it is steady.
                SteadyFigure::Latency => point.total.latency_us_average.unwrap_or(0.0),
            });
            points.push(point);
            steady = SteadyState::of(rounds.figure, &figures, WINDOW);
        }
        self.passed = after;
        let series = report::joined_series(&points);
        let last = points.split_off(points.len().saturating_sub(WINDOW));
        let errors = points.iter().map(|point| (point.total.errors, point.total.miscompares));
        let (errors, miscompares) = errors.fold((0, 0), |(a, b), (c, d)| (a + c, b + d));
        Ok(report::combine(last).map(|mut point| {
            point.total.errors += errors;
            point.total.miscompares += miscompares;
            point.series = series;
            point.steady = Some(steady);
            point
        }))
    }

    fn once(&mut self, stage: &Stage, round: u32, which: &str) -> Result<Point> {
        let what = format!("{}{which}", announce(stage));
        self.progress.say(what.clone());
        self.status.begin();
        let tick = |elapsed: Duration, live: &[Arc<Live>]| {
            let passed = self.passed + elapsed.min(stage.duration());
            self.progress.set(passed.as_millis() as u64);
            self.progress.say(format!("{what}: {}", status::so_far(elapsed, live)));
            self.status.tick(elapsed, live, &what, &self.progress);
        };
        let is_watched = self.progress.is_shown() || self.status.is_wanted();
        let onlooker = is_watched.then(|| Onlooker { tick: &tick, pause: self.status.pause() });
        load::run(self.session, stage)?;
        let outcome = point::measure(self.session, stage, round, onlooker)?;
        self.unjudged += outcome.unjudged;
        self.first_failure = self.first_failure.take().or(outcome.first_failure);
        Ok(outcome.point)
    }
}

fn announce(stage: &Stage) -> String {
    let phase = stage.phase.iter().cloned();
    let settings = stage.at.iter().map(|at| format!("{} {}", at.name, at.value));
    let told: Vec<String> = phase.chain(settings).collect();
    match told.is_empty() {
        true => format!("{}, depth {}", count(stage.threads() as u64, "thread"), stage.depth()),
        false => told.join(", "),
    }
}

/// Prints the results, and writes the files that were asked for.
fn publish(args: &Perf, session: &Session, run: &Run) -> Result<()> {
    // The files first, as the reader of the output may go away; what cannot be written is not all that there
    // is.
    let saved = [
        save(args.json.as_deref(), |out| report::write_json(run, out)),
        save(args.csv.as_deref(), |out| report::csv::write(run, out)),
        save(args.report.as_deref(), |out| report::html::write(run, out)),
    ];
    let mut out = BufWriter::new(io::stdout());
    match args.output {
        Output::Text => {
            print(args, session, run, &mut out)?;
            name_files(args, &saved, &mut out)?;
        }
        Output::Json => report::write_json(run, &mut out)?,
        Output::Csv => report::csv::write(run, &mut out)?,
    }
    out.flush()?;
    saved.into_iter().collect()
}

/// The same for a run whose points are compared with each other: files for programs have the run, and what
/// people read the comparison.
fn publish_comparison(args: &Perf, run: &Run, name: &str) -> Result<()> {
    let comparison = Comparison::within(run, name).map_err(usage)?;
    let saved = [
        save(args.json.as_deref(), |out| report::write_json(run, out)),
        save(args.csv.as_deref(), |out| report::csv::write(run, out)),
        save(args.report.as_deref(), |out| compare::page::write(&comparison, out)),
    ];
    let mut out = BufWriter::new(io::stdout());
    match args.output {
        Output::Text => {
            compare::text::write(&comparison, &mut out)?;
            name_files(args, &saved, &mut out)?;
        }
        Output::Json => {
            serde_json::to_writer_pretty(&mut out, &comparison)?;
            writeln!(out)?;
        }
        Output::Csv => report::csv::write(run, &mut out)?,
    }
    out.flush()?;
    saved.into_iter().collect()
}

/// Says which files there are now.
fn name_files(args: &Perf, saved: &[Result<()>; 3], out: &mut impl Write) -> io::Result<()> {
    let paths = [("JSON", &args.json), ("CSV", &args.csv), ("Report", &args.report)];
    for ((what, path), saved) in paths.into_iter().zip(saved) {
        if let (Some(path), Ok(())) = (path, saved) {
            writeln!(out, "{what}: {}", path.display())?;
        }
    }
    Ok(())
}

pub(crate) fn save(
    path: Option<&Path>,
    write: impl FnOnce(&mut BufWriter<OnDisk>) -> io::Result<()>,
) -> Result<()> {
    let Some(path) = path else { return Ok(()) };
    let saved = OnDisk::create(path).and_then(|file| {
        let mut out = BufWriter::new(file);
        write(&mut out)?;
        out.flush()
    });
    saved.with_context(|| format!("write {}", path.display()))
}

fn print(args: &Perf, session: &Session, run: &Run, out: &mut impl Write) -> io::Result<()> {
    if run.interrupted {
        writeln!(out, "Stopped early.")?;
    }
    let percentiles = if args.latency { Percentiles::List } else { Percentiles::Line };
    if session.is_sweep() {
        if args.verbose {
            for point in &run.points {
                heading("Point", point, out)?;
                report::table::write(point, percentiles, out)?;
                writeln!(out)?;
            }
        }
        report::table::write_sweep(run, out)?;
        writeln!(out)?;
    }
    if run.workload.virtual_time {
        writeln!(out, "In virtual time: seconds are those of the device's model.")?;
    }
    for (name, text) in run.workload.shape.facts() {
        writeln!(out, "{name}: {text}")?;
    }
    if let Some(placement) = &run.workload.placement {
        writeln!(out, "Writes placed: {placement}")?;
    }
    if let Some(best) = report::peak(run) {
        // Phases do different things: none of them is the best.
        if best.phase.is_none() {
            if session.is_sweep() {
                heading("Best", best, out)?;
            }
            report::table::write(best, percentiles, out)?;
        }
        if run.points.iter().any(|point| !point.repetitions.is_empty()) {
            let count = best.repetitions.len();
            if best.phase.is_none() && count > 0 {
                writeln!(
                    out,
                    "\nOf {count} repetitions, these are the figures of the one with the median rate."
                )?;
            }
            report::table::write_spreads(&run.points, out)?;
        }
    }
    for point in &run.points {
        if let Some(steady) = &point.steady {
            let phase = point.phase.as_ref().map_or_else(String::new, |phase| format!("{phase}: "));
            writeln!(out, "{phase}{}", steady.sentence())?;
        }
    }
    if let Some(text) = report::unjudged(run) {
        writeln!(out, "{text}")?;
    }
    writeln!(out)?;
    if let Some(text) = report::harness(run) {
        writeln!(out, "{text}\n")?;
    }
    writeln!(out, "{}", report::sentence(run))
}

fn heading(word: &str, point: &Point, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{word}: {}", report::place(point))
}
