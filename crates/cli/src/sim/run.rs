//! A whole run: its rows, on as many cores as there are, and the results where they are wanted.

use std::io::{BufWriter, IsTerminal, Write};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, anyhow};
use unvme::lock;
use unvme_flash::PAGE_BYTES;
use unvme_flash::ftl::FtlConfig;

use super::args::{Fdp, IsolationKind, Output, Sim};
use super::geometry::Geometry;
use super::row::Case;
use super::share::Share;
use super::workload::Workload;
use crate::exit::usage;
use crate::perf::{PAUSE, Progress, command_line, save, touch};
use crate::report::sim::{self as report, Device, Parameter, Row, SAMPLES, Simulation, Traffic};

/// Multiples of the capacity that are written when nothing else was asked for.
const WRITES: f64 = 20.0;
/// Most rows of a run.
const ROWS_MAX: usize = 1000;

/// Does what was typed.
pub(super) fn run(args: &Sim) -> Result<()> {
    let workload = Workload::new(args)?;
    let geometry = Geometry::new(args, default_size(&workload))?;
    let cases = cases(args, &workload, geometry)?;
    // What cannot be written is found before the first row runs, and what was typed wrong leaves no empty
    // files.
    for path in [&args.json, &args.csv, &args.html].into_iter().flatten() {
        touch(path)?;
    }
    let started = Instant::now();
    let rows = simulate(args, &workload, &cases)?;
    tell_rate(args, &rows, started);
    let idle = args.idle.map(|idle| Parameter { name: "idle", value: idle.to_string() });
    let simulation = Simulation {
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        workload: Traffic {
            name: workload.name().to_owned(),
            title: workload.title(),
            streams: workload.streams(),
            prefilled: args.prefills(),
            parameters: workload.parameters().into_iter().chain(idle).collect(),
            seed: args.seed,
        },
        device: device(args, geometry, &cases[0].config),
        rows,
    };
    publish(args, &simulation)
}

/// Units of 32 MiB hold several of RocksDB's files.
fn default_size(workload: &Workload) -> u64 {
    if matches!(workload, Workload::RocksDb(_)) { 32 << 30 } else { 8 << 30 }
}

/// The rows, in the order asked for; all errors of options are found here.
fn cases(args: &Sim, workload: &Workload, geometry: Geometry) -> Result<Vec<Case>> {
    let streams = workload.streams();
    let both: &[bool] = match args.fdp {
        Some(Fdp::On) => &[true],
        Some(Fdp::Off) => &[false],
        Some(Fdp::Both) => &[false, true],
        None if streams.len() > 1 => &[false, true],
        None => &[false],
    };
    let handles = args.handles.unwrap_or(streams.len() as u16);
    if both.contains(&true) && usize::from(handles) < streams.len() {
        let message = format!(
            "--handles: {handles} for the {} streams of the workload, expected at least one for each",
            streams.len()
        );
        return Err(usage(message));
    }
    let utils = match (args.util.as_slice(), workload) {
        ([], Workload::RocksDb(_)) => vec![Share(0.8)],
        ([], _) => vec![Share(1.0)],
        (given, _) => given.to_vec(),
    };
    if utils.len() * both.len() > ROWS_MAX {
        return Err(usage(format!("--util: at most {ROWS_MAX} rows in one run")));
    }
    let host_pages = host_pages(args, workload, geometry)?;
    let prefill = args.prefills();
    let mut cases = Vec::new();
    for util in utils {
        for &fdp in both {
            let config = geometry.layer(args, if fdp { handles } else { 1 })?;
            let pages = (f64::from(config.logical_pages) * util.0).round() as u32;
            // What does not fit is found before the first row runs, not at the last.
            workload.source(pages, args.seed)?;
            let timing = args.timing.config().clone();
            let (util, streams, depth, idle) = (util.0, streams.clone(), args.depth, args.idle);
            cases.push(Case { config, util, fdp, pages, host_pages, prefill, timing, depth, idle, streams });
        }
    }
    Ok(cases)
}

fn host_pages(args: &Sim, workload: &Workload, geometry: Geometry) -> Result<u64> {
    let pages = match (args.writes, workload) {
        (None, Workload::Trace { trace, .. }) => trace.written,
        (times, _) => (times.unwrap_or(WRITES) * geometry.pages() as f64).round() as u64,
    };
    if pages < SAMPLES as u64 {
        let message = format!("--writes: {pages} pages are written in all, expected at least {SAMPLES}");
        return Err(usage(message));
    }
    Ok(pages)
}

