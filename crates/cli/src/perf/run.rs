//! A whole run: everything in order, and the results where they are wanted.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use super::args::{Output, Perf};
use super::job::{Job, Shape};
use super::machine::{machine, now};
use super::progress::Progress;
use super::{point, prefill};
use crate::count::count;
use crate::exit::{Failed, INTERRUPTED, Interrupted};
use crate::fault::Script;
use crate::report::table::Percentiles;
use crate::report::{self, Point, Run};

/// What is said of a run that a signal has ended.
const INTERRUPTED_RUN: &str = "interrupted: the figures are of the time until then";

/// Does what was typed.
pub(super) fn run(args: &Perf) -> Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // The second one ends the program at once; in this order, so that the first does not.
        flag::register_conditional_shutdown(signal, INTERRUPTED.into(), Arc::clone(&stop))
            .context("handle signals")?;
        flag::register(signal, Arc::clone(&stop)).context("handle signals")?;
    }
    for path in [&args.json, &args.csv, &args.report].into_iter().flatten() {
        touch(path)?;
    }
    let mut job = Job::new(args, stop)?;
    let started = now();
    prefill::run(&job, args.prefill)?;
    warn_of_empty_blocks(&job);
    for line in &job.beyond {
        let _ = writeln!(std::io::stderr(), "unvme: note: {line}");
    }
    let script = args.faults.as_deref().map(|file| Script::start(file, &job.devices())).transpose()?;
    let measured = measure(&mut job, args.repeat.unwrap_or(1));
    // Asked before the loop without a device is measured: a signal then takes nothing away.
    let interrupted = job.is_stopped();
    for line in script.iter().flat_map(Script::outcome) {
        // With stderr gone there is nobody left to tell.
        let _ = writeln!(std::io::stderr(), "unvme: note: {line}");
    }
    drop(script);
    let harness = match measured.points.iter().max_by(|a, b| a.total.iops.total_cmp(&b.total.iops)) {
        // No depth is above what a queue takes.
        Some(best) if measured.broken.is_none() && job.is_connected() => {
            point::harness(&job, best.depth as u16)?
        }
        _ => None,
    };
    let run = Run {
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        started,
        command_line: command_line(),
        machine: machine(),
        devices: job.targets.iter().map(|target| target.identity.clone()).collect(),
        workload: job.workload.clone(),
        points: measured.points,
        harness,
        unjudged_reads: args.verify.then_some(measured.unjudged),
        interrupted,
    };
    let result = if run.points.is_empty() { Err(prefill::stopped()) } else { publish(args, &job, &run) };
    if let Some(error) = measured.broken {
        return Err(error);
    }
    result?;
    match (report::failures(&run), measured.first_failure) {
        (Some(counts), Some(first)) => Err(Failed(format!("{counts}; the first: {first}")).into()),
        _ if run.interrupted => Err(Interrupted(INTERRUPTED_RUN.to_owned()).into()),
        _ => Ok(()),
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
    File::options()
        .append(true)
        .create(true)
        .open(path)
        .with_context(|| format!("write {}", path.display()))?;
    Ok(())
}

fn warn_of_empty_blocks(job: &Job) {
    if job.mix.pattern.writes() || job.workload.verify {
        return;
    }
    for target in job.targets.iter().filter(|target| target.may_be_empty()) {
        let name = &target.identity.name;
        // With stderr gone there is nobody left to tell.
        let _ = writeln!(
            std::io::stderr(),
            "unvme: note: {name}: blocks that were never written are read as zeroes, without the media; --prefill \
             writes them all"
        );
    }
}

/// The points, as far as they got.
struct Measured {
    points: Vec<Point>,
    first_failure: Option<String>,
    unjudged: u64,
    /// Why there are no more.
    broken: Option<anyhow::Error>,
}

