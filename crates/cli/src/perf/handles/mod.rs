//! `unvme perf --handle`: several handles of one device, side by side.
//!
//! Each handle has a thread. It is measured alone first; then all of them at once, as if they had no
//! policies between them (first come, first served, no limits), and with those that they have: so the
//! picture shows what the others cost the first one, and what its policies give back.

mod outcome;
mod page;
mod text;
mod turn;
mod words;

use std::io::{self, BufWriter, Write};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Result, ensure};
use unvme::handle::{Handle, HandleOptions, Policies, Schedule};
use unvme::{Device, Nsid, OpenOptions, open};

use super::args::{Output, Perf};
use super::job::transport;
use super::machine::{machine, now};
use super::run::{command_line, save, touch};
use super::settings::Settings;
use super::{cores, data};
use crate::exit::{Failed, Interrupted, usage};
use crate::report::DeviceIdentity;
use outcome::{Outcome, Player, Run};
use turn::{Turn, play};
use words::Words;

/// What is written with one call before the first run.
const STEP_BYTES: usize = 2 << 20;

/// Does what was typed.
pub(super) fn run(args: &Perf, stop: &AtomicBool) -> Result<()> {
    let parse = |(nth, text): (usize, &String)| Words::parse(text, nth, &args.settings);
    let words: Vec<Words> = args.handles.iter().enumerate().map(parse).collect::<Result<_>>()?;
    check(args, &words)?;
    for path in [&args.json, &args.report].into_iter().flatten() {
        touch(path)?;
    }
    let [name] = args.settings.devices.as_slice() else {
        return Err(usage(
            "-r: expected one device: handles are of one device, such as mem:block:1G,timing=tlc",
        ));
    };
    let device = open(name, &OpenOptions::default())?;
    let nsid = namespace(&device, args)?;
    let writes = words.iter().any(|words| words.settings.pattern().writes());
    if writes {
        args.force.confirm(&device, "this overwrites what is on it")?;
    }
    if let Some(bytes) = args.handle_window {
        device.set_handle_window(bytes);
    }
    fill(args, &device, nsid, &words)?;
    let started = now();
    let players = players(&device, nsid, &words)?;
    let runs = measure(args, (&device, nsid, &words), stop)?;
    let interrupted = stop.load(std::sync::atomic::Ordering::Relaxed);
    let outcome = Outcome {
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        started,
        command_line: command_line(),
        machine: machine(),
        device: identity(&device, nsid)?,
        seconds: time(args).as_secs_f64(),
        window_bytes: device.handle_window(),
        handles: players,
        runs,
        interrupted,
    };
    publish(args, &outcome)?;
    match outcome.runs.iter().flat_map(|run| &run.handles).find_map(|own| own.first_failure.clone()) {
        Some(first) => Err(Failed(format!("commands failed; the first: {first}")).into()),
        None if interrupted => {
            Err(Interrupted("interrupted: runs are shorter, or missing".to_owned()).into())
        }
        None => match outcome.stalled() {
            Some(what) => Err(Failed(what).into()),
            None => Ok(()),
        },
    }
}

fn time(args: &Perf) -> Duration {
    Duration::from_secs_f64(args.settings.time().unwrap_or(5.0))
}

fn check(args: &Perf, words: &[Words]) -> Result<()> {
    for (nth, own) in words.iter().enumerate() {
        ensure!(
            words[..nth].iter().all(|other| other.name != own.name),
            usage(format!("--handle: two are called {}; say name=ANOTHER", own.name))
        );
    }
    ensure!(args.output != Output::Csv, usage("--output csv: handles are shown as text or json"));
    ensure!(args.csv.is_none(), usage("--csv: handles are written with --json or --report"));
    let others = said(&args.settings);
    match others.iter().find(|(_, is_given)| *is_given) {
        Some((option, _)) => {
            Err(usage(format!("{option}: with --handle, each handle says it in its own words")))
        }
        None => Ok(()),
    }
}