fn device(args: &Sim, geometry: Geometry, config: &FtlConfig) -> Device {
    Device {
        physical_bytes: geometry.pages() * PAGE_BYTES,
        exported_bytes: u64::from(config.logical_pages) * PAGE_BYTES,
        unit_bytes: u64::from(geometry.unit_pages) * PAGE_BYTES,
        units: geometry.units,
        groups: args.groups,
        isolation: match args.isolation {
            IsolationKind::Initially => "initially",
            IsolationKind::Persistently => "persistently",
        },
        policy: args.policy.to_string(),
        overprovisioning: config.overprovisioning(),
        timing: args.timing.to_string(),
    }
}

/// Runs the rows, each in one thread. Which thread it is has no influence on a row.
fn simulate(args: &Sim, workload: &Workload, cases: &[Case]) -> Result<Vec<Row>> {
    let cores = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let threads = args.threads.map_or(cores, usize::from).min(cases.len());
    let next = AtomicUsize::new(0);
    let failed = AtomicBool::new(false);
    let written = AtomicU64::new(0);
    let rows: Mutex<Vec<Option<Result<Row>>>> = Mutex::new(cases.iter().map(|_| None).collect());
    let work = || {
        while !failed.load(Ordering::Relaxed) {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(case) = cases.get(index) else { break };
            let row = case.run(workload, &written, args.clock);
            failed.fetch_or(row.is_err(), Ordering::Relaxed);
            lock(&rows)[index] = Some(row);
        }
    };
    let total = cases.iter().map(|case| case.host_pages).sum();
    let progress = Progress::new("simulate", total);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        while progress.is_shown() && workers.iter().any(|worker| !worker.is_finished()) {
            progress.set(written.load(Ordering::Relaxed));
            progress.say(format!("row {} of {}", next.load(Ordering::Relaxed).min(cases.len()), cases.len()));
            thread::sleep(PAUSE);
        }
    });
    drop(progress);
    let rows = std::mem::take(&mut *lock(&rows));
    let first_error = |row: &Option<Result<Row>>| matches!(row, Some(Err(_)));
    if rows.iter().any(first_error) {
        let error = rows.into_iter().flatten().find_map(Result::err);
        return Err(error.unwrap_or_else(|| anyhow!("a row failed")));
    }
    rows.into_iter().map(|row| row.context("a row was not simulated")?).collect()
}

/// Tells a person at a terminal how fast it was: the results themselves do not say it, as they are the same
/// each time.
fn tell_rate(args: &Sim, rows: &[Row], started: Instant) {
    if args.clock || !std::io::stderr().is_terminal() {
        return;
    }
    let pages = rows.iter().map(|row| row.media_pages).sum::<u64>() as f64;
    let seconds = started.elapsed().as_secs_f64();
    // With stderr gone there is nobody left to tell.
    let _ = writeln!(
        std::io::stderr(),
        "{:.0} million pages programmed in {seconds:.1} s: {:.1} million per second",
        pages / 1e6,
        pages / 1e6 / seconds
    );
}

/// Prints the result, and writes the files that were asked for.
fn publish(args: &Sim, simulation: &Simulation) -> Result<()> {
    let saved = [
        save(args.json.as_deref(), |out| report::write_json(simulation, out)),
        save(args.csv.as_deref(), |out| report::csv::write(simulation, out)),
        save(args.html.as_deref(), |out| report::page::write(simulation, &command_line(), out)),
        args.pictures.as_deref().map_or(Ok(()), |folder| draw(folder, simulation)),
    ];
    let mut out = BufWriter::new(std::io::stdout());
    match args.output {
        Output::Text => {
            report::text::write(simulation, &mut out)?;
            let paths = [
                ("JSON", &args.json),
                ("CSV", &args.csv),
                ("Report", &args.html),
                ("Pictures", &args.pictures),
            ];
            for ((what, path), saved) in paths.into_iter().zip(&saved) {
                if let (Some(path), Ok(())) = (path, saved) {
                    writeln!(out, "{what}: {}", path.display())?;
                }
            }
        }
        Output::Json => report::write_json(simulation, &mut out)?,
        Output::Csv => report::csv::write(simulation, &mut out)?,
    }
    out.flush()?;
    saved.into_iter().collect()
}

fn draw(folder: &Path, simulation: &Simulation) -> Result<()> {
    for (name, content) in report::picture::pictures(simulation) {
        save(Some(&folder.join(name)), |out| out.write_all(content.as_bytes()))?;
    }
    Ok(())
}