/// Measures all points once, then all again: what changes with time changes all of them.
fn measure(job: &mut Job, repeat: u32) -> Measured {
    let each = job.warmup + job.time;
    let steps = job.shapes.len() as u32 * repeat;
    let progress = Progress::new("measure", (each * steps).as_millis() as u64);
    let mut measured = Measured { points: Vec::new(), first_failure: None, unjudged: 0, broken: None };
    let mut points: Vec<Vec<Point>> = vec![Vec::new(); job.shapes.len()];
    let seed = job.mix.seed;
    let mut last = None;
    'all: for round in 0..repeat {
        // Independent figures, and yet the same again the next time.
        job.mix.seed = seed.wrapping_add(round.into());
        for (index, &shape) in job.shapes.iter().enumerate() {
            if job.is_stopped() {
                break 'all;
            }
            let before = each * (round * job.shapes.len() as u32 + index as u32);
            progress.say(announce(shape, last));
            let tick = |elapsed: Duration| progress.set((before + elapsed.min(each)).as_millis() as u64);
            let tick: Option<&dyn Fn(Duration)> = if progress.is_shown() { Some(&tick) } else { None };
            match point::measure(job, shape, tick) {
                Ok(outcome) => {
                    last = Some(outcome.point.total.iops);
                    points[index].push(outcome.point);
                    measured.unjudged += outcome.unjudged;
                    measured.first_failure = measured.first_failure.or(outcome.first_failure);
                }
                Err(error) => {
                    measured.broken = Some(error);
                    break 'all;
                }
            }
        }
    }
    measured.points = points.into_iter().filter_map(report::combine).collect();
    measured
}

fn announce(shape: Shape, last: Option<f64>) -> String {
    let Shape { threads, depth } = shape;
    let last = last.map_or_else(String::new, |iops| format!("; last: {iops:.0} IOPS"));
    format!("{}, depth {depth}{last}", count(threads, "thread"))
}

/// Prints the results, and writes the files that were asked for.
fn publish(args: &Perf, job: &Job, run: &Run) -> Result<()> {
    // The files first, as the reader of the output may go away; what cannot be written is not all that there
    // is.
    let saved = [
        save(args.json.as_deref(), |out| report::write_json(run, out)),
        save(args.csv.as_deref(), |out| report::csv::write(run, out)),
        save(args.report.as_deref(), |out| report::html::write(run, out)),
    ];
    let mut out = BufWriter::new(std::io::stdout());
    match args.output {
        Output::Text => {
            print(args, job, run, &mut out)?;
            let paths = [("JSON", &args.json), ("CSV", &args.csv), ("Report", &args.report)];
            for ((what, path), saved) in paths.into_iter().zip(&saved) {
                if let (Some(path), Ok(())) = (path, saved) {
                    writeln!(out, "{what}: {}", path.display())?;
                }
            }
        }
        Output::Json => report::write_json(run, &mut out)?,
        Output::Csv => report::csv::write(run, &mut out)?,
    }
    out.flush()?;
    saved.into_iter().collect()
}

pub(crate) fn save(
    path: Option<&Path>,
    write: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>,
) -> Result<()> {
    let Some(path) = path else { return Ok(()) };
    let saved = File::create(path).and_then(|file| {
        let mut out = BufWriter::new(file);
        write(&mut out)?;
        out.flush()
    });
    saved.with_context(|| format!("write {}", path.display()))
}

fn print(args: &Perf, job: &Job, run: &Run, out: &mut impl Write) -> std::io::Result<()> {
    if run.interrupted {
        writeln!(out, "Stopped early.")?;
    }
    let percentiles = if args.latency { Percentiles::List } else { Percentiles::Line };
    if job.is_sweep() {
        if args.verbose {
            for point in &run.points {
                heading("Point", point, out)?;
                report::table::write(point, percentiles, out)?;
                writeln!(out)?;
            }
        }
        report::table::write_sweep(&run.points, out)?;
        writeln!(out)?;
    }
    if run.workload.virtual_time {
        writeln!(out, "In virtual time: seconds are those of the device's model.")?;
    }
    if let Some(placement) = &run.workload.placement {
        writeln!(out, "Writes placed: {placement}")?;
    }
    if let Some(best) = report::peak(run) {
        if job.is_sweep() {
            heading("Best", best, out)?;
        }
        report::table::write(best, percentiles, out)?;
        if !best.repetitions.is_empty() {
            let count = best.repetitions.len();
            writeln!(
                out,
                "\nOf {count} repetitions, these are the figures of the one with the median rate."
            )?;
            report::table::write_spreads(&run.points, out)?;
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

fn heading(word: &str, point: &Point, out: &mut impl Write) -> std::io::Result<()> {
    let Point { threads, depth, .. } = point;
    writeln!(out, "{word}: threads {threads}, depth {depth}")
}