/// Options that handles do not have from the command line, and whether they were typed. A setting that is new
/// is to be listed here as well, or among those that hold for all handles.
fn said(settings: &Settings) -> Vec<(&'static str, bool)> {
    let Settings {
        devices: _,
        namespace_id: _,
        time: _,
        warmup: _,
        range: _,
        offset: _,
        cores: _,
        depth,
        io_size,
        size_mix,
        pattern,
        read_percent,
        keys,
        key_size,
        scan_length,
        trim,
        flush_every,
        trace,
        trace_format,
        trace_device,
        trace_speed,
        amount,
        threads,
        rate,
        arrivals,
        think,
        burst,
        completion,
        dist,
        fdp_pid,
        fdp_select,
    } = settings;
    vec![
        ("-w", pattern.is_some()),
        ("-o", io_size.is_some()),
        ("--size-mix", size_mix.is_some()),
        ("-q", depth.is_some()),
        ("-M", read_percent.is_some()),
        ("--keys", keys.is_some()),
        ("--key-size", key_size.is_some()),
        ("--scan-length", scan_length.is_some()),
        ("--trim", trim.is_some()),
        ("--flush-every", flush_every.is_some()),
        ("--trace", trace.is_some()),
        ("--trace-format", trace_format.is_some()),
        ("--trace-device", !trace_device.is_empty()),
        ("--trace-speed", trace_speed.is_some()),
        ("--amount", amount.is_some()),
        ("--threads", threads.is_some()),
        ("--rate", rate.is_some()),
        ("--arrivals", arrivals.is_some()),
        ("--think", think.is_some()),
        ("--burst", burst.is_some()),
        ("--completion", completion.is_some()),
        ("--dist", dist.is_some()),
        ("--fdp-pid", fdp_pid.is_some()),
        ("--fdp-select", fdp_select.is_some()),
    ]
}

fn namespace(device: &Device, args: &Perf) -> Result<Nsid> {
    match (args.settings.namespace_id, device.namespaces()?.as_slice()) {
        (Some(nsid), _) => Ok(Nsid(nsid)),
        (None, [nsid]) => Ok(*nsid),
        // Whatever is wrong with it is said when it is opened.
        (None, []) => Ok(Nsid(1)),
        (None, several) => {
            let list: Vec<String> = several.iter().map(ToString::to_string).collect();
            let list = list.join(", ");
            Err(usage(format!("{}: namespaces are {list}; choose one with --namespace-id", device.name())))
        }
    }
}

fn identity(device: &Device, nsid: Nsid) -> Result<DeviceIdentity> {
    let (block, who) = (device.block(nsid)?, device.identity());
    Ok(DeviceIdentity {
        name: device.name().to_owned(),
        transport: transport(device.transport()).to_owned(),
        model: who.model.clone(),
        serial: who.serial.clone(),
        firmware: who.firmware.clone(),
        nsid: nsid.0,
        block_bytes: block.block_bytes(),
        capacity_bytes: block.bytes(),
    })
}

/// Writes what is read, of a device in memory or when it was asked for.
fn fill(args: &Perf, device: &Device, nsid: Nsid, words: &[Words]) -> Result<()> {
    if args.no_prefill || !(args.prefill || device.name().starts_with("mem:")) {
        return Ok(());
    }
    args.force.confirm(device, "this overwrites what is on it")?;
    let mut block = device.block(nsid)?;
    let size = block.block_bytes() as usize;
    let mut content = vec![0; STEP_BYTES];
    for own in words {
        let partition = own.partition(&block)?;
        let mut lba = partition.start;
        while lba < partition.end {
            let blocks = (partition.end - lba).min((STEP_BYTES / size) as u64);
            let part = &mut content[..blocks as usize * size];
            data::fill(part, size, lba, 1);
            block.write_at(lba, part)?;
            lba += blocks;
        }
    }
    Ok(())
}

fn players(device: &Device, nsid: Nsid, words: &[Words]) -> Result<Vec<Player>> {
    let block = device.block(nsid)?;
    words
        .iter()
        .map(|own| {
            let partition = own.partition(&block)?;
            Ok(Player {
                name: own.name.clone(),
                pattern: own.settings.pattern().name().to_owned(),
                io_bytes: own.settings.io_size(),
                depth: own.settings.depth().into(),
                rate: own.settings.rate,
                first_block: partition.start,
                blocks: partition.end - partition.start,
                policies: own.policies.to_string(),
            })
        })
        .collect()
}

/// The policies without those that are about the others.
fn alone(policies: &Policies) -> Policies {
    Policies { schedule: Schedule::Fifo, limit: None, ..policies.clone() }
}

/// Each alone, then all of them without and with what is between them.
fn measure(args: &Perf, on: (&Device, Nsid, &[Words]), stop: &AtomicBool) -> Result<Vec<Run>> {
    let (.., words) = on;
    let mut runs = Vec::new();
    for (nth, own) in words.iter().enumerate() {
        runs.push(together(args, on, (format!("{} alone", own.name), &[nth]), stop, Policies::clone)?);
    }
    let everybody: Vec<usize> = (0..words.len()).collect();
    let is_policed = words.iter().any(|own| alone(&own.policies) != own.policies);
    if words.len() > 1 {
        let name = "side by side, first come first served".to_owned();
        runs.push(together(args, on, (name, &everybody), stop, alone)?);
        if is_policed {
            let name = "side by side, with their policies".to_owned();
            runs.push(together(args, on, (name, &everybody), stop, Policies::clone)?);
        }
    }
    Ok(runs)
}

fn together(
    args: &Perf,
    (device, nsid, words): (&Device, Nsid, &[Words]),
    (name, who): (String, &[usize]),
    stop: &AtomicBool,
    policies: impl Fn(&Policies) -> Policies,
) -> Result<Run> {
    let block = device.block(nsid)?;
    let open = |&nth: &usize| {
        let own = &words[nth];
        let options =
            HandleOptions { blocks: Some(own.partition(&block)?), policies: policies(&own.policies) };
        Ok((nth, device.handle(nsid, &options)?))
    };
    let handles: Vec<(usize, Handle)> = who.iter().map(open).collect::<Result<_>>()?;
    let cores = match &args.settings.cores {
        Some(list) => list.0.clone(),
        None => Vec::new(),
    };
    let turn = Turn {
        warmup: Duration::from_secs_f64(args.settings.warmup()),
        time: time(args),
        start: std::sync::Barrier::new(handles.len()),
        stop,
    };
    let handles = std::thread::scope(|scope| {
        let threads: Vec<_> = handles
            .iter()
            .enumerate()
            .map(|(place, (nth, handle))| {
                let (turn, own) = (&turn, &words[*nth]);
                let core = (!cores.is_empty()).then(|| cores[place % cores.len()]);
                let seed = args.seed.wrapping_add((*nth as u64) << 32);
                scope.spawn(move || {
                    let bound = core.map_or(Ok(()), cores::bind);
                    let played = play(handle, own, seed, turn);
                    bound.and(played)
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect::<Result<Vec<_>>>()
    })?;
    Ok(Run { name, handles })
}

fn publish(args: &Perf, outcome: &Outcome) -> Result<()> {
    let json = |out: &mut dyn Write| {
        serde_json::to_writer_pretty(&mut *out, outcome)?;
        writeln!(out)
    };
    let saved = [
        save(args.json.as_deref(), |out| json(out)),
        save(args.report.as_deref(), |out| page::write(outcome, out)),
    ];
    let mut out = BufWriter::new(io::stdout());
    match args.output {
        Output::Json => json(&mut out)?,
        _ => {
            text::write(outcome, &mut out)?;
            for (what, path) in [("JSON", &args.json), ("Report", &args.report)] {
                if let Some(path) = path {
                    writeln!(out, "{what}: {}", path.display())?;
                }
            }
        }
    }
    out.flush()?;
    saved.into_iter().collect()
}
